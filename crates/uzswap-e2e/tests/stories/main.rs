//! All stories, in one program: they are told two at a time, and linked once.
//!
//! One story a module. Each has a scratch directory, process groups and cgroups of its own, so that it does not matter which
//! others are told beside it.

mod analyze;
mod auto;
mod bad_input;
mod bench;
mod cxx_threads;
mod densify;
mod every_counter_moves;
mod executed;
mod exit_status;
mod fork;
mod gcc;
mod hot_and_cold;
mod idle;
mod interrupted;
mod libraries;
mod limit_is_strict;
mod mallocs_in_fault_path;
mod many_programs;
mod node;
mod ordinary_user;
mod over_limit;
mod pattern;
mod prometheus;
mod python;
mod race;
mod reclaim;
mod redis;
mod set;
mod set_ram;
mod sort;
mod stats;
mod story_programs;
mod swap;
mod swap_devices;
mod swap_faults;
mod top;
mod trace;
mod without_userfaultfd;
