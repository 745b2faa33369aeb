//! *What*: userfaultfd: open, register, resolve faults, write-protect, read events.
//! *Invariants*: [`Uffd`] is a bare descriptor number and never closes itself: in a fork child the
//! same number acts on the *parent's* memory, and the owner decides what to do.
//! *Locking*: the kernel takes the mm lock for reading in each ioctl here.
//! *Context*: any, signal handlers included (the descriptor is opened with `O_NONBLOCK`).

use crate::syscall::{Result, addr_mut, call1, call3, int, to_int};
use crate::{Errno, file, nr};

/// Only faults from user mode are delivered; system calls get `EFAULT` (Linux 5.11). Lets a
/// process without privilege open a userfaultfd.
pub const UFFD_USER_MODE_ONLY: i32 = 1;

/// Feature bits of `UFFDIO_API`.
pub mod feature {
    /// Faults carry a write-protect flag and `UFFDIO_WRITEPROTECT` works (Linux 5.7).
    pub const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    /// Instead of a message, the faulting thread gets SIGBUS (4.14).
    pub const SIGBUS: u64 = 1 << 7;
    /// Messages name the thread that faults (4.14).
    pub const THREAD_ID: u64 = 1 << 8;
}

/// Register: faults on pages that are not there.
pub const REGISTER_MODE_MISSING: u64 = 1;
/// Register: faults on writes to protected pages (5.7).
pub const REGISTER_MODE_WP: u64 = 2;

/// Copy/zeropage: do not wake threads that wait on this range. Nothing waits in SIGBUS mode.
pub const MODE_DONTWAKE: u64 = 1;
/// Copy: install the page write-protected (5.7).
pub const COPY_MODE_WP: u64 = 2;

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_WAKE: usize = 0x8010_aa02;
const UFFDIO_COPY: usize = 0xc028_aa03;
const UFFDIO_WRITEPROTECT: usize = 0xc018_aa06;
const USERFAULTFD_IOC_NEW: usize = 0xaa00;

const WRITEPROTECT_MODE_WP: u64 = 1;
const WRITEPROTECT_MODE_DONTWAKE: u64 = 2;

#[repr(C)]
struct ApiArg {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RangeArg {
    start: u64,
    len: u64,
}

impl RangeArg {
    const fn new(addr: usize, len: usize) -> RangeArg {
        RangeArg {
            start: addr as u64,
            len: len as u64,
        }
    }
}

#[repr(C)]
struct RegisterArg {
    range: RangeArg,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct CopyArg {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct WriteProtectArg {
    range: RangeArg,
    mode: u64,
}

/// A copy, zero or poison that did not do the whole range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyError {
    /// Bytes done before it stopped, a multiple of 4096; these pages are in place.
    pub copied: usize,
    /// Why. With `copied > 0` the kernel says `EAGAIN` whatever stopped it: ask again for the rest
    /// to learn the reason. With `copied == 0`: `EEXIST` the first page is already there; `EAGAIN`
    /// another thread is changing mappings, try again (events only: wait for it to be read);
    /// `ENOENT` not one registered mapping; `ESRCH` the process is gone; `EFAULT` the source is not
    /// readable; `ENOMEM`.
    pub errno: Errno,
}

/// What a handler reads from a userfaultfd, laid out as the kernel's `struct uffd_msg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct UffdMsg {
    event: u8,
    reserved: [u8; 7],
    arg: [u64; 3],
}

/// A decoded [`UffdMsg`]. Addresses are byte addresses, ends are exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread waits for this page.
    Pagefault {
        /// Fault address, page aligned unless `EXACT_ADDRESS`.
        addr: usize,
        /// `PAGEFAULT_FLAG_*` bits.
        flags: u64,
        /// Thread id, 0 without `THREAD_ID`.
        thread: u32,
    },
    /// An event that no feature in use sends.
    Other,
}

