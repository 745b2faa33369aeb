//! *What*: stacks on which handlers run the engine. A host's thread may have an alternate stack of
//! 8 KiB (Rust's standard library), or be a coroutine's: the engine needs more.
//!
//! *Invariants*: a stack belongs to one thread from [`with`]'s beginning to its end. All signals
//! are blocked meanwhile, so nothing else runs on it. Stacks lie outside the arena.
//! *Locking*: none: a bit is taken by compare-and-swap. More threads than [`NR_STACKS`] in handlers
//! at once wait for each other. *Context*: signal.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use uzswap_core::Masked;
use uzswap_sys::thread;

/// Stacks; the bits of a word.
const NR_STACKS: usize = 64;
/// Bytes of one; touched as deep as it is used.
const STACK_LEN: usize = 64 << 10;

#[repr(C, align(4096))]
struct Stacks([UnsafeCell<MaybeUninit<[u8; STACK_LEN]>>; NR_STACKS]);

// SAFETY: a stack belongs to whoever has its bit of `TAKEN`.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks([const { UnsafeCell::new(MaybeUninit::zeroed()) }; NR_STACKS]);
/// Bit `n`: stack number `n` is in use.
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn take() -> usize {
    loop {
        let taken = TAKEN.load(Ordering::Relaxed);
        let number = taken.trailing_ones() as usize;
        // Acquire: pairs with the release of who had it before; its frames are done with.
        if number < NR_STACKS
            && TAKEN
                .compare_exchange_weak(
                    taken,
                    taken | 1 << number,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
        {
            return number;
        }
        thread::sched_yield();
    }
}

/// Runs `job` on a stack of the library's.
pub(crate) fn with<R>(_masked: &Masked, job: impl FnOnce() -> R) -> R {
    struct Errand<F, R> {
        job: Option<F>,
        done: Option<R>,
    }
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(errand: *mut c_void) {
        // SAFETY: `with` passes its errand, which nobody else uses meanwhile.
        let errand = unsafe { &mut *errand.cast::<Errand<F, R>>() };
        errand.done = errand.job.take().map(|job| job());
    }
    fn start<F: FnOnce() -> R, R>(errand: &mut Errand<F, R>, top: usize) {
        // SAFETY: the stack is this thread's alone until `with` gives it back.
        unsafe {
            thread::call_on_stack(top, run::<F, R>, core::ptr::from_mut(errand).cast());
        }
    }
    let mut errand = Errand {
        job: Some(job),
        done: None,
    };
    let number = take();
    start(&mut errand, STACKS.0[number].get() as usize + STACK_LEN);
    // Release: pairs with the acquire in `take`.
    TAKEN.fetch_and(!(1 << number), Ordering::Release);
    match errand.done {
        Some(done) => done,
        // `call_on_stack` returns after it has called.
        None => thread::exit_group(125),
    }
}

/// In a fork child: the stacks of threads that are not here are free.
pub(crate) fn forget_others() {
    TAKEN.store(0, Ordering::Relaxed);
}
