//! Names the shared library, has its symbols carry that name as their version, and keeps it loaded:
//! its signal handlers stay.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuzswap.so.0");
    // lld knows no default version.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--default-symver");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
