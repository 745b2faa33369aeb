//! *What*: where objects lie in a run of slots: packs them for one write, and finds them again in
//! the slots that were read.
//!
//! An *object* is a header ([`Seal::overhead`] bytes) and a body, one compressed page of 1 to 4096
//! bytes. A *run* is up to [`MAX_RUN`] consecutive slots of the device. Objects are aligned to
//! [`GRAIN`] and may cross from one slot of their run into the next.
//!
//! *Invariants*: objects do not overlap; none touches more than [`MAX_SLOTS`] slots, so a page
//! comes back by one read of at most 8 KiB; every byte of a finished run belongs to a sealed object
//! or is zero, so that no earlier contents of the buffer reach the device.
//! *Locking*: none, buffers are the caller's. *Context*: any.

use crate::seal::{Label, Seal};
use crate::{GRAIN, MAX_RUN, MAX_SLOTS, SLOT};

/// The longest body: a page that did not compress.
pub const MAX_BODY: usize = SLOT;

// The longest object fits if it begins at a slot.
const _: () = assert!(MAX_BODY + 32 <= MAX_SLOTS * SLOT);
const _: () = assert!(SLOT.is_multiple_of(GRAIN) && SLOT / GRAIN == 1 << BYTE_BITS);

/// Bits of a [`Location`] below its slot number.
const BYTE_BITS: u32 = 8;

/// Where an object begins within its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Slot, counted from the beginning of the run.
    pub slot: u32,
    /// Byte in that slot, a multiple of [`GRAIN`].
    pub byte: u16,
}

impl Place {
    /// The place in a run that begins at slot `run` of the device.
    #[must_use]
    pub const fn on_device(self, run: u64) -> Location {
        Location {
            slot: run.saturating_add(self.slot as u64),
            byte: self.byte,
        }
    }
}

/// Where an object begins on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Number of the slot, which implies the device.
    pub slot: u64,
    /// Byte in that slot, a multiple of [`GRAIN`].
    pub byte: u16,
}

impl Location {
    /// As one number: the slot shifted left by 8, and the byte in units of [`GRAIN`]. 36 bits, as
    /// devices have up to 1 TiB.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.slot << BYTE_BITS | (self.byte as u64 / GRAIN as u64)
    }

    /// From [`Location::raw`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "below 4096")]
    pub const fn from_raw(raw: u64) -> Self {
        Location {
            slot: raw >> BYTE_BITS,
            byte: ((raw & ((1 << BYTE_BITS) - 1)) * GRAIN as u64) as u16,
        }
    }

    /// The slots that hold an object with a body of `len` bytes beginning here.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most three")]
    pub const fn extent(self, len: usize, seal: Seal<'_>) -> Extent {
        let end = (self.byte as usize).saturating_add(seal.overhead().saturating_add(len));
        Extent {
            slot: self.slot,
            nr_slots: end.div_ceil(SLOT) as u32,
        }
    }
}

/// Consecutive slots of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first.
    pub slot: u64,
    /// How many: 1 or 2 for an object that a [`Run`] placed.
    pub nr_slots: u32,
}

impl Extent {
    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.nr_slots as usize * SLOT
    }
}

/// Where the next object of a run goes, without any data: [`Run`] packs by it, and writeback plans
/// by it how many slots some objects will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    used: usize,
}

impl Layout {
    /// An empty run.
    #[must_use]
    pub const fn new() -> Self {
        Layout { used: 0 }
    }

    /// Places an object of `stored` bytes, header included.
    #[expect(clippy::cast_possible_truncation, reason = "a run is small")]
    pub const fn place(&mut self, stored: usize) -> Place {
        let mut begin = self.used.next_multiple_of(GRAIN);
        // One that would touch a third slot begins at the next slot.
        if (begin % SLOT).saturating_add(stored) > MAX_SLOTS * SLOT {
            begin = begin.next_multiple_of(SLOT);
        }
        self.used = begin.saturating_add(stored);
        Place {
            slot: (begin / SLOT) as u32,
            byte: (begin % SLOT) as u16,
        }
    }

    /// Slots taken so far.
    #[must_use]
    pub const fn nr_slots(self) -> usize {
        self.used.div_ceil(SLOT)
    }
}

/// Why an object was not packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackError {
    /// The run is full: write it, and begin another with this object.
    Full,
    /// The body is empty, longer than [`MAX_BODY`], or cannot be sealed.
    BadLength,
}

/// A run being packed, in the caller's buffer.
#[derive(Debug)]
pub struct Run<'a> {
    buffer: &'a mut [u8],
    layout: Layout,
    seal: Seal<'a>,
}

