//! *What*: writeback: the coldest objects of the pool go to a swap device, as they are, many with one
//! sequential write: choose → pack → write → publish. When and how much: `shrinker`. Where to: `swap_out`.
//!
//! There is no list of stored pages. Every entry carries the age at which its page was evicted, which
//! gives the order exactly, and a page that was used since has a new age: that is its second round. A
//! *sweep* first counts the ages of everything stored, which tells the age that an eighth of it exceeds,
//! and then goes over the page table in the order of addresses and takes those: cold pages that
//! are neighbours in memory are neighbours on the device and come back with one read.
//!
//! *Invariants*
//! - An object stays in the pool, and loads go on, until its copy is on the device and counted. Its entry says
//!   `writing` meanwhile; whatever else happens to the page replaces the entry by one that does not say so.
//! - One writeback at a time, so an entry that says `writing` at the end is the one that said so at
//!   the beginning, however often the object was moved.
//! - Same-filled pages are never written: they take no memory.
//!
//! *Locking*: slot → writeback → one folio at a time. *Context*: signal, worker.

use super::Parts;
use super::object::is_as_noted;
use super::shrinker::Shrinker;
use super::swap::{Swap, label};
use super::swap_out::{Asked, Taken};
use crate::arena::{Page, wide};
use crate::table::entry::AGE_BITS;
use crate::table::{Age, Entry};
use uzswap_group::counters::add;
use uzswap_io::{Layout, MAX_RUN, PackError, Place, Run, SLOT};

/// Most objects in a run.
const MOST_OBJECTS: usize = 512;
/// Bytes that are written at once.
pub(crate) const RUN_LEN: usize = MAX_RUN * SLOT;
/// Order of the longest run of slots.
const MOST_ORDER: u32 = MAX_RUN.ilog2();
/// How many ages there are.
const NR_AGES: usize = 1 << AGE_BITS;
/// The part of what is stored that one sweep takes.
const SWEEP_FRACTION: u64 = 8;
/// Where a sweep stands that has ended.
const AT_END: usize = usize::MAX;

/// One object on its way.
#[derive(Clone, Copy, Debug)]
struct Object {
    page: Page,
    size: u16,
    age: Age,
    /// Where it lies in the run; `None` if it was in use when it was its turn.
    place: Option<Place>,
}

/// What a writeback works on.
#[derive(Debug)]
pub(crate) struct Writeback {
    /// [`RUN_LEN`] bytes, page aligned.
    run: &'static mut [u8],
    objects: [Object; MOST_OBJECTS],
    /// The page that the sweep has come to.
    hand: usize,
    /// It takes what had been evicted so many ticks or longer when it began.
    cold: u16,
    /// When that was: what has been evicted since then grows old too, and is not meant.
    begun: Age,
    ages: [u32; NR_AGES],
    pub shrinker: Shrinker,
}

impl Writeback {
    /// At rest.
    pub(crate) const fn new(run: &'static mut [u8]) -> Self {
        Writeback {
            run,
            objects: [Object {
                page: Page::from_index(0),
                size: 0,
                age: Age(0),
                place: None,
            }; MOST_OBJECTS],
            hand: AT_END,
            cold: 0,
            begun: Age(0),
            ages: [0; NR_AGES],
            shrinker: Shrinker::new(),
        }
    }

    /// Of the pages whose ages were counted, those that are `age` ticks old or older.
    pub(crate) fn nr_older(&self, age: u16) -> u64 {
        let older = self.ages.iter().skip(usize::from(age));
        older.map(|&nr| u64::from(nr)).sum()
    }
}

/// What became of an object that was to be packed.
enum Went {
    /// It stays in the pool: it is in use, or not what was chosen.
    Nowhere,
    /// It is in the run.
    IntoRun,
    /// Its page has not changed since it was read back: its entry names that copy again.
    ToItsCopy,
}

/// What became of the objects that were chosen.
#[derive(Default)]
struct Packed {
    /// In the run.
    objects: usize,
    /// Gone from the pool without being written.
    unchanged: Moved,
    /// In use, or not what was chosen any more.
    raced: u64,
    /// Bytes to write.
    len: usize,
}

/// What left the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub pages: u64,
    /// What they took in the pool.
    pub bytes: u64,
}

impl Moved {
    fn add(&mut self, size: u16) {
        self.pages += 1;
        self.bytes += u64::from(size);
    }
}

/// Why nothing was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The pool holds nothing that could go, or nothing may.
    Nothing,
    /// Everything that was chosen was in use when it was its turn.
    Raced,
    /// The devices have no room.
    Full,
    /// A device failed, and no other took it.
    Broken,
}

