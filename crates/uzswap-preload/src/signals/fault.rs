//! *What*: SIGBUS, and without userfaultfd SIGSEGV. A fault in the arena is the engine's; any other is the program's.
//!
//! *Invariants*: a fault of the engine's is served with all signals blocked, and the access is made
//! again. What the engine has no page for reaches the program as the SIGSEGV that it natively is; a page that is
//! lost, and a mapping of the program's own beyond its file's end, as SIGBUS.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::region::Flags;
use uzswap_core::{Fault, Masked, in_arena};
use uzswap_sys::signal::{
    Access, BUS_ADRERR, SEGV_ACCERR, SEGV_MAPERR, SIGBUS, SIGSEGV, SigInfo, UContext,
};

use super::{believes_blocked, deliver, ours};
use crate::init::ENGINE;
use crate::threads;

/// The body of [`crate::arch::entry::fault`].
///
/// # Safety
/// From the entry.
pub unsafe extern "C" fn on_fault(
    signal: i32,
    info: *mut SigInfo,
    uc: *mut UContext,
    scratch: *mut UContext,
) -> *mut UContext {
    // SAFETY: our handlers' masks are full; the pointers are the kernel's frame.
    unsafe {
        let m = Masked::assume();
        let mut told = *info;
        if may_be_ours(signal, &told) {
            let addr = told.si_addr();
            let forbidden = signal == SIGSEGV && is_forbidden(addr, (*uc).fault_access());
            if !forbidden {
                match ENGINE.fault(&m, addr) {
                    Fault::Resolved => return uc,
                    Fault::NotMapped => (told.si_signo, told.si_code) = (SIGSEGV, SEGV_MAPERR),
                    Fault::Corrupt => (told.si_signo, told.si_code) = (SIGBUS, BUS_ADRERR),
                    Fault::OverLimit { needed_bytes } => ENGINE.end_over_limit(needed_bytes),
                    Fault::Foreign => {}
                }
            }
        }
        let number = told.si_signo;
        let r = threads::at(scratch as usize);
        let raised = !threads::is_sent(&told);
        let mask = deliver::collapse(&m, uc);
        let blocked = if ours().contains(number) {
            believes_blocked(r, number)
        } else {
            (*uc).uc_sigmask.contains(number)
        };
        if raised && blocked {
            // The kernel ends a process that faults with the signal blocked.
            return deliver::default(number, &told, uc);
        }
        deliver::deliver(&m, r, number, &told, uc, scratch, mask, raised)
    }
}

/// Whether the signal is one that an access to the arena raises.
fn may_be_ours(signal: i32, info: &SigInfo) -> bool {
    let raised = match signal {
        SIGSEGV => matches!(info.si_code, SEGV_ACCERR | SEGV_MAPERR),
        _ => info.si_code == BUS_ADRERR,
    };
    raised && in_arena(info.si_addr())
}

/// Whether the protection that the program itself set forbids `access` at `addr`: what the kernel
/// would look at first.
fn is_forbidden(addr: usize, access: Access) -> bool {
    let Some(region) = ENGINE.region(addr) else {
        return false;
    };
    let flags = region.flags;
    if flags.contains(Flags::FOREIGN) {
        return false;
    }
    match access {
        Access::Execute => !flags.contains(Flags::EXEC),
        Access::Write => !flags.contains(Flags::WRITE),
        // Every protection but none lets the CPU read.
        Access::Read => flags.prot() == 0,
    }
}
