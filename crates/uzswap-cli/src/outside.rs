//! *What*: measures what the processes of a run have outside the engines' account: anonymous memory
//! that is not managed, shared memory, page tables and kernel stacks, of managed and unmanaged
//! processes and of the supervisor.
//!
//! A look reads how much anonymous and shared memory each process has. Where that is not what it
//! has outside its account (an engine works in it; it shares memory with others), the process is
//! weighed mapping by mapping, again when a look finds it grown or shrunk. Between looks a
//! [`probe`] tells whether one is needed at once. [`pace`] says when.
//!
//! *Invariants*: `unmanaged` and what belongs to it in the group are written here alone. Memory
//! that several processes share counts once, page cache of files never.
//! *Locking*: none. *Context*: the supervisor's only thread, between signals.

mod causes;
mod measure;
mod pace;
mod probe;
mod tree;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use uzswap_corpus::process::cpu_time;
use uzswap_group::group::{Group, Process, ProcessState, Run};
use uzswap_sys::process;

use crate::group_view::{self, PAGE, Sizes, pid_of};
pub use causes::Causes;
use causes::{Kind, Part};
use measure::{Beside, Weight, weigh};
use pace::{Due, Pace};
use probe::Probe;
use tree::Proc;

/// Name of the processes that work on a managed process's memory beside it.
const RECLAIMER: &str = "uzswap-reclaim";
/// Less is no sign that memory changes.
const MIN_CHANGE: u64 = 64 << 10;
/// A process that begins is taken to have what others have on the mean, but at least and at most
/// this, until it is measured: a program's own data, its libraries', and page tables.
const PRESUMED: RangeInclusive<u64> = 1 << 20..=4 << 20;
/// Looks in a row that must find the limit exceeded: one may see memory on its way from one process
/// to another.
const MIN_LOOKS_OVER: u32 = 2;

/// Anonymous and shared memory by the cheap figures, bytes. Of a managed process what its engine
/// counts is taken off; after exec of an unmanaged program that is stale, and may be more than
/// there is.
type Light = [i64; 2];

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    image: [u64; 3],
    forked: bool,
    cpu: Duration,
    /// At the last look.
    last: Light,
    /// The least anonymous memory of any look.
    least: i64,
    weighed: Option<Weighed>,
}

#[derive(Debug)]
struct Weighed {
    at: Duration,
    faults: u64,
    light: Light,
    weight: Weight,
}

/// How a process's memory is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The cheap figures are exact: it shares nothing, and no engine works in it.
    Look,
    /// It is weighed. Until then the cheap figures, which are nearly right.
    Weigh,
    /// It is weighed, as it shares memory by fork. Until then the eldest of those that share has
    /// all, and the others what they have grown by.
    Share,
}

/// A process as a look finds it.
#[derive(Debug)]
struct Seen<'a> {
    proc: Proc,
    /// Its record in the group, if it is managed.
    record: Option<&'a Process>,
    light: Light,
    way: Way,
    eldest: bool,
}

/// What a process has outside its account, bytes.
#[derive(Debug, Default)]
struct Found {
    anonymous: u64,
    shared: u64,
    tables: u64,
}

impl Found {
    fn sum(&self) -> u64 {
        self.anonymous + self.shared + self.tables
    }
}

/// Measures a run.
#[derive(Debug)]
pub struct Outside<'a> {
    part: group_view::Part<'a>,
    run: &'a Run,
    number: usize,
    /// `/proc`, except in tests.
    proc: PathBuf,
    supervisor: u32,
    begin: Instant,
    pace: Pace,
    shared_devices: HashSet<(u32, u32)>,
    known: HashMap<u32, Known>,
    /// When a process last came or went.
    set_changed: Duration,
    /// CPU time that the processes have used, as far as looks have found them.
    cpu: Duration,
    /// Sum of the cheap figures at the last look, and what the probes found then.
    before: u64,
    probes: Vec<Probe<'a>>,
    probed: u64,
    looks_over: u32,
    over: Option<Over>,
    causes: Causes,
}

/// Memory outside the account that alone exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Bytes, of all runs under that limit.
    pub bytes: u64,
    /// Those of them that are this run's.
    pub own: u64,
    /// The limit, bytes.
    pub limit: u64,
}

