//! A codec at a block size, ready to run: one of ours, or one as the kernel runs it.
//!
//! *What*: one call to compress, one to decompress, and timed passes over all blocks of a program.
//! *Invariants*: a workspace's memory lives as long as the workspace, at one address. A pass reads
//! each block once and writes each object once, as a store does; objects are contiguous.
//! *Locking*: none.
//! *Context*: the bench and analyze commands.

use std::ffi::c_void;
use std::ptr;

use anyhow::{Context, Result, ensure};
use uzswap_compress::{Codec, WORKSPACE_ALIGN, Workspace};

use super::blocks::Pages;
use crate::PAGE;
use crate::process::cpu_time;

/// Distance of the pool's size classes, bytes.
const CLASS_STEP: usize = 16;
/// Level of the kernel's zstd.
const KERNEL_ZSTD_LEVEL: i32 = 3;

/// Who implements the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// One of ours.
    Ours(Codec),
    /// lz4 whose table is cleared for each page.
    KernelLz4,
    /// zstd 3 whose contexts are set up for each page.
    KernelZstd,
}

/// Memory for contexts, aligned for any of them.
struct Memory(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; WORKSPACE_ALIGN]);

impl Memory {
    fn new(len: usize) -> Self {
        Self(vec![
            Line([0; WORKSPACE_ALIGN]);
            len.div_ceil(WORKSPACE_ALIGN)
        ])
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    fn len(&self) -> usize {
        self.0.len() * WORKSPACE_ALIGN
    }
}

enum State {
    Ours(Box<Workspace>),
    Lz4,
    Zstd {
        params: zstd_sys::ZSTD_parameters,
        decoder: Memory,
    },
}

/// A codec at a block size.
pub struct Contestant {
    implementation: Implementation,
    block: usize,
    state: State,
    /// What the state points to; for the kernel's zstd, its compressor's memory.
    memory: Memory,
}

/// The output of a pass. Only one contestant runs at a time, so all can share one.
#[derive(Default)]
pub struct Objects {
    bytes: Vec<u8>,
    /// Length of each object; `None` where the block is kept raw.
    lengths: Vec<Option<usize>>,
}

impl Objects {
    /// Length of each object; `None` where the block is kept raw.
    pub fn lengths(&self) -> impl Iterator<Item = Option<usize>> {
        self.lengths.iter().copied()
    }
}

/// Sizes and times of a pass.
pub struct Pass {
    /// Uncompressed size, bytes.
    pub bytes: usize,
    /// Compressed size, bytes.
    pub compressed: usize,
    /// Compressed size with each object rounded up to a size class, bytes.
    pub packed: usize,
    /// Processor time to compress, seconds.
    pub compress_s: f64,
    /// Processor time to decompress as many blocks, seconds.
    pub decompress_s: f64,
}

impl Contestant {
    /// Sets it up.
    ///
    /// # Errors
    /// If the codec does not take blocks of that size.
    pub fn new(implementation: Implementation, block: usize) -> Result<Self> {
        let (state, memory) = match implementation {
            Implementation::Ours(codec) => {
                let mut memory = Memory::new(Workspace::required_size(codec, block));
                let (at, len) = (memory.as_mut_ptr(), memory.len());
                // SAFETY: the memory is this contestant's alone and never moves: a Vec's content
                // stays where it is.
                let workspace = unsafe { Workspace::init(at, len, codec, block) }
                    .with_context(|| format!("{codec} cannot be set up"))?;
                (State::Ours(Box::new(workspace)), memory)
            }
            Implementation::KernelLz4 => (State::Lz4, Memory::new(0)),
            Implementation::KernelZstd => {
                // SAFETY: plain functions of numbers.
                let (params, compressor, decoder) = unsafe {
                    let params = zstd_sys::ZSTD_getParams(KERNEL_ZSTD_LEVEL, block as u64, 0);
                    let compressor = zstd_sys::ZSTD_estimateCCtxSize_usingCParams(params.cParams);
                    (params, compressor, zstd_sys::ZSTD_estimateDCtxSize())
                };
                let decoder = Memory::new(decoder);
                (State::Zstd { params, decoder }, Memory::new(compressor))
            }
        };
        Ok(Self {
            implementation,
            block,
            state,
            memory,
        })
    }

