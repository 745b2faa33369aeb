//! *What*: the calls that programs make most, issued before they are trapped: a trap costs about
//! two microseconds, a look at the arguments nothing.
//!
//! What is written or sent, and `poll` and `epoll_wait`, may fail and be done again. A longer
//! buffer must be present (the page table tells). The call is issued through the stub page. If a
//! page was evicted in between, the call failed with `EFAULT` and moved nothing, or moved part, and
//! the rest follows. What is read may be lost by a failed call, as a datagram is: the buffer is
//! announced as a [hazard](uzswap_core::arena::hazard), which reclaim passes over. What is not
//! present goes to the C library, whose call is trapped.
//!
//! *Invariants*: nothing is held across the call, so a handler may jump out of it: the thread's
//! hazard is withdrawn before a handler of the program starts. A signal that finds the call not
//! issued, or to be issued again, makes it go to the C library instead ([`redirect`]), so that
//! cancellation of a blocked thread works; once a program cancels threads at all, every call does.
//! *Locking*: none. *Context*: the program's. A thread made by a raw clone that shares its maker's
//! thread-local storage shares its hazard too; the C library does not support such threads either.

mod masks;
mod sockets;
mod vectors;
mod waits;

use core::sync::atomic::{AtomicBool, Ordering};

use uzswap_core::arena_part;
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::{from_raw, int, to_int};
use uzswap_sys::{Errno, PAGE_SIZE, file, nr};

use super::frame::fail;
use super::is_writable;
use super::stub::PROGRAM_GATE_RETURN;
use crate::arch::fast::{is_before_issue, issue, issue_announced, saved_nr};
use crate::arch::tls;
use crate::init::ENGINE;
use crate::maps::set_errno;
use crate::next::Next;
use crate::threads;
pub use waits::passed_on;
use waits::timed;

/// Longest buffers that are tried here; longer ones are pinned.
const MAX_FAST_BYTES: usize = 64 << 10;
/// Longest vectors that are tried here.
const MAX_FAST_VECTORS: usize = 64;
/// What a call returns that was not issued because of a signal.
pub const NOT_ISSUED: isize = -512;
const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;
const MSG_MORE: i32 = 0x8000;

/// The program cancels threads. Set before the first one is cancelled, whose call is then issued
/// again by the C library, where it can be cancelled.
static CANCELS: AtomicBool = AtomicBool::new(false);

#[inline]
fn on() -> bool {
    super::enabled() && !CANCELS.load(Ordering::Relaxed)
}

/// Issues a call that reads `len` bytes to `addr`, which stay in the arena for it. `None`: the C
/// library is to make it.
unsafe fn issue_read(nr: usize, args: [usize; 6], addr: usize, len: usize) -> Option<isize> {
    let record = tls::record();
    if record.is_null() || len > MAX_FAST_BYTES {
        return None;
    }
    let hazard = ENGINE.announce(threads::number(record), addr, len)?;
    let [a, b, c, d, e, f] = args;
    // SAFETY: the program's own call.
    let ret = unsafe { issue_announced(hazard.word(), hazard.value(), nr, a, b, c, d, e, f) };
    hazard.withdraw();
    // Memory that may be written was there: to fail is the call's own result, and what it took from
    // a socket is gone, as natively.
    (is_result(ret) || (ret != NOT_ISSUED && !is_writable(addr, len))).then_some(ret)
}

/// Withdraws the thread's hazard, and makes a call that a signal interrupted before it was issued
/// return [`NOT_ISSUED`]. For handlers, with contexts outside the window.
pub fn redirect(uc: &mut UContext) {
    let record = tls::record();
    if !record.is_null() {
        ENGINE.withdraw(threads::number(record));
        // SAFETY: this thread's record, which its handlers alone use.
        unsafe {
            (*record).nr_handled = (*record).nr_handled.wrapping_add(1);
            (*record).deadline = 0;
            (*record).began = 0;
            (*record).passed_on = 0;
        }
    }
    if is_before_issue(uc.instruction_pointer()) {
        uc.set_instruction_pointer(PROGRAM_GATE_RETURN);
        uc.set_syscall_return(NOT_ISSUED);
    }
}

/// The number of the call of [`issue`] or [`issue_announced`] that has just returned to `uc`.
///
/// # Safety
/// In a handler; `uc` is its context, outside the window.
pub unsafe fn returned_from(uc: &UContext) -> Option<usize> {
    if uc.instruction_pointer() != PROGRAM_GATE_RETURN {
        return None;
    }
    let at = saved_nr(uc);
    // A stack in managed memory may be evicted.
    if arena_part(at, 8).is_some() {
        return None;
    }
    // SAFETY: they put it there, and nothing has run since.
    Some(unsafe { *(at as *const usize) })
}

