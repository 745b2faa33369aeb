//! Names the shared library, and keeps it loaded: its signal handlers stay.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuzswap.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
