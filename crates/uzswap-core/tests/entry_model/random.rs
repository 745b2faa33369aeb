//! *What*: everything at once, by more threads and in longer sequences than every order of which
//! could be tried.

use super::process::Step::{self, *};
use super::process::{FATES, Process};
use super::{check, on_a_thread};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::thread::JoinHandle;
use uzswap_core::page::Page;

const STEPS: u64 = 6;
const FIRST: Page = Page::from_index(0);

/// A thread that does the same again and again.
fn again(process: &Arc<Process>, op: usize, step: fn() -> Step) -> JoinHandle<()> {
    on_a_thread(process, move |p| {
        (0..STEPS).for_each(|_| p.run(op, &[step()]));
    })
}

/// What the engine does while the program runs: `process` is evicted, written and compacted again
/// and again. The writeback has the other operation, or nothing would happen in the middle of it.
fn engine(process: &Arc<Process>) -> [JoinHandle<()>; 3] {
    let write_back = || WriteBack(FATES[thread_rng().gen_range(0..9_usize) % 5 % 3]);
    [
        again(process, 0, || Reclaim),
        again(process, 1, write_back),
        again(process, 0, || Compact),
    ]
}

/// The program: writes, gives memory back, and reads what it wrote last.
fn program(process: &Process, first: u64) {
    let mut last = process.read(0, FIRST);
    for step in 0..STEPS {
        match thread_rng().gen_range(0..4) {
            0 => {
                process.run(0, &[Discard(0)]);
                last = 0;
            }
            1 => {}
            _ => {
                last = first + step;
                process.run(0, &[Write(0, last)]);
            }
        }
        process.run(0, &[Read(0, last)]);
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Two threads of the program look at a number that one of them raises. It never goes back.
fn watch(process: &Process) {
    let mut last = 0;
    for _ in 0..STEPS {
        let now = process.read(1, FIRST);
        assert!(now >= last, "{now} is read after {last}");
        last = now;
    }
}

#[test]
fn a_process_and_its_child_read_what_they_wrote_and_leave_nothing() {
    check(|| {
        let process = Arc::new(Process::cold(&[1]));
        process.run(0, &[Read(0, 1)]);
        let of_parent = engine(&process);
        program(&process, 100);
        let child = Arc::new(process.fork());
        let inherited = process.read(0, FIRST);
        let of_child = engine(&child);
        child.run(0, &[Read(0, inherited)]);
        let other = on_a_thread(&child, |child| program(child, 200));
        program(&process, 300);
        join(of_parent);
        process.exit();
        join(of_child);
        join([other]);
        child.exit();
        child.run(0, &[DeviceEmpty]);
    });
}

#[test]
fn what_one_thread_writes_the_other_never_sees_go_back() {
    check(|| {
        let process = Arc::new(Process::cold(&[1]));
        let threads = engine(&process);
        let other = on_a_thread(&process, watch);
        for value in 2..2 + STEPS {
            process.run(0, &[Write(0, value)]);
        }
        join(threads);
        join([other]);
        process.run(0, &[Read(0, 1 + STEPS)]);
        process.exit();
        process.run(0, &[DeviceEmpty]);
    });
}

/// The device is turned off in the middle of it all, first in the parent, then in the child.
#[test]
fn a_device_is_turned_off_and_nobody_notices() {
    check(|| {
        let process = Arc::new(Process::cold(&[1]));
        process.run(0, &[Read(0, 1)]);
        let of_parent = engine(&process);
        program(&process, 100);
        let off = on_a_thread(&process, |p| p.run(1, &[SwapOff, OnDevice(false)]));
        let child = Arc::new(process.fork());
        let of_child = engine(&child);
        program(&process, 300);
        join([off]);
        child.run(0, &[SwapOff, DeviceEmpty]);
        program(&child, 200);
        join(of_parent);
        join(of_child);
        process.run(0, &[DeviceEmpty]);
        process.exit();
        child.exit();
    });
}

/// All pages are made a block again and again, and taken apart by whoever uses the first one. The
/// second keeps what it holds.
#[test]
fn a_page_and_its_neighbour_go_through_blocks() {
    check(|| {
        let process = Arc::new(Process::cold(&[1, 77, 55, 0]));
        let threads = engine(&process);
        let other = again(&process, 1, || Densify);
        program(&process, 100);
        let child = Arc::new(process.fork());
        process.run(0, &[Read(1, 77), Write(1, 78)]);
        join(threads);
        join([other]);
        child.run(0, &[Read(1, 77)]);
        process.exit();
        child.exit();
        child.run(0, &[DeviceEmpty]);
    });
}
