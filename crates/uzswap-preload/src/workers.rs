//! *What*: the engine's own threads: what serves faults in thread mode, what reclaims in the background, what makes cold
//! data denser, and what does as `uzswap reclaim` asks. The first three live as long as the process.
//!
//! *Invariants*: they run with all signals blocked, on stacks of their own, and use no thread-local storage: they share
//! their creator's. Fork leaves none behind; a child starts its own.
//! *Locking*: none. *Context*: init, the SIGSYS handler, fork children.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use uzswap_sys::{Errno, thread};

use crate::guard::port::Masked;

const WORKER_STACK: usize = 64 << 10;

/// A thread of the engine's own, and its stack.
#[repr(C, align(4096))]
struct Worker {
    stack: UnsafeCell<[u8; WORKER_STACK]>,
    alive: AtomicU32,
}

// SAFETY: the stack belongs to the one thread that runs on it.
unsafe impl Sync for Worker {}

impl Worker {
    const fn new() -> Self {
        Worker {
            stack: UnsafeCell::new([0; WORKER_STACK]),
            alive: AtomicU32::new(0),
        }
    }

    fn start(&'static self, entry: extern "C" fn(*mut c_void)) -> Result<(), Errno> {
        self.alive.store(0, Ordering::Relaxed);
        let top = self.stack.get() as usize + WORKER_STACK;
        // SAFETY: one such thread a process (fork leaves none behind), on a stack of its own; it
        // runs the engine only, which uses no thread-local storage.
        unsafe { thread::spawn_raw(top, entry, core::ptr::null_mut(), &self.alive) }.map(|_| ())
    }
}

static SERVER: Worker = Worker::new();
static RECLAIMER: Worker = Worker::new();
static DENSIFIER: Worker = Worker::new();
static ASKED: Worker = Worker::new();

extern "C" fn serve(_: *mut c_void) {
    // SAFETY: started with all signals blocked.
    let m = unsafe { Masked::assume() };
    crate::guard::port::serve_faults(&m);
}

extern "C" fn reclaim(_: *mut c_void) {
    // SAFETY: started with all signals blocked.
    let m = unsafe { Masked::assume() };
    crate::guard::port::reclaim_in_background(&m);
}

extern "C" fn densify(_: *mut c_void) {
    // SAFETY: started with all signals blocked.
    let m = unsafe { Masked::assume() };
    crate::guard::port::densify_in_background(&m);
}

extern "C" fn serve_request(_: *mut c_void) {
    // SAFETY: started with all signals blocked.
    let m = unsafe { Masked::assume() };
    crate::guard::port::serve_request(&m);
}

/// Does what `uzswap reclaim` asks, by a thread that ends with it; the program's goes on.
pub fn start_asked(m: &Masked) {
    // The one before has answered, and is about to go.
    thread::wait_exit(&ASKED.alive);
    if ASKED.start(serve_request).is_err() {
        // No more threads allowed here: the program's own has to.
        crate::guard::port::serve_request(m);
    }
}

/// In a fork child: the thread that worked in the parent is not here.
pub fn forget_asked() {
    ASKED.alive.store(0, Ordering::Relaxed);
}

/// Starts the engine's threads, as its mode and the group's configuration ask for: at start and in
/// fork children. They inherit the full mask.
///
/// # Errors
/// As clone(2).
pub fn start(_: &Masked, server: bool, reclaimer: bool, densifier: bool) -> Result<(), Errno> {
    if server {
        SERVER.start(serve)?;
    }
    if reclaimer {
        RECLAIMER.start(reclaim)?;
    }
    if densifier {
        DENSIFIER.start(densify)?;
    }
    Ok(())
}
