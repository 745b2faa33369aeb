//! GNU sort of a big file, with `--parallel`, in a quarter of its memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use uzswap_e2e::{Job, MIB, Scratch, find_or_skip, users};

/// `bytes` of unsorted lines, straight to the file: this process stays small (see `Outcome::peak_rss`).
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
    let job = |output: &str| {
        Job::new(&sort)
            .args(["--parallel=4", "-S", "700M", "-T"])
            .arg(scratch.path())
            .arg("-o")
            .arg(scratch.join(output))
            .arg(scratch.join("input"))
            .env("LC_ALL", "C")
    };
    let native = job("native").native().expect_success("sort alone");
    let ram = native.peak_rss / 4 / MIB;
    println!("native peak {} MiB, --ram {ram}M", native.peak_rss / MIB);
    for &user in users() {
        let output = format!("{user:?}");
        let managed = job(&output)
            .ram_mib(ram)
            .user(user)
            .managed()
            .expect_success("sort in a quarter");
        managed.expect_within(16 * MIB);
        managed.expect_quarter_of(&native);
        let _ = Job::new("cmp")
            .args([scratch.join("native"), scratch.join(output)])
            .native()
            .expect_success("the two orders are the same");
    }
}
