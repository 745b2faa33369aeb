//! *What*: pz behind the common interface. Single pages and longer blocks have their own workspace
//! and format each; blocks are filtered.
//! *Invariants*: those of `uzswap-pz`. *Locking*: none. *Context*: any.

use core::ptr::NonNull;

pub(crate) use uzswap_pz::{BlockWorkspace, Level, Workspace};

use crate::filter::{self, Filtered, Scratch};
use crate::{CompressError, DecompressError, MIN_BLOCK};

/// The level of that number, as users write it.
pub(crate) fn level(number: i32) -> Option<Level> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    Level::ALL.get(index).copied()
}

/// A compressor's memory for blocks of more than a page. Any bytes are valid: fresh memory needs no
/// initialization, and is not touched.
#[repr(C)]
pub(crate) struct BlockMemory {
    workspace: BlockWorkspace,
    room: [u8; crate::MAX_BLOCK],
}

/// A decompressor's, of which [`BLOCK_DECOMPRESSOR_USED`] bytes are used. Any bytes are valid.
#[repr(C)]
pub(crate) struct BlockDecompressor {
    scratch: Scratch,
    workspace: BlockWorkspace,
}

/// Bytes from the start of a [`BlockDecompressor`] that are used.
pub(crate) const BLOCK_DECOMPRESSOR_USED: usize =
    core::mem::offset_of!(BlockDecompressor, workspace) + BlockWorkspace::TO_DECOMPRESS;

/// Makes a workspace for pages in place.
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
    uzswap_pz::compress(workspace, level, src, dst).map_err(|_| CompressError::Poor)
}

/// Filtered blocks, at a level.
struct Blocks<'a>(&'a mut BlockWorkspace, Level);

impl Filtered for Blocks<'_> {
    const MIN_LEN: usize = MIN_BLOCK;
    const SAMPLE: usize = 1024;
    const PART: usize = 256;
    const MIN_GAIN_DIVISOR: usize = 100;

    fn size_of(&mut self, sample: &[u8], _scratch: &mut [u8]) -> usize {
        self.0.estimate(sample)
    }

    fn compress(&mut self, block: &[u8], dst: &mut [u8]) -> Result<usize, CompressError> {
        uzswap_pz::compress(self.0, self.1, block, dst).map_err(|_| CompressError::Poor)
    }
}

/// Compresses a block of more than a page.
pub(crate) fn compress_block(
    memory: &mut BlockMemory,
    level: Level,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CompressError> {
    let BlockMemory { workspace, room } = memory;
    filter::compress(&mut Blocks(workspace, level), room, src, dst)
}

/// Decompresses one page.
#[inline]
pub(crate) fn decompress(
    workspace: &mut Workspace,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    uzswap_pz::decompress(workspace, src, dst).map_err(|_| DecompressError::Corrupt)
}

/// Decompresses a block of more than a page, and undoes its filter in the `first` bytes.
pub(crate) fn decompress_block(
    memory: &mut BlockDecompressor,
    src: &[u8],
    first: usize,
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    let BlockDecompressor { scratch, workspace } = memory;
    let decode = |src: &[u8], dst: &mut [u8]| {
        uzswap_pz::decompress(workspace, src, dst).map_err(|_| DecompressError::Corrupt)
    };
    filter::decompress(decode, scratch, src, first, dst)
}
