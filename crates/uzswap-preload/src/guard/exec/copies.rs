//! *What*: copies of the arguments and the environment of an `execve`, outside the arena, where the
//! kernel reads them while it takes the program's memory away.
//!
//! *Invariants*: the copies are in a mapping of their own, noted in the record.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::{Masked, arena_part};
use uzswap_group::environment::GROUP_ENV;
use uzswap_group::text::Text;
use uzswap_sys::mem::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap};
use uzswap_sys::{Errno, PAGE_SIZE};

use crate::engine_files;
use crate::environ::{LD_PRELOAD, without_ours};
use crate::guard::frame::Frame;
use crate::guard::user;
use crate::threads::Record;

/// Longest single argument (`MAX_ARG_STRLEN`).
const MAX_STRING_BYTES: usize = 128 << 10;
/// Most arguments that are read. The kernel refuses so many: their pointers alone exceed 6 MiB.
const MAX_STRINGS: usize = 1 << 20;

/// What becomes of our variables in an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    /// They stay as the program has them.
    Stay,
    /// The library is put in: a program that the image serves does not have it there.
    Library,
    /// The library is taken out: what is executed could not load it.
    NoLibrary,
    /// All is taken out.
    None,
}

/// Memory that copies are put into, one after the other.
struct Copies {
    at: usize,
    end: usize,
}

