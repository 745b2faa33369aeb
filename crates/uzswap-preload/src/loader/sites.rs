//! *What*: the places from which the program makes system calls, and how often each of them was
//! trapped. One that is trapped often is rewritten, so that its calls go by a *ramp* to the
//! [shortcut](super::shortcut) and are trapped no more.
//!
//! *Invariants*
//! - A site is rewritten once, by one thread, and stays so. Its `syscall` instruction is not
//!   touched ([`super::rewrite`]): whoever jumps there, or comes back there, is trapped as before.
//! - Only text is rewritten that the kernel mapped at exec and that the program has left as it was.
//! - A ramp stands, and [`Rewritten::ramp`] says where, before the first byte of its site changes.
//!
//! *Locking*: [`TEXT`], held across a fork. *Context*: signal; [`set_up`] init.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use uzswap_core::Masked;
use uzswap_sync::lock::{Lock, LockGuard};
use uzswap_sys::arch::syscall::SYSCALL_LEN;
use uzswap_sys::mem::{MAP_FIXED, MREMAP_FIXED};
use uzswap_sys::signal::UContext;
use uzswap_sys::syscall::to_int;
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::{BASE, rewrite, shortcut};
use crate::arch::shortcut::RAMP_LEN;
use crate::guard::stub::{Call, STUB};
use crate::proc_files::{self, for_each_mapping};

/// Traps of a site before it is rewritten. A start makes few calls from most places.
const MIN_TRAPS: u32 = 64;
/// Sites that are told apart.
const NR_SITES: usize = 256;
/// Sites that are rewritten. Most programs have a handful that matter.
const MAX_REWRITTEN: usize = 64;
/// Ranges of text.
const MAX_TEXTS: usize = 4;

/// A site.
struct Site {
    /// The address behind its system call instruction; 0: unused.
    behind: AtomicUsize,
    /// How often it was trapped with a call that need not be.
    traps: AtomicU32,
}

/// A site that is rewritten, or about to be.
struct Rewritten {
    /// Where it begins.
    start: AtomicUsize,
    /// The address behind it.
    behind: AtomicUsize,
    /// Its ramp; 0: none yet.
    ramp: AtomicUsize,
}

static SITES: [Site; NR_SITES] = [const {
    Site {
        behind: AtomicUsize::new(0),
        traps: AtomicU32::new(0),
    }
}; NR_SITES];

static REWRITTEN: [Rewritten; MAX_REWRITTEN] = [const {
    Rewritten {
        start: AtomicUsize::new(0),
        behind: AtomicUsize::new(0),
        ramp: AtomicUsize::new(0),
    }
}; MAX_REWRITTEN];
/// How many there are.
static NR_REWRITTEN: AtomicUsize = AtomicUsize::new(0);

/// Ranges of addresses: the first, and the first behind them. Unused ones are empty.
pub type Texts = [(usize, usize); MAX_TEXTS];
/// The text that may be rewritten.
static TEXT: Lock<Texts> = Lock::new([(0, 0); MAX_TEXTS]);

/// Finds the text that may be rewritten: that of the program and its interpreter. Without the
/// instruction by which a ramp finds the thread's record, none is.
pub fn set_up() {
    const AT_HWCAP2: usize = 26;
    const HWCAP2_FSGSBASE: usize = 1 << 1;
    if proc_files::auxiliary([AT_HWCAP2])[0] & HWCAP2_FSGSBASE == 0 {
        return;
    }
    let mut texts = TEXT.lock();
    let mut texts = texts.iter_mut();
    for_each_mapping(|mapping| {
        // A private mapping of a file, readable, not writable.
        let is_text = mapping.line.windows(6).any(|w| w == b" r-xp ");
        if is_text
            && !(BASE..STUB).contains(&mapping.start)
            && mapping.line.contains(&b'/')
            && let Some(text) = texts.next()
        {
            *text = (mapping.start, mapping.end);
        }
    });
}

/// The program maps or protects `[addr, addr + len)` anew: text there is left alone from now on.
fn changes(_: &Masked, addr: usize, len: usize) {
    let end = addr.saturating_add(len);
    let mut texts = TEXT.lock();
    for text in texts.iter_mut() {
        if addr < text.1 && text.0 < end {
            *text = (0, 0);
        }
    }
    for site in rewritten() {
        if (addr..end).contains(&site.start.load(Ordering::Relaxed)) {
            site.start.store(0, Ordering::Relaxed);
        }
    }
}

/// Keeps sites from being rewritten, for a fork: the child finds none half done.
pub fn hold() -> LockGuard<'static, Texts> {
    TEXT.lock()
}

