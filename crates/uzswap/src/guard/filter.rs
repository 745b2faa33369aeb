//! *What*: the filter: traps a call if one of its pointer arguments lies in the arena, unless it
//! comes from the exempt page.
//!
//! *Invariants*: the same in every process, so one that inherits it needs no other: a probe finds
//! out. Whatever is not trapped is left alone. Text below 4 GiB is exempt, as it is from the
//! filters of `uzswap run`: a program there that inherits the filter has no handler.
//! *Locking*: none. *Context*: building the first pool.

use uzswap_core::{ARENA_BASE, ARENA_LEN};
use uzswap_guard::bpf::{Leaves, MAX_LEAVES, Program, high, low};
use uzswap_guard::{gate, table};
use uzswap_sys::Errno;
use uzswap_sys::seccomp::{
    AUDIT_ARCH, DATA_ARCH, DATA_IP_HI, DATA_IP_LO, DATA_NR, FOREIGN_ABI_NR, RET_ALLOW, RET_ERRNO,
    RET_TRAP, SockFilter, data_arg_hi, data_arg_lo, op,
};

/// `si_errno` of our traps.
const TAG: u32 = 0x5a53;
/// `si_errno` of a trap by the filter that all under `uzswap run` inherit.
const TAG_OF_RUN: u32 = 0x5a51;
/// A call number that no kernel has, which the filters answer.
const PROBE_NR: u32 = 0x5a53;
/// What the probe passes to this filter and to that of `uzswap run`, and their answers.
const PROBE_ARG: u32 = 0x757a_6c62;
const PROBE_ANSWER: u32 = 0xa52;
const PROBE_ARG_OF_RUN: u32 = 0x757a_7377;
const PROBE_ANSWER_OF_RUN: u32 = 0xa51;
/// The class of the probe; the others are masks of pointer arguments.
const CLASS_PROBE: u8 = 64;

/// Bits of the arena's addresses above 2³², and those of them that differ within it.
const ARENA_HI: u32 = high(ARENA_BASE);
const ARENA_HI_VARIES: u32 = high(ARENA_LEN) - 1;

/// Whether a trap is of a filter that means a pool's memory.
pub(super) fn is_tag(errno: i32) -> bool {
    [TAG, TAG_OF_RUN].contains(&errno.cast_unsigned())
}

/// Whether this process has inherited such a filter.
pub(super) fn is_present() -> bool {
    let probes = [
        (PROBE_ARG, PROBE_ANSWER),
        (PROBE_ARG_OF_RUN, PROBE_ANSWER_OF_RUN),
    ];
    probes.into_iter().any(|(arg, answer)| {
        // SAFETY: no kernel has this call.
        let ret = unsafe { uzswap_sys::syscall::call1(PROBE_NR as usize, arg as usize) };
        ret == Err(Errno(answer.cast_signed()))
    })
}

/// A filter.
pub(super) struct Built(Box<Program>);

impl Built {
    /// Its instructions.
    pub fn code(&self) -> &[SockFilter] {
        self.0.code().unwrap_or_default()
    }
}

fn class(nr: u32) -> u8 {
    match nr {
        PROBE_NR => CLASS_PROBE,
        nr => table::mask(nr as usize),
    }
}

