//! The life of a page's entry under the model checker: fault × reclaim × writeback × discard × densify × swapoff × fork. Whatever the
//! order, and whether or not the device takes what is written, a process reads what it wrote last, and at the end no
//! object and no slot is left over. Every order of a few steps is tried.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-core --test loom_entry
#![cfg(all(loom, not(shuttle)))]

mod entry_support;

use entry_support::{Process, nothing_is_left, on_a_thread};

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(5);
    builder.check(f);
}

/// A page is loaded, changed and stored again, in the same place, with the same size and age, while its
/// old contents are on their way to the device.
#[test]
fn what_changes_during_a_write_is_not_replaced_by_what_was_written() {
    for succeeds in [true, false] {
        model(move || {
            let process = Process::evicted(7);
            let other = on_a_thread(&process, move |p| p.write_back(1, succeeds));
            process.write(0, 8);
            process.reclaim(0);
            assert_eq!(process.read(0), 8);
            other.join().unwrap();
            assert_eq!(process.read(0), 8);
            process.exit();
            nothing_is_left(&process.device);
        });
    }
}

/// Eviction and writeback by one thread, while another writes and reads.
#[test]
fn a_program_reads_what_it_wrote_wherever_that_is() {
    model(|| {
        let process = Process::resident(7);
        let other = on_a_thread(&process, |p| {
            p.reclaim(1);
            p.write_back(1, true);
        });
        process.write(0, 8);
        assert_eq!(process.read(0), 8);
        other.join().unwrap();
        assert_eq!(process.read(0), 8);
        process.exit();
        nothing_is_left(&process.device);
    });
}

#[test]
fn a_discard_during_a_write_leaves_zeroes_and_no_slot() {
    model(|| {
        let process = Process::evicted(7);
        let other = on_a_thread(&process, |p| p.write_back(1, true));
        process.discard(0);
        assert_eq!(process.read(0), 0);
        other.join().unwrap();
        assert_eq!(process.read(0), 0);
        process.exit();
        nothing_is_left(&process.device);
    });
}

