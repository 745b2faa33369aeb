//! The ledger with nodes against a plain model: after each of many random steps every node holds
//! what the model says, and no raise gives more, or less, than the limits of all nodes above allow.
#![cfg(not(loom))]

use uzswap_sync::ledger::{Ledger, Level};
use uzswap_sync::node::Path;

const NR_SHARES: usize = 6;
const NR_NODES: usize = 5;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap()
    }
}

#[derive(Clone, Copy, Default)]
struct Owner {
    node: usize,
    granted: u64,
    used: u64,
}

struct Model {
    parents: Vec<usize>,
    limits: Vec<u64>,
    owners: [Owner; NR_SHARES],
}

impl Model {
    fn is_in(&self, mut node: usize, of: usize) -> bool {
        while node != of && node != 0 {
            node = self.parents[node];
        }
        node == of
    }

    fn claimed(&self, of: usize) -> u64 {
        let inside = self
            .owners
            .iter()
            .filter(|owner| self.is_in(owner.node, of));
        inside.map(|owner| owner.granted).sum()
    }

    /// What a raise of `wanted` pages, at least `least`, gets.
    fn raise(&self, at: usize, least: u64, wanted: u64) -> u64 {
        let node = self.owners[at].node;
        let above = (0..NR_NODES).filter(|&of| self.is_in(node, of));
        let free = above.map(|of| self.limits[of].saturating_sub(self.claimed(of)));
        let most = wanted.min(free.min().unwrap_or(0));
        if most >= least { most } else { 0 }
    }

    fn path(&self, node: usize) -> Path {
        match node {
            0 => Path::ROOT,
            node => self.path(self.parents[node]).child(node),
        }
    }
}

#[test]
fn every_node_holds_what_its_processes_hold() {
    for seed in 1..=40 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let ledger = Ledger::default();
        let parents = (0..NR_NODES)
            .map(|node| random.index(node.max(1)))
            .collect();
        let limits = (0..NR_NODES).map(|_| random.below(200)).collect();
        let mut model = Model {
            parents,
            limits,
            owners: [Owner::default(); NR_SHARES],
        };
        for nr in 0..NR_SHARES {
            ledger.begin(nr);
        }
        for step in 0..400 {
            let at = random.index(NR_SHARES);
            let share = ledger.share(at);
            let own = model.owners[at];
            match random.below(5) {
                0 => {
                    share.expire(share.owner());
                    let node = random.index(NR_NODES);
                    ledger.begin(at).enter(model.path(node));
                    model.owners[at] = Owner {
                        node,
                        ..Owner::default()
                    };
                }
                1 => {
                    let nr = random.below(own.granted + 2);
                    let fits = own.used + nr <= own.granted;
                    assert_eq!(share.try_charge(nr), fits);
                    model.owners[at].used += if fits { nr } else { 0 };
                }
                2 => {
                    let nr = random.below(own.used + 1);
                    share.uncharge(nr);
                    model.owners[at].used -= nr;
                }
                3 => {
                    let taken = share.take_back(random.below(50));
                    assert!(taken <= own.granted - own.used);
                    model.owners[at].granted -= taken;
                }
                _ => {
                    let least = random.below(20) + 1;
                    let wanted = least + random.below(60);
                    let expected = model.raise(at, least, wanted);
                    let limit = |level: &Level| model.limits[level.node];
                    let got = ledger.raise(share, least, wanted, limit, || u64::MAX);
                    assert_eq!(got, expected, "seed {seed}, step {step}");
                    model.owners[at].granted += got;
                }
            }
            for node in 0..NR_NODES {
                let held = ledger.held_on(model.path(node)).last().held;
                assert_eq!(
                    held.claimed,
                    model.claimed(node),
                    "seed {seed}, step {step}"
                );
            }
        }
    }
}
