//! GNU sort of a big file, with `--parallel`, in a quarter of its memory.

use std::fs;

use uzswap_corpus::source;
use uzswap_e2e::{Job, MIB, Scratch, find_or_skip};

#[test]
fn the_same_order() {
    let Some(sort) = find_or_skip("sort", "coreutils") else {
        return;
    };
    let scratch = Scratch::new();
    let input = scratch.write("input", source::lines(50));
    let output = scratch.join("output");
    let job = Job::new(&sort)
        .words("--parallel=4 -S 700M -T")
        .arg(scratch.path())
        .arg("-o")
        .arg(&output)
        .arg(input)
        .env("LC_ALL", "C");
    let native = job.native().expect_success("sort alone");
    fs::rename(&output, scratch.join("native")).expect("sort made it");
    job.same_in_a_quarter_of(&native, 16 * MIB, |_| {
        let _ = Job::new("cmp")
            .args([scratch.join("native"), output.clone()])
            .native()
            .expect_success("the two orders are the same");
        fs::remove_file(&output).expect("sort made it");
    });
}