    /// Name of the codec.
    #[must_use]
    pub fn name(&self) -> String {
        match self.implementation {
            Implementation::Ours(codec) => codec.to_string(),
            Implementation::KernelLz4 => "kernel lz4".into(),
            Implementation::KernelZstd => "kernel zstd".into(),
        }
    }

    /// Size of a block, bytes.
    #[must_use]
    pub fn block(&self) -> usize {
        self.block
    }

    /// Compresses a block into `dst`; `None` if it does not fit.
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        match &mut self.state {
            // SAFETY: blocks are readable and aligned to a page.
            State::Ours(workspace) => unsafe {
                workspace
                    .compressor
                    .compress(src.as_ptr(), src.len(), dst)
                    .ok()
            },
            State::Lz4 => {
                // SAFETY: the lengths are those of the slices.
                let written = unsafe {
                    lz4_sys::LZ4_compress_default(
                        src.as_ptr().cast(),
                        dst.as_mut_ptr().cast(),
                        i32::try_from(src.len()).ok()?,
                        i32::try_from(dst.len()).ok()?,
                    )
                };
                usize::try_from(written).ok().filter(|&n| n > 0)
            }
            State::Zstd { params, .. } => {
                let place = self.memory.as_mut_ptr().cast::<c_void>();
                // SAFETY: the context lies in memory of our own. If that were too small it would be
                // null, which the library refuses with an error code. The lengths are those of the
                // slices.
                let written = unsafe {
                    let context = zstd_sys::ZSTD_initStaticCCtx(place, self.memory.len());
                    zstd_sys::ZSTD_compress_advanced(
                        context,
                        dst.as_mut_ptr().cast(),
                        dst.len(),
                        src.as_ptr().cast(),
                        src.len(),
                        ptr::null(),
                        0,
                        *params,
                    )
                };
                (written <= dst.len()).then_some(written)
            }
        }
    }

    /// Decompresses an object into the whole of `dst`.
    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> bool {
        match &mut self.state {
            State::Ours(workspace) => {
                let id = workspace.compressor.codec().id();
                workspace.decompressor.decompress(id, src, dst).is_ok()
            }
            State::Lz4 => {
                let (Ok(from), Ok(to)) = (i32::try_from(src.len()), i32::try_from(dst.len()))
                else {
                    return false;
                };
                // SAFETY: the lengths are those of the slices.
                let written = unsafe {
                    lz4_sys::LZ4_decompress_safe(
                        src.as_ptr().cast(),
                        dst.as_mut_ptr().cast(),
                        from,
                        to,
                    )
                };
                written == to
            }
            State::Zstd { decoder, .. } => {
                // SAFETY: as in `compress`.
                let written = unsafe {
                    let context =
                        zstd_sys::ZSTD_initStaticDCtx(decoder.as_mut_ptr().cast(), decoder.len());
                    zstd_sys::ZSTD_decompressDCtx(
                        context,
                        dst.as_mut_ptr().cast(),
                        dst.len(),
                        src.as_ptr().cast(),
                        src.len(),
                    )
                };
                written == dst.len()
            }
        }
    }

