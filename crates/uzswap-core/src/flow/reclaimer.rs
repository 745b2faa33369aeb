//! *What*: the reclaimer: keeps room free, as kswapd does, and makes cold data denser, from a
//! process beside this one, which the program does not see. It is started by the first charge that
//! finds little room, or when other processes ask for memory of this one, and ends with the
//! program, by exec, or when it is asked to.
//!
//! *Invariants*
//! - It shares the memory only. Its descriptors are copies of the engine's; it has no capabilities
//!   and is in a sandbox of the few calls that reclaim makes, so a program that gives up rights
//!   after it was started leaves none behind in it.
//! - No handler of the program runs in it: it ignores all signals, which is as good as blocking
//!   them.
//!
//! *Locking*: as eviction. *Context*: [`wake`]: any, with all signals blocked; the rest: the
//! reclaimer.

use core::ffi::c_void;

use super::densify::Rounds;
use super::reclaim::{EVICT_PAGES, evict_above_floor};
use super::recompress::recompress_some;
use super::{follow, give_up, others};
use crate::masked::Masked;
use crate::memory;
use crate::op::RESERVE_PAGES;
use crate::page::lru::Wanted;
use crate::parts::{NR_FDS, Parts};
use crate::policy::watermark::{high, low};
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_group::knobs::is_on;
use uzswap_sync::primitive::{
    AtomicU32,
    Ordering::{Relaxed, Release},
};
use uzswap_sync::word::Word;
use uzswap_sys::process::{self, Beside};
use uzswap_sys::seccomp::{Allowed, Sandbox};
use uzswap_sys::signal::SIGSYS;
use uzswap_sys::{Errno, arch, file, nr, thread};

mod pace;
use pace::Pace;

/// Pages that a batch evicts, about: twice as many as where a fault waits for them.
const BATCH_PAGES: usize = 2 * EVICT_PAGES;
/// For the engine's messages, as of a device that fails.
const STDERR: i32 = 2;
const STACK_LEN: usize = 64 << 10;
const HELPER_STACK_LEN: usize = 16 << 10;

/// Wakes the reclaimer, or starts it, if room is below the low watermark.
#[inline]
pub(crate) fn wake_if_low(parts: &Parts) {
    let charge = parts.account.charge();
    let limit = charge.limit();
    if charge.slack() < low(limit) && parts.reclaimer.is_enabled() {
        make_slack_or_wake(parts, limit);
    }
}

/// Has more granted if there is, or the reclaimer evict.
fn make_slack_or_wake(parts: &Parts, limit: u64) {
    let (charge, presence) = (parts.account.charge(), &parts.reclaimer.presence);
    parts.reclaimer.want_room();
    if presence.is_idle() {
        charge.keep_slack(high(limit));
        if charge.slack() < low(limit) && presence.kick() {
            wake(parts);
        }
    } else if presence.was_killed() || (presence.is_missing() && parts.reclaimer.may_start()) {
        wake(parts);
    }
}

/// Has the reclaimer give others what they ask for. `false`: there can be none.
pub(crate) fn answer_others(parts: &Parts) -> bool {
    let presence = &parts.reclaimer.presence;
    if parts.reclaimer.is_enabled() {
        presence.kick();
        wake(parts);
    }
    presence.alive().load(Relaxed) != 0
}

/// Something was evicted that may be densified once it is cold.
pub(crate) fn note_eviction(parts: &Parts) {
    let densifies = is_on(&parts.account.knobs().densify);
    if densifies && parts.reclaimer.is_enabled() && parts.reclaimer.presence.kick() {
        wake(parts);
    }
}

#[cold]
fn wake(parts: &Parts) {
    if parts.reclaimer.presence.wake() {
        return;
    }
    // A vfork child has no business to start one here.
    if !parts.account.is_own_process() {
        return;
    }
    if parts.reclaimer.presence.was_killed() {
        parts.account.die(FailureReason::ReclaimerKilled, 0, 0);
    }
    let start = |alive: &Word| start(parts, alive).is_ok();
    if parts.reclaimer.may_start() && !parts.reclaimer.presence.start_with(start) {
        parts.reclaimer.refuse();
    }
}

