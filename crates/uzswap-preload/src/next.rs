//! *What*: the functions behind those that we interpose: the C library's own, or another library's
//! that comes first.
//!
//! *Invariants*: a symbol is looked up once, and always found: only a program that has the function
//! calls the one that interposes it.
//! *Locking*: none. *Context*: any but signal at the first use, which may take the loader's lock;
//! any afterwards.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::dl::FIRST_VERSION;
use crate::dl::dlopen;

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void;
}

type DlSym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`. By its version: without, we would find our own.
pub fn dlsym() -> *mut c_void {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    match FOUND.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: C strings.
            let found = unsafe { dlvsym(NEXT, c"dlsym".as_ptr(), FIRST_VERSION.as_ptr()) };
            FOUND.store(found as usize, Ordering::Relaxed);
            found
        }
        found => found as *mut c_void,
    }
}

/// `RTLD_NEXT`.
const NEXT: *mut c_void = usize::MAX as *mut c_void;
const RTLD_LAZY: i32 = 1;

/// The next definition of a symbol after ours, or the first of all, found at first use.
pub struct Next {
    name: &'static CStr,
    first: bool,
    found: AtomicUsize,
}

impl Next {
    /// Not looked up yet.
    #[must_use]
    pub const fn new(name: &'static CStr) -> Self {
        Next {
            name,
            first: false,
            found: AtomicUsize::new(0),
        }
    }

    /// Not looked up yet; the definition that the program's other libraries find.
    #[must_use]
    pub const fn first(name: &'static CStr) -> Self {
        Next {
            first: true,
            ..Next::new(name)
        }
    }

    /// The function.
    pub fn get(&self) -> *mut c_void {
        // Relaxed: the lookup has the same answer on every thread.
        match self.found.load(Ordering::Relaxed) {
            0 => {
                // SAFETY: C strings; the C library is loaded when the program calls us. Not
                // `RTLD_DEFAULT`: we are linked so that it finds our own symbols first.
                let found = unsafe {
                    let from = if self.first {
                        dlopen(core::ptr::null(), RTLD_LAZY)
                    } else {
                        NEXT
                    };
                    let look_up = core::mem::transmute::<*mut c_void, DlSym>(dlsym());
                    look_up(from, self.name.as_ptr())
                };
                self.found.store(found as usize, Ordering::Relaxed);
                found
            }
            found => found as *mut c_void,
        }
    }

    /// The function, of the type that its symbol has.
    ///
    /// # Safety
    /// `T` is that function pointer type.
    #[inline]
    pub unsafe fn typed<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
        let f = self.get();
        // SAFETY: a function pointer of the symbol's type, by the caller's promise.
        unsafe { core::mem::transmute_copy::<*mut c_void, T>(&f) }
    }
}
