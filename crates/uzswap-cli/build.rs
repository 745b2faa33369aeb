//! Builds the engine in the two forms that the `uzswap` binary carries: the preload library, and
//! the image for programs that no library is preloaded into.
//!
//! A second cargo builds them in their own target directory: as a dependency of this crate they
//! would share features and panic strategy with a std program, and the running cargo holds the lock
//! of the main target directory.

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

    let [library, image] = if env::var_os("UZSWAP_STUB_PRELOAD").is_some() {
        stub(&out_dir, "UZSWAP_STUB_PRELOAD is set")
    } else {
        match build(&root, &out_dir) {
            Ok(forms) => forms,
            Err(why) => {
                // Without its library uzswap cannot run anything.
                println!("cargo::error={why}; UZSWAP_STUB_PRELOAD=1 builds a uzswap without it");
                std::process::exit(1);
            }
        }
    };
    carry(&library, "UZSWAP_PRELOAD_LIBRARY", "UZSWAP_PRELOAD_HASH");
    carry(&image, "UZSWAP_IMAGE", "UZSWAP_IMAGE_HASH");
}

/// Tells the crate where a file is, and its hash, which tells versions apart in the file name. The
/// content is compared before it is used.
fn carry(file: &Path, path: &str, hash: &str) {
    let bytes = fs::read(file).expect("the file was just written");
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    println!("cargo::rustc-env={hash}={:016x}", hasher.finish());
    println!("cargo::rustc-env={path}={}", file.display());
}

/// Builds `uzswap-preload` in both forms, and puts them into `out_dir`.
fn build(root: &Path, out_dir: &Path) -> Result<[PathBuf; 2], String> {
    let strict = env::var_os("CARGO_FEATURE_STRICT").is_some();
    let target_dir = target_dir(out_dir, strict);
    let target = env::var("TARGET").map_err(|e| e.to_string())?;
    // With injected failures, the debug build: its assertions are wanted then.
    let injects = env::var_os("CARGO_FEATURE_FAULT_INJECTION").is_some();
    let mut how = Vec::new();
    if injects {
        how.extend(["--features", "fault-injection"]);
    } else {
        how.push("--release");
    }
    if strict {
        how.extend(["--features", "strict"]);
    }
    let built = target_dir
        .join(&target)
        .join(if injects { "debug" } else { "release" });
    let remapped = remapped();
    let rustflags: Vec<_> = remapped
        .iter()
        .map(|map| format!("--remap-path-prefix={map}"))
        .collect();
    // The image has no thread-local storage to keep a stack protector's word in, and the library
    // may run where another C library's is. Both are built with the same options, so that most is
    // built once.
    let mut cflags = String::from("-fno-stack-protector -DZSTD_TRACE=0");
    for map in &remapped {
        cflags += &format!(" -ffile-prefix-map={map}");
    }
    let make = |form: &[&str]| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command
            .current_dir(root)
            .args(["rustc", "--locked", "-p", "uzswap-preload"])
            .args(&how)
            .args(["--target", &target])
            .arg("--target-dir")
            .arg(&target_dir)
            .args(form)
            .env("CFLAGS", &cflags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            // The forms travel inside a binary; their symbols stay for backtraces.
            .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
            // These are for the outer build: clippy's driver, flags of the main target.
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env_remove("CARGO_BUILD_TARGET")
            .env_remove("CARGO_BUILD_TARGET_DIR")
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CARGO_BUILD_BUILD_DIR");
        if !rustflags.is_empty() {
            command.env("CARGO_ENCODED_RUSTFLAGS", rustflags.join(RUSTFLAGS_MARK));
        }
        run(&mut command, "uzswap-preload does not build")
    };
    make(&["--crate-type", "cdylib"])?;
    let library = out_dir.join("libuzswap_preload.so");
    let made = built.join("libuzswap_preload.so");
    fs::copy(&made, &library).map_err(|e| format!("{}: {e}", made.display()))?;
    make(&["--features", "loader", "--crate-type", "staticlib"])?;
    let image = out_dir.join("uzswap-image");
    link(&built.join("libuzswap_preload.a"), &image)?;
    Ok([library, image])
}

/// What separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const RUSTFLAGS_MARK: &str = "\x1f";

/// Of the flags of the outer build those that the engine is built with, too: by which names source
/// files are known, `FROM=TO`. A package is the same wherever it was built.
fn remapped() -> Vec<String> {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let maps = flags.split(RUSTFLAGS_MARK);
    let maps = maps.filter_map(|flag| flag.strip_prefix("--remap-path-prefix="));
    maps.map(str::to_owned).collect()
}

/// Links the image: a static program at a fixed address, which needs no relocation wherever it is
/// mapped there. The address is `BASE` in `uzswap-preload/src/loader.rs`.
fn link(archive: &Path, image: &Path) -> Result<(), String> {
    let mut command = Command::new(env::var_os("CC").unwrap_or_else(|| OsString::from("cc")));
    command
        .args(["-nostdlib", "-static", "-no-pie", "-Wl,--gc-sections"])
        .args(["-Wl,-Ttext-segment=0x0ffd00000000", "-Wl,--build-id=none"])
        .args(["-Wl,-e,uzswap_start", "-Wl,-u,uzswap_start"])
        // So far up, an address does not fit where the linker would shorten code.
        .args(["-Wl,--no-relax", "-Wl,-z,norelro", "-Wl,-z,noexecstack"])
        .arg("-Wl,--strip-debug")
        .arg(archive)
        .arg("-o")
        .arg(image);
    run(&mut command, "the image does not link")
}

fn run(command: &mut Command, failed: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(failed.to_owned()),
        Err(error) => Err(format!("cannot start {:?}: {error}", command.get_program())),
    }
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

fn stub(out_dir: &Path, why: &str) -> [PathBuf; 2] {
    println!("cargo::warning=uzswap carries no preload library and cannot run anything: {why}");
    let empty = out_dir.join("empty");
    fs::write(&empty, []).expect("OUT_DIR is writable");
    [empty.clone(), empty]
}
