//! *What*: the program's side of a remote swap device: transfers by the cells of an [`Exchange`].
//!
//! *Invariants*: data that is returned came in a cell that was the caller's until it was copied.
//! *Locking*: none. *Context*: any with all signals blocked; a call waits for the broker, for no
//! longer than the exchange's deadline.

use uzswap_sync::primitive::Ordering::Relaxed;
use uzswap_sys::{Errno, thread};

use crate::exchange::{CELL_LEN, Claim, DEADLINE_NS, Exchange, Lost, Op, Request};
use crate::{MAX_READS, MAX_RUN, SLOT};

/// Requests that one call has under way at most: those of a run.
const MAX_PARTS: usize = MAX_RUN * SLOT / CELL_LEN;
/// A waiting thread looks at the time this often.
const TICK_NS: u64 = 1_000_000_000;
/// More than that between two looks is no time in which an answer could have come.
const MAX_TICK_NS: u64 = 2 * TICK_NS;

/// A remote device: its exchange, mapped by this process.
#[derive(Clone, Copy, Debug)]
pub struct Remote(&'static Exchange);

/// One request under way.
#[derive(Clone, Copy, Debug)]
struct Part {
    claim: Claim,
    len: usize,
}

/// Reads that a [`crate::Queue`] has under way.
#[derive(Debug)]
pub(crate) struct Reads {
    remote: Option<Remote>,
    parts: [Option<Part>; MAX_READS],
    nr: usize,
    deadline: Deadline,
}

impl Reads {
    pub(crate) const fn new() -> Self {
        Reads {
            remote: None,
            parts: [None; MAX_READS],
            nr: 0,
            deadline: Deadline::NONE,
        }
    }

    /// Waits for all, and copies the data of number `n` to `to(n)`. Returns the complete ones as a
    /// bit mask.
    ///
    /// # Safety
    /// `to(n)` has room for the bytes that were asked for by read `n`.
    pub(crate) unsafe fn finish(&mut self, to: impl Fn(usize) -> *mut u8) -> u32 {
        let Some(remote) = self.remote.take() else {
            return 0;
        };
        let mut complete = 0;
        for (at, part) in self.parts.iter_mut().enumerate().take(self.nr) {
            if let Some(part) = part.take()
                // SAFETY: the caller's promise.
                && unsafe { remote.end_read(part, to(at), &mut self.deadline) }.is_ok()
            {
                complete |= 1 << at;
            }
        }
        self.nr = 0;
        complete
    }
}

/// When a call gives up. Time counts only as far as it passes while the call looks: one that was
/// frozen together with the broker gives that a chance to answer.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    left_ns: u64,
    looked_ns: u64,
}

impl Deadline {
    const NONE: Deadline = Deadline {
        left_ns: 0,
        looked_ns: 0,
    };

    fn of(exchange: &Exchange) -> Self {
        let left_ns = match exchange.deadline_ns.load(Relaxed) {
            0 => DEADLINE_NS,
            ns => ns,
        };
        Deadline {
            left_ns,
            looked_ns: thread::monotonic_ns(),
        }
    }

    fn is_ahead(&mut self) -> bool {
        let now = thread::monotonic_ns();
        let passed = now.saturating_sub(self.looked_ns).min(MAX_TICK_NS);
        self.looked_ns = now;
        self.left_ns = self.left_ns.saturating_sub(passed);
        self.left_ns > 0
    }
}

impl Remote {
    /// A device by the exchange at `addr`.
    ///
    /// # Safety
    /// [`crate::exchange::EXCHANGE_LEN`] bytes of shared memory begin there, page aligned, made all
    /// zeroes by the supervisor, and are never unmapped.
    #[must_use]
    pub const unsafe fn attach(addr: usize) -> Self {
        // SAFETY: the caller's promise; zeroed memory is an exchange.
        Remote(unsafe { &*(addr as *const Exchange) })
    }

    /// Begins to use the device, in a process that has nothing under way there: gives up what this
    /// thread's number had before an exec(2).
    pub fn join(self) {
        self.0.disown(thread::gettid().unsigned_abs());
    }

    /// Begins to read the parts, each a length of up to [`CELL_LEN`] and an offset, as far as cells
    /// are free. Returns how many were begun; [`Remote::finish`] waits for them.
    pub(crate) fn start(
        self,
        parts: impl Iterator<Item = (usize, u64)>,
        reads: &mut Reads,
    ) -> usize {
        reads.remote = Some(self);
        reads.deadline = Deadline::of(self.0);
        reads.nr = 0;
        let owner = thread::gettid().unsigned_abs();
        let mut requests = [None; MAX_READS];
        for (((len, offset), read), request) in parts.zip(&mut reads.parts).zip(&mut requests) {
            if len > CELL_LEN {
                break;
            }
            let Some(claim) = self.0.claim(owner) else {
                break;
            };
            *read = Some(Part { claim, len });
            let (op, len) = (Op::Read, len as u64);
            *request = Some((claim, Request { op, offset, len }));
            reads.nr += 1;
        }
        if reads.nr > 0 {
            self.0.submit(requests.into_iter().flatten());
        }
        reads.nr
    }

    fn begin(self, owner: u32, request: Request) -> Option<Part> {
        let claim = self.0.claim(owner)?;
        self.0.submit(core::iter::once((claim, request)));
        Some(Part {
            claim,
            len: usize::try_from(request.len).ok()?,
        })
    }

