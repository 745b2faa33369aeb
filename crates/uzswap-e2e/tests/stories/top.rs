//! `uzswap top` draws on a terminal and obeys its keys; anywhere else it prints one snapshot.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{Job, Live, MIB, Scratch, number, uzswap};

/// A pseudo-terminal of 120 by 40 and the program on it.
struct Screen {
    terminal: File,
    program: Child,
    seen: String,
}

impl Screen {
    fn start(args: &[&str]) -> Self {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize {
            ws_row: 40,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: openpty writes two descriptors and reads the size; name and settings may be null.
        let made = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: openpty returned them, and nothing else owns them.
        let (terminal, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let end = || slave.try_clone().expect("a descriptor");
        let program = Command::new(uzswap())
            .args(args)
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("uzswap starts");
        Screen {
            terminal,
            program,
            seen: String::new(),
        }
    }

    /// Waits until what was drawn since the last call has all `words`.
    fn shows(&mut self, words: &[&str]) {
        let began = Instant::now();
        let mut bytes = [0; 65536];
        while !words.iter().all(|word| self.seen.contains(word)) {
            let late = began.elapsed() > Duration::from_secs(60);
            assert!(!late, "{words:?} are not all in:\n{}", self.seen);
            let nr = self.terminal.read(&mut bytes).expect("it draws");
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..nr]));
        }
        self.seen.clear();
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("keys");
    }

    /// Checks that it restores the terminal and exits with status 0.
    fn ends(mut self) {
        self.shows(&["\x1b[?1049l"]);
        let status = self.program.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

fn idle(scratch: &Scratch) -> Live {
    Job::idle(scratch, 96).ram_mib(32).start_until("idle\n")
}

fn end(live: Live) {
    assert_eq!(live.end_by(libc::SIGTERM).text(), "idle\nright\n");
}

fn snapshot(args: &[&str]) -> Vec<Value> {
    let json = Job::new("top").args(args).uzswap_itself();
    let json = json.expect_success("top --json").json();
    json.as_array().expect("an array").clone()
}

#[test]
fn on_a_terminal() {
    let scratch = Scratch::new();
    let live = idle(&scratch);
    let pid = snapshot(&["--json", &live.pid().to_string()])[0]["pid"].to_string();
    let mut screen = Screen::start(&["top", &live.pid().to_string(), "-d", "0.2"]);
    screen.shows(&[
        "\x1b[?1049h",
        "RESIDENT",
        "SWAPOUT/s",
        &pid,
        "idle",
        "MiB",
        "quit",
    ]);
    screen.press("s");
    screen.press("q");
    screen.ends();
    // One process over time, and from there all of them.
    let mut screen = Screen::start(&["top", &pid]);
    screen.shows(&[&pid, "idle", "metadata", "faults/s", "Esc"]);
    screen.press("\x1b");
    screen.shows(&["SWAPOUT/s"]);
    screen.press("\x03");
    screen.ends();
    end(live);
}

#[test]
fn a_snapshot_off_a_terminal() {
    let scratch = Scratch::new();
    let live = idle(&scratch);
    let run = live.pid().to_string();
    let rows = snapshot(&["--json", &run]);
    let [row] = &rows[..] else {
        panic!("one process: {rows:?}")
    };
    assert_eq!(row["name"], "idle");
    assert_eq!(row["supervisor"].to_string(), run);
    assert_eq!(row["ram_limit"], 32 * MIB);
    let size = |key: &str| number(row, key);
    assert!(
        size("resident") + size("zswap") + size("metadata") <= 32 * MIB,
        "{row}"
    );
    assert!(size("zswapped") > 60 * MIB, "{row}");
    assert_eq!(row["faults_per_s"], 0.0, "it sleeps");
    let pid = row["pid"].to_string();
    for args in [vec![], vec![run.as_str()], vec![pid.as_str()]] {
        let text = Job::new("top")
            .args(&args)
            .uzswap_itself()
            .expect_success("top");
        let text = text.text();
        assert!(text.trim_start().starts_with("PID NAME"), "{text}");
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(&pid));
        let line = line.unwrap_or_else(|| panic!("no {pid} in {text}"));
        for word in ["idle", "32 MiB"] {
            assert!(line.contains(word), "{line}");
        }
    }
    end(live);
    let me = std::process::id().to_string();
    for (args, status, word) in [
        (vec![me.as_str()], 1, "not managed"),
        (vec!["-d", "never"], 2, "not a time"),
        (vec!["nobody"], 2, "nobody"),
    ] {
        let refused = Job::new("top").args(&args).uzswap_itself();
        let _ = refused.expect_refused(status, &[word]);
    }
}
