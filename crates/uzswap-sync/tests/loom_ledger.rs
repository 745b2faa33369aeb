//! The ledger of a group's limit under the model checker.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-sync --test loom_ledger
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::thread;
use uzswap_sync::ledger::{Ledger, Level, Share};
use uzswap_sync::node::Path;

const LIMIT: u64 = 4;

fn explore(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(f);
}

/// Has `nr` pages granted and uses them. Returns those used.
fn take(ledger: &Ledger, own: &Share, nr: u64, limit: &AtomicU64) -> u64 {
    let granted = ledger.raise(own, nr, nr, |_| limit.load(SeqCst), || u64::MAX);
    match granted > 0 && own.try_charge(nr) {
        true => nr,
        false => 0,
    }
}

/// Used pages never exceed the limit: each process looks at all while it has used its own.
#[test]
fn two_that_ask_at_once_never_get_more_than_there_is() {
    explore(|| {
        let ledger = Arc::new(Ledger::default());
        let limit = Arc::new(AtomicU64::new(LIMIT));
        ledger.begin(0);
        ledger.begin(1);
        let other = {
            let (ledger, limit) = (ledger.clone(), limit.clone());
            thread::spawn(move || take(&ledger, ledger.share(1), 3, &limit))
        };
        take(&ledger, ledger.share(0), 3, &limit);
        assert!(ledger.held().used <= LIMIT);
        other.join().unwrap();
        assert!(ledger.held().claimed <= LIMIT, "nothing is left in asking");
    });
}

/// Processes of two nodes ask at once, of which one lies in the other: neither node gets more than
/// it may have.
#[test]
fn who_asks_in_a_node_is_seen_in_all_that_it_lies_in() {
    explore(|| {
        let ledger = Arc::new(Ledger::default());
        let limit = |level: &Level| [LIMIT, 2][level.node];
        ledger.begin(0);
        ledger.begin(1).enter(Path::ROOT.child(1));
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.raise(ledger.share(1), 1, 2, limit, || u64::MAX))
        };
        let got = ledger.raise(ledger.share(0), 3, 3, limit, || u64::MAX);
        let in_node = other.join().unwrap();
        assert!(got + in_node <= LIMIT && in_node <= 2);
        let levels = ledger.held_on(Path::ROOT.child(1));
        let claimed: Vec<_> = levels.iter().map(|level| level.held.claimed).collect();
        assert_eq!(claimed, [got + in_node, in_node]);
    });
}

/// A share is begun anew in another node while somebody adds up: what its next owner has is never
/// missed where it counts.
#[test]
fn an_heir_in_another_node_is_seen_there() {
    explore(|| {
        let ledger = Arc::new(Ledger::default());
        let node = Path::ROOT.child(1);
        let old = ledger.begin(0);
        assert_eq!(ledger.raise(old, 2, 2, |_| LIMIT, || u64::MAX), 2);
        let owner = old.owner();
        let heir = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                ledger.share(0).expire(owner);
                let heir = ledger.begin(0);
                heir.enter(node);
                ledger.raise(heir, 2, 2, |_| LIMIT, || u64::MAX)
            })
        };
        let asks = ledger.begin(1);
        asks.enter(node);
        let got = ledger.raise(asks, 1, 3, |_| LIMIT, || u64::MAX);
        let inherited = heir.join().unwrap();
        assert!(got + inherited <= LIMIT, "{got} and {inherited}");
    });
}

/// One takes back what another does not use, while that begins to use it.
#[test]
fn what_is_taken_back_is_not_used() {
    explore(|| {
        let ledger = Arc::new(Ledger::default());
        let limit = Arc::new(AtomicU64::new(LIMIT));
        let own = ledger.begin(0);
        ledger.begin(1);
        assert_eq!(ledger.raise(own, 4, 4, |_| LIMIT, || u64::MAX), 4);
        let other = {
            let (ledger, limit) = (ledger.clone(), limit.clone());
            thread::spawn(move || {
                ledger.take_back(ledger.share(1), 0, 2);
                take(&ledger, ledger.share(1), 2, &limit)
            })
        };
        let charged = own.try_charge(3);
        let taken = other.join().unwrap();
        let held = ledger.held();
        assert_eq!(held.used, if charged { 3 } else { 0 } + taken);
        assert!(held.claimed <= LIMIT);
        assert!(charged || taken == 2, "one of the two gets through");
    });
}

/// A process dies after any step of asking; somebody else notices and takes everything back, while
/// the next process may begin with the same share.
#[test]
fn the_dead_leave_nothing_and_their_heirs_lose_nothing() {
    explore(|| {
        let ledger = Arc::new(Ledger::default());
        let limit = Arc::new(AtomicU64::new(LIMIT));
        let owner = ledger.begin(0).owner();
        // All that it did before it died.
        take(&ledger, ledger.share(0), 2, &limit);
        let reaper = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.share(0).expire(owner))
        };
        let heir = ledger.begin(0);
        let got = take(&ledger, heir, 3, &limit);
        reaper.join().unwrap();
        assert_eq!(got, 3, "of the dead nothing is counted");
        let held = ledger.held();
        assert_eq!((held.claimed, held.used), (3, 3));
    });
}

/// Once nobody is seen above a lowered limit, it holds.
#[test]
fn a_lowered_limit_holds_once_it_was_seen_to() {
    explore(|| {
        let ledger = Arc::new(Ledger::default());
        let limit = Arc::new(AtomicU64::new(LIMIT));
        ledger.begin(0);
        let asking = {
            let (ledger, limit) = (ledger.clone(), limit.clone());
            thread::spawn(move || take(&ledger, ledger.share(0), 3, &limit))
        };
        limit.store(2, SeqCst);
        let holds = ledger.held().claimed <= 2;
        let used = asking.join().unwrap();
        assert!(!holds || used == 0, "{used} pages above the lowered limit");
    });
}

/// A child's copy is charged and the parent drops what it shared, while somebody adds up: at no
/// time less is seen than there is.
#[test]
fn pages_in_common_are_never_seen_as_fewer_than_they_are() {
    explore(|| {
        let ledger = Arc::new(Ledger::default());
        let (parent, child) = (ledger.begin(0), ledger.begin(1));
        parent.inherit(2);
        let family = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                // Two pages, which the child has as well from now on.
                ledger.share_with_child(0, ledger.share(1), 2);
                ledger.share(0).unshare(2);
            })
        };
        assert!(ledger.held().claimed >= 2);
        assert!(ledger.held().claimed >= 2);
        family.join().unwrap();
        assert_eq!(child.shared(), 2);
        assert_eq!(ledger.held().claimed, 2);
    });
}
