//! *What*: one codec's compressor, in its owner's memory.
//! *Invariants*: all pointers in a [`Compressor`] lead into the memory it was made in, at the same
//! address for its whole life (so it survives fork, which copies that memory to the same place).
//! *Locking*: `&mut self`: one thread at a time.
//! *Context*: [`Compressor::init`]: init, or any with signals blocked. The rest: any.

use crate::error::{CompressError, InitError};
use crate::{
    Codec, MAX_BLOCK, MIN_BLOCK, align_up, check_block, check_memory, deflate, lz4, pz, stable,
    zstd,
};
use core::ptr::NonNull;

#[derive(Debug)]
enum Context {
    Lz4(NonNull<lz4::Table>),
    /// And room for a filtered block.
    Zstd(NonNull<zstd_sys::ZSTD_CCtx>, NonNull<[u8]>),
    Deflate(NonNull<deflate::Compressor>),
    /// For pages, and for longer blocks if there may be any.
    Pz(
        NonNull<pz::Workspace>,
        Option<NonNull<pz::BlockMemory>>,
        pz::Level,
    ),
}

/// Compresses with one codec, blocks up to a fixed size. To free one, free its memory.
#[derive(Debug)]
pub struct Compressor {
    context: Context,
    /// Holds a copy of the source: see [`Compressor::compress`].
    staging: NonNull<u8>,
    max_block: usize,
    codec: Codec,
}

// SAFETY: the pointers lead to memory that only this value uses.
unsafe impl Send for Compressor {}

fn context_size(codec: Codec, max_block: usize) -> usize {
    match codec {
        Codec::Lz4 => size_of::<lz4::Table>(),
        Codec::Zstd { level } => zstd::cctx_size(level, max_block),
        Codec::Deflate { level } => deflate::compressor_size(level),
        Codec::Pz { .. } => size_of::<pz::Workspace>(),
    }
}

/// Bytes behind the context.
const fn room_size(codec: Codec, max_block: usize) -> usize {
    match codec {
        Codec::Zstd { level } => zstd::filter_room(level, max_block),
        Codec::Pz { .. } if max_block > MIN_BLOCK => size_of::<pz::BlockMemory>(),
        _ => 0,
    }
}

impl Compressor {
    /// Bytes that [`Compressor::init`] needs for blocks up to `max_block` bytes: for single pages
    /// 20 KiB with lz4, 23 KiB with pz and 76 KiB with zstd 1. Not all of it is touched.
    #[must_use]
    pub fn required_size(codec: Codec, max_block: usize) -> usize {
        let max_block = max_block.clamp(MIN_BLOCK, MAX_BLOCK);
        align_up(max_block) + align_up(context_size(codec, max_block)) + room_size(codec, max_block)
    }

