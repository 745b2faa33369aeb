//! Links the archive that `libdeflate-sys` builds.
//!
//! That crate stands in Cargo.toml for its C sources only. Naming it in code would link `std` into
//! this `no_std` crate (and a second panic handler into the preload library), so we take just the
//! archive, whose place cargo tells through the crate's `links` metadata.

fn main() {
    const ROOT: &str = "DEP_LIBDEFLATE_ROOT";
    println!("cargo:rerun-if-env-changed={ROOT}");
    let root = std::env::var(ROOT)
        .unwrap_or_else(|_| panic!("{ROOT} is not set: libdeflate-sys must be built first"));
    println!("cargo:rustc-link-search=native={root}/lib");
    println!("cargo:rustc-link-lib=static=deflate");
}
