//! What `uzswap completions` and `uzswap man` print, shells and man(1) accept; `--version
//! --verbose` says what the binary is.

use std::fs;
use std::process::Command;

use uzswap_e2e::{Job, Scratch, find, find_or_skip};

fn completions(shell: &str) -> String {
    let printed = Job::new("completions").arg(shell).uzswap_itself();
    printed.expect_success(shell).text()
}

#[test]
fn bash_completes_subcommands_and_options() {
    let scratch = Scratch::new();
    let file = scratch.join("uzswap");
    fs::write(&file, completions("bash")).expect("a file");
    let complete = |words: &str| {
        let script = format!(
            "source '{}'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _uzswap uzswap \"${{COMP_WORDS[COMP_CWORD]}}\" x; echo \"${{COMPREPLY[*]}}\"",
            file.display()
        );
        let bash = find("bash").expect("bash is installed");
        let said = Command::new(bash)
            .args(["-c", &script])
            .output()
            .expect("bash starts");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    assert_eq!(complete("uzswap doc"), "doctor");
    assert_eq!(complete("uzswap run --idle"), "--idle-reclaim");
    assert_eq!(complete("uzswap man"), "", "what is hidden is not offered");
}

#[test]
fn zsh_and_fish_parse_theirs() {
    for shell in ["zsh", "fish"] {
        let scratch = Scratch::new();
        let file = scratch.join("uzswap");
        let text = completions(shell);
        assert!(text.contains("idle-reclaim"), "{shell}");
        fs::write(&file, text).expect("a file");
        let Some(path) = find_or_skip(shell, shell) else {
            continue;
        };
        let parsed = Command::new(path)
            .arg("-n")
            .arg(&file)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&parsed.stderr);
        assert!(parsed.status.success(), "{shell}: {said}");
    }
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let scratch = Scratch::new();
    let dir = scratch.join("man1");
    let _ = Job::new("man")
        .arg(&dir)
        .uzswap_itself()
        .expect_success("man");
    for name in [
        "uzswap",
        "uzswap-run",
        "uzswap-doctor",
        "uzswap-jupyter-install",
    ] {
        let page = fs::read_to_string(dir.join(format!("{name}.1"))).expect(name);
        for part in [".TH", ".SH SYNOPSIS", ".SH EXAMPLES\n.nf\n"] {
            assert!(
                page.contains(part) || name.ends_with("install"),
                "{name}: {part}"
            );
        }
    }
    assert!(!dir.join("uzswap-man.1").exists(), "it is hidden");
    let Some(mandoc) = find_or_skip("mandoc", "mandoc") else {
        return;
    };
    for page in fs::read_dir(&dir).expect("pages") {
        let page = page.expect("a page").path();
        let mut lint = Command::new(&mandoc);
        let lint = lint.args(["-T", "lint", "-W", "error"]).arg(&page).output();
        let lint = lint.expect("mandoc starts");
        let said = String::from_utf8_lossy(&lint.stdout);
        assert!(lint.status.success(), "{}: {said}", page.display());
    }
}

#[test]
fn the_version_says_what_the_binary_is() {
    let said = Job::line("--version --verbose").uzswap_itself();
    let said = said.expect_success("version").text();
    for part in [
        "uzswap ",
        "commit ",
        "features ",
        "lz4, zstd:",
        "libuzswap-",
        "modes here ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let short = Job::new("-V")
        .uzswap_itself()
        .expect_success("version")
        .text();
    assert_eq!(short.lines().count(), 1, "{short}");
}
