//! *What*: the calls that programs make most, taken before they are trapped: a trap costs about two
//! microseconds, a look at the arguments nothing.
//!
//! What is done here without a pin is what may fail and be done again. A longer buffer must be
//! present (the page table tells); the call is issued through the stub page; if a page was evicted in between, the
//! call failed with `EFAULT` and has moved nothing, or has moved less and is carried on. That holds
//! for all that is written or sent, for reads from regular files (not `O_DIRECT`), pipes and stream
//! sockets, for `poll` and `epoll_wait`. All else goes to the C library, whose call is trapped.
//!
//! *Invariants*: nothing is held across the call, so a handler may jump out of it. A signal that finds
//! the call not issued, or to be issued again, makes it go to the C library instead ([`redirect`]), so
//! that cancellation of a blocked thread works; once a program cancels threads at all, every call goes
//! there.
//! *Locking*: none. *Context*: the program's.

mod masks;
mod vectors;

use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::{from_raw, int};
use uzswap_sys::{Errno, PAGE_SIZE, file, nr};

use super::frame::in_arena;
use super::pieces::{Kind, socket_kind};
use super::port;
use super::stub::{CALL, CALL_RETURN};
use crate::fds::Next;
use crate::maps::set_errno;

/// Longest buffers that are tried; longer ones are pinned.
const MOST: usize = 64 << 10;
/// Vectors that are looked at.
const MOST_VECTORS: usize = 64;
/// What a call returns that a signal kept from being issued.
const NOT_ISSUED: isize = -512;
const O_DIRECT: i32 = 0o40_000;
const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;
const MSG_MORE: i32 = 0x8000;

/// The program cancels threads. Set before the first one is told, whose call is then issued again by
/// the C library, where it can be cancelled.
static CANCELS: AtomicBool = AtomicBool::new(false);

#[inline]
fn on() -> bool {
    super::enabled() && !CANCELS.load(Ordering::Relaxed)
}

/// Issues a call through the stub page.
#[unsafe(naked)]
unsafe extern "C" fn issue(
    nr: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "movabs r11, {call}",
        "jmp r11",
        call = const CALL,
    )
}

/// Makes a call of [`issue`] that a signal interrupted, and that is still to be issued, return
/// [`NOT_ISSUED`]. For handlers, with contexts outside the window.
pub fn redirect(uc: &mut UContext) {
    if uzswap_core::arena::narrow(uc.uc_mcontext.rip) == CALL {
        uc.uc_mcontext.rip = CALL_RETURN as u64;
        uc.set_syscall_return(NOT_ISSUED);
    }
}

/// Whether the buffer is worth trying: within a page, the call itself finds out; over several, all
/// must be present just now, since a call that stops at a page between is not what was asked for.
fn is_tryable(addr: usize, len: usize) -> bool {
    let within = (addr % PAGE_SIZE).saturating_add(len) <= PAGE_SIZE;
    within || is_present(addr, len)
}

/// Whether every page of the buffer is present just now.
fn is_present(addr: usize, len: usize) -> bool {
    len <= MOST && port::is_resident(addr, len)
}

/// What became of an attempt.
enum Attempt {
    /// The C library is to make the call.
    Library,
    /// This is the call's result.
    Done(isize),
    /// So much was moved when a page was missing: the C library is to go on from there.
    Partly(usize),
}

