//! *What*: everything at once, by more threads and in longer sequences than every order of which could be tried.

use super::process::{FATES, Process};
use super::{FIRST, SECOND, check, on_a_thread};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::thread::JoinHandle;

const STEPS: u64 = 6;

/// What the engine does while the program runs: `process` is evicted, written and compacted again and again. The
/// writeback has the other slot, or nothing would happen in the middle of it.
fn engine(process: &Arc<Process>) -> [JoinHandle<()>; 3] {
    [
        on_a_thread(process, |p| (0..STEPS).for_each(|_| p.reclaim(0))),
        on_a_thread(process, |p| {
            (0..STEPS)
                .for_each(|_| p.write_back(1, FATES[thread_rng().gen_range(0..9_usize) % 5 % 3]));
        }),
        on_a_thread(process, |p| (0..STEPS).for_each(|_| p.compact(0))),
    ]
}

/// The program: writes, gives memory back, and reads what it wrote last.
fn program(process: &Process, first: u64) {
    let mut last = process.read(0);
    for step in 0..STEPS {
        match thread_rng().gen_range(0..4) {
            0 => {
                process.discard(0, FIRST);
                last = 0;
            }
            1 => {}
            _ => {
                last = first + step;
                process.write(0, last);
            }
        }
        assert_eq!(process.read(0), last);
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
        let now = process.read(1);
        assert!(now >= last, "{now} is read after {last}");
        last = now;
    }
}

#[test]
fn a_process_and_its_child_read_what_they_wrote_and_leave_nothing() {
    check(|| {
        let process = Arc::new(Process::resident(1));
        let device = process.device.clone();
        let of_parent = engine(&process);
        program(&process, 100);
        let child = Arc::new(process.fork());
        let inherited = process.read(0);
        let of_child = engine(&child);
        assert_eq!(child.read(0), inherited);
        let other = on_a_thread(&child, |child| program(child, 200));
        program(&process, 300);
        join(of_parent);
        process.exit();
        join(of_child);
        join([other]);
        child.exit();
        assert_eq!(device.in_use(), 0);
    });
}

#[test]
fn what_one_thread_writes_the_other_never_sees_go_back() {
    check(|| {
        let process = Arc::new(Process::cold(&[1]));
        let device = process.device.clone();
        let threads = engine(&process);
        let other = on_a_thread(&process, watch);
        for value in 2..2 + STEPS {
            process.write(0, value);
        }
        join(threads);
        join([other]);
        assert_eq!(process.read(0), 1 + STEPS);
        process.exit();
        assert_eq!(device.in_use(), 0);
    });
}

/// The device is turned off in the middle of it all, first in the parent, then in the child.
#[test]
fn a_device_is_turned_off_and_nobody_notices() {
    check(|| {
        let process = Arc::new(Process::resident(1));
        let device = process.device.clone();
        let of_parent = engine(&process);
        program(&process, 100);
        let off = on_a_thread(&process, |p| {
            p.swap_off(1);
            assert!(!p.is_on_device());
        });
        let child = Arc::new(process.fork());
        let of_child = engine(&child);
        program(&process, 300);
        join([off]);
        child.swap_off(0);
        assert_eq!(device.in_use(), 0, "off, and in use");
        program(&child, 200);
        join(of_parent);
        join(of_child);
        assert_eq!(device.in_use(), 0, "written to when it was off");
        process.exit();
        child.exit();
    });
}

/// All pages are made a block again and again, and taken apart by whoever uses the first one. The second keeps what it holds.
#[test]
fn a_page_and_its_neighbour_go_through_blocks() {
    check(|| {
        let process = Arc::new(Process::cold(&[1, 77, 55, 0]));
        let device = process.device.clone();
        let threads = engine(&process);
        let other = on_a_thread(&process, |p| (0..STEPS).for_each(|_| p.densify(1)));
        program(&process, 100);
        let child = Arc::new(process.fork());
        assert_eq!(process.read_from(0, SECOND), 77);
        process.write_to(0, SECOND, 78);
        join(threads);
        join([other]);
        assert_eq!(child.read_from(0, SECOND), 77);
        process.exit();
        child.exit();
        assert_eq!(device.in_use(), 0);
    });
}
