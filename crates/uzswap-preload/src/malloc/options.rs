//! *What*: mimalloc's settings. All of them are set, also those that have their default value: one
//! that is not set is read from the environment, which is the program's.
//!
//! *Invariants*: runs before mimalloc's first use. *Locking*: none. *Context*: init.

use core::ffi::{c_int, c_long};

use libmimalloc_sys::{_mi_option_last, mi_option_set};

/// How many options mimalloc 2.3 has.
const NR_OPTIONS: c_int = 38;

/// The options that are not 0, by number.
const OPTIONS: [(c_int, c_long); 14] = [
    (3, 1),  // eager_commit: committing is bookkeeping here, pages come when touched
    (4, 1),  // arena_eager_commit
    (5, 1),  // purge_decommits: MADV_DONTNEED
    (8, -1), // reserve_huge_os_pages_at
    (15, PURGE_DELAY),
    (16, 1),       // use_numa_nodes: one, so that nobody asks the kernel
    (18, 100),     // os_tag
    (21, 10),      // max_segment_reclaim
    (23, 1 << 20), // arena_reserve, KiB: address space only
    (24, 1),       // arena_purge_mult
    (25, 1),       // purge_extend_delay
    (31, 1 << 30), // guarded_max
    (36, 10_000),  // generic_collect
    (37, 1),       // allow_thp: 0 would change a setting of the whole process
];

/// Milliseconds that freed memory stays with mimalloc: long enough for what a loop frees and
/// allocates again, short enough that it does not push live memory into the pool.
const PURGE_DELAY: c_long = 20;

const _: () = assert!(
    NR_OPTIONS == _mi_option_last,
    "another version of mimalloc has other options"
);

/// Sets them.
pub fn set() {
    for option in 0..NR_OPTIONS {
        let known = OPTIONS.iter().find(|(number, _)| *number == option);
        let value = known.map_or(0, |(_, value)| *value);
        // SAFETY: the option exists, by the assertion above.
        unsafe { mi_option_set(option, value) };
    }
}
