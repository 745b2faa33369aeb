//! *What*: reads and writes: of one buffer that is longer than may be pinned at once, and of
//! vectors of buffers, which the kernel reaches by pointers behind pointers.
//!
//! - Regular files: pieces until a short one.
//! - Streams: a read returns after one piece, unless it is to wait for all (`MSG_WAITALL`); a write
//!   goes on until all is written or a piece comes back short.
//! - Messages are never split. One with more than [`NR_VECTORS`] buffers is `EMSGSIZE`.
//! - `sendmmsg` and `recvmmsg` return after their first message.
//!
//! *Invariants*: the kernel gets our copy of a vector, of which all is pinned, and of a header,
//! whose results are copied back.
//! *Locking*: the engines'. *Context*: signal, and threads of the host.

use core::mem::offset_of;

use uzswap_core::arena_part;
use uzswap_sys::mem::{IoVec, UIO_MAXIOV};
use uzswap_sys::syscall::{call_raw, int, to_int};
use uzswap_sys::{Errno, file, nr};

use super::Call;
use super::context::Context;
use super::pins::{self, Pins};
use crate::user;

/// Buffers of a vector that are passed at once.
pub(super) const NR_VECTORS: usize = 32;
/// Of one piece: so many buffers, and the call's own pointers.
type PiecePins = Pins<{ NR_VECTORS + 8 }>;

const MSG_WAITALL: usize = 0x100;
const EMSGSIZE: Errno = Errno(libc::EMSGSIZE);

/// The kernel's `struct user_msghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MsgHdr {
    name: usize,
    name_len: u32,
    pad: u32,
    iov: usize,
    iov_len: usize,
    control: usize,
    control_len: usize,
    flags: u32,
    pad2: u32,
}

/// Bytes of the kernel's `struct mmsghdr`, which begins with a header.
const MMSGHDR_LEN: usize = 64;
const _: () = assert!(size_of::<MsgHdr>() == 56);

/// How far a descriptor's transfers may be split.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Stream,
    Message,
}

/// What `fd` is.
fn kind(fd: usize) -> Kind {
    let Ok(stat) = file::fstat(to_int(fd)) else {
        return Kind::Stream;
    };
    match stat.st_mode & file::S_IFMT {
        file::S_IFREG | file::S_IFBLK => Kind::File,
        file::S_IFSOCK => socket_kind(fd),
        _ => Kind::Stream,
    }
}

fn socket_kind(fd: usize) -> Kind {
    let (mut kind, mut len) = (0_i32, 4_u32);
    let (kind_at, len_at) = ((&raw mut kind) as usize, (&raw mut len) as usize);
    let (level, name) = (int(libc::SOL_SOCKET), int(libc::SO_TYPE));
    let args = [fd, level, name, kind_at, len_at, 0];
    // SAFETY: the kernel writes one int, and its length.
    match unsafe { call_raw(nr::GETSOCKOPT, args) } {
        0 if kind == libc::SOCK_STREAM => Kind::Stream,
        _ => Kind::Message,
    }
}

/// Where the bytes of a transfer are.
#[derive(Clone, Copy)]
pub(super) enum Buffers {
    /// Arguments 1 and 2.
    One,
    /// So many, from this address on.
    Vector(usize, usize),
    /// Those of this header, which is the host's at that address.
    Message(MsgHdr, usize),
}

impl Buffers {
    /// Address and number of the vectors.
    const fn vector(&self) -> (usize, usize) {
        match self {
            Buffers::One => (0, 1),
            Buffers::Vector(at, count) => (*at, *count),
            Buffers::Message(header, _) => (header.iov, header.iov_len),
        }
    }