/// Whether the buffer is worth trying: within a page, the call itself finds out; over several, all
/// must be present just now, since a call that stops at a page between is not what was asked for.
fn is_tryable(addr: usize, len: usize) -> bool {
    let within = (addr % PAGE_SIZE).saturating_add(len) <= PAGE_SIZE;
    within || is_present(addr, len)
}

/// Whether every page of the buffer is present just now.
fn is_present(addr: usize, len: usize) -> bool {
    len <= MAX_FAST_BYTES && ENGINE.is_resident(addr, len)
}

/// Whether `ret` is the program's to see: the call was issued, and found its memory.
fn is_result(ret: isize) -> bool {
    ret != NOT_ISSUED && ret != fail(Errno::EFAULT)
}

/// The outcome of an attempt.
enum Attempt {
    /// The C library is to make the call.
    Library,
    /// This is the call's result.
    Done(isize),
    /// So many bytes were moved before a page was missing: the C library is to move the rest.
    Partly(usize),
}

/// Issues a call that moves `len` bytes from `addr`.
unsafe fn attempt(nr: usize, args: [usize; 6], addr: usize, len: usize) -> Attempt {
    let [a, b, c, d, e, f] = args;
    let handled = nr_handled();
    // SAFETY: the program's own call.
    let ret = unsafe { issue(nr, a, b, c, d, e, f) };
    if !is_result(ret) {
        return Attempt::Library;
    }
    let Ok(moved) = usize::try_from(ret) else {
        return Attempt::Done(ret);
    };
    let is_out = || !is_present(addr + moved, len - moved);
    if moved > 0 && moved < len && (is_out() || takes_all(a, handled)) {
        return Attempt::Partly(moved);
    }
    Attempt::Done(ret)
}

/// Whether a write to `fd` that was short is to go on: natively it would have moved all. Where a
/// page was evicted it stops; that page may be back by now, and need not be the next one: the
/// kernel drops all that it had copied for a page of the file or pipe. A file takes less where the
/// disk is full, which whoever writes the rest learns again. What blocks takes less only if a
/// handler ran meanwhile: then there are not `handled` any more.
fn takes_all(fd: usize, handled: Option<u32>) -> bool {
    let kind = file::fstat(to_int(fd)).map(|stat| stat.st_mode & file::S_IFMT);
    match kind {
        Ok(file::S_IFREG) => true,
        Ok(file::S_IFIFO | file::S_IFSOCK) => {
            let flags = file::fcntl(to_int(fd), file::F_GETFL, 0);
            let blocks = flags.is_ok_and(|flags| to_int(flags) & file::O_NONBLOCK == 0);
            blocks && handled.is_some() && handled == nr_handled()
        }
        _ => false,
    }
}

/// How many of the program's signals this thread has handled; `None`: it has no record.
fn nr_handled() -> Option<u32> {
    let record = tls::record();
    // SAFETY: this thread's record.
    (!record.is_null()).then(|| unsafe { (*record).nr_handled })
}

/// A result as C functions return it.
fn returned(ret: isize) -> isize {
    match from_raw(ret) {
        Ok(_) => ret,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

type Io = unsafe extern "C" fn(i32, usize, usize) -> isize;
type IoAt = unsafe extern "C" fn(i32, usize, usize, i64) -> isize;
type IoFlags = unsafe extern "C" fn(i32, usize, usize, i32) -> isize;
type IoVecs = unsafe extern "C" fn(i32, usize, i32) -> isize;
type Message = unsafe extern "C" fn(i32, usize, i32) -> isize;
type OneWord = unsafe extern "C" fn(usize) -> i32;
type Mask = unsafe extern "C" fn(i32, usize, usize) -> i32;

/// The C library's functions behind the ones here.
mod next {
    #![allow(
        non_upper_case_globals,
        reason = "named as the functions that they stand for"
    )]
    use super::Next;

    macro_rules! all {
        ($($name:ident)*) => {
            $(pub static $name: Next = Next::new({
                const NAME: &str = concat!(stringify!($name), "\0");
                match core::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            });)*
            /// Looks them all up, where locks of the loader can be waited for.
            pub fn find() {
                $(let _ = $name.get();)*
            }
        };
    }
    all! {
        syscall accept accept4 connect setsockopt
        read write pread pread64 pwrite pwrite64 send recv sendto recvfrom readv writev sendmsg
        recvmsg poll epoll_wait epoll_pwait epoll_pwait2 semtimedop sigtimedwait clock_gettime
        pthread_cancel sigprocmask pthread_sigmask
    }
}

/// The function, of the type that its symbol has.
fn real<T: Copy>(next: &Next) -> T {
    // SAFETY: by the callers below.
    unsafe { next.typed() }
}

extern "C" fn find_all() {
    next::find();
}

/// While the library is set up.
#[used]
#[unsafe(link_section = ".init_array.00002")]
static FIND: extern "C" fn() = find_all;

