//! *What*: whether an allocation is libc's own: its caller's address lies in the text of libc or of
//! the dynamic loader.
//!
//! *Invariants*: the ranges are set once and then only read. *Locking*: none. *Context*: any.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void};

use uzswap_sys::file;

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
    for_each_mapping(|start, end| {
        for (known, found) in known.iter().zip(&mut found) {
            if (start..end).contains(known) {
                *found = (start, end - start);
            }
        }
    });
    // SAFETY: one thread, nobody reads meanwhile.
    unsafe { *RANGES.0.get() = found };
}

/// Calls `f` with start and end of every mapping of this process.
fn for_each_mapping(mut f: impl FnMut(usize, usize)) {
    let flags = file::O_RDONLY | file::O_CLOEXEC;
    let Ok(fd) = file::openat(file::AT_FDCWD, c"/proc/self/maps", flags, 0) else {
        return;
    };
    let mut chunk = [0_u8; 4096];
    // The numbers of this line so far; `field` 0: start, 1: end, 2: the rest of the line.
    let (mut numbers, mut field) = ([0_usize; 2], 0);
    while let Ok(nr @ 1..) = file::read(fd, &mut chunk) {
        for &byte in chunk.iter().take(nr) {
            match (byte, numbers.get_mut(field)) {
                (b'\n', _) => (numbers, field) = ([0; 2], 0),
                (b'-', Some(_)) => field += 1,
                (b' ', Some(_)) => {
                    field += 1;
                    f(numbers[0], numbers[1]);
                }
                (_, Some(number)) => {
                    let digit = char::from(byte).to_digit(16).unwrap_or(0);
                    *number = (*number << 4) | digit as usize;
                }
                (_, None) => {}
            }
        }
    }
    let _ = file::close(fd);
}
