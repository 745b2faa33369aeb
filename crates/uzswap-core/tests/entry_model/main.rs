//! The life of pages' entries under model checkers: fault × reclaim × writeback × compaction × discard × densify ×
//! mremap × readahead × swapoff × fork. Whatever the order, and whether or not the device takes what is written, a
//! process reads what it wrote last, the counters are what the entries say, and at the end no
//! object and no slot is left over. The entries change as the engine's do, by its own code.
//!
//! loom tries every order of a few steps; shuttle many random orders, of those and of many steps, and prints the
//! schedule of a failure (`shuttle::replay` repeats it). `UZSWAP_LONG=1` tries a hundred times as many.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-core --test entry_model
//!     RUSTFLAGS="--cfg loom --cfg shuttle" cargo test --release -p uzswap-core --test entry_model
#![cfg(loom)]

#[cfg(not(shuttle))]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

mod memory;
mod process;
#[cfg(shuttle)]
mod random;

use checker::sync::Arc;
use process::{ALL, FATES, Fate, Process};
use uzswap_core::page::{Page, PageRange};

const FIRST: PageRange = PageRange { start: 0, end: 1 };
const SECOND: Page = Page::from_index(1);
const THIRD: Page = Page::from_index(2);

#[cfg(not(shuttle))]
fn check(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(5);
    builder.check(f);
}

#[cfg(shuttle)]
fn check(f: impl Fn() + Sync + Send + 'static) {
    let times = if std::env::var_os("UZSWAP_LONG").is_some() {
        100
    } else {
        1
    };
    shuttle::check_random(f, 20_000 * times);
}

/// Does `f` to the process on another thread.
fn on_a_thread(
    process: &Arc<Process>,
    f: impl FnOnce(&Process) + Send + 'static,
) -> checker::thread::JoinHandle<()> {
    let process = process.clone();
    checker::thread::spawn(move || f(&process))
}

/// A process on which one thread does `there`, as operation 1, and another `here`, as operation 0; `after` both
/// the process ends.
fn model(
    start: impl Fn() -> Process + Send + Sync + 'static,
    there: impl Fn(&Process) + Copy + Send + Sync + 'static,
    here: impl Fn(&Arc<Process>) + Send + Sync + 'static,
    after: impl Fn(&Process) + Send + Sync + 'static,
) {
    check(move || {
        let process = Arc::new(start());
        let other = on_a_thread(&process, there);
        here(&process);
        other.join().unwrap();
        after(&process);
        process.exit();
        assert_eq!(process.device.in_use(), 0, "a slot is left over");
    });
}

/// Its first page is in the pool.
fn evicted() -> Process {
    Process::cold(&[7])
}

/// Its first page is on the device.
fn swapped() -> Process {
    let process = evicted();
    process.write_back(1, Fate::Written);
    assert!(process.is_on_device());
    process
}

/// All its pages are in the pool.
fn cold() -> Process {
    Process::cold(&[7, 6, 5, 0])
}

/// All its pages are in one block.
fn block() -> Process {
    let process = cold();
    process.densify(0);
    process
}

fn reads(value: u64) -> impl Fn(&Process) + Copy + Send + Sync {
    move |p| assert_eq!(p.read(0), value)
}

/// A page is loaded, changed and stored again, in the same place, with the same size and age, while its
/// old contents are on their way to the device.
#[test]
fn what_changes_during_a_write_is_not_replaced_by_what_was_written() {
    for fate in FATES {
        let there = move |p: &Process| p.write_back(1, fate);
        let here = |p: &Arc<Process>| {
            p.write(0, 8);
            p.reclaim(0);
            assert_eq!(p.read(0), 8);
        };
        model(evicted, there, here, reads(8));
    }
}

/// Eviction and writeback by one thread, while another writes and reads. The page does not get smaller.
#[test]
fn a_program_reads_what_it_wrote_wherever_that_is() {
    let there = |p: &Process| {
        p.reclaim(1);
        p.write_back(1, Fate::Written);
    };
    let here = |p: &Arc<Process>| {
        p.write(0, 508);
        assert_eq!(p.read(0), 508);
    };
    model(|| Process::resident(507), there, here, reads(508));
}

