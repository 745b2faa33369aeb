//! `gcc -O2` on a big C file makes the same object from a quarter of the memory.

use std::fs;

use uzswap_corpus::source;
use uzswap_e2e::{Job, MIB, Scratch, find_or_skip};

#[test]
fn the_same_object_file() {
    let Some(gcc) = find_or_skip("gcc", "gcc") else {
        return;
    };
    let scratch = Scratch::new();
    let source = scratch.write("big.c", source::c(1, 250));
    let object = scratch.join("big.o");
    let job = Job::new(&gcc)
        .words("-O2 -g -c -o")
        .arg(&object)
        .arg(&source)
        .env("TMPDIR", scratch.path())
        .cwd(scratch.path());
    // The object goes before the next run: an ordinary user could not overwrite it.
    let take_object = || {
        let bytes = fs::read(&object).expect("gcc made it");
        fs::remove_file(&object).expect("it is there");
        bytes
    };
    let native = job.native().expect_success("gcc alone");
    let native_object = take_object();
    // cc1 alone is a file of 30 MiB.
    job.same_in_a_quarter_of(&native, 64 * MIB, |user| {
        assert!(
            take_object() == native_object,
            "the objects differ; seen as {user:?}"
        );
    });
}