/// The fault was a write.
pub const PAGEFAULT_FLAG_WRITE: u64 = 1;
/// The fault was a write to a protected page.
pub const PAGEFAULT_FLAG_WP: u64 = 2;

impl UffdMsg {
    /// Decodes the message.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "u64 is usize here; ids are 32-bit fields"
    )]
    pub const fn event(&self) -> Event {
        const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
        let [flags, addr, thread] = self.arg;
        match self.event {
            UFFD_EVENT_PAGEFAULT => Event::Pagefault {
                flags,
                addr: addr as usize,
                thread: thread as u32,
            },
            _ => Event::Other,
        }
    }
}

/// A userfaultfd descriptor. Copy, and never closed by itself: see the head of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uffd(pub i32);

impl Uffd {
    /// Opens a userfaultfd. `flags`: `O_CLOEXEC | O_NONBLOCK` and [`UFFD_USER_MODE_ONLY`].
    ///
    /// Where userfaultfd(2) is not permitted, `/dev/userfaultfd` is tried (Linux 6.1; file
    /// permissions decide there, and it grants kernel-mode faults). On kernels before 5.11, which
    /// do not know `UFFD_USER_MODE_ONLY`, the flag is left out.
    ///
    /// # Errors
    /// `EPERM`: neither is permitted (`vm.unprivileged_userfaultfd`, or a seccomp policy).
    /// `ENOSYS`: the kernel is built without it, or a sandbox hides it.
    pub fn open(flags: i32) -> Result<Uffd> {
        // SAFETY: makes a descriptor, touches no memory.
        let direct = |flags| unsafe { call1(nr::USERFAULTFD, int(flags)) };
        let mut opened = direct(flags);
        if opened == Err(Errno::EINVAL) && flags & UFFD_USER_MODE_ONLY != 0 {
            opened = direct(flags & !UFFD_USER_MODE_ONLY);
        }
        if opened == Err(Errno::EPERM) || opened == Err(Errno::ENOSYS) {
            // Where the device fails too, the first error is the one to report.
            opened = Self::open_device(flags).or(opened);
        }
        opened.map(|fd| Uffd(to_int(fd)))
    }

    fn open_device(flags: i32) -> Result<usize> {
        let device = file::openat(
            file::AT_FDCWD,
            c"/dev/userfaultfd",
            file::O_RDWR | file::O_CLOEXEC,
            0,
        )?;
        // SAFETY: makes a descriptor, touches no memory.
        let opened = unsafe { call3(nr::IOCTL, int(device), USERFAULTFD_IOC_NEW, int(flags)) };
        let _ = file::close(device);
        opened
    }

    /// Closes the descriptor. Waiting threads are woken and fault again; registrations are dropped.
    ///
    /// # Errors
    /// As close(2).
    pub fn close(self) -> Result<()> {
        file::close(self.0)
    }

    fn ioctl<T>(self, request: usize, arg: &mut T) -> Result<usize> {
        // SAFETY: each request below is paired with the struct the kernel reads and writes for it.
        unsafe { call3(nr::IOCTL, int(self.0), request, addr_mut(arg)) }
    }

    /// The handshake, once per descriptor: turns on exactly `features` and returns all that the
    /// kernel knows.
    ///
    /// # Errors
    /// `EINVAL`: a feature is not known here, or the handshake was already done. `EPERM`: the
    /// feature (`EVENT_FORK`) needs `CAP_SYS_PTRACE`.
    pub fn api(self, features: u64) -> Result<u64> {
        let mut arg = ApiArg {
            api: UFFD_API,
            features,
            ioctls: 0,
        };
        self.ioctl(UFFDIO_API, &mut arg)?;
        Ok(arg.features)
    }

