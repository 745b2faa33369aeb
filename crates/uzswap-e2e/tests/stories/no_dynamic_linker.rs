//! Programs that no dynamic linker brings the library into: static ones of glibc and musl, position
//! independent or not, those of musl's dynamic linker, Go's. Each is managed, says what it says
//! natively, and stays within its limit.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use uzswap_e2e::{
    Job, MIB, Scratch, User, find_or_skip, long_form, number, root_or_skip, seed, skip, users,
    workspace,
};

/// Compilers and options for all kinds of such programs.
const KINDS: [(&str, &str, &[&str]); 4] = [
    ("static", "gcc", &["-static"]),
    ("static-pie", "gcc", &["-static-pie"]),
    ("musl-static", "musl-gcc", &["-static"]),
    ("musl", "musl-gcc", &[]),
];

/// A program of each kind that can be built here.
fn each_kind(scratch: &Scratch, source: &str) -> impl Iterator<Item = (&'static str, PathBuf)> {
    KINDS
        .into_iter()
        .filter_map(move |(kind, compiler, options)| {
            let program = scratch.compile_by(compiler, source, kind, options)?;
            Some((kind, program))
        })
}

/// Runs a job in a part of its memory, which it must have outgrown, and natively.
fn right_in(job: &Job, ram_mib: u64, what: &str) {
    let native = job.native().expect_success(what);
    let managed = job.clone().ram_mib(ram_mib).managed().expect_success(what);
    managed.expect_same_output(&native);
    managed.expect_within(16 * MIB);
    assert!(managed.stat("zswpout") > 1000, "{what}: {}", managed.stats);
    assert_eq!(managed.stat("ram_limit"), ram_mib * MIB, "{what}");
    assert!(managed.stat("ram_peak") <= ram_mib * MIB, "{what}");
}

#[test]
fn half_of_the_memory_is_enough() {
    let scratch = Scratch::new();
    for (kind, program) in each_kind(&scratch, "pattern/pattern.c") {
        let args = format!("96 2 random 200000 {}", seed());
        let job = Job::new(program).args(args.split(' '));
        right_in(&job, 48, kind);
    }
}

/// What malloc takes by brk.
#[test]
fn a_heap_that_grows_by_the_break() {
    let scratch = Scratch::new();
    for (kind, program) in each_kind(&scratch, "apps/small_blocks.c") {
        right_in(&Job::new(program).arg("96"), 48, kind);
    }
}

#[test]
fn families_keep_their_data() {
    let scratch = Scratch::new();
    for (kind, program) in each_kind(&scratch, "apps/fork.c") {
        let job = Job::new(program).args(["96", &seed().to_string()]);
        for &user in users() {
            let job = job.clone().each_mib(24).user(user);
            let outcome = job.managed().expect_success(kind);
            assert!(outcome.text().ends_with(": right\n"), "{}", outcome.text());
            outcome.expect_within(16 * MIB);
        }
    }
}

#[test]
fn threads_contend_in_evicted_pages() {
    let mut modes = vec!["signal", "segv"];
    if root_or_skip("fault mode thread") {
        modes.push("thread");
    }
    let scratch = Scratch::new();
    for (kind, program) in each_kind(&scratch, "race/race.c") {
        for mode in &modes {
            let outcome = Job::new(&program)
                .args(["64", "4", "50000", &seed().to_string()])
                .ram_mib(8)
                .option("--fault-mode", mode)
                .managed()
                .expect_success(kind);
            assert!(outcome.text().contains(": right"), "{}", outcome.text());
        }
    }
}

#[test]
fn signals_interrupt_what_they_interrupt() {
    let scratch = Scratch::new();
    for (kind, program) in each_kind(&scratch, "apps/interrupted.c") {
        let _ = Job::new(program).ram_mib(24).managed().expect_success(kind);
    }
}

