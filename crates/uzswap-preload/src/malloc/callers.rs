//! *What*: whether an allocation is libc's own: its caller's address lies in the text of libc or of
//! the dynamic loader.
//!
//! *Invariants*: the ranges are set once and then only read. *Locking*: none. *Context*: any.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void};

use crate::proc_files::for_each_mapping;

/// Two text ranges, as start and length.
struct Ranges(UnsafeCell<[(usize, usize); 2]>);

// SAFETY: written by `set_up` alone, while the process has one thread.
unsafe impl Sync for Ranges {}

static RANGES: Ranges = Ranges(UnsafeCell::new([(0, 0); 2]));

unsafe extern "C" {
    safe fn gnu_get_libc_version() -> *const c_char;
    fn __tls_get_addr(index: *mut c_void) -> *mut c_void;
}

/// Whether `addr` is libc's or the loader's code.
#[inline]
pub fn is_libc(addr: usize) -> bool {
    // SAFETY: only read once other threads exist.
    let [(libc, libc_len), (loader, loader_len)] = unsafe { *RANGES.0.get() };
    addr.wrapping_sub(libc) < libc_len || addr.wrapping_sub(loader) < loader_len
}

/// Finds the ranges: the executable mappings that hold a function of each.
pub fn set_up() {
    let known = [
        gnu_get_libc_version as *const () as usize,
        __tls_get_addr as *const () as usize,
    ];
    let mut found = [(0, 0); 2];
    for_each_mapping(|mapping| {
        for (known, found) in known.iter().zip(&mut found) {
            if (mapping.start..mapping.end).contains(known) {
                *found = (mapping.start, mapping.end - mapping.start);
            }
        }
    });
    // SAFETY: one thread, nobody reads meanwhile.
    unsafe { *RANGES.0.get() = found };
}
