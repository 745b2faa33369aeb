//! *What*: `execve` and `execveat`: arguments and environment are copied out of the arena first.
//!
//! *Invariants*: the copies are in a mapping of their own, noted in the record. A failed call
//! unmaps it at once; after a vfork child's success, the parent does at its next trapped call.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::mem::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap};
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::frame::{Frame, in_arena};
use super::stub::Call;
use super::{ranges, user};
use crate::init::ENGINE;
use crate::request;
use crate::threads::{self, Record};

/// Longest single argument (`MAX_ARG_STRLEN`).
const MAX_STRING_BYTES: usize = 128 << 10;
/// Most arguments that are read. The kernel refuses so many: their pointers alone exceed 6 MiB.
const MAX_STRINGS: usize = 1 << 20;

/// Memory that copies are put into, one after the other.
struct Copies {
    at: usize,
    end: usize,
}

/// Issues the call. Returns only if it failed.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn exec(m: &Masked, r: *mut Record, call: &Call) -> Result<isize, Errno> {
    let mut call = *call;
    let path = usize::from(call.nr == nr::EXECVEAT);
    let (argv, envp) = (path + 1, path + 2);
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        ranges::pin_string(m, r, call.args[path], PAGE_SIZE)?;
        let arrays = [call.args[argv], call.args[envp]];
        let copied = copy_out(m, r, &arrays).inspect_err(|_| threads::drop_exec(r));
        [call.args[argv], call.args[envp]] = copied?;
        let shut = request::shut_door(m);
        // It would hold the old program's memory.
        let held = ENGINE.hold_reclaimer(m);
        // In the window: the new program inherits the program's own mask, not a handler's.
        let ret = Frame::issue(r, &call);
        drop(held);
        if shut {
            request::open_door();
        }
        threads::drop_exec(r);
        Ok(ret)
    }
}

/// Copies what of the two arrays and their strings lies in the arena; returns the arrays to pass.
unsafe fn copy_out(m: &Masked, r: *mut Record, arrays: &[usize; 2]) -> Result<[usize; 2], Errno> {
    // SAFETY: the record is this thread's; the memory mapped here is as long as was counted.
    unsafe {
        let mut room = 0;
        let mut any = false;
        for array in arrays {
            let (len, ours) = measure(m, r, *array)?;
            any |= ours;
            room += len;
        }
        if !any {
            return Ok(*arrays);
        }
        let room = room.next_multiple_of(PAGE_SIZE);
        let prot = PROT_READ | PROT_WRITE;
        let at = mmap(0, room, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)?;
        (*r).exec = [at, room];
        let mut copies = Copies { at, end: at + room };
        let mut out = *arrays;
        for array in &mut out {
            *array = copies.array(m, r, *array)?;
        }
        Ok(out)
    }
}

/// Reads `len` bytes of the program, pinned meanwhile.
unsafe fn read_pinned(
    m: &Masked,
    r: *mut Record,
    to: *mut u8,
    from: usize,
    len: usize,
) -> Result<(), Errno> {
    // SAFETY: the record is this thread's with an open frame; the caller's buffer holds `len`.
    unsafe {
        let kept = (*r).frame.nr_pins;
        Frame::pin_whole(m, r, from, len)?;
        let read = user::read(to, from, len);
        Frame::unpin_to(m, r, kept);
        read
    }
}

/// Reads a word of the program.
unsafe fn word(m: &Masked, r: *mut Record, at: usize) -> Result<usize, Errno> {
    // SAFETY: the record is this thread's with an open frame; a word is a number.
    unsafe {
        let mut word = 0usize;
        read_pinned(m, r, (&raw mut word).cast(), at, size_of::<usize>())?;
        Ok(word)
    }
}

/// Length of the string at `at` with its zero byte, which may be [`MAX_STRING_BYTES`] + 1.
unsafe fn string_len(m: &Masked, r: *mut Record, at: usize) -> Result<usize, Errno> {
    let mut len = 0;
    while len <= MAX_STRING_BYTES {
        let here = at + len;
        let part = PAGE_SIZE - here % PAGE_SIZE;
        let mut page = [0u8; PAGE_SIZE];
        // SAFETY: the record is this thread's with an open frame; the buffer holds a page.
        unsafe { read_pinned(m, r, page.as_mut_ptr(), here, part) }?;
        if let Some(zero) = page.iter().take(part).position(|b| *b == 0) {
            return Ok(len + zero + 1);
        }
        len += part;
    }
    // The kernel refuses it: E2BIG.
    Err(Errno::E2BIG)
}

/// Bytes that a copy of the array takes, and whether one is needed.
unsafe fn measure(m: &Masked, r: *mut Record, array: usize) -> Result<(usize, bool), Errno> {
    if array == 0 {
        return Ok((0, false));
    }
    let mut len = 8usize;
    let mut ours = in_arena(array, 8).is_some();
    for n in 0..MAX_STRINGS {
        // SAFETY: as the caller's.
        let string = match unsafe { word(m, r, array + n * 8) } {
            Ok(0) => return Ok((len.next_multiple_of(8), ours)),
            Ok(string) => string,
            // The kernel reports the bad pointer.
            Err(Errno::EFAULT) => return Ok((0, false)),
            Err(errno) => return Err(errno),
        };
        len += 8;
        if in_arena(string, 1).is_some() {
            ours = true;
            // SAFETY: as the caller's.
            len += unsafe { string_len(m, r, string) }?;
        }
    }
    Err(Errno::E2BIG)
}

impl Copies {
    fn take(&mut self, len: usize) -> Result<usize, Errno> {
        let at = self.at;
        // Another thread may have made a string longer since it was measured.
        if self.end - at < len {
            return Err(Errno::E2BIG);
        }
        self.at += len;
        Ok(at)
    }

    /// Copies the array, and its strings that lie in the arena.
    unsafe fn array(&mut self, m: &Masked, r: *mut Record, array: usize) -> Result<usize, Errno> {
        if array == 0 {
            return Ok(0);
        }
        let mut count = 0;
        // SAFETY: as `copy_out`; the copies are in memory that was mapped for them.
        unsafe {
            loop {
                match word(m, r, array + count * 8) {
                    Ok(0) => break,
                    Ok(_) => count += 1,
                    Err(_) => return Ok(array),
                }
                if count > MAX_STRINGS {
                    return Err(Errno::E2BIG);
                }
            }
            let copy = self.take((count + 1) * 8)?;
            let words = copy as *mut usize;
            for n in 0..count {
                let string = word(m, r, array + n * 8)?;
                let string = if in_arena(string, 1).is_some() {
                    self.string(m, r, string)?
                } else {
                    string
                };
                words.add(n).write(string);
            }
            words.add(count).write(0);
            self.at = self.at.next_multiple_of(8);
            Ok(copy)
        }
    }

    unsafe fn string(&mut self, m: &Masked, r: *mut Record, string: usize) -> Result<usize, Errno> {
        // SAFETY: as `array`.
        unsafe {
            let len = string_len(m, r, string)?;
            let copy = self.take(len)?;
            let mut done = 0;
            while done < len {
                let here = string + done;
                let part = (PAGE_SIZE - here % PAGE_SIZE).min(len - done);
                read_pinned(m, r, (copy + done) as *mut u8, here, part)?;
                done += part;
            }
            Ok(copy)
        }
    }
}
