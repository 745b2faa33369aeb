//! *What*: `execve` and `execveat`: arguments and environment are copied out of the arena first.
//! What the library cannot serve ([`super::servable`]) gets an environment without it: a program of
//! another C library would not start. Its children run unmanaged, too. Once the program filters its
//! calls, nothing of that is done: what it takes may be forbidden, on pain of death.
//!
//! *Invariants*: the copies are in a mapping of their own, noted in the record. A failed call
//! unmaps it at once; after a vfork child's success, the parent does at its next trapped call.
//! *Locking*: the engine's. *Context*: signal.

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use uzswap_core::Masked;
use uzswap_group::group::GROUP_ENV;
use uzswap_sys::file::AT_FDCWD;
use uzswap_sys::mem::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap};
use uzswap_sys::syscall::{call1, to_int};
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::frame::{Frame, in_arena};
use super::servable::{self, is_servable};
use super::stub::Call;
use super::{ranges, user};
use crate::environ::{LD_PRELOAD, without_ours};
use crate::init::ENGINE;
use crate::request;
use crate::threads::{self, Record};

/// Longest single argument (`MAX_ARG_STRLEN`).
const MAX_STRING_BYTES: usize = 128 << 10;
/// Most arguments that are read. The kernel refuses so many: their pointers alone exceed 6 MiB.
const MAX_STRINGS: usize = 1 << 20;

/// Longest path, its zero byte included.
const PATH_MAX: usize = 4096;
/// Personality: no random addresses.
const ADDR_NO_RANDOMIZE: usize = 0x4_0000;

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
        let looks = !super::OWN_FILTER.load(Ordering::Relaxed);
        let servable = !looks || serves(m, r, &call);
        let arrays = [call.args[argv], call.args[envp]];
        let copied = copy_out(m, r, &arrays, !servable).inspect_err(|_| threads::drop_exec(r));
        [call.args[argv], call.args[envp]] = copied?;
        let fixed = looks.then(fixed_addresses).flatten().filter(|personality| {
            let managed = servable && has_library(m, r, call.args[envp]);
            !managed && set_personality(personality & !ADDR_NO_RANDOMIZE).is_ok()
        });
        let shut = request::shut_door(m);
        // It would hold the old program's memory.
        let held = ENGINE.hold_reclaimer(m);
        // In the window: the new program inherits the program's own mask, not a handler's.
        let ret = Frame::issue(r, &call);
        drop(held);
        if let Some(personality) = fixed {
            let _ = set_personality(personality);
        }
        if shut {
            request::open_door();
        }
        threads::drop_exec(r);
        Ok(ret)
    }
}

/// Whether the library serves what `call` executes.
unsafe fn serves(m: &Masked, r: *mut Record, call: &Call) -> bool {
    let [a, b, _, _, e, _] = call.args;
    let (dir, at, flags) = match call.nr {
        nr::EXECVEAT => (to_int(a), b, to_int(e)),
        _ => (AT_FDCWD, a, 0),
    };
    let mut path = [0u8; PATH_MAX];
    // SAFETY: the record is this thread's with an open frame; what is read fits.
    unsafe {
        match string_len(m, r, at) {
            Ok(len) if len <= path.len() => {
                if read_string(m, r, path.as_mut_ptr(), at, len).is_err() {
                    return true;
                }
            }
            // The kernel refuses it.
            _ => return true,
        }
    }
    CStr::from_bytes_until_nul(&path)
        .is_ok_and(|path| is_servable(servable::File { dir, path, flags }))
}

/// Whether an environment names libraries to preload, ours for all we know.
unsafe fn has_library(m: &Masked, r: *mut Record, envp: usize) -> bool {
    if envp == 0 {
        return false;
    }
    for n in 0..MAX_STRINGS {
        // SAFETY: the record is this thread's with an open frame.
        unsafe {
            match word(m, r, envp + n * 8) {
                Ok(0) | Err(_) => return false,
                Ok(string) if is_variable(m, r, string, LD_PRELOAD) == Ok(true) => return true,
                Ok(_) => {}
            }
        }
    }
    false
}

/// The personality, if it has programs lie at fixed addresses (`setarch -R`). What is executed and
/// not managed would have its text where this program has, which our filter names: the kernel is to
/// choose its addresses.
fn fixed_addresses() -> Option<usize> {
    const ASK: usize = 0xffff_ffff;
    let personality = set_personality(ASK).ok()?;
    (personality & ADDR_NO_RANDOMIZE != 0).then_some(personality)
}

