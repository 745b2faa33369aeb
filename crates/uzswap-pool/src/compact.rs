//! *What*: compaction: moves the objects of the emptiest zspages of a class into its
//! fuller ones, and gives the emptied memory back.
//!
//! *Invariants*
//! - An object moves only while its page table entry is held and says that the
//!   object is where we found it. An object that was allocated and not yet
//!   published fails that test; one that a fault is reading fails the try-lock.
//! - Copy, then publish the new location, then free the old object. The copy lies
//!   inside the hold: copied earlier, it could miss what the owner wrote before
//!   publishing.
//! - The pool does not know an object's true size, so all bytes of its class are copied.
//!
//! *Locking*: the class lock is held while entries are held, against the usual order
//! (folio before class): [`Relocate::try_hold`] must therefore never wait. The
//! class lock is dropped between zspages.
//! *Context*: signal, worker.

use crate::class::{self, ClassId, HUGE};
use crate::objects::ObjectSet;
use crate::partial::{Class, Partial};
use crate::window::Area;
use crate::zspage::{self, Index, NIL};
use crate::{Loc, Pool};
use uzswap_sync::charge::Charge;

/// Zspages of one class that may stay unemptied, because entries were busy,
/// before compaction turns to the next class.
const MAX_STUCK_ZSPAGES: u32 = 4;

/// The page table's side of compaction.
pub trait Relocate {
    /// A held page table entry. Dropping it lets it go unchanged.
    type Held;

    /// Holds `owner`'s page table entry if that is free at this moment and says
    /// `old`; `None` otherwise, and the object stays.
    ///
    /// The caller guarantees: `owner` is what [`Pool::alloc`] was given for `old`.
    /// A pool class lock is held, so the implementer must not wait for any lock,
    /// nor call the pool.
    fn try_hold(&mut self, owner: u32, old: Loc) -> Option<Self::Held>;

    /// Makes the entry say `new`, whose data are complete, and lets it go.
    fn publish(&mut self, held: Self::Held, new: Loc);
}

impl Pool {
    /// Compacts until about `max_pages` were freed or nothing more is worth it,
    /// and returns the pages given back and uncharged: empty zspages that were
    /// in the cache of the same length count as well.
    ///
    /// Needs no memory, so it works at the limit.
    pub fn compact(&self, charge: &Charge, max_pages: u64, relocate: &mut impl Relocate) -> u64 {
        let mut freed = 0;
        for id in 1..HUGE {
            if freed >= max_pages {
                break;
            }
            if self.class_stat(id).freeable_zspages() > 0 {
                freed += self.compact_class(id, charge, max_pages - freed, relocate);
            }
        }
        freed
    }

    fn compact_class(
        &self,
        id: ClassId,
        charge: &Charge,
        max_pages: u64,
        relocate: &mut impl Relocate,
    ) -> u64 {
        let shape = class::class(id);
        let class = self.class(id);
        let at = shape.chain as usize - 1;
        let area = self.area(at);
        let mut emptied = 0;
        let mut stuck = 0;
        while emptied < max_pages && stuck < MAX_STUCK_ZSPAGES {
            let mut partial = class.partial.lock();
            if self.class_stat(id).freeable_zspages() == 0 {
                break;
            }
            let source = partial.take_emptiest(&area);
            if source == NIL {
                break;
            }
            self.empty_zspage(id, &area, &mut partial, source, relocate);
            // SAFETY: the class's lock is held and the zspage is on no list.
            let inuse = unsafe { (*area.zspages.get(source)).inuse };
            if inuse > 0 {
                stuck += 1;
                let group = shape.group_of(inuse);
                // SAFETY: as above. At the end: the next look finds another first.
                unsafe { partial.group_mut(group).push_back(area.zspages, source) };
                partial.nonempty |= 1 << group;
                continue;
            }
            Class::sub(&class.nr_zspages, 1);
            class.assert_counts(shape);
            drop(partial);
            emptied += u64::from(shape.chain);
            // SAFETY: live, empty, on no list: our own.
            unsafe { self.window(at).put_idle(&area, source) };
        }
        if emptied == 0 {
            return 0;
        }
        let pages = self.window(at).drain(&area, &self.held);
        charge.uncharge(pages);
        pages
    }

    /// Moves what it can out of `source`, which is on no list, into the fullest
    /// other zspages.
    fn empty_zspage(
        &self,
        id: ClassId,
        area: &Area,
        partial: &mut Partial,
        source: Index,
        relocate: &mut impl Relocate,
    ) {
        let shape = class::class(id);
        let memory = area.memory(source);
        let zspage = area.zspages.get(source);
        // SAFETY: the class's lock is held (`partial` comes out of it) and
        // `source` is a live zspage of this class.
        let live = unsafe { ObjectSet::in_use(zspage, shape, memory) };
        // SAFETY: as above.
        let fresh = unsafe { (*zspage).fresh };
        for object in (0..fresh).filter(|&object| live.has(object)) {
            let target = partial.fullest();
            if target == NIL {
                return;
            }
            let old_ptr = zspage::object_ptr(shape, memory, object);
            let old = self.loc_of(old_ptr);
            // SAFETY: an object in use has its owner in front; written under the
            // class's lock.
            let owner = unsafe { old_ptr.cast::<u32>().read() };
            let Some(held) = relocate.try_hold(owner, old) else {
                continue;
            };
            let target_zspage = area.zspages.get(target);
            let target_memory = area.memory(target);
            // SAFETY: `target` is a live zspage of the class that is not full; the object taken is
            // ours, `size` bytes long and not the old one. The old object is published and its
            // entry held: nobody else writes to it.
            let new_ptr = unsafe {
                let inuse = (*target_zspage).inuse;
                let object_taken = zspage::take_object(target_zspage, shape, target_memory);
                let new_ptr = zspage::object_ptr(shape, target_memory, object_taken);
                new_ptr.copy_from_nonoverlapping(old_ptr, shape.size as usize);
                partial.regroup(area, shape, target, inuse, inuse.wrapping_add(1));
                new_ptr
            };
            relocate.publish(held, self.loc_of(new_ptr));
            // SAFETY: nothing says `old` any more, and the class's lock is held.
            unsafe { zspage::put_object(zspage, shape, memory, object) };
        }
    }
}

impl Partial {
    /// Takes the zspage to empty off its list; [`NIL`] when there is none.
    fn take_emptiest(&mut self, area: &Area) -> Index {
        if self.nonempty == 0 {
            return NIL;
        }
        let group = self.nonempty.trailing_zeros() as usize;
        let index = self.group(group).first();
        // SAFETY: `self` comes out of the class's lock; `index` is on that list.
        unsafe { self.remove(area, group, index) };
        index
    }
}
