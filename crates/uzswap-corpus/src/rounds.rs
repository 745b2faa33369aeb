//! Rounds of a measurement, and whether other work took the processors away during one.
//!
//! *What*: a spin calibration before the first round and after each; the choice of the rounds that
//! count; medians.
//! *Invariants*: a round is disturbed if the calibration before or after it was. Disturbed rounds
//! stay in the results, marked; medians leave them out as long as there is another.
//! *Locking*: none.
//! *Context*: the bench and analyze commands.

use serde::{Deserialize, Serialize};
use uzswap_usemem::Spin;

/// Ratio above which a calibration counts as disturbed: of two spinning threads' time to one's, or
/// of one's time to the fastest so far. Sibling hardware threads stay below it.
const MAX_SPIN_RATIO: f64 = 1.25;

/// The calibration beside one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Time of two spinning threads over that of one, the worse of before and after; 1.0 means two
    /// undisturbed processors.
    pub spin_ratio: f64,
    /// Seconds of one thread, the worse of before and after.
    pub spin_alone_s: f64,
    /// Whether other work took processors away during the round.
    pub disturbed: bool,
}

/// Calibrates between rounds.
#[derive(Debug)]
pub struct Calibration {
    before: Spin,
    fastest_s: f64,
}

impl Calibration {
    /// Calibrates before the first round.
    #[must_use]
    pub fn start() -> Self {
        let before = Spin::measure();
        Self {
            before,
            fastest_s: before.alone_s,
        }
    }

    /// Calibrates after a round, which is also before the next.
    pub fn round(&mut self) -> Round {
        let after = Spin::measure();
        self.fastest_s = self.fastest_s.min(after.alone_s);
        let spin_ratio = self.before.ratio().max(after.ratio());
        let spin_alone_s = self.before.alone_s.max(after.alone_s);
        self.before = after;
        Round {
            spin_ratio,
            spin_alone_s,
            disturbed: spin_ratio > MAX_SPIN_RATIO
                || spin_alone_s > MAX_SPIN_RATIO * self.fastest_s,
        }
    }
}

/// The numbers of the rounds that count.
#[must_use]
pub fn counted(rounds: &[Round]) -> Vec<usize> {
    let quiet: Vec<usize> = (0..rounds.len())
        .filter(|&i| !rounds[i].disturbed)
        .collect();
    if quiet.is_empty() {
        (0..rounds.len()).collect()
    } else {
        quiet
    }
}

/// One line about the rounds, to show with a table.
#[must_use]
pub fn describe(rounds: &[Round]) -> String {
    let disturbed = rounds.iter().filter(|round| round.disturbed).count();
    let left_out = match disturbed {
        0 => String::new(),
        all if all == rounds.len() => {
            ", all disturbed by other work on the machine: take these figures with care".to_owned()
        }
        some => format!(", {some} disturbed by other work on the machine and left out"),
    };
    let ratios: Vec<String> = rounds
        .iter()
        .map(|round| format!("{:.2}", round.spin_ratio))
        .collect();
    format!(
        "Medians of {} round(s){left_out}. Two threads spinning took {} times as long as one (1.0: there are two processors).",
        rounds.len(),
        ratios.join(", ")
    )
}

/// The median; `None` if there are no values.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values.get(middle).copied()
    } else {
        Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(disturbed: bool) -> Round {
        Round {
            spin_ratio: 1.0,
            spin_alone_s: 0.1,
            disturbed,
        }
    }

    #[test]
    fn disturbed_rounds_count_only_when_there_is_no_other() {
        assert_eq!(counted(&[round(true), round(false), round(true)]), [1]);
        assert_eq!(counted(&[round(true), round(true)]), [0, 1]);
        assert!(describe(&[round(true), round(false)]).contains("1 disturbed"));
        assert!(describe(&[round(true)]).contains("with care"));
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
