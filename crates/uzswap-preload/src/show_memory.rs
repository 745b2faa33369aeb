//! *What*: `--show-memory`: what the program reads of the machine's memory tells of another total.
//!
//! Filter B traps `sysinfo(2)`, so the C library's `sysconf` and `get_phys_pages` see it too. Files
//! are opened through [`exports`]: a [`Source`] is read, rewritten ([`Shown`]), and opened as a
//! memory file of the same descriptor number. They are not trapped: a filter is inherited by
//! programs that have no handler yet, or never will, and every one of those opens files.
//!
//! *Invariants*: a file that cannot be opened natively cannot be opened here. Where anything else
//! fails, the program gets the native file. In a process that was started with `native`, nothing is
//! trapped and nothing changes.
//! *Locking*: the engine's. *Context*: init ([`begin`]), signal ([`sysinfo`]), the program's.

mod exports;
mod shown;
mod source;

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use uzswap_core::{Masked, in_arena};
use uzswap_group::group::{Group, is_alive};
use uzswap_sys::fmt::StackBuf;
use uzswap_sys::syscall::call1;
use uzswap_sys::{Errno, PAGE_SIZE, file, nr};

use crate::guard::user;
use crate::init::{self, ENGINE};
use crate::proc_files::{for_each_record, for_each_record_of};
use shown::{Shown, SysInfo};
use source::Source;

/// Longest path of a [`Source`], its zero byte included.
const PATH_LEN: usize = 512;
/// Longest line of a [`Source`]; what is longer is cut.
const LINE_LEN: usize = 256;

/// Whether this process was started to see another total. A child that fork makes inherits it.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether the program is to see another total, from its start.
pub fn begin() -> bool {
    let shows = init::group().is_some_and(|group| group.knobs.shown_total().is_some());
    BEGUN.store(shows, Ordering::Relaxed);
    shows
}

/// What the program is to see; `None`: what there is.
fn shown() -> Option<Shown> {
    if !BEGUN.load(Ordering::Relaxed) {
        return None;
    }
    let group = init::group()?;
    let total = group.knobs.shown_total()?;
    Some(Shown {
        total,
        used: held(group).min(total),
    })
}

/// Bytes of data that the processes of the run hold, in RAM or not.
fn held(group: &Group) -> u64 {
    let live = group
        .used()
        .iter()
        .filter(|process| process.is_live() && is_alive(process.pid.load(Ordering::Relaxed)));
    live.map(|process| {
        let cells = &process.counters;
        let out = [&cells.stored_pages, &cells.swapped_pages].map(|c| c.load(Ordering::Relaxed));
        let out = out.iter().sum::<u64>() * PAGE_SIZE as u64;
        cells.resident.load(Ordering::Relaxed) + out
    })
    .sum()
}

/// Carries out `sysinfo(2)` to address `at`, which is pinned. `None`: the kernel is to.
pub fn sysinfo(at: usize) -> Option<Result<(), Errno>> {
    let shown = shown()?;
    let mut info = SysInfo::default();
    // SAFETY: the kernel's layout.
    let done = unsafe { call1(nr::SYSINFO, (&raw mut info) as usize) };
    Some(done.and_then(|_| {
        shown.change(&mut info);
        user::write(at, &info)
    }))
}

/// Opens the file whose path is at `path` in the program for reading, if it is a [`Source`].
fn open(path: usize, cloexec: bool) -> Option<Result<i32, Errno>> {
    if !BEGUN.load(Ordering::Relaxed) {
        return None;
    }
    Masked::block(|m| {
        let mut copy = [0_u8; PATH_LEN];
        let path = read_path(m, path, &mut copy)?;
        let source = Source::of(path.to_bytes())?;
        if !source.is_for_all() && !is_own_cgroups(path.to_bytes()) {
            return None;
        }
        let shown = shown()?;
        let flags = file::O_RDONLY | file::O_CLOEXEC;
        let native = match file::openat(file::AT_FDCWD, path, flags, 0) {
            Ok(fd) => fd,
            Err(errno) => return Some(Err(errno)),
        };
        if replace(native, cloexec, source, &shown).is_err() {
            let _ = file::close(native);
            return None;
        }
        Some(Ok(native))
    })
}

/// Makes descriptor `native` a memory file with its text rewritten.
fn replace(native: i32, cloexec: bool, source: Source, shown: &Shown) -> Result<(), Errno> {
    let fd = file::memfd_create(c"uzswap-show-memory", file::MFD_CLOEXEC)?;
    let flags = if cloexec { file::O_CLOEXEC } else { 0 };
    let written = write(fd, native, source, shown);
    let done = written.and_then(|()| file::dup3(fd, native, flags));
    let _ = file::close(fd);
    done
}

/// Writes the text of `native`, rewritten, to `fd`, whose position stays at the beginning.
fn write(fd: i32, native: i32, source: Source, shown: &Shown) -> Result<(), Errno> {
    let mut line = [0_u8; LINE_LEN];
    let mut at = 0;
    let mut done = Ok(());
    for_each_record_of(native, b'\n', &mut line, |line| {
        let mut text = StackBuf::<{ LINE_LEN + 1 }>::new();
        shown.rewrite(source, line, &mut text);
        let text = text.as_bytes();
        if done.is_ok() {
            done = match file::pwrite(fd, text, at) {
                Ok(nr) if nr == text.len() => Ok(()),
                Ok(_) => Err(Errno::EIO),
                Err(errno) => Err(errno),
            };
        }
        at += text.len() as u64;
    });
    // Nothing read: an error, which the native file is to report.
    if at == 0 { Err(Errno::EIO) } else { done }
}

/// Whether the file at `path` belongs to a cgroup that this process is in.
fn is_own_cgroups(path: &[u8]) -> bool {
    let mut line = [0_u8; PATH_LEN];
    let mut own = false;
    for_each_record(c"/proc/self/cgroup", b'\n', &mut line, |line| {
        own |= source::is_within(path, line);
    });
    own
}

/// The path at `at` in the program. `None`: it is not readable, or longer than that of any
/// [`Source`]. Reads no further than the page in which the path ends.
fn read_path<'a>(m: &Masked, at: usize, path: &'a mut [u8; PATH_LEN]) -> Option<&'a CStr> {
    let first = (PAGE_SIZE - at % PAGE_SIZE).min(PATH_LEN);
    let mut from = 0;
    for to in [first, PATH_LEN] {
        let part = path.get_mut(from..to)?;
        let at = at.checked_add(from)?;
        if in_arena(at) {
            ENGINE.populate(m, at, part.len()).ok()?;
        }
        // SAFETY: the slice has that many bytes.
        unsafe { user::read(part.as_mut_ptr(), at, part.len()) }.ok()?;
        if part.contains(&0) {
            return CStr::from_bytes_until_nul(path).ok();
        }
        from = to;
    }
    None
}