fn start(parts: &Parts, alive: &AtomicU32) -> Result<(), Errno> {
    let memory = parts.account.memory();
    let reserve = || memory.reserve(STACK_LEN + HELPER_STACK_LEN);
    let stack = parts.reclaimer.stack(reserve)?;
    let ends = file::pipe2(file::O_CLOEXEC)?;
    let [read, write] = ends.map(memory::high_fd);
    parts.reclaimer.set_pipe(read, write);
    let what = Beside {
        stack_top: stack + STACK_LEN,
        helper_stack_top: stack + STACK_LEN + HELPER_STACK_LEN,
        entry: run,
        argument: core::ptr::from_ref(parts).cast_mut().cast(),
        alive,
    };
    // SAFETY: fresh stacks, or those of a reclaimer that has ended; `run` is the engine's code
    // only; a charge, as a request, is made with all signals blocked; `parts`, with `alive`, lives
    // for good.
    let started = unsafe { process::spawn_beside(&what) };
    let _ = file::close(read);
    started
}

extern "C" fn run(parts: *mut c_void) {
    // SAFETY: `start` passes one, which lives for good.
    let parts = unsafe { &*parts.cast::<Parts>() };
    // SAFETY: inherited blocked, and ignored from `settle` on.
    let masked = unsafe { Masked::assume() };
    let record = &parts.account.process().reclaimer;
    if let Some(mut pace) = settle(parts) {
        record.store(thread::getpid().unsigned_abs(), Relaxed);
        let presence = &parts.reclaimer.presence;
        let mut rounds = Rounds::new();
        let mut goes_on = presence.wait();
        let mut asking = others::Asking::new();
        let mut make_room = || {
            give_up::answer(parts, &masked);
            keep_room(parts, &masked, &mut asking, &mut pace);
        };
        while goes_on {
            make_room();
            // Room comes first.
            let mut rest = |ns| {
                let goes_on = presence.wait_for(ns);
                make_room();
                goes_on
            };
            goes_on = match rounds.go_on(parts, &masked, &mut rest) {
                Some(ns) => presence.wait_for(ns),
                None => presence.wait(),
            };
        }
        // Release: all that it did to the slots is done.
        record.store(0, Release);
    } else {
        parts.reclaimer.refuse();
    }
    parts.reclaimer.presence.leave();
}

/// Has colder processes evict, or evicts, until room reaches the high watermark. Then recompresses
/// what `--compressor auto` has stored fast and wants denser, while there is room. Stops when no
/// processor is idle.
fn keep_room(parts: &Parts, masked: &Masked, asking: &mut others::Asking, pace: &mut Pace) {
    // Woken by others it evicts for them, and for its own program only what that wants itself.
    if !parts.reclaimer.evicts || !parts.reclaimer.takes_want() {
        return;
    }
    let charge = parts.account.charge();
    while !parts.reclaimer.presence.is_stopped() {
        let began = thread::monotonic_ns();
        if charge.room() >= high(charge.limit()) {
            if !recompresses(parts, masked) {
                break;
            }
        } else if asking.makes_room(parts) {
            continue;
        } else if evict(parts, masked) == 0 {
            break;
        }
        if let Some(pause) = pace.pause_after(thread::monotonic_ns() - began) {
            parts.reclaimer.want_room();
            parts.reclaimer.presence.pause(pause);
            break;
        }
    }
}

/// Recompresses some pages, if that is wanted. `false`: there are no more.
fn recompresses(parts: &Parts, masked: &Masked) -> bool {
    if !parts.auto.recompresses_ahead() {
        return false;
    }
    let mut op = parts.op(masked);
    follow::follow_knobs(parts, &mut op);
    let nr = recompress_some(parts, &mut op);
    op.reserve.shrink_to(RESERVE_PAGES);
    nr.is_some_and(|nr| nr > 0)
}

