//! An idle managed program uses no processor time, and neither does `uzswap run` beside it.

use std::fs;
use std::time::Duration;

use uzswap_e2e::{HardLimit, Job, Live, MIB, Scratch, root_or_skip, tasks};

/// Clock ticks of all processes of the job, and wake-ups of all its threads.
fn ticks_and_wakes(live: &Live) -> (u64, u64) {
    let (mut ticks, mut wakes) = (0, 0);
    for (process, fields) in live.processes() {
        // Counted from the state: user time 11, system time 12.
        let times = fields[11..=12].iter();
        ticks += times.filter_map(|n| n.parse::<u64>().ok()).sum::<u64>();
        for task in tasks(&process) {
            let status = fs::read_to_string(task.join("status")).unwrap_or_default();
            wakes += status
                .lines()
                .filter_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))
                .filter_map(|n| n.trim().parse::<u64>().ok())
                .sum::<u64>();
        }
    }
    (ticks, wakes)
}

/// Runs `job`, which may wake up so often in 3 s.
fn stays_idle(job: &Job, what: &str, most_wakes: u64) {
    let live = job.start_until("idle\n");
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks_and_wakes(&live);
    std::thread::sleep(Duration::from_secs(3));
    let after = ticks_and_wakes(&live);
    let (ticks, wakes) = (after.0 - before.0, after.1 - before.1);
    assert!(ticks <= 1, "{what}: {ticks} ticks in 3 s");
    assert!(wakes <= most_wakes, "{what}: {wakes} wake-ups in 3 s");
    // `uzswap run` passes the signal on.
    let outcome = live.end_by(libc::SIGTERM);
    assert_eq!(outcome.text(), "idle\nright\n");
}

#[test]
fn no_processor_time() {
    let scratch = Scratch::new();
    let job = Job::idle(&scratch, 128).ram_mib(32);
    // The supervisor looks a few times a second at what is outside, and who lives.
    stays_idle(&job.clone().option("--fault-mode", "signal"), "signal", 30);
    if root_or_skip("fault mode thread") {
        stays_idle(&job.option("--fault-mode", "thread"), "thread", 30);
    }
}

#[test]
fn no_processor_time_while_the_limit_follows() {
    let scratch = Scratch::new();
    let job = Job::idle(&scratch, 128);
    if let Some(limit) = HardLimit::new_or_skip(96 * MIB) {
        // With little room left it looks at the cgroup a dozen times a second.
        stays_idle(&job.clone().within(&limit), "cgroup", 75);
    }
    stays_idle(&job, "machine", 45);
}
