//! A workspace that owns its memory, with a guard behind it that must stay as it is.
#![allow(dead_code, reason = "each test uses a part")]

use crate::pages::Memory;
use std::ops::{Deref, DerefMut};
use uzswap_compress::{Codec, Workspace};

/// The codecs that users write so, between blanks.
pub fn codecs(texts: &str) -> Vec<Codec> {
    let codecs = texts.split(' ').map(|text| text.parse().expect("a codec"));
    codecs.collect()
}

pub struct Owned {
    workspace: Workspace,
    memory: Memory,
    required: usize,
}

impl Owned {
    pub fn new(codec: Codec, max_block: usize) -> Owned {
        let required = Workspace::required_size(codec, max_block);
        let mut memory = Memory::new(required + 64);
        // Dirty: nothing may depend on zeroed memory.
        memory.fill(0xa5);
        // SAFETY: the memory moves into the same struct, keeps its place on the heap, and is left
        // alone.
        let workspace = unsafe { Workspace::init(memory.as_mut_ptr(), required, codec, max_block) }
            .expect("workspace");
        Owned {
            workspace,
            memory,
            required,
        }
    }

    /// `object`, made by this workspace's codec, is `block`.
    pub fn assert_decodes(&mut self, object: &[u8], block: &[u8], what: &str) {
        let codec = self.compressor.codec();
        let mut back = vec![0x5a; block.len()];
        let decoded = self.decompressor.decompress(codec.id(), object, &mut back);
        assert_eq!(decoded, Ok(()), "{codec} {what} {}", block.len());
        assert!(back == block, "{codec} {what} {}", block.len());
    }
}

impl Deref for Owned {
    type Target = Workspace;
    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Workspace {
        &mut self.workspace
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        assert!(
            self.memory[self.required..].iter().all(|&b| b == 0xa5),
            "wrote past its memory"
        );
    }
}
