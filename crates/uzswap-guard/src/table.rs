//! *What*: for each system call, which of its arguments the kernel takes for pointers, and how much
//! it reads or writes there. Filter A is made from it (trap if one of these arguments lies in the
//! arena), and the SIGSYS handler goes by it (pin that much). A call is added in
//! `x86_64/table.rs`.
//!
//! *Invariants*: a call that is not listed and below [`END`] has no pointers, or
//! its pointers are addresses that the kernel does not access (`munmap`), or it must not be
//! touched (`rt_sigreturn`, `clone`). Extents are never less than what the kernel accesses; more
//! is harmless. Where it depends on other arguments, the guard decides.
//! *Locking*: none. *Context*: any.

pub use crate::arch_table::{END, TABLE};

/// How many bytes a pointer argument points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many.
    Bytes(u32),
    /// Argument number `.0` says how many units of `.1` bytes.
    Units(u8, u16),
    /// The C `int` that argument number `.0` points at says how many.
    At(u8),
    /// Up to a zero byte.
    CString,
    /// Bits in argument number `.0`, in whole words of 8 bytes: file descriptor and CPU sets.
    Bits(u8),
    /// Depends on the call: the guard decides.
    Unknown,
}

/// One pointer argument.
#[derive(Clone, Copy, Debug)]
pub struct Pointer {
    /// Argument number, 0 to 5.
    pub arg: u8,
    /// How much.
    pub extent: Extent,
}

/// What is done for calls newer than the table: any argument may be a pointer.
pub const UNKNOWN: &[Pointer] = &[u(0), u(1), u(2), u(3), u(4), u(5)];

const fn p(arg: u8, extent: Extent) -> Pointer {
    Pointer { arg, extent }
}
/// `n` bytes.
pub const fn r(arg: u8, n: u32) -> Pointer {
    p(arg, Extent::Bytes(n))
}
/// As long as argument `len` says.
pub const fn rl(arg: u8, len: u8) -> Pointer {
    p(arg, Extent::Units(len, 1))
}
/// `unit` bytes for each that argument `len` counts.
pub const fn rn(arg: u8, len: u8, unit: u16) -> Pointer {
    p(arg, Extent::Units(len, unit))
}
/// A path or name.
pub const fn s(arg: u8) -> Pointer {
    p(arg, Extent::CString)
}
/// As long as the `int` at argument `len` says.
pub const fn wa(arg: u8, len: u8) -> Pointer {
    p(arg, Extent::At(len))
}
/// A bit set.
pub const fn rb(arg: u8, bits: u8) -> Pointer {
    p(arg, Extent::Bits(bits))
}
/// Extent not known.
pub const fn u(arg: u8) -> Pointer {
    p(arg, Extent::Unknown)
}
// What the kernel writes is pinned as what it reads; the table says which it is all the same.
pub use self::{r as w, rb as wb, rl as wl, rn as wn};

/// The pointers of call `nr`.
#[must_use]
pub fn pointers(nr: usize) -> &'static [Pointer] {
    TABLE.get(nr).copied().unwrap_or(UNKNOWN)
}

/// Bit `n` for each argument `n` of call `nr` that is a pointer.
#[must_use]
pub fn mask(nr: usize) -> u8 {
    pointers(nr).iter().fold(0, |m, p| m | 1 << p.arg)
}
