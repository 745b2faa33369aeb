//! *What*: whose memory goes when the group is full: the coldest, whoever has it. Whom a process
//! asks, for how much, and what the one who is asked keeps in any case.
//!
//! Nobody loses memory to others
//! - that is not clearly colder than theirs, unless they have none to give and cannot go on;
//! - below `ram_min`;
//! - below the `low` of a group that they are not in, unless nobody else has any;
//! - below a quarter of its fair share, which is the limit divided by the processes that live,
//!   unless it is idle.
//!
//! *Invariants*: none. *Locking*: none. *Context*: any.

/// A process is idle whose memory has not moved for so many seconds.
const IDLE_S: u64 = 10;
/// log2 of the part of the fair share that is kept: a quarter.
const KEPT_SHIFT: u32 = 2;
/// Surplus that is not worth asking for, pages.
const MIN_SURPLUS: u64 = 32;
/// Pages by which a batch may exceed what it was to evict: a group of folios, and one more.
const BATCH_EXCESS: u64 = 256;
/// Pages asked for ahead of need, at most: 16 MiB.
const MAX_AHEAD: u64 = 4096;

/// A process as the others see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Pages charged.
    pub used: u64,
    /// When its coldest memory was put on its list, ticks; 0: it has none to evict.
    pub coldest: u64,
    /// Pages that its groups leave to whoever asks: what they have above their `low`.
    pub most: u64,
}

/// What holds for all at this moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// The node where memory is short, and whose processes are asked.
    pub node: usize,
    /// The limit of all together, pages.
    pub limit: u64,
    /// Processes that hold memory.
    pub nr_live: u64,
    /// `ram_min`, pages.
    pub min: u64,
    /// The time, ticks.
    pub now: u64,
    /// Ticks a second.
    pub hz: u64,
}

impl Rule {
    /// Pages that others may have of `member`; 0 if too few to bother.
    pub(crate) fn surplus(&self, member: Member) -> u64 {
        if member.coldest == 0 {
            return 0;
        }
        let is_idle = self.age(member.coldest) >= self.hz.saturating_mul(IDLE_S);
        let kept = match is_idle {
            true => 0,
            false => (self.limit / self.nr_live.max(1)) >> KEPT_SHIFT,
        };
        let least = match self.min {
            0 => 0,
            min => min + BATCH_EXCESS,
        };
        let surplus = member.used.saturating_sub(kept.max(least));
        let surplus = surplus.min(member.most);
        if surplus < MIN_SURPLUS { 0 } else { surplus }
    }

    /// Since when memory must not have moved that a process asks for whose own coldest is that of
    /// `coldest`: twice as long, and half a second. 0: it has none, and any is colder.
    pub(crate) fn before(&self, coldest: u64) -> u64 {
        let own = match coldest {
            0 => 0,
            coldest => self.age(coldest),
        };
        self.now
            .saturating_sub(own.saturating_mul(2).saturating_add(self.hz / 2))
    }

    /// Whom to ask of `others`, for memory of `before`: the one with the coldest.
    pub(crate) fn whom<T>(
        &self,
        others: impl Iterator<Item = (T, Member)>,
        before: u64,
    ) -> Option<(T, u64)> {
        others
            .map(|(who, member)| (who, member.coldest, self.surplus(member)))
            .filter(|(_, coldest, surplus)| *surplus > 0 && *coldest < before)
            .min_by_key(|(_, coldest, _)| *coldest)
            .map(|(who, _, surplus)| (who, surplus))
    }

    fn age(&self, since: u64) -> u64 {
        self.now.saturating_sub(since)
    }
}

/// Pages to ask for where `missing` are wanted and there are `surplus`: some ahead, so that whoever
/// gives them works while the asker goes on.
pub(crate) fn how_much(missing: u64, surplus: u64) -> u64 {
    missing.max((surplus / 8).min(MAX_AHEAD)).min(surplus)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 1000;
    /// Two processes under a limit of 80000 pages.
    const RULE: Rule = Rule {
        node: 0,
        limit: 80_000,
        nr_live: 2,
        min: 0,
        now: 100 * HZ,
        hz: HZ,
    };

    /// A process of `used` pages whose memory has not moved for `age` ticks.
    fn member(used: u64, age: u64) -> Member {
        let coldest = RULE.now - age;
        Member {
            used,
            coldest,
            most: u64::MAX,
        }
    }

    fn whom(own_age: u64, others: &[Member]) -> Option<(usize, u64)> {
        let others = others.iter().copied().enumerate();
        RULE.whom(others, RULE.before(RULE.now - own_age))
    }

    #[test]
    fn the_coldest_is_asked_if_it_is_clearly_colder() {
        let (warm, cold) = (member(30_000, 3000), member(30_000, 9000));
        assert_eq!(whom(1000, &[warm, cold]), Some((1, 20_000)));
        assert_eq!(whom(1000, &[warm]), Some((0, 20_000)));
        assert_eq!(whom(1250, &[warm]), None, "no clear margin");
        assert_eq!(whom(0, &[member(30_000, 400)]), None, "nor here");
        let nothing = Member {
            used: 30_000,
            coldest: 0,
            most: u64::MAX,
        };
        assert_eq!(whom(1000, &[nothing]), None, "all of it is stored");
        assert!(
            RULE.before(0) > RULE.before(RULE.now - 1),
            "who has none asks anybody"
        );
    }

    #[test]
    fn a_busy_process_keeps_a_quarter_of_its_fair_share_and_an_idle_one_nothing() {
        assert_eq!(RULE.surplus(member(10_600, 9_999)), 600);
        assert_eq!(RULE.surplus(member(10_020, 9_999)), 0, "not worth it");
        assert_eq!(RULE.surplus(member(10_400, 10_000)), 10_400);
    }

    #[test]
    fn the_minimum_holds_for_the_idle_too() {
        let rule = Rule {
            min: 20_000,
            ..RULE
        };
        assert_eq!(rule.surplus(member(21_000, 50_000)), 1000 - BATCH_EXCESS);
        assert_eq!(rule.surplus(member(20_000 + BATCH_EXCESS, 50_000)), 0);
        assert_eq!(rule.surplus(member(21_000, 0)), 1000 - BATCH_EXCESS);
    }

    #[test]
    fn a_group_keeps_its_low() {
        let some = Member {
            most: 500,
            ..member(30_000, 50_000)
        };
        assert_eq!(RULE.surplus(some), 500);
        assert_eq!(RULE.surplus(Member { most: 0, ..some }), 0);
    }

    #[test]
    fn some_is_asked_for_ahead_of_need() {
        assert_eq!(how_much(10, 8000), 1000);
        assert_eq!(how_much(10, 1_000_000), MAX_AHEAD);
        assert_eq!(how_much(5000, 8000), 5000);
        assert_eq!(how_much(5000, 600), 600, "no more than there is");
    }
}
