//! *What*: a swap device: an open file or block device, used in slots.
//!
//! *Invariants*: a call does all that it was asked or fails; nothing outside the device's slots, its header least
//! of all, is ever touched. After a failed write its slots hold anything, after a failed read its buffer does.
//!
//! *Locking*: none; calls on different slots run side by side. *Context*: any with all signals
//! blocked; the calls wait for the device.

use uzswap_sys::signal::{self, SIGXFSZ, SigSet};
use uzswap_sys::{Errno, file, thread};

use crate::{Extent, HEADER_SLOTS, MAX_DEVICE_SLOTS, MOST_READS, Queue, SLOT};

/// Times that a transfer is tried without getting on.
const MAX_TRIES: u32 = 16;
/// How long a device that answers "try again" is left alone, in nanoseconds.
const PAUSE_NS: u64 = 500_000;

/// Why a device did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// No space, or no more of it allowed (`ENOSPC`, `EDQUOT`, `EFBIG`): may pass.
    Full,
    /// It ends before the slots do: cut off by somebody.
    Short,
    /// Anything else.
    Io(Errno),
}

impl From<Errno> for DeviceError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => DeviceError::Full,
            errno => DeviceError::Io(errno),
        }
    }
}

/// What an open descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file: freed slots are punched out.
    File,
    /// A block device: freed slots are discarded.
    Block,
}

/// The single calls that a device is made of. Each may transfer less than asked.
pub trait Medium: Sized {
    /// Of an open descriptor, which stays the caller's and must outlive this.
    fn new(fd: i32) -> Self;

    /// What the descriptor is.
    ///
    /// # Errors
    /// As fstat(2); `EINVAL`: neither a file nor a block device.
    fn kind(&self) -> Result<Kind, Errno>;

    /// The descriptor, which a [`Queue`] reads from past this medium.
    fn descriptor(&self) -> i32;

    /// Whether what a [`Queue`] has read whole, past this medium, came as its own reads do.
    fn came(&self, _buffer: &mut [u8]) -> bool {
        true
    }

    /// As pread(2).
    ///
    /// # Errors
    /// As pread(2).
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno>;

    /// As pwrite(2).
    ///
    /// # Errors
    /// As pwrite(2).
    fn pwrite(&self, buffer: &[u8], offset: u64) -> Result<usize, Errno>;

    /// Gives a range back.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: cannot.
    fn discard(&self, kind: Kind, offset: u64, len: u64) -> Result<(), Errno>;
}

/// A descriptor by raw system calls.
#[derive(Debug)]
pub struct Fd(i32);

impl Medium for Fd {
    fn new(fd: i32) -> Self {
        Fd(fd)
    }

    fn kind(&self) -> Result<Kind, Errno> {
        match file::fstat(self.0)?.st_mode & file::S_IFMT {
            file::S_IFREG => Ok(Kind::File),
            file::S_IFBLK => Ok(Kind::Block),
            _ => Err(Errno::EINVAL),
        }
    }

    fn descriptor(&self) -> i32 {
        self.0
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        file::pread(self.0, buffer, offset)
    }

    fn pwrite(&self, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
        let written = file::pwrite(self.0, buffer, offset);
        if written == Err(Errno::EFBIG) {
            // A limit on file sizes (RLIMIT_FSIZE) was set after the device was opened. The program did
            // not run into it, so the signal that tells it so is not for it. All signals are
            // blocked here: it waits.
            let _ = signal::take_pending(SigSet::EMPTY.with(SIGXFSZ));
        }
        written
    }

    fn discard(&self, kind: Kind, offset: u64, len: u64) -> Result<(), Errno> {
        match kind {
            Kind::File => file::punch_hole(self.0, offset, len),
            Kind::Block => file::block_discard(self.0, offset, len),
        }
    }
}

/// The medium of the devices that the engine uses.
#[cfg(not(feature = "fault-injection"))]
pub type SwapMedium = Fd;
/// The medium of the devices that the engine uses: it fails as it is told to.
#[cfg(feature = "fault-injection")]
pub type SwapMedium = crate::fault::Faulty<Fd>;

/// A swap device of `nr_slots` slots.
#[derive(Debug)]
pub struct Device<M = SwapMedium> {
    medium: M,
    kind: Kind,
    /// The number of its first slot.
    first: u64,
    nr_slots: u64,
}

impl<M: Medium> Device<M> {
    /// `nr_slots` slots of what is open for reading and writing as `fd`; the first follows the header of
    /// [`HEADER_SLOTS`] slots, which is never touched. The descriptor stays the caller's: it must neither be
    /// closed nor become another file as long as this lives.
    ///
    /// If it was opened with `O_DIRECT`, the memory of every buffer given to the calls below begins at a
    /// multiple of [`SLOT`]; the calls fail with `EINVAL` otherwise.
    ///
    /// # Errors
    /// As fstat(2); `EINVAL`: neither a regular file nor a block device, or more than
    /// [`MAX_DEVICE_SLOTS`].
    pub fn new(fd: i32, nr_slots: u64) -> Result<Self, Errno> {
        if nr_slots > MAX_DEVICE_SLOTS {
            return Err(Errno::EINVAL);
        }
        let medium = M::new(fd);
        Ok(Device {
            kind: medium.kind()?,
            medium,
            first: 0,
            nr_slots,
        })
    }

    /// The same, with its slots numbered from `first` on: several devices share one row of numbers.
    #[must_use]
    pub fn numbered_from(mut self, first: u64) -> Self {
        self.first = first;
        self
    }

    /// Whether one of its slots has that number.
    pub const fn has(&self, slot: u64) -> bool {
        slot.wrapping_sub(self.first) < self.nr_slots
    }

