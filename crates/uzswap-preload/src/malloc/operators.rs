//! *What*: C++ `operator new` and `operator delete` in all their forms.
//!
//! *Invariants*: a form that throws does so by jumping to the C++ library's own thrower with the
//! stack as its caller left it, so that no frame of ours is unwound.
//! *Locking*: none. *Context*: the program's.

use core::ffi::{CStr, c_char, c_void};

use crate::arch::malloc::throwing_new;

use super::heap::{self, MIN_SIZE};
use super::{free, ready};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    safe fn abort() -> !;
}

type NewHandler = Option<unsafe extern "C" fn()>;

/// A function of the C++ library that this program runs with.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: RTLD_DEFAULT and a name.
    unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) }
}

/// `size` bytes aligned to `align` (0: as malloc), as the standard asks: the new-handler is called
/// until it helped or is gone.
extern "C" fn allocate(size: usize, align: usize) -> *mut c_void {
    ready();
    loop {
        // C++ passes alignments that are powers of two.
        let p = if align <= MIN_SIZE {
            heap::allocate(size)
        } else {
            heap::aligned(size, align)
        };
        if !p.is_null() {
            return p;
        }
        let get = find(c"_ZSt15get_new_handlerv");
        if get.is_null() {
            return p;
        }
        // SAFETY: the symbol's type is `std::new_handler()`.
        let handler: NewHandler = unsafe {
            let get: unsafe extern "C" fn() -> NewHandler = core::mem::transmute(get);
            get()
        };
        let Some(handler) = handler else { return p };
        // SAFETY: what the program registered for this.
        unsafe { handler() };
    }
}

/// The function that throws `std::bad_alloc`; without a C++ library nobody could catch it.
extern "C" fn thrower() -> *mut c_void {
    let thrower = find(c"_ZSt17__throw_bad_allocv");
    if thrower.is_null() {
        abort();
    }
    thrower
}

throwing_new! {
    _Znwm(size);
    _Znam(size);
    _ZnwmSt11align_val_t(size, align);
    _ZnamSt11align_val_t(size, align);
}

macro_rules! nothrow_new {
    ($($name:ident($size:ident $(, $align:ident)?);)*) => {$(
        /// A form of `operator new` that returns null.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the C++ ABI's name")]
        pub extern "C" fn $name($size: usize, $($align: usize,)? _: *const c_void) -> *mut c_void {
            allocate($size, 0 $(+ $align)?)
        }
    )*};
}

nothrow_new! {
    _ZnwmRKSt9nothrow_t(size);
    _ZnamRKSt9nothrow_t(size);
    _ZnwmSt11align_val_tRKSt9nothrow_t(size, align);
    _ZnamSt11align_val_tRKSt9nothrow_t(size, align);
}

/// All forms of `delete`: the further arguments (size, alignment, nothrow) are not needed.
macro_rules! delete {
    ($($name:ident)*) => {$(
        /// A form of `operator delete`.
        ///
        /// # Safety
        /// As the C++ library's.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the C++ ABI's name")]
        pub unsafe extern "C" fn $name(p: *mut c_void) {
            // SAFETY: the caller's.
            unsafe { free(p) }
        }
    )*};
}

delete! {
    _ZdlPv _ZdaPv
    _ZdlPvm _ZdaPvm
    _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t
    _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t
    _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
    _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t
}
