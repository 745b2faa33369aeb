//! A threaded C++ program: containers, shared pointers, queues, exceptions, futures, streams.

use uzswap_e2e::{Job, MIB, Scratch, seed, users, workspace};

#[test]
fn the_same_lines_from_a_quarter() {
    let scratch = Scratch::new();
    let program = scratch.compile("apps/cxx_threads.cpp");
    let job = Job::new(program).args(["320", "6", &seed().to_string()]);
    let native = job.native().expect_success("cxx_threads alone");
    let ram = native.peak_rss / 4 / MIB;
    println!("native peak {} MiB, --ram {ram}M", native.peak_rss / MIB);
    for &user in users() {
        let managed = job
            .clone()
            .ram_mib(ram)
            .user(user)
            .managed()
            .expect_success("cxx_threads in a quarter");
        managed.expect_same_output(&native);
        managed.expect_within(16 * MIB);
        managed.expect_quarter_of(&native);
    }
}

#[test]
fn the_example() {
    let scratch = Scratch::new();
    let program = scratch.compile_path(&workspace().join("examples/random_walk.cpp"), &[]);
    let job = Job::new(program).args(["4096", "4", "1000"]).ram_mib(48);
    let native = job.native().expect_success("random_walk alone");
    let managed = job.managed().expect_success("random_walk in 48 MiB");
    managed.expect_same_output(&native);
    managed.expect_within(16 * MIB);
}
