//! *What*: the C functions that open files.
//!
//! *Invariants*: as libc's. All but what [`super::open`] opens goes to the C library, whose call
//! may wait or be cancelled: nothing is held across it.
//! *Locking*: none. *Context*: the program's.

use core::ffi::{CStr, c_char, c_int, c_void};

use uzswap_sys::{Errno, file};

use crate::maps::set_errno;
use crate::next::Next;

/// Flags that open something other than a file for reading.
const NOT_TO_READ: c_int = file::O_ACCMODE | file::O_DIRECTORY | file::O_PATH;

/// The descriptor, or -1 and `errno`; `None`: the C library is to open it.
#[inline]
fn shown(path: *const c_char, flags: c_int) -> Option<c_int> {
    if flags & NOT_TO_READ != 0 {
        return None;
    }
    super::open(path as usize, flags & file::O_CLOEXEC != 0).map(returned)
}

fn returned(done: Result<i32, Errno>) -> c_int {
    done.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

/// Functions that take a path, flags, and a mode that may be missing. Registers pass that on as it
/// is, so these need not be variadic.
macro_rules! open {
    ($($name:ident as $symbol:literal;)*) => {$(
        /// `open(2)`.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: u32) -> c_int {
            type Open = unsafe extern "C" fn(*const c_char, c_int, u32) -> c_int;
            static NEXT: Next = Next::new($symbol);
            match shown(path, flags) {
                Some(fd) => fd,
                // SAFETY: the symbol's type; the program's own call.
                None => unsafe { NEXT.typed::<Open>()(path, flags, mode) },
            }
        }
    )*};
}
open! {
    open as c"open";
    open64 as c"open64";
    __open_2 as c"__open_2";
    __open64_2 as c"__open64_2";
}

/// The same, with a directory that an absolute path does not use.
macro_rules! openat {
    ($($name:ident as $symbol:literal;)*) => {$(
        /// `openat(2)`.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            dir: c_int, path: *const c_char, flags: c_int, mode: u32,
        ) -> c_int {
            type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, u32) -> c_int;
            static NEXT: Next = Next::new($symbol);
            match shown(path, flags) {
                Some(fd) => fd,
                // SAFETY: the symbol's type; the program's own call.
                None => unsafe { NEXT.typed::<OpenAt>()(dir, path, flags, mode) },
            }
        }
    )*};
}
openat! {
    openat as c"openat";
    openat64 as c"openat64";
    __openat_2 as c"__openat_2";
    __openat64_2 as c"__openat64_2";
}

/// The stream for a mode that only reads; `None`: the C library is to open it.
unsafe fn stream(path: *const c_char, mode: *const c_char) -> Option<*mut c_void> {
    type FdOpen = unsafe extern "C" fn(c_int, *const c_char) -> *mut c_void;
    static FDOPEN: Next = Next::new(c"fdopen");
    if !super::BEGUN.load(core::sync::atomic::Ordering::Relaxed) {
        return None;
    }
    // SAFETY: the caller's string, which the C library reads as well.
    let letters = unsafe { CStr::from_ptr(mode) }.to_bytes();
    if letters.first() != Some(&b'r') || letters.contains(&b'+') {
        return None;
    }
    match super::open(path as usize, letters.contains(&b'e'))? {
        Ok(fd) => {
            // SAFETY: the symbol's type.
            let stream = unsafe { FDOPEN.typed::<FdOpen>()(fd, mode) };
            if stream.is_null() {
                let _ = file::close(fd);
            }
            Some(stream)
        }
        Err(errno) => {
            set_errno(errno);
            Some(core::ptr::null_mut())
        }
    }
}

macro_rules! fopen {
    ($($name:ident as $symbol:literal;)*) => {$(
        /// `fopen(3)`.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut c_void {
            type FOpen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
            static NEXT: Next = Next::new($symbol);
            // SAFETY: the symbol's type; the program's own call.
            unsafe { stream(path, mode).unwrap_or_else(|| NEXT.typed::<FOpen>()(path, mode)) }
        }
    )*};
}
fopen! {
    fopen as c"fopen";
    fopen64 as c"fopen64";
}
