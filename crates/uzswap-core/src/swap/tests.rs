//! Hooks: where a process dies.
use std::cell::Cell;

thread_local! {
    static STEPS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    static DEAD: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn step() {
    STEPS_LEFT.with(|left| match left.get() {
        Some(0) => {
            left.set(None);
            DEAD.with(|dead| dead.set(true));
            std::panic::resume_unwind(Box::new(()));
        }
        Some(n) => left.set(Some(n - 1)),
        None => {}
    });
}

pub(super) fn died() -> bool {
    DEAD.with(Cell::get)
}
