//! *What*: memory of other processes: asks them to give some back when the group is full. Whom and
//! for how much is decided by [`colder`](crate::policy::colder); they answer by
//! [`give_up`](super::give_up).
//!
//! *Invariants*: a thread of the program waits for others only when its own memory yields nothing,
//! and not for ever: [`Patience`].
//! *Locking*: none. *Context*: [`Patience`] signal, worker and init; [`Asking`] the reclaimer.

use crate::account::Account;
use crate::page::{PAGE_SHIFT, wide};
use crate::parts::Parts;
use crate::policy::colder::{Member, Rule, how_much};
use crate::policy::watermark::high;
use uzswap_group::ask::Wish;
use uzswap_group::group::{Process, is_alive};
use uzswap_group::request::{RequestKind, VALUE};
use uzswap_sync::ledger::Level;
use uzswap_sync::node::Path;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::signal::{self, SIGSYS};
use uzswap_sys::{arch, thread};

/// How long a thread waits for others at most that cannot go on without, nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;
/// How long it waits if it may exceed the limit of the group instead.
const SHORT_NS: u64 = 200_000_000;
/// How long it waits if it may exceed its own limit as well.
const BRIEF_NS: u64 = 10_000_000;
/// How long it waits until it looks again.
const LOOK_NS: u64 = 1_000_000;
/// Looks after which the dead are looked for once more.
const LOOKS_PER_SEARCH: u32 = 128;
/// How long the reclaimer waits for an answer, in naps, before it goes on with its own memory.
const NAP_NS: u64 = 200_000;
const MAX_NAPS: u32 = 10;
/// How long it then asks nobody, the first time and at most; twice as long each time.
const MIN_SILENCE_NS: u64 = 10_000_000;
const MAX_SILENCE_NS: u64 = 1_000_000_000;

/// What becomes of the `low` of groups that the asker is not in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Low {
    Kept,
    Ignored,
}

/// The processes of a node that hold memory, and what they hold of the limit.
fn holders(
    account: &Account,
    node: usize,
    low: Low,
) -> impl Iterator<Item = (&'static Process, Member)> {
    let group = account.group();
    let (ledger, own_path) = (&group.ledger, account.charge().share().path());
    let most_of = move |path: Path| match low {
        Low::Kept => ledger.above_low(path, own_path),
        Low::Ignored => u64::MAX,
    };
    let shares = ledger.shares();
    group
        .used()
        .iter()
        .zip(shares)
        .filter(move |(_, share)| share.path().has(node))
        .filter_map(move |(process, share)| {
            let used = share.used();
            if used == 0 || !process.is_live() {
                return None;
            }
            let member = Member {
                used,
                coldest: process.ask.coldest.load(Relaxed),
                most: most_of(share.path()),
            };
            Some((process, member))
        })
}

/// What holds in the node whose limit is the tightest for this process.
pub(super) fn rule(account: &Account) -> Rule {
    let (group, knobs) = (account.group(), account.knobs());
    let tightest = account.charge().levels().map(|levels| levels.tightest());
    let Level { node, limit, .. } = tightest.unwrap_or_default();
    Rule {
        node,
        limit,
        nr_live: wide(holders(account, node, Low::Ignored).count()),
        min: knobs.ram_min.load(Relaxed) >> PAGE_SHIFT,
        now: arch::ticks(),
        hz: group.config.tsc_hz.load(Relaxed).max(1),
    }
}

/// Asks the process with the coldest memory, if that was put on its list before what `before` says,
/// to give up `missing` pages, or some more. `None`: nobody is to be asked.
fn ask(
    account: &Account,
    missing: u64,
    low: Low,
    before: impl FnOnce(&Rule) -> u64,
) -> Option<&'static Process> {
    let rule = rule(account);
    let before = before(&rule);
    let (own, group) = (account.process(), account.group());
    let willing = |process: &Process| {
        let has_refused = rule.now.saturating_sub(process.ask.refused.load(Relaxed)) < rule.hz;
        // Without a reclaimer the supervisor has to signal it.
        let is_deaf = process.reclaimer.load(Relaxed) == 0 && group.is_foreign(process);
        !has_refused && !is_deaf
    };
    let others = holders(account, rule.node, low)
        .filter(|(process, _)| !core::ptr::eq(*process, own) && willing(process));
    let (process, surplus) = rule.whom(others, before)?;
    let pages = how_much(missing, surplus);
    process.ask.ask(Wish { pages, before });
    if process.reclaimer.load(Relaxed) == 0 && !group.is_foreign(own) {
        announce(process);
    }
    Some(process)
}

