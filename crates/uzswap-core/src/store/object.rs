//! *What*: the bytes of an object: one that names the codec, the codec's output, and, if the object
//! was made with one, a checksum of both.
//!
//! A page that does not compress is stored as it is, 4096 bytes. Its checksum is the pool's note
//! beside it ([`Pool::set_note`](uzswap_pool::Pool::set_note)). The object itself says whether it
//! has a checksum, so the knob may change at any time.
//!
//! *Invariants*: a checksummed object that was damaged, in up to three bits anywhere or within 32
//! consecutive bits, does not decode. This includes the bits that say that there is a checksum.
//! *Locking*: none. *Context*: signal, worker.

use crate::page::{Entry, PAGE_SIZE, Page};
use core::ops::Range;
use uzswap_compress::{CodecId, CompressError, Compressor, Decompressor, same_filled};
use uzswap_io::crc::Crc32c;

/// In the name of an object that has a checksum: four bits away from a name without.
const CHECKED: u8 = 0xf0;

/// Bytes of a checksum.
const SUM_LEN: usize = 4;

/// An object larger than this is kept raw: it would save less than decoding it costs.
pub(crate) const MAX_COMPRESSED: usize = PAGE_SIZE - 64;

/// What was stored makes no page, or no block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undecodable;

/// What pages are made objects of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    addr: usize,
    len: usize,
    /// Nobody can write to it meanwhile.
    stable: bool,
}

impl Source {
    /// `len` bytes at `addr`. `stable`: nobody writes to them meanwhile.
    ///
    /// # Safety
    /// They are mapped and readable as long as this is used, and `stable` is true; aligned to 16
    /// bytes if it is false.
    pub(crate) const unsafe fn new(addr: usize, len: usize, stable: bool) -> Self {
        Source { addr, len, stable }
    }
}

/// Where in the first `len` bytes of an object's place what the codec makes may be.
pub(crate) const fn body(len: usize, checked: bool) -> Range<usize> {
    let end = len.saturating_sub(if checked { SUM_LEN } else { 0 });
    1..if end > 1 { end } else { 1 }
}

/// Makes an object of the `size` bytes that the codec made in the [`body`] of `out`, with a
/// checksum if it is to be `checked`.
pub(crate) fn seal(id: CodecId, size: usize, checked: bool, out: &mut [u8]) -> Option<&[u8]> {
    let end = 1 + size;
    *out.first_mut()? = id.as_u8() | if checked { CHECKED } else { 0 };
    if !checked {
        return out.get(..end);
    }
    let (object, rest) = out.split_at_mut_checked(end)?;
    let sum = Crc32c::new().with(object).value().to_le_bytes();
    rest.get_mut(..SUM_LEN)?.copy_from_slice(&sum);
    out.get(..end + SUM_LEN)
}

/// Compresses `source` into one object in `out`, with a checksum if it is to be `checked`. Returns
/// its bytes.
pub(crate) fn pack(
    compressor: &mut Compressor,
    source: Source,
    checked: bool,
    out: &mut [u8],
) -> Result<usize, CompressError> {
    let Some(body) = out.get_mut(body(out.len(), checked)) else {
        return Err(CompressError::Failed);
    };
    let Source { addr, len, stable } = source;
    let size = if stable {
        // SAFETY: by the promise of `Source::new`, and nobody writes to them while the slice lives.
        let source = unsafe { core::slice::from_raw_parts(addr as *const u8, len) };
        compressor.compress_stable(source, body)
    } else {
        // SAFETY: as above; they are copied first, as they may change under the compressor.
        unsafe { compressor.compress(addr as *const u8, len, body) }
    }?;
    let object = seal(compressor.codec().id(), size, checked, out);
    object.map(<[u8]>::len).ok_or(CompressError::Failed)
}

