//! *What*: a decoder, given any bytes, fails or fills exactly its destination, with contents that
//! depend on the object alone: neither on what lay in the destination, nor on what the decoder did
//! before. The first pages are as if all had been decoded.

use std::cell::RefCell;

use uzswap_compress::{CodecId, Decompressor, MAX_BLOCK, MIN_BLOCK};

use crate::bytes::Bytes;
use crate::memory::{Aligned, filled};

/// Lengths of blocks: those that the engine stores, and some that it does not.
const LENS: [usize; 10] = [
    MIN_BLOCK,
    2 * MIN_BLOCK,
    4 * MIN_BLOCK,
    8 * MIN_BLOCK,
    MAX_BLOCK,
    3 * MIN_BLOCK,
    40_000,
    1,
    0,
    MAX_BLOCK + MIN_BLOCK,
];

struct Decoder {
    decompressor: Decompressor,
    _memory: Aligned,
}

impl Decoder {
    fn new() -> Self {
        let len = Decompressor::required_size();
        let mut memory = Aligned::new(len);
        // SAFETY: `len` bytes on the heap, which stay where they are and move along with the
        // decompressor, and which nobody else uses.
        let decompressor = unsafe { Decompressor::init(memory.start(), len) };
        Decoder {
            decompressor: decompressor.expect("memory enough"),
            _memory: memory,
        }
    }
}

thread_local! {
    /// Two with different pasts: each decodes other objects before.
    static DECODERS: RefCell<[Decoder; 2]> = RefCell::new([Decoder::new(), Decoder::new()]);
}

/// See the head.
pub fn decode(id: CodecId, input: &[u8]) {
    let mut input = Bytes::new(input);
    let len = input.one_of(&LENS);
    let first = input.u32() as usize % (len + 1);
    // An allocation of its own, so that reading beyond it is seen.
    let object: Box<[u8]> = input.rest().into();
    DECODERS.with_borrow_mut(|[one, other]| {
        let mut block = filled(len, 0);
        let done = one.decompressor.decompress(id, &object, &mut block);
        let mut again = filled(len, 0xff);
        let done_again = other
            .decompressor
            .decompress_first(id, &object, first, &mut again);
        if done.is_ok() {
            assert_eq!(done_again, Ok(()), "the first {first} bytes");
            assert!(again[..first] == block[..first], "the first {first} bytes");
        }
        let whole = other.decompressor.decompress(id, &object, &mut again);
        assert_eq!(done, whole, "it depends on what was before");
        assert!(
            done.is_err() || block == again,
            "it depends on what was before"
        );
    });
}
