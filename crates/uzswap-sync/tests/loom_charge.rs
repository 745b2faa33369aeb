//! Charging while the limit is lowered, under the model checker.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-sync --test loom_charge
#![cfg(loom)]

use loom::sync::Arc;
use uzswap_sync::charge::Charge;

#[test]
fn once_it_was_seen_to_hold_a_lowered_limit_holds() {
    loom::model(|| {
        let charge = Arc::new(Charge::new(4));
        let other = charge.clone();
        let charging = loom::thread::spawn(move || if other.try_charge(3) { 3 } else { 0 });
        charge.set_limit(2);
        let holds = charge.over() == 0;
        let charged = charging.join().unwrap();
        assert_eq!(charge.used(), charged, "what was refused is not charged");
        assert!(
            !holds || charged == 0,
            "{charged} pages above the lowered limit"
        );
    });
}
