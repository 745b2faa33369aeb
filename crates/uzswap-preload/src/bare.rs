//! *What*: what stands in the loader's image for the parts of the library that serve a C library:
//! its heap, the fast paths of its calls, what it is shown of the machine. There is none to serve.
//!
//! *Invariants*: the same names, and nothing behind them. *Locking*: none. *Context*: any.

/// For [`crate::guard::fast`](self): all calls are trapped.
pub mod fast {
    use uzswap_sys::signal::UContext;

    use crate::threads::Record;

    /// No call is issued in the program's own context.
    pub const fn redirect(_: &mut UContext) {}

    /// As [`redirect`].
    pub const unsafe fn returned_from(_: &UContext) -> Option<usize> {
        None
    }

    /// As [`redirect`].
    pub const unsafe fn passed_on(_: *mut Record, _: &UContext) -> Option<usize> {
        None
    }
}

/// The program's allocator is its own. What a fork must hold of it is the break.
pub mod malloc {
    pub use crate::loader::program_break::hold;

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
