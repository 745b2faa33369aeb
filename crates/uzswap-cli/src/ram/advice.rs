//! *What*: what messages say of the limit, and of how to have more: who follows the surroundings is
//! not told to give more than they leave.
//!
//! *Locking*: none. *Context*: any.

use std::sync::atomic::Ordering::Relaxed;

use uzswap_group::follow::Follows;
use uzswap_group::group::Group;

use crate::size::Size;

/// Where the limit comes from.
#[derive(Clone, Copy, Debug)]
pub struct Advice(Follows);

impl Advice {
    /// Of a group.
    pub fn of(group: &Group) -> Self {
        Advice(group.follow.what.load(Relaxed))
    }

    /// Who allows `limit` bytes: `--ram allows 256 MiB`.
    pub fn allows(self, limit: u64) -> String {
        let limit = Size(limit);
        match self.0 {
            Follows::Nothing => format!("--ram allows {limit}"),
            Follows::Asked | Follows::Cgroup => format!("the cgroup leaves {limit}"),
            Follows::Machine => format!("the machine leaves {limit}"),
        }
    }

    /// How to have `amount`, such as `384M`: `give --ram 384M`.
    pub fn amount(self, amount: &str) -> String {
        match self.0 {
            Follows::Nothing => format!("give --ram {amount}"),
            Follows::Asked | Follows::Cgroup => {
                format!("raise the cgroup's limit until it leaves {amount}")
            }
            Follows::Machine => format!("free memory of the machine until it leaves {amount}"),
        }
    }

    /// How the cgroup does not run out of memory.
    pub const fn less(self) -> &'static str {
        match self.0 {
            Follows::Nothing => "give less --ram or, to follow the cgroup, none",
            Follows::Asked | Follows::Cgroup | Follows::Machine => "raise the cgroup's limit",
        }
    }

    /// How to have more.
    pub const fn more(self) -> &'static str {
        match self.0 {
            Follows::Nothing => "give more --ram",
            Follows::Asked | Follows::Cgroup => "raise the cgroup's limit",
            Follows::Machine => "free memory of the machine",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_follows_is_not_told_to_give_what_is_not_there() {
        let user = Advice(Follows::Nothing);
        assert_eq!(user.allows(256 << 20), "--ram allows 256 MiB");
        assert_eq!(user.amount("384M"), "give --ram 384M");
        assert_eq!(user.more(), "give more --ram");
        assert_eq!(
            user.less(),
            "give less --ram or, to follow the cgroup, none"
        );
        for follows in [Follows::Cgroup, Follows::Machine] {
            let advice = Advice(follows);
            let said = [
                advice.allows(1 << 30),
                advice.amount("2G"),
                advice.more().into(),
                advice.less().into(),
            ];
            assert!(said.iter().all(|said| !said.contains("--ram")), "{said:?}");
        }
    }
}
