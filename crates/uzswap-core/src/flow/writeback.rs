//! *What*: writeback: moves the coldest stored objects to the swap devices, still compressed, many
//! with one write.
//!
//! ```text
//! choose (no lock) → allocate slots → pack (a folio at a time) → write (no folio)
//!                  → publish (a folio at a time)
//! ```
//!
//! *Invariants*
//! - An object stays in the pool, where loads find it, until its copy is on the device and counted.
//!   Its entry says `writing` meanwhile; any other change of the page replaces the entry by one
//!   that does not.
//! - One writeback runs at a time, so an entry that says `writing` at the end is the one that said
//!   so at the beginning, however often compaction moved the object.
//!
//! *Locking*: op → writeback → one folio at a time. *Context*: signal, worker.

use crate::backing::write::{Candidates, Destination, WriteError};
use crate::backing::{Backing, label};
use crate::page::{Entries, Entry, narrow, wide};
use crate::parts::Parts;
use crate::parts::writeback::{Object, Writeback};
use crate::policy::sweep::Chosen;
use crate::store::object::is_as_noted;
use uzswap_group::counters::add;
use uzswap_io::{Layout, MAX_RUN, PackError, Run, SLOT};
use uzswap_sync::strict_assert;

/// Order of the longest run of slots.
const MAX_ORDER: u32 = MAX_RUN.ilog2();

/// Outcome of packing one object.
enum PackOutcome {
    /// It stays in the pool: its folio is in use, or it is not the chosen object any more.
    Skipped,
    /// It is in the run.
    Packed,
    /// Its page has not changed since it was read back: its entry names that copy again.
    Unchanged,
}

/// What became of the objects that were chosen.
#[derive(Default)]
struct Packed<'a> {
    /// The run, to be written; empty if no object is in it.
    run: &'a [u8],
    /// All that were chosen. Those in the run have their place.
    objects: &'a [Object],
    /// Gone from the pool without being written.
    unchanged: WrittenBack,
    /// In use, or not what was chosen any more.
    raced: u64,
}

/// What left the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenBack {
    pub pages: u64,
    /// What they took in the pool.
    pub bytes: u64,
}

impl WrittenBack {
    fn add(&mut self, size: u16) {
        self.pages += 1;
        self.bytes += u64::from(size);
    }
}

/// Why nothing was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritebackError {
    /// The pool holds nothing that could go, or nothing may.
    Nothing,
    /// Everything that was chosen was in use when it was its turn.
    Raced,
    /// The devices have no room.
    Full,
    /// A device failed, and no other took it.
    Failed,
}

impl From<WriteError> for WritebackError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoDevice => WritebackError::Nothing,
            WriteError::Full => WritebackError::Full,
            WriteError::Failed | WriteError::Reset => WritebackError::Failed,
        }
    }
}

/// Writes one run, of what was evicted `min_age` ticks ago or longer.
pub(crate) fn write_run(
    parts: &Parts,
    backing: &Backing,
    writeback: &mut Writeback,
    min_age: u16,
) -> Result<WrittenBack, WritebackError> {
    if !backing.devices().counts() {
        return Err(WritebackError::Nothing);
    }
    for device in backing.devices().iter() {
        device.discard();
    }
    // First, as without a device there is no need to choose.
    let candidates = Candidates::of(backing)?;
    let (nr, nr_slots) = choose(parts, backing, writeback, min_age);
    if nr == 0 {
        return Err(WritebackError::Nothing);
    }
    let account = parts.account;
    let (own, path) = (account.process(), account.charge().share().path());
    let allowed = account.group().begin_swapping(own, path, wide(nr));
    if let Some(object) = writeback.objects.get(narrow(allowed)) {
        // What a group may not have there stays the next to go.
        if allowed < wide(nr) {
            writeback.sweep.return_to(object.chosen.page);
        }
    }
    let done = match allowed {
        0 => Err(WritebackError::Full),
        nr => write_chosen(
            parts,
            backing,
            writeback,
            candidates,
            (narrow(nr), nr_slots),
        ),
    };
    own.end_swapping(allowed);
    done
}

/// Writes the first `nr` of the objects that were chosen, which take `nr_slots` slots at most.
fn write_chosen(
    parts: &Parts,
    backing: &Backing,
    writeback: &mut Writeback,
    candidates: Candidates,
    (nr, nr_slots): (usize, usize),
) -> Result<WrittenBack, WritebackError> {
    let [first, ..] = &writeback.objects;
    let first_len = backing.seal().overhead() + usize::from(first.chosen.size);
    let min_slots = first_len.div_ceil(SLOT);
    // The largest run that the objects fill, or what is to be had of it, if it holds the first.
    let orders = min_slots.next_power_of_two().ilog2()..=nr_slots.ilog2().min(MAX_ORDER);
    // Holds one count for this writeback until the objects hold theirs.
    let taken = backing
        .take_slots(&candidates, &orders)
        .ok_or(WritebackError::Full)?;
    let room = usize::from(taken.run.nr) * SLOT;
    let write = backing.next_write();
    let packed = pack(parts, backing, writeback, nr, (room, write));
    let counters = parts.account.counters();
    add(&counters.reject_reclaim_fail, packed.raced);
    let unchanged = packed.unchanged;
    if packed.run.is_empty() {
        taken.device.put_run(taken.run);
        return if unchanged.pages > 0 {
            Ok(unchanged)
        } else {
            Err(WritebackError::Raced)
        };
    }
    let Destination { device, run } = backing
        .write_out(candidates, taken, packed.run, write)
        .inspect_err(|_| abort(parts, packed.objects))?;
    add(&counters.swap_bytes_out, wide(packed.run.len()));
    let WrittenBack { pages, bytes } = publish(parts, packed.objects, device.number_of(run));
    device.put_run(run);
    Ok(WrittenBack {
        pages: pages + unchanged.pages,
        bytes: bytes + unchanged.bytes,
    })
}

