//! *What*: the supervisor's duty while the limit follows the surroundings: looks at what they
//! leave, and sets the limit.
//!
//! What is steadied is the managed memory that may be granted, not the limit: memory outside the
//! account counts in the limit and is taken off again, so what grows there lowers nothing twice.
//!
//! *Invariants*: the limit is never below the least that works. A limit that somebody else has set
//! is not touched. Of several supervisors that share a group the one that has been there longest
//! follows.
//! *Locking*: none. *Context*: the supervisor's only thread, between signals.

use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use uzswap_compress::Codec;
use uzswap_corpus::process::cpu_time;
use uzswap_group::follow::Follows;
use uzswap_group::group::{Group, Run};

use super::pace::Pace;
use super::steady::Steady;
use super::surroundings::Surroundings;
use super::watch::Watch;
use crate::group_file::has_ended;
use crate::group_view::{PAGE, Part, Sizes, live_processes};
use crate::limit;
use crate::size::Size;

/// Follows for the run of `group`.
#[derive(Debug)]
pub struct Follower<'a> {
    group: &'a Group,
    /// The supervisor's run.
    run: usize,
    begin: Instant,
    /// While it follows.
    following: Option<Following>,
    /// The user was told that the least limit is reached.
    said: bool,
}

#[derive(Debug)]
struct Following {
    surroundings: Surroundings,
    watch: Option<Watch>,
    /// A watched file has changed since the last look.
    woken: bool,
    pace: Pace,
    by: Follows,
    /// Managed memory that may be granted.
    managed: Option<Steady>,
}

impl<'a> Follower<'a> {
    /// Follows `surroundings` for the group, if `run` has made its limit from them; and what there
    /// is when a user asks for it later, or the run that followed has ended.
    pub fn new(group: &'a Group, run: usize, surroundings: Option<Surroundings>) -> Self {
        Follower {
            group,
            run,
            begin: Instant::now(),
            following: surroundings.map(Following::new),
            said: false,
        }
    }

    /// Looks, if it is time to, and sets the limit. Returns the time until the next look, and
    /// whether the limit is lower than before.
    pub fn tick(&mut self) -> (Duration, bool) {
        let now = self.begin.elapsed();
        // Before it is known that we follow: who ends that changes the knob then.
        let limit = self.group.knobs.ram.load(SeqCst);
        if self.group.follow.what.load(SeqCst) == Follows::Nothing || !self.is_first() {
            self.following = None;
            // Somebody else wakes us often enough to see that a user asks.
            return (Duration::MAX, false);
        }
        let begin = || Following::new(Surroundings::open(Path::new("/")));
        let following = self.following.get_or_insert_with(begin);
        if let Some(watch) = &mut following.watch
            && !following.woken
        {
            following.woken = watch.drain();
        }
        if following.pace.is_due(now, following.woken) {
            following.look(self.group, now);
        }
        let lowered = self.set(limit);
        limit::settle(self.group);
        let due_in = self
            .following
            .as_ref()
            .map(|it| it.pace.due_in(now, it.woken));
        (due_in.unwrap_or(Duration::MAX), lowered)
    }

    /// Whether this run has been in the group for longest, of those that have not ended.
    fn is_first(&self) -> bool {
        let began = |run: &Run| run.started.load(Relaxed);
        let runs = self.group.runs();
        let own = (began(&runs[self.run]), self.run);
        let mut others = runs.iter().enumerate().filter(|(nr, _)| *nr != self.run);
        !others.any(|(nr, run)| (began(run), nr) < own && !has_ended(run))
    }

    /// Sets the limit to what is aimed at. Whether it is lower than before.
    fn set(&mut self, now: u64) -> bool {
        let following = self.following.as_ref();
        let Some((managed, by)) = following.and_then(|it| Some((it.managed?, it.by))) else {
            return false;
        };
        let outside = self.group.ledger.outside_of(0).cast_signed();
        let codec = self.group.knobs.codec().unwrap_or(Codec::Lz4);
        let least = limit::min_limit(codec);
        let wanted = u64::try_from(managed.value() + outside).unwrap_or(0);
        if wanted < least.0 && !self.said {
            self.said = true;
            eprintln!("uzswap: {}", too_little(by, Size(wanted), least));
        }
        let limit = wanted.max(least.0) & !(PAGE - 1);
        if limit == now || !limit::follow(self.group, now, limit) {
            return false;
        }
        self.group.follow.note(limit);
        limit < now
    }
}

impl Following {
    fn new(surroundings: Surroundings) -> Self {
        Following {
            watch: Watch::new(&surroundings.files()),
            surroundings,
            woken: false,
            pace: Pace::default(),
            by: Follows::Asked,
            managed: None,
        }
    }

    fn look(&mut self, group: &Group, now: Duration) {
        let began = thread_time();
        self.woken = false;
        if self.surroundings.reopen() {
            self.watch = Watch::new(&self.surroundings.files());
        }
        let Some(left) = self.surroundings.look(now, ours(group)) else {
            self.pace.looked(now, Duration::ZERO, u64::MAX, false);
            return;
        };
        let outside = group.ledger.outside_of(0);
        let target = left.limit.cast_signed() - outside.cast_signed();
        let changed = match &mut self.managed {
            Some(managed) => managed.aim(target, now),
            none => {
                *none = Some(Steady::new(target, now));
                true
            }
        };
        if left.by != self.by {
            self.by = left.by;
            let to = |what| (what != Follows::Nothing).then_some(left.by);
            let _ = group.follow.what.fetch_update(SeqCst, SeqCst, to);
        }
        let cost = thread_time().saturating_sub(began);
        self.pace.looked(now, cost, left.room, changed);
    }
}