/// Evicts a batch. Returns how many pages that freed.
fn evict(parts: &Parts, masked: &Masked) -> usize {
    let mut op = parts.op(masked);
    follow::follow_knobs(parts, &mut op);
    let began = arch::ticks();
    op.gives_way = true;
    let freed = evict_above_floor(parts, &mut op, Wanted::about(BATCH_PAGES));
    op.gives_way = false;
    op.reserve.shrink_to(RESERVE_PAGES);
    drop(op);
    let Some(freed) = freed else { return 0 };
    let counters = parts.account.counters();
    add(&counters.reclaim_background, 1);
    let ticks = arch::ticks().wrapping_sub(began);
    add(&counters.reclaim_background_ticks, ticks);
    freed
}

/// Makes the fresh process the reclaimer: apart from the program, ending with it, and without
/// rights. `None`: it cannot be.
fn settle(parts: &Parts) -> Option<Pace> {
    let program = parts.account.pid();
    process::ignore_signals();
    process::leave_group();
    process::set_name(c"uzswap-reclaim");
    process::run_as_batch(program);
    let pipe = parts.reclaimer.pipe();
    // Of the pipe the other end.
    let lifeline = parts.reclaimer.lifeline();
    let mut keep = [STDERR; NR_FDS + 1];
    let [_, own @ ..] = &mut keep;
    *own = parts.descriptors();
    for fd in own.iter_mut().filter(|fd| **fd == lifeline) {
        *fd = pipe;
    }
    keep.sort_unstable();
    if process::close_all_but(&keep).is_err() || !process::die_with(pipe) {
        return None;
    }
    let pace = Pace::new();
    enter_sandbox(program).then_some(pace)
}

/// Gives up all rights but to make the system calls of reclaim.
fn enter_sandbox(program: i32) -> bool {
    const ANY: [usize; 24] = [
        nr::FUTEX,
        nr::PROCESS_MADVISE,
        nr::IOCTL,
        nr::MADVISE,
        nr::MPROTECT,
        nr::SCHED_YIELD,
        nr::GETPID,
        nr::GETTID,
        nr::GETCPU,
        nr::CLOCK_GETTIME,
        nr::NANOSLEEP,
        nr::PWRITE64,
        nr::PREAD64,
        nr::IO_SUBMIT,
        nr::IO_GETEVENTS,
        nr::IO_SETUP,
        nr::IO_DESTROY,
        nr::FALLOCATE,
        nr::MMAP,
        nr::MUNMAP,
        nr::MLOCK,
        nr::FSTAT,
        nr::EXIT,
        nr::EXIT_GROUP,
    ];
    let any = ANY.map(|nr| Allowed { nr, only: None });
    let tgkill = |arg, value| Allowed {
        nr: nr::TGKILL,
        only: Some((arg, value)),
    };
    let write = Allowed {
        nr: nr::WRITE,
        only: Some((0, STDERR.unsigned_abs())),
    };
    let announce = Allowed {
        nr: nr::RT_SIGQUEUEINFO,
        only: Some((1, SIGSYS.unsigned_abs())),
    };
    // To ask whether a process is there, to end the program, and to ask others for memory.
    let kill = [
        tgkill(2, 0),
        tgkill(0, program.unsigned_abs()),
        write,
        announce,
    ];
    let mut calls = [Allowed {
        nr: nr::EXIT,
        only: None,
    }; 28];
    for (place, call) in calls.iter_mut().zip(any.into_iter().chain(kill)) {
        *place = call;
    }
    // SAFETY: the engine bears the failure of any call.
    process::drop_capabilities().is_ok() && unsafe { Sandbox::new(&calls).enter() }.is_ok()
}
