//! The engine on the real kernel, with a SIGBUS handler of the test's own: threads work on four
//! times the memory that the limit allows, and every byte is what they wrote.

mod engine_support;

use uzswap_core::FaultMode;

#[test]
fn the_engine_tells_its_stories() {
    if let Some(group) = engine_support::start(FaultMode::Signal, 4, false) {
        engine_support::tell_all(group);
        println!("{:?}", group.processes[0].counters);
    }
}
