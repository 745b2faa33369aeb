//! The suites of `uzswap bench`, and the page that shows their results.
//!
//! *What*: the suites ([`usemem`], [`disk`], [`store`], [`same_filled`], [`alloc`], [`apps`],
//! [`group`], [`tail`], [`remote`];
//! `codecs` is in [`uzswap_corpus`]), what they need ([`sides`], [`undo`]), the shape of their
//! results ([`compare`]), the file of results ([`results`]), the trace of a run ([`trace`]) and the
//! page made of either ([`report`]).
//! *Invariants*: an interrupted suite returns what it has measured, and restores the machine's
//! settings.
//! *Locking*: none within the process.
//! *Context*: the command-line tool.

pub mod alloc;
pub mod apps;
pub mod codecs;
pub mod compare;
pub mod disk;
pub mod group;
pub mod machine;
mod random;
pub mod remote;
pub mod report;
mod resp;
pub mod results;
pub mod same_filled;
pub mod section;
pub mod sides;
pub mod store;
pub mod tail;
mod timer;
pub mod trace;
pub mod undo;
pub mod usemem;
pub mod work;
