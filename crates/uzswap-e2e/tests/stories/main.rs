//! All stories, in one program, so that they are linked once.
//!
//! One module a story. Each has its own scratch directory, process groups and cgroups, so stories
//! may run in parallel.

mod address_space;
mod analyze;
mod auto_compressor;
mod bad_input;
mod bench;
mod cxx_threads;
mod data_beyond_the_pool;
mod densify;
mod every_counter_moves;
mod every_page_reads_back;
mod exec_keeps_seccomp_filters;
mod exit_status;
mod families_keep_their_data;
mod faults_in_awkward_places;
mod foreign_programs;
mod foreign_suites;
mod gcc;
mod group_limit;
mod groups;
mod groups_as_cgroups;
mod hostile_member;
mod hot_pages_stay_in_ram;
mod idle_costs_nothing;
mod injected_failures;
mod limit_follows_cgroup;
mod limit_is_strict;
mod locks_in_evicted_pages;
mod mallocs_in_fault_path;
mod many_processes;
mod many_programs;
mod memory_outside;
mod no_dynamic_linker;
mod node;
mod ordinary_user;
mod over_limit;
mod own_allocators;
mod prometheus;
mod python;
mod reclaim;
mod reclaimer;
mod redis;
mod run_trace;
mod set_knobs;
mod set_ram;
mod show_memory;
mod sort;
mod stats_and_summary;
mod swap_devices;
mod system_calls_and_mappings;
mod top;
mod whole_jobs;
mod without_userfaultfd;
