//! The life of pages' entries under model checkers: fault × reclaim × writeback × compaction ×
//! discard × densify × mremap × readahead × swapoff × fork. Whatever the order, and whether or not
//! the device takes what is written, a process reads what it wrote last, the counters are what the
//! entries say, and at the end no object and no slot is left over. The entries change as the
//! engine's do, by its own code.
//!
//! loom tries every order of a few steps; shuttle many random orders, of those and of many steps,
//! and prints the schedule of a failure (`shuttle::replay` repeats it). `UZSWAP_LONG=1` tries a
//! hundred times as many.
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
use process::Fate::{Failed, Written};
use process::Step::{self, *};
use process::{FATES, Process};

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

/// What the first pages of a process hold in the pool, and what is done to it at first.
type Start = (&'static [u64], &'static [Step]);

const RESIDENT: Start = (&[], &[Write(0, 507)]);
const EVICTED: Start = (&[7], &[]);
const SWAPPED: Start = (&[7], &[WriteBack(Written), OnDevice(true)]);
const COLD: Start = (&[7, 6, 5, 0], &[]);
const BLOCK: Start = (&[7, 6, 5, 0], &[Densify]);

/// One thread does `there` to a process, as operation 1, while another does `here`, as operation 0.
/// `after` follows both. Then the process ends, and no slot is left.
fn model(start: Start, there: Vec<Step>, here: Vec<Step>, after: Vec<Step>) {
    check(move || {
        let process = Arc::new(Process::cold(start.0));
        process.run(1, start.1);
        let there = there.clone();
        let other = on_a_thread(&process, move |p| p.run(1, &there));
        process.run(0, &here);
        other.join().unwrap();
        process.run(0, &after);
        process.exit();
        process.run(0, &[DeviceEmpty]);
    });
}

/// Each story is a test: its name, `for fate` if it is told for each fate of a write, and `start`,
/// `there` | `here` => `after` as in [`model`].
macro_rules! stories {
    ($(
        $(#[$doc:meta])*
        $name:ident $(for $fate:ident)?: $start:expr, $there:tt | $here:tt => $after:tt;
    )*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $(for $fate in FATES)? {
                model($start, vec!$there, vec!$here, vec!$after);
            }
        }
    )*};
}