#[test]
fn a_discard_during_a_write_leaves_zeroes_and_no_slot() {
    let here = |p: &Arc<Process>| {
        p.discard(0, FIRST);
        assert_eq!(p.read(0), 0);
    };
    model(evicted, |p| p.write_back(1, Fate::Written), here, reads(0));
}

#[test]
fn an_object_moves_while_it_is_written() {
    for fate in FATES {
        model(
            evicted,
            move |p| p.write_back(1, fate),
            |p| p.compact(0),
            reads(7),
        );
    }
}

/// Another page has what was on its way to the device, and keeps it while it is compacted.
#[test]
fn a_page_is_moved_by_mremap_while_it_is_written() {
    for fate in FATES {
        let there = move |p: &Process| p.write_back(1, fate);
        let here = |p: &Arc<Process>| {
            p.remap(0, Page::from_index(0), THIRD);
            p.compact(0);
            assert_eq!(p.read_from(0, THIRD), 7);
        };
        model(evicted, there, here, reads(0));
    }
}

/// A fork in the middle of a writeback; both change the page, the child writes back, and either ends first.
#[test]
fn parent_and_child_keep_their_own_and_leave_no_slot() {
    let here = |p: &Arc<Process>| {
        let child = Arc::new(p.fork());
        let in_child = on_a_thread(&child, |child| {
            assert_eq!(child.read(0), 7);
            child.write(0, 9);
            child.reclaim(0);
            child.write_back(0, Fate::Written);
            assert_eq!(child.read(0), 9);
            child.exit();
        });
        p.write(0, 8);
        in_child.join().unwrap();
    };
    model(evicted, |p| p.write_back(1, Fate::Written), here, reads(8));
}

/// Cold pages become a block while the program changes one and stores it again; the others are what they were.
#[test]
fn a_page_that_is_used_while_its_block_is_made_keeps_what_was_written() {
    let here = |p: &Arc<Process>| {
        p.write(0, 8);
        p.reclaim(0);
    };
    let after = |p: &Process| {
        assert_eq!(p.read_from(0, SECOND), 6);
        assert_eq!(p.read(0), 8);
    };
    model(cold, |p| p.densify(1), here, after);
}

/// While the first page is on its way to the device, and after it.
#[test]
fn a_block_is_made_of_no_page_that_is_being_written() {
    for fate in FATES {
        let after = |p: &Process| {
            assert_eq!(p.read_from(0, SECOND), 6);
            assert_eq!(p.read(0), 7);
        };
        model(
            cold,
            move |p| p.write_back(1, fate),
            |p| p.densify(0),
            after,
        );
    }
}

#[test]
fn a_page_dropped_while_its_block_is_made_stays_dropped() {
    let here = |p: &Arc<Process>| {
        p.discard(0, FIRST);
        assert_eq!(p.read(0), 0);
    };
    let after = |p: &Process| {
        assert_eq!(p.read(0), 0);
        assert_eq!(p.read_from(0, SECOND), 6);
    };
    model(cold, |p| p.densify(1), here, after);
}

/// A fork while a block is made and its object moves: the child has all pages or the block, and no half of it.
#[test]
fn a_child_has_a_whole_block_or_none() {
    let there = |p: &Process| {
        p.densify(1);
        p.compact(1);
    };
    let here = |p: &Arc<Process>| {
        let child = p.fork();
        assert_eq!(child.read(0), 7);
        child.write_to(0, SECOND, 9);
        assert_eq!(p.read_from(0, SECOND), 6);
        assert_eq!(child.read_from(0, SECOND), 9);
        child.exit();
    };
    model(cold, there, here, reads(7));
}

/// A page leaves its block while the piece in its entry, which another has then, is on its way to the device.
#[test]
fn a_page_leaves_its_block_while_that_is_written() {
    for fate in FATES {
        let here = |p: &Arc<Process>| {
            p.write(0, 8);
            p.reclaim(0);
            assert_eq!(p.read_from(0, THIRD), 5);
        };
        let after = |p: &Process| {
            assert_eq!(p.read_from(0, SECOND), 6);
            assert_eq!(p.read(0), 8);
        };
        model(block, move |p| p.write_back(1, fate), here, after);
    }
}

