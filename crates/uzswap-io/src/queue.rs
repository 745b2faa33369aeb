//! *What*: reads of several places of a device at once: pages that are neighbours in memory, but are scattered over the
//! device, come back in the time of two or three reads rather than one after the other.
//!
//! By the kernel's asynchronous I/O rather than io_uring, which is no faster for this (docs/notes/swap.md), needs
//! a descriptor that the program might close, and is refused in most containers.
//!
//! *Invariants*: what [`Queue::start`] began is under way until [`Queue::finish`], which returns when the kernel has let go of
//! every buffer; nothing is begun before that. A process does not fork meanwhile.
//! *Locking*: one thread at a time, by `&mut`. *Context*: any with all signals blocked; `finish` waits for the device.

use uzswap_sys::Errno;
use uzswap_sys::aio::{self, Context, Event, Request};

/// Most reads at once.
pub const MOST_READS: usize = 16;
/// What a queue asks of `io_setup`: a number by which a filter of system calls can tell it from others.
pub const NR_EVENTS: u32 = 61;

#[derive(Clone, Copy, Debug)]
enum State {
    /// Not asked for yet.
    Unopened,
    Open(Context),
    /// The kernel does not, or may not.
    Refused,
}

/// Reads on their way.
#[derive(Debug)]
pub struct Queue {
    state: State,
    /// Reads that were begun and not waited for yet.
    under_way: usize,
    /// Their lengths.
    lens: [usize; MOST_READS],
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// Nothing asked of the kernel yet.
    #[must_use]
    pub const fn new() -> Self {
        Queue {
            state: State::Unopened,
            under_way: 0,
            lens: [0; MOST_READS],
        }
    }

    /// Reads from `fd` into consecutive parts of `buffer`: of each part its length and where it lies in the file. Returns which
    /// of them are complete, bit 0 the first; what is not is for the caller to read again, and to learn the reason.
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

    /// Begins what [`Queue::read`] does, after what was begun before has come to its end. `false`: nothing was begun.
    ///
    /// # Safety
    /// Until [`Queue::finish`] has returned the buffer is the kernel's: it lives, and nobody looks at it or writes to it.
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
        let mut requests = [Request::NONE; MOST_READS];
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
        let mut list = [core::ptr::null(); MOST_READS];
        for (place, request) in list.iter_mut().zip(&requests) {
            *place = core::ptr::from_ref(request);
        }
        let Some(list) = usize::try_from(nr).ok().and_then(|nr| list.get(..nr)) else {
            return false;
        };
        // SAFETY: the requests are above; their buffers do not overlap and are the kernel's, by the caller's promise, until
        // `finish` has seen the end of each.
        match unsafe { aio::submit(context, list) } {
            Ok(started) => self.under_way = started,
            // The context is the parent's: this is a fork child, which makes its own next time.
            Err(Errno::EINVAL) => self.state = State::Unopened,
            Err(_) => {}
        }
        self.under_way > 0
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

    /// Waits for what was begun. Returns which of the reads are complete, as [`Queue::read`] does; 0 if nothing was begun.
    pub fn finish(&mut self) -> u32 {
        let State::Open(context) = self.state else {
            return 0;
        };
        let mut complete = 0;
        while self.under_way > 0 {
            let mut events = [Event::default(); MOST_READS];
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
                    // Cannot happen to a context that took the reads; ending it waits for them.
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