    /// The number of its first slot.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Slots that it has.
    pub const fn nr_slots(&self) -> u64 {
        self.nr_slots
    }

    /// What it is on.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The medium, to tell a faulty one how to fail.
    pub const fn medium_mut(&mut self) -> &mut M {
        &mut self.medium
    }

    /// Reads whole slots, from `slot` on, until `buffer` is full.
    ///
    /// # Errors
    /// [`DeviceError`]; the buffer holds anything then.
    pub fn read_at(&self, slot: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let begin = self.offset(slot, buffer.len())?;
        transfer(buffer.len(), |done| match buffer.get_mut(done..) {
            Some(rest) => self.medium.pread(rest, begin + done as u64),
            None => Ok(0),
        })
    }

    /// Reads several extents, at once if there is a `queue` and it can, into `buffer`, which holds one after the other.
    ///
    /// # Errors
    /// As [`Device::read_at`], of any of them.
    pub fn read_extents(
        &self,
        queue: Option<&mut Queue>,
        extents: &[Extent],
        buffer: &mut [u8],
    ) -> Result<(), DeviceError> {
        for extent in extents {
            self.offset(extent.slot, extent.bytes())?;
        }
        let complete = match queue {
            Some(queue) if extents.len() > 1 => {
                let parts = extents.iter().map(|e| (e.bytes(), self.begin(e.slot)));
                queue.read(self.medium.descriptor(), parts, buffer)
            }
            _ => 0,
        };
        let mut rest = buffer;
        for (nr, extent) in extents.iter().enumerate() {
            let part = rest
                .split_off_mut(..extent.bytes())
                .ok_or(DeviceError::Io(Errno::EINVAL))?;
            let is_complete = nr < MOST_READS && complete & 1 << nr != 0;
            if !(is_complete && self.medium.came(part)) {
                self.read_at(extent.slot, part)?;
            }
        }
        Ok(())
    }

    /// Begins to read an extent into `buffer`; [`Queue::finish`] waits for it. `false`: that cannot be.
    ///
    /// # Safety
    /// As [`Queue::start`]; the device's descriptor stays open, too.
    pub unsafe fn start_read(&self, queue: &mut Queue, extent: Extent, buffer: &mut [u8]) -> bool {
        let Ok(begin) = self.offset(extent.slot, extent.bytes()) else {
            return false;
        };
        let part = core::iter::once((extent.bytes(), begin));
        // SAFETY: the caller's promise.
        unsafe { queue.start(self.medium.descriptor(), part, buffer) }
    }

    /// Whether what [`Device::start_read`] began, and a [`Queue`] completed, may be believed; if not, [`Device::read_at`] tells the reason.
    pub fn came(&self, buffer: &mut [u8]) -> bool {
        self.medium.came(buffer)
    }

    /// Writes whole slots, from `slot` on.
    ///
    /// # Errors
    /// [`DeviceError`]; the slots hold anything then.
    pub fn write_at(&self, slot: u64, buffer: &[u8]) -> Result<(), DeviceError> {
        let begin = self.offset(slot, buffer.len())?;
        transfer(buffer.len(), |done| match buffer.get(done..) {
            Some(rest) => self.medium.pwrite(rest, begin + done as u64),
            None => Ok(0),
        })
    }

    /// Gives slots back to the file system or the device: what they hold is not needed any more.
    ///
    /// # Errors
    /// `Io(EOPNOTSUPP)`: it cannot, and never will. Any other error means that the slots still take
    /// space; they can be written again all the same.
    pub fn discard(&self, slot: u64, nr_slots: u64) -> Result<(), DeviceError> {
        let len = nr_slots.saturating_mul(SLOT as u64);
        let begin = self.offset(slot, usize::try_from(len).unwrap_or(usize::MAX))?;
        if len == 0 {
            return Ok(());
        }
        transfer(1, |_| {
            self.medium.discard(self.kind, begin, len).map(|()| SLOT)
        })
    }

    /// The byte where `slot` begins, if `len` bytes from there are whole slots of the device.
    fn offset(&self, slot: u64, len: usize) -> Result<u64, DeviceError> {
        let end = slot
            .checked_sub(self.first)
            .and_then(|slot| slot.checked_add((len / SLOT) as u64));
        if end.is_some_and(|end| end <= self.nr_slots) && len.is_multiple_of(SLOT) {
            Ok(self.begin(slot))
        } else {
            Err(DeviceError::Io(Errno::EINVAL))
        }
    }

    /// The byte where `slot` begins, which is one of the device's.
    const fn begin(&self, slot: u64) -> u64 {
        (HEADER_SLOTS + slot - self.first) * SLOT as u64
    }
}

/// Calls `part` with the number of bytes done until that is `len`.
fn transfer(
    len: usize,
    mut part: impl FnMut(usize) -> Result<usize, Errno>,
) -> Result<(), DeviceError> {
    let (mut done, mut tries) = (0, 0);
    while done < len {
        let failed = match part(done) {
            Ok(0) => return Err(DeviceError::Short),
            // Part of a slot is done again: with O_DIRECT every call begins at a whole one.
            Ok(n) if n >= SLOT => {
                done += n - n % SLOT;
                tries = 0;
                continue;
            }
            Ok(_) => DeviceError::Short,
            Err(errno @ (Errno::EINTR | Errno::EAGAIN)) => DeviceError::Io(errno),
            Err(errno) => return Err(errno.into()),
        };
        tries += 1;
        if tries == MAX_TRIES {
            return Err(failed);
        }
        if failed == DeviceError::Io(Errno::EAGAIN) {
            // Interrupted: then it was waited for less.
            let _ = thread::nanosleep(PAUSE_NS);
        }
    }
    Ok(())
}
