//! *What*: the two seccomp filters.
//!
//! **Filter A** is installed once by the first process of a `uzswap run`, and inherited by all. It
//! traps a call if one of its pointer arguments ([`uzswap_guard::table`]) lies in the arena, unless
//! the call comes from the stub page; and a call that maps or unmaps there: those that the C
//! library makes by name are interposed ([`crate::maps`]), but a library may make its own.
//! `io_setup` (but for the engine's own), `io_uring_setup` and `clone3` answer `ENOSYS`, and
//! callers fall back, as they do in containers.
//!
//! A program that is not managed (a static one, or one started with an empty environment) inherits
//! the filter without the handler: a trap is its end. It may have memory in the arena's range, as
//! Go does, which begins its heap anywhere. So text below 4 GiB, where programs lie that are not
//! position independent, is exempt. Elsewhere text of a managed program and another's cannot be
//! told apart. There a hint to map in the range is refused (`ENOMEM`), and who asks for it falls
//! back to another address, so that no pointer into the range comes about.
//!
//! **Filter B** is installed by every managed process, and names its own foreign text (everything
//! executable at start but ours). It traps what cannot be judged by its arguments, or must pass
//! through us: vectors and message headers (whose buffers lie behind a second pointer), forks,
//! signal actions and masks, `execve`, `close_range`, filters of the program's own. A program
//! started from here inherits it, but has its text elsewhere, by address space randomisation, so
//! that filter B does not match it.
//!
//! *Holes, known*: calls of filter B's kind made by an instruction that was not mapped at start (a
//! library loaded later that has its own system call instruction, code made at run time). Any call
//! made by an instruction of a program that is not position independent. An unmanaged child may
//! have its text where a parent's was: by chance, one start in some hundred thousand for each
//! filter, or because the machine randomises no addresses. Chains of exec therefore stop adding
//! filters ([`super::room`]).
//!
//! *Invariants*: filter A is the same in all processes, so one installation is enough: a probe call
//! finds out ([`present`]).
//! *Locking*: none. *Context*: init.

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_guard::bpf::{Leaves, MAX_LEAVES, Program, high, low};
use uzswap_guard::table;
use uzswap_io::queue::NR_EVENTS;
use uzswap_sys::arch::PR_SET_TSC;
use uzswap_sys::mem::{MAP_FIXED, MAP_FIXED_NOREPLACE};
use uzswap_sys::seccomp::{
    AUDIT_ARCH, DATA_ARCH, DATA_IP_HI, DATA_IP_LO, DATA_NR, FOREIGN_ABI_NR, PR_SET_SECCOMP,
    RET_ALLOW, RET_ERRNO, RET_TRAP, data_arg_hi, data_arg_lo, op,
};
use uzswap_sys::thread::CLONE_VM;
use uzswap_sys::{Errno, nr};

use super::stub;

/// `si_errno` of a trap by filter A.
pub const TAG_A: u32 = 0x5a51;
/// `si_errno` of a trap by filter B.
pub const TAG_B: u32 = 0x5a52;

/// A call number that no kernel has, which filter A answers.
const PROBE_NR: u32 = 0x5a53;
/// What the probe passes, and filter A answers to (with an error number).
const PROBE_ARG: u32 = 0x757a_7377;
const PROBE_ANSWER: u32 = 0xa51;

/// Flags of mmap(2) by which the address is no hint.
const FIXED: u32 = (MAP_FIXED | MAP_FIXED_NOREPLACE).cast_unsigned();

/// Bits of the arena's addresses above 2³².
const ARENA_HI: u32 = high(ARENA_BASE);
/// Those bits that differ within the arena.
const ARENA_HI_VARIES: u32 = high(ARENA_LEN) - 1;
const _: () = assert!(ARENA_LEN.is_power_of_two() && ARENA_BASE.is_multiple_of(ARENA_LEN));

/// Classes of calls in filter A above the 64 argument masks.
const CLASS_FUTEX: u8 = 64;
/// Classes that end where the call comes from.
const NR_CLASSES: usize = 65;
const CLASS_NOT_THERE: u8 = 65;
const CLASS_PROBE: u8 = 66;
const CLASS_QUEUE: u8 = 67;
const CLASS_RANGE: u8 = 68;
const CLASS_FIXED: u8 = 69;

/// Memory that building a filter takes.
pub struct Builder {
    /// The result.
    pub program: Program,
    leaves: Leaves,
    starts: [(u32, u8); MAX_LEAVES],
}

