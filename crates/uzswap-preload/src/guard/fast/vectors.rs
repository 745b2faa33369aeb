//! *What*: vectors and messages. Those that name no memory of ours are issued here: filter B, which
//! cannot look into them, would trap them. For `writev`, memory of ours is brought in first.
//!
//! *Invariants*, *Locking*, *Context*: as [`super`].

use uzswap_core::{Masked, arena_part};
use uzswap_sys::arch::abi::USER_END;
use uzswap_sys::mem::IoVec;
use uzswap_sys::syscall::int;
use uzswap_sys::{PAGE_SIZE, nr};

use super::{
    Attempt, IoVecs, MAX_FAST_BYTES, MAX_FAST_VECTORS, Message, NOT_ISSUED, attempt, is_present,
    issue, next, nr_handled, on, real, returned, takes_all, timed,
};
use crate::guard::vector::MsgHdr;
use crate::init::ENGINE;

/// Not a null or kernel address, which calls are given to see them fail.
const fn is_plausible(at: usize) -> bool {
    at >= PAGE_SIZE && at < USER_END
}

/// Address and length of the buffers of a vector after its first `done` bytes, but for empty ones.
///
/// # Safety
/// The vector is the program's and can be read. (In some of these calls the C library reads it
/// too.)
unsafe fn buffers(iov: usize, count: usize, done: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut skip = done;
    (0..count).filter_map(move |n| {
        // SAFETY: the caller's promise.
        let IoVec { base, len } = unsafe { (iov as *const IoVec).add(n).read_unaligned() };
        let skipped = skip.min(len);
        skip -= skipped;
        (skipped < len).then_some((base + skipped, len - skipped))
    })
}

/// Whether none of a vector's buffers is ours, nor the vector itself.
unsafe fn is_foreign(iov: usize, count: usize) -> bool {
    if count > MAX_FAST_VECTORS
        || !is_plausible(iov)
        || arena_part(iov, count * size_of::<IoVec>()).is_some()
    {
        return false;
    }
    // SAFETY: the program's vector.
    unsafe { buffers(iov, count, 0) }.all(|(at, len)| arena_part(at, len).is_none())
}

unsafe fn vector(real: IoVecs, nr: usize, fd: i32, iov: usize, count: i32) -> isize {
    // SAFETY: the program's own call.
    unsafe {
        if on() && usize::try_from(count).is_ok_and(|count| is_foreign(iov, count)) {
            let ret = issue(nr, int(fd), iov, int(count), 0, 0, 0);
            if ret != NOT_ISSUED {
                return returned(ret);
            }
        }
        real(fd, iov, count)
    }
}

/// `readv(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: i32, iov: usize, count: i32) -> isize {
    // SAFETY: the program's own call.
    timed(|| unsafe { vector(real::<IoVecs>(&next::readv), nr::READV, fd, iov, count) })
}

/// `writev(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: i32, iov: usize, count: i32) -> isize {
    // SAFETY: the program's own call.
    timed(|| unsafe {
        let real = real::<IoVecs>(&next::writev);
        let nr_vectors = usize::try_from(count).unwrap_or(0);
        if !on() || is_foreign(iov, nr_vectors) {
            return vector(real, nr::WRITEV, fd, iov, count);
        }
        let Some(total) = bring_in(iov, nr_vectors) else {
            return real(fd, iov, count);
        };
        let handled = nr_handled();
        match attempt(nr::WRITEV, [int(fd), iov, int(count), 0, 0, 0], 0, 0) {
            Attempt::Done(ret) if ret > 0 && ret.cast_unsigned() < total => {
                carry_on(real, fd, (iov, nr_vectors), ret.cast_unsigned(), handled)
            }
            Attempt::Done(ret) => returned(ret),
            Attempt::Library | Attempt::Partly(_) => real(fd, iov, count),
        }
    })
}

/// Brings the buffers of a vector in, and returns their length; `None` if that is not worth it. If
/// one is evicted again before the call, the call fails with `EFAULT`, or stops at that page.
unsafe fn bring_in(iov: usize, count: usize) -> Option<usize> {
    let size = count * size_of::<IoVec>();
    if count == 0 || count > MAX_FAST_VECTORS || !is_plausible(iov) {
        return None;
    }
    if arena_part(iov, size).is_some() && !is_present(iov, size) {
        return None;
    }
    let mut total = 0usize;
    // SAFETY: the program's vector.
    for (base, len) in unsafe { buffers(iov, count, 0) } {
        total = total.checked_add(len)?;
        if total > MAX_FAST_BYTES {
            return None;
        }
        if let Some((at, len)) = arena_part(base, len)
            && !is_present(at, len)
        {
            // Not by an access: where nothing is mapped, the call reports it.
            let _ = Masked::block(|m| ENGINE.populate(m, at, len));
        }
    }
    Some(total)
}

/// Writes the rest of a vector of which `done` bytes are written, if a missing page stopped it.
unsafe fn carry_on(
    real: IoVecs,
    fd: i32,
    (iov, count): (usize, usize),
    done: usize,
    handled: Option<u32>,
) -> isize {
    let is_out = |(at, len)| arena_part(at, len).is_some_and(|(ours, len)| !is_present(ours, len));
    // SAFETY: the caller's promise.
    let has_gap = unsafe { buffers(iov, count, done) }.any(is_out);
    if !has_gap && !takes_all(int(fd), handled) {
        return done.cast_signed();
    }
    let mut rest = [IoVec { base: 0, len: 0 }; MAX_FAST_VECTORS];
    let mut nr = 0;
    // SAFETY: see above.
    let left = unsafe { buffers(iov, count, done) };
    for (to, (base, len)) in rest.iter_mut().zip(left) {
        *to = IoVec { base, len };
        nr += 1;
    }
    // Not buffer by buffer: a pipe takes nothing of a page that it cannot have whole.
    // SAFETY: the program's own call.
    let ret = unsafe { real(fd, (&raw const rest) as usize, nr) };
    done.cast_signed() + ret.max(0)
}

unsafe fn message(real: Message, nr: usize, fd: i32, at: usize, flags: i32) -> isize {
    // SAFETY: the program's own call; the C library's callers pass a header that can be read.
    unsafe {
        if on() && is_plausible(at) && arena_part(at, size_of::<MsgHdr>()).is_none() {
            let header = (at as *const MsgHdr).read_unaligned();
            let foreign = arena_part(header.name, 1).is_none()
                && arena_part(header.control, 1).is_none()
                && (header.iov_len == 0 || is_foreign(header.iov, header.iov_len));
            if foreign {
                let ret = issue(nr, int(fd), at, int(flags), 0, 0, 0);
                if ret != NOT_ISSUED {
                    return returned(ret);
                }
            }
        }
        real(fd, at, flags)
    }
}

macro_rules! messages {
    ($($name:ident => $nr:path;)*) => {$(
        /// `sendmsg(2)`, `recvmsg(2)`.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: i32, header: usize, flags: i32) -> isize {
            // SAFETY: the program's own call.
            timed(|| unsafe { message(real::<Message>(&next::$name), $nr, fd, header, flags) })
        }
    )*};
}
messages! {
    sendmsg => nr::SENDMSG;
    recvmsg => nr::RECVMSG;
}
