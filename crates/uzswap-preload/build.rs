//! Link options of the preload library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What we export we also use ourselves: the allocator's mmap must be ours even where the
    // program exports one too.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // All of it resolved at load time: no lazy binding inside a signal handler.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    // Never unloaded: handlers and filters point into it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // mimalloc's prctl goes through us, the program's does not.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=prctl");
}
