//! `uzswap reclaim` has an idle program evict memory, and the program notices nothing.

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, Outcome, Scratch, seed, users};

const SIGUSR1: i32 = 10;
const SIGTERM: i32 = 15;
const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

fn reclaim(pid: u64, args: &[&str]) -> Outcome {
    Job::new("reclaim")
        .arg(pid.to_string())
        .args(args)
        .uzswap_itself()
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

fn stat(live: &Live) -> Value {
    let pid = live.pid().to_string();
    let outcome = Job::new("stat").args([&pid, "--json"]).uzswap_itself();
    json(&outcome.expect_success("stat"))
}

/// The command's own process.
fn command(live: &Live) -> u64 {
    stat(live)["live"][0]["pid"]
        .as_u64()
        .expect("a live process")
}

fn threads(pid: u64) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("its threads")
        .count()
}

#[test]
fn an_idle_program_evicts_what_is_asked() {
    for &user in users() {
        let scratch = Scratch::new();
        let mut live = Job::new(scratch.compile("apps/idle.c"))
            .arg("64")
            .ram_mib(128)
            .user(user)
            .start_managed();
        live.wait_for("idle\n");
        let pid = command(&live);
        let resident = |stats: &Value| stats["resident"].as_u64().expect("a number");
        let before = stat(&live);
        assert_eq!(before["zswpout"], 0, "{before}");
        let said = reclaim(pid, &["32M", "--json"]).expect_success("reclaim");
        let said = json(&said);
        let reclaimed = said["reclaimed"].as_u64().expect("a number");
        assert!((32 * MIB..34 * MIB).contains(&reclaimed), "{said}");
        // Its data compress well: nearly all of it is free.
        assert!(said["freed"].as_u64() > Some(24 * MIB), "{said}");
        let after = stat(&live);
        assert_eq!(resident(&before) - resident(&after), reclaimed, "{after}");
        // Whoever did it is gone.
        assert_eq!(threads(pid), 1);
        // The rest, and then there is nothing left; asked of the run this time.
        let run = u64::try_from(live.pid()).expect("a pid");
        let rest = reclaim(run, &["1G"]);
        assert_eq!(rest.status, 1, "{}", rest.stderr);
        assert!(rest.text().starts_with("evicted "), "{}", rest.text());
        assert!(rest.stderr.contains("of 1 GiB"), "{}", rest.stderr);
        assert!(resident(&stat(&live)) < 4 * MIB);
        live.signal(SIGTERM);
        let outcome = live.wait().expect_success("it checks its memory");
        assert_eq!(outcome.text(), "idle\nright\n");
    }
}

#[test]
fn compressed_memory_goes_to_swap() {
    let scratch = Scratch::new();
    let mut live = Job::new(scratch.compile("apps/swapped.c"))
        .args(["hold", "48", &seed().to_string()])
        .ram_mib(128)
        .option("--swap", "/var/tmp")
        .start_managed();
    live.wait_for("ready");
    let pid = command(&live);
    let none = reclaim(pid, &["8M", "--writeback-only"]);
    assert_eq!(none.status, 1, "nothing is compressed yet: {}", none.text());
    let _ = reclaim(pid, &["24M"]).expect_success("reclaim");
    let said = reclaim(pid, &["8M", "--writeback-only"]).expect_success("write back");
    assert!(said.text().starts_with("written back "), "{}", said.text());
    let stats = stat(&live);
    assert!(
        stats["written_back_pages"].as_u64() >= Some(2048),
        "{stats}"
    );
    live.signal(SIGUSR1);
    let _ = live.wait().expect_success("it checks its memory");
}

/// No call that waits is cut short, though none of them is restarted after a handler.
#[test]
fn a_program_that_waits_is_told_of_no_signal() {
    let scratch = Scratch::new();
    let program = scratch.compile("apps/waits.c");
    for call in ["sleep", "absolute", "poll", "ppoll", "select", "pselect"] {
        let mut live = Job::new(&program)
            .args([call, "2000"])
            .ram_mib(128)
            .start_managed();
        live.wait_for("ready");
        let pid = command(&live);
        for _ in 0..2 {
            let _ = reclaim(pid, &["8M"]).expect_success(call);
        }
        let outcome = live.wait().expect_success(call);
        assert_eq!(outcome.text(), "ready\ndone\n");
    }
}

/// SIGSYS ends a program that does not handle it, as one does that has just been executed.
#[test]
fn programs_that_execute_each_other_are_asked_or_left_alone() {
    let scratch = Scratch::new();
    let script = scratch.write(
        "again",
        "[ $1 = 0 ] && echo done && exit\n[ $1 = 90 ] && echo ready\nexec sh $0 $(($1 - 1))\n",
    );
    let mut live = Job::new("sh")
        .arg(&script)
        .arg("90")
        .ram_mib(64)
        .start_managed();
    live.wait_for("ready");
    let pid = command(&live);
    let asked = (0..).take_while(|_| {
        let outcome = reclaim(pid, &["64K"]);
        !outcome.stderr.contains("no process") && !outcome.stderr.contains("ended")
    });
    println!("asked {} times", asked.count());
    let outcome = live.wait().expect_success("ninety programs");
    assert_eq!(outcome.text(), "ready\ndone\n");
}

#[test]
fn a_program_that_is_stopped_is_given_up_and_goes_on() {
    let scratch = Scratch::new();
    let mut live = Job::new(scratch.compile("apps/idle.c"))
        .arg("16")
        .ram_mib(64)
        .flag("--quiet")
        .start_managed();
    live.wait_for("idle\n");
    let pid = command(&live);
    let raw = i32::try_from(pid).expect("a pid");
    // SAFETY: a process of this test's.
    unsafe { libc::kill(raw, SIGSTOP) };
    let outcome = reclaim(pid, &["4M"]);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("stopped"), "{}", outcome.stderr);
    // SAFETY: as above.
    unsafe { libc::kill(raw, SIGCONT) };
    // The signal that was on its way all the time is taken for what it is.
    while reclaim(pid, &["4M"]).status != 0 {}
    live.signal(SIGTERM);
    let _ = live.wait().expect_success("it checks its memory");
}

#[test]
fn wrong_arguments_and_processes() {
    for (args, status, word) in [
        (&["1"][..], 2, "SIZE"),
        (&["4194303", "lots"], 2, "size"),
        (&["4194303", "1M"], 1, "4194303"),
    ] {
        let outcome = Job::new("reclaim").args(args).uzswap_itself();
        assert_eq!(outcome.status, status, "{}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
    let mut live = Job::new("sh")
        .args(["-c", "echo ready; exec sleep 1000"])
        .option("--swap", "none")
        .ram_mib(64)
        .start_managed();
    live.wait_for("ready");
    let outcome = reclaim(command(&live), &["1M", "--writeback-only"]);
    assert_eq!(outcome.status, 1);
    assert!(outcome.stderr.contains("--swap"), "{}", outcome.stderr);
}
