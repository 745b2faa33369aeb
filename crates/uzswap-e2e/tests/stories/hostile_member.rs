//! A program that root runs has a part that gives up its rights, and is hostile. It may write the
//! group file as it likes, and yet runs no code in what root's processes execute, and has nobody
//! else's process signalled.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use uzswap_e2e::{Job, Scratch, find_or_skip, root_or_skip, workspace};

/// What the hostile part is written in.
fn python() -> Option<PathBuf> {
    let is_root = root_or_skip("a member that gives up its rights");
    is_root
        .then(|| find_or_skip("python3", "python3"))
        .flatten()
}

/// The hostile part.
fn scribble() -> PathBuf {
    workspace().join("tests/programs/hostile/scribble.py")
}

#[test]
fn has_no_code_run_by_roots_processes() {
    let Some(python) = python() else { return };
    let Some(busybox) = find_or_skip("busybox", "busybox-static") else {
        return;
    };
    let scratch = Scratch::new();
    let build = |source: &str, name: &str, options: &[&str]| {
        let built = scratch.compile_by("gcc", source, name, options)?;
        Some(built.display().to_string())
    };
    let (Some(library), Some(image), Some(fixed)) = (
        build("hostile/library.c", "library.so", &["-shared", "-fPIC"]),
        build(
            "hostile/image.c",
            "image",
            &["-static", "-nostdlib", IMAGE_PLACE],
        ),
        build("apps/hello.c", "static", &["-static"]),
    ) else {
        return;
    };
    let hello = scratch.compile("apps/hello.c");
    let [python, busybox, hello] = [&python, &busybox, &hello].map(|path| path.display());
    // The shell executes what the image serves, and busybox, which the image serves, what the
    // library does.
    let script = format!(
        "{python} {} files {library} {image} && {fixed} && {busybox} env {hello}",
        scribble().display()
    );
    let outcome = Job::new("sh").args(["-c", &script]).ram_mib(64).managed();
    let outcome = outcome.expect_success("a shell with a hostile child");
    assert_eq!(outcome.text(), "written\nhello\nhello\n");
    // The shell, python, and both programs: all managed.
    assert!(outcome.stat("processes") >= 4, "{}", outcome.stats);
}

/// Where nothing else is mapped.
const IMAGE_PLACE: &str = "-Wl,-Ttext-segment=0x0ff000000000";

#[test]
fn has_nobody_elses_process_signalled() {
    let Some(python) = python() else { return };
    let mut other = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .expect("sleep starts");
    let live = Job::new(python)
        .arg(scribble())
        .args(["record", &other.id().to_string()])
        .ram_mib(64)
        .start_until("written\n");
    let asked = live.uzswap("reclaim", &["8M"]);
    let ended = other.try_wait().expect("sleep is a child");
    let _ = other.kill();
    let _ = other.wait();
    assert_eq!(ended, None, "{}", asked.stderr);
}
