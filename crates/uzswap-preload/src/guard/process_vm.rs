//! *What*: `process_vm_readv` and `process_vm_writev`. Local memory is pinned, and remote memory
//! where the process shares this one's: is it, is a thread of it, or was made with `CLONE_VM`.
//! Memory of another managed process is found if it is resident there.
//!
//! More than may be pinned at once goes in pieces. The kernel copies page by page, too, and says
//! how far it came.
//!
//! *Invariants*: signals stay blocked between pieces: no signal ends the call natively.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::mem::IoVec;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{PAGE_SIZE, process, thread};

use super::frame::{Frame, fail};
use super::pieces::MAX_STREAM_PIECE;
use super::stub::{self, Call};
use super::user;
use super::vector::{load, nth};
use crate::init::ENGINE;
use crate::threads::Record;

/// Whether the memory of process `pid` is this one's.
fn is_own(pid: i32) -> bool {
    let own = thread::getpid();
    let numbers = u32::try_from(own).ok().zip(u32::try_from(pid).ok());
    own == pid || numbers.is_some_and(|(own, pid)| process::share_memory(own, pid) == Some(true))
}

/// Where a piece begins: an element of a vector, and a byte of it.
#[derive(Clone, Copy, Default)]
struct Place {
    element: usize,
    skip: usize,
}

impl Place {
    /// What is left of the element `all`, which begins at this place. `None`: nothing; the place
    /// is now the next element's.
    fn rest(&mut self, all: IoVec) -> Option<IoVec> {
        let len = all.len.checked_sub(self.skip).filter(|len| *len > 0);
        if len.is_none() {
            self.element += 1;
            self.skip = 0;
        }
        let base = all.base.wrapping_add(self.skip);
        len.map(|len| IoVec { base, len })
    }
}

/// Carries out the call.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn process_vm(m: &Masked, r: *mut Record, call: &Call) -> isize {
    let [pid, local, nr_local, remote, nr_remote, flags] = call.args;
    let own = is_own(to_int(pid));
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        // The local vector is loaded last, and stays.
        let theirs = load(m, r, remote, nr_remote);
        let ours = load(m, r, local, nr_local);
        let (Ok(theirs), Ok(ours)) = (theirs, ours) else {
            // The call itself says why.
            return Frame::issue(r, call);
        };
        let total = ours.min(theirs);
        if total == 0 || flags != 0 {
            return Frame::issue(r, call);
        }
        in_pieces(m, r, call, own, total)
    }
}

/// Moves `total` bytes between the vector in `user_iov` and the remote one.
///
/// # Safety
/// As [`process_vm`]. Both vectors name as many bytes at least.
unsafe fn in_pieces(m: &Masked, r: *mut Record, call: &Call, own: bool, total: usize) -> isize {
    let [pid, _, nr_local, remote, nr_remote, _] = call.args;
    let (mut here, mut there) = (Place::default(), Place::default());
    let mut most = MAX_STREAM_PIECE.min(ENGINE.pin_budget() / 2).max(PAGE_SIZE);
    let mut done = 0;
    // SAFETY: the record is this thread's with an open frame; elements of vectors are numbers.
    unsafe {
        let kept = (*r).frame.nr_pins;
        // The remote vector may be changed meanwhile.
        while done < total && here.element < nr_local && there.element < nr_remote {
            let Some(mine) = here.rest(nth(&raw const (*r).user_iov, here.element)) else {
                continue;
            };
            let mut element = IoVec { base: 0, len: 0 };
            let at = remote + there.element * size_of::<IoVec>();
            if let Err(errno) = user::read(&raw mut element, at, 1) {
                return so_far(done, fail(errno));
            }
            let Some(theirs) = there.rest(element) else {
                continue;
            };
            let len = mine.len.min(theirs.len).min(total - done).min(most);
            let is_pinned = Frame::pin(m, r, mine.base, len).is_ok()
                && (!own || Frame::pin(m, r, theirs.base, len).is_ok());
            if !is_pinned && len > PAGE_SIZE {
                Frame::unpin_to(m, r, kept);
                most = (len / 2).next_multiple_of(PAGE_SIZE).min(len - 1);
                continue;
            }
            // What could not be pinned may be there, or the call fails.
            let pair = [mine.base, theirs.base].map(|base| IoVec { base, len });
            let [local, remote] = pair.each_ref().map(|vector| (&raw const *vector).addr());
            let ret = stub::issue(&Call {
                nr: call.nr,
                args: [pid, local, 1, remote, 1, 0],
            });
            Frame::unpin_to(m, r, kept);
            let Ok(moved) = usize::try_from(ret) else {
                return so_far(done, ret);
            };
            done += moved;
            if moved < len {
                break;
            }
            here.skip += len;
            there.skip += len;
        }
    }
    done.cast_signed()
}

/// What a call returns that moved `done` bytes and then failed with `ret`.
fn so_far(done: usize, ret: isize) -> isize {
    match done {
        0 => ret,
        done => done.cast_signed(),
    }
}
