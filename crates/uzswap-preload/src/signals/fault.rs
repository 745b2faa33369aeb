//! *What*: SIGBUS. A fault in the arena is the engine's; any other is the program's.
//!
//! *Invariants*: a fault of the engine's is served with all signals blocked, and the access is made
//! again. What the engine has no page for reaches the program as the SIGSEGV that it natively is; a page that is
//! lost, and a mapping of the program's own beyond its file's end, as SIGBUS.
//! *Locking*: the engine's. *Context*: signal.

use uzswap_core::in_arena;
use uzswap_sys::signal::{BUS_ADRERR, SEGV_MAPERR, SIGBUS, SIGSEGV, SigInfo, UContext};

use super::{believes_blocked, deliver};
use crate::guard::port::{self, Fault, Masked};
use crate::threads;

/// The body of [`super::entry::sigbus`].
///
/// # Safety
/// From the entry.
pub unsafe extern "C" fn on_sigbus(
    signal: i32,
    info: *mut SigInfo,
    uc: *mut UContext,
    scratch: *mut UContext,
) -> *mut UContext {
    // SAFETY: our handlers' masks are full; the pointers are the kernel's frame.
    unsafe {
        let m = Masked::assume();
        let addr = (*info).si_addr();
        let mut told = *info;
        let mut number = signal;
        if (*info).si_code == BUS_ADRERR && in_arena(addr) {
            match port::fault(&m, addr) {
                Fault::Resolved => return uc,
                Fault::NotMapped => {
                    number = SIGSEGV;
                    told.si_signo = SIGSEGV;
                    told.si_code = SEGV_MAPERR;
                }
                Fault::OverLimit { needed_bytes } => {
                    port::over_limit(usize::try_from(needed_bytes).unwrap_or(usize::MAX))
                }
                Fault::Foreign | Fault::Corrupt => {}
            }
        }
        let r = threads::at(scratch as usize);
        let raised = !threads::is_sent(&told);
        let mask = deliver::collapse(&m, uc);
        let blocked = if number == SIGBUS {
            believes_blocked(r, SIGBUS)
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
