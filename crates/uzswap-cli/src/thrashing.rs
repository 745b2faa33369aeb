//! *What*: sees that a process thrashes: for half a minute nearly all of its time went to page
//! faults. Says so once, with how much memory would help, and notes it for `stat` and `top`.
//!
//! *Invariants*: a process that mostly sleeps does not thrash. No process is signalled or stopped.
//! *Locking*: none. *Context*: the supervisor's only thread, between signals.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use uzswap_group::group::{Group, Process, Run};
use uzswap_group::histogram::Histogram;
use uzswap_sys::clock::Moment;

use crate::group_view::totals::nanoseconds;
use crate::group_view::{PAGE, Part, Sizes, device, label, live_processes, pid_of};
use crate::ram::Advice;
use crate::size::Size;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Looks back over which a process is judged.
const WINDOW: usize = 30;
/// It thrashes with more of its time in faults, in percent.
const MAX_PERCENT: u64 = 90;
/// Processor time of the kernel's part of a fault, trap, signal delivery and return, which counters
/// do not include.
const DELIVERY_NS: u64 = 2_000;

/// What a process had done at one moment. Times in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Look {
    at: u64,
    /// Time in its fault handlers.
    handling: u64,
    faults: u64,
    /// Time in which its threads ran, and in which they waited for a processor.
    cpu: u64,
    queued: u64,
    /// Time in which they waited for a swap device.
    swap: u64,
    /// Its refaults by distance.
    refaults: Vec<u64>,
}

/// What a process did in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spent {
    in_faults: u64,
    /// In faults and outside.
    running: u64,
    refaults: Vec<u64>,
}

impl Spent {
    fn percent(&self) -> u64 {
        self.in_faults * 100 / self.running.max(1)
    }

    /// Pages more that would have to be resident for as much time in faults as outside them. A
    /// page that came back after so many evictions would have stayed.
    fn missing_pages(&self) -> Option<u64> {
        let all: u64 = self.refaults.iter().sum();
        let others = self.running.saturating_sub(self.in_faults);
        // As many may remain.
        let kept = u128::from(all) * u128::from(others) / u128::from(self.in_faults.max(1));
        let wanted = all
            .saturating_sub(u64::try_from(kept).unwrap_or(all))
            .max(1);
        let mut seen = 0;
        let bucket = self.refaults.iter().position(|&count| {
            seen += count;
            seen >= wanted
        });
        bucket.map(|bucket| Histogram::lower_bound(bucket + 1))
    }
}

/// The latest looks at a process.
#[derive(Debug, Default)]
struct Window(VecDeque<Look>);

impl Window {
    /// Adds a look. Returns what the process did in a window in which it thrashed.
    fn push(&mut self, look: Look) -> Option<Spent> {
        // exec starts the counters again at zero; a thread that ends takes its waits along.
        let begins = |last: &Look| {
            look.handling < last.handling || look.cpu < last.cpu || look.queued < last.queued
        };
        if self.0.back().is_some_and(begins) {
            self.0.clear();
        }
        self.0.push_back(look);
        if self.0.len() <= WINDOW {
            return None;
        }
        let (first, last) = (self.0.pop_front()?, self.0.back()?);
        let [cpu, queued] = [last.cpu - first.cpu, last.queued - first.queued];
        // Whoever shares a processor takes as much longer for this part, too.
        let delivery = u128::from(last.faults.saturating_sub(first.faults) * DELIVERY_NS)
            * u128::from(cpu + queued)
            / u128::from(cpu.max(1));
        let in_faults = last.handling - first.handling + u64::try_from(delivery).unwrap_or(0);
        let running = cpu + queued + last.swap.saturating_sub(first.swap);
        let in_faults = in_faults.min(running);
        let refaults = last.refaults.iter().zip(&first.refaults);
        let spent = Spent {
            in_faults,
            running,
            refaults: refaults.map(|(l, f)| l.saturating_sub(*f)).collect(),
        };
        let busy = running > (last.at - first.at) / 2;
        (busy && in_faults * 100 > running * MAX_PERCENT).then_some(spent)
    }
}