impl Parts {
    /// Writes one run, of what was evicted `least_age` ticks ago or longer.
    pub(crate) fn write_run(
        &self,
        swap: &Swap,
        writeback: &mut Writeback,
        least_age: u16,
    ) -> Result<Moved, Stuck> {
        if !swap.counts() {
            return Err(Stuck::Nothing);
        }
        for device in swap.devices() {
            device.discard();
        }
        // Before anything is looked for that could not go anywhere.
        let asked = Asked::of(swap)?;
        let (nr, nr_slots) = self.choose(swap, writeback, least_age);
        if nr == 0 {
            return Err(Stuck::Nothing);
        }
        let least = writeback.objects.first().map_or(1, |object| {
            (swap.seal().overhead() + usize::from(object.size)).div_ceil(SLOT)
        });
        // The largest run that the objects fill, or what is to be had of it, if it holds the first.
        let orders = least.next_power_of_two().ilog2()..=nr_slots.ilog2().min(MOST_ORDER);
        // Counted once for this writeback, until its objects are.
        let taken = self.take_slots(swap, &asked, &orders).ok_or(Stuck::Full)?;
        let packed = self.pack(swap, writeback, nr, usize::from(taken.run.nr) * SLOT);
        let Packed {
            objects,
            unchanged,
            raced,
            len,
        } = packed;
        add(&self.counters().reject_reclaim_fail, raced);
        let written = match writeback.run.get(..len) {
            Some(bytes) if objects > 0 => self.write_out(swap, asked, taken, bytes),
            _ => {
                taken.device.put_run(taken.run);
                return if unchanged.pages > 0 {
                    Ok(unchanged)
                } else {
                    Err(Stuck::Raced)
                };
            }
        };
        let objects = writeback.objects.get(..nr).unwrap_or_default();
        let Taken { device, run } = written.inspect_err(|_| self.abandon(objects))?;
        add(&self.counters().swap_bytes_out, wide(len));
        let first = device.number_of(run);
        let Moved { pages, bytes } = self.publish_swapped(swap, objects, first);
        device.put_run(run);
        Ok(Moved {
            pages: pages + unchanged.pages,
            bytes: bytes + unchanged.bytes,
        })
    }

