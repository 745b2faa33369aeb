//! *What*: the kernel's asynchronous I/O (`io_setup` and its family, not the C library's): several
//! reads in flight from one thread. Reads of a file or block device opened with `O_DIRECT` run at
//! the same time; the kernel does others one after the other.
//! *Invariants*: a [`Context`] belongs to the process that made it; a fork child has none.
//! *Locking*: the kernel's. *Context*: any; [`wait`] waits.

use crate::nr;
use crate::syscall::{Result, addr_mut, call2, call3, call5};

/// Takes requests and returns events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(usize);

/// A request (`struct iocb`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: i32,
    buffer: u64,
    len: u64,
    offset: u64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

impl Request {
    /// A read of nothing.
    pub const NONE: Request = Request {
        data: 0,
        key: 0,
        rw_flags: 0,
        opcode: 0,
        priority: 0,
        fd: -1,
        buffer: 0,
        len: 0,
        offset: 0,
        reserved: 0,
        flags: 0,
        event_fd: 0,
    };

    /// As `pread(fd, buffer, len, offset)`; its event carries `data`.
    #[must_use]
    pub fn pread(fd: i32, buffer: *mut u8, len: usize, offset: u64, data: u64) -> Request {
        Request {
            data,
            // IOCB_CMD_PREAD is 0, as in NONE.
            fd,
            buffer: buffer.expose_provenance() as u64,
            len: len as u64,
            offset,
            ..Request::NONE
        }
    }
}

/// The outcome of a request (`struct io_event`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Event {
    /// The request's `data`.
    pub data: u64,
    request: u64,
    /// Bytes transferred, or minus an error number.
    pub result: i64,
    result2: i64,
}

/// `io_setup(2)`: a context for `nr` requests.
///
/// # Errors
/// `ENOSYS`: there is no such call, or it is not allowed. `EAGAIN`: the system has too many.
pub fn setup(nr: u32) -> Result<Context> {
    let mut context = 0_usize;
    let at = addr_mut(&mut context);
    // SAFETY: the kernel writes one word.
    unsafe { call2(nr::IO_SETUP, nr as usize, at) }.map(|_| Context(context))
}

/// `io_submit(2)`: starts requests in order; returns how many were started.
///
/// # Errors
/// As io_submit(2), if none was started; `EINVAL`: no context of this process, for one.
///
/// # Safety
/// The requests that `requests` point to live during the call; their buffers are the kernel's until
/// [`wait`] has returned the event of each, or [`destroy`] has returned.
pub unsafe fn submit(context: Context, requests: &[*const Request]) -> Result<usize> {
    // SAFETY: the kernel reads the list and the requests; the buffers are the caller's promise.
    unsafe {
        call3(
            nr::IO_SUBMIT,
            context.0,
            requests.len(),
            requests.as_ptr() as usize,
        )
    }
}

/// `io_getevents(2)`: waits for `least` events; returns how many it wrote.
///
/// # Errors
/// `EINTR`: a signal; `EINVAL`: no context of this process.
pub fn wait(context: Context, least: usize, events: &mut [Event]) -> Result<usize> {
    // SAFETY: the kernel writes within the slice.
    unsafe {
        call5(
            nr::IO_GETEVENTS,
            context.0,
            least,
            events.len(),
            events.as_mut_ptr() as usize,
            0,
        )
    }
}

/// `io_destroy(2)`: waits for the requests in flight and ends the context.
///
/// # Errors
/// `EINVAL`: no context of this process.
pub fn destroy(context: Context) -> Result<()> {
    // SAFETY: touches no memory of the caller's but the buffers of requests in flight.
    unsafe { crate::syscall::call1(nr::IO_DESTROY, context.0) }.map(drop)
}
