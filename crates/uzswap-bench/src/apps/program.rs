//! The real programs and their jobs.
//!
//! *What*: for each its command and its input, which is generated: nothing is downloaded.
//! *Invariants*: a program's input and output are the same every time.
//! *Locking*: none.
//! *Context*: the bench command.

use std::path::Path;

use anyhow::{Context, Result};
use uzswap_corpus::{find, refused, source, write};

use crate::sides::Job;

/// The size of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A second or two natively.
    Quick,
    /// Several seconds.
    Full,
}

impl Size {
    /// One of two values.
    pub(super) fn choose<T>(self, quick: T, full: T) -> T {
        if self == Self::Quick { quick } else { full }
    }
}

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    make: fn(&Path, Size) -> Result<Job>,
}

impl Program {
    /// Its job, in `dir`.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn job(&self, dir: &Path, size: Size) -> Result<Job> {
        let job = (self.make)(dir, size)?;
        Ok(Job {
            dir: Some(dir.to_owned()),
            ..job
        })
    }
}

/// The programs called `names`, or all but the build.
///
/// # Errors
/// Refuses an unknown name.
pub fn chosen(names: &[String]) -> Result<Vec<Program>> {
    let all = programs();
    for name in names {
        if !all.iter().any(|program| program.name == *name) {
            let known: Vec<&str> = all.iter().map(|program| program.name).collect();
            return Err(refused(format!(
                "no program '{name}' here: there are {}",
                known.join(", ")
            )));
        }
    }
    let wanted = |program: &Program| names.is_empty() || names.iter().any(|n| n == program.name);
    Ok(all.into_iter().filter(wanted).collect())
}

fn programs() -> Vec<Program> {
    let program = |name, make| Program { name, make };
    vec![
        program("python", |dir, size| {
            write(
                dir,
                "group_by.py",
                include_str!("../../../../examples/group_by.py"),
            )?;
            let scale = size.choose("0.2", "0.5");
            job("python3", &["group_by.py", "--scale", scale])
        }),
        program("sqlite", |dir, size| {
            let rows = size.choose(250_000, 1_500_000);
            let sql = include_str!("../../../../examples/orders.sql");
            write(
                dir,
                "orders.sql",
                &sql.replace("1500000", &rows.to_string()),
            )?;
            job("sqlite3", &[":memory:", ".read orders.sql"])
        }),
        program("sort", |dir, size| {
            let mib = size.choose(60, 100);
            write(dir, "lines", &source::lines(mib))?;
            job(
                "sort",
                &[
                    "--parallel=2",
                    "-S",
                    "600M",
                    "-k",
                    "3",
                    "lines",
                    "-o",
                    "sorted",
                ],
            )
        }),
        program("gcc", |dir, size| {
            let functions = size.choose(200, 1500);
            write(dir, "big.c", &source::c(1, functions))?;
            job("gcc", &["-O2", "-w", "-c", "big.c", "-o", "big.o"])
        }),
        program("node", |dir, size| {
            write(
                dir,
                "records.js",
                include_str!("../../../../examples/records.js"),
            )?;
            let records = size.choose("150000", "500000");
            job(
                "node",
                &["--max-old-space-size=4096", "records.js", records],
            )
        }),
        program("redis", |dir, size| {
            for tool in ["redis-benchmark", "redis-cli", "redis-server"] {
                find(tool)?;
            }
            write(dir, "redis.sh", include_str!("redis.sh"))?;
            let requests = size.choose("200000", "1000000");
            job("sh", &["redis.sh", requests])
        }),
    ]
}

/// Compiling a C project of many files with two compilers at once.
#[must_use]
pub fn build() -> Program {
    Program {
        name: "make -j2",
        make: |dir, size| {
            find("gcc")?;
            let (files, functions) = size.choose((2, 80), (16, 400));
            let mut makefile = String::from("CFLAGS = -O2 -w\nproject.a:");
            for file in 0..files {
                write(
                    dir,
                    &format!("part{file}.c"),
                    &source::c(file + 1, functions),
                )?;
                makefile += &format!(" part{file}.o");
            }
            makefile += "\n\t@ar rcD $@ $^\n\t@rm -f $^\n\t@cksum < $@\n\t@rm $@\n\
                         %.o: %.c\n\t@gcc $(CFLAGS) -c $< -o $@\n";
            write(dir, "Makefile", &makefile)?;
            job("make", &["-s", "-j2"])
        },
    }
}

fn job(program: &str, args: &[&str]) -> Result<Job> {
    let path = find(program).with_context(|| format!("{program} cannot be run"))?;
    let mut argv = vec![path.into_os_string()];
    argv.extend(args.iter().map(Into::into));
    Ok(Job {
        argv,
        ..Job::default()
    })
}
