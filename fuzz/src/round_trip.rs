//! *What*: what is compressed comes back the same, fits where it was to fit, and with room enough
//! any block is compressed.

use std::cell::RefCell;

use uzswap_compress::{Codec, CompressError, MAX_BLOCK, MIN_BLOCK, Workspace};

use crate::bytes::Bytes;
use crate::memory::{Aligned, filled};

const CODECS: [Codec; 11] = [
    Codec::Lz4,
    Codec::Pz { level: 1 },
    Codec::Pz { level: 2 },
    Codec::Pz { level: 3 },
    Codec::Zstd { level: -1 },
    Codec::Zstd { level: 1 },
    Codec::Zstd { level: 3 },
    Codec::Zstd { level: 6 },
    Codec::Deflate { level: 1 },
    Codec::Deflate { level: 6 },
    Codec::Deflate { level: 10 },
];

/// What any codec adds at most to a block that does not compress.
const MAX_GROWTH: usize = 4096;

struct Owned {
    codec: Codec,
    max_block: usize,
    workspace: Workspace,
    _memory: Aligned,
}

impl Owned {
    fn new(codec: Codec, max_block: usize) -> Self {
        let len = Workspace::required_size(codec, max_block);
        let mut memory = Aligned::new(len);
        // SAFETY: `len` bytes on the heap, which stay where they are and move along with the
        // workspace, and which nobody else uses.
        let workspace = unsafe { Workspace::init(memory.start(), len, codec, max_block) };
        Owned {
            codec,
            max_block,
            workspace: workspace.expect("memory enough"),
            _memory: memory,
        }
    }
}

thread_local! {
    static WORKSPACES: RefCell<Vec<Owned>> = const { RefCell::new(Vec::new()) };
}

/// A block that repeats `pattern`, and in each repetition counts one of its words up.
fn block(len: usize, counted: usize, pattern: &[u8]) -> Box<[u8]> {
    let mut block = filled(len, 0);
    if pattern.is_empty() {
        return block;
    }
    for (nr, record) in block.chunks_mut(pattern.len()).enumerate() {
        record.copy_from_slice(&pattern[..record.len()]);
        if let Some(byte) = record.get_mut(counted) {
            *byte = byte.wrapping_add(nr as u8);
        }
    }
    block
}

/// See the head.
pub fn comes_back(input: &[u8]) {
    let mut input = Bytes::new(input);
    let codec = input.one_of(&CODECS);
    let len = MIN_BLOCK * (1 + input.below(MAX_BLOCK / MIN_BLOCK));
    let max_block = match input.flag() {
        true => MAX_BLOCK,
        false => len.next_power_of_two(),
    };
    let capacity = input.u32() as usize % (len + MAX_GROWTH);
    let counted = input.u16().into();
    let block = block(len, counted, input.rest());
    WORKSPACES.with_borrow_mut(|all| {
        let known = all
            .iter()
            .position(|owned| (owned.codec, owned.max_block) == (codec, max_block));
        let at = known.unwrap_or_else(|| {
            all.push(Owned::new(codec, max_block));
            all.len() - 1
        });
        let workspace = &mut all[at].workspace;
        let whole = check(workspace, &block, len + MAX_GROWTH);
        let whole = whole.expect("with room for it, any block is compressed");
        let _ = check(workspace, &block, capacity);
        let _ = check(workspace, &block, whole);
        let _ = check(workspace, &block, whole.saturating_sub(1));
    });
}

/// Compresses into `capacity` bytes and, if it fits, decompresses.
fn check(workspace: &mut Workspace, block: &[u8], capacity: usize) -> Option<usize> {
    let codec = workspace.compressor.codec();
    let mut object = filled(capacity, 0x5a);
    let packed = match workspace.compressor.compress_stable(block, &mut object) {
        Ok(packed) => packed,
        Err(CompressError::Poor) => return None,
        Err(failed) => panic!("{codec}: {failed:?}"),
    };
    assert!(packed <= capacity, "{codec}: {packed} of {capacity} bytes");
    let object: Box<[u8]> = object[..packed].into();
    let mut back = filled(block.len(), 0xff);
    let done = workspace
        .decompressor
        .decompress(codec.id(), &object, &mut back);
    assert_eq!(done, Ok(()), "{codec}");
    assert!(*back == *block, "{codec}: it came back different");
    Some(packed)
}
