//! `uzswap run` between a shell and a command: stops, continues, ends and leaves things as a shell
//! expects of the command itself.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn uzswap(command: &[&str]) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_uzswap"));
    run.args(["run", "--quiet", "--ram", "32M", "--"])
        .args(command)
        .env_remove("UZSWAP_GROUP_FILE")
        .stdin(Stdio::null());
    run
}

/// State letter of a process, as ps(1) shows it; `None` when it is gone.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn wait_for(what: &str, mut happens: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happens() {
        assert!(begin.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32, signal: libc::c_int) {
    // SAFETY: kill has no memory effects; the pid is a child's that is not reaped yet, or its
    // child's.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
}

/// A supervisor whose command has said its own pid: both pids.
fn start(script: &str) -> (Child, u32) {
    let mut supervisor = uzswap(&["sh", "-c", &format!("echo $$; {script}")])
        .stdout(Stdio::piped())
        // As a shell with job control does. The kernel does not stop a group that has nobody to
        // continue it, which the group of this test may be.
        .process_group(0)
        .spawn()
        .expect("uzswap starts");
    let mut line = String::new();
    BufReader::new(supervisor.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("the command writes");
    (supervisor, line.trim().parse().expect("a pid"))
}

#[test]
fn a_stop_stops_both_and_a_continue_continues_both() {
    let (mut supervisor, command) = start("exec sleep 0.5");
    let both = |wanted| state(supervisor.id()) == Some(wanted) && state(command) == Some(wanted);
    kill(supervisor.id(), libc::SIGTSTP);
    wait_for("both are stopped", || both('T'));
    kill(supervisor.id(), libc::SIGCONT);
    wait_for("both go on", || both('S') || state(command).is_none());
    assert!(supervisor.wait().expect("it ends").success());
}

#[test]
fn a_command_that_somebody_stops_does_not_strand_the_supervisor() {
    let (mut supervisor, command) = start("exec sleep 0.3");
    kill(command, libc::SIGSTOP);
    wait_for("the command is stopped", || state(command) == Some('T'));
    kill(command, libc::SIGCONT);
    assert!(supervisor.wait().expect("it ends").success());
}

#[test]
fn the_command_dies_with_a_killed_supervisor_and_the_next_run_tidies_up() {
    let (mut supervisor, command) = start("exec sleep 1000");
    let maps = fs::read_to_string(format!("/proc/{}/maps", supervisor.id())).expect("our child");
    let group = maps
        .lines()
        .filter_map(|line| line.split_once('/'))
        .map(|(_, path)| format!("/{path}"))
        .find(|path| path.ends_with(".group"))
        .expect("the supervisor maps its group");
    supervisor.kill().expect("it runs");
    supervisor.wait().expect("it ends");
    wait_for("the command is gone", || {
        matches!(state(command), None | Some('Z'))
    });
    assert!(uzswap(&["true"]).status().expect("starts").success());
    assert!(!fs::exists(&group).expect("readable"), "{group} is left");
}

#[test]
fn the_command_starts_with_the_signals_that_uzswap_was_given() {
    let read = |command: &mut Command| {
        let text = command.output().expect("starts").stdout;
        let text = String::from_utf8(text).expect("text");
        let kept = ["SigBlk", "SigIgn"];
        text.lines()
            .filter(|line| kept.iter().any(|k| line.starts_with(k)))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let binary = env!("CARGO_BIN_EXE_uzswap");
    for ignored in ["", "HUP", "HUP PIPE CHLD"] {
        let shell = |prefix: &str| {
            let trap = if ignored.is_empty() {
                String::new()
            } else {
                format!("trap '' {ignored}; ")
            };
            read(
                Command::new("bash")
                    .args(["-c", &format!("{trap}exec {prefix} cat /proc/self/status")]),
            )
        };
        let native = shell("");
        let managed = shell(&format!("{binary} run --quiet --ram 32M --"));
        assert_eq!(native.len(), 2);
        assert_eq!(managed, native, "ignored: {ignored:?}");
    }
}
