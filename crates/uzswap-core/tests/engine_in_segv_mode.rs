//! The engine's stories without userfaultfd, where pages come and go by protection, with a SIGSEGV
//! handler of the test's own.

mod engine_support;

use uzswap_core::FaultMode;

#[test]
fn the_engine_tells_its_stories() {
    if let Some(group) = engine_support::start(FaultMode::Segv, 4, false) {
        engine_support::tell_all(group);
        println!("{:?}", group.processes[0].counters);
    }
}
