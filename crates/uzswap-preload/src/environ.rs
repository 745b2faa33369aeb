//! *What*: our variables in an environment: the group's path, and the library in `LD_PRELOAD`.
//!
//! *Invariants*: other variables, and other libraries in the list, stay as they are.
//! *Locking*: none. *Context*: init, signal.

use core::ffi::{CStr, c_char};

use uzswap_group::environment::GROUP_ENV;
use uzswap_group::library::is_library;

/// The variable with the libraries to preload.
pub const LD_PRELOAD: &str = "LD_PRELOAD";

/// Takes our variables out of this process's environment: what it executes is out of our sight, and
/// may be of another C library.
///
/// # Safety
/// `envp` is the environment, and nobody else uses it meanwhile.
pub unsafe fn clear(envp: *mut *mut c_char) {
    let (mut from, mut to) = (envp, envp);
    // SAFETY: the caller's promise: strings that may be written to, and null after the last.
    unsafe {
        while !(*from).is_null() {
            let kept = match value(*from, LD_PRELOAD) {
                Some(list) => {
                    let len = CStr::from_ptr(list).count_bytes() + 1;
                    without_ours(core::slice::from_raw_parts_mut(list.cast(), len))
                }
                None => value(*from, GROUP_ENV).is_none(),
            };
            if kept {
                to.write(*from);
                to = to.add(1);
            }
            from = from.add(1);
        }
        to.write(core::ptr::null_mut());
    }
}

/// What follows `name=` in an entry of that name.
unsafe fn value(entry: *mut c_char, name: &str) -> Option<*mut c_char> {
    // SAFETY: the caller's string.
    let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
    let rest = text.strip_prefix(name.as_bytes())?;
    (rest.first() == Some(&b'=')).then(|| entry.wrapping_add(name.len() + 1))
}

/// Removes our library from the list, which ends in a zero byte; whether any is left.
pub fn without_ours(list: &mut [u8]) -> bool {
    let is_separator = |byte: u8| matches!(byte, b':' | b' ' | 0);
    let (mut kept, mut entry) = (0, 0);
    for at in 0..list.len() {
        if !list.get(at).is_some_and(|byte| is_separator(*byte)) {
            continue;
        }
        let name = list.get(entry..at).unwrap_or_default();
        if !name.is_empty() && !is_library(name) {
            // With what ends it.
            list.copy_within(entry..=at, kept);
            kept += at + 1 - entry;
        }
        entry = at + 1;
    }
    if let Some(end) = kept.checked_sub(1).and_then(|end| list.get_mut(end)) {
        *end = 0;
    }
    kept > 0
}
