//! *What*: the few instructions for which Rust's core has no name.
//! *Invariants*: none touches memory.
//! *Locking*: none. *Context*: any.

use core::arch::asm;

/// The option of prctl(2) that decides whether a thread may read the time stamp counter.
pub const PR_SET_TSC: i32 = 26;
/// Reading it is SIGSEGV.
pub const PR_TSC_SIGSEGV: usize = 2;

/// The time stamp counter, in ticks of constant length; not serialising (±20 ns). Differences
/// between CPUs are meaningful on machines where Linux uses the TSC as its clock source.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    // SAFETY: reading the counter has no effect; Linux leaves CR4.TSD clear
    // unless a thread asks for it, which the guard refuses.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The CPU this thread runs on right now, read from the segment limit that Linux keeps per CPU
/// for the vDSO's `getcpu` (about 5-10 ns, no system call). `None` where the kernel has none.
/// `RDPID` needs a CPU feature, `RDTSCP` costs 3× as much.
#[inline(always)]
#[must_use]
pub fn current_cpu() -> Option<u32> {
    const CPUNODE_SELECTOR: u32 = 0x7b;
    let limit: u32;
    let found: u8;
    // SAFETY: `lsl` only reads a descriptor; with an unusable selector it clears ZF.
    unsafe {
        asm!(
            "lsl {limit:e}, {sel:e}",
            "setz {found}",
            limit = inout(reg) 0u32 => limit,
            sel = in(reg) CPUNODE_SELECTOR,
            found = lateout(reg_byte) found,
            options(nomem, nostack),
        );
    }
    // The limit is cpu | node << 12.
    (found != 0).then_some(limit & 0xfff)
}

/// Asks for `len` bytes at `addr` to be brought into the second-level cache. A hint: an address
/// that is not mapped is no error.
#[inline]
pub fn prefetch(addr: usize, len: usize) {
    const LINE: usize = 64;
    for offset in (0..len).step_by(LINE) {
        // SAFETY: prefetching reads nothing and never faults.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(
                (addr + offset) as *const i8,
            );
        }
    }
}