/// Two pages of a block are asked for at once, or one is dropped meanwhile.
#[test]
fn two_pages_leave_a_block() {
    for dropped in [true, false] {
        let there = move |p: &Process| {
            if dropped {
                p.discard(1, PageRange::one(SECOND));
            }
            assert_eq!(p.read_from(1, SECOND), if dropped { 0 } else { 6 });
        };
        let after = |p: &Process| {
            assert_eq!(p.read_from(0, THIRD), 5);
            assert_eq!(p.read(0), 8);
        };
        model(block, there, |p| p.write(0, 8), after);
    }
}

/// All pages of a block are dropped one by one, while its pieces are moved and written.
#[test]
fn a_block_goes_with_its_last_page() {
    let there = |p: &Process| {
        p.compact(1);
        p.write_back(1, Fate::Written);
    };
    let here = |p: &Arc<Process>| {
        ALL.pages()
            .for_each(|page| p.discard(0, PageRange::one(page)))
    };
    model(block, there, here, reads(0));
}

/// The device is turned off while something goes there. When that is done nothing is there, and nothing comes after.
#[test]
fn a_writeback_meets_swapoff() {
    for fate in FATES {
        let here = |p: &Arc<Process>| {
            p.swap_off(0);
            assert_eq!(p.device.in_use(), 0, "off, and in use");
        };
        let after = |p: &Process| {
            assert_eq!(p.device.in_use(), 0, "written to when it was off");
            assert_eq!(p.read(0), 7);
        };
        model(evicted, move |p| p.write_back(1, fate), here, after);
    }
}

/// What is on the device is asked for, changed, evicted and written again while it is turned off.
#[test]
fn a_program_uses_what_swapoff_brings_back() {
    let there = |p: &Process| {
        p.swap_off(1);
        assert!(!p.is_on_device());
    };
    let here = |p: &Arc<Process>| {
        p.write(0, 8);
        p.reclaim(0);
        p.write_back(0, Fate::Written);
        assert_eq!(p.read(0), 8);
    };
    let after = |p: &Process| assert_eq!(p.device.in_use(), 0);
    model(swapped, there, here, after);
}

#[test]
fn a_discard_meets_swapoff() {
    let here = |p: &Arc<Process>| {
        p.discard(0, FIRST);
        assert_eq!(p.read(0), 0);
    };
    model(swapped, |p| p.swap_off(1), here, reads(0));
}

/// A page on the device is read by one thread while another changes it, stores it again in the same place if it may, and
/// has it written.
#[test]
fn what_changes_while_it_is_read_is_not_replaced_by_what_was_read() {
    let there = |p: &Process| {
        let seen = p.read(1);
        assert!(seen == 7 || seen == 8, "{seen}");
    };
    let here = |p: &Arc<Process>| {
        p.write(0, 8);
        p.reclaim(0);
        p.write_back(0, Fate::Written);
    };
    model(swapped, there, here, reads(8));
}

/// As long as nobody writes to the page, its copy on the device is what it holds: it is not written again.
#[test]
fn a_page_read_ahead_goes_back_to_its_copy() {
    let there = |p: &Process| p.read_ahead(1, Page::from_index(0));
    let here = |p: &Arc<Process>| {
        assert_eq!(p.read(0), 7);
        p.reclaim(0);
        p.write_back(0, Fate::Failed);
    };
    model(swapped, there, here, reads(7));
}

#[test]
fn a_discard_while_it_is_read_leaves_zeroes_and_no_slot() {
    let there = |p: &Process| {
        let seen = p.read(1);
        assert!(seen == 7 || seen == 0, "{seen}");
    };
    let here = |p: &Arc<Process>| {
        p.discard(0, FIRST);
        assert_eq!(p.read(0), 0);
    };
    model(swapped, there, here, reads(0));
}

/// A fork, a write in the child, and an end of either, while the parent reads.
#[test]
fn a_child_born_while_a_page_is_read_counts_its_slot_once() {
    let here = |p: &Arc<Process>| {
        let child = p.fork();
        child.write(0, 9);
        assert_eq!(child.read(0), 9);
        child.exit();
    };
    model(swapped, |p| assert_eq!(p.read(1), 7), here, reads(7));
}

#[test]
fn swapoff_waits_for_who_reads() {
    let here = |p: &Arc<Process>| {
        p.swap_off(0);
        assert_eq!(p.device.in_use(), 0, "off, and in use");
    };
    model(swapped, |p| assert_eq!(p.read(1), 7), here, reads(7));
}