/// Issues a call that moves `len` bytes from `addr`, or to it if `read`.
unsafe fn attempt(nr: usize, args: [usize; 6], addr: usize, len: usize, read: bool) -> Attempt {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the program's own call.
    let ret = unsafe { issue(nr, a, b, c, d, e, f) };
    if ret == NOT_ISSUED || ret == -(Errno::EFAULT.0 as isize) {
        return Attempt::Library;
    }
    let Ok(moved) = usize::try_from(ret) else {
        return Attempt::Done(ret);
    };
    // A page that is being evicted is present and cannot be written to: a read that came short may
    // be due to that.
    if moved > 0 && moved < len && (read || !is_present(addr + moved, 1)) {
        return Attempt::Partly(moved);
    }
    Attempt::Done(ret)
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

/// The sum of what a fast attempt moved and what the C library did after it.
fn sum(moved: usize, more: isize) -> isize {
    if more > 0 {
        moved.cast_signed() + more
    } else {
        moved.cast_signed()
    }
}

/// Descriptors that were sockets when they were last looked at: a hint which question to ask first.
static SOCKETS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn socket_bit(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((SOCKETS.get(fd / 64)?, 1 << (fd % 64)))
}

fn was_socket(fd: i32) -> bool {
    socket_bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

fn remember_socket(fd: i32) {
    if let Some((word, bit)) = socket_bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Whether a read from `fd` that fails with `EFAULT` leaves what it was to read where it was, and if
/// so, what `fd` is.
fn may_be_repeated(fd: i32) -> Option<Kind> {
    const S_IFIFO: u32 = 0o010_000;
    const S_IFSOCK: u32 = 0o140_000;
    if was_socket(fd)
        && let Some(kind) = socket_kind(int(fd))
    {
        return (kind == Kind::Stream).then_some(kind);
    }
    let stat = file::fstat(fd).ok()?;
    match stat.st_mode & file::S_IFMT {
        file::S_IFREG => {
            let flags = file::fcntl(fd, file::F_GETFL, 0).ok()?;
            (flags & int(O_DIRECT) == 0).then_some(Kind::File)
        }
        S_IFIFO => Some(Kind::Stream),
        S_IFSOCK => {
            remember_socket(fd);
            socket_kind(int(fd)).filter(|kind| *kind == Kind::Stream)
        }
        // Terminals and devices: who knows.
        _ => None,
    }
}

type Io = unsafe extern "C" fn(i32, usize, usize) -> isize;
type IoAt = unsafe extern "C" fn(i32, usize, usize, i64) -> isize;
type IoFlags = unsafe extern "C" fn(i32, usize, usize, i32) -> isize;
type IoPeer = unsafe extern "C" fn(i32, usize, usize, i32, usize, usize) -> isize;
type IoVecs = unsafe extern "C" fn(i32, usize, i32) -> isize;
type Message = unsafe extern "C" fn(i32, usize, i32) -> isize;
type Poll = unsafe extern "C" fn(usize, usize, i32) -> i32;
type EpollWait = unsafe extern "C" fn(i32, usize, i32, i32) -> i32;
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
        read write pread pread64 pwrite pwrite64 send recv sendto recvfrom readv writev sendmsg
        recvmsg poll epoll_wait pthread_cancel sigprocmask pthread_sigmask
    }
}

/// The function, of the type that its symbol has.
fn real<T: Copy>(next: &Next) -> T {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    let f = next.get();
    // SAFETY: a function pointer of the symbol's type, by the callers below.
    unsafe { core::mem::transmute_copy::<*mut c_void, T>(&f) }
}

extern "C" fn find_all() {
    next::find();
}

/// While the library is set up.
#[used]
#[unsafe(link_section = ".init_array.00002")]
static FIND: extern "C" fn() = find_all;

/// A buffer that is worth an attempt.
fn is_ours(addr: usize, len: usize) -> bool {
    on() && in_arena(addr, 1).is_some() && len > 0 && is_tryable(addr, len)
}

/// `write(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: i32, buf: usize, len: usize) -> isize {
    let real = real::<Io>(&next::write);
    // SAFETY: the program's own call, here and below.
    unsafe {
        if !is_ours(buf, len) {
            return real(fd, buf, len);
        }
        match attempt(nr::WRITE, [int(fd), buf, len, 0, 0, 0], buf, len, false) {
            Attempt::Library => real(fd, buf, len),
            Attempt::Done(ret) => returned(ret),
            Attempt::Partly(n) => sum(n, real(fd, buf + n, len - n)),
        }
    }
}

/// `read(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: i32, buf: usize, len: usize) -> isize {
    let real = real::<Io>(&next::read);
    // SAFETY: the program's own call.
    unsafe {
        if !is_ours(buf, len) {
            return real(fd, buf, len);
        }
        let Some(kind) = may_be_repeated(fd) else {
            return real(fd, buf, len);
        };
        match attempt(nr::READ, [int(fd), buf, len, 0, 0, 0], buf, len, true) {
            Attempt::Library => real(fd, buf, len),
            Attempt::Done(ret) => returned(ret),
            Attempt::Partly(n) if kind == Kind::File => {
                let rest = [int(fd), buf + n, len - n, 0, 0, 0];
                match attempt(nr::READ, rest, buf + n, len - n, true) {
                    Attempt::Done(0) => n.cast_signed(),
                    Attempt::Done(ret) if ret > 0 => sum(n, ret),
                    Attempt::Partly(more) => {
                        sum(n + more, real(fd, buf + n + more, len - n - more))
                    }
                    _ => sum(n, real(fd, buf + n, len - n)),
                }
            }
            Attempt::Partly(n) => n.cast_signed(),
        }
    }
}

