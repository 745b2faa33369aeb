//! The ledger of one thread; of several: `tests/loom_ledger.rs`.

use super::*;

fn raise(ledger: &Ledger, own: &Share, least: u64, wanted: u64) -> u64 {
    ledger.raise(own, least, wanted, |_| 10, || u64::MAX)
}

#[test]
fn together_they_get_what_there_is() {
    let ledger = Ledger::default();
    let (one, two) = (ledger.begin(0), ledger.begin(1));
    assert_eq!(raise(&ledger, one, 1, 6), 6);
    assert_eq!(raise(&ledger, two, 1, 6), 4, "as many as are left");
    assert_eq!(raise(&ledger, two, 1, 1), 0);
    assert!(one.try_charge(2) && !two.try_charge(5));
    assert_eq!(
        ledger.take_back(two, 0, 3),
        3,
        "which the other does not use"
    );
    assert_eq!(raise(&ledger, two, 4, 4), 0, "all or nothing");
    assert_eq!(raise(&ledger, two, 3, 4), 3);
    assert!(two.try_charge(7));
    assert_eq!(ledger.take_back(two, 0, 9), 1);
    let held = ledger.held();
    assert_eq!((held.claimed, held.used, ledger.node(0).peak()), (9, 9, 10));
}

#[test]
fn what_is_outside_leaves_less_but_never_nothing() {
    let ledger = Ledger::default();
    let mib = |mib: u64| mib << 20;
    let grantable = |outside, limit| {
        ledger.set_outside(0, Path::ROOT, mib(outside));
        ledger.grantable(0, mib(limit), 0) >> 8
    };
    assert_eq!(grantable(0, 800), 800);
    assert_eq!(grantable(300, 800), 500);
    assert_eq!(grantable(900, 800), 100, "an eighth");
    assert_eq!(grantable(900, 8), 4, "or 4 MiB");
    assert_eq!(grantable(900, 3), 3, "if there are as many");
}

#[test]
fn one_alone_stays_within_its_own_limit() {
    let ledger = Ledger::default();
    let own = ledger.begin(0);
    let raise = |least, wanted| ledger.raise(own, least, wanted, |_| 10, || 3);
    assert_eq!(raise(1, 8), 3);
    assert_eq!(raise(1, 8), 0);
}

#[test]
fn each_node_holds_what_lies_in_it_and_a_raise_looks_at_all_above() {
    let ledger = Ledger::default();
    let (a, b) = (Path::ROOT.child(1), Path::ROOT.child(2));
    let deep = a.child(3);
    let limits = [10, 6, 10, 4];
    let enter = |nr, path| {
        let share = ledger.begin(nr);
        share.enter(path);
        share
    };
    let raise = |own, wanted| ledger.raise(own, 1, wanted, |level| limits[level.node], || u64::MAX);
    let (in_deep, in_a, in_b) = (enter(0, deep), enter(1, a), enter(2, b));
    assert_eq!(raise(in_deep, 9), 4, "its own node");
    assert_eq!(raise(in_a, 9), 2, "what its child has left");
    assert_eq!(raise(in_b, 9), 4, "what the root has left");
    assert_eq!(raise(in_b, 1), 0);
    in_a.expire(in_a.owner());
    let claimed = |path: Path| {
        let levels = ledger.held_on(path);
        levels.iter().map(|l| l.held.claimed).collect::<Vec<_>>()
    };
    assert_eq!(claimed(deep), [8, 4, 4]);
    assert_eq!(claimed(b), [8, 4]);
    assert_eq!(raise(in_deep, 1), 0, "though its parents have room");
    // Of two that cannot be told apart all counts in both.
    in_a.enter_too(b);
    assert_eq!(raise(in_a, 9), 2);
    assert_eq!(claimed(b), [10, 6]);
}

#[test]
fn what_is_outside_counts_in_all_nodes_above() {
    let ledger = Ledger::default();
    let (a, mib) = (Path::ROOT.child(1), 1 << 20);
    ledger.set_outside(0, a, 20 * mib);
    ledger.set_outside(1, Path::ROOT, 30 * mib);
    let left = [0, 1, 2].map(|node| ledger.grantable(node, 100 * mib, 0) >> 8);
    assert_eq!(left, [50, 80, 100]);
    ledger.set_outside(0, a, 0);
    assert_eq!(ledger.grantable(1, 100 * mib, 0) >> 8, 100);
}

#[test]
fn what_may_be_outside_leaves_room_until_it_is_measured() {
    let ledger = Ledger::default();
    let (a, mib) = (Path::ROOT.child(1), 1 << 20);
    let enter = |nr, path| {
        let share = ledger.begin(nr);
        share.enter(path);
        share.presume(2 << 8);
        share
    };
    let (in_a, in_b) = (enter(0, a), enter(1, Path::ROOT.child(2)));
    let left = || {
        let levels = ledger.held_on(a);
        let left = |l: &Level| ledger.grantable(l.node, 100 * mib, l.held.presumed) >> 8;
        levels.iter().map(left).collect::<Vec<_>>()
    };
    assert_eq!(left(), [96, 98]);
    in_a.measured();
    ledger.set_outside(0, a, 5 * mib);
    assert_eq!(left(), [93, 95]);
    in_b.expire(in_b.owner());
    assert_eq!(left(), [95, 95], "the dead bring nothing in");
    enter(0, a);
    assert_eq!(left(), [93, 93]);
    ledger.begin(0);
    assert_eq!(left(), [95, 95], "the next owner begins with nothing");
}

