//! `ENTRYPOINT ["uzswap", "run", "--"]`: uzswap as process 1 of a container reaps whatever loses
//! its parent, passes signals on, and gives the command's status.

use std::process::Command;

use uzswap_e2e::{Job, find, root_or_skip, uzswap, wait_until};

/// uzswap as process 1 of a pid namespace, running `script` in a shell.
fn as_pid_1(script: &str) -> Command {
    let mut command = Command::new(find("unshare").expect("unshare is installed"));
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(uzswap())
        .args([
            "run", "--ram", "96M", "--quiet", "--", "/bin/sh", "-c", script,
        ]);
    command
}

#[test]
fn orphans_are_reaped_and_the_status_is_the_commands() {
    if !root_or_skip("a pid namespace") {
        return;
    }
    // Ten children that lose their parent at once, and end; then no zombie is left.
    let script = "
        test \"$(cat /proc/1/comm)\" = uzswap || exit 3
        for n in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.2 &) ; done
        sleep 1.5
        for stat in /proc/[0-9]*/stat; do
            read -r line < \"$stat\" || continue
            case \"$line\" in *') Z '*) echo \"zombie: $line\"; exit 4;; esac
        done
        exit 42";
    let ran = as_pid_1(script).output().expect("unshare starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(
        ran.status.code(),
        Some(42),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[test]
fn a_stop_of_the_container_reaches_the_command() {
    if !root_or_skip("a pid namespace") {
        return;
    }
    let scratch = uzswap_e2e::Scratch::new();
    let ready = scratch.join("ready");
    let script = format!(
        "trap 'exit 7' TERM; touch {}; while :; do sleep 0.05; done",
        ready.display()
    );
    let mut container = as_pid_1(&script).spawn().expect("unshare starts");
    wait_until("the command is ready", || ready.exists());
    // As 'docker stop' does: from outside, to process 1 of the container.
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    let first = std::fs::read_to_string(children).expect("its child");
    let told = Job::line("kill -TERM").arg(first.trim()).native();
    let _ = told.expect_success("kill");
    assert_eq!(container.wait().expect("it ends").code(), Some(7));
}
