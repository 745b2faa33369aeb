//! A codec at a block size, ready to run: one of ours, or one as the kernel runs it.
//!
//! *What*: one call to compress and one to decompress, and timed passes over all blocks of a program.
//! *Invariants*: the memory of a workspace lives as long as the workspace, at one address. A pass reads each block once
//! and writes each object once, as a store does; objects lie densely one after the other.
//! *Locking*: none.
//! *Context*: the bench command.

use std::ffi::c_void;
use std::ptr;

use anyhow::{Context, Result, ensure};
use uzswap_compress::{Codec, WORKSPACE_ALIGN, Workspace};

use super::blocks::Pages;

/// Size classes of the pool are this far apart.
const CLASS: usize = 16;
/// What the kernel's zstd is set to.
const KERNEL_ZSTD_LEVEL: i32 = 3;

/// Which codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// One of ours.
    Ours(Codec),
    /// lz4 with a table that is cleared for each page.
    KernelLz4,
    /// zstd 3 with contexts that are set up for each page.
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

enum Engine {
    Ours(Box<Workspace>),
    Lz4,
    Zstd {
        params: zstd_sys::ZSTD_parameters,
        decoder: Memory,
    },
}

/// A codec at a block size.
pub struct Contestant {
    which: Which,
    block: usize,
    engine: Engine,
    /// Behind the engine's pointers; for the kernel's zstd the memory of its compressor.
    memory: Memory,
}

/// What a pass makes: one buffer for all contestants, since only one runs at a time.
#[derive(Default)]
pub struct Objects {
    bytes: Vec<u8>,
    /// Length of each object; `None` where the block is kept as it is.
    lengths: Vec<Option<usize>>,
}

impl Objects {
    /// Length of each object; `None` where the block is kept as it is.
    pub fn lengths(&self) -> impl Iterator<Item = Option<usize>> {
        self.lengths.iter().copied()
    }
}

/// What a pass took.
pub struct Pass {
    pub bytes: usize,
    pub compressed: usize,
    pub packed: usize,
    pub compress_s: f64,
    pub decompress_s: f64,
}

impl Contestant {
    /// Sets it up.
    pub fn new(which: Which, block: usize) -> Result<Self> {
        let (engine, memory) = match which {
            Which::Ours(codec) => {
                let mut memory = Memory::new(Workspace::required_size(codec, block));
                let (at, len) = (memory.as_mut_ptr(), memory.len());
                // SAFETY: the memory is this contestant's alone and is not moved: a Vec's content stays where it is.
                let workspace = unsafe { Workspace::init(at, len, codec, block) }
                    .with_context(|| format!("{codec} cannot be set up"))?;
                (Engine::Ours(Box::new(workspace)), memory)
            }
            Which::KernelLz4 => (Engine::Lz4, Memory::new(0)),
            Which::KernelZstd => {
                // SAFETY: plain functions of numbers.
                let (params, compressor, decoder) = unsafe {
                    let params = zstd_sys::ZSTD_getParams(KERNEL_ZSTD_LEVEL, block as u64, 0);
                    let compressor = zstd_sys::ZSTD_estimateCCtxSize_usingCParams(params.cParams);
                    (params, compressor, zstd_sys::ZSTD_estimateDCtxSize())
                };
                let decoder = Memory::new(decoder);
                (Engine::Zstd { params, decoder }, Memory::new(compressor))
            }
        };
        Ok(Self {
            which,
            block,
            engine,
            memory,
        })
    }

    /// Name of the codec.
    pub fn name(&self) -> String {
        match self.which {
            Which::Ours(codec) => codec.to_string(),
            Which::KernelLz4 => "kernel lz4".into(),
            Which::KernelZstd => "kernel zstd".into(),
        }
    }

