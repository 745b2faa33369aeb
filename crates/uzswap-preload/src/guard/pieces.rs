//! *What*: reads and writes whose buffers are more than may be pinned at once, done in pieces, with
//! the result that one call would have had.
//!
//! - Regular files and block devices: pieces until a short one. The kernel does not let signals
//!   interrupt these, so they stay blocked over the whole call, which returns as much as one call.
//! - Streams (pipes, stream sockets, terminals, other devices): a read may return less than asked
//!   for, so one piece will do, unless `MSG_WAITALL` was asked for; a write goes on until all is
//!   written or a piece comes back short. A signal ends it with what is done so far, as natively.
//! - Datagrams and the like are never split: they are pinned whole.
//!
//! Pieces are multiples of a page, so that alignment asked for by `O_DIRECT` holds for each.
//! Not the same as one call: two processes that append more than a piece each to one file may
//! interleave.
//!
//! *Invariants*: `frame.done` is what earlier pieces moved, whenever the window is open.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::{Masked, arena_part};
use uzswap_sys::mem::IoVec;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, PAGE_SIZE, file, nr};

use super::frame::{Frame, fail};
use super::stub::{self, Call};
use super::vector;
use crate::init::ENGINE;
use crate::threads::Record;

/// What a descriptor is, as far as splitting goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file or block device.
    File,
    /// Bytes in order, without ends of messages.
    Stream,
    /// Messages: each call moves one.
    Message,
}

/// A piece of a stream needs no more than this pinned.
pub const MAX_STREAM_PIECE: usize = 1 << 20;
/// Messages are not longer than this; what lies beyond is not pinned.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
const SOL_SOCKET: usize = 1;
const SO_TYPE: usize = 3;
const SOCK_STREAM: i32 = 1;
/// See recv(2).
pub const MSG_WAITALL: usize = 0x100;

/// Finds out what `fd` is.
#[must_use]
pub fn kind(fd: usize) -> Kind {
    let Ok(stat) = file::fstat(to_int(fd)) else {
        return Kind::Stream;
    };
    match stat.st_mode & file::S_IFMT {
        file::S_IFREG | file::S_IFBLK => Kind::File,
        file::S_IFSOCK => socket_kind(fd).unwrap_or(Kind::Message),
        _ => Kind::Stream,
    }
}

/// What a socket is; `None`: no socket.
#[must_use]
pub fn socket_kind(fd: usize) -> Option<Kind> {
    let mut kind = 0i32;
    let mut len = 4u32;
    let args = [
        fd,
        SOL_SOCKET,
        SO_TYPE,
        core::ptr::from_mut(&mut kind) as usize,
        core::ptr::from_mut(&mut len) as usize,
        0,
    ];
    // SAFETY: the kernel writes one int and its length.
    match unsafe { uzswap_sys::syscall::call_raw(nr::GETSOCKOPT, args) } {
        0 if kind == SOCK_STREAM => Some(Kind::Stream),
        0 => Some(Kind::Message),
        _ => None,
    }
}

/// A transfer between a descriptor and buffers.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The program's call.
    pub call: Call,
    /// Where the position in the file is among the arguments, if it is there.
    pub position: Option<usize>,
    /// Memory is written to.
    pub read: bool,
    /// The call waits until all of it is moved.
    pub all: bool,
}

impl Transfer {
    /// What `call` is, if it is a transfer with one buffer (argument 1, length argument 2).
    #[must_use]
    pub fn plain(call: &Call) -> Option<Transfer> {
        let (position, read, all) = match call.nr {
            nr::READ => (None, true, false),
            nr::WRITE => (None, false, true),
            nr::PREAD64 => (Some(3), true, false),
            nr::PWRITE64 => (Some(3), false, true),
            nr::RECVFROM => (None, true, call.args[3] & MSG_WAITALL != 0),
            nr::SENDTO => (None, false, true),
            _ => return None,
        };
        Some(Transfer {
            call: *call,
            position,
            read,
            all,
        })
    }
}

/// Most that one piece moves.
fn piece_of(kind: Kind, budget: usize) -> usize {
    match kind {
        Kind::File => budget,
        Kind::Stream => budget.min(MAX_STREAM_PIECE),
        Kind::Message => MAX_MESSAGE_BYTES,
    }
}

/// Where the bytes of a piece come from or go to.
#[derive(Clone, Copy, Debug)]
pub enum Buffers {
    /// Argument 1, of the length in argument 2.
    One,
    /// The first so many vectors in `record.user_iov`; pieces are cut in `record.iov`, which
    /// argument 1 is made to point at (or the header in `record.header`).
    Vectors {
        /// How many.
        count: usize,
        /// Through `record.header`, as `sendmsg` takes them.
        header: bool,
    },
}