impl<'a> Outside<'a> {
    /// Measures run `number` of `group`, whose supervisor this process is.
    pub fn new(group: &'a Group, number: usize) -> Self {
        let proc = PathBuf::from("/proc");
        let mounts = fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
        let run = group.run(number);
        run.presumed.store(*PRESUMED.start(), Relaxed);
        Outside {
            part: group_view::Part::run(group, number),
            run,
            number,
            proc,
            supervisor: std::process::id(),
            begin: Instant::now(),
            pace: Pace::default(),
            shared_devices: measure::shared_devices(&mounts),
            known: HashMap::new(),
            set_changed: Duration::ZERO,
            cpu: Duration::ZERO,
            before: 0,
            probes: Vec::new(),
            probed: 0,
            looks_over: 0,
            over: None,
            causes: Causes::default(),
        }
    }

    /// Measures if it is time to. Returns the time until the next measurement.
    pub fn tick(&mut self) -> Duration {
        let now = self.begin.elapsed();
        match self.pace.due(now) {
            Some(Due::Look) => self.look(now),
            Some(Due::Probe) => self.probe(now),
            None => {}
        }
        self.pace.due_in(self.begin.elapsed())
    }

    /// What was outside at the peak.
    pub fn causes(&self) -> &Causes {
        &self.causes
    }

    /// What is outside, if that alone exceeds a limit now.
    pub fn over_limit(&self) -> Option<Over> {
        self.over.filter(|_| self.looks_over >= MIN_LOOKS_OVER)
    }

    /// The supervisor's children.
    pub fn children(&self) -> Vec<u32> {
        let all = tree::look(&self.proc, self.supervisor).into_iter();
        let children = all.filter(|proc| proc.parent == self.supervisor);
        children.map(|proc| proc.pid).collect()
    }

    fn probe(&mut self, now: Duration) {
        let began = thread_time();
        let change = probe::sum(&self.probes).abs_diff(self.probed);
        let cost = thread_time().saturating_sub(began);
        self.pace.probed(now, cost, change > MIN_CHANGE);
        if change > self.much() && self.pace.may_spend(now, true) {
            self.look(now);
        }
    }

    fn look(&mut self, now: Duration) {
        let began = thread_time();
        let there = self.there();
        let seen = self.see();
        let changed = self.note(&seen, now);
        let weighing = self.weigh_some(&seen, now);
        let total = self.run.unmanaged.load(Relaxed);
        self.publish(&seen);
        self.presume_no_more(there);
        let changed = changed || total.abs_diff(self.run.unmanaged.load(Relaxed)) > MIN_CHANGE;
        let probes = std::mem::take(&mut self.probes);
        self.probes = probe::open(&self.proc, &seen, probes);
        self.probed = probe::sum(&self.probes);
        for it in &seen {
            if let Some(known) = self.known.get_mut(&it.proc.pid) {
                known.last = it.light;
            }
        }
        let cost = thread_time().saturating_sub(began + weighing);
        self.pace.looked(now, cost, changed, self.cpu);
    }

    /// The records that belong to processes, in states that the next owners' differ from.
    fn there(&self) -> Vec<(&'a Process, ProcessState)> {
        let states = self
            .part
            .used_slots()
            .map(|record| (record, record.state.load(Acquire)));
        states.filter(|(_, state)| state.is_live()).collect()
    }

