//! *What*: decodes a stored page or block into the operation's load buffer.
//!
//! *Invariants*: data are used only after their seal or checksum was verified.
//! *Locking*: the caller holds the folio. *Context*: signal, worker.

use crate::op::{Op, OpGuard};
use crate::page::block::Entries;
use crate::page::{Entry, PAGE_SIZE, Page, PageRange};
use crate::parts::Parts;
use crate::store::object::{Undecodable, unpack_first, unpack_page};
use uzswap_compress::same_filled;
use uzswap_group::counters::add;
use uzswap_group::group::FailureReason;
use uzswap_sync::{strict_assert, strict_unreachable};
use uzswap_sys::Errno;
use uzswap_sys::fmt::write_line;

/// Why pages could not be brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    /// The stored data of this page, or of the block that begins here, cannot be read from the
    /// device.
    Unreadable(Page),
    /// They do not decode, or are not what was stored.
    Damaged(Page),
    /// The kernel refused the copy.
    Kernel(Errno),
}

/// Puts `data` behind the first `len` bytes of `buffer`; their number.
fn append(buffer: &mut [u8], len: usize, data: &[u8]) -> Option<usize> {
    buffer.get_mut(len..len + data.len())?.copy_from_slice(data);
    Some(data.len())
}

/// Decodes `page` of `range` into the operation's load buffer at byte `at`.
pub(crate) fn decode(
    parts: &Parts,
    op: &mut OpGuard<'_>,
    page: Page,
    entry: Entry,
    range: PageRange,
    at: usize,
) -> Result<(), LoadError> {
    let (unreadable, damaged) = (LoadError::Unreadable(page), LoadError::Damaged(page));
    let Op {
        decompressor,
        load,
        window,
        ..
    } = &mut **op;
    let out = load.get_mut(at..at + PAGE_SIZE);
    strict_assert!(out.is_some(), "a page outside the load buffer");
    let out = out.ok_or(damaged)?;
    match entry {
        Entry::Filled { word, .. } => {
            same_filled::fill(out, word);
            Ok(())
        }
        Entry::Stored { loc, size, .. } => {
            // SAFETY: the entry names it with this size, and the caller holds the folio.
            let data = unsafe { parts.store.object(loc, size) };
            // SAFETY: as above.
            let note = unsafe { parts.store.note(loc, size) };
            count_failure(parts, unpack_page(decompressor, data, note, out))
        }
        Entry::Swapped { .. } => {
            let read = parts.backing.as_ref().and_then(|backing| {
                backing.read_object(&parts.pages, window, page, range, |data, fingerprint| {
                    // A page stored as it is was checked when it was written, and its seal just
                    // now.
                    let unpacked = count_failure(parts, unpack_page(decompressor, data, 0, out));
                    (unpacked, fingerprint)
                })
            });
            let (unpacked, fingerprint) = read.ok_or(unreadable)?;
            window.note(at / PAGE_SIZE, fingerprint);
            unpacked
        }
        Entry::None | Entry::Resident | Entry::Block { .. } => {
            strict_unreachable!("a page is decoded of which nothing is stored");
            Err(Undecodable)
        }
    }
    .map_err(|Undecodable| damaged)
}

/// Decodes the first `nr` pages of `block` at least into the operation's load buffer at byte `at`,
/// where there is room for all.
pub(crate) fn load_block(
    parts: &Parts,
    op: &mut Op,
    block: PageRange,
    nr: usize,
    at: usize,
) -> Result<(), LoadError> {
    let page = Page::from_index(block.start);
    let (unreadable, damaged) = (LoadError::Unreadable(page), LoadError::Damaged(page));
    let mut len = 0;
    for page in parts.pages.pages_in(block) {
        len += match parts.pages.get(page) {
            Entry::Stored { loc, size, .. } => {
                // SAFETY: the entry names it, and the folio is held.
                let data = unsafe { parts.store.object(loc, size) };
                append(op.store, len, data)
            }
            Entry::Swapped { .. } => {
                let Op { window, store, .. } = &mut *op;
                parts.backing.as_ref().and_then(|backing| {
                    let append = |data: &[u8], _| append(store, len, data);
                    backing.read_object(&parts.pages, window, page, block, append)?
                })
            }
            _ => continue,
        }
        .ok_or(unreadable)?;
    }
    let object = op.store.get(..len).ok_or(damaged)?;
    let out = op.load.get_mut(at..at + block.bytes()).ok_or(damaged)?;
    let first = nr * PAGE_SIZE;
    count_failure(
        parts,
        unpack_first(&mut op.decompressor, object, first, out),
    )
    .map_err(|Undecodable| damaged)
}

/// Counts what could not be decoded.
fn count_failure<T>(parts: &Parts, unpacked: Result<T, Undecodable>) -> Result<T, Undecodable> {
    if unpacked.is_err() {
        add(&parts.account.counters().decompress_fail, 1);
    }
    unpacked
}

/// A page's contents are lost: the caller has the program get SIGBUS for the access. The first that
/// a device lost, and the first that the pool did, are reported on stderr.
pub(crate) fn report_lost(parts: &Parts, error: LoadError) {
    match error {
        LoadError::Unreadable(page) => {
            if let Some(backing) = &parts.backing {
                backing.report_unreadable(&parts.pages, page);
            }
        }
        LoadError::Damaged(page) => report_damaged(parts, page),
        LoadError::Kernel(errno) => {
            parts
                .account
                .die(FailureReason::Internal, errno.0.unsigned_abs(), 0)
        }
    }
}

fn report_damaged(parts: &Parts, page: Page) {
    if parts.store.is_first_damage() {
        let _ = write_line(
            2,
            format_args!(
                "uzswap: memory at {:#x} is lost, because what the compressed pool held of it was \
                 damaged: the program gets SIGBUS where it uses it",
                page.addr(),
            ),
        );
    }
}
