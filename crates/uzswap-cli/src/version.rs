//! *What*: `uzswap --version --verbose`: what this binary is made of, and what it can do here.
//!
//! *Locking*: none. *Context*: start.

use std::fmt::Write as _;

use uzswap_compress::Codec;

use crate::args::FaultMode;
use crate::kernel;
use crate::preload::{IMAGE, LIBRARY};

/// The lines.
pub fn verbose() -> String {
    let mut text = format!("uzswap {}\n", env!("CARGO_PKG_VERSION"));
    let commit = option_env!("UZSWAP_COMMIT").unwrap_or("not recorded: no release build");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let (zstd, deflate, pz) = (Codec::ZSTD_LEVELS, Codec::DEFLATE_LEVELS, Codec::PZ_LEVELS);
    for (name, value) in [
        ("commit", commit.to_owned()),
        ("features", features()),
        ("engine", format!("{}, {}", LIBRARY.name(), IMAGE.name())),
        (
            "codecs",
            format!(
                "lz4, zstd:{}..{}, deflate:{}..{}, pz:{}..{}",
                zstd.start(),
                zstd.end(),
                deflate.start(),
                deflate.end(),
                pz.start(),
                pz.end()
            ),
        ),
        ("kernel", release.unwrap_or_default().trim_end().to_owned()),
        ("modes here", modes()),
    ] {
        let _ = writeln!(text, "{name:<12} {value}");
    }
    text
}

/// The features that this binary was built with.
fn features() -> String {
    let all = [
        ("strict", cfg!(feature = "strict")),
        ("fault-injection", cfg!(feature = "fault-injection")),
    ];
    let on = all
        .iter()
        .filter(|(_, is_on)| *is_on)
        .map(|(name, _)| *name);
    match on.collect::<Vec<_>>() {
        none if none.is_empty() => "none".to_owned(),
        some => some.join(", "),
    }
}

/// The fault modes that work here.
fn modes() -> String {
    let all = [FaultMode::Signal, FaultMode::Thread, FaultMode::Segv];
    let works = all.into_iter().filter(|mode| kernel::check(*mode).is_ok());
    match works.map(FaultMode::name).collect::<Vec<_>>() {
        none if none.is_empty() => "none: see 'uzswap doctor'".to_owned(),
        some => some.join(", "),
    }
}