impl Builder {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Builder {
            program: Program::new(),
            leaves: Leaves::new(),
            starts: [(0, 0); MAX_LEAVES],
        }
    }

    /// Emits the head (other ABIs are let through) and the tree over `class_of`.
    fn tree(&mut self, class_of: impl Fn(u32) -> u8, numbers: impl Iterator<Item = u32>) {
        let Builder {
            program,
            leaves,
            starts,
        } = self;
        program.clear();
        leaves.clear();
        let mut len = 0;
        let mut last = None;
        for nr in numbers {
            let class = class_of(nr);
            if last != Some(class)
                && let Some(to) = starts.get_mut(len)
            {
                *to = (nr, class);
                len += 1;
                last = Some(class);
            }
        }
        program.load(DATA_ARCH);
        program.jump(op::JEQ, AUDIT_ARCH, 1, 0);
        program.ret(RET_ALLOW);
        program.load(DATA_NR);
        program.jump(op::JGE, FOREIGN_ABI_NR, 0, 1);
        program.ret(RET_ALLOW);
        program.tree(starts.get(..len).unwrap_or_default(), leaves);
    }

    /// Builds filter A.
    ///
    /// # Errors
    /// `ENOMEM`: it does not fit.
    pub fn build_a(&mut self) -> Result<(), Errno> {
        let end = u32::try_from(table::END).map_err(|_| Errno::ENOMEM)?;
        let numbers = (0..=end).chain([PROBE_NR, PROBE_NR + 1]);
        self.tree(class_a, numbers);
        let Builder {
            program, leaves, ..
        } = self;
        // Every class ends in a jump to the one check of where the call comes from.
        let mut in_arena = [0; NR_CLASSES];
        for (class, jump) in (0..).zip(&mut in_arena) {
            if class == 0 || !leaves.land(program, class) {
                continue;
            }
            if class == CLASS_FUTEX {
                *jump = futex(program);
                continue;
            }
            let nr_args = class.count_ones();
            for (n, arg) in (0..6u32).filter(|a| class & 1 << a != 0).enumerate() {
                let left = nr_args - u32::try_from(n).unwrap_or(0) - 1;
                program.load(data_arg_hi(arg));
                program.stmt(op::AND, !ARENA_HI_VARIES);
                // Over the checks that are left and the return.
                let over = u8::try_from(3 * left + 1).unwrap_or(0);
                program.jump(op::JEQ, ARENA_HI, over, 0);
            }
            program.ret(RET_ALLOW);
            *jump = program.ja();
        }
        let here = program.here();
        for jump in in_arena.into_iter().filter(|jump| *jump != 0) {
            program.land(jump, here);
        }
        allow_from(program, &[stub::PROGRAM_GATE_RETURN]);
        program.ret(RET_TRAP | TAG_A);
        if leaves.land(program, CLASS_QUEUE) {
            // The engine's own, for its swap devices. Other queues' buffers might be evicted.
            program.load(data_arg_lo(0));
            program.jump(op::JEQ, NR_EVENTS, 0, 1);
            program.ret(RET_ALLOW);
            program.ret(RET_ERRNO | Errno::ENOSYS.0.unsigned_abs());
        }
        if leaves.land(program, CLASS_FIXED) {
            range(program);
            program.load(data_arg_lo(3));
            program.jump(op::JSET, FIXED, 0, 1);
            program.ret(RET_TRAP | TAG_A);
            program.ret(RET_ERRNO | Errno::ENOMEM.0.unsigned_abs());
        }
        if leaves.land(program, CLASS_RANGE) {
            range(program);
            program.ret(RET_TRAP | TAG_A);
        }
        leaves.land(program, CLASS_NOT_THERE);
        program.ret(RET_ERRNO | Errno::ENOSYS.0.unsigned_abs());
        leaves.land(program, CLASS_PROBE);
        program.load(data_arg_lo(0));
        program.jump(op::JEQ, PROBE_ARG, 0, 1);
        program.ret(RET_ERRNO | PROBE_ANSWER);
        program.ret(RET_ALLOW);
        self.finished()
    }

    /// Builds filter B for the text in `ranges` (first and end address of each). `workers`: the
    /// process has threads of ours, which the last thread of the program must not leave behind.
    /// `shows`: the program is to see another total of memory ([`crate::show_memory`]).
    ///
    /// # Errors
    /// `ENOMEM`: it does not fit.
    pub fn build_b(
        &mut self,
        ranges: &[(usize, usize)],
        workers: bool,
        shows: bool,
    ) -> Result<(), Errno> {
        let end = u32::try_from(table::END).map_err(|_| Errno::ENOMEM)?;
        let class = |nr| match nr as usize {
            nr::EXIT if workers => Condition::Always as u8,
            nr::SYSINFO if shows => Condition::Always as u8,
            _ => class_b(nr),
        };
        self.tree(class, 0..=end);
        let Builder {
            program, leaves, ..
        } = self;
        // Each condition ends in a jump to the one list of ranges: every process adds a filter to
        // those it inherits, and the kernel's room for them is limited.
        let mut to_ranges = [0; CONDITIONS.len()];
        let mut nr_to_ranges = 0;
        for condition in CONDITIONS {
            if !leaves.land(program, *condition as u8) {
                continue;
            }
            match condition {
                Condition::Never | Condition::Always => {}
                Condition::Fork => {
                    // Sharing memory it is a thread or a vfork.
                    program.load(data_arg_lo(0));
                    program.jump(op::JSET, low(CLONE_VM), 0, 1);
                    program.ret(RET_ALLOW);
                }
                Condition::Terminal => {
                    program.load(data_arg_lo(1));
                    program.stmt(op::RSH, 8);
                    program.jump(op::JEQ, 0x54, 0, 1);
                    program.ret(RET_ALLOW);
                }
                Condition::Forbids => {
                    program.load(data_arg_lo(0));
                    program.jump(op::JEQ, PR_SET_SECCOMP.cast_unsigned(), 2, 0);
                    program.jump(op::JEQ, PR_SET_TSC.cast_unsigned(), 1, 0);
                    program.ret(RET_ALLOW);
                }
                Condition::Arg1 => pointer_given(program, 1),
                Condition::Arg3 => pointer_given(program, 3),
                Condition::Arg4 => pointer_given(program, 4),
                Condition::Arg5 => pointer_given(program, 5),
            }
            if let Some(to) = to_ranges.get_mut(nr_to_ranges) {
                *to = program.ja();
                nr_to_ranges += 1;
            }
        }
        let here = program.here();
        for jump in to_ranges.iter().take(nr_to_ranges) {
            program.land(*jump, here);
        }
        for (from, to) in ranges {
            // The end is the address after the last instruction, which is what is reported.
            program.load(DATA_IP_HI);
            program.jump(op::JEQ, high(*from), 0, 4);
            program.load(DATA_IP_LO);
            program.jump(op::JGE, low(*from), 0, 2);
            program.jump(op::JGT, low(*to), 1, 0);
            program.ret(RET_TRAP | TAG_B);
        }
        program.ret(RET_ALLOW);
        self.finished()
    }

    fn finished(&self) -> Result<(), Errno> {
        if self.leaves.complete() && self.program.code().is_some() {
            Ok(())
        } else {
            Err(Errno::ENOMEM)
        }
    }
}

