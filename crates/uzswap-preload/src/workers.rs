//! *What*: the engine's own threads. One, in thread mode, serves faults for as long as the process
//! lives. Another serves one request from outside and ends.
//!
//! *Invariants*: they run with all signals blocked, on stacks of their own, and use no thread-local
//! storage: they share their creator's. A fork child starts its own.
//! *Locking*: none. *Context*: init, the SIGSYS handler, fork children.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use uzswap_core::{FaultMode, Masked, NoRoom};
use uzswap_sys::{Errno, thread};

use crate::guard;
use crate::init::ENGINE;

const STACK_LEN: usize = 64 << 10;

/// What a worker does.
type Job = fn(&Masked);

/// A thread of the engine's own, and its stack.
#[repr(C, align(4096))]
struct Worker {
    stack: UnsafeCell<[u8; STACK_LEN]>,
    alive: AtomicU32,
}

// SAFETY: the stack belongs to the one thread that runs on it.
unsafe impl Sync for Worker {}

impl Worker {
    const fn new() -> Self {
        Worker {
            stack: UnsafeCell::new([0; STACK_LEN]),
            alive: AtomicU32::new(0),
        }
    }

    /// Starts the thread, from a thread with all signals blocked.
    fn start(&'static self, _: &Masked, job: Job) -> Result<(), Errno> {
        self.alive.store(0, Ordering::Relaxed);
        let top = self.stack.get() as usize + STACK_LEN;
        // SAFETY: one such thread a process (fork leaves none behind), on a stack of its own; it
        // runs the engine only, which uses no thread-local storage.
        unsafe { thread::spawn_raw(top, run, job as *mut c_void, &self.alive) }.map(|_| ())
    }
}

/// Where a worker starts.
extern "C" fn run(job: *mut c_void) {
    // SAFETY: `Worker::start` passes one; the thread inherits its creator's full mask.
    let (job, m) = unsafe {
        (
            core::mem::transmute::<*mut c_void, Job>(job),
            Masked::assume(),
        )
    };
    job(&m);
}

static FAULT_SERVER: Worker = Worker::new();
static REQUEST_SERVER: Worker = Worker::new();

fn has_fault_server() -> bool {
    ENGINE.mode() == Some(FaultMode::Thread)
}

/// Threads of ours in this process that live as long as it.
pub fn count() -> u64 {
    u64::from(has_fault_server()) + ENGINE.workers().1
}

/// Whether there are such threads, or may be later.
pub fn may_exist() -> bool {
    count() > 0 || ENGINE.workers().0
}

/// Starts the lasting threads: at start and in fork children.
///
/// # Errors
/// As clone(2).
pub fn start(m: &Masked) -> Result<(), Errno> {
    // A fork child: the thread that served in the parent is not here.
    REQUEST_SERVER.alive.store(0, Ordering::Relaxed);
    if has_fault_server() {
        FAULT_SERVER.start(m, |m| ENGINE.serve_faults(m, NoRoom::End))?;
    }
    Ok(())
}

/// Serves a request from outside: the reclaimer does, or a thread that ends with it, so that the
/// program's goes on, unless there can be none.
pub fn serve_request(m: &Masked) {
    if ENGINE.serve_request_beside(m) {
        return;
    }
    // The previous one has answered, and is about to end.
    thread::wait_exit(&REQUEST_SERVER.alive);
    let serve: Job = |m| ENGINE.serve_request(m);
    // A filter of the program's may end it for a clone.
    if guard::has_own_filter() || REQUEST_SERVER.start(m, serve).is_err() {
        // On the program's own thread.
        serve(m);
    }
}
