//! GNU sort of a big file, with `--parallel`, in a quarter of its memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use uzswap_e2e::{Job, MIB, Scratch, find_or_skip};

/// Writes `bytes` of unsorted lines.
fn write_lines(path: &Path, bytes: usize) {
    let mut out = BufWriter::new(File::create(path).expect("scratch files can be written"));
    let (mut x, mut written) = (12345_u64, 0);
    while written < bytes {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let line = format!(
            "{:06x} customer-{:05}@shop.example ordered an item, paid it in three parts, had it left at \
             the door, rang twice, minded the dog and wrote a letter\n",
            x >> 40,
            x >> 50
        );
        out.write_all(line.as_bytes()).expect("the disk has room");
        written += line.len();
    }
    out.flush().expect("the disk has room");
}

#[test]
fn the_same_order() {
    let Some(sort) = find_or_skip("sort", "coreutils") else {
        return;
    };
    let scratch = Scratch::new();
    write_lines(&scratch.join("input"), 50 << 20);
    let output = scratch.join("output");
    let job = Job::new(&sort)
        .args(["--parallel=4", "-S", "700M", "-T"])
        .arg(scratch.path())
        .arg("-o")
        .arg(&output)
        .arg(scratch.join("input"))
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
