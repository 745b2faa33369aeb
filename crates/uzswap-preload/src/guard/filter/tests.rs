//! The filters as the kernel would run them, call by call.
use super::*;
use uzswap_guard::bpf::interpreter::{Data, run};

const TRAP_A: u32 = RET_TRAP | TAG_A;
const TRAP_B: u32 = RET_TRAP | TAG_B;
const IN_ARENA: u64 = ARENA_BASE as u64 + 0x0234_5678_9abc;
const LIBC: (usize, usize) = (0x7f12_3400_0000, 0x7f12_3418_0000);
const MAIN: (usize, usize) = (0x5555_5555_5000, 0x5555_5556_0000);

fn a() -> Box<Builder> {
    let mut b = Box::new(Builder::new());
    b.build_a().expect("filter A fits");
    b
}

fn b() -> Box<Builder> {
    let mut b = Box::new(Builder::new());
    b.build_b(&[MAIN, LIBC], false, false)
        .expect("filter B fits");
    b
}

fn call(nr: usize, args: [u64; 6]) -> Data {
    let nr = u32::try_from(nr).unwrap();
    let ip = LIBC.0 as u64 + 0x77;
    Data {
        nr,
        arch: AUDIT_ARCH,
        ip,
        args,
    }
}

#[test]
fn a_pointer_into_the_arena_traps_and_any_other_argument_does_not() {
    let b = a();
    let code = b.program.code().unwrap();
    for nr in 0..table::END + 10 {
        for arg in 0..6 {
            let mut args = [0x7fff_1234_5678; 6];
            args[arg] = IN_ARENA;
            let want = match nr {
                nr::IO_SETUP | nr::IO_URING_SETUP | nr::CLONE3 => RET_ERRNO | 38,
                // By its operation: see below.
                nr::FUTEX => continue,
                // Its flags, by chance, say that the address is no hint.
                nr::MMAP | nr::MUNMAP | nr::MREMAP | nr::MPROTECT if arg == 0 => TRAP_A,
                nr::MADVISE | nr::MLOCK | nr::MLOCK2 | nr::MUNLOCK if arg == 0 => TRAP_A,
                nr::MINCORE | nr::MSYNC | nr::PKEY_MPROTECT if arg == 0 => TRAP_A,
                _ if table::mask(nr) & 1 << arg != 0 => TRAP_A,
                _ => RET_ALLOW,
            };
            assert_eq!(
                run(code, &call(nr, args)).0,
                want,
                "call {nr} argument {arg}"
            );
        }
    }
}

#[test]
fn the_arena_is_trapped_from_its_first_byte_to_its_last_and_no_further() {
    let b = a();
    let code = b.program.code().unwrap();
    let at = |address: usize| run(code, &call(nr::READ, [0, address as u64, 1, 0, 0, 0])).0;
    assert_eq!(at(ARENA_BASE), TRAP_A);
    assert_eq!(at(ARENA_BASE + ARENA_LEN - 1), TRAP_A);
    assert_eq!(at(ARENA_BASE - 1), RET_ALLOW);
    assert_eq!(at(ARENA_BASE + ARENA_LEN), RET_ALLOW);
    assert_eq!(at(0), RET_ALLOW);
    assert_eq!(at(usize::MAX), RET_ALLOW);
}

#[test]
fn the_engine_alone_makes_queues() {
    let b = a();
    let code = b.program.code().unwrap();
    let setup = |nr_events| run(code, &call(nr::IO_SETUP, [nr_events, 0, 0, 0, 0, 0])).0;
    assert_eq!(setup(NR_EVENTS.into()), RET_ALLOW);
    assert_eq!(setup(128), RET_ERRNO | 38);
}

#[test]
fn what_must_not_be_touched_passes() {
    let b = a();
    let code = b.program.code().unwrap();
    for nr in [nr::RT_SIGRETURN, nr::CLONE, nr::VFORK, nr::RESTART_SYSCALL] {
        assert_eq!(run(code, &call(nr, [IN_ARENA; 6])).0, RET_ALLOW, "{nr}");
    }
    let mut stub = call(nr::READ, [0, IN_ARENA, 1, 0, 0, 0]);
    stub.ip = stub::PROGRAM_GATE_RETURN as u64;
    assert_eq!(run(code, &stub).0, RET_ALLOW);
    let mut other = stub;
    other.ip = stub::OWN_GATE_RETURN as u64;
    assert_eq!(run(code, &other).0, TRAP_A);
    let mut foreign = call(nr::READ, [IN_ARENA; 6]);
    foreign.nr |= FOREIGN_ABI_NR;
    assert_eq!(run(code, &foreign).0, RET_ALLOW);
    let mut other_arch = call(nr::READ, [IN_ARENA; 6]);
    other_arch.arch = 0x4000_0003;
    assert_eq!(run(code, &other_arch).0, RET_ALLOW);
}