    /// Copies buffers from number `n` on to `to`, and returns how many.
    fn read(&self, call: &Call, n: usize, to: &mut [IoVec]) -> Result<usize, Errno> {
        if let (Buffers::One, [to, ..]) = (self, &mut *to) {
            let [_, base, len, ..] = call.args;
            *to = IoVec { base, len };
            return Ok(1 - n.min(1));
        }
        let (at, count) = self.vector();
        let nr = count.saturating_sub(n).min(to.len());
        // SAFETY: vectors are plain numbers.
        unsafe { user::read_all(&mut to[..nr], at + n * size_of::<IoVec>()) }?;
        Ok(nr)
    }
}

/// What the buffers are in all.
pub(super) struct Sum {
    len: usize,
    /// Bytes that may be pinned at once, in whichever pool; `None`: nothing of it is in a pool.
    pub most: Option<usize>,
}

impl Sum {
    pub fn of(call: &Call, buffers: &Buffers) -> Result<Sum, Errno> {
        let (mut sum, mut n) = (Sum { len: 0, most: None }, 0);
        let mut some = [IoVec { base: 0, len: 0 }; 8];
        loop {
            let nr = buffers.read(call, n, &mut some)?;
            for IoVec { base, len } in some.iter().take(nr) {
                sum.len = sum.len.saturating_add(*len);
                let Some(engine) = arena_part(*base, *len).and_then(|(at, _)| pins::engine_of(at))
                else {
                    continue;
                };
                let budget = engine.pin_budget();
                sum.most = Some(sum.most.map_or(budget, |most| most.min(budget)));
            }
            n += nr;
            if nr < some.len() {
                return Ok(sum);
            }
        }
    }
}

/// A position among the buffers.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    pub n: usize,
    offset: usize,
}

/// A piece of a transfer.
pub(super) struct Piece {
    vectors: [IoVec; NR_VECTORS],
    nr: usize,
    pub len: usize,
    /// Where the next one begins.
    pub next: Cursor,
}

impl Piece {
    /// At most `most` bytes from `at` on.
    pub fn cut(call: &Call, buffers: &Buffers, at: Cursor, most: usize) -> Result<Piece, Errno> {
        let mut piece = Piece {
            vectors: [IoVec { base: 0, len: 0 }; NR_VECTORS],
            nr: 0,
            len: 0,
            next: at,
        };
        let found = buffers.read(call, at.n, &mut piece.vectors)?;
        for vector in piece.vectors.iter_mut().take(found) {
            let offset = std::mem::take(&mut piece.next.offset);
            let len = (vector.len - offset).min(most - piece.len);
            piece.nr += 1;
            piece.len += len;
            if offset + len < vector.len {
                piece.next.offset = offset + len;
            } else {
                piece.next.n += 1;
            }
            *vector = IoVec {
                base: vector.base + offset,
                len,
            };
            if piece.len == most {
                break;
            }
        }
        Ok(piece)
    }

    pub fn vectors(&self) -> &[IoVec] {
        self.vectors.get(..self.nr).unwrap_or_default()
    }
}

/// A call that moves bytes between a descriptor and buffers.
pub(super) struct Transfer {
    call: Call,
    buffers: Buffers,
    /// The argument that is the position in the file.
    position: Option<usize>,
    /// It returns with what there is.
    returns_early: bool,
    sum: Sum,
}

/// Whether calls of that number have vectors.
pub(super) const fn is_vectored(number: usize) -> bool {
    is_of_messages(number)
        || matches!(
            number,
            nr::READV
                | nr::WRITEV
                | nr::PREADV
                | nr::PWRITEV
                | nr::PREADV2
                | nr::PWRITEV2
                | nr::VMSPLICE
                | nr::SENDMSG
                | nr::RECVMSG
        )
}

pub(super) const fn is_of_messages(number: usize) -> bool {
    matches!(number, nr::SENDMMSG | nr::RECVMMSG)
}

