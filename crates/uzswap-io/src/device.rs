//! *What*: a swap device: an open file or block device, used in slots.
//!
//! *Invariants*: a call transfers everything or fails. Nothing outside the device's slots is
//! touched, in particular not its header. After a failed write the slots hold anything, after a
//! failed read the buffer does.
//! *Locking*: none; calls on different slots may run at the same time.
//! *Context*: any with all signals blocked; the calls wait for the device.

use uzswap_sys::signal::{self, SIGXFSZ, SigSet};
use uzswap_sys::{Errno, file, thread};

use crate::exchange::Op;
use crate::opened::Opened;
use crate::remote::Remote;
use crate::{Extent, HEADER_SLOTS, MAX_DEVICE_SLOTS, MAX_READS, Queue, SLOT};

/// Attempts of a transfer without progress before it fails.
const MAX_TRIES: u32 = 16;
/// Pause after `EAGAIN`, in nanoseconds.
const PAUSE_NS: u64 = 500_000;

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// No space, or the quota or file size limit is reached (`ENOSPC`, `EDQUOT`, `EFBIG`).
    Full,
    /// The file ends before the slots do: somebody truncated it.
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
    /// Memory of other machines: freed slots are discarded through the broker.
    Remote,
}

/// The system calls under a device. Each may transfer less than asked.
pub trait Medium: Sized {
    /// Uses an open descriptor, which stays the caller's and must outlive this.
    fn new(fd: i32) -> Self;

    /// Whether the descriptor is a file or a block device.
    ///
    /// # Errors
    /// As fstat(2); `EINVAL`: neither a file nor a block device.
    fn kind(&self) -> Result<Kind, Errno>;

    /// The descriptor, from which a [`Queue`] reads directly.
    fn descriptor(&self) -> i32;

    /// The exchange with the broker, if it is a remote device, which has no descriptor.
    fn remote(&self) -> Option<Remote> {
        None
    }