    /// Makes a compressor in `len` bytes at `memory`. Allocates nothing. Call with signals blocked,
    /// or before anything can fault: two of these must not interrupt each other on one thread.
    ///
    /// # Errors
    /// See [`InitError`]; none of them is transient.
    ///
    /// # Safety
    /// `memory` is readable and writable for `len` bytes, is used by nobody else and stays where it
    /// is for as long as the compressor is used.
    pub unsafe fn init(
        memory: *mut u8,
        len: usize,
        codec: Codec,
        max_block: usize,
    ) -> Result<Compressor, InitError> {
        check_block(max_block)?;
        let needed = Self::required_size(codec, max_block);
        let staging = check_memory(memory, len, needed)?;
        let at = align_up(max_block);
        // SAFETY: inside `len`, as just checked.
        let memory = unsafe { memory.add(at) };
        let room_len = room_size(codec, max_block);
        let len = needed - at - room_len;
        let context = match codec {
            Codec::Lz4 => {
                // SAFETY: `len` bytes at `memory` are ours alone, and aligned to 64.
                unsafe { lz4::Table::init(memory) };
                NonNull::new(memory.cast()).map(Context::Lz4)
            }
            Codec::Zstd { level } => {
                // SAFETY: as above.
                let cctx = unsafe { zstd::init_cctx(memory, len, level) };
                // SAFETY: what is behind it lies inside as well.
                let room = unsafe { memory.add(len) };
                // SAFETY: as above, and it is bytes from here on, whatever was there.
                unsafe { room.write_bytes(0, room_len) };
                let room = NonNull::new(room);
                cctx.zip(room).map(|(cctx, behind)| {
                    Context::Zstd(cctx, NonNull::slice_from_raw_parts(behind, room_len))
                })
            }
            Codec::Deflate { level } => {
                // SAFETY: as above.
                unsafe { deflate::init_compressor(memory, len, level) }.map(Context::Deflate)
            }
            Codec::Pz { level } => {
                // SAFETY: what is behind it lies inside as well, is aligned as it is, and any bytes
                // will do.
                let behind = unsafe { memory.add(len) }.cast();
                let blocks = NonNull::new(behind).filter(|_| room_len > 0);
                // SAFETY: as above.
                let pages = unsafe { pz::init(memory) };
                let level = pz::level(level);
                pages
                    .zip(level)
                    .map(|(pages, level)| Context::Pz(pages, blocks, level))
            }
        };
        Ok(Compressor {
            context: context.ok_or(InitError::BadLevel)?,
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

    /// From the next block on compresses with `codec`: another level of pz. `false`: it cannot, as
    /// that takes a compressor made for it.
    pub fn set_codec(&mut self, codec: Codec) -> bool {
        if let (Context::Pz(_, _, level), Codec::Pz { level: number }) = (&mut self.context, codec)
            && let Some(new) = pz::level(number)
        {
            *level = new;
            self.codec = codec;
        }
        self.codec == codec
    }

    /// Where the memory that it was made in begins.
    #[must_use]
    pub const fn memory(&self) -> NonNull<u8> {
        self.staging
    }

    /// The largest source, in bytes.
    #[must_use]
    pub const fn max_block(&self) -> usize {
        self.max_block
    }

    /// Compresses `len` bytes at `src`, which the program may be writing meanwhile, into `dst`, and
    /// returns the bytes used. `dst` may be shorter than `len`: a block that compresses worse is
    /// then given up early. If the source changed during the call, the result is an object of some
    /// mixture of contents and must be thrown away; nothing worse happens.
    ///
    /// The source is read once, into the compressor's memory (50-75 ns for a page): no C codec
    /// promises to stay inside an input that changes.
    ///
    /// # Errors
    /// [`CompressError::Poor`] if it does not fit `dst`; [`CompressError::Failed`] if `len` is no
    /// multiple of 4096 up to [`Compressor::max_block`], or the library failed.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes without a fault that needs this thread's engine, and
    /// aligned to 16.
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

    /// [`Compressor::compress`] of memory that nobody writes, of any length up to
    /// [`Compressor::max_block`]: no copy.
    ///
    /// # Errors
    /// As [`Compressor::compress`].
    #[inline]
    pub fn compress_stable(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CompressError> {
        if src.is_empty() || src.len() > self.max_block {
            return Err(CompressError::Failed);
        }
        match self.context {
            // SAFETY: a context made by `init`, ours by `&mut self`. The same for the others.
            Context::Lz4(mut table) => lz4::compress(unsafe { table.as_mut() }, src, dst),
            // SAFETY: see above.
            Context::Zstd(cctx, mut room) => unsafe {
                zstd::compress_block(cctx, room.as_mut(), src, dst)
            },
            // SAFETY: see above.
            Context::Deflate(compressor) => unsafe { deflate::compress(compressor, src, dst) },
            Context::Pz(mut pages, blocks, level) => match blocks {
                // SAFETY: see above.
                Some(mut blocks) if src.len() > MIN_BLOCK => unsafe {
                    pz::compress_block(blocks.as_mut(), level, src, dst)
                },
                // SAFETY: see above.
                _ => pz::compress(unsafe { pages.as_mut() }, level, src, dst),
            },
        }
    }
}
