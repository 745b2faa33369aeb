//! *What*: calls with a vector of buffers: `readv`, `writev` and theirs, `sendmsg`, `recvmsg` and
//! their plural forms, `vmsplice`, `futex_waitv`.
//!
//! *Invariants*: the kernel is given our copy of a vector, cut to what is pinned, or the program's
//! own if all that it names is pinned. A message header that was replaced is written back when the
//! call returns, also when a signal's handler comes first ([`Frame::finish`]).
//! *Locking*: the engine's. *Context*: signal.

use core::mem::offset_of;

use uzswap_core::{Masked, arena_part};
use uzswap_sys::mem::{IoVec, UIO_MAXIOV};
use uzswap_sys::{Errno, nr};

use super::frame::{Frame, is_error};
use super::pieces::{self, Buffers, MSG_WAITALL, Transfer};
use super::stub::Call;
use super::{ranges, user};
use crate::threads::Record;

/// The kernel's `struct user_msghdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MsgHdr {
    /// Address of the peer.
    pub name: usize,
    /// Its length.
    pub name_len: u32,
    pad: u32,
    /// Vector.
    pub iov: usize,
    /// Its length.
    pub iov_len: usize,
    /// Control messages.
    pub control: usize,
    /// Their length.
    pub control_len: usize,
    /// Flags of what was received.
    pub flags: u32,
    pad2: u32,
}

/// The kernel's `struct mmsghdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct MmsgHdr {
    header: MsgHdr,
    len: u32,
    pad: u32,
}

const _: () = assert!(size_of::<MsgHdr>() == 56 && size_of::<MmsgHdr>() == 64);

/// Longest address of a peer.
const MAX_NAME_BYTES: usize = 4096;
/// Longest control messages: `optmem_max` is far below.
const MAX_CONTROL_BYTES: usize = 1 << 20;

/// Element `n` of a vector in the record.
///
/// # Safety
/// `n` is below [`UIO_MAXIOV`].
#[must_use]
pub unsafe fn nth(iov: *const [IoVec; UIO_MAXIOV], n: usize) -> IoVec {
    // SAFETY: the caller's promise.
    unsafe { iov.cast::<IoVec>().add(n).read() }
}

/// Copies what moves `len` bytes after the first `done` from `user_iov` (`count` elements) to
/// `iov`, and returns how many elements that are.
///
/// # Safety
/// `r` is the calling thread's record.
pub unsafe fn cut(r: *mut Record, count: usize, done: usize, len: usize) -> usize {
    // SAFETY: both vectors have `UIO_MAXIOV` elements, and no more are written than read.
    unsafe {
        let (mut skip, mut left, mut nr) = (done, len, 0);
        for n in 0..count {
            let IoVec { base, len } = nth(&raw const (*r).user_iov, n);
            if skip >= len && done > 0 {
                skip -= len;
                continue;
            }
            let part = (len - skip).min(left);
            (&raw mut (*r).iov).cast::<IoVec>().add(nr).write(IoVec {
                base: base.wrapping_add(skip),
                len: part,
            });
            nr += 1;
            left -= part;
            skip = 0;
            if left == 0 {
                break;
            }
        }
        nr
    }
}

/// Reads the program's vector into `user_iov` and returns the sum of its lengths.
///
/// # Errors
/// `EINVAL`: too long. `EFAULT`: not readable.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn load(m: &Masked, r: *mut Record, at: usize, count: usize) -> Result<usize, Errno> {
    if count > UIO_MAXIOV {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the record is this thread's, and the vector fits.
    unsafe {
        Frame::pin_whole(m, r, at, count * size_of::<IoVec>())?;
        let to = (&raw mut (*r).user_iov).cast::<IoVec>();
        user::read(to, at, count)?;
        let mut total = 0usize;
        for n in 0..count {
            total = total.saturating_add(to.add(n).read().len);
        }
        Ok(total)
    }
}

/// Whether any buffer in `user_iov` is ours.
unsafe fn any_in_arena(r: *mut Record, count: usize) -> bool {
    // SAFETY: the record is this thread's.
    (0..count).any(|n| unsafe {
        let IoVec { base, len } = nth(&raw const (*r).user_iov, n);
        arena_part(base, len).is_some()
    })
}

/// `readv`, `writev` and their relatives with a position, and `vmsplice`.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn transfer(m: &Masked, r: *mut Record, call: &Call) -> isize {
    let [_, iov, count, ..] = call.args;
    let (position, read) = match call.nr {
        nr::READV => (None, true),
        nr::WRITEV | nr::VMSPLICE => (None, false),
        // -1 asks for the file's own position in the forms with flags.
        nr::PREADV2 if call.args[3] == usize::MAX => (None, true),
        nr::PWRITEV2 if call.args[3] == usize::MAX => (None, false),
        nr::PREADV | nr::PREADV2 => (Some(3), true),
        _ => (Some(3), false),
    };
    // SAFETY: the caller's promise.
    unsafe {
        match load(m, r, iov, count) {
            Ok(total) if any_in_arena(r, count) && isize::try_from(total).is_ok() => {
                let transfer = Transfer {
                    call: *call,
                    position,
                    read,
                    all: !read,
                };
                let buffers = Buffers::Vectors {
                    count,
                    header: false,
                };
                pieces::run(m, r, &transfer, buffers, total)
            }
            // Nothing of ours, or an error for the kernel to report.
            _ => Frame::issue(r, call),
        }
    }
}