/// Copies what of the two arrays and their strings lies in the arena; returns the arrays to pass.
/// `ours`: what becomes of our variables in the second.
///
/// # Errors
/// `E2BIG`, `EFAULT`, `ENOMEM`: exec fails so.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn copy_out(
    m: &Masked,
    r: *mut Record,
    arrays: &[usize; 2],
    ours: Ours,
) -> Result<[usize; 2], Errno> {
    // SAFETY: the record is this thread's; the memory mapped here is as long as was counted.
    unsafe {
        let mut room = LIBRARY_ROOM;
        let mut any = ours != Ours::Stay;
        for (array, ours) in arrays.iter().zip([Ours::Stay, ours]) {
            let (len, in_arena) = measure(m, r, *array, ours)?;
            any |= in_arena;
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
        for (array, ours) in out.iter_mut().zip([Ours::Stay, ours]) {
            *array = copies.array(m, r, *array, ours)?;
        }
        Ok(out)
    }
}

/// Bytes that naming the library takes beside what is there: the variable, its place in the array,
/// and what separates it from others.
const LIBRARY_ROOM: usize = LD_PRELOAD.len() + Text::LEN + 16;

/// Whether an environment has the variable `name`.
///
/// # Safety
/// As [`copy_out`].
pub unsafe fn has_variable(m: &Masked, r: *mut Record, envp: usize, name: &str) -> bool {
    if envp == 0 {
        return false;
    }
    for n in 0..MAX_STRINGS {
        // SAFETY: the record is this thread's with an open frame.
        unsafe {
            match word(m, r, envp + n * 8) {
                Ok(0) | Err(_) => return false,
                Ok(string) if is_variable(m, r, string, name) == Ok(true) => return true,
                Ok(_) => {}
            }
        }
    }
    false
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
///
/// # Errors
/// `EFAULT`; `E2BIG`: the kernel refuses it.
///
/// # Safety
/// As [`copy_out`].
pub unsafe fn string_len(m: &Masked, r: *mut Record, at: usize) -> Result<usize, Errno> {
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
    Err(Errno::E2BIG)
}

/// Copies `len` bytes of a string to `to`.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As [`copy_out`]; `to` has room.
pub unsafe fn read_string(
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

/// Bytes of the longest name of a variable of ours.
const MAX_NAME: usize = GROUP_ENV.len();
const _: () = assert!(LD_PRELOAD.len() <= MAX_NAME);

/// Whether a string of an environment is the variable `name`, which is one of ours.
unsafe fn is_variable(
    m: &Masked,
    r: *mut Record,
    string: usize,
    name: &str,
) -> Result<bool, Errno> {
    let mut bytes = [0u8; MAX_NAME + 1];
    // The string may end right before a page that is not there.
    let here = (PAGE_SIZE - string % PAGE_SIZE).min(bytes.len());
    let (first, rest) = bytes.split_at_mut(here);
    // SAFETY: the record is this thread's with an open frame; what is read fits.
    unsafe {
        read_pinned(m, r, first.as_mut_ptr(), string, here)?;
        if !rest.is_empty() && !first.contains(&0) {
            read_pinned(m, r, rest.as_mut_ptr(), string + here, rest.len())?;
        }
    }
    let value = bytes.strip_prefix(name.as_bytes());
    Ok(value.is_some_and(|value| value.first() == Some(&b'=')))
}

/// Bytes that a copy of the array takes, and whether part of it lies in the arena.
unsafe fn measure(
    m: &Masked,
    r: *mut Record,
    array: usize,
    ours: Ours,
) -> Result<(usize, bool), Errno> {
    if array == 0 {
        return Ok((0, false));
    }
    let mut len = 8usize;
    let mut any = arena_part(array, 8).is_some();
    for n in 0..MAX_STRINGS {
        // SAFETY: as the caller's.
        let string = match unsafe { word(m, r, array + n * 8) } {
            Ok(0) => return Ok((len.next_multiple_of(8), any)),
            Ok(string) => string,
            // The kernel reports the bad pointer.
            Err(Errno::EFAULT) => return Ok((0, false)),
            Err(errno) => return Err(errno),
        };
        len += 8;
        let here = arena_part(string, 1).is_some();
        any |= here;
        // SAFETY: as the caller's.
        unsafe {
            if here || ours != Ours::Stay && is_variable(m, r, string, LD_PRELOAD)? {
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

    /// Copies the array, and its strings that lie in the arena.
    unsafe fn array(
        &mut self,
        m: &Masked,
        r: *mut Record,
        array: usize,
        ours: Ours,
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
            // One more than there are: the library's.
            let copy = self.take((count + 2) * 8)?;
            let words = copy as *mut usize;
            let mut kept = 0;
            let mut add = |string: usize| {
                words.add(kept).write(string);
                kept += 1;
            };
            let mut named = ours != Ours::Library;
            for n in 0..count {
                let string = word(m, r, array + n * 8)?;
                let is = |name| is_variable(m, r, string, name);
                if ours == Ours::None && is(GROUP_ENV)? {
                } else if ours != Ours::Stay && is(LD_PRELOAD)? {
                    if let Some(list) = self.libraries(m, r, string, ours)? {
                        add(list);
                    }
                    named = true;
                } else if arena_part(string, 1).is_some() {
                    add(self.string(m, r, string)?);
                } else {
                    add(string);
                }
            }
            if !named {
                add(self.library()?);
            }
            add(0);
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

    /// Copies `LD_PRELOAD=` and the libraries that it names, with or without ours. `None`: none is
    /// left.
    unsafe fn libraries(
        &mut self,
        m: &Masked,
        r: *mut Record,
        string: usize,
        ours: Ours,
    ) -> Result<Option<usize>, Errno> {
        // SAFETY: as `array`; the bytes are the copies'.
        unsafe {
            let others = self.string(m, r, string)?;
            let bytes = core::slice::from_raw_parts_mut(others as *mut u8, self.at - others);
            let list = bytes.get_mut(LD_PRELOAD.len() + 1..).unwrap_or_default();
            let any = without_ours(list);
            if ours != Ours::Library {
                return Ok(any.then_some(others));
            }
            let len = list.iter().position(|byte| *byte == 0).unwrap_or(0);
            let both = self.library()?;
            if any {
                // In place of the zero byte.
                let end = self.at - 1;
                self.take(len + 1)?;
                (end as *mut u8).write(b':');
                let to = (end + 1) as *mut u8;
                core::ptr::copy_nonoverlapping(list.as_ptr(), to, len);
                to.add(len).write(0);
            }
            Ok(Some(both))
        }
    }

    /// `LD_PRELOAD=` and our library.
    unsafe fn library(&mut self) -> Result<usize, Errno> {
        let mut path = [0u8; Text::LEN];
        let path = engine_files::library(&mut path);
        let start = self.at;
        for part in [LD_PRELOAD.as_bytes(), b"=", path.as_bytes(), b"\0"] {
            let to = self.take(part.len())?;
            // SAFETY: room for so many bytes in memory of ours.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), to as *mut u8, part.len()) };
        }
        Ok(start)
    }
}