fn set_personality(personality: usize) -> Result<usize, Errno> {
    // SAFETY: changes no memory.
    unsafe { call1(nr::PERSONALITY, personality) }
}

/// Copies what of the two arrays and their strings lies in the arena; returns the arrays to pass.
/// `bare`: the second, the environment, loses our library.
unsafe fn copy_out(
    m: &Masked,
    r: *mut Record,
    arrays: &[usize; 2],
    bare: bool,
) -> Result<[usize; 2], Errno> {
    // SAFETY: the record is this thread's; the memory mapped here is as long as was counted.
    unsafe {
        let mut room = 0;
        let mut any = bare;
        for (array, bare) in arrays.iter().zip([false, bare]) {
            let (len, ours) = measure(m, r, *array, bare)?;
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
        for (array, bare) in out.iter_mut().zip([false, bare]) {
            *array = copies.array(m, r, *array, bare)?;
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

/// Copies `len` bytes of a string to `to`.
unsafe fn read_string(
    m: &Masked,
    r: *mut Record,
    to: *mut u8,
    string: usize,
    len: usize,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let here = string + done;
        let part = (PAGE_SIZE - here % PAGE_SIZE).min(len - done);
        // SAFETY: the caller's buffer holds `len`.
        unsafe { read_pinned(m, r, to.add(done), here, part) }?;
        done += part;
    }
    Ok(())
}

/// Whether a string of an environment is the variable `name`.
unsafe fn is_variable(
    m: &Masked,
    r: *mut Record,
    string: usize,
    name: &str,
) -> Result<bool, Errno> {
    let mut bytes = [0u8; 16];
    // SAFETY: the record is this thread's with an open frame; what is read fits.
    unsafe {
        let len = string_len(m, r, string)?.min(bytes.len());
        read_string(m, r, bytes.as_mut_ptr(), string, len)?;
    }
    let value = bytes.strip_prefix(name.as_bytes());
    Ok(value.is_some_and(|value| value.first() == Some(&b'=')))
}

/// Bytes that a copy of the array takes, and whether one is needed. `bare`: of the environment
/// without our library, whose list of libraries is copied, too.
unsafe fn measure(
    m: &Masked,
    r: *mut Record,
    array: usize,
    bare: bool,
) -> Result<(usize, bool), Errno> {
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
        let here = in_arena(string, 1).is_some();
        ours |= here;
        // SAFETY: as the caller's.
        unsafe {
            if here || bare && is_variable(m, r, string, LD_PRELOAD)? {
                len += string_len(m, r, string)?;
            }
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

    /// Copies the array, and its strings that lie in the arena. `bare`: it is an environment, and
    /// loses our library.
    unsafe fn array(
        &mut self,
        m: &Masked,
        r: *mut Record,
        array: usize,
        bare: bool,
    ) -> Result<usize, Errno> {
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
            let mut kept = 0;
            for n in 0..count {
                let string = word(m, r, array + n * 8)?;
                let string = if bare && is_variable(m, r, string, GROUP_ENV)? {
                    continue;
                } else if bare && is_variable(m, r, string, LD_PRELOAD)? {
                    match self.libraries(m, r, string)? {
                        Some(others) => others,
                        None => continue,
                    }
                } else if in_arena(string, 1).is_some() {
                    self.string(m, r, string)?
                } else {
                    string
                };
                words.add(kept).write(string);
                kept += 1;
            }
            words.add(kept).write(0);
            self.at = self.at.next_multiple_of(8);
            Ok(copy)
        }
    }

    unsafe fn string(&mut self, m: &Masked, r: *mut Record, string: usize) -> Result<usize, Errno> {
        // SAFETY: as `array`.
        unsafe {
            let len = string_len(m, r, string)?;
            let copy = self.take(len)?;
            read_string(m, r, copy as *mut u8, string, len)?;
            Ok(copy)
        }
    }

    /// Copies `LD_PRELOAD=` and the libraries that it names but for ours. `None`: ours is the only
    /// one.
    unsafe fn libraries(
        &mut self,
        m: &Masked,
        r: *mut Record,
        string: usize,
    ) -> Result<Option<usize>, Errno> {
        // SAFETY: as `array`; the bytes are the copy's.
        let (copy, bytes) = unsafe {
            let copy = self.string(m, r, string)?;
            let bytes = core::slice::from_raw_parts_mut(copy as *mut u8, self.at - copy);
            (copy, bytes)
        };
        let list = bytes.get_mut(LD_PRELOAD.len() + 1..).unwrap_or_default();
        if without_ours(list) {
            Ok(Some(copy))
        } else {
            Ok(None)
        }
    }
}
