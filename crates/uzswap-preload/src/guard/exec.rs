//! *What*: `execve` and `execveat`: arguments and environment are copied out of the arena first
//! ([`copies`]). What is executed is looked at ([`super::servable`]): the library stays in the
//! environment of what it serves; the engine's image is put into what it does not serve, and into
//! all where filters have piled up ([`super::room`], [`crate::inject`]); what neither serves runs
//! unmanaged, without our variables. Once the program filters its calls, nothing of that is done:
//! what it takes may be forbidden, on pain of death.
//!
//! *Invariants*: a failed call unmaps the copies at once; after a vfork child's success, the parent
//! does at its next trapped call. Where the image cannot be put in, the program is served as if
//! there were none.
//! *Locking*: the engine's. *Context*: signal.

mod copies;

use core::ffi::CStr;

use uzswap_core::Masked;
use uzswap_group::environment::GROUP_ENV;
use uzswap_group::text::Text;
use uzswap_sys::file::AT_FDCWD;
use uzswap_sys::syscall::{call1, to_int};
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::frame::Frame;
use super::room::{self, Room};
use super::servable::{self, By, served_by};
use super::stub::Call;
use super::{ranges, tracee};
use crate::engine_files;
use crate::environ::LD_PRELOAD;
use crate::init::ENGINE;
use crate::threads::{self, Record};
use crate::{inject, request};
use copies::{Ours, copy_out, has_variable, read_string, string_len};

/// Longest path, its zero byte included.
const PATH_MAX: usize = 4096;
/// Personality: no random addresses.
const ADDR_NO_RANDOMIZE: usize = 0x4_0000;

/// Issues the call. Returns only if it failed.
///
/// # Safety
/// `r` is the calling thread's record with an open frame.
pub unsafe fn exec(m: &Masked, r: *mut Record, call: &Call) -> Result<isize, Errno> {
    let path = usize::from(call.nr == nr::EXECVEAT);
    let envp = call.args[path + 2];
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        ranges::pin_string(m, r, call.args[path], PAGE_SIZE)?;
        let looks = !super::has_own_filter();
        let mut text = [0; PATH_MAX];
        let file = looks.then(|| file(m, r, call, &mut text)).flatten();
        let by = file.map_or(By::Unknown, served_by);
        let grouped = looks && has_variable(m, r, envp, GROUP_ENV);
        if let Some(file) = file {
            tracee::begin(file);
        }
        let takes_image = match by {
            By::Library => looks && room::for_filters() != Room::Enough,
            By::Image => true,
            By::Nobody | By::Unknown => false,
        };
        if grouped && takes_image {
            let done = with_copies(m, r, call, Ours::NoLibrary, |call| {
                with_image(m, || issue(m, r, call))
            })?;
            if let Ok(ret) = done {
                return Ok(ret);
            }
        }
        let ours = match by {
            By::Library | By::Unknown if cfg!(feature = "loader") && grouped => Ours::Library,
            By::Library | By::Unknown => Ours::Stay,
            By::Image if grouped => Ours::NoLibrary,
            By::Image | By::Nobody => Ours::None,
        };
        with_copies(m, r, call, ours, |call| {
            let managed = by == By::Library && has_variable(m, r, call.args[path + 2], LD_PRELOAD);
            let fixed = looks.then(fixed_addresses).flatten().filter(|personality| {
                !managed && set_personality(personality & !ADDR_NO_RANDOMIZE).is_ok()
            });
            let ret = issue(m, r, call);
            if let Some(personality) = fixed {
                let _ = set_personality(personality);
            }
            ret
        })
    }
}

/// Makes the call by `issue`, with its arguments and environment copied out of the arena.
unsafe fn with_copies<T>(
    m: &Masked,
    r: *mut Record,
    call: &Call,
    ours: Ours,
    issue: impl FnOnce(&Call) -> T,
) -> Result<T, Errno> {
    let mut call = *call;
    let path = usize::from(call.nr == nr::EXECVEAT);
    let arrays = [call.args[path + 1], call.args[path + 2]];
    // SAFETY: the record is this thread's with an open frame.
    unsafe {
        let copied = copy_out(m, r, &arrays, ours).inspect_err(|_| threads::drop_exec(r));
        [call.args[path + 1], call.args[path + 2]] = copied?;
        let done = issue(&call);
        threads::drop_exec(r);
        Ok(done)
    }
}

/// Executes by `issue`, with the engine's image put into what is executed.
fn with_image(m: &Masked, issue: impl FnOnce() -> isize) -> Result<isize, Errno> {
    let mut path = [0u8; Text::LEN];
    inject::exec(m, engine_files::image(&mut path).as_bytes(), issue)
}

unsafe fn issue(m: &Masked, r: *mut Record, call: &Call) -> isize {
    let shut = request::shut_door(m);
    // It would hold the old program's memory.
    let held = ENGINE.hold_reclaimer(m);
    // In the window: the new program inherits the program's own mask, not a handler's.
    // SAFETY: the record is this thread's with an open frame.
    let ret = unsafe { Frame::issue(r, call) };
    drop(held);
    if shut {
        request::open_door();
    }
    ret
}

/// What `call` executes, with its path in `path`; `None`: the kernel will refuse it.
unsafe fn file<'a>(
    m: &Masked,
    r: *mut Record,
    call: &Call,
    path: &'a mut [u8; PATH_MAX],
) -> Option<servable::File<'a>> {
    let [a, b, _, _, e, _] = call.args;
    let (dir, at, flags) = match call.nr {
        nr::EXECVEAT => (to_int(a), b, to_int(e)),
        _ => (AT_FDCWD, a, 0),
    };
    // SAFETY: the record is this thread's with an open frame; what is read fits.
    unsafe {
        let len = string_len(m, r, at).ok().filter(|len| *len <= path.len())?;
        read_string(m, r, path.as_mut_ptr(), at, len).ok()?;
    }
    let path = CStr::from_bytes_until_nul(path).ok()?;
    Some(servable::File { dir, path, flags })
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