#[test]
fn requests_from_outside_are_served() {
    let scratch = Scratch::new();
    let calls = ["poll", "recv", "accept", "epoll"];
    for ((kind, program), call) in each_kind(&scratch, "apps/waits.c").zip(calls) {
        let live = Job::new(program)
            .args([call, "2000"])
            .ram_mib(128)
            .start_until("ready");
        let pid = number(&live.stat()["live"][0], "pid").to_string();
        let ask = |line: &str| {
            let outcome = Job::line(line).uzswap_itself();
            outcome.expect_success(kind)
        };
        let said = ask(&format!("reclaim {pid} 8M"));
        assert!(
            said.text().starts_with("evicted 8"),
            "{kind}: {}",
            said.text()
        );
        let said = ask(&format!("set {pid} ram=100M"));
        assert!(said.text().contains("100 MiB"), "{kind}: {}", said.text());
        let outcome = live.wait().expect_success(kind);
        assert_eq!(outcome.text(), "ready\ndone\n", "{kind}");
        assert_eq!(outcome.stat("ram_limit"), 100 * MIB, "{kind}");
    }
}

/// Sites that call often are rewritten, and nothing of that shows: not in registers, nor to
/// handlers, nor to threads that meet a site while it changes, nor to those that are cancelled.
#[test]
fn calls_are_trapped_no_more() {
    const CALLS: u64 = 10_000;
    let scratch = Scratch::new();
    for (kind, program) in each_kind(&scratch, "apps/sites.c") {
        for mode in ["signal", "segv"] {
            let outcome = Job::new(&program)
                .arg(CALLS.to_string())
                .ram_mib(24)
                .option("--fault-mode", mode)
                .managed()
                .expect_success(kind);
            assert_eq!(outcome.text(), "right\n", "{kind}, {mode}");
            // Four calls in each round, and others. Some are made while a page is not there.
            let trapped = outcome.stat("guarded_syscalls");
            assert!(trapped < 2 * CALLS, "{kind}, {mode}: {trapped}");
        }
    }
}

/// As in a Go program with 100 MB of embedded files: a short instruction's jump leads to where the
/// program's own memory lies.
#[test]
fn calls_without_room_for_a_ramp_are_trapped_for_ever() {
    const CALLS: u64 = 2000;
    let scratch = Scratch::new();
    let options = ["-static", "-DNO_ROOM"];
    let Some(program) = scratch.compile_by("gcc", "apps/sites.c", "no-room", &options) else {
        return;
    };
    let outcome = Job::new(program)
        .arg(CALLS.to_string())
        .ram_mib(24)
        .managed()
        .expect_success("without room");
    assert_eq!(outcome.text(), "right\n");
    let trapped = outcome.stat("guarded_syscalls");
    assert!(trapped > 3 * CALLS, "{trapped}");
}

/// The kernel's view of the process is that of the native one.
#[test]
fn proc_shows_the_program_itself() {
    let scratch = Scratch::new();
    let source = "apps/idle.c";
    for (kind, program) in each_kind(&scratch, source) {
        let live = Job::new(&program)
            .arg("8")
            .ram_mib(64)
            .start_until("idle\n");
        let pid = number(&live.stat()["live"][0], "pid");
        let proc = |name: &str| format!("/proc/{pid}/{name}");
        assert_eq!(
            fs::read_link(proc("exe")).expect("it runs"),
            program,
            "{kind}"
        );
        let comm = fs::read_to_string(proc("comm")).expect("it runs");
        assert_eq!(comm.trim_end(), kind);
        let line = fs::read(proc("cmdline")).expect("it runs");
        assert_eq!(line, format!("{}\x008\0", program.display()).as_bytes());
        let status = fs::read_to_string(proc("status")).expect("it runs");
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        let outcome = live.end_by(libc::SIGTERM);
        assert_eq!(outcome.text(), "idle\nright\n", "{kind}");
    }
}

