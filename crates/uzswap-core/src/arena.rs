//! *What*: the arena, the managed address range: what the program has mapped there, and the
//! kernel's side of it.
//!
//! - `kernel`: [`Arena`], the owner of both
//! - `region`: the region map
//! - `mapping`: how a page becomes present, absent and write-protected; `protection`: the same
//!   without userfaultfd
//! - `ranges`: queries over region map and kernel, and changes of protection
//! - `hazard`: memory that system calls of the program are using
//!
//! *Invariants*: pages become present only through [`Arena::install`], which makes the limit exact:
//! every page is charged before it is present.
//! *Locking*: region map: leaf. *Context*: any.

pub mod hazard;
#[cfg(not(loom))]
mod kernel;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod protection;
#[cfg(not(loom))]
pub(crate) mod ranges;
pub mod region;

#[cfg(not(loom))]
pub(crate) use self::kernel::Arena;
#[cfg(not(loom))]
pub use self::kernel::FaultMode;
#[cfg(not(loom))]
pub(crate) use self::mapping::Mapping;
