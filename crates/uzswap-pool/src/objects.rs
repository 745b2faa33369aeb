//! *What*: which objects of a zspage are in use.
//!
//! *Invariants*: none of its own.
//! *Locking*: the class's. *Context*: signal, worker.

use crate::class::{GRANULE, MAX_CHAIN, SizeClass};
use crate::zspage::{Zspage, object_ptr};
use uzswap_sys::PAGE_SIZE;

/// Words with a bit for every object that a zspage can have.
const WORDS: usize = MAX_CHAIN * PAGE_SIZE / GRANULE / 64;

/// A bit for each object of a zspage.
pub(crate) struct ObjectSet([u64; WORDS]);

impl ObjectSet {
    /// The objects in use; those of a shared zspage as they were at the fork.
    ///
    /// # Safety
    /// The class's lock is held; `zspage` is live or shared, of class `shape`, with its memory at
    /// `memory`.
    pub(crate) unsafe fn in_use(
        zspage: *const Zspage,
        shape: &SizeClass,
        memory: *mut u8,
    ) -> ObjectSet {
        let mut set = ObjectSet([u64::MAX; WORDS]);
        // SAFETY: by this function's contract.
        let (mut link, fresh) = unsafe { ((*zspage).free, (*zspage).fresh) };
        // A chain cannot be longer than what was ever handed out.
        for _ in 0..fresh {
            if link == 0 {
                break;
            }
            let object = link.wrapping_sub(1);
            set.remove(object);
            // SAFETY: a free object's first two bytes are the next link.
            link = unsafe { object_ptr(shape, memory, object).cast::<u16>().read() };
        }
        set
    }

    pub(crate) fn has(&self, object: u16) -> bool {
        let word = self.0.get(usize::from(object / 64));
        word.is_some_and(|word| word & (1 << (object % 64)) != 0)
    }

    pub(crate) fn remove(&mut self, object: u16) {
        if let Some(word) = self.0.get_mut(usize::from(object / 64)) {
            *word &= !(1 << (object % 64));
        }
    }
}
