//! *What*: the few calls by which guard, signals and fork reach the engine and the group.
//!
//! *Invariants*: none of its own. *Locking*: the engine's. *Context*: any, with signals blocked.

use core::sync::atomic::Ordering;

use uzswap_core::hazard::Hazard;
pub use uzswap_core::{Fault, Masked, Pin};
use uzswap_core::{ForkGuard, StartError};
use uzswap_group::counters::add;
use uzswap_group::group::{NR_DEVICES, is_alive};
use uzswap_group::request::{Request, VALUE};

use uzswap_sys::signal::{self, SI_QUEUE, SIGSYS, SigInfo, SigSet};
use uzswap_sys::thread;

use crate::init::{ENGINE, claim};

/// Pins `[addr, addr + len)`, see [`uzswap_core::Engine::pin`].
///
/// # Errors
/// The fault that could not be served.
pub fn pin(m: &Masked, addr: usize, len: usize) -> Result<Pin, Fault> {
    ENGINE.pin(m, addr, len)
}

/// Ends a pin.
pub fn unpin(m: &Masked, pin: Pin) {
    ENGINE.unpin(m, pin);
}

/// Brings a range in and keeps it in for good.
pub fn hold(m: &Masked, addr: usize, len: usize) {
    // What does not fit stays a fault away.
    let _ = ENGINE.hold(m, addr, len);
}

/// Brings a range in.
pub fn populate(m: &Masked, addr: usize, len: usize) {
    let _ = ENGINE.populate(m, addr, len);
}

/// Whether all of the range is in the arena just now.
pub fn is_resident(addr: usize, len: usize) -> bool {
    ENGINE.is_resident(addr, len)
}

/// Announces that thread `nr` is about to use memory, see [`uzswap_core::Engine::announce`].
pub fn announce(nr: usize, addr: usize, len: usize) -> Option<Hazard<'static>> {
    ENGINE.announce(nr, addr, len)
}

/// Withdraws that.
pub fn withdraw(nr: usize) {
    ENGINE.withdraw(nr);
}

/// Bytes that one call may pin at once.
pub fn pin_budget() -> usize {
    ENGINE.pin_budget()
}

/// Serves a fault.
pub fn fault(m: &Masked, addr: usize) -> Fault {
    ENGINE.fault(m, addr)
}

/// Ends the process: `needed` bytes more do not fit the limit.
pub fn over_limit(needed: usize) -> ! {
    ENGINE.end_over_limit(needed as u64)
}

/// The handler thread's loop.
pub fn serve_faults(m: &Masked) {
    ENGINE.serve_faults(m);
}

/// The background thread's loop.
pub fn reclaim_in_background(m: &Masked) {
    ENGINE.reclaim_in_background(m);
}

/// The densifier's loop.
pub fn densify_in_background(m: &Masked) {
    ENGINE.densify_in_background(m);
}

/// Does what `uzswap reclaim` asks.
pub fn serve_request(m: &Masked) {
    ENGINE.serve_request(m);
}

/// This process's requests; none in a vfork child, which is not the process that they are for.
fn request() -> Option<&'static Request> {
    let process = ENGINE.process()?;
    let own = process.pid.load(Ordering::Relaxed) == thread::getpid().unsigned_abs();
    own.then_some(&process.request)
}

/// The process handles SIGSYS: it may be asked.
pub fn open_door() {
    if let Some(request) = request() {
        request.open();
    }
}

/// Whether a SIGSYS, just come, says that this process is asked something, and if so, whether anybody
/// still waits for it.
pub fn is_asked(info: &SigInfo) -> Option<bool> {
    // A signal's value lies where SIGSYS of the kernel's has the number of the call.
    if info.si_code != SI_QUEUE || info.si_syscall() != VALUE {
        return None;
    }
    request()?.take()
}

/// Before another program is executed, to which a SIGSYS would be fatal: waits for one that is on its
/// way. Whether the door is to be opened again if there is to be no other program.
pub fn shut_door(_: &Masked) -> bool {
    let Some(request) = request() else {
        return false;
    };
    // Blocked here, and waited for, it comes to no handler.
    let came = || signal::take_pending(SigSet::EMPTY.with(SIGSYS)).is_some();
    request.shut(came, is_alive, || {
        thread::sched_yield();
    });
    true
}

/// The engine's descriptors; -1 for what there is not.
pub fn descriptors() -> [i32; 1 + NR_DEVICES] {
    let mut all = [ENGINE.mapping_fd(); 1 + NR_DEVICES];
    let [_, swap @ ..] = &mut all;
    *swap = ENGINE.swap_fds();
    all
}

/// Counts a guarded call.
pub fn count() {
    if let Some(process) = ENGINE.process() {
        add(&process.counters.guarded_syscalls, 1);
    }
}

/// The group's configuration of the background thread.
pub fn wants_reclaimer() -> bool {
    crate::init::group().is_some_and(|g| g.config.background.load(Ordering::Relaxed) != 0)
}

/// The group's configuration of the densifier.
pub fn wants_densifier() -> bool {
    crate::init::group().is_some_and(|g| g.config.densifier.load(Ordering::Relaxed) != 0)
}

/// Whether there may be threads that work as devices do, and how many there are now.
pub fn engines() -> (bool, u64) {
    ENGINE.engines()
}

/// Stops the engine for a fork.
pub fn fork_prepare(m: &Masked) -> ForkGuard {
    ENGINE.fork_prepare(m)
}

/// Goes on in the parent of process `child`.
pub fn fork_parent(m: &Masked, guard: ForkGuard, child: isize) {
    ENGINE.fork_parent(m, guard, u32::try_from(child).unwrap_or(0));
}

/// Goes on after a fork that failed.
pub fn fork_failed(m: &Masked, guard: ForkGuard) {
    ENGINE.fork_failed(m, guard);
}

/// Goes on in the child, with a slot of its own in the group.
///
/// # Errors
/// The engine could not be carried over.
pub fn fork_child(m: &Masked, guard: ForkGuard) -> Result<(), StartError> {
    let Some(group) = crate::init::group() else {
        ENGINE.fork_failed(m, guard);
        return Ok(());
    };
    let process = claim(group, guard.child());
    ENGINE.fork_child(m, guard, process)
}
