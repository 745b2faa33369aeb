//! Bad input gets one clear line with the next step, and status 125 (126 and 127 for the command).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use uzswap_e2e::{Job, Outcome, Scratch, User, find, is_root, skip, uzswap, workspace};

/// Runs `uzswap ARGS` and checks that it refuses with `status` in one line that has all `words`.
fn refuses(args: &[&str], status: i32, words: &[&str]) -> Outcome {
    refused(
        Job::new(args[0]).args(&args[1..]).uzswap_itself(),
        status,
        words,
    )
}

fn refused(outcome: Outcome, status: i32, words: &[&str]) -> Outcome {
    let outcome = outcome.expect_refused(status, words);
    assert!(outcome.stderr.starts_with("uzswap: "), "{}", outcome.stderr);
    assert!(outcome.stdout.is_empty(), "{}", outcome.text());
    outcome
}

#[test]
fn unknown_options_and_commands() {
    refuses(&["run", "--frob", "--", "true"], 125, &["--frob"]);
    refuses(&["frob"], 125, &["frob"]);
    refuses(&["run"], 125, &["COMMAND"]);
    refuses(&["run", "--ram"], 125, &["--ram"]);
    refuses(
        &["run", "--compressor", "lzx", "--", "true"],
        125,
        &["lzx", "lz4", "zstd"],
    );
    refuses(
        &["run", "--compressor", "zstd:99", "--", "true"],
        125,
        &["zstd:99"],
    );
    refuses(
        &["run", "--fault-mode", "magic", "--", "true"],
        125,
        &["magic", "signal"],
    );
    refuses(&["run", "--folio", "5K", "--", "true"], 125, &["5K", "64K"]);
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
        let option = format!("--ram={size}");
        refuses(&["run", &option, "--", "true"], 125, &["size"]);
    }
    let outcome = Job::new("run")
        .args(["--", "true"])
        .env("UZSWAP_RAM", "lots")
        .uzswap_itself();
    refused(outcome, 125, &["lots"]);
}

#[test]
fn a_limit_too_small_names_the_smallest_that_works() {
    for ram in ["0", "4K", "1M"] {
        let outcome = refuses(
            &["run", "--ram", ram, "--", "true"],
            125,
            &["too small", "least"],
        );
        let least: String = outcome
            .stderr
            .rsplit(" is ")
            .next()
            .expect("rsplit gives one at least")
            .trim()
            .chars()
            .filter(|c| *c != ' ')
            .collect();
        let again = Job::new("run")
            .args([
                "--ram",
                &least,
                "--",
                "python3",
                "-c",
                "print(sum(range(100000)))",
            ])
            .uzswap_itself();
        assert_eq!(
            (again.status, again.text().as_str()),
            (0, "4999950000\n"),
            "{}",
            again.stderr
        );
    }
}

#[test]
fn missing_and_not_executable_commands() {
    let scratch = Scratch::new();
    let plain = scratch.write("plain", "echo no\n");
    let plain = plain.to_str().expect("scratch paths are text");
    refuses(
        &["run", "--", "no-such-command-here"],
        127,
        &["no-such-command-here", "not found"],
    );
    refuses(&["run", "--", "/no/such/file"], 127, &["/no/such/file"]);
    refuses(&["run", "--", plain], 126, &[plain]);
    refuses(&["run", "--", "/usr"], 126, &["/usr"]);
}

#[test]
fn static_programs() {
    let scratch = Scratch::new();
    let source = workspace().join("tests/programs/apps/hello.c");
    let program = scratch.compile_path(&source, &["-static"]);
    let program = program.to_str().expect("scratch paths are text");
    refuses(
        &["run", "--", program],
        125,
        &["static", "--allow-unmanaged"],
    );
    let allowed = Job::new("run")
        .args(["--allow-unmanaged", "--", program, "7"])
        .uzswap_itself();
    assert_eq!(
        (allowed.status, allowed.text().as_str()),
        (7, "hello\n"),
        "{}",
        allowed.stderr
    );
    allowed.expect_stderr(&["nothing was managed"]);
}

#[test]
fn set_user_id_programs() {
    let Some(passwd) = find("passwd").filter(|_| is_root()) else {
        skip("needs root, to become an ordinary user, and passwd");
        return;
    };
    let mode = fs::metadata(&passwd)
        .expect("found above")
        .permissions()
        .mode();
    if mode & 0o4000 == 0 {
        skip("passwd is not set-user-ID here");
        return;
    }
    let outcome = Job::new("run")
        .arg("--")
        .arg(passwd)
        .user(User::Ordinary)
        .uzswap_itself();
    refused(outcome, 125, &["set-user-ID", "--allow-unmanaged"]);
}

#[test]
fn an_unwritable_statistics_file_is_refused_before_the_command_starts() {
    let scratch = Scratch::new();
    let marker = scratch.join("started");
    let command = format!("touch {}", marker.display());
    refuses(
        &[
            "run",
            "--stats",
            "/no/such/dir/stats.json",
            "--",
            "sh",
            "-c",
            &command,
        ],
        125,
        &["/no/such/dir/stats.json", "--stats"],
    );
    assert!(!marker.exists(), "the command was started");
}

#[test]
fn a_run_within_a_run() {
    let outcome = Job::new("run")
        .args(["--quiet", "--"])
        .arg(uzswap())
        .args(["run", "--", "echo", "no"])
        .uzswap_itself();
    refused(outcome, 125, &["already", "without"]);
}

#[test]
fn no_userfaultfd() {
    for (errno, word) in [
        (libc::EPERM, "permitted"),
        (libc::ENOSYS, "CONFIG_USERFAULTFD"),
    ] {
        let outcome = Job::new("run")
            .args(["--fault-mode", "signal", "--", "echo", "no"])
            .without_userfaultfd(errno)
            .uzswap_itself();
        refused(outcome, 125, &["userfaultfd", word]);
    }
}

#[test]
fn a_program_linked_into_the_arena() {
    let scratch = Scratch::new();
    let source = workspace().join("tests/programs/apps/in_arena.c");
    let program = scratch.compile_path(
        &source,
        &[
            "-no-pie",
            "-mcmodel=large",
            "-Wl,--section-start=.inarena=0x100000400000",
        ],
    );
    assert_eq!(Job::new(&program).native().text(), "0x100000400000: 42\n");
    let outcome = Job::new("run")
        .args(["--quiet", "--"])
        .arg(&program)
        .uzswap_itself();
    refused(outcome, 125, &["in_arena", "0x100000000000"]);
}

#[test]
fn processes_that_are_not_managed() {
    refuses(&["stat", "4194303"], 125, &["4194303"]);
    refuses(&["stat", "myself"], 125, &["myself"]);
    let me = std::process::id().to_string();
    refuses(&["stat", &me], 125, &[&me, "not managed"]);
}
