//! *What*: `execve` and `execveat` with path, vectors or strings in pools.
//!
//! They are brought in, not pinned: nobody could take the pins off after a success, and a child of
//! vfork or `posix_spawn` shares the pools with its parent. What is evicted again before the kernel
//! has read it makes the call fail with `EFAULT`, which has changed nothing: it is made again.
//!
//! *Invariants*: nothing is held while the call is issued.
//! *Locking*: the engines'. *Context*: signal, and threads of the host; children of `posix_spawn`,
//! which have no handlers.

use uzswap_core::arena_part;
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::Call;
use super::context::Context;
use super::pins::Pins;
use crate::user;

/// How often the call is made at most.
const MAX_TRIES: usize = 16;
/// The kernel takes no longer string.
const MAX_STRING: usize = 128 << 10;
/// Pointers of a vector that are looked at: the kernel takes 6 MiB of pointers and strings at most.
const MAX_STRINGS: usize = (6 << 20) / size_of::<usize>();
/// Pointers that are read at once.
const NR_READ: usize = 64;

pub(super) const fn is_exec(number: usize) -> bool {
    matches!(number, nr::EXECVE | nr::EXECVEAT)
}

/// The path and the vectors of a call.
const fn arguments(call: &Call) -> (usize, [usize; 2]) {
    match (call.nr, call.args) {
        (nr::EXECVEAT, [_, path, argv, envp, ..]) | (_, [path, argv, envp, ..]) => {
            (path, [argv, envp])
        }
    }
}

fn is_ours(at: usize) -> bool {
    arena_part(at, 1).is_some()
}

/// Whether any of it is in a pool.
pub(super) fn names_a_pool(call: &Call) -> bool {
    let (path, vectors) = arguments(call);
    if is_ours(path) || vectors.into_iter().any(is_ours) {
        return true;
    }
    let mut found = false;
    for at in vectors {
        // The kernel says what is wrong with it.
        let _ = each_string(
            at,
            |_| Ok(()),
            |string| {
                found |= is_ours(string);
                Ok(())
            },
        );
    }
    found
}

/// Carries it out. Returns only if it failed.
///
/// # Safety
/// `context` is that of a thread that makes the call.
pub(super) unsafe fn exec(context: Context, call: &Call) -> Result<isize, Errno> {
    let mut pins = Pins::new();
    pins.count();
    let mut ret = 0;
    for _ in 0..MAX_TRIES {
        match context.enter(|| bring_in(&mut pins, call)) {
            // A wrong address is for the kernel to say.
            Ok(()) | Err(Errno::EFAULT) => {}
            Err(errno) => return Err(errno),
        }
        // SAFETY: the caller's promise; nothing needs to be pinned, as said above.
        ret = unsafe { context.issue(call) };
        if ret != -(Errno::EFAULT.0 as isize) {
            break;
        }
    }
    Ok(ret)
}

/// Brings in what of the call is in pools.
fn bring_in(pins: &mut Pins<1>, call: &Call) -> Result<(), Errno> {
    let (path, vectors) = arguments(call);
    let pins = core::cell::RefCell::new(pins);
    let touch = |at: usize, len: usize| {
        let mut pins = pins.borrow_mut();
        let pinned = pins.pin_range(at, len);
        pins.release();
        pinned
    };
    string(path, touch)?;
    vectors
        .into_iter()
        .try_for_each(|at| each_string(at, |at| touch(at, 1), |at| string(at, touch)))
}

/// Goes over the strings of a vector, each page of which is shown to `page` before it is read.
fn each_string(
    mut at: usize,
    mut page: impl FnMut(usize) -> Result<(), Errno>,
    mut visit: impl FnMut(usize) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if at == 0 {
        return Ok(());
    }
    let mut left = MAX_STRINGS;
    while left > 0 {
        let on_page = (PAGE_SIZE - at % PAGE_SIZE) / size_of::<usize>();
        let nr = on_page.clamp(1, NR_READ);
        page(at)?;
        page(at + size_of::<usize>() - 1)?;
        let mut some = [0; NR_READ];
        // SAFETY: addresses are numbers.
        unsafe { user::read_all(&mut some[..nr], at) }?;
        for string in some.iter().take(nr) {
            if *string == 0 {
                return Ok(());
            }
            visit(*string)?;
        }
        at += nr * size_of::<usize>();
        left = left.saturating_sub(nr);
    }
    Ok(())
}

/// Brings in a string, if it is in a pool.
fn string(mut at: usize, touch: impl Fn(usize, usize) -> Result<(), Errno>) -> Result<(), Errno> {
    if !is_ours(at) {
        return Ok(());
    }
    let end = at.saturating_add(MAX_STRING);
    let mut bytes = [0_u8; 1024];
    while at < end {
        let nr = (PAGE_SIZE - at % PAGE_SIZE).min(bytes.len());
        touch(at, nr)?;
        // SAFETY: bytes.
        unsafe { user::read_all(&mut bytes[..nr], at) }?;
        if bytes.iter().take(nr).any(|byte| *byte == 0) {
            break;
        }
        at += nr;
    }
    Ok(())
}