/// Whether a buffer is managed memory, and calls are issued here.
#[inline]
fn is_ours(addr: usize, len: usize) -> bool {
    on() && arena_part(addr, 1).is_some() && len > 0
}

/// A call that writes or sends the buffer in arguments 1 and 2. `real(n)` has the C library make it
/// for what comes after the first `n` bytes.
///
/// # Safety
/// The program's own call.
unsafe fn send_bytes(nr: usize, args: [usize; 6], real: impl Fn(usize) -> isize) -> isize {
    let [_, buf, len, ..] = args;
    if !is_ours(buf, len) || !is_tryable(buf, len) {
        return real(0);
    }
    // SAFETY: the caller's promise.
    match unsafe { attempt(nr, args, buf, len) } {
        Attempt::Library => real(0),
        Attempt::Done(ret) => returned(ret),
        Attempt::Partly(moved) => moved.cast_signed() + real(moved).max(0),
    }
}

/// A call that reads or receives to the buffer in arguments 1 and 2. `real` has the C library make
/// it.
///
/// # Safety
/// The program's own call.
unsafe fn receive_bytes(nr: usize, args: [usize; 6], real: impl FnOnce() -> isize) -> isize {
    let [_, buf, len, ..] = args;
    if !is_ours(buf, len) {
        return real();
    }
    // SAFETY: the caller's promise.
    unsafe { issue_read(nr, args, buf, len) }.map_or_else(real, returned)
}

/// `write(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: i32, buf: usize, len: usize) -> isize {
    let real = real::<Io>(&next::write);
    let args = [int(fd), buf, len, 0, 0, 0];
    // SAFETY: the program's own call.
    timed(|| unsafe { send_bytes(nr::WRITE, args, |n| real(fd, buf + n, len - n)) })
}

/// `read(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: i32, buf: usize, len: usize) -> isize {
    let real = real::<Io>(&next::read);
    let args = [int(fd), buf, len, 0, 0, 0];
    // SAFETY: the program's own call.
    timed(|| unsafe { receive_bytes(nr::READ, args, || real(fd, buf, len)) })
}

unsafe fn pwrite_with(real: IoAt, fd: i32, buf: usize, len: usize, at: i64) -> isize {
    let args = [int(fd), buf, len, position(at), 0, 0];
    let real = |n| {
        // SAFETY: the program's own call.
        unsafe { real(fd, buf + n, len - n, at.wrapping_add_unsigned(n as u64)) }
    };
    // SAFETY: the program's own call.
    unsafe { send_bytes(nr::PWRITE64, args, real) }
}

#[expect(clippy::cast_possible_truncation, reason = "64 bits")]
const fn position(at: i64) -> usize {
    at.cast_unsigned() as usize
}

unsafe fn pread_with(real: IoAt, fd: i32, buf: usize, len: usize, at: i64) -> isize {
    let args = [int(fd), buf, len, position(at), 0, 0];
    // SAFETY: the program's own call.
    unsafe { receive_bytes(nr::PREAD64, args, || real(fd, buf, len, at)) }
}

macro_rules! positioned {
    ($($name:ident => $with:path;)*) => {$(
        /// `pread(2)`, `pwrite(2)`.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: i32, buf: usize, len: usize, at: i64) -> isize {
            // SAFETY: the program's own call.
            unsafe { $with(real::<IoAt>(&next::$name), fd, buf, len, at) }
        }
    )*};
}
positioned! {
    pread => pread_with;
    pread64 => pread_with;
    pwrite => pwrite_with;
    pwrite64 => pwrite_with;
}

/// `send(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: i32, buf: usize, len: usize, flags: i32) -> isize {
    let real = real::<IoFlags>(&next::send);
    let args = [int(fd), buf, len, int(flags), 0, 0];
    // SAFETY: the program's own call.
    timed(|| unsafe {
        if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) != 0 {
            return real(fd, buf, len, flags);
        }
        send_bytes(nr::SENDTO, args, |n| real(fd, buf + n, len - n, flags))
    })
}

/// `recv(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: i32, buf: usize, len: usize, flags: i32) -> isize {
    let real = real::<IoFlags>(&next::recv);
    let args = [int(fd), buf, len, int(flags), 0, 0];
    // SAFETY: the program's own call.
    timed(|| unsafe {
        if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) != 0 {
            return real(fd, buf, len, flags);
        }
        receive_bytes(nr::RECVFROM, args, || real(fd, buf, len, flags))
    })
}

/// `pthread_cancel(3)`: from now on every call is the C library's, so that it can be cancelled.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: usize) -> i32 {
    CANCELS.store(true, Ordering::SeqCst);
    // SAFETY: the program's own call.
    unsafe { real::<OneWord>(&next::pthread_cancel)(thread) }
}
