//! *What*: an engine: a thread that works as a device does, so that batches are real on any machine.
//!
//! It is started when it is first needed and never ends: with no work, or while it is away, it sleeps. A fork child has none; it
//! starts its own when it needs them.
//!
//! *Invariants*: the thread has all signals blocked, runs codecs and nothing else, reads what jobs name and writes
//! where they say: never to memory of the program's. So a process with one thread beside engines has nobody who could write
//! to its pages while that one is here. What it works with is changed only while it is away.
//! *Locking*: none. *Context*: its own thread; the rest signal or worker.

use core::cell::UnsafeCell;
use core::ffi::c_void;

use super::WorkQueue;
use super::job::{Job, Outcome, Params, Task};
use super::ring::Ring;
use uzswap_compress::{Codec, CodecId, CompressError, Compressor, Decompressor};
use uzswap_sync::primitive::{AtomicU32, Ordering};
use uzswap_sys::thread;

/// Bytes of an engine's stack; codecs use a small part of it.
pub const STACK: usize = 64 << 10;

/// What an engine works with.
#[derive(Debug)]
pub struct Contexts {
    /// What it compresses with.
    pub compressor: Compressor,
    /// What it decompresses with.
    pub decompressor: Decompressor,
}

/// An engine.
#[derive(Debug)]
pub struct WorkerThread {
    ring: Ring,
    /// The codec that it compresses with, as [`Codec::to_bits`] has it.
    codec: AtomicU32,
    contexts: UnsafeCell<Contexts>,
    /// Where its stack ends.
    stack_top: usize,
    /// Its thread's number, and 0 in a process that has not started it.
    thread: AtomicU32,
}

// SAFETY: `contexts` is the thread's while `ring` is not away, and that of the one caller of `replace` while it is.
unsafe impl Sync for WorkerThread {}

impl WorkerThread {
    /// An engine that is away.
    ///
    /// # Safety
    /// [`STACK`] bytes of writable memory end at `stack_top`, and are nobody else's for good.
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

    /// Whether it is there.
    pub fn is_open(&self) -> bool {
        self.ring.is_open()
    }

    /// It takes no more jobs, gives back those that it has not begun, and leaves.
    pub fn close(&self) {
        self.ring.close();
    }

    /// Whether this process has its thread.
    pub fn is_started(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0
    }

    /// Starts its thread. `false`: the process may have no more.
    ///
    /// # Safety
    /// All signals are blocked; one caller at a time; not in a vfork child.
    pub unsafe fn start(&'static self) -> bool {
        let this = core::ptr::from_ref(self).cast_mut().cast::<c_void>();
        if self.is_started() {
            return true;
        }
        // SAFETY: a stack of its own by the promise of `new`; the thread runs codecs, which use no thread-local
        // storage. It inherits the full mask.
        unsafe { thread::spawn_raw(self.stack_top, run, this, &self.thread) }.is_ok()
    }

    /// It is there from now on. `false`: not yet, as it is just leaving.
    pub fn open(&self) -> bool {
        self.is_open() || self.ring.open()
    }

    /// Whether it has left for good.
    pub fn is_away(&self) -> bool {
        self.ring.is_away()
    }

    /// Compresses with `new` from now on, and gives back what it did with before; as it came while it is not away.
    ///
    /// # Safety
    /// One caller at a time, who does not call [`WorkerThread::open`] meanwhile either.
    pub unsafe fn replace(&self, new: Compressor) -> Compressor {
        if !self.ring.is_away() {
            return new;
        }
        self.codec.store(new.codec().to_bits(), Ordering::Relaxed);
        // SAFETY: away, so the thread does not use it, and by the caller's promise nobody else.
        let contexts = unsafe { &mut *self.contexts.get() };
        core::mem::replace(&mut contexts.compressor, new)
    }

    /// In a fork child: its thread is not here.
    pub fn forget(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.ring.forget();
    }

    fn perform(&self, work: Params) -> Outcome {
        // SAFETY: from the thread, between open and away.
        let contexts = unsafe { &mut *self.contexts.get() };
        // SAFETY: by the promise of `prepare`: writable, and nobody else's.
        let dst = unsafe { core::slice::from_raw_parts_mut(work.dst, work.dst_len) };
        match work.op {
            Task::Compress(codec) if codec != contexts.compressor.codec() => Outcome::Aborted,
            Task::Compress(_) => {
                // SAFETY: by the promise of `prepare`: readable, and a page or more.
                let made = unsafe { contexts.compressor.compress(work.src, work.src_len, dst) };
                match made {
                    Ok(len) => Outcome::Done(len),
                    Err(CompressError::Poor) => Outcome::Incompressible,
                    Err(CompressError::Failed) => Outcome::Failed,
                }
            }
            Task::Decompress(id) => {
                // SAFETY: by the promise of `prepare`: an object that nobody changes.
                let src = unsafe { core::slice::from_raw_parts(work.src, work.src_len) };
                match contexts.decompressor.decompress(id, src, dst) {
                    Ok(()) => Outcome::Done(dst.len()),
                    Err(_) => Outcome::Failed,
                }
            }
        }
    }
}

extern "C" fn run(this: *mut c_void) {
    // SAFETY: `open` started us with an engine that lives for good.
    let engine = unsafe { &*this.cast::<WorkerThread>() };
    loop {
        engine.ring.serve(|work| engine.perform(work));
    }
}

impl WorkQueue for WorkerThread {
    fn serves(&self, op: Task) -> bool {
        self.is_open()
            && match op {
                Task::Compress(codec) => codec.to_bits() == self.codec.load(Ordering::Relaxed),
                // lz4 has a page ready before another processor has begun.
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