/// Bytes that the group has in its places, as far as is known: no more than that.
fn ours(group: &Group) -> u64 {
    // After a fork what is in common counts in each process; what is charged may not be touched
    // yet.
    let counted: u64 = live_processes(&Part::all(group))
        .map(|it| Sizes::of(it).in_use())
        .sum();
    let held = group.ledger.held();
    let charged = (held.used + held.shared) * PAGE;
    counted.min(charged) + group.ledger.outside_of(0)
}

fn too_little(by: Follows, left: Size, least: Size) -> String {
    let (who, whom) = match by {
        Follows::Machine => ("the machine", "processes that take its memory"),
        _ => (
            "the cgroup",
            "what else is in the cgroup, or raise its limit",
        ),
    };
    format!(
        "{who} leaves only {left}, but the least limit that works is {least}: it stays at that, and the \
         kernel may end processes: end {whom}"
    )
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_view::totals::tests::group;
    use crate::limit::Limit;
    use crate::os;
    use crate::ram::fake_root::{MIB, Root};
    use crate::ram::place::margin;
    use uzswap_sync::node::Path as NodePath;

    /// A group that follows a cgroup of 400 MiB.
    fn followed(name: &str) -> (Root, Box<Group>) {
        let root = Root::unified(name, "/a");
        root.mib("cg/a/memory.max", 400);
        root.mib("cg/a/memory.current", 0);
        let group = group();
        limit::begin(&group, 100 * MIB);
        group.follow.what.store(Follows::Asked, SeqCst);
        // SAFETY: ignoring a signal has no memory effects. It would end the test.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        (root, group)
    }

    fn follower<'a>(root: &Root, group: &'a Group) -> Follower<'a> {
        Follower::new(group, 0, Some(Surroundings::open(&root.0)))
    }

    /// The next look. Whether it lowered the limit.
    fn look(follower: &mut Follower<'_>) -> bool {
        let (due_in, _) = follower.tick();
        std::thread::sleep(due_in);
        follower.tick().1
    }

    fn leaves(mib: u64) -> u64 {
        mib * MIB - margin(mib * MIB)
    }

    #[test]
    fn the_limit_and_its_ceiling_follow() {
        let (root, group) = followed("follows");
        let mut follower = follower(&root, &group);
        let limits = || {
            let (knob, ceiling) = (&group.knobs.ram, &group.config.ram_ceiling);
            (knob.load(SeqCst), ceiling.load(SeqCst))
        };
        assert!(!follower.tick().1, "it is raised");
        assert_eq!(limits(), (leaves(400), leaves(400)));
        assert_eq!(group.follow.what.load(SeqCst), Follows::Cgroup);
        root.mib("cg/a/memory.max", 320);
        assert!(look(&mut follower));
        assert_eq!(limits(), (leaves(320), leaves(320)));
        assert_eq!(group.follow.range(), Some((leaves(320), leaves(400))));
        // What is outside is part of the limit, and the cgroup holds it: nothing changes.
        group.ledger.set_outside(0, NodePath::ROOT, 50 * MIB);
        root.mib("cg/a/memory.current", 50);
        look(&mut follower);
        assert_eq!(limits().0, leaves(320));
        // Who is above a lower limit is not ended for it.
        let share = group.ledger.begin(0);
        share.charge_unchecked(300 * MIB / PAGE);
        root.mib("cg/a/memory.max", 240);
        look(&mut follower);
        assert_eq!(limits(), (leaves(240), leaves(320)));
        share.uncharge(200 * MIB / PAGE);
        follower.tick();
        assert_eq!(limits(), (leaves(240), leaves(240)));
    }

    #[test]
    fn it_stays_where_a_user_sets_it() {
        let (root, group) = followed("user");
        let mut follower = follower(&root, &group);
        follower.tick();
        limit::change(
            &group,
            std::process::id(),
            Limit::Node(NodePath::ROOT),
            390 * MIB,
        )
        .unwrap();
        root.mib("cg/a/memory.max", 200);
        assert_eq!(follower.tick(), (Duration::MAX, false));
        assert_eq!(group.knobs.ram.load(SeqCst), 390 * MIB);
        assert!(!limit::follow(&group, 390 * MIB, 100 * MIB));
    }

    #[test]
    fn of_two_runs_the_older_follows_until_it_ends() {
        let (root, group) = followed("two-runs");
        let own = std::process::id();
        let began = os::started(own).unwrap();
        for started in [began, began + 1] {
            group
                .begin_run(NodePath::ROOT, own, started, |run| {
                    run.supervisor.load(Relaxed) == 0
                })
                .unwrap();
        }
        let surroundings = || Some(Surroundings::open(&root.0));
        let mut younger = Follower::new(&group, 1, surroundings());
        assert_eq!(younger.tick(), (Duration::MAX, false));
        assert_eq!(group.knobs.ram.load(SeqCst), 100 * MIB);
        follower(&root, &group).tick();
        assert_eq!(group.knobs.ram.load(SeqCst), leaves(400));
        group.end_run(0);
        root.mib("cg/a/memory.max", 320);
        younger.following = surroundings().map(Following::new);
        younger.tick();
        assert_eq!(group.knobs.ram.load(SeqCst), leaves(320));
    }

    #[test]
    fn it_never_falls_below_the_least() {
        let (root, group) = followed("least");
        let mut follower = follower(&root, &group);
        follower.tick();
        root.mib("cg/a/memory.max", 20);
        assert!(look(&mut follower) && follower.said);
        let least = limit::min_limit(Codec::Lz4).0;
        assert_eq!(group.knobs.ram.load(SeqCst), least);
    }
}
