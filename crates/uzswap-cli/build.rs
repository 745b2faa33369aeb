//! Builds the preload library that the `uzswap` binary carries.
//!
//! A second cargo builds it in its own target directory: as a dependency of this crate it would
//! share features and panic strategy with a std program, and the running cargo holds the lock of
//! the main target directory.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let crate_dir =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let root = crate_dir.join("../..");
    for path in [
        "Cargo.toml",
        "Cargo.lock",
        "crates/uzswap-preload",
        "crates/uzswap-core",
        "crates/uzswap-group",
        "crates/uzswap-pool",
        "crates/uzswap-slots",
        "crates/uzswap-sync",
        "crates/uzswap-compress",
        "crates/uzswap-pz",
        "crates/uzswap-io",
        "crates/uzswap-sys",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo::rerun-if-env-changed=UZSWAP_STUB_PRELOAD");

    let library = if env::var_os("UZSWAP_STUB_PRELOAD").is_some() {
        stub(&out_dir, "UZSWAP_STUB_PRELOAD is set")
    } else {
        match build(&root, &out_dir) {
            Ok(library) => library,
            Err(why) => {
                // Without its library uzswap cannot run anything.
                println!("cargo::error={why}; UZSWAP_STUB_PRELOAD=1 builds a uzswap without it");
                std::process::exit(1);
            }
        }
    };
    let bytes = fs::read(&library).expect("the preload library was just written");
    // The hash tells versions apart in the file name. The content is compared before it is used.
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    println!(
        "cargo::rustc-env=UZSWAP_PRELOAD_HASH={:016x}",
        hasher.finish()
    );
    println!(
        "cargo::rustc-env=UZSWAP_PRELOAD_LIBRARY={}",
        library.display()
    );
}

/// Builds `uzswap-preload` and copies its library to `out_dir`.
fn build(root: &Path, out_dir: &Path) -> Result<PathBuf, String> {
    let strict = env::var_os("CARGO_FEATURE_STRICT").is_some();
    let target_dir = target_dir(out_dir, strict);
    let target = env::var("TARGET").map_err(|e| e.to_string())?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    // With injected failures, the debug build: its assertions are wanted then.
    let (profile, mut how): (_, Vec<&str>) = match env::var_os("CARGO_FEATURE_FAULT_INJECTION") {
        None => ("release", vec!["--release"]),
        Some(_) => ("debug", vec!["--features", "fault-injection"]),
    };
    if strict {
        how.extend(["--features", "strict"]);
    }
    let status = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--locked", "-p", "uzswap-preload"])
        .args(how)
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&target_dir)
        // The library travels inside a binary; its symbols stay for backtraces.
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        // These are for the outer build: clippy's driver, flags of the main target.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_BUILD_DIR")
        .status()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    if !status.success() {
        return Err("uzswap-preload does not build".to_owned());
    }
    let built = target_dir
        .join(target)
        .join(profile)
        .join("libuzswap_preload.so");
    let library = out_dir.join("libuzswap_preload.so");
    fs::copy(&built, &library).map_err(|e| format!("{}: {e}", built.display()))?;
    Ok(library)
}

/// One directory for the debug and the release build of this crate: beside `target/debug` when
/// `out_dir` is `target/debug/build/uzswap-cli-…/out`. Strict libraries have their own.
fn target_dir(out_dir: &Path, strict: bool) -> PathBuf {
    let name = if strict { "preload-strict" } else { "preload" };
    out_dir
        .ancestors()
        .find(|dir| dir.ends_with("build"))
        .and_then(|build| build.parent()?.parent())
        .map_or_else(|| out_dir.join(name), |target| target.join(name))
}

fn stub(out_dir: &Path, why: &str) -> PathBuf {
    println!("cargo::warning=uzswap carries no preload library and cannot run anything: {why}");
    let library = out_dir.join("empty.so");
    fs::write(&library, []).expect("OUT_DIR is writable");
    library
}
