//! *What*: results, and the text of the last failure of each thread.
//! *Invariants*: the numbers are the header's, and never change. A text lives until the thread's
//! next failure. *Locking*: none. *Context*: threads of the host.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;

use uzswap_pools::{BuildError, LimitError, PoolError};

/// What became of a call.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum uzswap_result {
    /// It succeeded.
    UZSWAP_OK = 0,
    /// An argument makes no sense.
    UZSWAP_INVALID = 1,
    /// The process runs under `uzswap run`.
    UZSWAP_MANAGED = 2,
    /// The kernel or a sandbox refuses.
    UZSWAP_REFUSED = 3,
    /// There is no room.
    UZSWAP_NO_MEMORY = 4,
    /// The memory is not this pool's.
    UZSWAP_NOT_OURS = 5,
    /// It cannot be read back.
    UZSWAP_LOST = 6,
    /// A signal handler was replaced.
    UZSWAP_REPLACED = 7,
}

/// What the result of that number means.
pub const fn text(result: u32) -> &'static CStr {
    match result {
        0 => c"it succeeded",
        1 => c"an argument makes no sense",
        2 => c"the process runs under 'uzswap run', which manages its memory already",
        3 => c"the kernel, or a sandbox, refuses",
        4 => c"the limit, or the pool's size, leaves no room",
        5 => c"the memory is not this pool's",
        6 => c"what was stored cannot be read back",
        7 => c"a signal handler of the library's was replaced",
        _ => c"unknown",
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the last failure.
pub fn last() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Keeps the text of a failure.
pub fn failed(result: uzswap_result, error: &dyn Display) -> uzswap_result {
    let text = CString::new(error.to_string()).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = text);
    result
}

/// An argument that makes no sense.
pub fn invalid(what: &str) -> uzswap_result {
    failed(uzswap_result::UZSWAP_INVALID, &what)
}

/// The result of a pool that could not be built.
pub const fn of_build(error: &BuildError) -> uzswap_result {
    match error {
        BuildError::LimitTooLow { .. } | BuildError::Compressor { .. } => {
            uzswap_result::UZSWAP_INVALID
        }
        BuildError::Managed => uzswap_result::UZSWAP_MANAGED,
        _ => uzswap_result::UZSWAP_REFUSED,
    }
}

/// The result of a pool that failed.
pub const fn of_pool(error: &PoolError) -> uzswap_result {
    match error {
        PoolError::NotOurs => uzswap_result::UZSWAP_NOT_OURS,
        PoolError::Lost | PoolError::LostInFork => uzswap_result::UZSWAP_LOST,
        PoolError::Kernel(_) => uzswap_result::UZSWAP_REFUSED,
        _ => uzswap_result::UZSWAP_NO_MEMORY,
    }
}

/// The result of a limit that was not changed.
pub const fn of_limit(error: &LimitError) -> uzswap_result {
    match error {
        LimitError::TooLow { .. } => uzswap_result::UZSWAP_INVALID,
        LimitError::LostInFork => uzswap_result::UZSWAP_LOST,
        _ => uzswap_result::UZSWAP_NO_MEMORY,
    }
}
