//! *What*: calls of the mmap family that the program makes by an instruction of its own, or by
//! `syscall(3)`. Where they concern the arena, filter A traps them.
//!
//! *Invariants*: they do what the functions of the same names do.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::Masked;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, nr};

use super::map::{self, MmapArgs};
use super::remap::{self, MremapArgs};
use super::{advise, protect};
use crate::guard::frame::fail;
use crate::guard::stub::Call;
use crate::guard::user;

/// `mincore` of what lies in the arena, to a vector that is pinned.
///
/// # Errors
/// As mincore(2).
pub fn mincore(m: &Masked, addr: usize, len: usize, vec: usize) -> Result<isize, Errno> {
    let ask = |at, out: &mut [u8]| protect::residency(m, at, out);
    let put = |from, residency: &[u8]| user::write_bytes(vec + from, residency);
    protect::mincore(addr, len, ask, put).map(|()| 0)
}

/// Carries out a call that was trapped, and returns what it returns; `None`: it is none of these.
pub fn serve(m: &Masked, call: &Call) -> Option<isize> {
    let [a, b, c, d, e, f] = call.args;
    let zero = |done: Result<(), Errno>| done.map(|()| 0);
    let done = match call.nr {
        nr::MMAP => {
            let request = MmapArgs {
                prot: to_int(c),
                flags: to_int(d),
                fd: to_int(e),
                offset: f,
            };
            map::mmap(m, a, b, request)
        }
        nr::MREMAP => {
            let args = MremapArgs {
                old: a,
                old_len: b,
                new_len: c,
                flags: to_int(d),
                new: e,
            };
            let copy = |from, to, len| remap::copy_pinned(m, from, to, len);
            remap::mremap(m, args).and_then(|done| done.or_else(|call| remap::move_out(call, copy)))
        }
        nr::MUNMAP => zero(map::munmap(m, a, b)),
        nr::MPROTECT => zero(protect::mprotect(m, a, b, to_int(c))),
        // Keys take memory that is given back to the kernel, whose faults cannot be served here.
        nr::PKEY_MPROTECT if to_int(d) != -1 => Err(Errno::EINVAL),
        nr::PKEY_MPROTECT => zero(protect::mprotect(m, a, b, to_int(c))),
        nr::MADVISE => zero(advise::madvise(m, a, b, to_int(c))),
        nr::MSYNC => zero(advise::msync(a, b, to_int(c))),
        nr::MLOCK => zero(protect::mlock(m, a, b)),
        nr::MLOCK2 => zero(protect::mlock2(m, a, b, c)),
        nr::MUNLOCK => zero(protect::munlock(m, a, b)),
        _ => return None,
    };
    Some(done.map_or_else(fail, usize::cast_signed))
}