    /// Compresses all blocks, then decompresses all objects.
    ///
    /// # Errors
    /// If an object does not decompress.
    pub fn pass(&mut self, pages: &Pages, to: &mut Objects) -> Result<Pass> {
        let block = self.block;
        let Objects {
            bytes: objects,
            lengths,
        } = to;
        objects.resize(objects.len().max(pages.len() * PAGE + block), 0);
        lengths.clear();
        let (mut at, mut packed) = (0, 0);
        let begin = processor_time();
        for src in pages.blocks(block) {
            // A block that does not shrink is kept raw.
            let length = self.compress(src, &mut objects[at..at + block - 1]);
            lengths.push(length);
            at += length.unwrap_or(0);
        }
        let between = processor_time();
        let mut back = vec![0; block];
        let (mut from, mut good) = (0, true);
        let restart = processor_time();
        for length in lengths.iter().copied().flatten() {
            good &= self.decompress(&objects[from..from + length], &mut back);
            from += length;
        }
        let end = processor_time();
        ensure!(
            good,
            "{} does not decompress what it compressed",
            self.name()
        );
        let mut compressed = 0;
        for length in &*lengths {
            compressed += length.unwrap_or(block);
            packed += length.map_or(block, |n| n.next_multiple_of(CLASS_STEP));
        }
        let bytes = lengths.len() * block;
        let decompressed = lengths.iter().flatten().count().max(1);
        Ok(Pass {
            bytes,
            compressed,
            packed,
            compress_s: between - begin,
            // Scaled to all blocks: those kept raw have nothing to decompress.
            decompress_s: (end - restart) * lengths.len() as f64 / decompressed as f64,
        })
    }

    /// Checks that the objects of a pass hold `pages`.
    ///
    /// # Errors
    /// If they do not.
    pub fn verify(&mut self, pages: &Pages, objects: &Objects) -> Result<()> {
        let mut back = vec![0; self.block];
        let mut from = 0;
        for (src, length) in pages.blocks(self.block).zip(&objects.lengths) {
            if let Some(length) = length {
                let good = self.decompress(&objects.bytes[from..from + length], &mut back);
                ensure!(good && back == src, "{} restores other bytes", self.name());
                from += length;
            }
        }
        Ok(())
    }
}

/// Processor time of this thread, seconds.
#[must_use]
pub fn processor_time() -> f64 {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dump;

    fn pages() -> Pages {
        let text = b"the same few words again and again, with number ";
        let bytes = (0..64 * 4096)
            .map(|i: usize| text[i % text.len()] ^ u8::try_from(i / 700 % 4).unwrap())
            .collect();
        Pages::of(Dump {
            name: "text".into(),
            bytes,
        })
    }

    #[test]
    fn every_contestant_restores_its_input() {
        let pages = pages();
        let mut objects = Objects::default();
        for codec in super::super::CODECS {
            for block in super::super::BLOCKS {
                let codec: Codec = codec.parse().unwrap();
                let implementation = Implementation::Ours(codec);
                let mut contestant = Contestant::new(implementation, block).unwrap();
                let pass = contestant.pass(&pages, &mut objects).unwrap();
                assert_eq!(pass.bytes, 64 * 4096);
                assert!(pass.compressed < pass.packed && pass.packed < pass.bytes / 2);
                contestant.verify(&pages, &objects).unwrap();
            }
        }
        for implementation in [Implementation::KernelLz4, Implementation::KernelZstd] {
            let mut contestant = Contestant::new(implementation, 4096).unwrap();
            assert!(
                contestant.pass(&pages, &mut objects).unwrap().packed < 64 * 4096 / 4,
                "{implementation:?}"
            );
            contestant.verify(&pages, &objects).unwrap();
            // A damaged object is noticed.
            objects.bytes[20] ^= 0x55;
            assert!(
                contestant.verify(&pages, &objects).is_err(),
                "{implementation:?}"
            );
        }
    }

    #[test]
    fn incompressible_blocks_are_kept_raw() {
        let mut x = 1_u64;
        let bytes = (0..16 * 4096)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                x.to_be_bytes()[0]
            })
            .collect();
        let pages = Pages::of(Dump {
            name: "noise".into(),
            bytes,
        });
        let mut objects = Objects::default();
        for implementation in [
            Implementation::Ours(Codec::Lz4),
            Implementation::KernelLz4,
            Implementation::KernelZstd,
        ] {
            let mut contestant = Contestant::new(implementation, 4096).unwrap();
            let pass = contestant.pass(&pages, &mut objects).unwrap();
            assert_eq!(
                (pass.compressed, pass.packed),
                (pass.bytes, pass.bytes),
                "{implementation:?}"
            );
            contestant.verify(&pages, &objects).unwrap();
        }
    }
}
