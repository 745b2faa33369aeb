//! What must hold of everything in uzswap that takes bytes from outside, whatever the bytes.
//!
//! *What*: for each fuzz target a function of its input that panics where a promise is broken. The
//! targets (`targets/`) run them under libFuzzer with AddressSanitizer, the replay
//! (`tests/replay.rs`) on the committed inputs (`corpus/`), with any toolchain. `scripts/fuzz` runs
//! the targets; docs/reliability.md says what they look for.
//!
//! *Invariants*: what a property says depends on its input alone, so that an input that fails once
//! fails again. Memory that is kept from one input to the next is found to make no difference, or
//! made anew.
#![allow(
    clippy::cast_possible_truncation,
    reason = "inputs are cut to what is asked for"
)]

mod bpf;
mod bytes;
mod codecs;
mod decisions;
mod elf;
mod filters;
mod fresh;
mod group;
mod memory;
mod objects;
mod proc_texts;
mod reports;
mod round_trip;
mod slots;
mod told;

/// The guard's filters as the preload library has them, which itself no program can be linked with.
#[path = "../../crates/uzswap-preload/src/arch/x86_64"]
#[allow(missing_docs, dead_code, unused_imports, reason = "another crate's")]
mod arch {
    pub mod stub;
}

#[path = "../../crates/uzswap-preload/src/guard"]
#[allow(missing_docs, dead_code, unused_imports, reason = "another crate's")]
mod guard {
    pub mod filter;
    pub mod stub;
    pub mod text;
}

#[path = "../../crates/uzswap-preload/src/proc_files.rs"]
#[allow(missing_docs, dead_code, unused_imports, reason = "another crate's")]
mod proc_files;

use uzswap_compress::CodecId;

/// What must hold of an input.
pub type Property = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: &[(&str, Property)] = &[
    ("decode_lz4", |input| codecs::decode(CodecId::Lz4, input)),
    ("decode_pz", |input| codecs::decode(CodecId::Pz, input)),
    ("decode_zstd", |input| codecs::decode(CodecId::Zstd, input)),
    ("decode_deflate", |input| {
        codecs::decode(CodecId::Deflate, input)
    }),
    ("round_trip", round_trip::comes_back),
    ("objects", objects::open_as_sealed),
    ("slots", slots::count_as_the_model),
    ("group", group::is_read_however_scribbled),
    ("told", told::is_read_as_written),
    ("elf", elf::stays_in_the_head),
    ("reports", reports::draw_what_is_read),
    ("proc_files", proc_texts::are_read),
    ("filters", filters::decide_as_the_tables),
    ("decisions", decisions::fall_as_listed),
];

/// Runs the property of a target.
///
/// # Panics
/// If it does not hold, or there is no such target.
pub fn run(target: &str, input: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, property) = found.expect("a target of this name");
    property(input);
}
