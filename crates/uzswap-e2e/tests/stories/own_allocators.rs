//! Libraries and programs with an allocator of their own.

use std::path::PathBuf;

use uzswap_e2e::{Job, Scratch, workspace};

/// A source of `tests/programs/libraries`.
fn source(name: &str) -> PathBuf {
    workspace().join("tests/programs/libraries").join(name)
}

/// Runs a job natively and managed; both end well and say the same.
fn same(job: Job, what: &str) {
    let job = job.ram_mib(64);
    let native = job.native().expect_success(&format!("{what}, alone"));
    let managed = job.managed().expect_success(&format!("{what}, managed"));
    managed.expect_same_output(&native);
}

/// PHP loads its extensions like this. With a `free` of their own they would free memory of another
/// `malloc`.
#[test]
fn a_library_bound_to_its_own_dependencies_shares_the_programs_malloc() {
    let scratch = Scratch::new();
    let library = scratch.compile_path(&source("bound.c"), &["-shared", "-fPIC"]);
    let dir = library.parent().expect("it is in a directory").display();
    let run_path = format!("-Wl,--enable-new-dtags,-rpath,{dir}");
    let program = scratch.compile_path(&source("binds.c"), &[&run_path]);
    same(Job::new(program), "the library");
}

/// Chromium is one: `strdup` must not give it memory of another `malloc`.
#[test]
fn a_program_that_defines_malloc_gets_memory_from_it_alone() {
    let scratch = Scratch::new();
    let source = source("own_allocator.c");
    let program = scratch.compile_path(&source, &["-rdynamic", "-fno-builtin"]);
    same(Job::new(program), "the program");
}

/// As with jemalloc or tcmalloc.
#[test]
fn a_program_keeps_the_allocator_that_it_is_linked_with() {
    let scratch = Scratch::new();
    let library = scratch.compile_path(&source("allocator.cc"), &["-shared", "-fPIC"]);
    let options = ["-fno-builtin", library.to_str().expect("it is ASCII")];
    let program = scratch.compile_path(&source("linked.cc"), &options);
    same(Job::new(program), "the program");
}

/// A module may look up the C library's `free` past the loader's order, define some forms of `new`
/// and `delete`, or have a hidden malloc and leave the rest to the C library, as chdb does. What it
/// frees goes back to whoever made it, whether the program used the C library before it or not.
#[test]
fn modules_free_what_others_allocated_by_whatever_way_they_find() {
    let kinds: [(&str, &[&str]); 5] = [
        ("asks.c", &[]),
        ("asks.c", &["-DBY_HANDLE"]),
        ("asks.c", &["-DBY_OTHER_NAME"]),
        ("partly.cc", &[]),
        ("hidden.c", &[]),
    ];
    let scratch = Scratch::new();
    let program = scratch.compile_path(&source("mixing.c"), &[]);
    let dirs = kinds.map(|_| Scratch::new());
    let mut modules: Vec<_> = kinds
        .iter()
        .zip(&dirs)
        .map(|((name, options), dir)| {
            let options = [&["-shared", "-fPIC"], *options].concat();
            dir.compile_path(&source(name), &options).into_os_string()
        })
        .collect();
    for _ in &kinds {
        for how in [&[][..], &["late"]] {
            let job = Job::new(&program).args(how).args(&modules);
            same(job, &format!("{modules:?} {how:?}"));
        }
        modules.rotate_left(1);
    }
    for module in &modules {
        let mut deeply = std::ffi::OsString::from("+");
        deeply.push(module);
        same(
            Job::new(&program).arg(&deeply),
            &format!("{deeply:?}, by its own dependencies first"),
        );
    }
}