/// Allows a call from text below 4 GiB, and one that returns to one of `gates`, in the stub page.
fn allow_from(program: &mut Program, gates: &[usize]) {
    program.load(DATA_IP_HI);
    program.jump(op::JEQ, 0, 0, 1);
    program.ret(RET_ALLOW);
    for at in gates {
        program.load(DATA_IP_HI);
        program.jump(op::JEQ, high(*at), 0, 3);
        program.load(DATA_IP_LO);
        program.jump(op::JEQ, low(*at), 0, 1);
        program.ret(RET_ALLOW);
    }
}

/// A call that changes what is mapped at its first argument: goes on if that is in the arena and
/// the call not ours.
fn range(program: &mut Program) {
    program.load(data_arg_hi(0));
    program.stmt(op::AND, !ARENA_HI_VARIES);
    program.jump(op::JEQ, ARENA_HI, 1, 0);
    program.ret(RET_ALLOW);
    allow_from(program, &[stub::PROGRAM_GATE_RETURN, stub::OWN_GATE_RETURN]);
}

/// Which arguments of `futex` are pointers depends on the operation; the others may hold anything.
/// Waking private waiters touches no memory. Returns the jump that is taken in the arena.
fn futex(program: &mut Program) -> usize {
    const OP: u32 = 0x7f;
    const PRIVATE: u32 = 0x80;
    const WAKE: u32 = 1;
    const WAKE_BITSET: u32 = 10;
    /// Operations on one word: wake, unlock and trylock with priorities.
    const ONE_WORD: [u32; 4] = [WAKE, WAKE_BITSET, 7, 8];
    /// One word and a time: wait, lock with priorities.
    const TIMED: [u32; 4] = [0, 9, 6, 13];
    let in_arena = |program: &mut Program, arg| {
        program.load(data_arg_hi(arg));
        program.stmt(op::AND, !ARENA_HI_VARIES);
        program.jump(op::JEQ, ARENA_HI, 0, 1);
        program.ja()
    };
    let allow = |program: &mut Program, bits, operations: &[u32]| {
        program.load(data_arg_lo(1));
        program.stmt(op::AND, bits);
        for operation in operations {
            program.jump(op::JEQ, *operation, 0, 1);
            program.ret(RET_ALLOW);
        }
    };
    allow(
        program,
        OP | PRIVATE,
        &[WAKE | PRIVATE, WAKE_BITSET | PRIVATE],
    );
    let word = in_arena(program, 0);
    allow(program, OP, &ONE_WORD);
    let time = in_arena(program, 3);
    allow(program, OP, &TIMED);
    let second = in_arena(program, 4);
    program.ret(RET_ALLOW);
    let here = program.here();
    for jump in [word, time, second] {
        program.land(jump, here);
    }
    program.ja()
}