/// Lists what goes next, of that age at least. Returns how many objects that are and how many slots
/// they take.
fn choose(
    parts: &Parts,
    backing: &Backing,
    writeback: &mut Writeback,
    min_age: u16,
) -> (usize, usize) {
    let Writeback {
        objects,
        sweep,
        ages,
        ..
    } = writeback;
    let overhead = backing.seal().overhead();
    let mut layout = Layout::new();
    let mut places = objects.iter_mut();
    let nr = sweep.choose(&parts.pages, ages, min_age, |chosen| {
        let mut longer = layout;
        let _ = longer.place(overhead + usize::from(chosen.size));
        if longer.nr_slots() > MAX_RUN {
            return false;
        }
        let Some(object) = places.next() else {
            return false;
        };
        *object = Object {
            chosen,
            place: None,
        };
        layout = longer;
        true
    });
    (nr, layout.nr_slots())
}

/// Packs the first `nr` objects, as far as they still are what they were, are not on a device as
/// they are, and fit `room` bytes. They are sealed for write number `write`.
fn pack<'a>(
    parts: &Parts,
    backing: &Backing,
    writeback: &'a mut Writeback,
    nr: usize,
    (room, write): (usize, u32),
) -> Packed<'a> {
    let Writeback {
        run,
        objects,
        sweep,
        ..
    } = writeback;
    let mut packed = Packed::default();
    let (Some(buffer), Some(objects)) = (run.get_mut(..room), objects.get_mut(..nr)) else {
        strict_assert!(false, "a run is longer than the buffer, or the list");
        return packed;
    };
    let mut run = Run::new(buffer, backing.seal());
    for object in &mut *objects {
        match pack_one(parts, backing, &mut run, object, write) {
            Ok(PackOutcome::Skipped) => packed.raced += 1,
            Ok(PackOutcome::Packed) => {}
            Ok(PackOutcome::Unchanged) => packed.unchanged.add(object.chosen.size),
            Err(PackError::Full) => {
                sweep.return_to(object.chosen.page);
                break;
            }
            Err(PackError::BadLength) => strict_assert!(false, "an object that no run can hold"),
        }
    }
    packed.run = run.finish();
    packed.objects = objects;
    packed
}

/// Packs one object, unless it is in use, or its copy from last time is on the device still.
fn pack_one(
    parts: &Parts,
    backing: &Backing,
    run: &mut Run<'_>,
    object: &mut Object,
    write: u32,
) -> Result<PackOutcome, PackError> {
    let Chosen { page, size, age } = object.chosen;
    let Some(_guard) = parts.pages.folio_of(page).try_lock() else {
        return Ok(PackOutcome::Skipped);
    };
    // Chosen without a lock: the page may have another object by now, or none.
    let Entry::Stored {
        loc,
        size: size_now,
        age: age_now,
        content,
        ..
    } = parts.pages.get(page)
    else {
        return Ok(PackOutcome::Skipped);
    };
    if size_now != size || age_now != age {
        return Ok(PackOutcome::Skipped);
    }
    // SAFETY: the entry names it, and the folio is held.
    let (data, note) = unsafe { (parts.store.object(loc, size), parts.store.note(loc, size)) };
    if !is_as_noted(data, note) {
        // The note is not written: on the device the damaged page would pass for good.
        return Ok(PackOutcome::Skipped);
    }
    if !content.is_page() {
        // A copy is of a page that was stored alone.
        backing.drop_copy(page);
    } else if let Some(copy) = backing.unchanged_copy(page, data) {
        parts.transition().use_copy(page, copy);
        return Ok(PackOutcome::Unchanged);
    }
    let place = run.push(label(page, age, write), data.len(), |body| {
        body.copy_from_slice(data);
    })?;
    parts.transition().begin_write(page);
    object.place = Some(place);
    Ok(PackOutcome::Packed)
}

/// The copies are on the device, in the run that begins at slot `first`: entries that nobody
/// touched meanwhile name them. Returns what those were.
fn publish(parts: &Parts, objects: &[Object], first: u64) -> WrittenBack {
    let mut published = WrittenBack::default();
    for object in objects {
        let Some(place) = object.place else { continue };
        let page = object.chosen.page;
        let location = place.on_device(first).raw();
        let _guard = parts.pages.folio_of(page).lock();
        if let Some(size) = parts.transition().finish_write(page, location) {
            published.add(size);
        }
    }
    add(&parts.account.counters().pswpout, published.pages);
    published
}

/// The copies did not get to the device: the entries are as they were before.
fn abort(parts: &Parts, objects: &[Object]) {
    for object in objects.iter().filter(|object| object.place.is_some()) {
        let page = object.chosen.page;
        let _guard = parts.pages.folio_of(page).lock();
        parts.transition().abort_write(page);
    }
}
