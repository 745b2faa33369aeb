//! *What*: moves objects from a swap device into the pool, still compressed: readahead and swapoff.
//!
//! *Invariants*: a device object is released only when its copy is in the pool.
//! *Locking*: the caller holds the folio. *Context*: signal, worker.

use super::pool_max::pool_room;
use crate::backing::Backing;
use crate::op::{OpGuard, ReadWindow};
use crate::page::{Content, Page, PageRange, wide};
use crate::parts::Parts;
use uzswap_group::counters::add;
use uzswap_io::Fingerprint;
use uzswap_pool::{Loc, MAX_CHAIN};
use uzswap_sync::charge::Reserve;

/// Outcome of moving an object from a device to the pool.
pub(super) enum Fetched {
    /// The pool has a copy.
    Object {
        loc: Loc,
        size: u16,
        fingerprint: Option<Fingerprint>,
    },
    /// The pool has no room for it.
    NoRoom,
    /// It cannot be read.
    Unreadable,
}

/// Puts into the pool what of `around` was read along with the page that was asked for, as far as
/// the operation has room. The folio is held since then.
pub(crate) fn keep_ahead(parts: &Parts, op: &mut OpGuard<'_>, around: PageRange) {
    let Some(backing) = &parts.backing else {
        return;
    };
    if pool_room(parts).is_none_or(|room| room < wide(around.len())) {
        return;
    }
    let mut room = Reserve::empty(parts.account.charge());
    op.lend_spare(&mut room, 2 * wide(MAX_CHAIN));
    let age = parts.pages.clock().now();
    let mut nr = 0;
    for page in around.pages() {
        let Some(extent) = backing.extent_of(&parts.pages, page) else {
            continue;
        };
        // Enough for the pool to begin a zspage of any length.
        if room.pages() < wide(MAX_CHAIN) || op.window.read(extent).is_none() {
            continue;
        }
        // A damaged object is reported when its page faults, not here.
        if let Fetched::Object {
            loc, fingerprint, ..
        } = fetch(
            parts,
            backing,
            &mut op.window,
            &mut room,
            page,
            PageRange::one(page),
        ) {
            let keeps = |old| {
                fingerprint.is_some_and(|fingerprint| backing.keep_copy(op, page, old, fingerprint))
            };
            parts
                .transition()
                .fetch(page, loc, age, Content::ReadAhead, keeps);
            nr += 1;
        }
    }
    op.take_back(&mut room);
    add(&parts.account.counters().pswpin, nr);
    add(&parts.account.counters().swap_ra, nr);
}

/// Puts what is on a device of `page` into the pool, as it is. What follows it in `range` is read
/// with it.
pub(crate) fn fetch(
    parts: &Parts,
    backing: &Backing,
    window: &mut ReadWindow,
    room: &mut Reserve<'static>,
    page: Page,
    range: PageRange,
) -> Fetched {
    let fetched = backing.read_object(&parts.pages, window, page, range, |data, fingerprint| {
        // SAFETY: a slice is readable.
        let loc = unsafe {
            parts
                .store
                .put_object(room, page, data.as_ptr(), data.len())
        };
        let Some((loc, size)) = loc.zip(u16::try_from(data.len()).ok()) else {
            return Fetched::NoRoom;
        };
        parts.store.note_raw(loc, data);
        Fetched::Object {
            loc,
            size,
            fingerprint,
        }
    });
    fetched.unwrap_or(Fetched::Unreadable)
}
