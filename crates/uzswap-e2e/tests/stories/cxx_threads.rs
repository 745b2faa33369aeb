//! A threaded C++ program: containers, shared pointers, queues, exceptions, futures, streams.

use uzswap_e2e::{Job, MIB, Scratch, seed, workspace};

#[test]
fn the_same_lines_from_a_quarter() {
    let scratch = Scratch::new();
    let args = format!("320 6 {}", seed());
    let job = Job::compiled(&scratch, "apps/cxx_threads.cpp", &args);
    let native = job.native().expect_success("cxx_threads alone");
    job.same_in_a_quarter_of(&native, 16 * MIB, |_| {});
}

#[test]
fn the_example() {
    let scratch = Scratch::new();
    let program = scratch.compile_path(&workspace().join("examples/random_walk.cpp"), &[]);
    let job = Job::new(program).words("4096 4 1000").ram_mib(48);
    let native = job.native().expect_success("random_walk alone");
    let managed = job.managed().expect_success("random_walk in 48 MiB");
    managed.expect_same_output(&native);
    managed.expect_within(16 * MIB);
}
