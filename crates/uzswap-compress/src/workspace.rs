//! What: everything that one CPU slot needs to compress and decompress, in memory of its owner.
//! Invariants: all pointers in a [`Workspace`] lie in the memory it was made in, at the same address
//! for its whole life (so it survives fork, which copies that memory to the same place).
//! Locking: `&mut self`: one thread at a time, by the owner's slot lock.
//! Context: [`Workspace::init`]: init. The rest: any.

use crate::{
    Codec, CodecId, MAX_BLOCK, MIN_BLOCK, WORKSPACE_ALIGN, deflate, lz4, pz, stable, zstd,
};
use core::fmt;
use core::ptr::NonNull;

/// Why a block was not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressError {
    /// The result does not fit the destination: keep the page as it is
    /// (`reject_compress_poor`).
    Poor,
    /// The codec failed, or the source's length is not one it takes (`reject_compress_fail`).
    Failed,
}

/// Why an object was not decompressed. What the destination holds is undefined then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecompressError {
    /// The bytes are no object of this codec, or not one of the destination's length.
    Corrupt,
    /// The workspace was made for another codec.
    NoContext(CodecId),
}

/// Why a workspace could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The memory is smaller than [`Workspace::required_size`] says.
    TooSmall {
        /// Bytes needed.
        needed: usize,
    },
    /// The memory is not aligned to [`WORKSPACE_ALIGN`].
    Misaligned,
    /// The block size is not a power of two from 4 KiB to 64 KiB.
    BadBlock,
    /// The library refused the level.
    BadLevel,
}

impl fmt::Display for CompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poor => "does not compress well enough",
            Self::Failed => "the compressor failed",
        })
    }
}

impl fmt::Display for DecompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt => f.write_str("compressed data is corrupt"),
            Self::NoContext(id) => write!(f, "no {} decompressor in this workspace", id.name()),
        }
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { needed } => write!(f, "workspace too small: {needed} bytes needed"),
            Self::Misaligned => f.write_str("workspace not aligned to 64 bytes"),
            Self::BadBlock => f.write_str("block size must be a power of two from 4 to 64 KiB"),
            Self::BadLevel => f.write_str("compression level refused"),
        }
    }
}

impl core::error::Error for CompressError {}
impl core::error::Error for DecompressError {}
impl core::error::Error for InitError {}

#[derive(Debug)]
enum Contexts {
    Lz4 {
        table: NonNull<lz4::Table>,
    },
    Zstd {
        cctx: NonNull<zstd_sys::ZSTD_CCtx>,
        dctx: NonNull<zstd_sys::ZSTD_DCtx>,
    },
    Deflate {
        compressor: NonNull<deflate::Compressor>,
        decompressor: NonNull<deflate::Decompressor>,
    },
    Pz {
        workspace: NonNull<pz::Workspace>,
        level: pz::Level,
    },
}

/// The contexts of one codec, for blocks up to a fixed size. Freeing one is giving its memory back;
/// there is nothing to drop.
#[derive(Debug)]
pub struct Workspace {
    contexts: Contexts,
    /// Takes a copy of the source: see [`Workspace::compress`].
    staging: NonNull<u8>,
    max_block: usize,
    codec: Codec,
}

// SAFETY: the pointers lead to memory that only this value uses.
unsafe impl Send for Workspace {}

/// Where the parts lie, as offsets from the start.
struct Layout {
    first: usize,
    second: usize,
    end: usize,
}

const fn align_up(len: usize) -> usize {
    (len + WORKSPACE_ALIGN - 1) & !(WORKSPACE_ALIGN - 1)
}

fn layout(codec: Codec, max_block: usize) -> Layout {
    let (first_len, second_len) = match codec {
        Codec::Lz4 => (size_of::<lz4::Table>(), 0),
        Codec::Zstd { level } => (zstd::cctx_size(level, max_block), zstd::dctx_size()),
        Codec::Deflate { level } => (
            deflate::compressor_size(level),
            deflate::decompressor_size(),
        ),
        Codec::Pz { .. } => (size_of::<pz::Workspace>(), 0),
    };
    let first = align_up(max_block);
    let second = first + align_up(first_len);
    Layout {
        first,
        second,
        end: second + align_up(second_len),
    }
}

impl Workspace {
    /// Bytes that [`Workspace::init`] needs for blocks up to `max_block` bytes: with 4 KiB blocks
    /// about 20 KiB for lz4, 250 KiB for zstd 1. Not all of it is touched.
    #[must_use]
    pub fn required_size(codec: Codec, max_block: usize) -> usize {
        layout(codec, max_block.clamp(MIN_BLOCK, MAX_BLOCK)).end
    }