    /// Bytes of a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Compresses a block into `dst`; `None` if it does not fit.
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        match &mut self.engine {
            // SAFETY: blocks are readable and aligned to a page.
            Engine::Ours(workspace) => unsafe {
                workspace.compress(src.as_ptr(), src.len(), dst).ok()
            },
            Engine::Lz4 => {
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
            Engine::Zstd { params, .. } => {
                let place = self.memory.as_mut_ptr().cast::<c_void>();
                // SAFETY: the context lies in memory of our own, large enough for these parameters (checked: null is refused by
                // the library with an error code); the lengths are those of the slices.
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
        match &mut self.engine {
            Engine::Ours(workspace) => {
                let id = workspace.codec().id();
                workspace.decompress(id, src, dst).is_ok()
            }
            Engine::Lz4 => {
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
            Engine::Zstd { decoder, .. } => {
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
    pub fn pass(&mut self, pages: &Pages, to: &mut Objects) -> Result<Pass> {
        let block = self.block;
        let Objects {
            bytes: objects,
            lengths,
        } = to;
        objects.resize(objects.len().max(pages.len() * 4096 + block), 0);
        lengths.clear();
        let (mut at, mut packed) = (0, 0);
        let begin = processor_time();
        for src in pages.blocks(block) {
            // What does not become smaller than the block is kept as it is.
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
            packed += length.map_or(block, |n| n.next_multiple_of(CLASS));
        }
        let bytes = lengths.len() * block;
        let decompressed = lengths.iter().flatten().count().max(1);
        Ok(Pass {
            bytes,
            compressed,
            packed,
            compress_s: between - begin,
            // For as many blocks as were compressed: those that were kept would only be copied.
            decompress_s: (end - restart) * lengths.len() as f64 / decompressed as f64,
        })
    }

    /// Checks that the objects of a pass hold `pages`.
    pub fn verify(&mut self, pages: &Pages, objects: &Objects) -> Result<()> {
        let mut back = vec![0; self.block];
        let mut from = 0;
        for (src, length) in pages.blocks(self.block).zip(&objects.lengths) {
            if let Some(length) = length {
                let good = self.decompress(&objects.bytes[from..from + length], &mut back);
                ensure!(
                    good && back == src,
                    "{} gives back other bytes",
                    self.name()
                );
                from += length;
            }
        }
        Ok(())
    }
}

/// Seconds of processor time of this thread.
pub fn processor_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to `time` only.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Dump;

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
    fn every_contestant_gives_back_what_went_in() {
        let pages = pages();
        let mut objects = Objects::default();
        for codec in super::super::CODECS {
            for block in super::super::BLOCKS {
                let codec: Codec = codec.parse().unwrap();
                let which = Which::Ours(codec);
                let mut contestant = Contestant::new(which, block).unwrap();
                let pass = contestant.pass(&pages, &mut objects).unwrap();
                assert_eq!(pass.bytes, 64 * 4096);
                assert!(pass.compressed < pass.packed && pass.packed < pass.bytes / 2);
                contestant.verify(&pages, &objects).unwrap();
            }
        }
        for which in [Which::KernelLz4, Which::KernelZstd] {
            let mut contestant = Contestant::new(which, 4096).unwrap();
            assert!(
                contestant.pass(&pages, &mut objects).unwrap().packed < 64 * 4096 / 4,
                "{which:?}"
            );
            contestant.verify(&pages, &objects).unwrap();
            // Objects of other pages are noticed.
            objects.bytes[20] ^= 0x55;
            assert!(contestant.verify(&pages, &objects).is_err(), "{which:?}");
        }
    }

    #[test]
    fn what_does_not_compress_is_kept() {
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
        for which in [Which::Ours(Codec::Lz4), Which::KernelLz4, Which::KernelZstd] {
            let mut contestant = Contestant::new(which, 4096).unwrap();
            let pass = contestant.pass(&pages, &mut objects).unwrap();
            assert_eq!(
                (pass.compressed, pass.packed),
                (pass.bytes, pass.bytes),
                "{which:?}"
            );
            contestant.verify(&pages, &objects).unwrap();
        }
    }
}
