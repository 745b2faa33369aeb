//! *What*: the pool across fork. The zspages that parent and child have in common stay one piece of
//! memory as long as nobody writes to them: they get no more objects, nor a chain of free ones, and
//! their memory goes back to the kernel when the last object is freed.
//!
//! *Invariants*
//! - The pages of a shared zspage count in what the process has in common with others
//!   ([`Share::shared`](uzswap_sync::ledger::Share::shared)), and not in what it has charged.
//! - A shared zspage is on no list, and counts in none of its class's figures.
//! - `inuse` counts its objects; which they are only the entries that name them know.
//!
//! *Locking*: class → window. *Context*: fork; signal, worker.

use crate::class::{self, ClassId, HUGE};
use crate::objects::ObjectSet;
use crate::partial::Class;
use crate::window::Area;
use crate::zspage::{self, Index, NIL, Zspage};
use crate::{Place, Pool, Relocate};
use uzswap_sync::charge::Charge;
use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sync::strict_assert;

impl Pool {
    /// Before a fork: makes all zspages that have objects shared. Returns how many pages of them
    /// were charged so far: from now on they count as shared.
    ///
    /// # Safety
    /// Nobody else uses the pool meanwhile.
    pub unsafe fn share(&self, charge: &Charge) -> u64 {
        self.trim(charge);
        for class in &self.classes {
            if class.nr_zspages.swap(0, Relaxed) > 0 {
                class.nr_objects.store(0, Relaxed);
                class.partial.lock().forget_all();
            }
        }
        let windows = self.windows.iter().enumerate();
        let pages = windows.map(|(at, window)| {
            // SAFETY: as the caller says.
            unsafe { window.share(&self.area(at)) }
        });
        let pages = pages.sum();
        self.held.shared.fetch_add(pages, Relaxed);
        pages
    }

    /// Pages of shared zspages.
    pub fn shared_pages(&self) -> u64 {
        self.held.shared.load(Relaxed)
    }

    /// Makes shared zspages live again, as nobody else has them any more: charges them, whether or
    /// not they fit. Those whose entries are busy stay as they are.
    pub fn own_shared(&self, charge: &Charge, entries: &mut impl Relocate) {
        for (at, window) in self.windows.iter().enumerate() {
            let area = self.area(at);
            let mut from = NIL;
            while let Some((index, id)) = window.next_shared(&area, from) {
                from = index + 1;
                // A huge one has a single object: it is gone or needed.
                if id != HUGE && self.own_zspage(&area, index, id, entries) {
                    charge.share().own(u64::from(area.chain));
                }
            }
        }
    }

    /// Makes a zspage of class `id`, which was shared a moment ago, live. `false`: it stays.
    fn own_zspage(
        &self,
        area: &Area,
        index: Index,
        id: ClassId,
        entries: &mut impl Relocate,
    ) -> bool {
        let (shape, class) = (class::class(id), self.class(id));
        let window = self.window(area.chain as usize - 1);
        let (zspage, memory) = (area.zspages.get(index), area.memory(index));
        let mut partial = class.partial.lock();
        if !window.is_shared(area, index) {
            return false;
        }
        // SAFETY: shared, and still of this class, whose lock is held.
        unsafe {
            // Those of the time of the fork, less those that no entry names any more.
            let mut live = ObjectSet::in_use(zspage, shape, memory);
            let mut nr_live = 0;
            for object in 0..(*zspage).fresh {
                if !live.has(object) {
                    continue;
                }
                let object_ptr = zspage::object_ptr(shape, memory, object);
                let owner = object_ptr.cast::<u32>().read();
                match entries.try_hold(owner, self.loc_of(object_ptr)) {
                    Some(_) => nr_live += 1,
                    None => live.remove(object),
                }
            }
            // Some entries are busy, or an object is about to be freed.
            if nr_live == 0 || nr_live != (*zspage).inuse {
                return false;
            }
            zspage::chain_free(zspage, shape, memory, |object| !live.has(object));
            window.own(area, index);
            partial.regroup(area, shape, index, shape.objects, nr_live);
            Class::add(&class.nr_zspages, 1);
            Class::add(&class.nr_objects, u64::from(nr_live));
        }
        class.assert_counts(shape);
        self.held.shared.fetch_sub(u64::from(area.chain), Relaxed);
        true
    }

    /// Gives an empty shared zspage back.
    pub(crate) fn put_shared(&self, place: &Place, charge: &Charge) {
        let area = self.area(place.window);
        let pages = u64::from(area.chain);
        // SAFETY: it has no objects, and whoever freed the last one has it alone.
        let is_gone = unsafe {
            self.window(place.window)
                .put_shared(&area, &self.held, place.index)
        };
        self.held.shared.fetch_sub(pages, Relaxed);
        match is_gone {
            true => charge.share().unshare(pages),
            false => charge.share().own(pages),
        }
    }
}

/// An object of a shared zspage is free. Returns how many are left.
///
/// # Safety
/// The caller holds the class's lock, and the object is in use.
pub(crate) unsafe fn forget_object(zspage: *mut Zspage) -> u16 {
    // SAFETY: by this function's contract.
    unsafe {
        strict_assert!((*zspage).inuse > 0, "freed twice");
        (*zspage).inuse = (*zspage).inuse.wrapping_sub(1);
        (*zspage).inuse
    }
}
