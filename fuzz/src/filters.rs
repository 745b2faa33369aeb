//! *What*: the guard's two filters. The kernel takes them, and they decide each call as the plain
//! tables say, whatever its number, arguments and origin, and whatever text of the process filter B
//! was built for.

use std::cell::OnceCell;
use std::ops::RangeInclusive;

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_io::queue::NR_EVENTS;
use uzswap_sys::seccomp::{AUDIT_ARCH, FOREIGN_ABI_NR, RET_ALLOW, RET_ERRNO, RET_TRAP, SockFilter};
use uzswap_sys::{Errno, nr};

use crate::bpf::{Call, Filter};
use crate::bytes::Bytes;
use crate::guard::filter::{Builder, TAG_A, TAG_B};
use crate::guard::stub::{OWN_GATE_RETURN, PROGRAM_GATE_RETURN};
use crate::guard::text::MAX_RANGES;
use uzswap_guard::table;

const TRAP_A: u32 = RET_TRAP | TAG_A;
const TRAP_B: u32 = RET_TRAP | TAG_B;
const ENOSYS: u32 = RET_ERRNO | Errno::ENOSYS.0.unsigned_abs();
const ENOMEM: u32 = RET_ERRNO | Errno::ENOMEM.0.unsigned_abs();
/// The call by which a process asks whether filter A is there, its argument and the answer.
const PROBE: (u32, u32, u32) = (0x5a53, 0x757a_7377, RET_ERRNO | 0xa51);

thread_local! {
    /// Filter A is the same in all processes.
    static FILTER_A: OnceCell<Vec<SockFilter>> = const { OnceCell::new() };
}

/// See the head.
pub fn decide_as_the_tables(input: &[u8]) {
    let mut input = Bytes::new(input);
    let text = text(&mut input);
    let (workers, shows) = (input.flag(), input.flag());
    let mut b = Box::new(Builder::new());
    b.build_b(&text, workers, shows).expect("filter B fits");
    let b = Filter::checked(b.program.code().expect("it is complete"));
    FILTER_A.with(|a| {
        let a = Filter::checked(a.get_or_init(built_a));
        while !input.is_empty() {
            let call = call(&mut input, &text);
            assert_eq!(a.run(&call), expected_of_a(&call), "filter A: {call:x?}");
            let expected = expected_of_b(&call, &text, workers, shows);
            assert_eq!(b.run(&call), expected, "filter B for {text:x?}: {call:x?}");
        }
    });
}

fn built_a() -> Vec<SockFilter> {
    let mut a = Box::new(Builder::new());
    a.build_a().expect("filter A fits");
    a.program.code().expect("it is complete").to_vec()
}

/// Ranges of text as the guard finds them: above 4 GiB, none over a multiple of that.
fn text(input: &mut Bytes<'_>) -> Vec<(usize, usize)> {
    let nr = input.below(MAX_RANGES + 1);
    (0..nr)
        .map(|_| {
            let gigabytes = 1 + usize::from(input.u16()) % 0x7fff;
            let (first, last) = (input.u32(), input.u32());
            let at = |low: u32| gigabytes << 32 | low as usize;
            (at(first.min(last)), at(first.max(last)))
        })
        .collect()
}

fn call(input: &mut Bytes<'_>, text: &[(usize, usize)]) -> Call {
    let nr = match input.byte() {
        0 => input.u32(),
        1 => PROBE.0 + u32::from(input.flag()),
        2 => FOREIGN_ABI_NR
            .wrapping_add(input.u16().into())
            .wrapping_sub(8),
        // The table, and a little beyond.
        _ => u32::from(input.u16()) % (table::END as u32 + 16),
    };
    let arch = if input.byte() == 0xff {
        input.u32()
    } else {
        AUDIT_ARCH
    };
    Call {
        nr,
        arch,
        ip: address(input, text),
        args: std::array::from_fn(|_| address(input, text)),
    }
}

/// An address, or another word, near to where decisions change.
fn address(input: &mut Bytes<'_>, text: &[(usize, usize)]) -> u64 {
    let near = |input: &mut Bytes<'_>, at: usize| {
        (at as u64)
            .wrapping_add(input.byte().into())
            .wrapping_sub(2)
    };
    match input.byte() % 10 {
        0 => input.u64(),
        1 => near(input, ARENA_BASE),
        2 => near(input, ARENA_BASE + ARENA_LEN),
        3 => ARENA_BASE as u64 + input.u64() % ARENA_LEN as u64,
        4 => near(input, PROGRAM_GATE_RETURN),
        5 => near(input, OWN_GATE_RETURN),
        6 => match text.get(input.below(MAX_RANGES)) {
            Some((from, to)) => {
                let at = if input.flag() { *from } else { *to };
                near(input, at)
            }
            None => 0,
        },
        7 => input.u32().into(),
        8 => u64::from(NR_EVENTS) | u64::from(input.byte()) << 32,
        _ => PROBE.1.into(),
    }
}

fn in_arena(address: u64) -> bool {
    let arena = ARENA_BASE as u64..(ARENA_BASE + ARENA_LEN) as u64;
    arena.contains(&address)
}