impl Transfer {
    /// What `call` is, if it needs more than its own pointers pinned. Its own are in.
    pub fn of(call: &Call) -> Result<Option<Transfer>, Errno> {
        let [_, at, count, ..] = call.args;
        let buffers = match call.nr {
            nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64 | nr::SENDTO | nr::RECVFROM => {
                Buffers::One
            }
            // SAFETY: headers are plain numbers.
            nr::SENDMSG | nr::RECVMSG => Buffers::Message(unsafe { user::read(at) }?, at),
            number if is_vectored(number) && !is_of_messages(number) => Buffers::Vector(at, count),
            _ => return Ok(None),
        };
        let (position, reads, flags) = match call.nr {
            nr::PREAD64 | nr::PREADV => (Some(3), true, 0),
            nr::PWRITE64 | nr::PWRITEV => (Some(3), false, 0),
            // -1 is the file's own position.
            nr::PREADV2 => ((call.args[3] != usize::MAX).then_some(3), true, 0),
            nr::PWRITEV2 => ((call.args[3] != usize::MAX).then_some(3), false, 0),
            nr::RECVFROM => (None, true, call.args[3]),
            nr::RECVMSG => (None, true, call.args[2]),
            // `vmsplice` writes, or reads from a pipe, and may be short in both.
            nr::READ | nr::READV | nr::VMSPLICE => (None, true, 0),
            _ => (None, false, 0),
        };
        if buffers.vector().1 > UIO_MAXIOV {
            return Ok(None);
        }
        let sum = Sum::of(call, &buffers)?;
        let fits = matches!(buffers, Buffers::One) && sum.most.is_none_or(|most| sum.len <= most);
        Ok((!fits).then_some(Transfer {
            call: *call,
            buffers,
            position,
            returns_early: reads && flags & MSG_WAITALL == 0,
            sum,
        }))
    }

    /// Carries it out.
    ///
    /// # Safety
    /// `context` is that of a thread that makes the call.
    pub unsafe fn run(&self, context: Context) -> Result<isize, Errno> {
        let most = self.sum.most.unwrap_or(usize::MAX);
        let is_small = self.sum.len <= most && self.buffers.vector().1 <= NR_VECTORS;
        let kind = match is_small {
            true => Kind::Message,
            false => kind(self.call.args[0]),
        };
        let (mut at, mut done) = (Cursor::default(), 0);
        loop {
            let most = if kind == Kind::Message {
                usize::MAX
            } else {
                most
            };
            let piece = Piece::cut(&self.call, &self.buffers, at, most)?;
            if kind == Kind::Message && piece.len < self.sum.len {
                return Err(EMSGSIZE);
            }
            // SAFETY: the caller's promise.
            let ret = unsafe { self.issue(context, &piece, done) };
            let Ok(moved) = usize::try_from(ret) else {
                return Ok(if done > 0 { done.cast_signed() } else { ret });
            };
            done += moved;
            let goes_on = kind == Kind::File || !self.returns_early;
            if moved < piece.len || done >= self.sum.len || !goes_on {
                return Ok(done.cast_signed());
            }
            at = piece.next;
        }
    }

    /// Pins a piece, issues the call for it, and unpins it.
    unsafe fn issue(&self, context: Context, piece: &Piece, done: usize) -> isize {
        let (mut call, mut header) = (self.call, None);
        match (self.buffers, piece.vectors()) {
            (Buffers::One, [IoVec { base, len }, ..]) => {
                (call.args[1], call.args[2]) = (*base, *len);
            }
            (Buffers::Message(theirs, _), vectors) => {
                let ours = header.insert(theirs);
                (ours.iov, ours.iov_len) = (vectors.as_ptr() as usize, vectors.len());
                if done > 0 {
                    // Descriptors and the like go with the first byte.
                    ours.control_len = 0;
                }
                call.args[1] = core::ptr::from_mut(ours) as usize;
            }
            (_, vectors) => {
                (call.args[1], call.args[2]) = (vectors.as_ptr() as usize, vectors.len());
            }
        }
        if let Some(n) = self.position {
            call.args[n] += done;
        }
        let mut pins = PiecePins::new();
        if done == 0 {
            pins.count();
        }
        let pinned = context.enter(|| {
            let all = piece.vectors().iter();
            pins.pin(&call)?;
            pin_ends(&mut pins, header.as_ref())?;
            all.into_iter()
                .try_for_each(|vector| pins.pin_range(vector.base, vector.len))
        });
        let ret = match pinned {
            // SAFETY: the caller's promise; what it points at is in.
            Ok(()) => unsafe { context.issue(&call) },
            Err(errno) => -(errno.0 as isize),
        };
        if let (Buffers::Message(_, at), Some(header), 0..) = (self.buffers, header, ret)
            && self.call.nr == nr::RECVMSG
        {
            let _ = user::write(at + offset_of!(MsgHdr, name_len), header.name_len);
            let _ = user::write(at + offset_of!(MsgHdr, control_len), header.control_len);
            let _ = user::write(at + offset_of!(MsgHdr, flags), header.flags);
        }
        context.enter(|| pins.release());
        ret
    }
}