    /// What processes that were `there` have is known now.
    fn presume_no_more(&self, there: Vec<(&'a Process, ProcessState)>) {
        let group = self.part.group();
        for (record, state) in there {
            // One that begins in this very moment goes without.
            if record.state.load(Acquire) == state {
                group.share_of(record).measured();
            }
        }
    }

    /// The processes and their cheap figures.
    fn see(&self) -> Vec<Seen<'a>> {
        // An engine at work counts pages a moment before or after the kernel does.
        let counted = |record: &Process| Sizes::of(record).in_use();
        let records: HashMap<u32, (&'a Process, u64)> = self
            .part
            .used_slots()
            .map(|record| (pid_of(record), (record, counted(record))))
            .collect();
        let mut procs = tree::look(&self.proc, self.supervisor);
        disown(&mut procs, process::share_memory);
        let family = family(&procs);
        let eldest = eldest(&procs);
        let see = |proc: Proc| {
            // In another pid namespace the number is somebody else's.
            let record = records.get(&proc.own_pid).filter(|_| !proc.nested);
            let counted = record.map_or(0, |(record, before)| counted(record).max(*before));
            let [anonymous, shared, counted] =
                [proc.anonymous, proc.shared, counted].map(u64::cast_signed);
            let way = match () {
                () if family.contains(&proc.pid) => Way::Share,
                () if record.is_some() || proc.nested || proc.shared > 0 => Way::Weigh,
                () => Way::Look,
            };
            Seen {
                record: record.map(|(record, _)| *record),
                light: [anonymous - counted, shared],
                way,
                eldest: eldest.contains(&proc.pid),
                proc,
            }
        };
        procs.into_iter().map(see).collect()
    }

    /// Remembers new processes and forgets those that are gone or have called exec. Whether much
    /// has changed since the last look.
    fn note(&mut self, seen: &[Seen<'_>], now: Duration) -> bool {
        let mut known = HashMap::with_capacity(seen.len());
        let mut set_changed = false;
        for Seen { proc, light, .. } in seen {
            let before = self.known.remove(&proc.pid);
            if proc.pid != self.supervisor {
                let before = before.as_ref().map_or(Duration::ZERO, |it| it.cpu);
                self.cpu += proc.cpu.saturating_sub(before);
            }
            let same = before.filter(|it| it.image == proc.image && it.forked == proc.forked);
            set_changed |= same.is_none();
            let new = || Known {
                image: proc.image,
                forked: proc.forked,
                cpu: proc.cpu,
                last: *light,
                least: light[0],
                weighed: None,
            };
            let mut it = same.unwrap_or_else(new);
            it.cpu = proc.cpu;
            it.least = it.least.min(light[0]);
            known.insert(proc.pid, it);
        }
        // What is left has gone.
        set_changed |= !self.known.is_empty();
        self.known = known;
        if set_changed {
            self.set_changed = now;
        }
        let sum = seen.iter().flat_map(|it| it.light).map(at_least_zero).sum();
        let changed = set_changed || self.before.abs_diff(sum) > MIN_CHANGE;
        self.before = sum;
        changed
    }

    /// Weighs the processes that have changed most, as far as there is time. Returns the time that
    /// it took.
    fn weigh_some(&mut self, seen: &[Seen<'_>], now: Duration) -> Duration {
        let whys = seen.iter().map(|it| self.why_weigh(it));
        let mut due: Vec<_> = whys.zip(seen).collect();
        // What one process touches changes the shares of all.
        let family = due.iter().filter(|(_, it)| it.way == Way::Share);
        let family = family.map(|(why, _)| *why).max().flatten();
        for (why, _) in due.iter_mut().filter(|(_, it)| it.way == Way::Share) {
            *why = family;
        }
        due.sort_by_key(|(why, _)| Reverse(*why));
        let mut took = Duration::ZERO;
        let mut family_begun = false;
        for (why, it) in due {
            let Some((urgent, _)) = why else { break };
            // Shares of different moments do not add up.
            let goes_on = family_begun && it.way == Way::Share;
            if !goes_on && !self.pace.may_spend(now, urgent) {
                continue;
            }
            family_begun |= it.way == Way::Share;
            let began = thread_time();
            let weight = self.weight(it);
            let cost = thread_time().saturating_sub(began);
            self.pace.weighed(cost);
            took += cost;
            if let (Some(weight), Some(known)) = (weight, self.known.get_mut(&it.proc.pid)) {
                known.last = it.light;
                known.weighed = Some(Weighed {
                    at: now,
                    faults: it.proc.faults,
                    light: it.light,
                    weight,
                });
            }
        }
        took
    }

    /// Whether to weigh a process: how urgently, and how much it has changed.
    fn why_weigh(&self, it: &Seen<'_>) -> Option<(bool, u64)> {
        let much = self.much();
        let known = self.known.get(&it.proc.pid)?;
        let Some(weighed) = &known.weighed else {
            let size = it.light.map(at_least_zero).into_iter().sum();
            // Where a look is exact, weighing only finds the causes' names.
            let worth = it.way != Way::Look || size > much;
            return worth.then_some((it.way == Way::Share && size > much, size));
        };
        let change = distance(it.light, weighed.light);
        // A copy that it makes of shared memory is a fault, and changes nothing else that is seen.
        let copied = it.proc.faults.saturating_sub(weighed.faults) * PAGE;
        let old = weighed.at < self.set_changed || copied > much;
        let due = change > much || (it.way == Way::Share && old);
        // While it goes on growing, what it has grown by is nearly right unless it is shared.
        let settled = distance(it.light, known.last) < MIN_CHANGE;
        let urgent = match it.way {
            Way::Look => false,
            Way::Weigh => settled && change > much,
            Way::Share => change > if settled { much } else { 8 * much },
        };
        due.then_some((urgent, change))
    }

    /// A change of a process after which it is weighed again.
    fn much(&self) -> u64 {
        let percent = self.part.limit() / 100;
        let least = percent.clamp(512 << 10, 2 << 20);
        least.max(self.run.unmanaged.load(Relaxed) / 50)
    }

    /// Weighs one process; none if the kernel does not show its mappings.
    fn weight(&self, it: &Seen<'_>) -> Option<Weight> {
        let proc = &it.proc;
        let smaps = fs::read(self.proc.join(format!("{}/smaps", proc.pid))).ok()?;
        let smaps = String::from_utf8_lossy(&smaps);
        // A process that has ended shows no mappings.
        if smaps.is_empty() {
            return None;
        }
        let stacks = match proc.has_threads() {
            true => tree::stack_pointers(&self.proc, proc.pid),
            false => Vec::new(),
        };
        let beside = Beside {
            shared_devices: &self.shared_devices,
            stacks: &stacks,
            shared: proc.shared,
        };
        let mut weight = weigh(&smaps, beside);
        let fixed = it.record.map(|p| p.counters.unmanaged_fixed.load(Relaxed));
        let fixed = fixed.unwrap_or(0);
        for part in &mut weight.parts {
            if part.kind == Kind::Anonymous && part.bytes <= fixed + fixed / 16 {
                part.kind = Kind::Fixed;
            }
        }
        Some(weight)
    }

    fn publish(&mut self, seen: &[Seen<'_>]) {
        let mut all = Found::default();
        let mut by_name: HashMap<&str, u64> = HashMap::new();
        let (mut managed, mut nr_managed) = (0, 0);
        for it in seen {
            let found = self.found(it);
            if let Some(record) = it.record {
                record.unmanaged.store(found.sum(), Relaxed);
                managed += found.sum();
                nr_managed += 1;
            }
            all.anonymous += found.anonymous;
            all.shared += found.shared;
            all.tables += found.tables;
            *by_name.entry(&it.proc.name).or_default() += found.sum();
        }
        let mean = managed / nr_managed.max(1);
        let presumed = mean.clamp(*PRESUMED.start(), *PRESUMED.end());
        self.run.presumed.store(presumed, Relaxed);
        let total = all.sum();
        let (ledger, outside) = (&self.part.ledger, &self.run.outside);
        self.run.unmanaged.store(total, Relaxed);
        let path = self.part.path();
        ledger.set_outside(self.number, path, total);
        ledger.note(&ledger.held_on(path));
        outside.anonymous.store(all.anonymous, Relaxed);
        outside.shared.store(all.shared, Relaxed);
        outside.tables.store(all.tables, Relaxed);
        if let Some((name, bytes)) = by_name.into_iter().max_by_key(|(_, bytes)| *bytes) {
            outside.most.store(bytes, Relaxed);
            for (cell, word) in outside.most_name.iter().zip(words(name)) {
                cell.store(word, Relaxed);
            }
        }
        let group = self.part.group();
        let levels = path.nodes().map(|node| Over {
            bytes: ledger.outside_of(node),
            own: total,
            limit: group.limit_of(node),
        });
        self.over = levels.filter(|over| over.bytes > over.limit).last();
        self.looks_over = match self.over {
            Some(_) => self.looks_over + 1,
            None => 0,
        };
        if total > self.run.unmanaged_peak.fetch_max(total, Relaxed) {
            self.causes = self.causes_now(seen);
        }
    }

    /// What a process has outside its account.
    fn found(&self, it: &Seen<'_>) -> Found {
        let known = self.known.get(&it.proc.pid);
        let weighed = known.and_then(|known| known.weighed.as_ref());
        // One look may find a page on its way.
        let last = known.map_or(it.light, |known| known.last);
        let now = [0, 1].map(|i| it.light[i].min(last[i]));
        let [anonymous, shared] = match (it.way, weighed) {
            (Way::Look, _) | (Way::Weigh, None) => it.light.map(at_least_zero),
            (Way::Share, None) if it.eldest => it.light.map(at_least_zero),
            (Way::Weigh, Some(weighed)) => {
                let weight = [weighed.weight.anonymous, weighed.weight.shared];
                match distance(now, weighed.light) > self.much() {
                    // There was no time to weigh it again.
                    true => moved(weight, weighed.light, now),
                    false => weight,
                }
            }
            // Memory files that it has grown by may be another's.
            (Way::Share, Some(weighed)) => {
                let grown = at_least_zero(now[0] - weighed.light[0]);
                let grown = if grown > self.much() { grown } else { 0 };
                [weighed.weight.anonymous + grown, weighed.weight.shared]
            }
            (Way::Share, None) => {
                let least = known.map_or(now[0], |known| known.least);
                [at_least_zero(now[0] - least), 0]
            }
        };
        Found {
            anonymous: anonymous + it.proc.huge,
            shared,
            tables: it.proc.tables(),
        }
    }

    /// What everything that is outside is.
    fn causes_now(&self, seen: &[Seen<'_>]) -> Causes {
        let mut causes = Causes::default();
        for it in seen {
            let found = self.found(it);
            let known = self.known.get(&it.proc.pid);
            let weighed = known.and_then(|known| known.weighed.as_ref());
            let parts = weighed.map_or(&[][..], |weighed| &weighed.weight.parts);
            let named: u64 = parts.iter().map(|part| part.bytes).sum();
            let unnamed = (found.anonymous + found.shared).saturating_sub(named + it.proc.huge);
            let part = |kind, bytes| Part { kind, bytes };
            let rest = [
                part(Kind::Anonymous, unnamed),
                part(Kind::Huge, it.proc.huge),
                part(Kind::Tables, found.tables),
            ];
            for part in parts.iter().chain(&rest) {
                causes.add(&it.proc.name, part);
            }
        }
        causes.sort();
        causes
    }
}

fn at_least_zero(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn distance(a: Light, b: Light) -> u64 {
    a[0].abs_diff(b[0]) + a[1].abs_diff(b[1])
}

/// `weight`, moved as far as the cheap figures have moved since.
fn moved(weight: [u64; 2], then: Light, now: Light) -> [u64; 2] {
    [0, 1].map(|i| weight[i].saturating_add_signed(now[i] - then[i]))
}

/// Takes their memory from processes that work in another's: reclaimers and vfork children.
fn disown(procs: &mut [Proc], share_memory: impl Fn(u32, u32) -> Option<bool>) {
    let parents: HashMap<u32, (u64, bool)> = procs
        .iter()
        .map(|proc| (proc.pid, (proc.virt, proc.blocked)))
        .collect();
    for proc in procs.iter_mut().filter(|proc| proc.forked) {
        let is_vfork_child = match parents.get(&proc.parent) {
            // Without kcmp(2): the parent waits for a child of the same size.
            Some((virt, blocked)) if *virt == proc.virt => {
                share_memory(proc.parent, proc.pid).unwrap_or(*blocked)
            }
            _ => false,
        };
        if is_vfork_child || proc.name == RECLAIMER {
            proc.owns_no_memory();
        }
    }
}

/// The processes that share memory by fork.
fn family(procs: &[Proc]) -> HashSet<u32> {
    let forked = procs.iter().filter(|proc| proc.forked);
    let owners = forked.filter(|proc| proc.anonymous + proc.shared > 0);
    owners.flat_map(|proc| [proc.pid, proc.parent]).collect()
}

/// Of all processes that may share memory by fork the one that has had it longest, and each that
/// was not forked with any.
fn eldest(procs: &[Proc]) -> HashSet<u32> {
    let mut families: HashMap<[u64; 2], &Proc> = HashMap::new();
    let age = |proc: &Proc| (proc.forked, proc.image[0], proc.pid);
    for proc in procs {
        let eldest = families.entry(proc.family()).or_insert(proc);
        if age(proc) < age(eldest) {
            *eldest = proc;
        }
    }
    let eldest = families.into_values();
    let alone = procs.iter().filter(|proc| !proc.forked);
    eldest.chain(alone).map(|proc| proc.pid).collect()
}

/// A name in the form in which the group has it.
fn words(name: &str) -> [u64; 2] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let [low, high] = [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    });
    [low, high]
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests;
