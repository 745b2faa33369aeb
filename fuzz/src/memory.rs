//! *What*: [`Aligned`], memory of codecs: aligned as they want it, dirty, and on the heap, so that
//! AddressSanitizer sees who leaves it.

/// As much as codecs' memory is aligned to.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory of a codec's.
pub struct Aligned(Box<[Line]>);

impl Aligned {
    /// `len` bytes, rounded up to whole lines.
    pub fn new(len: usize) -> Self {
        Aligned(vec![Line([0xa5; 64]); len.div_ceil(64)].into())
    }

    /// Where it begins.
    pub fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// `len` bytes of one value, in an allocation of exactly that size.
pub fn filled(len: usize, byte: u8) -> Box<[u8]> {
    vec![byte; len].into()
}
