//! The exit status is the command's own, or 128 + N after signal N; signals are passed on to the
//! command.

use uzswap_e2e::{Job, Scratch};

#[test]
fn the_commands_own() {
    for status in [0, 1, 7, 124, 125, 126, 255] {
        let outcome = Job::new("sh")
            .args(["-c", &format!("exit {status}")])
            .managed();
        assert_eq!(outcome.status, status, "{}", outcome.stderr);
    }
}

#[test]
fn one_hundred_and_twenty_eight_and_the_signal() {
    for signal in [
        libc::SIGTERM,
        libc::SIGKILL,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGABRT,
        libc::SIGUSR1,
    ] {
        let outcome = Job::new("sh")
            .args(["-c", &format!("kill -{signal} $$")])
            .managed();
        assert_eq!(outcome.status, 128 + signal, "{}", outcome.stderr);
        assert!(
            outcome.stats["elapsed_s"].is_number(),
            "statistics are written: {}",
            outcome.stats
        );
    }
}

#[test]
fn a_real_crash_is_the_programs() {
    let scratch = Scratch::new();
    for (name, body, signal) in [
        ("null", "*(volatile int *)0 = 1;", libc::SIGSEGV),
        (
            "readonly",
            "*(volatile char *)(long)main = 1;",
            libc::SIGSEGV,
        ),
        (
            "unmapped",
            "*(volatile char *)0x100000000010 = 1;",
            libc::SIGSEGV,
        ),
        ("trap", "__builtin_trap();", libc::SIGILL),
        ("abort", "abort();", libc::SIGABRT),
    ] {
        let source = scratch.write(
            &format!("{name}.c"),
            format!("#include <stdlib.h>\nint main(void) {{ {body} return 0; }}\n"),
        );
        let program = scratch.compile_path(&source, &["-O0", "-w"]);
        let outcome = Job::new(program).managed();
        assert_eq!(outcome.status, 128 + signal, "{name}: {}", outcome.stderr);
    }
}

#[test]
fn signals_are_passed_on() {
    for (signal, name) in [
        (libc::SIGTERM, "TERM"),
        (libc::SIGINT, "INT"),
        (libc::SIGHUP, "HUP"),
    ] {
        // A script that runs the tests in the background ignores signals, and no shell can trap one
        // that was ignored at its start.
        // SAFETY: restores the default action before this story starts a child.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        let script = format!(
            "trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
        );
        let live = Job::new("bash")
            .args(["-c", &script])
            .start_until("ready\n");
        live.signal(signal);
        let outcome = live.wait();
        assert_eq!(outcome.status, 9, "{}", outcome.stderr);
        assert_eq!(outcome.text(), format!("ready\ngot {name}\n"));
    }
}

#[test]
fn quiet_says_nothing() {
    let outcome = Job::new("echo").arg("hello").flag("--quiet").managed();
    assert_eq!(
        (outcome.text().as_str(), outcome.stderr.as_str()),
        ("hello\n", "")
    );
    let outcome = Job::new("echo").arg("hello").managed();
    assert!(outcome.stderr.starts_with("uzswap: "), "{}", outcome.stderr);
}
