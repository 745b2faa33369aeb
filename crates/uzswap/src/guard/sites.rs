//! *What*: the C library's calls with vectors of buffers ([`NAMES`]) lead here, to be served if they
//! name memory of a pool. In each function the instruction before `syscall`, which loads the call's
//! number, becomes a jump to a *ramp*; that calls [`on_call`], and goes on at the `syscall` if the
//! call is not ours, else behind it.
//!
//! Not by the filter: it would have to trap each such call, in processes without a handler too, and
//! end threads that block SIGSYS. This reaches this process and its fork children alone, and calls
//! that name no pool are issued where they always were.
//!
//! *Invariants*
//! - A changed page of text takes the place of the old one at once (mremap(2)): a thread executes
//!   the one or the other, never a mixture, and no page is writable and executable.
//! - The jump is as long as the instruction that it replaces, so nobody is in the middle of it.
//! - Where a function has no such instruction (musl; glibc from 2.41 on) it stays as it is:
//!   [`are_covered`] says so.
//!
//! *Locking*: the guard's state. *Context*: building a pool; [`on_call`]: any thread of the host.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use uzswap_core::in_arena;
use uzswap_guard::ramp::{JUMP_LEN, Outcome, RAMP_LEN, jump, ramp, sites};
use uzswap_sys::mem::{
    MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_EXEC,
    PROT_READ, PROT_WRITE, mmap, mprotect, mremap, munmap,
};
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::context::Context;
use super::{Call, serve, transfer, user};

/// The functions, and their calls.
const NAMES: [(&CStr, usize); 10] = [
    (c"readv", nr::READV),
    (c"writev", nr::WRITEV),
    (c"preadv", nr::PREADV),
    (c"pwritev", nr::PWRITEV),
    (c"preadv2", nr::PREADV2),
    (c"pwritev2", nr::PWRITEV2),
    (c"sendmsg", nr::SENDMSG),
    (c"recvmsg", nr::RECVMSG),
    (c"sendmmsg", nr::SENDMMSG),
    (c"recvmmsg", nr::RECVMMSG),
];

/// Bytes of a function that are searched.
const REACH: usize = 256;
/// Places that are tried for the ramps, one MiB apart.
const MAX_PLACES: usize = 1024;

/// All of [`NAMES`] lead here.
static COVERED: AtomicBool = AtomicBool::new(false);

/// Whether all of the C library's calls with vectors are served.
pub(super) fn are_covered() -> bool {
    COVERED.load(Ordering::Relaxed)
}

/// Has the functions lead here. What cannot be changed stays as it is.
pub(super) fn change() {
    let places = NAMES.map(|(name, nr)| (nr, places_of(name, nr)));
    let found = places.iter().all(|(_, places)| !places.is_empty());
    let done = lead_away(&places);
    COVERED.store(found && done.is_ok(), Ordering::Relaxed);
}

/// Where the C library's function of that name makes its call.
fn places_of(name: &CStr, nr: usize) -> Vec<usize> {
    let mut code = [0_u8; REACH];
    // SAFETY: names of a library that is there, and stays.
    let function = unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        libc::dlsym(libc, name.as_ptr()) as usize
    };
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

fn lead_away(places: &[(usize, Vec<usize>)]) -> Result<(), Errno> {
    let all = places
        .iter()
        .flat_map(|(nr, sites)| sites.iter().map(move |site| (*nr, *site)));
    let Some((_, near)) = all.clone().next() else {
        return Err(Errno::ENOENT);
    };
    let page = map_near(near)?;
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

/// Maps a page from where jumps reach the C library.
fn map_near(text: usize) -> Result<usize, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    let first = (text & !(PAGE_SIZE - 1)).saturating_sub(MAX_PLACES << 20);
    for at in (0..MAX_PLACES).rev().map(|n| first + (n << 20)) {
        if in_arena(at) {
            continue;
        }
        // SAFETY: NOREPLACE takes nothing away from anybody.
        match unsafe { mmap(at, PAGE_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) } {
            Ok(got) if got == at => return Ok(at),
            // SAFETY: a kernel that does not know NOREPLACE took the address for a hint.
            Ok(got) => unsafe { munmap(got, PAGE_SIZE) }?,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::ENOMEM)
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

/// A call that one of the functions is about to make.
unsafe extern "C" fn on_call(nr: usize, args: *const [usize; 6]) -> Outcome {
    // SAFETY: the ramp passes the arguments as the function has them.
    let call = unsafe {
        Call {
            nr,
            args: args.read(),
        }
    };
    if !transfer::names_a_pool(&call) {
        return Outcome { ret: 0, served: 0 };
    }
    // SAFETY: this thread makes the call.
    let ret = unsafe { serve(Context::Called, &call) };
    Outcome {
        ret: ret.unwrap_or_else(|errno| -(errno.0 as isize)),
        served: 1,
    }
}
