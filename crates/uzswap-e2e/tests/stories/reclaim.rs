//! `uzswap reclaim` makes an idle program evict memory; the program notices nothing.

use serde_json::Value;
use uzswap_e2e::{DISK, Job, Live, MIB, Outcome, Scratch, number, seed, users};

fn reclaim(pid: u64, args: &[&str]) -> Outcome {
    Job::new("reclaim")
        .arg(pid.to_string())
        .args(args)
        .uzswap_itself()
}

/// Pid of the command, rather than of `uzswap run`.
fn command_pid(live: &Live) -> u64 {
    number(&live.stat()["live"][0], "pid")
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
        let live = Job::idle(&scratch, 64)
            .ram_mib(128)
            .user(user)
            .start_until("idle\n");
        let pid = command_pid(&live);
        let resident = |stats: &Value| number(stats, "resident");
        let before = live.stat();
        assert_eq!(before["zswpout"], 0, "{before}");
        let said = reclaim(pid, &["32M", "--json"]);
        let said = said.expect_success("reclaim").json();
        let reclaimed = number(&said, "reclaimed");
        assert!((32 * MIB..34 * MIB).contains(&reclaimed), "{said}");
        // The data compresses well, so nearly all of it is freed.
        assert!(said["freed"].as_u64() > Some(24 * MIB), "{said}");
        let after = live.stat();
        assert_eq!(resident(&before) - resident(&after), reclaimed, "{after}");
        // The thread that did it is gone.
        assert_eq!(threads(pid), 1);
        // The rest, asked of the run this time; then nothing is left.
        let run = u64::try_from(live.pid()).expect("a pid");
        let rest = reclaim(run, &["1G"]);
        assert_eq!(rest.status, 1, "{}", rest.stderr);
        assert!(rest.text().starts_with("evicted "), "{}", rest.text());
        rest.expect_stderr(&["of 1 GiB"]);
        assert!(resident(&live.stat()) < 4 * MIB);
        let outcome = live.end_by(libc::SIGTERM);
        assert_eq!(outcome.text(), "idle\nright\n");
    }
}

#[test]
fn compressed_memory_goes_to_swap() {
    let scratch = Scratch::new();
    let live = Job::compiled(&scratch, "apps/swapped.c", &format!("hold 48 {}", seed()))
        .ram_mib(128)
        .option("--swap", DISK)
        .start_until("ready");
    let pid = command_pid(&live);
    let none = reclaim(pid, &["8M", "--writeback-only"]);
    assert_eq!(none.status, 1, "nothing is compressed yet: {}", none.text());
    let _ = reclaim(pid, &["24M"]).expect_success("reclaim");
    let said = reclaim(pid, &["8M", "--writeback-only"]).expect_success("write back");
    assert!(said.text().starts_with("written back "), "{}", said.text());
    let stats = live.stat();
    assert!(
        stats["written_back_pages"].as_u64() >= Some(2048),
        "{stats}"
    );
    let _ = live.end_by(libc::SIGUSR1);
}

/// No blocking call is cut short, though none of them is restarted after a signal handler.
#[test]
fn blocking_calls_are_not_interrupted() {
    let scratch = Scratch::new();
    let program = scratch.compile("apps/waits.c");
    let calls = "sleep absolute poll ppoll select pselect epoll epoll_pwait epoll_pwait2 semaphore \
                 semtimedop sigtimedwait recv recvmsg read send write accept syscall_sleep \
                 syscall_futex syscall_epoll";
    for call in calls.split(' ') {
        let live = Job::new(&program)
            .args([call, "2000"])
            .ram_mib(128)
            .start_until("ready");
        let pid = command_pid(&live);
        for _ in 0..2 {
            let _ = reclaim(pid, &["8M"]).expect_success(call);
        }
        let outcome = live.wait().expect_success(call);
        assert_eq!(outcome.text(), "ready\ndone\n");
    }
}

/// SIGSYS kills a program that does not handle it, such as one that has just called exec.
#[test]
fn programs_that_keep_calling_exec_survive_requests() {
    let scratch = Scratch::new();
    let script = scratch.write(
        "again",
        "[ $1 = 0 ] && echo done && exit\n[ $1 = 90 ] && echo ready\nexec sh $0 $(($1 - 1))\n",
    );
    let live = Job::new("sh")
        .arg(&script)
        .arg("90")
        .ram_mib(64)
        .start_until("ready");
    let pid = command_pid(&live);
    let asked = (0..).take_while(|_| {
        let outcome = reclaim(pid, &["64K"]);
        !outcome.stderr.contains("no process") && !outcome.stderr.contains("ended")
    });
    println!("asked {} times", asked.count());
    let outcome = live.wait().expect_success("ninety programs");
    assert_eq!(outcome.text(), "ready\ndone\n");
}

#[test]
fn a_stopped_program_is_given_up_and_goes_on() {
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 16)
        .ram_mib(64)
        .flag("--quiet")
        .start_until("idle\n");
    let pid = command_pid(&live);
    let raw = i32::try_from(pid).expect("a pid");
    // SAFETY: a process of this test's.
    unsafe { libc::kill(raw, libc::SIGSTOP) };
    let outcome = reclaim(pid, &["4M"]);
    assert_eq!(outcome.status, 1, "{}", outcome.stderr);
    outcome.expect_stderr(&["stopped"]);
    // SAFETY: as above.
    unsafe { libc::kill(raw, libc::SIGCONT) };
    // The signal that was pending meanwhile does no harm.
    while reclaim(pid, &["4M"]).status != 0 {}
    let _ = live.end_by(libc::SIGTERM);
}

#[test]
fn wrong_arguments_and_processes() {
    for (args, status, word) in [
        (&["1"][..], 2, "SIZE"),
        (&["4194303", "lots"], 2, "size"),
        (&["4194303", "1M"], 1, "4194303"),
    ] {
        let outcome = Job::new("reclaim").args(args).uzswap_itself();
        let _ = outcome.expect_refused(status, &[word]);
    }
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 16)
        .option("--swap", "none")
        .ram_mib(64)
        .start_until("idle\n");
    let outcome = reclaim(command_pid(&live), &["1M", "--writeback-only"]);
    assert_eq!(outcome.status, 1);
    outcome.expect_stderr(&["--swap"]);
}

/// What has been in RAM for long goes, and only that, whether it is asked for or by itself.
#[test]
fn idle_memory_is_evicted_by_age() {
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 64).ram_mib(256).start_until("idle\n");
    let pid = live.pid().to_string();
    let older_than = |time: &str| {
        let said = Job::new("reclaim")
            .arg(&pid)
            .args(["--json", "--older-than", time]);
        said.uzswap_itself().expect_success("reclaim").json()
    };
    assert_eq!(number(&older_than("1440m"), "reclaimed"), 0);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let said = older_than("1s");
    assert!(number(&said, "reclaimed") >= 60 * MIB, "{said}");
    assert!(
        number(&live.stat(), "resident") < 8 * MIB,
        "{}",
        live.stat()
    );
    assert_eq!(live.end_by(libc::SIGTERM).text(), "idle\nright\n");

    let mut live = Job::idle(&scratch, 64)
        .ram_mib(256)
        .option("--idle-reclaim", "1s")
        .start_until("idle\n");
    live.wait_until("evicted by itself", |live| {
        number(&live.stat(), "resident") < 8 * MIB
    });
    assert_eq!(live.end_by(libc::SIGTERM).text(), "idle\nright\n");
}
