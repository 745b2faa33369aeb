//! *What*: the engine's façade: all that the preload library, tests and benches call.
//!
//! *Invariants*: every operation takes a [`Masked`] and holds one operation context ([`crate::op`])
//! from beginning to end.
//! *Locking*: see [`crate::parts`]. *Context*: `start` at init; the rest signal or worker.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use crate::accel::WorkQueue;
use crate::account::Account;
use crate::arena::hazard::{Hazard, Hazards};
use crate::arena::region::{Flags, Region};
use crate::flow::fault::Fault;
use crate::flow::fork::ForkGuard;
use crate::flow::pin::{Keep, Pin};
use crate::flow::remap::RemapTo;
use crate::flow::space::{ForkPolicy, MapError};
use crate::flow::threads::NoRoom;
use crate::flow::{self, fork, pin, remap, request, space, threads};
use crate::masked::Masked;
use crate::page::ranking::Ranking;
use crate::page::{PAGE_SIZE, Page, PageRange, Partition, narrow};
use crate::parts::reclaimer::ReclaimerHold;
use crate::parts::{NR_FDS, Parts};
use crate::start::build;
use crate::start_error::StartError;
use uzswap_group::group::{FailureReason, Group, Process};
use uzswap_sync::primitive::{AtomicBool, Ordering};
use uzswap_sys::{Errno, file, mem};

pub use crate::arena::FaultMode;

/// The engine. Zero-filled memory is one that has not started.
pub struct Engine {
    parts: UnsafeCell<MaybeUninit<Parts>>,
    account: Account,
    hazards: Hazards,
    started: AtomicBool,
}

