//! A program's pages, cut into blocks.

use crate::{Dump, PAGE};

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Pages of one program, without same-filled ones, page-aligned.
pub struct Pages {
    /// Name of the program.
    pub name: String,
    /// Number of same-filled pages left out.
    pub same_filled: usize,
    pages: Vec<Page>,
}

impl Pages {
    /// The pages of a dump.
    #[must_use]
    pub fn of(dump: Dump) -> Self {
        let all: Vec<Page> = dump
            .bytes
            .chunks_exact(PAGE)
            .map(|bytes| {
                let mut page = Page([0; PAGE]);
                page.0.copy_from_slice(bytes);
                page
            })
            .collect();
        let pages: Vec<Page> = all
            .iter()
            .filter(|page| !is_same_filled(page))
            .copied()
            .collect();
        Self {
            name: dump.name,
            same_filled: all.len() - pages.len(),
            pages,
        }
    }

    /// `nr` same-filled pages: every second one zero, the others filled with their number.
    #[must_use]
    pub fn same_filled(nr: usize) -> Self {
        let page = |number: usize| {
            let mut page = Page([0; PAGE]);
            for word in page.0.chunks_exact_mut(8) {
                word.copy_from_slice(&(number % 2 * number).to_ne_bytes());
            }
            page
        };
        Self {
            name: "same-filled".into(),
            same_filled: nr,
            pages: (0..nr).map(page).collect(),
        }
    }

    /// Number of pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nothing asks")]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whole blocks of `block` bytes, a multiple of the page size.
    pub fn blocks(&self, block: usize) -> impl Iterator<Item = &[u8]> {
        self.pages.chunks_exact(block / PAGE).map(|pages| {
            // SAFETY: the pages of a slice are contiguous, PAGE bytes each without padding, and any
            // byte is valid.
            unsafe { std::slice::from_raw_parts(pages.as_ptr().cast::<u8>(), pages.len() * PAGE) }
        })
    }
}

fn is_same_filled(page: &Page) -> bool {
    page.0.chunks_exact(8).all(|word| word == &page.0[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_filled_pages_are_left_out_and_the_others_follow_each_other() {
        let mut bytes = vec![7; 5 * PAGE];
        for (number, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
            if number != 2 {
                page[100] = u8::try_from(number).unwrap();
            }
        }
        let pages = Pages::of(Dump {
            name: "some".into(),
            bytes: bytes.clone(),
        });
        assert_eq!((pages.len(), pages.same_filled), (4, 1));
        assert_eq!(pages.blocks(PAGE).count(), 4);
        let large: Vec<&[u8]> = pages.blocks(4 * PAGE).collect();
        assert_eq!(large.len(), 1);
        assert_eq!(large[0][..2 * PAGE], bytes[..2 * PAGE]);
        assert_eq!(large[0][2 * PAGE..], bytes[3 * PAGE..]);
    }
}