/// What is to be decoded of an object, and by which codec, if it is as its checksum says.
pub(crate) fn open(object: &[u8]) -> Result<(CodecId, &[u8]), Undecodable> {
    let id = codec_of(object).ok_or(Undecodable)?;
    let mut rest = object;
    if is_checked(object) {
        let (checked, sum) = object.split_last_chunk().ok_or(Undecodable)?;
        if Crc32c::new().with(checked).value().to_le_bytes() != *sum {
            return Err(Undecodable);
        }
        rest = checked;
    }
    Ok((id, rest.get(1..).ok_or(Undecodable)?))
}

fn is_checked(object: &[u8]) -> bool {
    object.first().is_some_and(|name| name & CHECKED == CHECKED)
}

/// The codec that an object names.
pub(crate) fn codec_of(object: &[u8]) -> Option<CodecId> {
    let &name = object.first()?;
    CodecId::from_u8(if is_checked(object) {
        name & !CHECKED
    } else {
        name
    })
}

/// Decodes an object.
pub(crate) fn unpack(
    decompressor: &mut Decompressor,
    object: &[u8],
    out: &mut [u8],
) -> Result<(), Undecodable> {
    unpack_first(decompressor, object, out.len(), out)
}

/// Decodes an object that fills `out`, its `first` bytes at least. Its checksum is that of all of
/// it all the same.
pub(crate) fn unpack_first(
    decompressor: &mut Decompressor,
    object: &[u8],
    first: usize,
    out: &mut [u8],
) -> Result<(), Undecodable> {
    let (id, body) = open(object)?;
    decompressor
        .decompress_first(id, body, first, out)
        .map_err(|_| Undecodable)
}

/// The note beside a page that is stored as it is; never 0, which says that there is none.
pub(crate) fn note_of(page: &[u8]) -> u32 {
    Crc32c::new().with(page).value().max(1)
}

/// Whether a page that is stored as it is is what its note says, if it has one.
pub(crate) fn is_as_noted(page: &[u8], note: u32) -> bool {
    note == 0 || note == note_of(page)
}

/// Makes a page of what was stored of it.
pub(crate) fn unpack_page(
    decompressor: &mut Decompressor,
    data: &[u8],
    note: u32,
    out: &mut [u8],
) -> Result<(), Undecodable> {
    if data.len() != PAGE_SIZE {
        return unpack(decompressor, data, out);
    }
    out.copy_from_slice(data);
    if is_as_noted(out, note) {
        Ok(())
    } else {
        Err(Undecodable)
    }
}