#[test]
fn an_object_moves_while_it_is_written() {
    model(|| {
        let process = Process::evicted(7);
        let other = on_a_thread(&process, |p| p.write_back(1, true));
        process.compact(0);
        other.join().unwrap();
        assert_eq!(process.read(0), 7);
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// A fork in the middle of a writeback; both change the page, the child writes back, and either ends first.
#[test]
fn parent_and_child_keep_their_own_and_leave_no_slot() {
    model(|| {
        let process = Process::evicted(7);
        let other = on_a_thread(&process, |p| p.write_back(1, true));
        let child = process.fork();
        let in_child = on_a_thread(&child, |child| {
            assert_eq!(child.read(0), 7);
            child.write(0, 9);
            child.reclaim(0);
            child.write_back(0, true);
            assert_eq!(child.read(0), 9);
            child.exit();
        });
        process.write(0, 8);
        other.join().unwrap();
        in_child.join().unwrap();
        assert_eq!(process.read(0), 8);
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// Two cold pages become a block while the program changes one and stores it again; the other is what it was.
#[test]
fn a_page_that_is_used_while_its_block_is_made_keeps_what_was_written() {
    model(|| {
        let process = Process::cold([7, 6, 5]);
        let other = on_a_thread(&process, |p| p.densify(1));
        process.write(0, 8);
        process.reclaim(0);
        other.join().unwrap();
        assert_eq!(process.read_from(0, 1), 6);
        assert_eq!(process.read(0), 8);
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// While the first page is on its way to the device, and after it.
#[test]
fn a_block_is_made_of_no_page_that_is_being_written() {
    for succeeds in [true, false] {
        model(move || {
            let process = Process::cold([7, 6, 5]);
            let other = on_a_thread(&process, move |p| p.write_back(1, succeeds));
            process.densify(0);
            other.join().unwrap();
            assert_eq!(process.read_from(0, 1), 6);
            assert_eq!(process.read(0), 7);
            process.exit();
            nothing_is_left(&process.device);
        });
    }
}

#[test]
fn a_page_dropped_while_its_block_is_made_stays_dropped() {
    model(|| {
        let process = Process::cold([7, 6, 5]);
        let other = on_a_thread(&process, |p| p.densify(1));
        process.discard(0);
        assert_eq!(process.read(0), 0);
        other.join().unwrap();
        assert_eq!(process.read(0), 0);
        assert_eq!(process.read_from(0, 1), 6);
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// A fork while a block is made and its object moves: the child has all pages or the block, and no half of it.
#[test]
fn a_child_has_a_whole_block_or_none() {
    model(|| {
        let process = Process::cold([7, 6, 5]);
        let other = on_a_thread(&process, |p| {
            p.densify(1);
            p.compact(1);
        });
        let child = process.fork();
        assert_eq!(child.read(0), 7);
        child.write_to(0, 1, 9);
        assert_eq!(process.read_from(0, 1), 6);
        other.join().unwrap();
        assert_eq!(process.read(0), 7);
        assert_eq!(child.read_from(0, 1), 9);
        child.exit();
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// A page leaves its block while the piece in its entry, which another has then, is on its way to the device.
#[test]
fn a_page_leaves_its_block_while_that_is_written() {
    for succeeds in [true, false] {
        model(move || {
            let process = Process::cold([7, 6, 5]);
            process.densify(0);
            let other = on_a_thread(&process, move |p| p.write_back(1, succeeds));
            process.write(0, 8);
            process.reclaim(0);
            assert_eq!(process.read_from(0, 2), 5);
            other.join().unwrap();
            assert_eq!(process.read_from(0, 1), 6);
            assert_eq!(process.read(0), 8);
            process.exit();
            nothing_is_left(&process.device);
        });
    }
}

/// Two pages of a block are asked for at once, or one is dropped meanwhile.
#[test]
fn two_pages_leave_a_block() {
    for dropped in [true, false] {
        model(move || {
            let process = Process::cold([7, 6, 5]);
            process.densify(0);
            let other = on_a_thread(&process, move |p| {
                if dropped {
                    p.discard_page(1, 1);
                }
                assert_eq!(p.read_from(1, 1), if dropped { 0 } else { 6 });
            });
            process.write(0, 8);
            other.join().unwrap();
            assert_eq!(process.read_from(0, 2), 5);
            assert_eq!(process.read(0), 8);
            process.exit();
            nothing_is_left(&process.device);
        });
    }
}

/// The device is turned off while something goes there. When that is done nothing is there, and nothing comes after.
#[test]
fn a_writeback_meets_swapoff() {
    for succeeds in [true, false] {
        model(move || {
            let process = Process::evicted(7);
            let other = on_a_thread(&process, move |p| p.write_back(1, succeeds));
            process.swap_off(0);
            assert_eq!(process.device.in_use(), 0, "off, and in use");
            other.join().unwrap();
            assert_eq!(process.device.in_use(), 0, "written to when it was off");
            assert_eq!(process.read(0), 7);
            process.exit();
            nothing_is_left(&process.device);
        });
    }
}

/// What is on the device is asked for, changed, evicted and written again while it is turned off.
#[test]
fn a_program_uses_what_swapoff_brings_back() {
    model(|| {
        let process = Process::evicted(7);
        process.write_back(1, true);
        assert!(process.is_on_device());
        let other = on_a_thread(&process, |p| {
            p.swap_off(1);
            assert!(!p.is_on_device());
        });
        process.write(0, 8);
        process.reclaim(0);
        process.write_back(0, true);
        assert_eq!(process.read(0), 8);
        other.join().unwrap();
        assert_eq!(process.device.in_use(), 0);
        process.exit();
        nothing_is_left(&process.device);
    });
}

#[test]
fn a_discard_meets_swapoff() {
    model(|| {
        let process = Process::evicted(7);
        process.write_back(1, true);
        let other = on_a_thread(&process, |p| p.swap_off(1));
        process.discard(0);
        assert_eq!(process.read(0), 0);
        other.join().unwrap();
        assert_eq!(process.read(0), 0);
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// A page on the device is read by one thread while another changes it, stores it again in the same place if it may, and
/// has it written.
#[test]
fn what_changes_while_it_is_read_is_not_replaced_by_what_was_read() {
    model(|| {
        let process = Process::evicted(7);
        process.write_back(1, true);
        let other = on_a_thread(&process, |p| {
            let seen = p.read(1);
            assert!(seen == 7 || seen == 8, "{seen}");
        });
        process.write(0, 8);
        process.reclaim(0);
        process.write_back(0, true);
        other.join().unwrap();
        assert_eq!(process.read(0), 8);
        process.exit();
        nothing_is_left(&process.device);
    });
}

#[test]
fn a_discard_while_it_is_read_leaves_zeroes_and_no_slot() {
    model(|| {
        let process = Process::evicted(7);
        process.write_back(1, true);
        let other = on_a_thread(&process, |p| {
            let seen = p.read(1);
            assert!(seen == 7 || seen == 0, "{seen}");
        });
        process.discard(0);
        assert_eq!(process.read(0), 0);
        other.join().unwrap();
        assert_eq!(process.read(0), 0);
        process.exit();
        nothing_is_left(&process.device);
    });
}

/// A fork, a write in the child, and an end of either, while the parent reads.
#[test]
fn a_child_born_while_a_page_is_read_counts_its_slot_once() {
    model(|| {
        let process = Process::evicted(7);
        process.write_back(1, true);
        let other = on_a_thread(&process, |p| assert_eq!(p.read(1), 7));
        let child = process.fork();
        child.write(0, 9);
        other.join().unwrap();
        assert_eq!((process.read(0), child.read(0)), (7, 9));
        child.exit();
        process.exit();
        nothing_is_left(&process.device);
    });
}

#[test]
fn swapoff_waits_for_who_reads() {
    model(|| {
        let process = Process::evicted(7);
        process.write_back(1, true);
        let other = on_a_thread(&process, |p| assert_eq!(p.read(1), 7));
        process.swap_off(0);
        assert_eq!(process.device.in_use(), 0, "off, and in use");
        other.join().unwrap();
        process.exit();
        nothing_is_left(&process.device);
    });
}