/// Takes back what the dead held, if this process can tell who is.
fn expire_dead(account: &Account) {
    let group = account.group();
    if !group.is_foreign(account.process()) {
        group.expire_dead(thread::getpid().unsigned_abs(), is_alive);
    }
}

/// Has a process that has no reclaimer start one.
fn announce(process: &Process) {
    let (request, own) = (&process.request, thread::getpid().unsigned_abs());
    // Its door is shut, or it serves another request: the supervisor tries again.
    if request.ring(own).is_err() {
        return;
    }
    request.what.store(RequestKind::GiveUp, Relaxed);
    // Read after the ring: before, the record may have become another's.
    let pid = process.pid.load(Relaxed).cast_signed();
    if signal::queue(pid, SIGSYS, VALUE).is_err() {
        request.take_back(own);
    }
}

/// How the reclaimer asks.
pub(super) struct Asking {
    /// It asks nobody before that, nanoseconds.
    not_before: u64,
    silence: u64,
}

impl Asking {
    pub(super) const fn new() -> Self {
        Asking {
            not_before: 0,
            silence: MIN_SILENCE_NS,
        }
    }

    /// Has a process make room whose memory is colder than ours, and waits for a moment. `false`:
    /// there is none, or it is not heard of, and our own memory is the next to go.
    pub(super) fn makes_room(&mut self, parts: &Parts) -> bool {
        let began = thread::monotonic_ns();
        if began < self.not_before {
            return false;
        }
        let (account, charge) = (parts.account, parts.account.charge());
        let missing = || high(charge.limit()).saturating_sub(charge.room());
        expire_dead(account);
        if missing() == 0 {
            return true;
        }
        let coldest = account.process().ask.coldest.load(Relaxed);
        let Some(asked) = ask(account, missing(), Low::Kept, |rule| rule.before(coldest)) else {
            self.not_before = began + MIN_SILENCE_NS;
            return false;
        };
        for _ in 0..MAX_NAPS {
            parts.reclaimer.presence.pause(NAP_NS);
            if missing() == 0 {
                self.silence = MIN_SILENCE_NS;
                return true;
            }
        }
        let is_heard = !asked.ask.is_open();
        if is_heard {
            self.silence = MIN_SILENCE_NS;
        } else {
            self.not_before = began + self.silence;
            self.silence = (self.silence * 2).min(MAX_SILENCE_NS);
        }
        is_heard
    }
}

/// How long a process that has nothing to evict waits for others to make room.
pub(crate) struct Patience {
    /// Nanoseconds.
    most: u64,
    /// When it began to wait; `None`: it has not.
    began: Option<u64>,
    looks: u32,
    /// Whom it asked last.
    asked: Option<&'static Process>,
}

impl Patience {
    /// That of a process of this account which needs `nr` pages.
    pub(crate) fn of(account: &Account, nr: u64) -> Self {
        let most = match account.may_exceed() {
            true => BRIEF_NS,
            false if account.fits_alone(nr) => SHORT_NS,
            false => PATIENCE_NS,
        };
        Patience {
            most,
            began: None,
            looks: 0,
            asked: None,
        }
    }

    /// Asks others for `missing` pages, and waits for a moment. `false`: nobody has any, or it took
    /// too long.
    pub(crate) fn waits(&mut self, account: &Account, missing: u64) -> bool {
        let now = thread::monotonic_ns();
        let is_first = self.began.is_none();
        let began = *self.began.get_or_insert(now);
        if self.looks.is_multiple_of(LOOKS_PER_SEARCH) {
            expire_dead(account);
        }
        self.looks = self.looks.wrapping_add(1);
        if is_first && account.charge().room() >= missing {
            return true;
        }
        if now - began >= self.most {
            // Nobody asks it for a while: it does not answer.
            if let Some(asked) = self.asked {
                asked.ask.refused.store(arch::ticks(), Relaxed);
            }
            return false;
        }
        let ask = |low| ask(account, missing, low, |_| Wish::ANY_TIME);
        // Where nobody else has any, the limit counts for more than what a group is left.
        self.asked = ask(Low::Kept).or_else(|| ask(Low::Ignored));
        if self.asked.is_some() {
            let _ = thread::nanosleep(LOOK_NS);
        }
        self.asked.is_some()
    }

    /// Charges `nr` pages, waiting for others to make room for them.
    pub(crate) fn charge(&mut self, account: &Account, nr: u64) -> bool {
        loop {
            if account.charge().try_charge(nr) {
                return true;
            }
            if !self.waits(account, nr) {
                return account.charge().try_charge(nr);
            }
        }
    }
}
