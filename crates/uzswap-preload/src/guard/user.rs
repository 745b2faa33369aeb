//! *What*: reading and writing the program's memory from a handler, where a bad address must end in
//! `EFAULT` and not in a fault with all signals blocked.
//!
//! *Invariants*: memory in the arena is pinned by the caller before.
//! *Locking*: none. *Context*: signal.

use uzswap_core::arena_part;
use uzswap_sys::mem::IoVec;
use uzswap_sys::syscall::call6;
use uzswap_sys::{Errno, nr, thread};

use super::frame::Frame;
use crate::threads;

/// Copies `size_of::<T>() * count` bytes at `from` in the program to `to`.
///
/// # Errors
/// `EFAULT`: not all of it is readable.
///
/// # Safety
/// `to` is valid for that; any bytes make a `T`.
pub unsafe fn read<T: Copy>(to: *mut T, from: usize, count: usize) -> Result<(), Errno> {
    let len = size_of::<T>() * count;
    // SAFETY: the caller's promise.
    unsafe { transfer(nr::PROCESS_VM_READV, to as usize, from, len) }
}

/// One value of the program.
///
/// # Errors
/// `EFAULT`: not readable.
///
/// # Safety
/// Any bytes make a `T`.
pub unsafe fn value<T: Copy + Default>(from: usize) -> Result<T, Errno> {
    let mut to = T::default();
    // SAFETY: the caller's promise.
    unsafe { read(&raw mut to, from, 1) }?;
    Ok(to)
}

/// Copies `value` to `to` in the program.
///
/// # Errors
/// `EFAULT`: not writable.
pub fn write<T: Copy>(to: usize, value: &T) -> Result<(), Errno> {
    let from = core::ptr::from_ref(value) as usize;
    // SAFETY: the kernel reads the value and checks the destination.
    unsafe { transfer(nr::PROCESS_VM_WRITEV, from, to, size_of::<T>()) }
}

/// Copies bytes to `to` in the program.
///
/// # Errors
/// `EFAULT`: not writable.
pub fn write_bytes(to: usize, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the kernel reads the bytes and checks the destination.
    unsafe {
        let from = bytes.as_ptr() as usize;
        transfer(nr::PROCESS_VM_WRITEV, from, to, bytes.len())
    }
}

unsafe fn transfer(call: usize, ours: usize, theirs: usize, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    if theirs == 0 {
        return Err(Errno::EFAULT);
    }
    if is_near_stack(theirs, len) {
        // SAFETY: `ours` is the caller's promise; the other is the program's stack.
        unsafe { copy(call, ours, theirs, len) };
        return Ok(());
    }
    let local = IoVec { base: ours, len };
    let remote = IoVec { base: theirs, len };
    let local = core::ptr::from_ref(&local) as usize;
    let remote = core::ptr::from_ref(&remote) as usize;
    // The process of the moment: a vfork child has a number of its own.
    let pid = uzswap_sys::syscall::int(thread::getpid());
    // SAFETY: `ours` is the caller's promise, `theirs` is checked by the kernel.
    match unsafe { call6(call, pid, local, 1, remote, 1, 0) } {
        Ok(n) if n == len => Ok(()),
        Ok(_) | Err(Errno::EFAULT) => Err(Errno::EFAULT),
        // A sandbox forbids the call: access the memory directly.
        // SAFETY: as natively, a bad address is the end.
        Err(_) => unsafe {
            copy(call, ours, theirs, len);
            Ok(())
        },
    }
}

unsafe fn copy(call: usize, ours: usize, theirs: usize, len: usize) {
    let (to, from) = if call == nr::PROCESS_VM_READV {
        (ours, theirs)
    } else {
        (theirs, ours)
    };
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) };
}

/// Whether memory is in the stack frames of the trapped call: certainly mapped, and half a
/// microsecond saved.
fn is_near_stack(addr: usize, len: usize) -> bool {
    const NEAR: usize = 4096;
    let here = 0u8;
    let Some(r) = threads::at(core::ptr::from_ref(&here) as usize) else {
        return false;
    };
    // SAFETY: this thread's record, by the stack that we run on.
    let Some(sp) = (unsafe { Frame::stack_pointer(r) }) else {
        return false;
    };
    addr >= sp && addr.saturating_add(len) <= sp + NEAR && arena_part(addr, len).is_none()
}
