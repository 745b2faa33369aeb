//! *What*: asynchronous reads of several places of a device, so that scattered pages come back in
//! the time of two or three reads.
//!
//! The kernel's asynchronous I/O (`io_submit`) and not io_uring, which is no faster for this
//! (docs/notes/swap.md), needs a descriptor that the program might close, and that most containers
//! refuse.
//!
//! *Invariants*: reads begun by [`Queue::start`] are under way until [`Queue::finish`] returns,
//! when the kernel has released every buffer; nothing is begun before that. The process does not
//! fork meanwhile.
//! *Locking*: one thread at a time, by `&mut`. *Context*: any with all signals blocked; `finish`
//! waits for the device.

use uzswap_sys::Errno;
use uzswap_sys::aio::{self, Context, Event, Request};

use crate::remote::{Reads, Remote};

/// Reads under way at the same time, at most.
pub const MAX_READS: usize = 16;
/// The argument of a queue's `io_setup`, by which the system call filter recognizes it.
pub const NR_EVENTS: u32 = 61;

#[derive(Clone, Copy, Debug)]
enum State {
    /// Not set up yet.
    Unopened,
    Open(Context),
    /// The kernel refuses.
    Refused,
}

/// Reads on their way.
#[derive(Debug)]
pub struct Queue {
    state: State,
    /// Reads begun and not yet finished.
    under_way: usize,
    /// Their lengths.
    lens: [usize; MAX_READS],
    /// Those of a remote device, and where each goes.
    remote: Reads,
    places: [*mut u8; MAX_READS],
}

// SAFETY: the places are written through by whoever has the queue, in `finish`, within a buffer
// that is the queue's until then by the promise of `start`.
unsafe impl Send for Queue {}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// A queue that makes no system call before its first read.
    #[must_use]
    pub const fn new() -> Self {
        Queue {
            state: State::Unopened,
            under_way: 0,
            lens: [0; MAX_READS],
            remote: Reads::new(),
            places: [core::ptr::null_mut(); MAX_READS],
        }
    }

    /// Reads from `fd` into consecutive parts of `buffer`; a part is a length and a file offset.
    /// Returns the complete parts as a bit mask, bit 0 the first. The caller reads the others
    /// again, which also gives the error.
    pub fn read(
        &mut self,
        fd: i32,
        parts: impl Iterator<Item = (usize, u64)>,
        buffer: &mut [u8],
    ) -> u32 {
        // SAFETY: the buffer is borrowed uniquely until `finish` has returned.
        unsafe { self.start(fd, parts, buffer) };
        self.finish()
    }

    /// Begins what [`Queue::read`] does, after earlier reads have ended. `false`: it did not.
    ///
    /// # Safety
    /// Until [`Queue::finish`] has returned the buffer is the kernel's: it lives, and nobody reads
    /// or writes it.
    pub unsafe fn start(
        &mut self,
        fd: i32,
        parts: impl Iterator<Item = (usize, u64)>,
        buffer: &mut [u8],
    ) -> bool {
        self.finish();
        let Some(context) = self.context() else {
            return false;
        };
        let mut requests = [Request::NONE; MAX_READS];
        let mut nr = 0;
        let mut rest = buffer;
        for ((len, offset), (request, noted)) in parts.zip(requests.iter_mut().zip(&mut self.lens))
        {
            let Some((part, after)) = rest.split_at_mut_checked(len) else {
                break;
            };
            rest = after;
            *request = Request::pread(fd, part.as_mut_ptr(), len, offset, nr);
            *noted = len;
            nr += 1;
        }
        let mut list = [core::ptr::null(); MAX_READS];
        for (place, request) in list.iter_mut().zip(&requests) {
            *place = core::ptr::from_ref(request);
        }
        let Some(list) = usize::try_from(nr).ok().and_then(|nr| list.get(..nr)) else {
            return false;
        };
        // SAFETY: the requests are above; their buffers do not overlap and are the kernel's, by the
        // caller's promise, until `finish` has seen the end of each.
        match unsafe { aio::submit(context, list) } {
            Ok(started) => self.under_way = started,
            // The context is the parent's: this is a fork child, which sets up its own next time.
            Err(Errno::EINVAL) => self.state = State::Unopened,
            Err(_) => {}
        }
        self.under_way > 0
    }

    /// As [`Queue::start`], of a remote device.
    ///
    /// # Safety
    /// As [`Queue::start`].
    pub unsafe fn start_remote(
        &mut self,
        remote: Remote,
        parts: impl Iterator<Item = (usize, u64)>,
        buffer: &mut [u8],
    ) -> bool {
        self.finish();
        let mut rest = buffer;
        let mut places = self.places.iter_mut();
        let parts = parts.map_while(|(len, offset)| {
            let part = rest.split_off_mut(..len)?;
            *places.next()? = part.as_mut_ptr();
            Some((len, offset))
        });
        remote.start(parts, &mut self.remote) > 0
    }

    fn context(&mut self) -> Option<Context> {
        if matches!(self.state, State::Unopened) {
            self.state = aio::setup(NR_EVENTS).map_or(State::Refused, State::Open);
        }
        match self.state {
            State::Open(context) => Some(context),
            _ => None,
        }
    }

    /// Waits for all reads. Returns the complete ones as [`Queue::read`] does.
    pub fn finish(&mut self) -> u32 {
        let places = self.places;
        // SAFETY: `start_remote` noted a place of each read's length, which is the queue's, by the
        // promise of its caller, until this returns.
        let complete = unsafe {
            self.remote
                .finish(|at| places.get(at).copied().unwrap_or(core::ptr::null_mut()))
        };
        complete | self.finish_kernel()
    }

    fn finish_kernel(&mut self) -> u32 {
        let State::Open(context) = self.state else {
            return 0;
        };
        let mut complete = 0;
        while self.under_way > 0 {
            let mut events = [Event::default(); MAX_READS];
            match aio::wait(context, self.under_way, &mut events) {
                Ok(came) => {
                    for event in events.iter().take(came) {
                        let read = usize::try_from(event.data).ok();
                        let len = read.and_then(|read| self.lens.get(read)).copied();
                        if len.is_some() && usize::try_from(event.result).ok() == len {
                            complete |= 1 << event.data;
                        }
                    }
                    self.under_way = self.under_way.saturating_sub(came);
                }
                Err(Errno::EINTR) => {}
                Err(_) => {
                    // Cannot happen to a context that took the reads; destroying it waits for them.
                    let _ = aio::destroy(context);
                    self.state = State::Refused;
                    self.under_way = 0;
                    return 0;
                }
            }
        }
        complete
    }
}