    /// Registers `len` bytes at `addr` for `REGISTER_MODE_*`. Registering again changes the mode.
    ///
    /// # Errors
    /// `EBUSY`: registered with another userfaultfd. `EINVAL`: not aligned, not mapped, or a kind
    /// of mapping that cannot be.
    ///
    /// # Safety
    /// From now on the first access to a missing page in the range is the owner's to resolve.
    pub unsafe fn register(self, addr: usize, len: usize, mode: u64) -> Result<()> {
        let range = RangeArg::new(addr, len);
        let mut arg = RegisterArg {
            range,
            mode,
            ioctls: 0,
        };
        self.ioctl(UFFDIO_REGISTER, &mut arg).map(drop)
    }

    /// Installs `len` bytes from `src` as new pages at `dst`, atomically for each page, and wakes
    /// who waits there unless [`MODE_DONTWAKE`]. Returns `len`.
    ///
    /// # Errors
    /// See [`CopyError`]: the call may stop part way.
    ///
    /// # Safety
    /// `src` must be readable for `len` bytes. Pages at `dst` must be missing because the caller
    /// evicted them or nobody wrote them yet; what is there is never overwritten (`EEXIST`).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "errors are -4095..=-1")]
    #[expect(clippy::cast_sign_loss, reason = "used only where positive")]
    pub unsafe fn copy(
        self,
        dst: usize,
        src: *const u8,
        len: usize,
        mode: u64,
    ) -> core::result::Result<usize, CopyError> {
        let mut arg = CopyArg {
            dst: dst as u64,
            src: src as u64,
            len: len as u64,
            mode,
            copied: 0,
        };
        match self.ioctl(UFFDIO_COPY, &mut arg) {
            Ok(_) => Ok(len),
            // The field says -errno, or the bytes done; 0 where an old kernel did not write it.
            Err(_) if (-4095..0).contains(&arg.copied) => Err(CopyError {
                copied: 0,
                errno: Errno(-arg.copied as i32),
            }),
            Err(errno) => Err(CopyError {
                copied: arg.copied.max(0) as usize,
                errno,
            }),
        }
    }

    /// Write-protects the pages that are there (Linux 5.7), or lifts it and wakes who waits unless
    /// `dontwake`. When this returns, every CPU sees the protection: writes that came first are
    /// visible to the caller.
    ///
    /// # Errors
    /// `ENOENT`: not one registered (WP) mapping. `EAGAIN`: mappings are being changed by another
    /// thread; try again.
    #[inline]
    pub fn write_protect(self, addr: usize, len: usize, on: bool, dontwake: bool) -> Result<()> {
        // The kernel refuses DONTWAKE together with WP: protecting wakes nobody anyway.
        let mode = match (on, dontwake) {
            (true, _) => WRITEPROTECT_MODE_WP,
            (false, true) => WRITEPROTECT_MODE_DONTWAKE,
            (false, false) => 0,
        };
        let range = RangeArg::new(addr, len);
        let mut arg = WriteProtectArg { range, mode };
        self.ioctl(UFFDIO_WRITEPROTECT, &mut arg).map(drop)
    }

    /// Wakes threads that wait for faults in the range; they fault again if nothing was resolved.
    ///
    /// # Errors
    /// `EINVAL`: bad range.
    pub fn wake(self, addr: usize, len: usize) -> Result<()> {
        self.ioctl(UFFDIO_WAKE, &mut RangeArg::new(addr, len))
            .map(drop)
    }

    /// Reads messages; returns how many of `msgs` were filled. Blocks without `O_NONBLOCK`.
    ///
    /// # Errors
    /// `EAGAIN`: none waits. `EINVAL`: no handshake yet.
    pub fn read_events(self, msgs: &mut [UffdMsg]) -> Result<usize> {
        let len = core::mem::size_of_val(msgs);
        // SAFETY: the kernel writes whole messages into the slice.
        let read = unsafe { call3(nr::READ, int(self.0), msgs.as_mut_ptr() as usize, len) }?;
        Ok(read / size_of::<UffdMsg>())
    }
}
