//! *What*: leads system calls that the C library makes to code of ours. In a function of its, the
//! instruction before `syscall`, which loads the call's number, becomes a jump to a *ramp*; that
//! asks an [`OnCall`], and goes on at the `syscall` if the call is not served, else behind it.
//!
//! Not by a filter: that would have to trap each such call, in processes without a handler too, and
//! end threads that block SIGSYS. This reaches this process and its fork children alone, and calls
//! that are not served are issued where they always were.
//!
//! *Invariants*
//! - A changed page of text takes the place of the old one at once (mremap(2)): a thread executes
//!   the one or the other, never a mixture, and no page is writable and executable.
//! - The jump is as long as the instruction that it replaces, so nobody is in the middle of it.
//! - Where a function has no such instruction it stays as it is: [`lead_away`] says so.
//!
//! *Locking*: the callers'. *Context*: building a pool.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::sync::Once;

use uzswap_core::in_arena;
use uzswap_guard::ramp::{JUMP_LEN, OnCall, RAMP_LEN, jump, ramp, sites};
use uzswap_sync::lock::Lock;
use uzswap_sys::mem::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_EXEC,
    PROT_READ, PROT_WRITE, mmap, mprotect, mremap, munmap,
};
use uzswap_sys::{Errno, PAGE_SIZE};

use crate::user;

/// Bytes of a function that are searched.
const REACH: usize = 256;
/// How far a ramp may be from the C library's text, of which a jump reaches 2 GiB.
const MAX_DISTANCE: usize = (2 << 30) - (16 << 20);
/// How often [`lead_away`] may be asked.
const MAX_USES: usize = 2;

/// Has the functions of these names ask `on_call` about their calls of these numbers. Whether all
/// do that the C library has: older ones lack some.
pub(crate) fn lead_away(names: &[(&CStr, usize)], on_call: OnCall) -> bool {
    let places = names
        .iter()
        .filter_map(|(name, nr)| Some((*nr, places_in(function(name)?, *nr))));
    let places: Vec<_> = places.collect();
    let found = !places.is_empty() && places.iter().all(|(_, places)| !places.is_empty());
    found && change(&places, on_call).is_ok()
}

/// The C library's function of that name.
fn function(name: &CStr) -> Option<usize> {
    // SAFETY: names of a library that is there, and stays.
    let function = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        libc::dlsym(libc, name.as_ptr()) as usize
    };
    (function != 0).then_some(function)
}

/// Where a function makes its call.
fn places_in(function: usize, nr: usize) -> Vec<usize> {
    let mut code = [0_u8; REACH];
    // SAFETY: bytes.
    let read = unsafe { user::read_all(&mut code, function) };
    let (Ok(()), Ok(nr)) = (read, u32::try_from(nr)) else {
        return Vec::new();
    };
    let in_one_page = |site: &usize| site / PAGE_SIZE == (site + JUMP_LEN - 1) / PAGE_SIZE;
    sites(&code, nr)
        .map(|at| function + at)
        .filter(in_one_page)
        .collect()
}

fn change(places: &[(usize, Vec<usize>)], on_call: OnCall) -> Result<(), Errno> {
    let all = places
        .iter()
        .flat_map(|(nr, sites)| sites.iter().map(move |site| (*nr, *site)));
    let page = take_page()?;
    let mut jumps = BTreeMap::<usize, Vec<(usize, [u8; JUMP_LEN])>>::new();
    for ((nr, site), at) in all.zip((page..page + PAGE_SIZE).step_by(RAMP_LEN)) {
        let nr = u32::try_from(nr).map_err(|_| Errno::EINVAL)?;
        let code = ramp(at, site, nr, on_call).zip(jump(site, at));
        let (code, jump) = code.ok_or(Errno::ENOMEM)?;
        // SAFETY: a page of our own; the ramp ends in it, as it holds a whole number of them.
        unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
        let jumps = jumps.entry(site & !(PAGE_SIZE - 1)).or_default();
        jumps.push((site, jump));
    }
    // SAFETY: the page of ramps, which stays.
    unsafe { mprotect(page, PAGE_SIZE, PROT_READ | PROT_EXEC) }?;
    jumps
        .into_iter()
        .try_for_each(|(page, jumps)| replace(page, &jumps))
}

