//! `gcc -O2` on a big C file makes the same object from a quarter of the memory.

use std::fmt::Write;
use std::fs;

use uzswap_e2e::{Job, MIB, Scratch, find_or_skip};

/// Functions and tables, as generators of parsers and bindings write them.
fn big_source() -> String {
    let mut c = String::from("#include <stddef.h>\n");
    for f in 0..150 {
        let _ = writeln!(
            c,
            "int f{f}(const int *p, size_t n, int x) {{\n  int s = {f};\n  for (size_t i = 0; i < n; i++) {{\n    \
             switch ((p[i] + x) % 7) {{"
        );
        for case in 0..7 {
            let _ = writeln!(
                c,
                "    case {case}: s = s * {} + p[i] / {}; if (s > {}) s -= p[(i * {}) % n]; break;",
                case + 3,
                f % 11 + 2,
                f * 100 + case,
                case + 1
            );
        }
        let _ = writeln!(c, "    }}\n  }}\n  return s ^ {};\n}}", f * 31);
    }
    c += "const struct entry { const char *name; int value; const short row[8]; } table[] = {\n";
    for i in 0..60_000 {
        let _ = writeln!(
            c,
            "  {{ \"entry number {i}\", {i}, {{ 1, 2, 3, {}, 5, 6, 7, 8 }} }},",
            i % 1000
        );
    }
    c += "};\n";
    c
}

#[test]
fn the_same_object_file() {
    let Some(gcc) = find_or_skip("gcc", "gcc") else {
        return;
    };
    let scratch = Scratch::new();
    let source = scratch.write("big.c", big_source());
    let object = scratch.join("big.o");
    let job = Job::new(&gcc)
        .args(["-O2", "-g", "-c", "-o"])
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
