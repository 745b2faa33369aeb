//! *What*: [`Marks`], how long a list's members have been on it, without a field in each: a few
//! marks of how many members had joined by what time.
//!
//! The list is first in, first out, but that members may leave anywhere. With `nr` left of `joined`
//! members the oldest joined no later than number `joined - nr` did; it is taken to be that one.
//! So a list seems younger than it is while members leave from its middle, never older.
//!
//! *Invariants*: marks rise in both. *Locking*: the list's. *Context*: signal, worker.

/// Marks that are kept.
const NR_MARKS: usize = 32;
/// Ticks between two marks, at least: some milliseconds.
const MIN_PERIOD: u64 = 1 << 24;

/// At `ticks`, `joined` members had joined.
#[derive(Clone, Copy, Debug)]
struct Mark {
    joined: u64,
    ticks: u64,
}

/// When members joined a list.
#[derive(Debug)]
pub(super) struct Marks {
    joined: u64,
    /// The first `nr` count.
    marks: [Mark; NR_MARKS],
    nr: usize,
    /// Ticks between two marks.
    period: u64,
}

impl Marks {
    /// Of a list that nobody has joined.
    pub(super) const fn new() -> Self {
        let none = Mark {
            joined: 0,
            ticks: 0,
        };
        Marks {
            joined: 0,
            marks: [none; NR_MARKS],
            nr: 0,
            period: MIN_PERIOD,
        }
    }

    /// One joins at the young end, at time `now`.
    #[inline]
    pub(super) fn join(&mut self, now: u64) {
        let last = self.nr.checked_sub(1).and_then(|at| self.marks.get(at));
        if last.is_none_or(|last| now.saturating_sub(last.ticks) >= self.period) {
            self.mark(now);
        }
        self.joined += 1;
    }

    /// When the oldest of `nr` members joined, about. The marks of those before it go.
    pub(super) fn oldest(&mut self, nr: usize) -> u64 {
        let oldest = self.joined.saturating_sub(nr as u64);
        let second = |marks: &Self| marks.marks.get(1).filter(|_| marks.nr > 1).copied();
        while second(self).is_some_and(|second| second.joined <= oldest) {
            self.marks.copy_within(1.., 0);
            self.nr -= 1;
        }
        if self.nr < NR_MARKS / 4 {
            self.period = (self.period / 2).max(MIN_PERIOD);
        }
        let [first, ..] = &self.marks;
        first.ticks
    }

    #[cold]
    fn mark(&mut self, now: u64) {
        if self.nr == NR_MARKS {
            // Every second one goes: what is left is as exact as it can be for the time it spans.
            for at in 0..NR_MARKS / 2 {
                self.marks.copy_within(2 * at..=2 * at, at);
            }
            self.nr = NR_MARKS / 2;
            self.period *= 2;
        }
        if let Some(mark) = self.marks.get_mut(self.nr) {
            *mark = Mark {
                joined: self.joined,
                ticks: now,
            };
            self.nr += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_as_old_as_its_mark_says() {
        let mut marks = Marks::new();
        for member in 0..10 {
            marks.join(1000 + member * MIN_PERIOD);
        }
        assert_eq!(marks.oldest(10), 1000);
        assert_eq!(marks.oldest(7), 1000 + 3 * MIN_PERIOD);
        marks.join(1000 + 100 * MIN_PERIOD);
        assert_eq!(
            marks.oldest(8),
            1000 + 3 * MIN_PERIOD,
            "an idle list only gets older"
        );
        assert_eq!(marks.oldest(1), 1000 + 100 * MIN_PERIOD);
    }

    #[test]
    fn few_marks_span_any_time_and_are_exact_again_later() {
        let mut marks = Marks::new();
        let mut now = 0;
        for _ in 0..1_000_000 {
            now += MIN_PERIOD / 8;
            marks.join(now);
        }
        for left in [1_000_000, 700_000, 300_000, 10_000] {
            let really = (1_000_000 - left + 1) * (MIN_PERIOD / 8);
            let said = marks.oldest(left as usize);
            assert!(said <= really, "{left}: not too young by the marks");
            assert!(really - said <= now / 8, "{left}: {said} for {really}");
        }
        for _ in 0..10_000 {
            now += MIN_PERIOD / 8;
            marks.join(now);
            marks.oldest(80);
        }
        let said = marks.oldest(80);
        assert!(now - said <= 13 * MIN_PERIOD, "{}", now - said);
    }
}