/// Pins name and control memory of a message.
fn pin_ends<const N: usize>(pins: &mut Pins<N>, header: Option<&MsgHdr>) -> Result<(), Errno> {
    let Some(header) = header else {
        return Ok(());
    };
    pins.pin_range(header.name, header.name_len as usize)?;
    pins.pin_range(header.control, header.control_len)
}

/// `sendmmsg` and `recvmmsg`: their first message.
///
/// # Safety
/// As [`Transfer::run`]; the array of headers is in.
pub(super) unsafe fn first_message(context: Context, call: &Call) -> Result<isize, Errno> {
    let [_, at, count, ..] = call.args;
    let mut call = *call;
    call.args[2] = count.min(1);
    let mut pins = PiecePins::new();
    pins.count();
    let pinned = context.enter(|| {
        pins.pin(&call)?;
        // SAFETY: headers are plain numbers.
        let header: MsgHdr = unsafe { user::read(at) }?;
        let buffers = Buffers::Message(header, at);
        pin_ends(&mut pins, Some(&header))?;
        pins.pin_range(
            header.iov,
            header.iov_len.saturating_mul(size_of::<IoVec>()),
        )?;
        let mut vectors = [IoVec { base: 0, len: 0 }; NR_VECTORS];
        let nr = buffers.read(&call, 0, &mut vectors)?;
        if nr < header.iov_len {
            return Err(EMSGSIZE);
        }
        let mut vectors = vectors.iter().take(nr);
        vectors.try_for_each(|vector| pins.pin_range(vector.base, vector.len))
    });
    // SAFETY: the caller's promise; all that it names is in.
    let ret = pinned.map(|()| unsafe { context.issue(&call) });
    context.enter(|| pins.release());
    ret
}

/// Whether a call with vectors names memory of a pool, by pointers behind pointers or by its own.
pub(super) fn names_a_pool(call: &Call) -> bool {
    let [_, at, count, ..] = call.args;
    let is_ours = |at: usize, len: usize| arena_part(at, len).is_some();
    let header = |at: usize| {
        // SAFETY: headers are plain numbers.
        let header = unsafe { user::read::<MsgHdr>(at) };
        header.is_ok_and(|header| {
            let ends = is_ours(header.name, 1) || is_ours(header.control, 1);
            let (iov, nr) = (header.iov, header.iov_len);
            ends || is_ours(iov, 1) || any(call, &Buffers::Vector(iov, nr))
        })
    };
    match call.nr {
        _ if is_ours(at, 1) => true,
        nr::SENDMSG | nr::RECVMSG => header(at),
        number if is_of_messages(number) => {
            (0..count.min(UIO_MAXIOV)).any(|n| header(at + n * MMSGHDR_LEN))
        }
        _ => any(call, &Buffers::Vector(at, count)),
    }
}

fn any(call: &Call, buffers: &Buffers) -> bool {
    buffers.vector().1 <= UIO_MAXIOV && Sum::of(call, buffers).is_ok_and(|sum| sum.most.is_some())
}