    /// Waits for a read, and copies what came to `to`.
    ///
    /// # Safety
    /// `to` has room for the part.
    unsafe fn end_read(
        self,
        part: Part,
        to: *mut u8,
        deadline: &mut Deadline,
    ) -> Result<(), Errno> {
        let error = self.wait(part, deadline)?;
        if error == 0 {
            // SAFETY: the cell holds `len` bytes at least and is this thread's; the caller's
            // promise for the other.
            self.0.with_data(&part.claim, |data| unsafe {
                core::ptr::copy_nonoverlapping(data, to, part.len);
            });
        }
        self.settle(part, error)
    }

    fn wait(self, part: Part, deadline: &mut Deadline) -> Result<u32, Errno> {
        let waited = self.0.wait(&part.claim, TICK_NS, || deadline.is_ahead());
        waited.map_err(|lost| match lost {
            Lost::Late => Errno::ETIMEDOUT,
            Lost::Stolen => Errno::EIO,
        })
    }

    /// Gives the cell of a complete request back.
    fn settle(self, part: Part, error: u32) -> Result<(), Errno> {
        let still = self.0.release(&part.claim);
        match i32::try_from(error) {
            Ok(0) if still => Ok(()),
            Ok(error) if error > 0 => Err(Errno(error)),
            _ => Err(Errno::EIO),
        }
    }

    /// Claims cells for up to `len` bytes: what is free, but one at least. Returns how many.
    fn claim(
        self,
        len: usize,
        parts: &mut [Option<Part>; MAX_PARTS],
        deadline: &mut Deadline,
    ) -> usize {
        let owner = thread::gettid().unsigned_abs();
        let mut nr = 0;
        for (part, begin) in parts.iter_mut().zip((0..len).step_by(CELL_LEN)) {
            let claim = match nr {
                0 => self.0.claim_waiting(owner, TICK_NS, || deadline.is_ahead()),
                // Whoever holds cells does not wait for more: others might do the same.
                _ => self.0.claim(owner),
            };
            let Some(claim) = claim else { break };
            let len = (len - begin).min(CELL_LEN);
            *part = Some(Part { claim, len });
            nr += 1;
        }
        nr
    }
}

impl Remote {
    /// As pread(2), past no end; `op` reads.
    ///
    /// # Errors
    /// `ETIMEDOUT`: the deadline is over; or as the broker says.
    pub(crate) fn pread(self, buffer: &mut [u8], offset: u64, op: Op) -> Result<usize, Errno> {
        let mut deadline = Deadline::of(self.0);
        let mut parts = [None; MAX_PARTS];
        if self.claim(buffer.len(), &mut parts, &mut deadline) == 0 {
            return Err(Errno::ETIMEDOUT);
        }
        self.0.submit(requests(&parts, op, offset));
        let (mut done, mut result) = (0, Ok(()));
        for part in parts.into_iter().flatten() {
            let Some(to) = buffer.get_mut(done..done + part.len) else {
                break;
            };
            // SAFETY: `to` is as long as the part.
            let read = unsafe { self.end_read(part, to.as_mut_ptr(), &mut deadline) };
            result = result.and(read);
            done += part.len;
        }
        result.map(|()| done)
    }

    /// As pwrite(2).
    ///
    /// # Errors
    /// `ENOSPC`: nothing was sent, or the server is full; or as [`Remote::pread`].
    pub(crate) fn pwrite(self, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
        let mut deadline = Deadline::of(self.0);
        let mut parts = [None; MAX_PARTS];
        if self.claim(buffer.len(), &mut parts, &mut deadline) == 0 {
            // Not sent: its slots can be used again.
            return Err(Errno::ENOSPC);
        }
        let mut rest = buffer;
        for part in parts.iter().flatten() {
            let Some((from, after)) = rest.split_at_checked(part.len) else {
                break;
            };
            rest = after;
            // SAFETY: the cell has room for every part, and is this thread's.
            self.0.with_data(&part.claim, |data| unsafe {
                core::ptr::copy_nonoverlapping(from.as_ptr(), data, from.len());
            });
        }
        self.0.submit(requests(&parts, Op::Write, offset));
        let (mut done, mut result) = (0, Ok(()));
        for part in parts.into_iter().flatten() {
            let written = self
                .wait(part, &mut deadline)
                .and_then(|error| self.settle(part, error));
            result = worse(result, written);
            done += part.len;
        }
        result.map(|()| done)
    }

    /// Discards a range.
    ///
    /// # Errors
    /// `ETIMEDOUT`: it may still happen, at any time; any other: it does not.
    pub(crate) fn discard(self, offset: u64, len: u64) -> Result<(), Errno> {
        let mut deadline = Deadline::of(self.0);
        let owner = thread::gettid().unsigned_abs();
        let op = Op::Discard;
        let request = Request { op, offset, len };
        // Only advice: it waits for no cell.
        let part = self.begin(owner, request).ok_or(Errno::EAGAIN)?;
        let error = self.wait(part, &mut deadline)?;
        self.settle(part, error)
    }
}

/// Of two outcomes of parts of a write, the one that says more of its slots: that the device is
/// full only if nothing else failed.
fn worse(one: Result<(), Errno>, other: Result<(), Errno>) -> Result<(), Errno> {
    match (one, other) {
        (Ok(()), other) => other,
        (Err(Errno::ENOSPC), Err(other)) => Err(other),
        (one, _) => one,
    }
}

/// The claims of `parts` with their requests, from `offset` on.
fn requests(
    parts: &[Option<Part>; MAX_PARTS],
    op: Op,
    offset: u64,
) -> impl Iterator<Item = (Claim, Request)> {
    parts.iter().flatten().scan(offset, move |next, part| {
        let (offset, len) = (*next, part.len as u64);
        *next += len;
        Some((part.claim, Request { op, offset, len }))
    })
}