    /// Lists what goes next, of that age at least. Returns how many objects that are and how many slots they take.
    fn choose(&self, swap: &Swap, writeback: &mut Writeback, least_age: u16) -> (usize, usize) {
        let overhead = swap.seal().overhead();
        // The rest of one sweep, else the next one.
        for _ in 0..2 {
            if writeback.hand == AT_END && !self.begin_sweep(writeback) {
                break;
            }
            let now = self.clock.now();
            let cold = writeback.begun.distance(now).saturating_add(writeback.cold);
            let mut layout = Layout::new();
            let mut nr = 0;
            'sweep: for chunk in self.table.ready_chunks(writeback.hand) {
                let end = chunk.end;
                for index in chunk {
                    let page = Page::from_index(index);
                    let Entry::Stored { size, age, .. } = self.table.get(page) else {
                        continue;
                    };
                    if age.distance(now) < cold.max(least_age) {
                        continue;
                    }
                    let mut more = layout;
                    let _ = more.place(overhead + usize::from(size));
                    let Some(object) = writeback.objects.get_mut(nr) else {
                        writeback.hand = index;
                        break 'sweep;
                    };
                    if more.nr_slots() > MAX_RUN {
                        writeback.hand = index;
                        break 'sweep;
                    }
                    *object = Object {
                        page,
                        size,
                        age,
                        place: None,
                    };
                    layout = more;
                    nr += 1;
                }
                writeback.hand = end;
            }
            if self.table.next_ready(writeback.hand).is_none() {
                writeback.hand = AT_END;
            }
            if nr > 0 {
                return (nr, layout.nr_slots());
            }
        }
        (0, 0)
    }

    /// Counts the ages of what is stored. Returns how many pages that is.
    pub(crate) fn count_ages(&self, writeback: &mut Writeback) -> u64 {
        let now = self.clock.now();
        writeback.ages.fill(0);
        let mut total = 0_u64;
        for chunk in self.table.ready_chunks(0) {
            for index in chunk {
                if let Entry::Stored { age, .. } = self.table.get(Page::from_index(index)) {
                    let age = usize::from(age.distance(now));
                    if let Some(nr) = writeback.ages.get_mut(age) {
                        *nr += 1;
                        total += 1;
                    }
                }
            }
        }
        total
    }

    /// Decides what the next sweep takes. `false`: there is nothing.
    fn begin_sweep(&self, writeback: &mut Writeback) -> bool {
        let total = self.count_ages(writeback);
        let wanted = total.div_ceil(SWEEP_FRACTION);
        let mut older = 0;
        for (age, nr) in writeback.ages.iter().enumerate().rev() {
            older += u64::from(*nr);
            if older >= wanted {
                #[expect(clippy::cast_possible_truncation, reason = "below 2^AGE_BITS")]
                let cold = age as u16;
                writeback.cold = cold;
                break;
            }
        }
        writeback.begun = self.clock.now();
        writeback.hand = 0;
        total > 0
    }

    /// Packs the first `nr` objects, as far as they still are what they were, are not on the device as they are,
    /// and fit `most` bytes.
    fn pack(&self, swap: &Swap, writeback: &mut Writeback, nr: usize, most: usize) -> Packed {
        let Writeback {
            run, objects, hand, ..
        } = writeback;
        let mut packed = Packed::default();
        let (Some(buffer), Some(objects)) = (run.get_mut(..most), objects.get_mut(..nr)) else {
            return packed;
        };
        let mut run = Run::new(buffer, swap.seal());
        for object in objects {
            match self.pack_one(swap, &mut run, object) {
                Ok(Went::Nowhere) => packed.raced += 1,
                Ok(Went::IntoRun) => packed.objects += 1,
                Ok(Went::ToItsCopy) => packed.unchanged.add(object.size),
                Err(PackError::Full) => {
                    *hand = object.page.index();
                    break;
                }
                Err(PackError::BadLength) => {}
            }
        }
        packed.len = run.finish().len();
        packed
    }

    /// Packs one object, unless it is in use, or its copy from last time is on the device still.
    fn pack_one(
        &self,
        swap: &Swap,
        run: &mut Run<'_>,
        object: &mut Object,
    ) -> Result<Went, PackError> {
        let &mut Object {
            page, size, age, ..
        } = object;
        let Some(_guard) = self.folios.of(page).try_lock() else {
            return Ok(Went::Nowhere);
        };
        let old = self.table.get(page);
        let Entry::Stored {
            loc,
            size: size_now,
            age: age_now,
            holds,
            ..
        } = old
        else {
            return Ok(Went::Nowhere);
        };
        if size_now != size || age_now != age {
            return Ok(Went::Nowhere);
        }
        let data = self.pool.data_ptr(loc);
        // SAFETY: the object lives and does not move while the folio is held; it has `size` bytes.
        let data = unsafe { core::slice::from_raw_parts(data, usize::from(size)) };
        // SAFETY: as above.
        if !is_as_noted(data, unsafe { self.note(loc, size) }) {
            // Its note stays behind: on the device it would pass for right.
            return Ok(Went::Nowhere);
        }
        if !holds.is_page() {
            // A copy is of a page that was stored alone.
            self.forget_copy(page);
        } else if let Some(copy) = self.unchanged_copy(swap, page, data) {
            self.table.set(page, copy);
            self.forget(old);
            add(&self.counters().swapped_pages, 1);
            return Ok(Went::ToItsCopy);
        }
        let place = run.push(label(page, age), data.len(), |body| {
            body.copy_from_slice(data);
        })?;
        self.table.set(
            page,
            Entry::Stored {
                loc,
                size,
                age,
                writing: true,
                holds,
            },
        );
        object.place = Some(place);
        Ok(Went::IntoRun)
    }

    /// The copies are on the device, in the run that begins at slot `first`: entries that nobody
    /// touched meanwhile name them. Returns what those were.
    fn publish_swapped(&self, swap: &Swap, objects: &[Object], first: u64) -> Moved {
        let mut published = Moved::default();
        for object in objects {
            let Some(place) = object.place else { continue };
            let _guard = self.folios.of(object.page).lock();
            let old = self.table.get(object.page);
            let Entry::Stored {
                size,
                age,
                writing: true,
                holds,
                ..
            } = old
            else {
                continue;
            };
            let location = place.on_device(first).raw();
            if !swap.get(location, size) {
                self.table.set(object.page, old.kept());
                continue;
            }
            let new = Entry::Swapped {
                location,
                size,
                age,
                holds,
            };
            self.table.set(object.page, new);
            self.forget(old);
            self.count_swapped(holds);
            published.add(size);
        }
        add(&self.counters().pswpout, published.pages);
        published
    }

    /// The copies did not get to the device: the entries are as they were before.
    fn abandon(&self, objects: &[Object]) {
        for object in objects.iter().filter(|object| object.place.is_some()) {
            let _guard = self.folios.of(object.page).lock();
            let entry = self.table.get(object.page);
            if matches!(entry, Entry::Stored { writing: true, .. }) {
                self.table.set(object.page, entry.kept());
            }
        }
    }
}
