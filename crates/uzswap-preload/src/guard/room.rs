//! *What*: whether another filter may be put on this process. A filter stays over exec, so where
//! programs execute one another they pile up: the kernel has room for so many instructions, each
//! filter costs every call some time, and each names text that a program without a handler might
//! come to lie at. Beyond [`MANY_FILTERS`] a program is therefore given the image, whose dispatch
//! takes no filter.
//!
//! *Invariants*: a program with the image adds no filter, so along a chain the number stays what it
//! is. None of those that it inherits can trap it: the kernel dispatches a call before filters see
//! it, and what is let through comes from the image or the gate, at addresses that no filter names.
//! *Locking*: none. *Context*: init, signal.

use crate::proc_files::for_each_record;

/// Filters from which on what is executed is given the image rather than the library.
const MANY_FILTERS: usize = 32;

/// Filters with which a program that has the library adds none: the kernel has room for 32768
/// instructions in all, and filter B has up to 300.
pub const MAX_FILTERS: usize = 96;

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Also where nobody knows: before Linux 5.9, and without `/proc`.
    Enough,
    /// What can do without a filter shall.
    Little,
    /// For no other filter.
    None,
}

/// Room for filters on this process.
#[must_use]
pub fn for_filters() -> Room {
    beside(nr_filters().unwrap_or(0))
}

const fn beside(nr: usize) -> Room {
    match nr {
        MAX_FILTERS.. => Room::None,
        MANY_FILTERS.. => Room::Little,
        _ => Room::Enough,
    }
}

/// Filters of this process.
fn nr_filters() -> Option<usize> {
    let mut found = None;
    let mut line = [0; 64];
    for_each_record(c"/proc/self/status", b'\n', &mut line, |line| {
        if let Some(number) = line.strip_prefix(b"Seccomp_filters:\t") {
            found = core::str::from_utf8(number)
                .ok()
                .and_then(|n| n.parse().ok());
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_no_filter_is_preferred_long_before_there_is_no_room() {
        let rooms: Vec<Room> = (0..=150).map(beside).collect();
        let count = |room| rooms.iter().filter(|r| **r == room).count();
        assert_eq!(count(Room::Enough), MANY_FILTERS);
        assert_eq!(count(Room::Little), MAX_FILTERS - MANY_FILTERS);
        assert!(rooms.is_sorted_by_key(|room| *room as u8));
    }

    #[test]
    fn the_kernel_has_room_for_the_most_filters() {
        // MAX_INSNS_PER_PATH, and what it adds for each filter.
        const ROOM: usize = 32768;
        const EACH: usize = 4;
        let (a, b) = (1600 + EACH, 300 + EACH);
        // A program may have one more that it was given last, and filters of its own.
        assert!(a + (MAX_FILTERS + 1) * b < ROOM);
    }
}