// SAFETY: `parts` is written once in `start`, before `started` is set; everything in it is shared
// through atomics and locks. The raw pointers in it are to memory that lives as long as the
// process.
unsafe impl Sync for Engine {}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// An engine that has not started.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parts: UnsafeCell::new(MaybeUninit::uninit()),
            account: Account::new(),
            hazards: Hazards::new(),
            started: AtomicBool::new(false),
        }
    }

    /// Starts the engine of this process as `group` configures it, counting into `process`.
    ///
    /// # Errors
    /// The step that failed; nothing is managed then.
    pub fn start(
        &'static self,
        masked: &Masked,
        group: &'static Group,
        process: &'static Process,
    ) -> Result<FaultMode, StartError> {
        self.start_in(masked, group, process, Partition::WHOLE)
    }

    /// [`Engine::start`] for a part of the arena, beside other engines of this process.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_in(
        &'static self,
        _masked: &Masked,
        group: &'static Group,
        process: &'static Process,
        partition: Partition,
    ) -> Result<FaultMode, StartError> {
        self.account.open(group, process);
        let parts = build(&self.account, &self.hazards, partition)?;
        let mode = parts.arena.mode();
        // SAFETY: written before `started` is set, and nobody reads it before.
        let parts = unsafe { (*self.parts.get()).write(parts) };
        // Release: pairs with the acquire in `started`; `parts` is complete.
        self.started.store(true, Ordering::Release);
        parts.reclaimer.presence.listen_at(self.account.kick());
        parts.pages.show_coldest(&process.ask.coldest);
        flow::sizes::publish_sizes(parts);
        Ok(mode)
    }

    /// Has the thread in [`Engine::serve_faults`] end after a fault on the `page` of that address,
    /// which the caller is about to bring about.
    pub fn announce_last_fault(&self, page: usize) {
        if let Some(parts) = self.parts() {
            parts.last_fault.store(page, Ordering::Relaxed);
        }
    }

    /// Stops the engine. Its partition of the arena, its own memory and its descriptors go back to
    /// the kernel, and it can be started anew.
    ///
    /// # Safety
    /// No operation is under way or begins; nobody has memory in the partition; there are no
    /// accelerators, and no thread serves faults.
    pub unsafe fn stop(&'static self, _masked: &Masked) {
        let Some(parts) = self.parts() else { return };
        // Never released: the next start makes a new one.
        core::mem::forget(parts.reclaimer.hold());
        self.started.store(false, Ordering::Release);
        self.hazards.withdraw_all();
        if let Some(backing) = &parts.backing {
            backing.leave();
        }
        let descriptors = parts.descriptors();
        for fd in descriptors.into_iter().filter(|fd| *fd >= 0) {
            let _ = file::close(fd);
        }
        let partition = parts.arena.partition();
        // SAFETY: the caller's promise; the partition is the engine's, and `parts` is not used any
        // more.
        unsafe {
            let _ = mem::munmap(partition.start(), partition.len());
            self.account.memory().release_all();
        }
        self.account.close();
    }

    /// Has `ranking` decide what is evicted next.
    pub fn rank_by(&self, ranking: &'static &'static dyn Ranking) {
        if let Some(parts) = self.parts() {
            parts.pages.rank_by(ranking);
        }
    }

    /// Whether [`Engine::start`] has succeeded.
    #[inline]
    #[must_use]
    pub fn started(&self) -> bool {
        // Acquire: pairs with the release in `start`; `parts` is complete.
        self.started.load(Ordering::Acquire)
    }

    #[inline]
    fn parts(&self) -> Option<&'static Parts> {
        if !self.started() {
            return None;
        }
        // SAFETY: started: `parts` was written, and does not move or change as the engine is
        // static.
        Some(unsafe { &*(*self.parts.get()).as_ptr() })
    }

    fn ready(&self) -> Result<&'static Parts, MapError> {
        self.parts().ok_or(MapError::NoSpace)
    }

    /// The descriptors that the program must neither close nor replace: the one by which pages come
    /// and go, and the swap devices'. -1 for those that there are not.
    #[must_use]
    pub fn descriptors(&self) -> [i32; NR_FDS] {
        self.parts().map_or([-1; NR_FDS], Parts::descriptors)
    }

    /// This process's record in the group.
    #[must_use]
    pub fn process(&self) -> Option<&'static Process> {
        Some(self.parts()?.account.process())
    }

    /// The fault mode in use.
    #[must_use]
    pub fn mode(&self) -> Option<FaultMode> {
        Some(self.parts()?.arena.mode())
    }

    /// Serves a fault at `addr`.
    pub fn fault(&self, masked: &Masked, addr: usize) -> Fault {
        match self.parts().zip(Page::containing(addr)) {
            Some((parts, page)) => flow::fault::serve_timed(parts, masked, page),
            None => Fault::NotMapped,
        }
    }

    /// Maps `len` bytes of fresh memory: at `hint` if that is in the arena and free, else where
    /// there is room, aligned to a folio.
    ///
    /// # Errors
    /// [`MapError::NoSpace`], [`MapError::Kernel`].
    pub fn map(
        &self,
        masked: &Masked,
        len: usize,
        hint: usize,
        prot: u32,
    ) -> Result<usize, MapError> {
        let parts = self.ready()?;
        space::map(parts, &mut parts.op(masked), len, hint, prot)
    }

    /// Maps fresh memory exactly there, in the arena, in place of what was.
    ///
    /// # Errors
    /// [`MapError::Invalid`] outside the arena; as [`Engine::map`].
    pub fn map_fixed(
        &self,
        masked: &Masked,
        addr: usize,
        len: usize,
        prot: u32,
    ) -> Result<(), MapError> {
        let parts = self.ready()?;
        space::map_fixed(parts, &mut parts.op(masked), addr, len, prot)
    }

    /// Unmaps a range; parts that are not mapped are passed over.
    ///
    /// # Errors
    /// [`MapError::NoSpace`]: the region map has no room to split; [`MapError::Kernel`].
    pub fn unmap(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), MapError> {
        let parts = self.ready()?;
        space::unmap(parts, &mut parts.op(masked), addr, len)
    }

    /// Changes the protection.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped, and what the kernel says.
    pub fn protect(
        &self,
        masked: &Masked,
        addr: usize,
        len: usize,
        prot: u32,
    ) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _op = parts.op(masked);
        space::protect(parts, addr, len, prot)
    }

    /// Drops the contents of a range: it reads as zero.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped; the rest is dropped.
    pub fn discard(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _op = parts.op(masked);
        space::discard(parts, addr, len)
    }

    /// Evicts a range now.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped.
    pub fn pageout(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        space::pageout(parts, &mut parts.op(masked), addr, len)
    }

    /// Makes a range the next to be evicted.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped.
    pub fn cold(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _op = parts.op(masked);
        space::cold(parts, addr, len)
    }

    /// The program has laid a mapping of its own over this range of the arena, after
    /// [`Engine::unmap`]: it is left alone until it is unmapped.
    ///
    /// # Errors
    /// [`MapError::NoSpace`].
    pub fn foreign(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), MapError> {
        let parts = self.ready()?;
        space::foreign(parts, &mut parts.op(masked), addr, len)
    }

    /// Whether fork children get nothing of a range, or zeroes, as `policy` says, or all of it.
    pub fn fork_policy(
        &self,
        masked: &Masked,
        addr: usize,
        len: usize,
        policy: ForkPolicy,
        applies: bool,
    ) {
        let mask = match policy {
            ForkPolicy::DontFork => Flags::DONT_FORK,
            ForkPolicy::Wipe => Flags::WIPE_ON_FORK,
        };
        let flags = if applies { mask } else { Flags::NONE };
        if let Some(parts) = self.parts() {
            let _op = parts.op(masked);
            let regions = parts.arena.regions();
            let _ = regions.set_flags(addr, len, mask, flags);
        }
    }

    /// For each page of `[addr, addr + 4096 * vec.len())`: 1 if it holds data, resident or stored.
    ///
    /// # Errors
    /// ENOMEM if part of the range is not mapped.
    pub fn residency(&self, masked: &Masked, addr: usize, vec: &mut [u8]) -> Result<(), Errno> {
        let parts = self.parts().ok_or(Errno::ENOMEM)?;
        let _op = parts.op(masked);
        space::residency(parts, addr, vec)
    }

    /// The first mapping in a range of the arena, clipped to it.
    #[must_use]
    pub fn next_region(&self, addr: usize, len: usize) -> Option<Region> {
        self.parts()?.arena.regions().next_in(addr, len)
    }

    /// Whether nothing is mapped in a range of the arena.
    #[must_use]
    pub fn is_free(&self, addr: usize, len: usize) -> bool {
        self.next_region(addr, len).is_none()
    }

    /// Bytes of the arena where nothing is mapped.
    #[must_use]
    pub fn free_space(&self) -> usize {
        let parts = self.parts();
        parts.map_or(0, |parts| parts.arena.regions().free_space())
    }

    /// The mapping that holds `addr`.
    #[must_use]
    pub fn region(&self, addr: usize) -> Option<Region> {
        self.parts()?.arena.regions().lookup(addr)
    }

    /// mremap: shrinks, grows or moves a range.
    ///
    /// # Errors
    /// [`MapError::NotMapped`] if the old range is not one mapping; as [`Engine::map`].
    pub fn remap(
        &self,
        masked: &Masked,
        old: usize,
        old_len: usize,
        new_len: usize,
        to: RemapTo,
    ) -> Result<usize, MapError> {
        let parts = self.ready()?;
        remap::remap(parts, &mut parts.op(masked), old, old_len, new_len, to)
    }

    /// Brings `[addr, addr + len)` in and keeps it in until [`Engine::unpin`]. Parts that are not
    /// managed are passed over.
    ///
    /// # Errors
    /// As [`Engine::fault`] of the page that failed; nothing is pinned then.
    pub fn pin(&self, masked: &Masked, addr: usize, len: usize) -> Result<Pin, Fault> {
        let range = match self.parts() {
            Some(_) => PageRange::covering(addr, len),
            None => PageRange { start: 0, end: 0 },
        };
        self.keep(masked, range, Keep::Pin)?;
        Ok(Pin::of(range))
    }

    /// Takes a pin off.
    pub fn unpin(&self, masked: &Masked, pin: Pin) {
        if let Some(parts) = self.parts() {
            let _op = parts.op(masked);
            pin::unpin_range(parts, pin.range());
        }
    }

    /// Brings `[addr, addr + len)` in and keeps it in for good, in fork children too: a stack that
    /// signals may be delivered on.
    ///
    /// # Errors
    /// As [`Engine::pin`].
    pub fn hold(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Fault> {
        self.keep(masked, PageRange::covering(addr, len), Keep::Hold)
    }

    /// Bytes that [`Engine::hold`] would hold in addition: whole folios, without those that it
    /// holds already.
    #[must_use]
    pub fn not_held(&self, addr: usize, len: usize) -> usize {
        self.parts().map_or(0, |parts| {
            pin::not_held(parts, PageRange::covering(addr, len))
        })
    }

    /// Brings `[addr, addr + len)` in, as far as the limit allows to keep it there at once.
    ///
    /// # Errors
    /// As [`Engine::pin`].
    pub fn populate(&self, masked: &Masked, addr: usize, len: usize) -> Result<(), Fault> {
        self.keep(masked, PageRange::covering(addr, len), Keep::No)
    }

    fn keep(&self, masked: &Masked, range: PageRange, keep: Keep) -> Result<(), Fault> {
        match self.parts() {
            Some(parts) => pin::keep_in(parts, &mut parts.op(masked), range, keep),
            None => Ok(()),
        }
    }

    /// Whether every page of `[addr, addr + len)` is in the arena just now. Nothing keeps it there:
    /// for callers that notice when it is not. Needs no lock: an entry says resident only while the
    /// page is there.
    #[must_use]
    pub fn is_resident(&self, addr: usize, len: usize) -> bool {
        self.parts()
            .is_some_and(|parts| pin::is_resident(parts, addr, len))
    }

    /// Announces that a system call of thread `nr` uses `[addr, addr + len)`, if all of it is in
    /// the arena and nobody is about to evict it. Until that is withdrawn its pages are present and
    /// writable as the program mapped them, unless the program itself does away with them.
    #[inline]
    pub fn announce(&self, nr: usize, addr: usize, len: usize) -> Option<Hazard<'static>> {
        pin::announce(self.parts()?, nr, addr, len)
    }

    /// Withdraws what thread `nr` has announced.
    pub fn withdraw(&self, nr: usize) {
        self.hazards.withdraw(nr);
    }

    /// Bytes that one system call may pin at once; larger I/O is done in pieces.
    #[must_use]
    pub fn pin_budget(&self) -> usize {
        let limit = self.account.limit_bytes();
        narrow(limit / 16).clamp(64 << 10, 8 << 20) & !(PAGE_SIZE - 1)
    }

    /// Waits until no operation is under way and keeps new ones from starting.
    pub fn fork_prepare(&self, masked: &Masked) -> ForkGuard {
        fork::prepare(self.parts(), masked)
    }

    /// One more accelerator, for as long as the process lives. `false`: there are too many, or the
    /// engine has not started.
    pub fn add_queue(&self, queue: &'static dyn WorkQueue) -> bool {
        self.parts()
            .is_some_and(|parts| parts.store.add_queue(queue))
    }

    /// Whether there may be accelerator threads in this process, and how many there are now.
    #[must_use]
    pub fn workers(&self) -> (bool, u64) {
        self.parts().map_or((false, 0), |parts| {
            let workers = parts.store.workers();
            (workers.may_be(), workers.nr_threads())
        })
    }

    /// Serves faults for as long as the process lives (thread mode).
    pub fn serve_faults(&self, masked: &Masked, no_room: NoRoom) {
        if let Some(parts) = self.parts() {
            threads::serve_faults(parts, masked, no_room);
        }
    }

    /// Ends the reclaimer, and keeps it from being started for as long as the result lives: before
    /// an exec, after which it would hold the old memory. `None`: it is not this process's to end.
    #[must_use]
    pub fn hold_reclaimer(&self, _masked: &Masked) -> Option<ReclaimerHold> {
        let parts = self.parts()?;
        parts
            .account
            .is_own_process()
            .then(|| parts.reclaimer.hold())
    }

    /// The reclaimer is not started any more: the program is about to forbid itself system calls
    /// that starting it takes. One that runs goes on.
    pub fn refuse_reclaimer(&self) {
        if let Some(parts) = self.parts() {
            parts.reclaimer.refuse();
        }
    }

    /// Makes all that is in the pool denser, once, now, whatever the knob and the pressure.
    pub fn densify(&self, masked: &Masked) {
        if let Some(parts) = self.parts() {
            flow::densify::run_once(parts, masked);
        }
    }

    /// Has the reclaimer do what this process is asked from outside. `false`: it cannot.
    #[must_use]
    pub fn serve_request_beside(&self, _masked: &Masked) -> bool {
        self.parts().is_some_and(request::serve_beside)
    }

    /// Starts the reclaimer, so that others of the group can ask for memory. `false`: there can be
    /// none.
    pub fn start_reclaimer(&self, _masked: &Masked) -> bool {
        self.parts().is_some_and(flow::reclaimer::answer_others)
    }

    /// Does what this process is asked from outside, and answers.
    pub fn serve_request(&self, masked: &Masked) {
        if let Some(parts) = self.parts() {
            request::serve(parts, masked);
        }
    }

    /// Ends the process because its data do not fit the limit.
    pub fn end_over_limit(&self, needed_bytes: u64) -> ! {
        match self.parts() {
            Some(parts) => {
                let used = parts.account.used_bytes();
                parts
                    .account
                    .die(FailureReason::OverLimit, 0, needed_bytes.max(used))
            }
            None => uzswap_sys::thread::exit_group(125),
        }
    }
}