#[test]
fn above_high_nothing_is_granted_ahead_of_need() {
    let ledger = Ledger::default();
    let own = ledger.begin(0);
    let a = Path::ROOT.child(1);
    own.enter(a);
    ledger.node(1).high.swap(8 << uzswap_sys::PAGE_SHIFT);
    let raise = |least, wanted| ledger.raise(own, least, wanted, |_| 100, || u64::MAX);
    let above = || ledger.above_high(&ledger.held_on(a).last());
    assert_eq!((raise(1, 20), above()), (8, 0), "up to it");
    assert_eq!((raise(3, 20), above()), (3, 3), "no more than is needed");
    own.take_back(4);
    assert_eq!((raise(1, 20), above()), (1, 0));
}

#[test]
fn others_may_have_what_is_above_low() {
    let ledger = Ledger::default();
    let (own, a) = (ledger.begin(0), Path::ROOT.child(1));
    own.enter(a);
    own.inherit(10);
    let of_others = || ledger.above_low(a, Path::ROOT.child(2));
    assert_eq!(of_others(), u64::MAX);
    let low = &ledger.node(1).low;
    low.store(6 << uzswap_sys::PAGE_SHIFT, SeqCst);
    assert_eq!(of_others(), 4);
    assert_eq!(ledger.above_low(a, a.child(3)), u64::MAX, "within it");
    own.uncharge(5);
    own.take_back(5);
    assert_eq!(of_others(), 0);
}

#[test]
fn of_the_dead_nothing_is_left_and_their_heirs_lose_nothing() {
    let ledger = Ledger::default();
    let share = ledger.begin(1);
    let dead = share.owner();
    assert_eq!(raise(&ledger, share, 5, 5), 5);
    assert!(share.try_charge(4));
    share.asking.fetch_add(2, SeqCst);
    assert_eq!(ledger.held().claimed, 7);
    share.expire(dead);
    assert_eq!(ledger.held(), Held::default());
    share.charge_unchecked(1);
    ledger.begin(1);
    assert_eq!(ledger.held(), Held::default(), "a new owner has nothing");
    share.charge_unchecked(3);
    share.expire(dead);
    assert_eq!(share.used(), 3, "it is another's");
    for _ in 0..20 {
        ledger.begin(1);
    }
    assert_eq!(ledger.held(), Held::default(), "numbers go round");
}

#[test]
fn what_exceeds_the_limit_counts_until_it_is_gone() {
    let ledger = Ledger::default();
    let share = ledger.begin(0);
    share.charge_unchecked(12);
    let held = ledger.held();
    assert_eq!((held.claimed, held.used, share.peak()), (12, 12, 12));
    assert_eq!(raise(&ledger, share, 1, 1), 0);
    share.uncharge(12);
    assert_eq!(share.slack(), 0, "nothing was granted");
    share.inherit(2);
    assert_eq!(raise(&ledger, share, 9, 9), 0);
    assert_eq!(raise(&ledger, share, 8, 8), 8);
    assert_eq!((share.used(), share.slack()), (2, 8));
}

/// Families of the first pass over the shares, of a later one, and of the last.
#[test]
fn families_of_thousands_of_processes_count_once_each() {
    let ledger = Ledger::default();
    let families = [(0, 1), (500, 4000), (NR_SHARES - 2, 77)];
    for (number, (parent, child)) in (1..).zip(families) {
        let (own, child) = (ledger.begin(parent), ledger.begin(child));
        assert_eq!(ledger.raise(own, 6, 6, |_| 100, || u64::MAX), 6);
        assert!(own.try_charge(6));
        ledger.share_with_child(parent, child, 4);
        let held = ledger.held();
        assert_eq!((held.claimed, held.shared), (6 * number, 4 * number));
    }
    for share in ledger.shares() {
        share.expire(share.owner());
    }
    assert_eq!(ledger.held().claimed, 0);
}

#[test]
fn a_page_that_parent_and_child_have_counts_once() {
    let ledger = Ledger::default();
    let (parent, child) = (ledger.begin(0), ledger.begin(1));
    let path = Path::ROOT.child(1);
    parent.enter(path);
    child.enter(path);
    assert_eq!(raise(&ledger, parent, 6, 6), 6);
    assert!(parent.try_charge(6));
    ledger.share_with_child(0, child, 4);
    assert_eq!((parent.used(), parent.shared(), child.shared()), (2, 4, 4));
    let claimed = || {
        let levels = ledger.held_on(path);
        let [all, node] = [0, 1].map(|at| levels.iter().nth(at).map(|l| l.held));
        assert_eq!(all, node, "all of it lies in the node");
        levels.last().held.claimed
    };
    assert_eq!((claimed(), ledger.held().shared), (6, 4));
    // The child writes to one, the parent drops two, which the child still has.
    assert_eq!(raise(&ledger, child, 1, 1), 1);
    assert!(child.try_charge(1));
    child.unshare(1);
    parent.unshare(2);
    assert_eq!(claimed(), 2 + 1 + 4, "at most");
    // A grandchild has what the child has.
    let grandchild = ledger.begin(2);
    grandchild.enter(path);
    ledger.share_with_child(1, grandchild, 1);
    assert_eq!((child.shared(), grandchild.shared()), (4, 4));
    assert_eq!(claimed(), 2 + 5);
    assert!(!ledger.is_last_of_family(child));
    grandchild.expire(grandchild.owner());
    child.expire(child.owner());
    assert_eq!(claimed(), 2 + 2, "the parent's own");
    assert!(ledger.is_last_of_family(parent));
    parent.inherit(2);
    parent.unshare(2);
    assert_eq!(claimed(), 4);
}
