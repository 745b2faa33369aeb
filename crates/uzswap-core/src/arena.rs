//! *What*: the arena, the address range that is managed: which of it the program has mapped, and the kernel's side of
//! it.
//!
//! - `region`: the region map
//! - `mapping`: how a page becomes present, absent and write-protected; `protection`: the same without userfaultfd
//! - `ranges`: what map and kernel say of a range, and the change of that
//! - `hazard`: memory that a system call of the program's uses just now
//!
//! *Invariants*: pages become present only through [`Arena::install`]. That is what makes the limit exact: every page is
//! charged before it is there.
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
