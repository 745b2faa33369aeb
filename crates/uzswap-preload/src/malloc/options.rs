//! *What*: mimalloc's settings. All of them are set, also those that have their default value: one
//! that is not set is read from the environment, which is the program's.
//!
//! *Invariants*: runs before mimalloc's first use. *Locking*: none. *Context*: init.

use core::ffi::c_long;

use libmimalloc_sys::{_mi_option_last, mi_option_set};

/// Every option of mimalloc 2.3 by number, with our value.
const OPTIONS: [(i32, c_long); 38] = [
    (0, 0),  // show_errors
    (1, 0),  // show_stats
    (2, 0),  // verbose
    (3, 1),  // eager_commit: committing is bookkeeping here, pages come when touched
    (4, 1),  // arena_eager_commit
    (5, 1),  // purge_decommits: MADV_DONTNEED
    (6, 0),  // allow_large_os_pages
    (7, 0),  // reserve_huge_os_pages
    (8, -1), // reserve_huge_os_pages_at
    (9, 0),  // reserve_os_memory
    (10, 0), // deprecated
    (11, 0), // deprecated
    (12, 0), // abandoned_page_purge
    (13, 0), // deprecated
    (14, 0), // eager_commit_delay
    (15, PURGE_DELAY),
    (16, 1),       // use_numa_nodes: one, so that nobody asks the kernel
    (17, 0),       // disallow_os_alloc
    (18, 100),     // os_tag
    (19, 0),       // max_errors
    (20, 0),       // max_warnings
    (21, 10),      // max_segment_reclaim
    (22, 0),       // destroy_on_exit
    (23, 1 << 20), // arena_reserve, KiB: address space only
    (24, 1),       // arena_purge_mult
    (25, 1),       // purge_extend_delay
    (26, 0),       // abandoned_reclaim_on_free
    (27, 0),       // disallow_arena_alloc
    (28, 0),       // retry_on_oom
    (29, 0),       // visit_abandoned
    (30, 0),       // guarded_min
    (31, 1 << 30), // guarded_max
    (32, 0),       // guarded_precise
    (33, 0),       // guarded_sample_rate
    (34, 0),       // guarded_sample_seed
    (35, 0),       // target_segments_per_thread
    (36, 10_000),  // generic_collect
    (37, 1),       // allow_thp: 0 would change a setting of the whole process
];

/// Milliseconds that freed memory stays with mimalloc: long enough for what a loop frees and
/// allocates again, short enough that it does not push live memory into the pool.
const PURGE_DELAY: c_long = 20;

const _: () = assert!(
    OPTIONS.len() == _mi_option_last as usize,
    "another version of mimalloc has other options"
);

/// Sets them.
pub fn set() {
    for (option, value) in OPTIONS {
        // SAFETY: the option exists, by the assertion above.
        unsafe { mi_option_set(option, value) };
    }
}
