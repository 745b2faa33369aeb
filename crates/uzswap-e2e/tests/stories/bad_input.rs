//! Bad input gets one clear line with the next step, and status 125 (126 and 127 for the command).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use uzswap_e2e::{Job, Outcome, Scratch, User, find, is_root, skip, uzswap, workspace};

/// Runs `uzswap LINE` and checks that it refuses with `status` in one line that has all `words`.
fn refuses(line: &str, status: i32, words: &[&str]) -> Outcome {
    refused(&Job::line(line), status, words)
}

fn refused(job: &Job, status: i32, words: &[&str]) -> Outcome {
    let outcome = job.uzswap_itself().expect_refused(status, words);
    assert!(outcome.stderr.starts_with("uzswap: "), "{}", outcome.stderr);
    assert!(outcome.stdout.is_empty(), "{}", outcome.text());
    outcome
}

#[test]
fn arguments_processes_and_commands() {
    let me = std::process::id().to_string();
    for (line, status, words) in [
        ("run --frob -- true", 125, &["--frob"][..]),
        ("frob", 125, &["frob"]),
        ("run", 125, &["COMMAND"]),
        ("run --ram", 125, &["--ram"]),
        ("run --compressor lzx -- true", 125, &["lzx", "lz4", "zstd"]),
        ("run --compressor zstd:99 -- true", 125, &["zstd:99"]),
        ("run --fault-mode magic -- true", 125, &["magic", "signal"]),
        ("run --folio 5K -- true", 125, &["5K", "64K"]),
        (
            "run --show-memory lots -- true",
            125,
            &["lots", "native", "limit"],
        ),
        ("run --show-memory 1K -- true", 125, &["1K", "1 MiB"]),
        (
            "run -- no-such-command",
            127,
            &["no-such-command", "not found"],
        ),
        ("run -- /no/such/file", 127, &["/no/such/file"]),
        ("run -- /usr", 126, &["/usr"]),
        ("stat 4194303", 125, &["4194303"]),
        ("stat myself", 2, &["myself", "no group"]),
        (&format!("stat {me}"), 125, &[&me, "not managed"]),
    ] {
        refuses(line, status, words);
    }
    let scratch = Scratch::new();
    let plain = scratch.write("plain", "echo no\n");
    let plain = plain.to_str().expect("scratch paths are text");
    refuses(&format!("run -- {plain}"), 126, &[plain]);
}

#[test]
fn malformed_sizes() {
    for size in [
        "lots",
        "12Q",
        "-5M",
        "",
        "M",
        "1.2.3G",
        "99999999999999999999G",
    ] {
        refuses(&format!("run --ram={size} -- true"), 125, &["size"]);
    }
    let job = Job::line("run -- true").env("UZSWAP_RAM", "lots");
    refused(&job, 125, &["lots"]);
}

#[test]
fn a_limit_too_small_names_the_smallest_that_works() {
    for ram in ["0", "4K", "1M"] {
        let line = format!("run --ram {ram} -- true");
        let outcome = refuses(&line, 125, &["too small", "least"]);
        let (_, least) = outcome.stderr.rsplit_once(" is ").expect("it names a size");
        let least = least.trim().replace(' ', "");
        let again = Job::line(&format!("run --ram {least} -- python3 -c"))
            .arg("print(sum(range(100000)))")
            .uzswap_itself()
            .expect_success("python with the smallest limit");
        assert_eq!(again.text(), "4999950000\n");
    }
}

#[test]
fn set_user_id_programs() {
    let Some(passwd) = find("passwd").filter(|_| is_root()) else {
        skip("needs root, to become an ordinary user, and passwd");
        return;
    };
    let metadata = fs::metadata(&passwd).expect("found above");
    if metadata.permissions().mode() & 0o4000 == 0 {
        skip("passwd is not set-user-ID here");
        return;
    }
    let job = Job::line("run --").arg(passwd).user(User::Ordinary);
    refused(&job, 125, &["set-user-ID", "--allow-unmanaged"]);
}

#[test]
fn an_unwritable_statistics_file_is_refused_before_the_command_starts() {
    let scratch = Scratch::new();
    let marker = scratch.join("started");
    let line = format!(
        "run --stats /no/such/dir/stats.json -- touch {}",
        marker.display()
    );
    refuses(&line, 125, &["/no/such/dir/stats.json", "--stats"]);
    assert!(!marker.exists(), "the command was started");
}

#[test]
fn a_run_within_a_run() {
    let line = format!("run --quiet -- {} run -- echo no", uzswap().display());
    refuses(&line, 125, &["already", "without"]);
}

#[test]
fn no_userfaultfd() {
    for (errno, word) in [
        (libc::EPERM, "permitted"),
        (libc::ENOSYS, "CONFIG_USERFAULTFD"),
    ] {
        let job = Job::line("run --fault-mode signal -- echo no").without_userfaultfd(errno);
        refused(&job, 125, &["userfaultfd", word]);
    }
}

#[test]
fn a_program_linked_into_the_arena() {
    let scratch = Scratch::new();
    let source = workspace().join("tests/programs/apps/in_arena.c");
    let section = "-Wl,--section-start=.inarena=0x100000400000";
    let program = scratch.compile_path(&source, &["-no-pie", "-mcmodel=large", section]);
    assert_eq!(Job::new(&program).native().text(), "0x100000400000: 42\n");
    let job = Job::line("run --quiet --").arg(&program);
    let words = ["in_arena", "0x100000000000", "--allow-unmanaged"];
    refused(&job, 125, &words);
    let job = Job::line("run --allow-unmanaged --").arg(&program);
    let allowed = job.uzswap_itself().expect_success("allowed");
    assert_eq!(allowed.text(), "0x100000400000: 42\n");
    allowed.expect_stderr(&["nothing was managed"]);
}
