//! *What*: pools across fork(2), by pthread_atfork(3): the engines stop around it, and the child
//! gets them with all that is in the pools, copied on write, under the same limit.
//!
//! What the C library does not know of (a bare clone(2)) copies nothing of a pool: an access in
//! such a child ends in SIGSEGV, never in wrong data. vfork(2) and posix_spawn(3) share memory, and
//! need nothing.
//!
//! *Invariants*
//! - The forking thread holds everything that the child could meet: the places, each heap's locks,
//!   each engine's operations. The child's copy of the thread releases the child's copies.
//! - Outside of fork(3) the partitions are not inherited (`MADV_DONTFORK`).
//! - In the child nothing touches a pool before the handler here has run: the C library runs
//!   handlers that were registered before the first pool was built earlier. They must not.
//!
//! *Locking*: places, heaps, engines. *Context*: the handlers of pthread_atfork(3).

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use uzswap_core::{Engine, FaultMode, ForkGuard, Masked, Partition};
use uzswap_sync::lock::Lock;
use uzswap_sys::fmt::write_line;
use uzswap_sys::signal::{self, SigSet};
use uzswap_sys::{file, mem};

use crate::engines::{self, Place};
use crate::error::BuildError;
use crate::{group, heap, server, stack};

/// Bit `n`: the pool of place number `n` did not come along into this fork child.
static LOST: AtomicU32 = AtomicU32::new(0);

/// What is held across a fork.
struct Stopped {
    places: engines::Held,
    heaps: heap::Held,
    guards: [Option<ForkGuard>; Partition::COUNT],
    mask: SigSet,
    /// This thread's newest child before, to tell whether there is another.
    newest_child: u32,
}

/// The forking thread's, which holds the places' lock.
struct Slot(UnsafeCell<MaybeUninit<Stopped>>);

// SAFETY: written and read by the thread that forks, which holds the places' lock.
unsafe impl Sync for Slot {}

static STOPPED: Slot = Slot(UnsafeCell::new(MaybeUninit::uninit()));
static REGISTERED: Lock<bool> = Lock::new(false);

/// Whether the pool of `place` is not in this process.
pub(crate) fn is_lost(place: &Place) -> bool {
    is_lost_number(place.number())
}

fn is_lost_number(number: usize) -> bool {
    LOST.load(Ordering::Relaxed) & 1 << number != 0
}

/// Has fork(3) call us, from the first pool on.
pub(crate) fn prepare_process() -> Result<(), BuildError> {
    let mut registered = REGISTERED.lock();
    if *registered {
        return Ok(());
    }
    // SAFETY: functions of this library, which stays loaded: its signal handlers are installed.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => {
            *registered = true;
            Ok(())
        }
        errno => Err(BuildError::System {
            what: "register for fork",
            error: io::Error::from_raw_os_error(errno),
        }),
    }
}

/// Sets whether a clone(2) copies the partition of engine number `number`.
pub(crate) fn set_inherited(number: usize, inherited: bool) {
    let advice = match inherited {
        true => mem::MADV_DOFORK,
        false => mem::MADV_DONTFORK,
    };
    if let Some(partition) = Partition::numbered(number) {
        // SAFETY: the engine's own mapping; the advice changes no contents.
        let _ = unsafe { mem::madvise(partition.start(), partition.len(), advice) };
    }
}

extern "C" fn before() {
    let places = engines::hold();
    let heaps = heap::hold(&places);
    let mask = signal::block_all();
    // SAFETY: signals are blocked until the handler after the fork.
    let m = unsafe { Masked::assume() };
    let mut guards = [const { None }; Partition::COUNT];
    for ((number, engine), guard) in engines::all().enumerate().zip(&mut guards) {
        if !engine.started() || is_lost_number(number) {
            continue;
        }
        let stopped = engine.fork_prepare(&m);
        if stopped.refused() {
            // The child gets none of it.
            stopped.failed(&m);
            continue;
        }
        set_inherited(number, true);
        *guard = Some(stopped);
    }
    let stopped = Stopped {
        places,
        heaps,
        guards,
        mask,
        newest_child: newest_child(),
    };
    // SAFETY: the places' lock is held.
    unsafe { (*STOPPED.0.get()).write(stopped) };
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = 0 };
}

fn take() -> Stopped {
    // SAFETY: `before` wrote it on this thread (in the child: on the one that it is a copy of), and
    // exactly one of the two handlers takes it.
    unsafe { (*STOPPED.0.get()).assume_init_read() }
}

extern "C" fn in_parent() {
    // SAFETY: this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let stopped = take();
    // SAFETY: blocked in `before`.
    let m = unsafe { Masked::assume() };
    let child = newest_child();
    // fork(3) tells its handlers nothing. Both signs together: to take a child for none would be
    // worse than to keep a record for one that there is not.
    let has_failed = matches!(errno, libc::EAGAIN | libc::ENOMEM) && child == stopped.newest_child;
    for (number, guard) in stopped.guards.into_iter().enumerate() {
        let Some(guard) = guard else { continue };
        if has_failed {
            guard.failed(&m);
        } else {
            guard.in_parent(&m, child);
        }
        set_inherited(number, false);
    }
    drop((stopped.heaps, stopped.places));
    signal::set_mask(stopped.mask);
}

extern "C" fn in_child() {
    let stopped = take();
    // SAFETY: blocked in `before`.
    let m = unsafe { Masked::assume() };
    stack::forget_others();
    for ((number, engine), guard) in engines::all().enumerate().zip(stopped.guards) {
        if !engine.started() || is_lost_number(number) {
            continue;
        }
        if guard.is_some_and(|guard| carry(&m, engine, guard)) {
            set_inherited(number, false);
            if engine.mode() == Some(FaultMode::Thread) && server::start_again(&m, number).is_err()
            {
                lose(number);
            }
        } else {
            lose(number);
        }
    }
    drop((stopped.heaps, stopped.places));
    signal::set_mask(stopped.mask);
}

/// Makes a copied engine this process's own. `false`: that failed.
fn carry(m: &Masked, engine: &'static Engine, guard: ForkGuard) -> bool {
    let Some(reserved) = guard.reserved() else {
        guard.failed(m);
        return false;
    };
    let Some(record) = reserved.begin(group::identity()) else {
        return false;
    };
    guard.in_child(m, record).is_ok() && engine.started()
}

/// From now on an access to the pool of that number ends in SIGSEGV in this process.
fn lose(number: usize) {
    LOST.fetch_or(1 << number, Ordering::Relaxed);
    if let Some(partition) = Partition::numbered(number) {
        // SAFETY: nothing in it can be had in this process; fails where it was not inherited.
        let _ = unsafe { mem::mprotect(partition.start(), partition.len(), mem::PROT_NONE) };
    }
    let _ = write_line(
        2,
        format_args!("uzswap: this fork child goes without a pool, which had no room for it"),
    );
}

/// The process id of this thread's newest child; 0: there is none, or the kernel does not say.
fn newest_child() -> u32 {
    let path = c"/proc/thread-self/children";
    let Ok(fd) = file::openat(file::AT_FDCWD, path, file::O_RDONLY | file::O_CLOEXEC, 0) else {
        return 0;
    };
    let (mut number, mut last) = (0_u32, 0);
    let mut text = [0; 512];
    while let Ok(len @ 1..) = file::read(fd, &mut text) {
        for byte in text.iter().take(len) {
            match byte {
                b'0'..=b'9' => {
                    number = number.wrapping_mul(10).wrapping_add(u32::from(byte - b'0'));
                }
                _ => last = std::mem::take(&mut number),
            }
        }
    }
    let _ = file::close(fd);
    last
}
