//! *What*: [`Text`], a short text that several may read and change, in shared memory mostly.
//! *Invariants*: UTF-8, padded with zeroes; a cut within a character loses that character.
//! *Locking*: none; written before others read it. *Context*: any.

use core::sync::atomic::{AtomicU64, Ordering};

/// A short text.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Text([AtomicU64; 32]);

impl Text {
    /// Bytes that it holds at most.
    pub const LEN: usize = 256;

    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Text([const { AtomicU64::new(0) }; 32])
    }

    /// Sets it, cut to [`Text::LEN`].
    pub fn set(&self, text: &str) {
        let mut rest = text.as_bytes();
        for cell in &self.0 {
            let (bytes, more) = rest.split_at(rest.len().min(8));
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(bytes) {
                *to = *from;
            }
            cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            rest = more;
        }
    }

    /// Copies it to `buffer`.
    pub fn get<'a>(&self, buffer: &'a mut [u8; Self::LEN]) -> &'a str {
        for (cell, bytes) in self.0.iter().zip(buffer.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes());
        }
        let len = buffer.iter().position(|&byte| byte == 0);
        let text = buffer.get(..len.unwrap_or(Self::LEN)).unwrap_or_default();
        match core::str::from_utf8(text) {
            Ok(text) => text,
            // Cut within a character.
            Err(error) => text
                .get(..error.valid_up_to())
                .and_then(|text| core::str::from_utf8(text).ok())
                .unwrap_or_default(),
        }
    }
}
