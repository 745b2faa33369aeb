//! The work as vm-scalability's `usemem` does it: processes that fill memory of their own and go
//! over it again.
//!
//! *What*: starts the processes, synchronises their start and end if asked to, prints a line of
//! throughput for each as `usemem` does, and one of JSON for all.
//! *Invariants*: a page that was touched is known to be, so an empty one was lost. If one process
//! fails all are killed.
//! *Locking*: barriers and figures are in one shared mapping. Each process writes its own figures;
//! the parent reads them after it has ended.
//! *Context*: an ordinary program.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::contents::Contents;
use crate::memory::Memory;
use crate::options::Options;
use crate::phase::{Phase, cpu_seconds};

/// Maximum number of processes.
pub const MAX_PROCESSES: u32 = 256;

/// The memory that the processes share.
#[repr(C)]
struct Shared {
    before_access: libc::pthread_barrier_t,
    before_free: libc::pthread_barrier_t,
    tasks: [Figures; MAX_PROCESSES as usize],
}

/// The times of a process, µs.
#[repr(C)]
struct Figures {
    init: AtomicU64,
    access: AtomicU64,
}

impl Shared {
    /// In a mapping that children inherit; it lives as long as the program.
    fn new(processes: u32) -> &'static Self {
        // SAFETY: a fresh mapping anywhere, no existing memory is touched.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Self>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(mapping != libc::MAP_FAILED, "mmap of shared memory");
        let shared = mapping.cast::<Self>();
        // SAFETY: the mapping is this large and page-aligned; nobody else knows it yet; zeroes are
        // valid figures.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_barrierattr_init(&raw mut attributes);
            libc::pthread_barrierattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            for barrier in [
                &raw mut (*shared).before_access,
                &raw mut (*shared).before_free,
            ] {
                let failed = libc::pthread_barrier_init(barrier, &raw const attributes, processes);
                assert!(failed == 0, "no barrier: {failed}");
            }
            &*shared
        }
    }
}

fn wait(barrier: &libc::pthread_barrier_t) {
    // SAFETY: initialised by `Shared::new`, and used through the library alone.
    unsafe { libc::pthread_barrier_wait((&raw const *barrier).cast_mut()) };
}

/// Does the work; returns the exit status.
pub fn run(options: &Options, contents: &Contents, bytes: u64) -> u8 {
    let shared = Shared::new(options.processes);
    let start = Instant::now();
    if options.processes == 1 {
        task(options, contents, bytes, shared, 0);
    } else if !fork_all(options, contents, bytes, shared) {
        eprintln!("uzswap-usemem: a process failed");
        return 1;
    }
    let wall = start.elapsed().as_secs_f64();
    print(options, bytes, shared, wall);
    0
}

/// Runs the processes; returns whether all succeeded.
fn fork_all(options: &Options, contents: &Contents, bytes: u64, shared: &Shared) -> bool {
    let mut children = Vec::new();
    for index in 0..options.processes {
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        match child {
            -1 => break,
            0 => {
                // SAFETY: no memory effects. No child outlives the parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                task(options, contents, bytes, shared, index);
                std::process::exit(0);
            }
            _ => children.push(child),
        }
    }
    let mut good = children.len() == options.processes as usize;
    while !children.is_empty() {
        if !good {
            for &child in &children {
                // SAFETY: no memory effects; the child is not reaped yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
        }
        let mut status = 0;
        // SAFETY: the pointer is to a local.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        good &= status == 0;
        children.retain(|&child| child != ended);
    }
    good
}

/// The work of one process.
fn task(options: &Options, contents: &Contents, bytes: u64, shared: &Shared, index: u32) {
    let seed = options.seed + u64::from(index);
    let memory = Memory::new(contents, options.threads, bytes / 4096, seed);
    let start = Instant::now();
    if options.touch_alloc {
        Phase::run(options.threads, |t| memory.fill(t));
    }
    let init = start.elapsed();
    if options.sync_rw {
        wait(&shared.before_access);
    }
    let accesses = memory.accesses_per_thread() * u64::from(options.passes);
    let phase = Phase::run(options.threads, |t| {
        memory.touch(t, accesses, options.random)
    });
    let figures = &shared.tasks[index as usize];
    figures.init.store(micros(init), Relaxed);
    figures
        .access
        .store(micros(Duration::from_secs_f64(phase.wall)), Relaxed);
    std::thread::sleep(Duration::from_secs(options.sleep.into()));
    if options.sync_free {
        wait(&shared.before_free);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "sizes and times fit easily")]
fn print(options: &Options, bytes: u64, shared: &Shared, wall: f64) {
    let touched = bytes * u64::from(options.passes);
    let (mut kb_per_s, mut longest_init) = (0.0, 0);
    for figures in &shared.tasks[..options.processes as usize] {
        let usecs = figures.access.load(Relaxed).max(1);
        let init = figures.init.load(Relaxed);
        let rate = touched as f64 / 1024.0 / (usecs as f64 / 1e6);
        println!("{touched} bytes / {usecs} usecs = {rate:.0} KB/s");
        if options.init_time {
            println!("{init} usecs to allocate");
        }
        kb_per_s += rate;
        longest_init = init.max(longest_init);
    }
    println!(
        "{{\"tasks\":{},\"threads\":{},\"bytes\":{touched},\"mb_per_s\":{:.2},\"wall_s\":{wall:.4},\"init_s\":{:.4},\"cpu_s\":{:.4}}}",
        options.processes,
        options.threads,
        kb_per_s / 1024.0,
        longest_init as f64 / 1e6,
        cpu_seconds(libc::RUSAGE_SELF) + cpu_seconds(libc::RUSAGE_CHILDREN),
    );
}
