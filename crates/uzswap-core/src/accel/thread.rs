//! *What*: a worker: a thread that works as a device does, so that batches are asynchronous on any
//! machine.
//!
//! It starts when it is first needed and never ends: without work, or while it is away, it sleeps.
//! A fork child has none; it starts its own when needed.
//!
//! *Invariants*: the thread has all signals blocked, runs codecs only, and touches only the sources
//! and destinations of jobs, never writing to the program's memory. So in a process with one thread
//! beside workers, nobody can write to its pages while that thread is in the engine. Its contexts
//! change only while it is away.
//! *Locking*: none. *Context*: its own thread; the rest signal or worker.

use core::cell::UnsafeCell;
use core::ffi::c_void;

use super::WorkQueue;
use super::job::{Job, Outcome, Params, Task};
use super::ring::Ring;
use uzswap_compress::{Codec, CodecId, CompressError, Compressor, Decompressor};
use uzswap_sync::primitive::{AtomicU32, Ordering};
use uzswap_sys::thread;

/// Bytes of a worker's stack; codecs use a small part of it.
pub const STACK: usize = 64 << 10;

/// The codec contexts of a worker.
#[derive(Debug)]
pub struct Contexts {
    /// Compresses pages.
    pub compressor: Compressor,
    /// Decompresses pages.
    pub decompressor: Decompressor,
}

/// A worker.
#[derive(Debug)]
pub struct WorkerThread {
    ring: Ring,
    /// The codec that it compresses with, by [`Codec::to_bits`].
    codec: AtomicU32,
    contexts: UnsafeCell<Contexts>,
    /// The end of its stack.
    stack_top: usize,
    /// Its thread's id; 0 in a process that has not started it.
    thread: AtomicU32,
}

// SAFETY: the thread owns `contexts` while `ring` is not away; the one caller of `replace` does
// while it is.
unsafe impl Sync for WorkerThread {}

impl WorkerThread {
    /// A worker that is away.
    ///
    /// # Safety
    /// [`STACK`] bytes of writable memory end at `stack_top`; nobody else uses them, ever.
    #[must_use]
    pub unsafe fn new(contexts: Contexts, stack_top: usize) -> Self {
        Self {
            ring: Ring::new(),
            codec: AtomicU32::new(contexts.compressor.codec().to_bits()),
            contexts: UnsafeCell::new(contexts),
            stack_top,
            thread: AtomicU32::new(0),
        }
    }

    /// The codec that it compresses with.
    pub fn codec(&self) -> Option<Codec> {
        Codec::from_bits(self.codec.load(Ordering::Relaxed))
    }

    /// Whether it takes jobs.
    pub fn is_open(&self) -> bool {
        self.ring.is_open()
    }

    /// Makes it take no more jobs, abort those not begun, and leave.
    pub fn close(&self) {
        self.ring.close();
    }

    /// Whether this process has started its thread.
    pub fn is_started(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0
    }

    /// Starts its thread. `false`: the process can have no more.
    ///
    /// # Safety
    /// All signals are blocked; one caller at a time; not in a vfork child.
    pub unsafe fn start(&'static self) -> bool {
        let this = core::ptr::from_ref(self).cast_mut().cast::<c_void>();
        if self.is_started() {
            return true;
        }
        // SAFETY: a stack of its own by the promise of `new`; the thread runs codecs, which use no
        // thread-local storage. It inherits the full mask.
        unsafe { thread::spawn_raw(self.stack_top, run, this, &self.thread) }.is_ok()
    }

    /// Lets it take jobs. `false`: it is still leaving.
    pub fn open(&self) -> bool {
        self.is_open() || self.ring.open()
    }

    /// Whether it has left.
    pub fn is_away(&self) -> bool {
        self.ring.is_away()
    }

    /// Replaces its compressor by `new` and returns the old one; returns `new` while it is not
    /// away.
    ///
    /// # Safety
    /// One caller at a time, and nobody calls [`WorkerThread::open`] meanwhile.
    pub unsafe fn replace(&self, new: Compressor) -> Compressor {
        if !self.ring.is_away() {
            return new;
        }
        self.codec.store(new.codec().to_bits(), Ordering::Relaxed);
        // SAFETY: away, so the thread does not use it, nor does anybody else by the caller's
        // promise.
        let contexts = unsafe { &mut *self.contexts.get() };
        core::mem::replace(&mut contexts.compressor, new)
    }

    /// Resets it in a fork child, where its thread does not exist.
    pub fn forget(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.ring.forget();
    }

    fn perform(&self, params: Params) -> Outcome {
        // SAFETY: from the thread, between open and away.
        let contexts = unsafe { &mut *self.contexts.get() };
        // SAFETY: by the promise of `prepare`: writable, and nobody else's.
        let dst = unsafe { core::slice::from_raw_parts_mut(params.dst, params.dst_len) };
        match params.task {
            Task::Compress(codec) if codec != contexts.compressor.codec() => Outcome::Aborted,
            Task::Compress(_) => {
                // SAFETY: by the promise of `prepare`: readable, and a page or more.
                let made = unsafe {
                    contexts
                        .compressor
                        .compress(params.src, params.src_len, dst)
                };
                match made {
                    Ok(len) => Outcome::Done(len),
                    Err(CompressError::Poor) => Outcome::Incompressible,
                    Err(CompressError::Failed) => Outcome::Failed,
                }
            }
            Task::Decompress(id) => {
                // SAFETY: by the promise of `prepare`: an object that nobody changes.
                let src = unsafe { core::slice::from_raw_parts(params.src, params.src_len) };
                match contexts.decompressor.decompress(id, src, dst) {
                    Ok(()) => Outcome::Done(dst.len()),
                    Err(_) => Outcome::Failed,
                }
            }
        }
    }
}

extern "C" fn run(this: *mut c_void) {
    // SAFETY: `start` passed a worker that is never freed.
    let worker = unsafe { &*this.cast::<WorkerThread>() };
    loop {
        worker.ring.serve(|params| worker.perform(params));
    }
}

impl WorkQueue for WorkerThread {
    fn serves(&self, task: Task) -> bool {
        self.is_open()
            && match task {
                Task::Compress(codec) => codec.to_bits() == self.codec.load(Ordering::Relaxed),
                // lz4 decompresses a page faster than another CPU wakes up.
                Task::Decompress(id) => id != CodecId::Lz4,
            }
    }

    fn submit(&self, jobs: &'static [Job]) -> usize {
        self.ring.submit(jobs)
    }

    fn wait(&self, job: &Job) {
        job.sleep();
    }
}
