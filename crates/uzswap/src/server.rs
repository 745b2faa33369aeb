//! *What*: the threads that serve faults in thread mode, one for each such pool. The C library does
//! not know of them.
//!
//! *Invariants*: they run with all signals blocked and use no thread-local storage. A fork child
//! starts its own.
//! *Locking*: none. *Context*: starting: a thread of the host.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::fmt::Write;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use uzswap_core::{Engine, Masked, NoRoom, PAGE_SIZE, Partition};
use uzswap_sys::fmt::StackBuf;
use uzswap_sys::signal::{self, SIGBUS, SigInfo, SigSet};
use uzswap_sys::{file, mem, thread};

use crate::engines::{self, Place};
use crate::faults;

const STACK_LEN: usize = 64 << 10;

#[repr(C, align(4096))]
struct Server {
    stack: UnsafeCell<MaybeUninit<[u8; STACK_LEN]>>,
    /// The thread's id while it runs.
    alive: AtomicU32,
}

// SAFETY: the stack belongs to the one thread that runs on it.
unsafe impl Sync for Server {}

static SERVERS: [Server; Partition::COUNT] = [const {
    Server {
        stack: UnsafeCell::new(MaybeUninit::zeroed()),
        alive: AtomicU32::new(0),
    }
}; Partition::COUNT];

extern "C" fn run(engine: *mut c_void) {
    // SAFETY: an engine, which is static; the thread inherits its creator's full mask.
    let (engine, m) = unsafe { (&*engine.cast::<Engine>(), Masked::assume()) };
    engine.serve_faults(&m, NoRoom::Raise(raise_no_room));
}

/// Raises SIGBUS in a thread that waits for a page there is no room for; it repeats the access when
/// its handler returns. `false`: the thread blocks the signal, and would wait for ever.
fn raise_no_room(tid: u32, addr: usize, needed_bytes: u64) -> bool {
    faults::say_no_room(addr, needed_bytes);
    let tid = tid.cast_signed();
    let info = SigInfo::sent(SIGBUS, addr);
    !blocks_sigbus(tid) && signal::tgsigqueueinfo(thread::getpid(), tid, SIGBUS, &info).is_ok()
}

/// Whether a thread of this process has SIGBUS blocked, or does not say.
fn blocks_sigbus(tid: i32) -> bool {
    let mut path = StackBuf::<64>::new();
    let _ = write!(path, "/proc/self/task/{tid}/status");
    let flags = file::O_RDONLY | file::O_CLOEXEC;
    let opened = path
        .as_c_str()
        .map(|path| file::openat(file::AT_FDCWD, path, flags, 0));
    let Some(Ok(fd)) = opened else {
        return true;
    };
    // Some 1,500 bytes, which one read returns.
    let mut text = [0; 4096];
    let len = file::read(fd, &mut text).unwrap_or(0);
    let _ = file::close(fd);
    let mut lines = text
        .get(..len)
        .unwrap_or_default()
        .split(|byte| *byte == b'\n');
    let blocked = lines.find_map(|line| {
        let hex = str::from_utf8(line.strip_prefix(b"SigBlk:\t")?).ok()?;
        u64::from_str_radix(hex, 16).ok()
    });
    blocked.is_none_or(|mask| SigSet(mask).contains(SIGBUS))
}

/// Starts the thread of a pool.
pub(crate) fn start(m: &Masked, place: &Place) -> io::Result<()> {
    start_again(m, place.number())
}

/// Starts the thread of the pool of that number; in a fork child, where there is none.
pub(crate) fn start_again(_: &Masked, number: usize) -> io::Result<()> {
    let (Some(server), Some(engine)) = (SERVERS.get(number), engines::all().nth(number)) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    server.alive.store(0, Ordering::Relaxed);
    let top = server.stack.get() as usize + STACK_LEN;
    let argument = core::ptr::from_ref(engine).cast_mut().cast();
    // SAFETY: one such thread a pool, on a stack of its own; signals are blocked, and it runs the
    // engine only, which uses no thread-local storage.
    let started = unsafe { thread::spawn_raw(top, run, argument, &server.alive) };
    started
        .map(drop)
        .map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

/// Ends the thread of a pool that is about to stop.
pub(crate) fn end(place: &Place) {
    let engine = place.engine();
    let prot = (mem::PROT_READ | mem::PROT_WRITE).cast_unsigned();
    if let Ok(page) = Masked::block(|m| engine.map(m, PAGE_SIZE, 0, prot)) {
        engine.announce_last_fault(page);
        // SAFETY: mapped just now; the fault is the last that is served.
        unsafe { (page as *mut u8).write_volatile(1) };
        thread::wait_exit(&SERVERS[place.number()].alive);
    }
}
