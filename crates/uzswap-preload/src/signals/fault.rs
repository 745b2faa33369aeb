//! *What*: SIGBUS, and SIGSEGV where there is no userfaultfd. A fault in the arena is the engine's;
//! any other is the program's. So is SIGTRAP, but for the breakpoint of a site being rewritten.
//!
//! *Invariants*: the engine serves a fault with all signals blocked, and the access is made again.
//! An access to what is not mapped reaches the program as the SIGSEGV that it natively is; one to a
//! page that is lost, or beyond the end of a mapped file, as SIGBUS.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::arena::region::Flags;
use uzswap_core::{Fault, Masked, in_arena};
use uzswap_sys::signal::{
    Access, BUS_ADRERR, SEGV_ACCERR, SEGV_MAPERR, SIGBUS, SIGSEGV, SigInfo, UContext,
};

use super::deliver::{self, Arrived};
use super::{has_blocked, ours};
use crate::init::ENGINE;
#[cfg(feature = "loader")]
use crate::loader::sites;
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
        let mut info = *info;
        #[cfg(feature = "loader")]
        if signal == uzswap_sys::signal::SIGTRAP
            && !threads::is_sent(&info)
            && sites::step_over(&mut *uc)
        {
            return uc;
        }
        if may_be_ours(signal, &info) {
            let addr = info.si_addr();
            let forbidden = signal == SIGSEGV && is_forbidden(addr, (*uc).fault_access());
            if !forbidden {
                match ENGINE.fault(&m, addr) {
                    Fault::Resolved => return uc,
                    Fault::NotMapped => (info.si_signo, info.si_code) = (SIGSEGV, SEGV_MAPERR),
                    Fault::Corrupt => (info.si_signo, info.si_code) = (SIGBUS, BUS_ADRERR),
                    Fault::OverLimit { needed_bytes } => ENGINE.end_over_limit(needed_bytes),
                    Fault::Foreign => {}
                }
            }
        }
        let number = info.si_signo;
        let r = threads::at(scratch as usize);
        let raised = !threads::is_sent(&info);
        let mask = deliver::collapse(&m, uc);
        let blocked = if ours().contains(number) {
            has_blocked(r, number)
        } else {
            (*uc).uc_sigmask.contains(number)
        };
        if raised && blocked {
            // The kernel ends a process that faults with the signal blocked.
            return deliver::default(number, &info, uc);
        }
        let arrived = Arrived {
            signal: number,
            info: &info,
            uc,
            mask,
            raised,
        };
        deliver::deliver(&m, r, &arrived, scratch)
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
