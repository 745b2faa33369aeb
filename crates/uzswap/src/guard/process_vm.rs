//! *What*: `process_vm_readv` and `process_vm_writev`: memory of pools is pinned where it is this
//! process's, or another's that shares it. Of any other process the kernel finds what is resident
//! there.
//!
//! *Invariants*: as [`super::transfer`]. More than may be pinned at once goes in pieces, as the
//! kernel copies, too, and says how far it came.
//! *Locking*: the engines'. *Context*: signal, and threads of the host.

use uzswap_sys::mem::{IoVec, UIO_MAXIOV};
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, PAGE_SIZE, nr, process, thread};

use super::Call;
use super::context::Context;
use super::pins::Pins;
use super::transfer::{Buffers, Cursor, NR_VECTORS, Piece, Sum};

/// Of one piece: buffers on both sides.
type PiecePins = Pins<{ 2 * NR_VECTORS }>;

pub(super) const fn is_process_vm(number: usize) -> bool {
    matches!(number, nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV)
}

/// The two sides of a call, this process's first.
struct Sides {
    local: Buffers,
    remote: Buffers,
    /// The remote memory is this process's, too.
    is_own: bool,
}

impl Sides {
    /// `None`: the kernel refuses the call.
    fn of(call: &Call) -> Option<Sides> {
        let [pid, local, nr_local, remote, nr_remote, flags] = call.args;
        let is_right = flags == 0 && nr_local.max(nr_remote) <= UIO_MAXIOV;
        is_right.then(|| Sides {
            local: Buffers::Vector(local, nr_local),
            remote: Buffers::Vector(remote, nr_remote),
            is_own: is_own(to_int(pid)),
        })
    }

    /// Bytes that may be moved at once; `None`: nothing is in a pool.
    fn most(&self, call: &Call) -> Result<Option<usize>, Errno> {
        let local = Sum::of(call, &self.local)?.most;
        let remote = match self.is_own {
            true => Sum::of(call, &self.remote)?.most,
            false => None,
        };
        // Both sides may lie in one pool.
        let least = local.into_iter().chain(remote).min();
        Ok(least.map(|most| (most / 2).max(PAGE_SIZE)))
    }
}

/// Whether the memory of process `pid` is this one's.
fn is_own(pid: i32) -> bool {
    let own = thread::getpid();
    let numbers = u32::try_from(own).ok().zip(u32::try_from(pid).ok());
    own == pid || numbers.is_some_and(|(own, pid)| process::share_memory(own, pid) == Some(true))
}

/// Whether the buffers of a call, or its vectors, are in a pool.
pub(super) fn names_a_pool(call: &Call) -> bool {
    let [_, local, _, remote, ..] = call.args;
    let is_ours = |at| uzswap_core::arena_part(at, 1).is_some();
    // A vector that cannot be read is for the kernel to refuse.
    let buffers = || Sides::of(call).and_then(|sides| sides.most(call).ok().flatten());
    is_ours(local) || is_ours(remote) || buffers().is_some()
}

/// Carries it out.
///
/// # Safety
/// `context` is that of a thread that makes the call; its vectors are in.
pub(super) unsafe fn process_vm(context: Context, call: &Call) -> Result<isize, Errno> {
    let [pid, _, nr_local, _, nr_remote, _] = call.args;
    let sides = Sides::of(call).map(|sides| (sides.most(call), sides));
    let Some((Ok(Some(most)), sides)) = sides else {
        // SAFETY: the caller's promise. Nothing more is in a pool, or the kernel refuses it.
        return Ok(unsafe { context.issue(call) });
    };
    let (mut here, mut there, mut done) = (Cursor::default(), Cursor::default(), 0_usize);
    while here.n < nr_local && there.n < nr_remote {
        let mine = Piece::cut(call, &sides.local, here, most)?;
        let theirs = Piece::cut(call, &sides.remote, there, most)?;
        let len = mine.len.min(theirs.len);
        if len == 0 {
            // Empty buffers.
            here = if mine.len == 0 { mine.next } else { here };
            there = if theirs.len == 0 { theirs.next } else { there };
            continue;
        }
        let mine = Piece::cut(call, &sides.local, here, len)?;
        let theirs = Piece::cut(call, &sides.remote, there, len)?;
        // SAFETY: the caller's promise.
        let ret = unsafe {
            issue(
                context,
                call.nr,
                pid,
                &mine,
                &theirs,
                (done == 0, sides.is_own),
            )
        };
        let Ok(moved) = usize::try_from(ret) else {
            return Ok(if done > 0 { done.cast_signed() } else { ret });
        };
        done += moved;
        if moved < len {
            break;
        }
        (here, there) = (mine.next, theirs.next);
    }
    Ok(done.cast_signed())
}

/// Pins a piece on both sides, moves it, and unpins it.
unsafe fn issue(
    context: Context,
    number: usize,
    pid: usize,
    mine: &Piece,
    theirs: &Piece,
    (is_first, is_own): (bool, bool),
) -> isize {
    let [local, remote] = [mine.vectors(), theirs.vectors()];
    let [at_local, at_remote] = [local, remote].map(|vectors| vectors.as_ptr() as usize);
    let call = Call {
        nr: number,
        args: [pid, at_local, local.len(), at_remote, remote.len(), 0],
    };
    let mut pins = PiecePins::new();
    if is_first {
        pins.count();
    }
    let pinned = context.enter(|| {
        let remote: &[IoVec] = if is_own { remote } else { &[] };
        let mut all = local.iter().chain(remote);
        all.try_for_each(|vector| pins.pin_range(vector.base, vector.len))
    });
    let ret = match pinned {
        // SAFETY: the caller's promise; the buffers are in.
        Ok(()) => unsafe { context.issue(&call) },
        Err(errno) => -(errno.0 as isize),
    };
    context.enter(|| pins.release());
    ret
}