/// Does the transfer. The direct pointers other than the buffers are pinned already.
///
/// # Safety
/// `r` is the calling thread's record with an open frame; `total` is the length of the buffers.
pub unsafe fn run(
    m: &Masked,
    r: *mut Record,
    transfer: &Transfer,
    buffers: Buffers,
    total: usize,
) -> isize {
    // SAFETY: the record is this thread's.
    unsafe {
        let kept = (*r).frame.nr_pins;
        let mut kind = if total <= MAX_STREAM_PIECE.min(ENGINE.pin_budget()) {
            // Small enough to be pinned whole, whatever it is.
            Kind::Message
        } else {
            kind(transfer.call.args[0])
        };
        let mut most = piece_of(kind, ENGINE.pin_budget());
        let mut done = 0;
        loop {
            let mut len = (total - done).min(most);
            // The limit may have no room for the piece now: try a smaller one.
            loop {
                match pin_piece(m, r, transfer, buffers, done, len) {
                    Ok(()) => break,
                    Err(Errno::ENOMEM) => {
                        Frame::unpin_to(m, r, kept);
                        if kind == Kind::Message && total <= MAX_STREAM_PIECE {
                            // Small enough to be pinned whole, but not under this limit.
                            kind = self::kind(transfer.call.args[0]);
                            if kind != Kind::Message {
                                most = PAGE_SIZE;
                                len = total.min(most);
                                continue;
                            }
                        }
                        if len <= PAGE_SIZE || kind == Kind::Message {
                            ENGINE.end_over_limit(len as u64);
                        }
                        len = (len / 2).next_multiple_of(PAGE_SIZE).min(len - 1);
                        most = len;
                    }
                    Err(errno) => {
                        return if done > 0 {
                            done.cast_signed()
                        } else {
                            fail(errno)
                        };
                    }
                }
            }
            let whole = kind == Kind::Message;
            let call = cut(r, transfer, buffers, done, if whole { total } else { len });
            (*r).frame.done = done;
            let ret = issue_piece(r, &call, kind);
            Frame::unpin_to(m, r, kept);
            let Ok(moved) = usize::try_from(ret) else {
                return if done > 0 { done.cast_signed() } else { ret };
            };
            done += moved;
            let goes_on = kind == Kind::File || transfer.all;
            if whole || !goes_on || moved < len || done >= total {
                return done.cast_signed();
            }
        }
    }
}

/// Issues the call for a piece that is pinned. Calls on files end soon: signals stay blocked.
unsafe fn issue_piece(r: *mut Record, call: &Call, kind: Kind) -> isize {
    // SAFETY: as `run`.
    unsafe {
        if kind == Kind::File {
            stub::issue(call)
        } else {
            Frame::issue(r, call)
        }
    }
}

unsafe fn pin_piece(
    m: &Masked,
    r: *mut Record,
    transfer: &Transfer,
    buffers: Buffers,
    done: usize,
    len: usize,
) -> Result<(), Errno> {
    // SAFETY: as `run`.
    unsafe {
        match buffers {
            Buffers::One => Frame::pin(m, r, transfer.call.args[1].wrapping_add(done), len),
            Buffers::Vectors { count, .. } => {
                let (mut skip, mut left) = (done, len);
                for n in 0..count {
                    let IoVec { base, len } = vector::nth(&raw const (*r).user_iov, n);
                    if skip >= len {
                        skip -= len;
                        continue;
                    }
                    let part = (len - skip).min(left);
                    if part > 0 && arena_part(base.wrapping_add(skip), part).is_some() {
                        Frame::pin(m, r, base.wrapping_add(skip), part)?;
                    }
                    left -= part;
                    skip = 0;
                    if left == 0 {
                        break;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The call that moves `len` bytes after the first `done`.
unsafe fn cut(
    r: *mut Record,
    transfer: &Transfer,
    buffers: Buffers,
    done: usize,
    len: usize,
) -> Call {
    let mut call = transfer.call;
    if let Some(at) = transfer.position
        && let Some(position) = call.args.get_mut(at)
    {
        *position = position.wrapping_add(done);
    }
    match buffers {
        Buffers::One => {
            call.args[1] = call.args[1].wrapping_add(done);
            call.args[2] = len;
        }
        Buffers::Vectors { count, header } => {
            // SAFETY: as `run`.
            unsafe {
                let nr = vector::cut(r, count, done, len);
                let at = (&raw const (*r).iov) as usize;
                if header {
                    (*r).header.iov = at;
                    (*r).header.iov_len = nr;
                    if done > 0 && !transfer.read {
                        // Went with the first piece.
                        (*r).header.control_len = 0;
                    }
                    call.args[1] = (&raw const (*r).header) as usize;
                } else {
                    call.args[1] = at;
                    call.args[2] = nr;
                }
            }
        }
    }
    call
}