/// Pages for ramps, reserved before the first engine takes the addresses around: 0 if not, or used.
static RESERVED: Lock<[usize; MAX_USES]> = Lock::new([0; MAX_USES]);

/// Reserves addresses for the ramps near the C library, once.
pub(crate) fn reserve() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let text = libc::pthread_sigmask as *const () as usize;
        let pages: [usize; MAX_USES] = std::array::from_fn(|_| map_near(text).unwrap_or(0));
        *RESERVED.lock() = pages;
    });
}

/// A page for ramps, writable.
fn take_page() -> Result<usize, Errno> {
    let mut pages = RESERVED.lock();
    let free = pages.iter_mut().find(|page| **page != 0);
    free.map(std::mem::take).ok_or(Errno::ENOMEM)
}

/// Maps a page from where jumps reach the C library.
fn map_near(text: usize) -> Result<usize, Errno> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut places: Vec<usize> = gaps(&maps).collect();
    places.retain(|at| at.abs_diff(text) < MAX_DISTANCE && !in_arena(*at));
    places.sort_by_key(|at| at.abs_diff(text));
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    for at in places {
        // SAFETY: NOREPLACE takes nothing away from anybody.
        match unsafe { mmap(at, PAGE_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) } {
            Ok(got) if got == at => return Ok(at),
            // SAFETY: a kernel that does not know NOREPLACE took the address for a hint.
            Ok(got) => unsafe { munmap(got, PAGE_SIZE) }?,
            // Another thread was faster.
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::ENOMEM)
}

/// The last page of each gap between the mappings that `maps` lists, but for what the stack grows
/// into.
fn gaps(maps: &str) -> impl Iterator<Item = usize> {
    let mut end_before = usize::MAX;
    maps.lines().filter_map(move |line| {
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).ok());
        let (start, end) = (start?, end?);
        let is_gap = start > end_before && !line.ends_with("[stack]");
        end_before = end;
        is_gap.then(|| start - PAGE_SIZE)
    })
}

/// Puts a copy of a page of text in its place, with these jumps in it.
fn replace(page: usize, jumps: &[(usize, [u8; JUMP_LEN])]) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    let how = MREMAP_MAYMOVE | MREMAP_FIXED;
    // SAFETY: the copy is ours until it takes the page's place, which has the same code but for the
    // jumps: the caller found each where it replaces one instruction. The page is the C library's,
    // which nobody unmaps.
    unsafe {
        let copy = mmap(0, PAGE_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0)?;
        core::ptr::copy_nonoverlapping(page as *const u8, copy as *mut u8, PAGE_SIZE);
        for (site, jump) in jumps {
            let at = copy + (site - page);
            core::ptr::copy_nonoverlapping(jump.as_ptr(), at as *mut u8, jump.len());
        }
        let placed = mprotect(copy, PAGE_SIZE, PROT_READ | PROT_EXEC)
            .and_then(|()| mremap(copy, PAGE_SIZE, PAGE_SIZE, how, page));
        if placed.is_err() {
            munmap(copy, PAGE_SIZE)?;
        }
        placed.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_end_where_mappings_begin() {
        let maps = "1000-2000 r-xp 0 0:0 0 /a\n5000-6000 rw-p 0 0:0 0\n6000-7000 rw-p 0 0:0 0 /b\n\
                    9000-a000 rw-p 0 0:0 0 [stack]\nb000-c000 r-xp 0 0:0 0 [vdso]\n";
        assert!(gaps(maps).eq([0x4000, 0xa000]));
    }
}
