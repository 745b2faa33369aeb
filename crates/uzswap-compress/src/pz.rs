//! What: our own codec, on the common interface.
//! Invariants: those of `uzswap-pz`, which takes single pages only.
//! Locking: none.
//! Context: any.

use core::ptr::NonNull;

pub(crate) use uzswap_pz::{Level, Workspace};

use crate::{CompressError, DecompressError};

/// The level that users write as a number.
pub(crate) fn level(number: i32) -> Option<Level> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    Level::ALL.get(index).copied()
}

/// Makes a workspace in place.
///
/// # Safety
/// `memory` is writable for a [`Workspace`], aligned to 64, and used by nobody else.
pub(crate) unsafe fn init(memory: *mut u8) -> Option<NonNull<Workspace>> {
    let workspace = memory.cast::<Workspace>();
    // SAFETY: the caller's promise; all zeros are a valid workspace.
    unsafe { workspace.write_bytes(0, 1) };
    NonNull::new(workspace)
}

/// Compresses one page.
#[inline]
pub(crate) fn compress(
    workspace: &mut Workspace,
    level: Level,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    let page = src.try_into().map_err(|_| CompressError::Failed)?;
    uzswap_pz::compress(workspace, level, page, dst).map_err(|_| CompressError::Poor)
}

/// Decompresses one page.
#[inline]
pub(crate) fn decompress(
    workspace: &mut Workspace,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    let page = dst.try_into().map_err(|_| DecompressError::Corrupt)?;
    uzswap_pz::decompress(workspace, src, page).map_err(|_| DecompressError::Corrupt)
}