/// Builds it.
///
/// # Errors
/// `ENOMEM`: it does not fit.
pub(super) fn build() -> Result<Built, Errno> {
    let mut program = Box::new(Program::new());
    let mut leaves = Box::new(Leaves::new());
    let end = u32::try_from(table::END).map_err(|_| Errno::ENOMEM)?;
    let mut starts: Vec<(u32, u8)> = Vec::with_capacity(MAX_LEAVES);
    for nr in (0..=end).chain([PROBE_NR, PROBE_NR + 1]) {
        if starts.last().is_none_or(|(_, last)| *last != class(nr)) {
            starts.push((nr, class(nr)));
        }
    }
    program.load(DATA_ARCH);
    program.jump(op::JEQ, AUDIT_ARCH, 1, 0);
    program.ret(RET_ALLOW);
    program.load(DATA_NR);
    program.jump(op::JGE, FOREIGN_ABI_NR, 0, 1);
    program.ret(RET_ALLOW);
    program.tree(&starts, &mut leaves);
    let mut in_arena = Vec::new();
    for class in 1..CLASS_PROBE {
        if !leaves.land(&mut program, class) {
            continue;
        }
        let args: Vec<u32> = (0..6).filter(|arg| class & 1 << arg != 0).collect();
        for (arg, left) in args.iter().zip((0..args.len()).rev()) {
            program.load(data_arg_hi(*arg));
            program.stmt(op::AND, !ARENA_HI_VARIES);
            // Over the checks that are left and the return.
            program.jump(
                op::JEQ,
                ARENA_HI,
                u8::try_from(3 * left + 1).unwrap_or(0),
                0,
            );
        }
        program.ret(RET_ALLOW);
        in_arena.push(program.ja());
    }
    let here = program.here();
    in_arena
        .into_iter()
        .for_each(|jump| program.land(jump, here));
    program.load(DATA_IP_HI);
    program.jump(op::JEQ, 0, 4, 0);
    program.jump(op::JEQ, high(gate::PROGRAM_GATE_RETURN), 0, 2);
    program.load(DATA_IP_LO);
    program.jump(op::JEQ, low(gate::PROGRAM_GATE_RETURN), 1, 0);
    program.ret(RET_TRAP | TAG);
    program.ret(RET_ALLOW);
    leaves.land(&mut program, CLASS_PROBE);
    program.load(data_arg_lo(0));
    program.jump(op::JEQ, PROBE_ARG, 0, 1);
    program.ret(RET_ERRNO | PROBE_ANSWER);
    program.ret(RET_ALLOW);
    match program.code() {
        Some(_) if leaves.complete() => Ok(Built(program)),
        _ => Err(Errno::ENOMEM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uzswap_guard::bpf::interpreter::{Data, run};
    use uzswap_sys::nr;

    const IN_ARENA: u64 = ARENA_BASE as u64 + 0x0234_5678_9abc;
    const TEXT: u64 = 0x7f12_3400_0000;

    fn action(nr: usize, args: [u64; 6], ip: u64) -> u32 {
        let data = Data {
            nr: u32::try_from(nr).unwrap(),
            arch: AUDIT_ARCH,
            ip,
            args,
        };
        run(build().unwrap().code(), &data).0
    }

    #[test]
    fn calls_on_pools_trap_and_others_do_not() {
        let buffer = [3, IN_ARENA, 4096, 0, 0, 0];
        assert_eq!(action(nr::READ, buffer, TEXT), RET_TRAP | TAG);
        assert_eq!(action(nr::WRITE, buffer, TEXT), RET_TRAP | TAG);
        assert_eq!(
            action(nr::READ, [3, TEXT, IN_ARENA, 0, 0, 0], TEXT),
            RET_ALLOW
        );
        assert_eq!(
            action(nr::MADVISE, [IN_ARENA, 4096, 4, 0, 0, 0], TEXT),
            RET_ALLOW
        );
        assert_eq!(
            action(nr::OPENAT, [0, IN_ARENA, 0, 0, 0, 0], TEXT),
            RET_TRAP | TAG
        );
        for edge in [ARENA_BASE, ARENA_BASE + ARENA_LEN - 1].map(|at| at as u64) {
            assert_eq!(
                action(nr::FSTAT, [1, edge, 0, 0, 0, 0], TEXT),
                RET_TRAP | TAG
            );
        }
        for outside in [ARENA_BASE - 1, ARENA_BASE + ARENA_LEN].map(|at| at as u64) {
            assert_eq!(action(nr::FSTAT, [1, outside, 0, 0, 0, 0], TEXT), RET_ALLOW);
        }
    }

    #[test]
    fn the_gate_and_low_text_are_exempt() {
        let buffer = [3, IN_ARENA, 4096, 0, 0, 0];
        let gate = gate::PROGRAM_GATE_RETURN as u64;
        assert_eq!(action(nr::READ, buffer, gate), RET_ALLOW);
        assert_eq!(action(nr::READ, buffer, gate + 1), RET_TRAP | TAG);
        assert_eq!(action(nr::READ, buffer, 0x40_1234), RET_ALLOW);
    }

    #[test]
    fn the_probe_is_answered() {
        let probe = |arg| action(PROBE_NR as usize, [arg, 0, 0, 0, 0, 0], TEXT);
        assert_eq!(probe(PROBE_ARG.into()), RET_ERRNO | PROBE_ANSWER);
        assert_eq!(probe(PROBE_ARG_OF_RUN.into()), RET_ALLOW);
    }

    #[test]
    fn a_call_takes_few_instructions() {
        let data = Data {
            nr: u32::try_from(nr::READ).unwrap(),
            arch: AUDIT_ARCH,
            ip: TEXT,
            args: [3, TEXT, 4096, 0, 0, 0],
        };
        let (_, steps) = run(build().unwrap().code(), &data);
        assert!(steps < 40, "{steps}");
    }
}