/// Notes a trapped call, of the thread of context `uc`.
///
/// # Errors
/// `ENOMEM`: the program would map something over a ramp.
///
/// # Safety
/// As [`trapped`].
pub unsafe fn note(m: &Masked, uc: &UContext, call: &Call) -> Result<(), Errno> {
    let [a, b, c, flags, e, _] = call.args;
    let flags = to_int(flags);
    match call.nr {
        nr::MMAP if flags & MAP_FIXED != 0 => replaces(m, a, b),
        nr::MREMAP if flags & MREMAP_FIXED != 0 => {
            changes(m, a, b);
            replaces(m, e, c)
        }
        nr::MUNMAP | nr::MREMAP | nr::MPROTECT | nr::PKEY_MPROTECT => {
            changes(m, a, b);
            Ok(())
        }
        number if shortcut::may_pass(number) => {
            // SAFETY: the caller's promise.
            unsafe { trapped(m, uc) };
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The program maps something over `[addr, addr + len)`.
fn replaces(m: &Masked, addr: usize, len: usize) -> Result<(), Errno> {
    let end = addr.saturating_add(len);
    let has_ramp = rewritten().any(|site| {
        let page = site.ramp.load(Ordering::Relaxed) & !(PAGE_SIZE - 1);
        addr < page + 2 * PAGE_SIZE && page < end
    });
    if has_ramp {
        return Err(Errno::ENOMEM);
    }
    changes(m, addr, len);
    Ok(())
}

/// A call that need not be trapped was, by the thread of context `uc`. Now and then the site is
/// rewritten.
///
/// # Safety
/// In a handler; `uc` is the context of the trapped call.
unsafe fn trapped(_: &Masked, uc: &UContext) {
    let behind = uc.instruction_pointer();
    let Some(site) = find(behind) else {
        return;
    };
    if site.traps.fetch_add(1, Ordering::Relaxed) + 1 != MIN_TRAPS {
        return;
    }
    // Another rewrites just now: this one can wait.
    let Some(texts) = TEXT.try_lock() else {
        site.traps.store(0, Ordering::Relaxed);
        return;
    };
    let nr = NR_REWRITTEN.load(Ordering::Relaxed);
    let text = texts.iter().find(|t| t.0 < behind && behind <= t.1);
    let (Some(&text), Some(entry)) = (text, REWRITTEN.get(nr)) else {
        return;
    };
    // SAFETY: the text is the program's and stays as it is while its ranges are locked.
    unsafe {
        let Some(plan) = rewrite::plan(uc, text) else {
            return;
        };
        let Some(ramp) = rewrite::build_ramp(&plan) else {
            return;
        };
        entry.start.store(plan.start, Ordering::Relaxed);
        entry.behind.store(behind, Ordering::Relaxed);
        entry.ramp.store(ramp, Ordering::Relaxed);
        // Release: whoever meets the breakpoint finds the entry.
        NR_REWRITTEN.store(nr + 1, Ordering::Release);
        rewrite::lead_to(&plan, ramp);
    }
}

/// The site before `behind`, or a free place for it.
fn find(behind: usize) -> Option<&'static Site> {
    const MAX_PROBES: usize = 8;
    let hash = behind.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for probe in 0..MAX_PROBES {
        let site = SITES.get((hash + probe) % NR_SITES)?;
        if site.behind.load(Ordering::Relaxed) == behind {
            return Some(site);
        }
        let taken = site
            .behind
            .compare_exchange(0, behind, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() || taken == Err(behind) {
            return Some(site);
        }
    }
    None
}

fn rewritten() -> impl Iterator<Item = &'static Rewritten> {
    let nr = NR_REWRITTEN.load(Ordering::Acquire);
    REWRITTEN.iter().take(nr)
}

/// Has a thread that met the breakpoint of a site that is being rewritten go by its ramp. `false`:
/// it met another.
pub fn step_over(uc: &mut UContext) -> bool {
    let at = uc.instruction_pointer().wrapping_sub(1);
    let found = rewritten().find(|site| site.start.load(Ordering::Relaxed) == at);
    let Some(site) = found else {
        return false;
    };
    uc.set_instruction_pointer(site.ramp.load(Ordering::Relaxed));
    true
}

/// Takes back a thread that a signal found on a ramp: to its site, or, past the instruction that
/// stood there, to the system call. `false`: it is on none.
pub fn take_back(uc: &mut UContext) -> bool {
    let ip = uc.instruction_pointer();
    for site in rewritten() {
        let ramp = site.ramp.load(Ordering::Relaxed);
        if !(ramp..ramp + RAMP_LEN).contains(&ip) {
            continue;
        }
        let to = if ip == ramp {
            site.start.load(Ordering::Relaxed)
        } else {
            site.behind.load(Ordering::Relaxed) - SYSCALL_LEN
        };
        uc.set_instruction_pointer(to);
        return true;
    }
    false
}