#[test]
fn mappings_in_the_arena_change_by_the_engine_alone() {
    let b = a();
    let code = b.program.code().unwrap();
    let at = |nr, args: [u64; 6], ip: usize| {
        let mut data = call(nr, args);
        data.ip = ip as u64;
        run(code, &data).0
    };
    for ip in [stub::PROGRAM_GATE_RETURN, stub::OWN_GATE_RETURN] {
        assert_eq!(at(nr::MUNMAP, [IN_ARENA, 4096, 0, 0, 0, 0], ip), RET_ALLOW);
        assert_eq!(at(nr::MMAP, [IN_ARENA, 4096, 3, 0x32, 0, 0], ip), RET_ALLOW);
    }
    let mmap = |flags, ip| at(nr::MMAP, [IN_ARENA, 4096, 3, flags, 0, 0], ip);
    assert_eq!(mmap(0x22, LIBC.0), RET_ERRNO | 12, "a hint");
    assert_eq!(mmap(0x32, LIBC.0), TRAP_A);
    assert_eq!(mmap(0x10_0022, LIBC.0), TRAP_A);
    for ip in [stub::PROGRAM_GATE_RETURN, stub::OWN_GATE_RETURN] {
        assert_eq!(mmap(0x22, ip), RET_ALLOW);
    }
    let elsewhere = [0, 0x7f00_0000_0000, u64::MAX];
    for address in elsewhere {
        let args = [address, 4096, 3, 0x22, 0, 0];
        assert_eq!(at(nr::MMAP, args, LIBC.0), RET_ALLOW, "{address:#x}");
    }
}

#[test]
fn a_program_that_is_not_position_independent_is_never_trapped() {
    let (a, b) = (a(), b());
    for nr in 0..table::END + 10 {
        let not_there = [nr::IO_SETUP, nr::IO_URING_SETUP, nr::CLONE3].contains(&nr);
        let want = if not_there { RET_ERRNO | 38 } else { RET_ALLOW };
        for ip in [0x40_1000, 0x1234_5678, 0xffff_fff0] {
            let mut data = call(nr, [IN_ARENA; 6]);
            data.ip = ip;
            let code = a.program.code().unwrap();
            assert_eq!(run(code, &data).0, want, "call {nr} at {ip:#x}");
            let code = b.program.code().unwrap();
            assert_eq!(run(code, &data).0, RET_ALLOW, "call {nr} at {ip:#x}");
        }
    }
}

#[test]
fn a_futex_traps_by_the_arguments_that_its_operation_has() {
    let b = a();
    let code = b.program.code().unwrap();
    let at = |op: u64, args: [u64; 3]| {
        let data = call(nr::FUTEX, [args[0], op, 1, args[1], args[2], 0]);
        run(code, &data).0
    };
    let (wait, wake, lock, wake_op, private, realtime) = (0, 1, 6, 5, 0x80, 0x100);
    let out = 0x7fff_0000_0000;
    assert_eq!(
        at(wake | private, [IN_ARENA, IN_ARENA, IN_ARENA]),
        RET_ALLOW
    );
    assert_eq!(at(wake, [IN_ARENA, 0, 0]), TRAP_A);
    assert_eq!(at(wake, [out, IN_ARENA, IN_ARENA]), RET_ALLOW);
    for op in [
        wait | private,
        wait,
        lock | private,
        9 | private | realtime,
        13,
    ] {
        assert_eq!(at(op, [IN_ARENA, 0, 0]), TRAP_A, "{op:#x}");
        assert_eq!(at(op, [out, IN_ARENA, 0]), TRAP_A, "{op:#x}");
        assert_eq!(at(op, [out, 0, IN_ARENA]), RET_ALLOW, "{op:#x}");
    }
    for op in [wake_op | private, 3, 4 | private, 11, 12] {
        assert_eq!(at(op, [out, 0, IN_ARENA]), TRAP_A, "{op:#x}");
    }
}

#[test]
fn only_the_probe_with_its_word_is_answered() {
    let b = a();
    let code = b.program.code().unwrap();
    let nr = PROBE_NR as usize;
    let at = |nr, arg| run(code, &call(nr, [arg, 0, 0, 0, 0, 0])).0;
    assert_eq!(at(nr, u64::from(PROBE_ARG)), RET_ERRNO | PROBE_ANSWER);
    assert_eq!(at(nr, 0), RET_ALLOW);
    assert_eq!(at(nr + 1, u64::from(PROBE_ARG)), RET_ALLOW);
}

