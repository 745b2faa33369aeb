//! *What*: a place whose memory is limited, a cgroup or the machine, and what it leaves to us.
//!
//! *Locking*: none. *Context*: `uzswap run`.

/// The margin: a part of the limit, up to a size, and a size. docs/notes/auto-limit.md has what it
/// was chosen by.
const MARGIN_PART: u64 = 16;
const MAX_PART: u64 = 512 << 20;
const MARGIN: u64 = 16 << 20;

/// What a place may hold and holds, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// What it may hold.
    pub limit: u64,
    /// What it holds, page cache included.
    pub usage: u64,
    /// Of that, page cache that the kernel can drop without writing it first.
    pub cache: u64,
    /// What is left to others beside the margin, as they feel pressure.
    pub squeezed: u64,
}

impl Place {
    /// What of it nobody can drop.
    fn held(&self) -> u64 {
        self.usage.saturating_sub(self.cache)
    }

    /// What it can still take before the kernel ends processes.
    pub fn distance(&self) -> u64 {
        self.limit.saturating_sub(self.held())
    }

    /// The limit that it leaves to us, who have `ours` bytes in it.
    pub fn leaves(&self, ours: u64) -> u64 {
        // What counts as ours and is not charged here must not make the limit higher.
        let others = self.held().saturating_sub(ours);
        let kept = margin(self.limit) + self.squeezed + others;
        self.limit.saturating_sub(kept)
    }
}

/// What we leave free of a limit: for what grows between two looks, for the programs' code, and for
/// what the kernel charges in advance.
pub fn margin(limit: u64) -> u64 {
    (limit / MARGIN_PART).min(MAX_PART) + MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_ours_and_cache_that_can_go_lower_nothing() {
        let place = Place {
            limit: 1600 * MIB,
            usage: 1500 * MIB,
            cache: 300 * MIB,
            squeezed: 0,
        };
        let room = 1600 - 100 - 16;
        assert_eq!(place.leaves(1200 * MIB), room * MIB);
        assert_eq!(place.leaves(700 * MIB), (room - 500) * MIB, "others");
        assert_eq!(place.leaves(1300 * MIB), room * MIB, "never more");
        assert_eq!(place.distance(), 400 * MIB);
        let squeezed = Place {
            squeezed: 50 * MIB,
            ..place
        };
        assert_eq!(squeezed.leaves(1200 * MIB), (room - 50) * MIB);
    }

    #[test]
    fn a_full_place_leaves_nothing() {
        let place = Place {
            limit: 100 * MIB,
            usage: 120 * MIB,
            ..Place::default()
        };
        assert_eq!((place.leaves(10 * MIB), place.distance()), (0, 0));
    }

    #[test]
    fn the_margin_is_a_part_and_a_constant() {
        assert_eq!(margin(256 * MIB), 32 * MIB);
        assert_eq!(margin(64 << 30), 528 * MIB, "no more");
    }
}
