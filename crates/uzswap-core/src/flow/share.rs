//! *What*: pages that a fork leaves in common to parent and child: each is charged once until
//! somebody writes to it.
//!
//! Before the fork the parent's resident pages are write-protected, and in the child again, whose
//! userfaultfd is a new one. The first write to such a page faults: [`super::unshare`]. Reclaim
//! passes shared pages over as long as others have them: to evict them frees nothing.
//!
//! *Invariants*: as [`crate::page`]'s `shared`. Pages that a system call is using, or the kernel
//! may write to unasked, are not shared: they are charged to the child from the beginning.
//! *Locking*: op → folio. *Context*: fork; signal, worker.

use crate::page::folio::{FolioGuard, PROT_STALE, RECLAIM, SHARED};
use crate::page::{Page, PageRange, wide};
use crate::parts::Parts;

/// Before a fork, with no operation under way: marks and write-protects the resident pages. Returns
/// how many were not shared before.
pub(crate) fn share_resident(parts: &Parts) -> u64 {
    let mut nr = 0;
    parts
        .pages
        .for_each_folio(parts.arena.partition().pages(), |index, range| {
            let guard = parts.pages.folio(index).lock();
            if guard.nr_resident() == 0 || guard.is_pinned() || guard.has(RECLAIM | PROT_STALE) {
                return;
            }
            let more = parts.pages.resident_parts(range) & !guard.bits();
            guard.set(more);
            // In this order: whoever announces memory after that sees that it is shared.
            if parts.arena.hazards().covers(range) || !parts.arena.protect_range(range) {
                guard.clear(more);
                if !parts.arena.prot_follows() {
                    // The kernel may have protected part of it.
                    unprotect_own(parts, &guard, range);
                }
                return;
            }
            nr += wide(parts.pages.resident_in(range, more));
        });
    nr
}

/// In a fork child: protects what it shares, of which its own userfaultfd knows nothing.
pub(crate) fn protect_shared(parts: &Parts) {
    parts
        .pages
        .for_each_folio(parts.arena.partition().pages(), |index, range| {
            let guard = parts.pages.folio(index).lock();
            if !guard.has(SHARED) {
                return;
            }
            if !parts.arena.protect_range(range) {
                own(parts, &guard, range);
            } else if parts.pages.resident_parts(range) & !guard.bits() != 0 {
                // In a folio that was pinned, what came in since an earlier fork is not shared.
                unprotect_own(parts, &guard, range);
            }
        });
}

/// Charges what is shared of `range`, all of a folio, whether it fits or not.
fn own(parts: &Parts, guard: &FolioGuard<'_>, range: PageRange) {
    let nr = wide(parts.pages.nr_shared(guard, range));
    parts.account.charge().share().own(nr);
    guard.clear(SHARED);
    parts.arena.unprotect(&parts.pages, guard, range);
}

/// Whether nobody else has anything of what this process shared when it forked, or was forked.
pub(crate) fn is_last_of_family(parts: &Parts) -> bool {
    let (group, share) = (parts.account.group(), parts.account.charge().share());
    group.ledger.is_last_of_family(share)
}

/// Makes the shared pages of a folio this process's own, as far as the account goes, if nobody else
/// has any.
pub(crate) fn own_if_last(parts: &Parts, guard: &FolioGuard<'_>, range: PageRange) {
    if is_last_of_family(parts) {
        own(parts, guard, range);
    }
}

/// Removes write protection from the resident pages of `range`, within the folio of `guard`, but
/// for those that are shared.
pub(crate) fn unprotect_own(parts: &Parts, guard: &FolioGuard<'_>, range: PageRange) {
    let unprotect = |range| parts.arena.unprotect(&parts.pages, guard, range);
    if !guard.has(SHARED) {
        return unprotect(range);
    }
    let mut own = range;
    own.end = own.start;
    for page in range.pages() {
        if !parts.pages.is_shared(page) {
            own.end = page.index() + 1;
            continue;
        }
        if !own.is_empty() {
            unprotect(own);
        }
        own.start = page.index() + 1;
        own.end = own.start;
    }
    if !own.is_empty() {
        unprotect(own);
    }
}

/// Pages of `range` became resident: those in shared parts count with them.
pub(crate) fn count_new(parts: &Parts, guard: &FolioGuard<'_>, range: PageRange) {
    if !guard.has(SHARED) {
        return;
    }
    let nr = parts.pages.nr_shared(guard, range);
    if nr > 0 {
        let account = parts.account;
        let ledger = &account.group().ledger;
        ledger.add_to_shared(account.charge().share(), wide(nr));
    }
}

/// Clears the marks of the parts of `range` that have no resident pages any more.
pub(crate) fn clear_empty(parts: &Parts, guard: &FolioGuard<'_>, range: PageRange) {
    for (part, resident) in parts.pages.shared_parts(range) {
        if resident == 0 {
            parts
                .pages
                .clear_shared(guard, Page::from_index(part.start));
        }
    }
}