    /// Whether a read that a [`Queue`] completed counts: an injected failure may refuse it.
    fn accepts(&self, _buffer: &mut [u8]) -> bool {
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

    /// Punches a hole, or discards a range of a block device.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: not supported.
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
            // RLIMIT_FSIZE was lowered after the device was opened. The program did not write, so
            // it must not see SIGXFSZ, which is pending: all signals are blocked here.
            let _ = signal::take_pending(SigSet::EMPTY.with(SIGXFSZ));
        }
        written
    }

    fn discard(&self, kind: Kind, offset: u64, len: u64) -> Result<(), Errno> {
        match kind {
            Kind::File => file::punch_hole(self.0, offset, len),
            Kind::Block => file::block_discard(self.0, offset, len),
            Kind::Remote => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// The medium of the devices that the engine uses.
#[cfg(not(feature = "fault-injection"))]
pub type SwapMedium = Opened;
/// The medium of the devices that the engine uses: it fails as its plan says.
#[cfg(feature = "fault-injection")]
pub type SwapMedium = crate::inject::Failing<Opened>;

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
    /// A device of `nr_slots` slots on `fd`, open for reading and writing. The first slot follows
    /// the header of [`HEADER_SLOTS`] slots, which is never touched. The descriptor stays the
    /// caller's: it must neither be closed nor become another file while this lives.
    ///
    /// If it was opened with `O_DIRECT`, every buffer below is aligned to [`SLOT`]; the calls fail
    /// with `EINVAL` otherwise.
    ///
    /// # Errors
    /// As fstat(2); `EINVAL`: neither a regular file nor a block device, or more than
    /// [`MAX_DEVICE_SLOTS`].
    pub fn new(fd: i32, nr_slots: u64) -> Result<Self, Errno> {
        Self::over(M::new(fd), nr_slots)
    }

    /// The same over a medium that is open already.
    ///
    /// # Errors
    /// As [`Device::new`].
    pub fn over(medium: M, nr_slots: u64) -> Result<Self, Errno> {
        if nr_slots > MAX_DEVICE_SLOTS {
            return Err(Errno::EINVAL);
        }
        Ok(Device {
            kind: medium.kind()?,
            medium,
            first: 0,
            nr_slots,
        })
    }

    /// The same, with its slots numbered from `first` on: all devices share one number space.
    #[must_use]
    pub fn numbered_from(mut self, first: u64) -> Self {
        self.first = first;
        self
    }

    /// Whether `slot` is one of its slots.
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

    /// File or block device.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The medium, for tests that inject failures.
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

    /// Reads an extent anew, from another copy if there is one: what came first was not what was
    /// written. Only a remote device has copies.
    ///
    /// # Errors
    /// As [`Device::read_at`].
    pub fn read_copy(&self, extent: Extent, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let begin = self.offset(extent.slot, extent.bytes())?;
        let remote = self.medium.remote();
        let remote = remote.ok_or(DeviceError::Io(Errno::EOPNOTSUPP))?;
        let buffer = buffer.get_mut(..extent.bytes());
        let buffer = buffer.ok_or(DeviceError::Io(Errno::EINVAL))?;
        transfer(buffer.len(), |done| match buffer.get_mut(done..) {
            Some(rest) => remote.pread(rest, begin + done as u64, Op::ReadCopy),
            None => Ok(0),
        })
    }

    /// Reads several extents into `buffer`, one after the other; at the same time if there is a
    /// `queue` and the kernel takes them.
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
                // SAFETY: the buffer is borrowed uniquely until `finish` has returned.
                unsafe { self.start(queue, extents, buffer) };
                queue.finish()
            }
            _ => 0,
        };
        let mut rest = buffer;
        for (nr, extent) in extents.iter().enumerate() {
            let part = rest
                .split_off_mut(..extent.bytes())
                .ok_or(DeviceError::Io(Errno::EINVAL))?;
            let is_complete = nr < MAX_READS && complete & 1 << nr != 0;
            if !(is_complete && self.medium.accepts(part)) {
                self.read_at(extent.slot, part)?;
            }
        }
        Ok(())
    }

    /// Begins to read an extent into `buffer`; [`Queue::finish`] waits for it. `false`: it did not.
    ///
    /// # Safety
    /// As [`Queue::start`]; the device's descriptor stays open, too.
    pub unsafe fn start_read(&self, queue: &mut Queue, extent: Extent, buffer: &mut [u8]) -> bool {
        if self.offset(extent.slot, extent.bytes()).is_err() {
            return false;
        }
        // SAFETY: the caller's promise.
        unsafe { self.start(queue, &[extent], buffer) }
    }

    /// Begins to read `extents`, all of the device.
    ///
    /// # Safety
    /// As [`Device::start_read`].
    unsafe fn start(&self, queue: &mut Queue, extents: &[Extent], buffer: &mut [u8]) -> bool {
        let parts = extents.iter().map(|e| (e.bytes(), self.begin(e.slot)));
        // SAFETY: the caller's promise.
        unsafe {
            match self.medium.remote() {
                Some(remote) => queue.start_remote(remote, parts, buffer),
                None => queue.start(self.medium.descriptor(), parts, buffer),
            }
        }
    }

    /// Whether a read begun by [`Device::start_read`], which a [`Queue`] completed, counts; if not,
    /// [`Device::read_at`] gives the error.
    pub fn accepts(&self, buffer: &mut [u8]) -> bool {
        self.medium.accepts(buffer)
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

    /// Discards slots: their contents are not needed any more.
    ///
    /// # Errors
    /// `Io(EOPNOTSUPP)`: never supported. After any other error the slots still take space; they
    /// can be written again.
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

    /// The byte where `slot`, one of the device's, begins.
    const fn begin(&self, slot: u64) -> u64 {
        (HEADER_SLOTS + slot - self.first) * SLOT as u64
    }
}

/// Calls `part` with the number of bytes transferred so far until that is `len`.
fn transfer(
    len: usize,
    mut part: impl FnMut(usize) -> Result<usize, Errno>,
) -> Result<(), DeviceError> {
    let (mut done, mut tries) = (0, 0);
    while done < len {
        let failed = match part(done) {
            Ok(0) => return Err(DeviceError::Short),
            // Part of a slot is transferred again: O_DIRECT needs every call to begin at a slot.
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
            let _ = thread::nanosleep(PAUSE_NS);
        }
    }
    Ok(())
}