unsafe fn pwrite_with(real: IoAt, fd: i32, buf: usize, len: usize, at: i64) -> isize {
    // SAFETY: the program's own call.
    unsafe {
        if !is_ours(buf, len) {
            return real(fd, buf, len, at);
        }
        let args = [int(fd), buf, len, position(at), 0, 0];
        match attempt(nr::PWRITE64, args, buf, len, false) {
            Attempt::Library => real(fd, buf, len, at),
            Attempt::Done(ret) => returned(ret),
            Attempt::Partly(n) => sum(
                n,
                real(fd, buf + n, len - n, at.wrapping_add_unsigned(n as u64)),
            ),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "64 bits")]
const fn position(at: i64) -> usize {
    at.cast_unsigned() as usize
}

unsafe fn pread_with(real: IoAt, fd: i32, buf: usize, len: usize, at: i64) -> isize {
    // SAFETY: the program's own call.
    unsafe {
        if !is_ours(buf, len) || may_be_repeated(fd) != Some(Kind::File) {
            return real(fd, buf, len, at);
        }
        let args = [int(fd), buf, len, position(at), 0, 0];
        match attempt(nr::PREAD64, args, buf, len, true) {
            Attempt::Library => real(fd, buf, len, at),
            Attempt::Done(ret) => returned(ret),
            Attempt::Partly(n) => sum(
                n,
                real(fd, buf + n, len - n, at.wrapping_add_unsigned(n as u64)),
            ),
        }
    }
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
    // SAFETY: the program's own call.
    unsafe {
        if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) != 0 || !is_ours(buf, len) {
            return real(fd, buf, len, flags);
        }
        match attempt(
            nr::SENDTO,
            [int(fd), buf, len, int(flags), 0, 0],
            buf,
            len,
            false,
        ) {
            Attempt::Library => real(fd, buf, len, flags),
            Attempt::Done(ret) => returned(ret),
            Attempt::Partly(n) => sum(n, real(fd, buf + n, len - n, flags)),
        }
    }
}

/// `recv(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: i32, buf: usize, len: usize, flags: i32) -> isize {
    let real = real::<IoFlags>(&next::recv);
    // SAFETY: the program's own call.
    unsafe {
        if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) != 0
            || !is_ours(buf, len)
            || may_be_repeated(fd) != Some(Kind::Stream)
        {
            return real(fd, buf, len, flags);
        }
        match attempt(
            nr::RECVFROM,
            [int(fd), buf, len, int(flags), 0, 0],
            buf,
            len,
            true,
        ) {
            Attempt::Library => real(fd, buf, len, flags),
            Attempt::Done(ret) => returned(ret),
            Attempt::Partly(n) => n.cast_signed(),
        }
    }
}

/// `recvfrom(2)`: as [`recv`] where no address is asked for.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: i32,
    buf: usize,
    len: usize,
    flags: i32,
    name: usize,
    name_len: usize,
) -> isize {
    // SAFETY: the program's own call.
    unsafe {
        if name == 0 {
            return recv(fd, buf, len, flags);
        }
        real::<IoPeer>(&next::recvfrom)(fd, buf, len, flags, name, name_len)
    }
}

/// `sendto(2)`: as [`send`] where no address is given.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: i32,
    buf: usize,
    len: usize,
    flags: i32,
    name: usize,
    name_len: usize,
) -> isize {
    // SAFETY: the program's own call.
    unsafe {
        if name == 0 {
            return send(fd, buf, len, flags);
        }
        real::<IoPeer>(&next::sendto)(fd, buf, len, flags, name, name_len)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "these calls return an int")]
fn returned_int(ret: isize) -> i32 {
    returned(ret) as i32
}

/// `poll(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: usize, nr_fds: usize, timeout: i32) -> i32 {
    let real = real::<Poll>(&next::poll);
    // SAFETY: the program's own call.
    unsafe {
        if is_ours(fds, nr_fds.saturating_mul(8)) {
            let ret = issue(nr::POLL, fds, nr_fds, int(timeout), 0, 0, 0);
            if ret != NOT_ISSUED && ret != -(Errno::EFAULT.0 as isize) {
                return returned_int(ret);
            }
        }
        real(fds, nr_fds, timeout)
    }
}

/// `epoll_wait(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(fd: i32, events: usize, most: i32, timeout: i32) -> i32 {
    let real = real::<EpollWait>(&next::epoll_wait);
    // SAFETY: the program's own call.
    unsafe {
        let len = usize::try_from(most).unwrap_or(0).saturating_mul(12);
        if is_ours(events, len) {
            let ret = issue(
                nr::EPOLL_WAIT,
                int(fd),
                events,
                int(most),
                int(timeout),
                0,
                0,
            );
            if ret != NOT_ISSUED && ret != -(Errno::EFAULT.0 as isize) {
                return returned_int(ret);
            }
        }
        real(fd, events, most, timeout)
    }
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
