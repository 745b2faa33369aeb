//! *What*: decodes objects of every codec, in its owner's memory.
//! *Invariants*: the memory has a part for each codec, of whole pages, that is not touched before
//! the first object of that codec is decoded. All pointers lead into it, at the same address for
//! its whole life.
//! *Locking*: `&mut self`: one thread at a time.
//! *Context*: any, with signals blocked or before anything can fault: the first object of a codec
//! makes its context.

use crate::error::{DecompressError, InitError};
use crate::filter::Scratch;
use crate::{CodecId, MIN_BLOCK, PAGE, align_up, check_memory, deflate, lz4, pz, zstd};
use core::ptr::NonNull;

/// Decodes objects of every codec. To free one, free its memory.
#[derive(Debug)]
pub struct Decompressor {
    memory: NonNull<u8>,
    zstd: Option<(NonNull<zstd_sys::ZSTD_DCtx>, NonNull<Scratch>)>,
    deflate: Option<NonNull<deflate::Decompressor>>,
    pz: Option<NonNull<pz::Workspace>>,
    pz_blocks: Option<NonNull<pz::BlockDecompressor>>,
}

// SAFETY: the pointers lead to memory that only this value uses.
unsafe impl Send for Decompressor {}

impl Decompressor {
    /// Bytes that [`Decompressor::init`] needs.
    #[must_use]
    pub fn required_size() -> usize {
        Self::part_offset(CodecId::Pz)
            + Self::part_size(CodecId::Pz, MIN_BLOCK)
            + size_of::<pz::BlockDecompressor>().next_multiple_of(PAGE)
    }

    /// Bytes of that, whole pages, which decoding this codec's blocks of up to `max_block` bytes
    /// touches: none for lz4, 100 KiB for zstd.
    #[must_use]
    pub fn part_size(id: CodecId, max_block: usize) -> usize {
        let len = match id {
            CodecId::Lz4 => 0,
            CodecId::Zstd => align_up(zstd::dctx_size()) + size_of::<Scratch>(),
            CodecId::Deflate => deflate::decompressor_size(),
            CodecId::Pz if max_block > MIN_BLOCK => {
                Self::part_size(id, MIN_BLOCK) + pz::BLOCK_DECOMPRESSOR_USED
            }
            CodecId::Pz => size_of::<pz::Workspace>(),
        };
        align_up(len).next_multiple_of(PAGE)
    }

    /// Makes a decompressor in `len` bytes at `memory`, without touching them.
    ///
    /// # Errors
    /// [`InitError::TooSmall`], [`InitError::Misaligned`].
    ///
    /// # Safety
    /// `memory` is readable and writable for `len` bytes, is used by nobody else and stays where it
    /// is for as long as the decompressor is used.
    pub unsafe fn init(memory: *mut u8, len: usize) -> Result<Decompressor, InitError> {
        Ok(Decompressor {
            memory: check_memory(memory, len, Self::required_size())?,
            zstd: None,
            deflate: None,
            pz: None,
            pz_blocks: None,
        })
    }

    /// Decompresses `src` into the whole of `dst`. Any input is safe: what is not an object of
    /// exactly `dst.len()` bytes fails.
    ///
    /// # Errors
    /// [`DecompressError::Corrupt`].
    #[inline]
    pub fn decompress(
        &mut self,
        id: CodecId,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(), DecompressError> {
        self.decompress_first(id, src, dst.len(), dst)
    }

    /// Decompresses the `first` bytes of `src`, an object of `dst.len()` bytes. lz4 stops soon
    /// after them, the others decode everything. The rest of `dst` is undefined, and damage there
    /// may go unnoticed. Any input is safe.
    ///
    /// # Errors
    /// [`DecompressError::Corrupt`].
    #[inline]
    pub fn decompress_first(
        &mut self,
        id: CodecId,
        src: &[u8],
        first: usize,
        dst: &mut [u8],
    ) -> Result<(), DecompressError> {
        const CORRUPT: DecompressError = DecompressError::Corrupt;
        match id {
            CodecId::Lz4 => lz4::decompress(src, first, dst),
            CodecId::Zstd => {
                let made = self.zstd.or_else(|| self.make_zstd());
                let (dctx, mut scratch) = made.ok_or(CORRUPT)?;
                // SAFETY: both made in our memory, ours by `&mut self`. The same below.
                unsafe { zstd::decompress_block(dctx, scratch.as_mut(), src, first, dst) }
            }
            CodecId::Deflate => {
                let made = self.deflate.or_else(|| self.make_deflate());
                // SAFETY: see above.
                unsafe { deflate::decompress(made.ok_or(CORRUPT)?, src, dst) }
            }
            CodecId::Pz if dst.len() > MIN_BLOCK => {
                let made = self.pz_blocks.or_else(|| self.make_pz_blocks());
                // SAFETY: see above.
                pz::decompress_block(unsafe { made.ok_or(CORRUPT)?.as_mut() }, src, first, dst)
            }
            CodecId::Pz => {
                let mut workspace = self.pz.or_else(|| self.make_pz()).ok_or(CORRUPT)?;
                // SAFETY: see above.
                pz::decompress(unsafe { workspace.as_mut() }, src, dst)
            }
        }
    }

    /// Bytes before the part of a codec.
    fn part_offset(id: CodecId) -> usize {
        let end_of = |id| Self::part_offset(id) + Self::part_size(id, MIN_BLOCK);
        match id {
            CodecId::Lz4 | CodecId::Zstd => 0,
            CodecId::Deflate => end_of(CodecId::Zstd),
            CodecId::Pz => end_of(CodecId::Deflate),
        }
    }

    /// Where the part of a codec begins.
    fn part(&self, id: CodecId) -> *mut u8 {
        // SAFETY: the parts lie one after the other in `required_size` bytes.
        unsafe { self.memory.as_ptr().add(Self::part_offset(id)) }
    }

    #[cold]
    fn make_zstd(&mut self) -> Option<(NonNull<zstd_sys::ZSTD_DCtx>, NonNull<Scratch>)> {
        let id = CodecId::Zstd;
        let len = Self::part_size(id, MIN_BLOCK) - size_of::<Scratch>();
        // SAFETY: the codec's own part, aligned to 64, which nothing else uses: the context, then
        // the scratch, for which any bytes are valid.
        unsafe {
            let scratch = NonNull::new(self.part(id).add(len).cast::<Scratch>())?;
            scratch.write_bytes(0, 1);
            let dctx = zstd::init_dctx(self.part(id), len)?;
            self.zstd = Some((dctx, scratch));
        }
        self.zstd
    }

    #[cold]
    fn make_deflate(&mut self) -> Option<NonNull<deflate::Decompressor>> {
        let id = CodecId::Deflate;
        let size = Self::part_size(id, MIN_BLOCK);
        // SAFETY: as in `make_zstd`.
        self.deflate = unsafe { deflate::init_decompressor(self.part(id), size) };
        self.deflate
    }

    #[cold]
    fn make_pz(&mut self) -> Option<NonNull<pz::Workspace>> {
        // SAFETY: as in `make_zstd`.
        self.pz = unsafe { pz::init(self.part(CodecId::Pz)) };
        self.pz
    }

    #[cold]
    fn make_pz_blocks(&mut self) -> Option<NonNull<pz::BlockDecompressor>> {
        let behind = Self::part_size(CodecId::Pz, MIN_BLOCK);
        // SAFETY: the last part lies inside `required_size` bytes, and nothing else uses it; any
        // bytes will do.
        self.pz_blocks = NonNull::new(unsafe { self.part(CodecId::Pz).add(behind) }.cast());
        self.pz_blocks
    }
}