/// Looks at the processes of a run.
pub struct Watcher<'a> {
    part: Part<'a>,
    run: &'a Run,
    begin: Moment,
    next: Duration,
    windows: HashMap<u32, Window>,
    thrashed: bool,
    said: bool,
}

impl<'a> Watcher<'a> {
    /// A watcher of run number `nr` of `group`, which began at `begin`.
    pub fn new(group: &'a Group, nr: usize, begin: Moment) -> Self {
        Watcher {
            part: Part::run(group, nr),
            run: group.run(nr),
            begin,
            next: PERIOD,
            windows: HashMap::new(),
            thrashed: false,
            said: false,
        }
    }

    /// Looks if that is due. Returns the time until the next look.
    pub fn tick(&mut self) -> Duration {
        let elapsed = self.begin.elapsed();
        if elapsed >= self.next {
            self.look(elapsed);
            self.next = elapsed + PERIOD;
        }
        self.next.saturating_sub(self.begin.elapsed())
    }

    fn look(&mut self, at: Duration) {
        let hz = self.begin.hz_since();
        let live: Vec<&Process> = live_processes(&self.part).collect();
        self.windows
            .retain(|pid, _| live.iter().any(|process| pid_of(process) == *pid));
        let mut thrashes = false;
        for process in live {
            let Some(look) = look_at(process, at, hz) else {
                continue;
            };
            let spent = self.windows.entry(pid_of(process)).or_default().push(look);
            let percent = spent.as_ref().map_or(0, Spent::percent);
            if let Some(spent) = spent {
                thrashes = true;
                let needed = needed(&self.part, process, &spent);
                process.thrashing.needed.store(needed, Relaxed);
                if !std::mem::replace(&mut self.said, true) {
                    eprintln!("uzswap: {}", line(&self.part, process, percent, needed));
                }
            }
            process.thrashing.percent.store(percent, Relaxed);
        }
        if thrashes {
            // The first time it has held for the whole window.
            let looks = if self.thrashed { 1 } else { WINDOW as u64 };
            let seconds = &self.run.thrashing_s;
            seconds.fetch_add(looks * PERIOD.as_secs(), Relaxed);
        }
        self.thrashed = thrashes;
    }
}

fn look_at(process: &Process, at: Duration, hz: u64) -> Option<Look> {
    let counters = &process.counters;
    let buckets = process.refault_distance.buckets.iter();
    let [cpu, queued] = running_ns(pid_of(process))?;
    Some(Look {
        at: at.as_nanos().try_into().ok()?,
        handling: nanoseconds(counters.fault_ticks.load(Relaxed), hz),
        faults: counters.faults.load(Relaxed),
        cpu,
        queued,
        swap: nanoseconds(process.stalls.swap.load(Relaxed), hz),
        refaults: buckets.map(|bucket| bucket.load(Relaxed)).collect(),
    })
}

/// Time in which threads of process `pid` ran, and in which they waited for a processor.
fn running_ns(pid: u32) -> Option<[u64; 2]> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let spent = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut times = text.split_whitespace().map_while(|n| n.parse::<u64>().ok());
        Some([times.next()?, times.next()?])
    });
    Some(spent.fold([0, 0], |[cpu, queued], [c, q]| [cpu + c, queued + q]))
}