stories! {
    /// A page is loaded, changed and stored again, in the same place, with the same size and age,
    /// while its old contents are on their way to the device.
    what_changes_during_a_write_is_not_replaced_by_what_was_written for fate: EVICTED,
        [WriteBack(fate)] | [Write(0, 8), Reclaim, Read(0, 8)] => [Read(0, 8)];

    /// Eviction and writeback by one thread, while another writes and reads. The page does not get
    /// smaller.
    a_program_reads_what_it_wrote_wherever_that_is: RESIDENT,
        [Reclaim, WriteBack(Written)] | [Write(0, 508), Read(0, 508)] => [Read(0, 508)];

    a_discard_during_a_write_leaves_zeroes_and_no_slot: EVICTED,
        [WriteBack(Written)] | [Discard(0), Read(0, 0)] => [Read(0, 0)];

    an_object_moves_while_it_is_written for fate: EVICTED,
        [WriteBack(fate)] | [Compact] => [Read(0, 7)];

    /// Another page has what was on its way to the device, and keeps it while it is compacted.
    a_page_is_moved_by_mremap_while_it_is_written for fate: EVICTED,
        [WriteBack(fate)] | [Remap(0, 2), Compact, Read(2, 7)] => [Read(0, 0)];

    /// Cold pages become a block while the program changes one and stores it again; the others are
    /// what they were.
    a_page_that_is_used_while_its_block_is_made_keeps_what_was_written: COLD,
        [Densify] | [Write(0, 8), Reclaim] => [Read(1, 6), Read(0, 8)];

    /// While the first page is on its way to the device, and after it.
    a_block_is_made_of_no_page_that_is_being_written for fate: COLD,
        [WriteBack(fate)] | [Densify] => [Read(1, 6), Read(0, 7)];

    a_page_dropped_while_its_block_is_made_stays_dropped: COLD,
        [Densify] | [Discard(0), Read(0, 0)] => [Read(0, 0), Read(1, 6)];

    /// A fork while a block is made and its object moves: the child has all pages or the block, and
    /// no half of it.
    a_child_has_a_whole_block_or_none: COLD,
        [Densify, Compact] | [Fork(&[Read(0, 7), Write(1, 9), Read(1, 9)]), Read(1, 6)]
            => [Read(0, 7)];

    /// A page leaves its block while the piece in its entry, which another has then, is on its way
    /// to the device.
    a_page_leaves_its_block_while_that_is_written for fate: BLOCK,
        [WriteBack(fate)] | [Write(0, 8), Reclaim, Read(2, 5)] => [Read(1, 6), Read(0, 8)];

    two_pages_leave_a_block: BLOCK,
        [Read(1, 6)] | [Write(0, 8)] => [Read(2, 5), Read(0, 8)];

    a_page_leaves_a_block_of_which_another_is_dropped: BLOCK,
        [Discard(1), Read(1, 0)] | [Write(0, 8)] => [Read(2, 5), Read(0, 8)];

    /// All pages of a block are dropped one by one, while its pieces are moved and written.
    a_block_goes_with_its_last_page: BLOCK,
        [Compact, WriteBack(Written)] | [Discard(0), Discard(1), Discard(2), Discard(3)]
            => [Read(0, 0)];

    /// The device is turned off while something goes there. When that is done nothing is there, and
    /// nothing comes after.
    a_writeback_meets_swapoff for fate: EVICTED,
        [WriteBack(fate)] | [SwapOff, DeviceEmpty] => [DeviceEmpty, Read(0, 7)];

    /// What is on the device is asked for, changed, evicted and written again while it is turned
    /// off.
    a_program_uses_what_swapoff_brings_back: SWAPPED,
        [SwapOff, OnDevice(false)] | [Write(0, 8), Reclaim, WriteBack(Written), Read(0, 8)]
            => [DeviceEmpty];

    a_discard_meets_swapoff: SWAPPED,
        [SwapOff] | [Discard(0), Read(0, 0)] => [Read(0, 0)];

    /// A page on the device is read by one thread while another changes it, stores it again in the
    /// same place if it may, and has it written.
    what_changes_while_it_is_read_is_not_replaced_by_what_was_read: SWAPPED,
        [ReadEither(0, 7, 8)] | [Write(0, 8), Reclaim, WriteBack(Written)] => [Read(0, 8)];

    /// As long as nobody writes to the page, its copy on the device is what it holds: it is not
    /// written again.
    a_page_read_ahead_goes_back_to_its_copy: SWAPPED,
        [ReadAhead(0)] | [Read(0, 7), Reclaim, WriteBack(Failed)] => [Read(0, 7)];

    a_discard_while_it_is_read_leaves_zeroes_and_no_slot: SWAPPED,
        [ReadEither(0, 7, 0)] | [Discard(0), Read(0, 0)] => [Read(0, 0)];

    /// A fork, a write in the child, and an end of either, while the parent reads.
    a_child_born_while_a_page_is_read_counts_its_slot_once: SWAPPED,
        [Read(0, 7)] | [Fork(&[Write(0, 9), Read(0, 9)])] => [Read(0, 7)];

    swapoff_waits_for_who_reads: SWAPPED,
        [Read(0, 7)] | [SwapOff, DeviceEmpty] => [Read(0, 7)];
}

/// A fork in the middle of a writeback; both change the page, and the child writes back and ends.
#[test]
fn parent_and_child_keep_their_own_and_leave_no_slot() {
    check(|| {
        let process = Arc::new(Process::cold(EVICTED.0));
        let other = on_a_thread(&process, |p| p.run(1, &[WriteBack(Written)]));
        let child = Arc::new(process.fork());
        let in_child = on_a_thread(&child, |child| {
            child.run(0, &[Read(0, 7), Write(0, 9), Reclaim]);
            child.run(0, &[WriteBack(Written), Read(0, 9)]);
            child.exit();
        });
        process.run(0, &[Write(0, 8)]);
        in_child.join().unwrap();
        other.join().unwrap();
        process.run(0, &[Read(0, 8)]);
        process.exit();
        process.run(0, &[DeviceEmpty]);
    });
}