/// By itself, and linked with the C library (cgo).
#[test]
fn a_go_program() {
    let Some(go) = find_or_skip("go", "golang-go") else {
        return;
    };
    let scratch = Scratch::new();
    let (alone, linked) = (&["main.go"][..], &["main.go", "cgo.go"][..]);
    for (mode, sources) in [
        ("exe", alone),
        ("pie", alone),
        ("exe", linked),
        ("pie", linked),
    ] {
        let cgo = u8::from(sources.len() > 1).to_string();
        let program = scratch.join(format!("go-{mode}-{cgo}"));
        let output = Command::new(&go)
            .args(["build", "-buildmode", mode, "-o"])
            .arg(&program)
            .args(sources)
            .current_dir(workspace().join("tests/programs/go"))
            .env("CGO_ENABLED", &cgo)
            .env("GOCACHE", scratch.join("cache"))
            .output()
            .expect("go starts");
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            skip(&format!("no Go program can be built here: {why}"));
            return;
        }
        right_in(&Job::new(program).arg("96"), 48, mode);
    }
}

/// A server of Go's under load, with preemption by signals and collections meanwhile.
#[test]
fn a_go_server_and_its_clients() {
    let Some(go) = find_or_skip("go", "golang-go") else {
        return;
    };
    let scratch = Scratch::new();
    let program = scratch.join("server");
    let source = workspace().join("tests/programs/go_http/main.go");
    let output = Command::new(go)
        .args(["build", "-o"])
        .args([&program, &source])
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", scratch.join("cache"))
        .output()
        .expect("go starts");
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return skip(&format!("no Go program can be built here: {why}"));
    }
    for &user in users() {
        right_in(&Job::new(&program).arg("96").user(user), 56, "a Go server");
    }
}

/// A static shell: children of both kinds are managed, in one run.
#[test]
fn a_static_shell_and_its_children() {
    let Some(busybox) = find_or_skip("busybox", "busybox-static") else {
        return;
    };
    let scratch = Scratch::new();
    let dynamic = scratch.compile("apps/idle.c");
    let script = format!(
        "for i in 1 2 3; do echo $i | cat; done; seq 1 2000 | sort -rn | head -2; \
         (exit 3); echo $?; readlink /proc/self/exe; timeout -s TERM 1 {} 40; \
         perl -e 'print join(\",\", map {{ $_ * 2 }} 1..4), \"\\n\"' ; env | grep -c LD_PRELOAD",
        dynamic.display()
    );
    let job = Job::new(busybox).args(["sh", "-c", &script]).ram_mib(32);
    let native = job.native();
    let managed = job.managed();
    assert_eq!(managed.status, native.status, "{}", managed.stderr);
    managed.expect_same_output(&native);
    assert!(
        managed.stat("zswpout") > 1000,
        "the dynamic child is managed: {}",
        managed.stats
    );
}

/// What is to be put into the next program is taken back, and this one's guard stays.
#[test]
fn an_exec_that_fails_changes_nothing() {
    let scratch = Scratch::new();
    for (kind, program) in each_kind(&scratch, "foreign/refused.c") {
        let other = scratch.path().join("other");
        fs::copy(&program, &other).expect("there is room");
        let job = Job::new(program).arg(other).arg("48");
        right_in(&job, 24, kind);
    }
}

/// Many short lives: each start is traced, and none is lost.
#[test]
fn no_start_fails() {
    let scratch = Scratch::new();
    let starts = if long_form() { 10_000 } else { 300 };
    for (kind, program) in each_kind(&scratch, "apps/hello.c") {
        let script = format!(
            "n=0; right=0; while [ $n -lt {starts} ]; do n=$((n+1)); \
             {} 7 >/dev/null; [ $? = 7 ] && right=$((right+1)); done; echo $right",
            program.display()
        );
        let outcome = Job::new("sh")
            .args(["-c", &script])
            .ram_mib(64)
            .user(User::Same);
        let outcome = outcome.managed().expect_success(kind);
        assert_eq!(outcome.text(), format!("{starts}\n"), "{kind}");
    }
}
