//! Libraries and programs with an allocator of their own.

use uzswap_e2e::{Job, Scratch, workspace};

/// PHP loads its extensions like this. With a `free` of their own they would free memory of another
/// `malloc`.
#[test]
fn a_library_bound_to_its_own_dependencies_shares_the_programs_malloc() {
    let scratch = Scratch::new();
    let sources = workspace().join("tests/programs/libraries");
    let library = scratch.compile_path(&sources.join("bound.c"), &["-shared", "-fPIC"]);
    let dir = library.parent().expect("it is in a directory").display();
    let run_path = format!("-Wl,--enable-new-dtags,-rpath,{dir}");
    let job = Job::new(scratch.compile_path(&sources.join("binds.c"), &[&run_path])).ram_mib(64);
    let native = job.native().expect_success("alone");
    let managed = job.managed().expect_success("managed");
    managed.expect_same_output(&native);
}

/// Chromium is one: `strdup` must not give it memory of another `malloc`.
#[test]
fn a_program_that_defines_malloc_gets_memory_from_it_alone() {
    let scratch = Scratch::new();
    let source = workspace().join("tests/programs/libraries/own_allocator.c");
    let program = scratch.compile_path(&source, &["-rdynamic", "-fno-builtin"]);
    let job = Job::new(program).ram_mib(64);
    let native = job.native().expect_success("alone");
    let managed = job.managed().expect_success("managed");
    managed.expect_same_output(&native);
}