impl<'a> Run<'a> {
    /// An empty run of as many whole slots as `buffer` has, at most [`MAX_RUN`]. For a device
    /// opened with `O_DIRECT` the buffer is aligned to [`SLOT`].
    pub fn new(buffer: &'a mut [u8], seal: Seal<'a>) -> Self {
        let len = (buffer.len() - buffer.len() % SLOT).min(MAX_RUN * SLOT);
        // Always there: `len` is no more than the buffer's.
        let buffer = buffer.get_mut(..len).unwrap_or_default();
        Run {
            buffer,
            layout: Layout::new(),
            seal,
        }
    }

    /// Adds an object. `fill` writes its body of `len` bytes; it is not called if there is no room.
    ///
    /// # Errors
    /// [`PackError`]; the run is as it was.
    pub fn push(
        &mut self,
        label: Label,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Place, PackError> {
        if len == 0 || len > MAX_BODY {
            return Err(PackError::BadLength);
        }
        let overhead = self.seal.overhead();
        let mut layout = self.layout;
        let place = layout.place(overhead + len);
        let (before, begin) = (self.layout.used, layout.used - overhead - len);
        let object = self
            .buffer
            .get_mut(begin..layout.used)
            .ok_or(PackError::Full)?;
        let body = object.get_mut(overhead..).ok_or(PackError::BadLength)?;
        fill(body);
        if self.seal.seal(label, object).is_err() {
            object.fill(0);
            return Err(PackError::BadLength);
        }
        if let Some(gap) = self.buffer.get_mut(before..begin) {
            gap.fill(0);
        }
        self.layout = layout;
        Ok(place)
    }

    /// Slots that the objects take so far.
    #[must_use]
    pub const fn nr_slots(&self) -> usize {
        self.layout.nr_slots()
    }

    /// The slots to write; the rest of the last one is zeroed.
    #[must_use]
    pub fn finish(self) -> &'a [u8] {
        let len = self.nr_slots() * SLOT;
        let slots = self.buffer.get_mut(..len).unwrap_or_default();
        if let Some(rest) = slots.get_mut(self.layout.used..) {
            rest.fill(0);
        }
        slots
    }
}

/// Why an object could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Not what was stored under this label: damaged, moved, replaced, or opened before.
    Corrupt,
    /// The window does not hold all of it.
    Outside,
}

/// Slots that were read: a buffer, and where on the device its first byte lies.
#[derive(Debug)]
pub struct Window<'a> {
    slot: u64,
    buffer: &'a mut [u8],
}

impl<'a> Window<'a> {
    /// A window of `buffer`, read from `slot` on. It may be larger than an object's [`Extent`]: the
    /// neighbours can then be opened too.
    pub fn new(slot: u64, buffer: &'a mut [u8]) -> Self {
        Window { slot, buffer }
    }

    /// Checks and decrypts the object at `location` in place; returns its body of `len` bytes. Each
    /// object opens once; others are not changed.
    ///
    /// # Errors
    /// [`OpenError`]; the buffer is unchanged, and nothing in it may be taken for the page.
    pub fn open(
        &mut self,
        seal: Seal<'_>,
        label: Label,
        location: Location,
        len: usize,
    ) -> Result<&mut [u8], OpenError> {
        let object = self
            .object(location, seal.overhead().saturating_add(len))
            .ok_or(OpenError::Outside)?;
        seal.open(label, object).ok_or(OpenError::Corrupt)
    }

    /// As [`Window::open`], of the only object that is opened.
    ///
    /// # Errors
    /// As [`Window::open`].
    pub fn into_object(
        self,
        seal: Seal<'_>,
        label: Label,
        location: Location,
        len: usize,
    ) -> Result<&'a mut [u8], OpenError> {
        let stored = seal.overhead().saturating_add(len);
        let range = self.range(location, stored).ok_or(OpenError::Outside)?;
        let object = self.buffer.get_mut(range).ok_or(OpenError::Outside)?;
        seal.open(label, object).ok_or(OpenError::Corrupt)
    }

    fn object(&mut self, location: Location, stored: usize) -> Option<&mut [u8]> {
        let range = self.range(location, stored)?;
        self.buffer.get_mut(range)
    }

    /// Where in the buffer an object lies.
    fn range(&self, location: Location, stored: usize) -> Option<core::ops::Range<usize>> {
        let slot = usize::try_from(location.slot.checked_sub(self.slot)?).ok()?;
        let begin = slot.checked_mul(SLOT)?.checked_add(location.byte.into())?;
        Some(begin..begin.checked_add(stored)?)
    }
}