/// Pins name and control memory of a message.
unsafe fn pin_ends(m: &Masked, r: *mut Record, header: &MsgHdr) -> Result<(), Errno> {
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        if header.name != 0 {
            let len = (header.name_len as usize).min(MAX_NAME_BYTES);
            Frame::pin_whole(m, r, header.name, len)?;
        }
        let len = header.control_len.min(MAX_CONTROL_BYTES);
        Frame::pin_whole(m, r, header.control, len)
    }
}

/// `sendmsg` and `recvmsg`.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn message(m: &Masked, r: *mut Record, call: &Call) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match message_parts(m, r, call) {
            Ok(Some((total, count))) => {
                let read = call.nr == nr::RECVMSG;
                let transfer = Transfer {
                    call: *call,
                    position: None,
                    read,
                    all: !read || call.args[2] & MSG_WAITALL != 0,
                };
                if read {
                    (*r).frame.finish = Some(write_back);
                }
                let buffers = Buffers::Vectors {
                    count,
                    header: true,
                };
                let ret = pieces::run(m, r, &transfer, buffers, total);
                if read {
                    write_back(m, r, ret);
                }
                ret
            }
            _ => Frame::issue(r, call),
        }
    }
}

/// Reads the message header of `call` into the record and pins all but the buffers. `None`: nothing
/// of it is ours.
unsafe fn message_parts(
    m: &Masked,
    r: *mut Record,
    call: &Call,
) -> Result<Option<(usize, usize)>, Errno> {
    let at = call.args[1];
    // SAFETY: the record is this thread's with an open frame; headers are plain numbers.
    unsafe {
        Frame::pin_whole(m, r, at, size_of::<MsgHdr>())?;
        let header: MsgHdr = user::value(at)?;
        let total = load(m, r, header.iov, header.iov_len)?;
        let ours = arena_part(at, size_of::<MsgHdr>()).is_some()
            || arena_part(header.name, 1).is_some()
            || arena_part(header.control, 1).is_some()
            || arena_part(header.iov, 1).is_some()
            || any_in_arena(r, header.iov_len);
        if !ours || isize::try_from(total).is_err() {
            return Ok(None);
        }
        pin_ends(m, r, &header)?;
        (*r).header = header;
        (*r).user_header = at;
        Ok(Some((total, header.iov_len)))
    }
}

/// Writes what `recvmsg` said in our header to the program's.
unsafe fn write_back(_: &Masked, r: *mut Record, ret: isize) {
    if is_error(ret) {
        return;
    }
    // SAFETY: the record is this thread's; the header is pinned until the frame is closed.
    unsafe {
        let (header, at) = ((*r).header, (*r).user_header);
        let _ = user::write(at + offset_of!(MsgHdr, name_len), &header.name_len);
        let _ = user::write(at + offset_of!(MsgHdr, control_len), &header.control_len);
        let _ = user::write(at + offset_of!(MsgHdr, flags), &header.flags);
    }
}

/// `sendmmsg` and `recvmmsg`: pins all that the messages name and passes the program's own array,
/// shortened to what could be pinned. Both may return after fewer messages than asked for.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn messages(m: &Masked, r: *mut Record, call: &Call) -> Result<isize, Errno> {
    const MAX_MESSAGES: usize = 64;
    let mut call = *call;
    let [_, at, count, ..] = call.args;
    // SAFETY: the record is this thread's with an open frame; headers are plain numbers.
    unsafe {
        let mut taken = 0;
        while taken < count.min(MAX_MESSAGES) {
            let kept = (*r).frame.nr_pins;
            match pin_message(m, r, at + taken * size_of::<MmsgHdr>()) {
                // The kernel reports an error when it comes to this message.
                Ok(()) | Err(Errno::EFAULT | Errno::EINVAL) => taken += 1,
                Err(_) if taken > 0 => {
                    Frame::unpin_to(m, r, kept);
                    break;
                }
                Err(errno) => return Err(errno),
            }
        }
        if taken < count {
            call.args[2] = taken;
        }
        ranges::pin(m, r, &call)?;
        Ok(Frame::issue(r, &call))
    }
}

unsafe fn pin_message(m: &Masked, r: *mut Record, at: usize) -> Result<(), Errno> {
    // SAFETY: the record is this thread's with an open frame; headers are plain numbers.
    unsafe {
        Frame::pin_whole(m, r, at, size_of::<MmsgHdr>())?;
        let header: MsgHdr = user::value(at)?;
        load(m, r, header.iov, header.iov_len)?;
        pin_ends(m, r, &header)?;
        for n in 0..header.iov_len {
            let IoVec { base, len } = nth(&raw const (*r).user_iov, n);
            Frame::pin(m, r, base, len)?;
        }
        Ok(())
    }
}

/// `futex_waitv`: the words that the vector names.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn futexes(m: &Masked, r: *mut Record, call: &Call) -> Result<isize, Errno> {
    const MAX_FUTEXES: usize = 128;
    let [at, count, ..] = call.args;
    // SAFETY: the record is this thread's with an open frame; the vector is plain numbers.
    unsafe {
        ranges::pin(m, r, call)?;
        for n in 0..count.min(MAX_FUTEXES) {
            // value, address, flags
            if let Ok(address) = user::value::<usize>(at + n * 24 + 8) {
                // What cannot be pinned makes the call fail.
                let _ = Frame::pin(m, r, address, 8);
            }
        }
        Ok(Frame::issue(r, call))
    }
}
