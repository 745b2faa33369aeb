//! *What*: reading and writing the host's memory where a bad address must be `EFAULT` and no fault.
//!
//! *Invariants*: what of it lies in pools has been pinned by the caller.
//! *Locking*: none. *Context*: signal, and threads of the host.

use std::mem::MaybeUninit;

use uzswap_sys::mem::IoVec;
use uzswap_sys::syscall::{call6, int};
use uzswap_sys::{Errno, nr, thread};

/// How far above the current frame the stack is certainly mapped.
const NEAR: usize = 4096;

/// The value at `from`.
///
/// # Safety
/// Any bytes make a `T`.
pub(crate) unsafe fn read<T: Copy>(from: usize) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::uninit();
    copy(
        nr::PROCESS_VM_READV,
        value.as_mut_ptr() as usize,
        from,
        size_of::<T>(),
    )?;
    // SAFETY: copied whole; the caller's promise.
    Ok(unsafe { value.assume_init() })
}

/// Fills `to` with what is at `from`.
///
/// # Safety
/// Any bytes make a `T`.
pub(crate) unsafe fn read_all<T: Copy>(to: &mut [T], from: usize) -> Result<(), Errno> {
    let len = size_of_val(to);
    copy(nr::PROCESS_VM_READV, to.as_mut_ptr() as usize, from, len)
}

/// Writes `value` to `to`.
pub(crate) fn write<T: Copy>(to: usize, value: T) -> Result<(), Errno> {
    let from = (&raw const value) as usize;
    copy(nr::PROCESS_VM_WRITEV, from, to, size_of::<T>())
}

fn copy(call: usize, ours: usize, theirs: usize, len: usize) -> Result<(), Errno> {
    let here = 0_u8;
    let sp = (&raw const here) as usize;
    if theirs >= sp && theirs.saturating_add(len) <= sp.saturating_add(NEAR) {
        copy_directly(call, ours, theirs, len);
        return Ok(());
    }
    let [local, remote] = [ours, theirs].map(|base| IoVec { base, len });
    let [local, remote] = [&local, &remote].map(|vector| core::ptr::from_ref(vector) as usize);
    // The process of the moment: a vfork child has a number of its own.
    let pid = int(thread::getpid());
    // SAFETY: ours is the caller's; the kernel checks the other.
    match unsafe { call6(call, pid, local, 1, remote, 1, 0) } {
        Ok(moved) if moved == len => Ok(()),
        Ok(_) | Err(Errno::EFAULT) => Err(Errno::EFAULT),
        // A sandbox forbids the call. A bad address is a fault then.
        Err(_) => {
            copy_directly(call, ours, theirs, len);
            Ok(())
        }
    }
}

fn copy_directly(call: usize, ours: usize, theirs: usize, len: usize) {
    let (to, from) = match call {
        nr::PROCESS_VM_READV => (ours, theirs),
        _ => (theirs, ours),
    };
    // SAFETY: ours is valid for that; theirs is the host's, as it says itself.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) };
}
