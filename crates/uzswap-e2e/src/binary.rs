//! The binary under test, built once for each test process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::scratch::own_name;

/// Root of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    // crates/uzswap-e2e is two below it.
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies two levels below the workspace")
}

/// The `uzswap` binary: `UZSWAP_BIN`, or a debug build of this workspace. The preload library in it
/// is optimised as in a release, and checks its equations (`uzswap_sync::strict`).
///
/// # Panics
/// If the build fails.
pub fn uzswap() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var_os("UZSWAP_BIN").map_or_else(
            || build("plain", &["--features", "uzswap-cli/strict"]),
            PathBuf::from,
        )
    })
}

/// The `uzswap` binary with failure injection: `UZSWAP_FAULTS_BIN`, or a build of this workspace
/// whose preload library is a debug one, with the engine's assertions.
///
/// # Panics
/// As [`uzswap`].
pub fn uzswap_failing() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var_os("UZSWAP_FAULTS_BIN").map_or_else(
            || build("failing", &["--features", "uzswap-cli/fault-injection"]),
            PathBuf::from,
        )
    })
}

/// Builds it with `options`. The whole workspace is named, as for its tests, so that nothing is
/// built twice.
fn build(name: &str, options: &[&str]) -> PathBuf {
    // Cargo writes both builds to one file.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().expect("no build has failed");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "uzswap"])
        .args(options)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "cargo build --bin uzswap {options:?} failed"
    );
    let built = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|m| m["target"]["name"] == "uzswap")
        .find_map(|m| m["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the uzswap executable");
    keep(&built, name).expect("a file can be linked beside it")
}

/// Makes another link to `built`, which the next build does not replace.
fn keep(built: &Path, name: &str) -> io::Result<PathBuf> {
    let dir = built.with_file_name(format!("stories-{name}"));
    fs::create_dir_all(&dir)?;
    let (fresh, kept) = (dir.join(own_name()), dir.join("uzswap"));
    fs::hard_link(built, &fresh)?;
    fs::rename(&fresh, &kept)?;
    // If both names were one file already, rename left `fresh`.
    let _ = fs::remove_file(&fresh);
    Ok(kept)
}