#[test]
fn foreign_text_traps_and_other_text_does_not() {
    let b = b();
    let code = b.program.code().unwrap();
    let mut c = call(nr::SENDMSG, [3, 0x7fff_0000_1000, 0, 0, 0, 0]);
    for (ip, want) in [
        (LIBC.0, TRAP_B),
        (LIBC.1, TRAP_B),
        (MAIN.0 + 0x100, TRAP_B),
        (LIBC.0 - 1, RET_ALLOW),
        (LIBC.1 + 1, RET_ALLOW),
        (LIBC.0 + (1 << 32), RET_ALLOW),
        (stub::PROGRAM_GATE_RETURN, RET_ALLOW),
        (0x40_1000, RET_ALLOW),
    ] {
        c.ip = ip as u64;
        assert_eq!(run(code, &c).0, want, "{ip:#x}");
    }
    assert_eq!(run(code, &call(nr::READ, [IN_ARENA; 6])).0, RET_ALLOW);
}

#[test]
fn forks_trap_and_threads_and_vforks_do_not() {
    let b = b();
    let code = b.program.code().unwrap();
    let clone = |flags| run(code, &call(nr::CLONE, [flags, 0, 0, 0, 0, 0])).0;
    assert_eq!(clone(0x0120_0011), TRAP_B);
    assert_eq!(clone(0x003d_0f00), RET_ALLOW);
    assert_eq!(clone(0x4111), RET_ALLOW);
    assert_eq!(clone(0x4011), TRAP_B);
    assert_eq!(run(code, &call(nr::FORK, [0; 6])).0, TRAP_B);
    assert_eq!(run(code, &call(nr::VFORK, [0; 6])).0, RET_ALLOW);
}

#[test]
fn masks_trap_only_when_given_and_terminals_never() {
    let b = b();
    let code = b.program.code().unwrap();
    let stack = 0x7fff_0000_0000_u64;
    let at = |nr, args| run(code, &call(nr, args)).0;
    assert_eq!(at(nr::RT_SIGPROCMASK, [2, stack, 0, 8, 0, 0]), TRAP_B);
    assert_eq!(at(nr::RT_SIGPROCMASK, [2, 0, stack, 8, 0, 0]), RET_ALLOW);
    assert_eq!(at(nr::RT_SIGPROCMASK, [2, 0xff, 0, 8, 0, 0]), TRAP_B);
    assert_eq!(at(nr::PPOLL, [stack, 1, 0, 0, 8, 0]), RET_ALLOW);
    assert_eq!(at(nr::PPOLL, [stack, 1, 0, stack, 8, 0]), TRAP_B);
    assert_eq!(at(nr::EPOLL_PWAIT, [4, stack, 1, 0, 0, 8]), RET_ALLOW);
    assert_eq!(at(nr::EPOLL_PWAIT, [4, stack, 1, 0, stack, 8]), TRAP_B);
    assert_eq!(at(nr::PSELECT6, [1, 0, 0, 0, 0, stack]), TRAP_B);
    assert_eq!(at(nr::IOCTL, [1, 0x5413, stack, 0, 0, 0]), RET_ALLOW);
    assert_eq!(at(nr::IOCTL, [1, 0x2285, stack, 0, 0, 0]), TRAP_B);
}

#[test]
fn the_filters_are_quick() {
    let (a, b) = (a(), b());
    let (a, b) = (a.program.code().unwrap(), b.program.code().unwrap());
    let worst = |code| {
        (0..table::END)
            .map(|nr| run(code, &call(nr, [0; 6])).1)
            .max()
    };
    println!("A: {} instructions, {:?} at most a call", a.len(), worst(a));
    println!("B: {} instructions, {:?} at most a call", b.len(), worst(b));
    assert!(worst(a).unwrap() < 48 && worst(b).unwrap() < 48);
    assert!(a.len() < 1600 && b.len() < 400);
}

#[test]
fn sysinfo_traps_only_where_another_total_is_shown() {
    let sysinfo = call(nr::SYSINFO, [0x7fff_1234_5678, 0, 0, 0, 0, 0]);
    for (shows, want) in [(false, RET_ALLOW), (true, TRAP_B)] {
        let mut b = Builder::new();
        b.build_b(&[MAIN, LIBC], false, shows).expect("it fits");
        assert_eq!(run(b.program.code().unwrap(), &sysinfo).0, want);
    }
}
