//! *What*: a writeback's buffers and state: the run being packed, its objects, the sweep's
//! position.
//!
//! *Invariants*: one writeback at a time: whoever writes back holds the lock around this.
//! *Locking*: op → this → folio. *Context*: signal, worker.

use crate::page::{Age, PAGE_SIZE, Page, wide};
use crate::policy::shrinker::Shrinker;
use crate::policy::sweep::{Ages, Chosen, Sweep};
use uzswap_io::{MAX_RUN, Place, SLOT};

/// Most objects in a run.
const MAX_OBJECTS: usize = 512;
/// Bytes that are written at once.
pub(crate) const RUN_LEN: usize = MAX_RUN * SLOT;
/// Pages that a writeback takes: what is written from, and its list.
pub(crate) const WRITEBACK_PAGES: u64 =
    wide(RUN_LEN / PAGE_SIZE) + wide(size_of::<Writeback>().div_ceil(PAGE_SIZE));

/// One object on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub chosen: Chosen,
    /// Where it lies in the run; `None` if it was in use when it was its turn.
    pub place: Option<Place>,
}

/// What a writeback works on.
#[derive(Debug)]
pub(crate) struct Writeback {
    /// [`RUN_LEN`] bytes, page aligned.
    pub run: &'static mut [u8],
    pub objects: [Object; MAX_OBJECTS],
    pub sweep: Sweep,
    pub ages: Ages,
    pub shrinker: Shrinker,
}

impl Writeback {
    /// At rest.
    pub(crate) const fn new(run: &'static mut [u8]) -> Self {
        Writeback {
            run,
            objects: [Object {
                chosen: Chosen {
                    page: Page::from_index(0),
                    size: 0,
                    age: Age(0),
                },
                place: None,
            }; MAX_OBJECTS],
            sweep: Sweep::new(),
            ages: Ages::new(),
            shrinker: Shrinker::new(),
        }
    }
}