/// The limit, about, at which `process` would spend as much time in faults as outside them.
fn needed(group: &Part<'_>, process: &Process, spent: &Spent) -> u64 {
    let sizes = Sizes::of(process);
    let swapped = process.counters.swapped_pages.load(Relaxed) * PAGE;
    let everything = sizes.resident + sizes.stored + swapped + sizes.metadata;
    let Some(pages) = spent.missing_pages() else {
        return everything;
    };
    let missing = pages.saturating_mul(PAGE);
    // What becomes resident leaves the pool.
    let leaves = match sizes.stored {
        0 => 0,
        _ if swapped > 0 => 0,
        stored => {
            let part = u128::from(missing) * u128::from(sizes.pool) / u128::from(stored);
            u64::try_from(part).unwrap_or(missing)
        }
    };
    let limit = group.limit();
    limit
        .saturating_add(missing.saturating_sub(leaves))
        .min(everything.max(limit))
}

fn line(group: &Part<'_>, process: &Process, percent: u64, needed: u64) -> String {
    let swap = match device::names(group) {
        Some(_) => "",
        None => ", or try --swap auto",
    };
    format!(
        "{} spends {percent} % of its time in page faults: with about {} in all it would take twice \
         its native time; {}{swap}",
        label(process),
        Size(needed),
        Advice::of(group).more(),
    )
}

/// What `stat` says of each process that thrashes.
pub fn lines(group: &Part<'_>) -> Vec<String> {
    let thrashing = live_processes(group).filter(|p| p.thrashing.percent.load(Relaxed) > 0);
    let said = thrashing.map(|process| {
        format!(
            "{}: {} % of its time in page faults, needs about {} for twice its native time",
            label(process),
            process.thrashing.percent.load(Relaxed),
            Size(process.thrashing.needed.load(Relaxed)),
        )
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A process of which, each second, `faulting` and `running` percent went so.
    fn watch(window: &mut Window, seconds: u64, faulting: u64, running: u64) -> Vec<Option<Spent>> {
        let mut last = window.0.back().cloned().unwrap_or_default();
        last.refaults.resize(40, 0);
        let mut all = Vec::new();
        for _ in 0..seconds {
            last.at += SECOND;
            last.handling += faulting * SECOND / 100;
            last.cpu += running * SECOND / 100;
            last.refaults[20] += 80;
            last.refaults[28] += 20;
            all.push(window.push(last.clone()));
        }
        all
    }

    #[test]
    fn thirty_seconds_make_it_and_no_fewer() {
        let mut window = Window::default();
        let said = watch(&mut window, 31, 95, 100);
        assert!(said[..30].iter().all(Option::is_none));
        assert_eq!(said[30].as_ref().map(Spent::percent), Some(95));
        // A few good seconds are enough to end it.
        let said = watch(&mut window, 10, 10, 100);
        assert!(said[9].is_none());
    }

    #[test]
    fn who_works_or_sleeps_does_not_thrash() {
        assert!(
            watch(&mut Window::default(), 90, 89, 100)
                .iter()
                .all(Option::is_none)
        );
        let sleeps = watch(&mut Window::default(), 90, 40, 41);
        assert!(sleeps.iter().all(Option::is_none));
        let two_threads = watch(&mut Window::default(), 90, 98, 200);
        assert!(two_threads.iter().all(Option::is_none));
    }

    #[test]
    fn exec_begins_anew() {
        let mut window = Window::default();
        watch(&mut window, 20, 95, 100);
        assert_eq!(window.push(Look::default()), None);
        assert!(watch(&mut window, 29, 95, 100).iter().all(Option::is_none));
    }

    #[test]
    fn the_need_is_what_keeps_enough_refaults_away() {
        let spent = |in_faults| Spent {
            in_faults,
            running: 100,
            refaults: {
                let mut refaults = vec![0; 40];
                (refaults[20], refaults[28]) = (80, 20);
                refaults
            },
        };
        // At 80 % of the time a quarter may remain: the near ones are enough.
        assert_eq!(spent(80).missing_pages(), Some(Histogram::lower_bound(21)));
        assert_eq!(spent(95).missing_pages(), Some(Histogram::lower_bound(29)));
        let none = Spent {
            refaults: vec![0; 40],
            ..spent(95)
        };
        assert_eq!(none.missing_pages(), None);
    }
}