/// Goes on if argument `n` is not null.
fn pointer_given(program: &mut Program, n: u32) {
    program.load(data_arg_lo(n));
    program.jump(op::JEQ, 0, 0, 3);
    program.load(data_arg_hi(n));
    program.jump(op::JEQ, 0, 0, 1);
    program.ret(RET_ALLOW);
}

/// The class of call `nr` in filter A: its mask of pointer arguments, or one of `CLASS_`.
fn class_a(nr: u32) -> u8 {
    match nr as usize {
        nr::IO_URING_SETUP | nr::CLONE3 => CLASS_NOT_THERE,
        nr::IO_SETUP => CLASS_QUEUE,
        nr::FUTEX => CLASS_FUTEX,
        nr::MMAP => CLASS_FIXED,
        nr::MUNMAP | nr::MREMAP | nr::MPROTECT | nr::MADVISE => CLASS_RANGE,
        nr::MLOCK | nr::MLOCK2 | nr::MUNLOCK | nr::MSYNC | nr::PKEY_MPROTECT => CLASS_RANGE,
        // The range that it asks about, too.
        nr::MINCORE => table::mask(nr::MINCORE) | 1,
        n if n < table::END => table::mask(n),
        _ if nr == PROBE_NR => CLASS_PROBE,
        n => table::mask(n),
    }
}

/// When a call of filter B traps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Condition {
    Never = 0,
    Always = 1,
    /// A clone that copies memory.
    Fork = 2,
    /// All but terminal calls, which are frequent and have plain arguments.
    Terminal = 3,
    /// Argument 1 is not null.
    Arg1 = 4,
    Arg3 = 5,
    Arg4 = 6,
    Arg5 = 7,
    /// A `prctl` that installs a filter, or forbids the time stamp counter.
    Forbids = 8,
}

const CONDITIONS: &[Condition] = &[
    Condition::Always,
    Condition::Fork,
    Condition::Terminal,
    Condition::Arg1,
    Condition::Arg3,
    Condition::Arg4,
    Condition::Arg5,
    Condition::Forbids,
];

fn class_b(nr: u32) -> u8 {
    let condition = match nr as usize {
        nr::READV | nr::WRITEV | nr::PREADV | nr::PWRITEV | nr::PREADV2 | nr::PWRITEV2 => {
            Condition::Always
        }
        nr::SENDMSG | nr::RECVMSG | nr::SENDMMSG | nr::RECVMMSG => Condition::Always,
        nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV | nr::VMSPLICE | nr::FUTEX_WAITV => {
            Condition::Always
        }
        nr::RT_SIGACTION | nr::SIGALTSTACK | nr::RT_SIGSUSPEND => Condition::Always,
        nr::EXECVE | nr::EXECVEAT | nr::FORK | nr::CLOSE_RANGE => Condition::Always,
        nr::CLONE => Condition::Fork,
        nr::SECCOMP => Condition::Always,
        nr::PRCTL => Condition::Forbids,
        nr::IOCTL => Condition::Terminal,
        nr::RT_SIGPROCMASK => Condition::Arg1,
        nr::PPOLL => Condition::Arg3,
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => Condition::Arg4,
        nr::PSELECT6 => Condition::Arg5,
        _ => Condition::Never,
    };
    condition as u8
}

/// Whether filter A is on this process.
#[must_use]
pub fn present() -> bool {
    // SAFETY: no kernel has this call.
    let ret = unsafe { uzswap_sys::syscall::call1(PROBE_NR as usize, PROBE_ARG as usize) };
    ret == Err(Errno(PROBE_ANSWER.cast_signed()))
}

#[cfg(test)]
#[path = "filter/tests.rs"]
mod tests;
