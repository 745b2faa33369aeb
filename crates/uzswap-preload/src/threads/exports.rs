//! *What*: `pthread_create` and `thrd_create`, interposed: a thread that the C library starts gets
//! its handler stack before it runs the program's code.
//!
//! *Invariants*: as the C library's in all else.
//! *Locking*: none. *Context*: the program's.

use core::ffi::c_void;

use uzswap_core::Masked;
use uzswap_sys::{PAGE_SIZE, signal};

use super::{Record, adopt, claim_new, disclaim, use_stack};
use crate::init::ENGINE;
use crate::next::Next;

/// Start routine and argument, returned in two registers.
#[repr(C)]
pub struct Start {
    routine: usize,
    argument: usize,
}

/// Runs on a new thread, on its handler stack, before the program's routine: makes the handler
/// stack the thread's. `sp` is the stack pointer of the thread's own stack.
///
/// # Safety
/// From [`crate::arch::thread::thread_start`], with the record of that stack.
pub unsafe extern "C" fn begin(r: *mut Record, sp: usize) -> Start {
    let old = signal::block_all();
    // SAFETY: blocked just now.
    let m = unsafe { Masked::assume() };
    // SAFETY: the creator claimed the record for this thread and will not touch it again.
    let start = unsafe {
        adopt(&m, r);
        hold_stack(&m, sp);
        crate::arch::tls::set_record(r);
        Start {
            routine: (*r).start[0],
            argument: (*r).start[1],
        }
    };
    use_stack(r);
    signal::set_mask(old);
    start
}

/// A stack in the arena holds what the kernel reads and writes by itself (thread descriptor, rseq,
/// robust list) at its top, above the frames that exist so far.
fn hold_stack(m: &Masked, sp: usize) {
    const TOP: usize = 64 << 10;
    if uzswap_core::in_arena(sp) {
        let _ = ENGINE.hold(m, sp & !(PAGE_SIZE - 1), TOP);
    }
}

/// Claims a handler stack for a thread about to be created.
fn claim_for_new(routine: *mut c_void, argument: *mut c_void) -> Option<*mut Record> {
    if !crate::guard::enabled() {
        return None;
    }
    let r = Masked::block(claim_new)?;
    // SAFETY: claimed and not handed over yet.
    unsafe { (*r).start = [routine as usize, argument as usize] };
    Some(r)
}

/// Claims a handler stack for a new thread, and has `real` create the thread with the start routine
/// and argument it is given. `real` returns 0 on success.
fn create(
    routine: *mut c_void,
    argument: *mut c_void,
    real: impl FnOnce(*mut c_void, *mut c_void) -> i32,
) -> i32 {
    let Some(r) = claim_for_new(routine, argument) else {
        return real(routine, argument);
    };
    let ret = real(crate::arch::thread::thread_start as *mut c_void, r.cast());
    if ret != 0 {
        disclaim(r);
    }
    ret
}

/// `pthread_create(3)`: the new thread gets its handler stack before it runs the program's code.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    id: *mut c_void,
    attr: *const c_void,
    routine: *mut c_void,
    argument: *mut c_void,
) -> i32 {
    type PthreadCreate =
        unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, *mut c_void) -> i32;
    static PTHREAD_CREATE: Next = Next::new(c"pthread_create");
    create(routine, argument, |routine, argument| {
        // SAFETY: the symbol's type; as the caller's.
        unsafe { PTHREAD_CREATE.typed::<PthreadCreate>()(id, attr, routine, argument) }
    })
}

/// `thrd_create(3)`: as [`pthread_create`]. A routine that returns `int` returns it in the same
/// register.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    id: *mut c_void,
    routine: *mut c_void,
    argument: *mut c_void,
) -> i32 {
    type ThrdCreate = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i32;
    static THRD_CREATE: Next = Next::new(c"thrd_create");
    create(routine, argument, |routine, argument| {
        // SAFETY: the symbol's type; as the caller's.
        unsafe { THRD_CREATE.typed::<ThrdCreate>()(id, routine, argument) }
    })
}