/// The word that a page repeats, if an entry can hold it.
///
/// # Safety
/// The page is mapped and readable.
pub(crate) unsafe fn same_filled_word(page: Page) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe { same_filled::same_filled(page.addr() as *const u8, PAGE_SIZE) }
        .filter(|&word| Entry::can_fill(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uzswap_compress::Codec;

    const CODECS: [Codec; 4] = [
        Codec::Lz4,
        Codec::Zstd { level: 1 },
        Codec::Deflate { level: 1 },
        Codec::Pz { level: 2 },
    ];

    fn random(x: &mut u64) -> usize {
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        (*x >> 16) as usize
    }

    /// A page that compresses, and differs from the next.
    fn page(x: &mut u64) -> Vec<u8> {
        let mut page = vec![0; PAGE_SIZE];
        for chunk in page.chunks_mut(64) {
            chunk[0] = random(x) as u8;
            chunk[random(x) % 64] = random(x) as u8 % 8;
        }
        page
    }

    fn compressor(codec: Codec) -> Compressor {
        let len = Compressor::required_size(codec, PAGE_SIZE);
        let memory = Box::leak(vec![0_u64; len / 8 + 8].into_boxed_slice()).as_mut_ptr();
        let memory = memory.cast::<u8>();
        // SAFETY: leaked memory, aligned below, with room for that.
        unsafe {
            let at = memory.add(memory.align_offset(64));
            Compressor::init(at, len, codec, PAGE_SIZE).unwrap()
        }
    }

    fn decompressor() -> Decompressor {
        let len = Decompressor::required_size();
        let memory = Box::leak(vec![0_u64; len / 8 + 8].into_boxed_slice()).as_mut_ptr();
        let memory = memory.cast::<u8>();
        // SAFETY: as above.
        unsafe { Decompressor::init(memory.add(memory.align_offset(64)), len).unwrap() }
    }

    fn packed(compressor: &mut Compressor, page: &[u8], checked: bool) -> Vec<u8> {
        let mut out = vec![0; PAGE_SIZE];
        // SAFETY: memory of ours, which nobody writes to.
        let source = unsafe { Source::new(page.as_ptr() as usize, page.len(), true) };
        let size = pack(compressor, source, checked, &mut out).unwrap();
        out.truncate(size);
        out
    }

    #[test]
    fn a_damaged_object_with_a_checksum_never_decodes() {
        let mut x = 0x5eed_0bec_7000_0001;
        let mut back = decompressor();
        let mut out = vec![0; PAGE_SIZE];
        let mut silent = 0;
        for codec in CODECS {
            let mut compressor = compressor(codec);
            for round in 0..20 {
                let page = page(&mut x);
                let plain = packed(&mut compressor, &page, false);
                let checked = packed(&mut compressor, &page, true);
                assert_eq!(checked.len(), plain.len() + SUM_LEN);
                for object in [&plain, &checked] {
                    out.fill(0);
                    unpack(&mut back, object, &mut out).unwrap();
                    assert_eq!(out, page, "{codec} {round}");
                }
                for bit in 0..checked.len() * 8 {
                    let mut damaged = checked.clone();
                    damaged[bit / 8] ^= 1 << (bit % 8);
                    if round % 2 == 1 {
                        // And up to two more.
                        for _ in 0..1 + bit % 2 {
                            let more = random(&mut x) % (checked.len() * 8);
                            damaged[more / 8] ^= 1 << (more % 8);
                        }
                        if damaged == checked {
                            continue;
                        }
                    }
                    assert!(unpack(&mut back, &damaged, &mut out).is_err(), "{codec}");
                    // What a checksum is for: the codec itself notices only some of it.
                    if let Some(plain) = damaged.get(..plain.len())
                        && damaged[0] == checked[0]
                    {
                        let mut plain = plain.to_vec();
                        plain[0] &= !CHECKED;
                        silent += usize::from(unpack(&mut back, &plain, &mut out).is_ok());
                    }
                }
            }
        }
        assert!(silent > 1000, "codecs that notice: {silent}");
    }

    #[test]
    fn a_raw_page_is_checked_by_its_note_if_it_has_one() {
        let mut x = 0x5eed_0bec_7000_0002;
        let mut back = decompressor();
        let mut out = vec![0; PAGE_SIZE];
        let mut page = page(&mut x);
        let note = note_of(&page);
        unpack_page(&mut back, &page, note, &mut out).unwrap();
        page[random(&mut x) % PAGE_SIZE] ^= 4;
        assert!(unpack_page(&mut back, &page, note, &mut out).is_err());
        unpack_page(&mut back, &page, 0, &mut out).unwrap();
        assert_eq!(out, page);
    }

    #[test]
    fn what_does_not_fit_with_its_checksum_is_poor() {
        let mut x = 1;
        let page = page(&mut x);
        let mut compressor = compressor(Codec::Lz4);
        let size = packed(&mut compressor, &page, true).len();
        for room in 0..PAGE_SIZE {
            let mut out = vec![0; room];
            // SAFETY: memory of ours.
            let source = unsafe { Source::new(page.as_ptr() as usize, page.len(), true) };
            match pack(&mut compressor, source, true, &mut out) {
                Ok(made) => assert!(made == size && made <= room),
                // An encoder may want some room to spare.
                Err(_) => assert!(room < size + 32, "{room} bytes for {size}"),
            }
        }
    }
}