    /// Makes a workspace in `len` bytes at `memory`. Allocates nothing. Call with signals blocked, or
    /// before anything can fault: two of these must not interrupt each other on one thread.
    ///
    /// # Errors
    /// See [`InitError`]; none of them is transient.
    ///
    /// # Safety
    /// `memory` is readable and writable for `len` bytes, is used by nobody else and stays where it
    /// is for as long as the workspace is used.
    pub unsafe fn init(
        memory: *mut u8,
        len: usize,
        codec: Codec,
        max_block: usize,
    ) -> Result<Workspace, InitError> {
        if !max_block.is_power_of_two() || !(MIN_BLOCK..=MAX_BLOCK).contains(&max_block) {
            return Err(InitError::BadBlock);
        }
        let at = layout(codec, max_block);
        if len < at.end {
            return Err(InitError::TooSmall { needed: at.end });
        }
        let Some(staging) = NonNull::new(memory)
            .filter(|memory| memory.addr().get().is_multiple_of(WORKSPACE_ALIGN))
        else {
            return Err(InitError::Misaligned);
        };
        // SAFETY: both offsets are inside `len`, as just checked.
        let (first, second) = unsafe { (memory.add(at.first), memory.add(at.second)) };
        let (first_len, second_len) = (at.second - at.first, at.end - at.second);
        let contexts = match codec {
            Codec::Lz4 => {
                // SAFETY: `first_len` bytes at `first` are ours alone, and aligned to 64.
                unsafe { lz4::Table::init(first) };
                NonNull::new(first.cast()).map(|table| Contexts::Lz4 { table })
            }
            // SAFETY: as above, and `second_len` bytes at `second`.
            Codec::Zstd { level } => unsafe {
                zstd::init_cctx(first, first_len, level)
                    .zip(zstd::init_dctx(second, second_len))
                    .map(|(cctx, dctx)| Contexts::Zstd { cctx, dctx })
            },
            // SAFETY: as above.
            Codec::Deflate { level } => unsafe {
                deflate::init_compressor(first, first_len, level)
                    .zip(deflate::init_decompressor(second, second_len))
                    .map(|(compressor, decompressor)| Contexts::Deflate {
                        compressor,
                        decompressor,
                    })
            },
            Codec::Pz { level } => {
                // SAFETY: `first_len` bytes at `first` are ours alone, and aligned to 64.
                let workspace = unsafe { pz::init(first) };
                workspace
                    .zip(pz::level(level))
                    .map(|(workspace, level)| Contexts::Pz { workspace, level })
            }
        };
        let contexts = contexts.ok_or(InitError::BadLevel)?;
        Ok(Workspace {
            contexts,
            staging,
            max_block,
            codec,
        })
    }

    /// The codec it compresses with.
    #[must_use]
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// The largest source, in bytes.
    #[must_use]
    pub const fn max_block(&self) -> usize {
        self.max_block
    }

    /// Compresses `len` bytes at `src`, which the program may be writing meanwhile, into `dst`, and
    /// returns the bytes used. `dst` may be shorter than `len`: a block that compresses worse is then
    /// given up early. If the source changed during the call, the result is an object of some mixture
    /// of contents and must be thrown away; nothing worse happens.
    ///
    /// The source is copied to the workspace first (40-80 ns for a page) and read exactly once: no C
    /// codec promises to stay inside its input when that changes under it.
    ///
    /// # Errors
    /// [`CompressError::Poor`] if it does not fit `dst`; [`CompressError::Failed`] if `len` is no
    /// multiple of 4096 up to [`Workspace::max_block`], pz is given more than one page, or the library failed.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes without a fault that needs this thread's engine, and aligned
    /// to 16.
    #[inline]
    pub unsafe fn compress(
        &mut self,
        src: *const u8,
        len: usize,
        dst: &mut [u8],
    ) -> Result<usize, CompressError> {
        if len == 0 || len > self.max_block || !len.is_multiple_of(MIN_BLOCK) {
            return Err(CompressError::Failed);
        }
        let staging = self.staging.as_ptr();
        // SAFETY: `src` by the caller's promise; staging holds `max_block` bytes and is aligned.
        unsafe { stable::copy(staging, src, len) };
        // SAFETY: just written, and used by nothing but the call below.
        let src = unsafe { core::slice::from_raw_parts(staging, len) };
        self.compress_stable(src, dst)
    }

    /// [`Workspace::compress`] of memory that nobody writes, of any length up to
    /// [`Workspace::max_block`]: no copy.
    ///
    /// # Errors
    /// As [`Workspace::compress`].
    #[inline]
    pub fn compress_stable(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CompressError> {
        if src.is_empty() || src.len() > self.max_block {
            return Err(CompressError::Failed);
        }
        match self.contexts {
            // SAFETY: contexts made by `init`, ours by `&mut self`. The same for the others.
            Contexts::Lz4 { mut table } => lz4::compress(unsafe { table.as_mut() }, src, dst),
            // SAFETY: see above.
            Contexts::Zstd { cctx, .. } => unsafe { zstd::compress(cctx, src, dst) },
            // SAFETY: see above.
            Contexts::Deflate { compressor, .. } => unsafe {
                deflate::compress(compressor, src, dst)
            },
            Contexts::Pz {
                mut workspace,
                level,
                // SAFETY: see above.
            } => pz::compress(unsafe { workspace.as_mut() }, level, src, dst),
        }
    }

    /// Decompresses `src` into the whole of `dst`. Any input is safe: what is not an object of
    /// exactly `dst.len()` bytes fails.
    ///
    /// # Errors
    /// [`DecompressError::Corrupt`]; [`DecompressError::NoContext`] for a codec other than the
    /// workspace's (lz4 needs no context and is always there).
    #[inline]
    pub fn decompress(
        &mut self,
        id: CodecId,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), DecompressError> {
        match (id, &mut self.contexts) {
            (CodecId::Lz4, _) => lz4::decompress(src, dst),
            // SAFETY: contexts made by `init`, ours by `&mut self`. The same below.
            (CodecId::Zstd, Contexts::Zstd { dctx, .. }) => unsafe {
                zstd::decompress(*dctx, src, dst)
            },
            // SAFETY: see above.
            (CodecId::Deflate, Contexts::Deflate { decompressor, .. }) => unsafe {
                deflate::decompress(*decompressor, src, dst)
            },
            (CodecId::Pz, Contexts::Pz { workspace, .. }) => {
                // SAFETY: see above.
                pz::decompress(unsafe { workspace.as_mut() }, src, dst)
            }
            _ => Err(DecompressError::NoContext(id)),
        }
    }
}