/// A call of an unmanaged program that is not position independent, or through one of `gates`.
fn exempt(call: &Call, gates: &[usize]) -> bool {
    call.ip < 1 << 32 || gates.iter().any(|gate| *gate as u64 == call.ip)
}

fn expected_of_a(call: &Call) -> u32 {
    let low = |arg: usize| call.args[arg] as u32;
    let both = [PROGRAM_GATE_RETURN, OWN_GATE_RETURN];
    let trap_if = |any: bool, gates: &[usize]| {
        if any && !exempt(call, gates) {
            TRAP_A
        } else {
            RET_ALLOW
        }
    };
    if call.arch != AUDIT_ARCH || call.nr >= FOREIGN_ABI_NR {
        return RET_ALLOW;
    }
    match call.nr as usize {
        nr::IO_URING_SETUP | nr::CLONE3 => ENOSYS,
        nr::IO_SETUP if low(0) == NR_EVENTS => RET_ALLOW,
        nr::IO_SETUP => ENOSYS,
        nr::MMAP => {
            const MAP_FIXED: u32 = 0x10;
            const MAP_FIXED_NOREPLACE: u32 = 0x10_0000;
            let trapped = trap_if(in_arena(call.args[0]), &both);
            match low(3) & (MAP_FIXED | MAP_FIXED_NOREPLACE) {
                0 if trapped == TRAP_A => ENOMEM,
                _ => trapped,
            }
        }
        nr::MUNMAP
        | nr::MREMAP
        | nr::MPROTECT
        | nr::MADVISE
        | nr::MLOCK
        | nr::MLOCK2
        | nr::MUNLOCK
        | nr::MSYNC
        | nr::PKEY_MPROTECT => trap_if(in_arena(call.args[0]), &both),
        nr::FUTEX => {
            let pointers = futex_pointers(low(1));
            let any = pointers.iter().any(|arg| in_arena(call.args[*arg]));
            trap_if(any, &both[..1])
        }
        _ if call.nr == PROBE.0 && low(0) == PROBE.1 => PROBE.2,
        _ if call.nr == PROBE.0 => RET_ALLOW,
        nr => {
            let mask = table::mask(nr) | u8::from(nr == nr::MINCORE);
            let pointers = (0..6).filter(|arg| mask >> arg & 1 == 1);
            let any = pointers
                .into_iter()
                .any(|arg: usize| in_arena(call.args[arg]));
            trap_if(any, &both[..1])
        }
    }
}

/// The arguments of futex(2) that an operation takes for pointers.
fn futex_pointers(operation: u32) -> &'static [usize] {
    const PRIVATE: u32 = 0x80;
    match (operation & 0x7f, operation & PRIVATE != 0) {
        // Waking private waiters touches no memory.
        (1 | 10, true) => &[],
        (1 | 10 | 7 | 8, _) => &[0],
        (0 | 9 | 6 | 13, _) => &[0, 3],
        _ => &[0, 3, 4],
    }
}

fn expected_of_b(call: &Call, text: &[(usize, usize)], workers: bool, shows: bool) -> u32 {
    if call.arch != AUDIT_ARCH || call.nr >= FOREIGN_ABI_NR {
        return RET_ALLOW;
    }
    let is_from = |(from, to): &(usize, usize)| {
        let range: RangeInclusive<u64> = *from as u64..=*to as u64;
        range.contains(&call.ip)
    };
    if traps_in_b(call, workers, shows) && text.iter().any(is_from) {
        TRAP_B
    } else {
        RET_ALLOW
    }
}

/// Whether filter B is there for the call, wherever it comes from.
fn traps_in_b(call: &Call, workers: bool, shows: bool) -> bool {
    const CLONE_VM: u64 = 0x100;
    const PR_SET_SECCOMP: u32 = 22;
    const PR_SET_TSC: u32 = 26;
    let low = |arg: usize| call.args[arg] as u32;
    match call.nr as usize {
        nr::EXIT => workers,
        nr::SYSINFO => shows,
        nr::READV | nr::WRITEV | nr::PREADV | nr::PWRITEV | nr::PREADV2 | nr::PWRITEV2 => true,
        nr::SENDMSG | nr::RECVMSG | nr::SENDMMSG | nr::RECVMMSG => true,
        nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV | nr::VMSPLICE | nr::FUTEX_WAITV => true,
        nr::RT_SIGACTION | nr::SIGALTSTACK | nr::RT_SIGSUSPEND | nr::SECCOMP => true,
        nr::EXECVE | nr::EXECVEAT | nr::FORK | nr::CLOSE_RANGE => true,
        nr::CLONE => call.args[0] & CLONE_VM == 0,
        nr::PRCTL => [PR_SET_SECCOMP, PR_SET_TSC].contains(&low(0)),
        nr::IOCTL => low(1) >> 8 != 0x54,
        nr::RT_SIGPROCMASK => call.args[1] != 0,
        nr::PPOLL => call.args[3] != 0,
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => call.args[4] != 0,
        nr::PSELECT6 => call.args[5] != 0,
        _ => false,
    }
}
