//! The release binary under test, built once for each test process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Root of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    // crates/uzswap-e2e is two below it.
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two levels below the workspace")
}

/// The `uzswap` binary: `UZSWAP_BIN`, or a release build of this workspace.
///
/// # Panics
/// If the build fails: no story can be told without it.
pub fn uzswap() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var_os("UZSWAP_BIN").map_or_else(|| build(&["--release"]), PathBuf::from)
    })
}

/// A `uzswap` whose swap device fails as it is told: `UZSWAP_FAULTS_BIN`, or a debug build of this workspace, which
/// has the engine's assertions in it and is built much faster.
///
/// # Panics
/// As [`uzswap`].
pub fn uzswap_with_faults() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var_os("UZSWAP_FAULTS_BIN").map_or_else(
            || build(&["--features", "uzswap-cli/fault-injection"]),
            PathBuf::from,
        )
    })
}

fn build(how: &[&str]) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "-p", "uzswap-cli"])
        .args(how)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "cargo build -p uzswap-cli {how:?} failed"
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|m| m["target"]["name"] == "uzswap")
        .find_map(|m| m["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the uzswap executable")
}
