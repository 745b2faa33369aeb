//! The file that `bench --json` writes and `report` reads.
//!
//! *What*: its schema: command, version, machine, and every figure of every round.
//! *Invariants*: any uzswap of the same schema version can read it.
//! *Locking*: none.
//! *Context*: the bench and report commands.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::compare;
use crate::machine::Machine;
use crate::section::Section;

/// Identifies the file format.
const FORMAT: &str = "uzswap-bench";
/// Version of the schema.
const VERSION: u32 = 1;

/// The results of one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    format: String,
    version: u32,
    /// Version of uzswap.
    pub uzswap: String,
    /// The command.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// Whether it completed; false if it was interrupted.
    pub complete: bool,
    /// What was skipped, and why.
    pub skipped: Vec<String>,
    /// The suites that it ran.
    pub suites: Vec<Suite>,
}

/// The results of one suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "suite", rename_all = "kebab-case")]
pub enum Suite {
    /// See [`uzswap_corpus::codecs`].
    Codecs(uzswap_corpus::codecs::Measured),
    /// See [`crate::usemem`].
    Usemem(compare::Measured),
    /// See [`crate::disk`].
    Disk(compare::Measured),
    /// See [`crate::group`].
    Group(compare::Measured),
    /// See [`crate::store`].
    Store(compare::Measured),
    /// See [`crate::store`].
    Batch(compare::Measured),
    /// See [`crate::same_filled`].
    SameFilled(compare::Measured),
    /// See [`crate::alloc`].
    Alloc(compare::Measured),
    /// See [`crate::tail`].
    Tail(compare::Measured),
    /// See [`crate::remote`].
    Remote(compare::Measured),
    /// See [`crate::apps`].
    Apps(compare::Measured),
    /// See [`crate::apps::build`].
    Build(compare::Measured),
    /// See [`crate::apps::saving`].
    Saving(compare::Measured),
}

impl Suite {
    /// The charts and tables.
    #[must_use]
    pub fn section(&self) -> Section {
        match self {
            Suite::Codecs(measured) => crate::codecs::section(measured),
            Suite::Usemem(measured)
            | Suite::Disk(measured)
            | Suite::Store(measured)
            | Suite::Batch(measured)
            | Suite::Group(measured)
            | Suite::SameFilled(measured)
            | Suite::Alloc(measured)
            | Suite::Tail(measured)
            | Suite::Remote(measured)
            | Suite::Apps(measured)
            | Suite::Build(measured)
            | Suite::Saving(measured) => measured.section(),
        }
    }
}

impl Results {
    /// Empty results of `command` on this machine.
    #[must_use]
    pub fn new(uzswap: &str, command: String) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            uzswap: uzswap.into(),
            command,
            machine: Machine::here(),
            complete: true,
            skipped: Vec::new(),
            suites: Vec::new(),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Parses what [`Results::write`] wrote.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        const NOT_OURS: &str = "not written by 'uzswap bench --json' or 'uzswap run --trace'";
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|why| {
            if why.is_eof() && !text.is_empty() {
                format!("cut short, it ends in line {}", why.line())
            } else {
                NOT_OURS.to_owned()
            }
        })?;
        if value["format"] != FORMAT {
            return Err(NOT_OURS.into());
        }
        check_version(&value, VERSION)?;
        serde_json::from_value(value).map_err(|why| format!("damaged: {why}"))
    }
}

/// Checks that the schema `version` of a file is the `known` one.
pub(crate) fn check_version(head: &serde_json::Value, known: u32) -> Result<(), String> {
    let version = &head["version"];
    if *version == known {
        return Ok(());
    }
    Err(format!(
        "schema version {version}, this uzswap knows {known}"
    ))
}
