//! *What*: what stands in the loader's image for the parts of the library that serve a C library:
//! its heap, the fast paths of its calls, what it is shown of the machine. There is none to serve.
//!
//! *Invariants*: the same names, and nothing behind them. *Locking*: none. *Context*: any.

/// For [`crate::guard::fast`](self): all calls are trapped.
pub mod fast {
    use uzswap_sys::signal::UContext;

    use crate::threads::Record;

    /// No call is issued in the program's own context but by rewritten sites.
    pub const fn redirect(_: &mut UContext) {}

    /// As [`redirect`].
    pub const unsafe fn returned_from(_: &UContext) -> Option<usize> {
        None
    }

    /// The number of the call by a rewritten site that has just returned.
    ///
    /// # Safety
    /// `r` is the calling thread's record.
    pub unsafe fn passed_on(r: *mut Record, _: &UContext) -> Option<usize> {
        // SAFETY: the caller's promise.
        unsafe { core::mem::take(&mut (*r).passed_on) }.checked_sub(1)
    }
}

/// The program's allocator is its own. What a fork must hold is the break, and the text.
pub mod malloc {
    use uzswap_sync::lock::LockGuard;

    use crate::loader::program_break::{self, Break};
    use crate::loader::sites::{self, Texts};

    /// Locks both.
    pub fn hold() -> (LockGuard<'static, Break>, LockGuard<'static, Texts>) {
        (program_break::hold(), sites::hold())
    }

    /// There is none.
    pub const fn set_up() {}

    /// There is none.
    pub const fn set_limit(_: u64) {}
}

/// Programs see the machine's memory.
pub mod show_memory {
    use uzswap_sys::Errno;

    /// Not shown anything else.
    pub const fn sysinfo(_: usize) -> Option<Result<(), Errno>> {
        None
    }
}

/// There is no thread-local word.
pub mod tls {
    use crate::threads::Record;

    /// Kept nowhere.
    pub const fn set_record(_: *mut Record) {}
}
