//! *What*: the engine for programs that no dynamic linker brings it into: static ones, those of
//! another C library, those that make their system calls themselves. This crate, built with the
//! feature `loader`, is linked without any library to the fixed address [`BASE`]. A tracer puts the
//! image into a program that is being executed, before its first instruction ([`crate::inject`]).
//!
//! Where to look: [`start`] (first code in the program), [`dispatch`] (all its calls come to us),
//! [`calls`] (those that the guard does not know), [`clone`] (threads), [`sigreturn`],
//! [`sites`] (calls that are trapped no more), [`program_break`], [`command`] (the image as a
//! program that executes another).
//!
//! *Invariants*: the image, the handler stacks and the stub page lie in one range of addresses,
//! from which calls go to the kernel. Every other call of the process is trapped, wherever its
//! instruction lies, but for those of rewritten [`sites`], and whatever was executed before: exec
//! ends the dispatch, so that no program inherits it. There is no thread-local storage, so the
//! program's registers for it stay as they are.
//! *Locking*: each module's. *Context*: each module's.

pub mod calls;
pub mod clone;
mod command;
pub mod dispatch;
pub mod program_break;
mod rewrite;
pub mod shortcut;
pub mod sigreturn;
pub mod sites;
pub mod start;
mod unused;

use crate::guard::stub::STUB;
use crate::threads::STACKS;

/// Where the image is linked to: build.rs of uzswap-cli names the same address.
pub const BASE: usize = 0x0ffd_0000_0000;
const _: () = assert!(BASE < STACKS && STACKS < STUB);
