//! *What*: the tree that a filter decides by. For any list of classes by number it sends each
//! number to the class that the list says, and the kernel takes it.

use uzswap_sys::seccomp::{DATA_NR, RET_ALLOW};

use crate::bpf::{Call, Filter};
use crate::bytes::Bytes;
use uzswap_guard::bpf::{Leaves, MAX_LEAVES, Program};

/// What class `class` returns.
fn answer(class: u8) -> u32 {
    match class {
        0 => RET_ALLOW,
        class => u32::from(class),
    }
}

/// See the head.
pub fn fall_as_listed(input: &[u8]) {
    let mut input = Bytes::new(input);
    let mut starts: Vec<(u32, u8)> = Vec::new();
    let (mut number, nr_starts) = (0_u32, input.below(MAX_LEAVES + 1));
    for _ in 0..nr_starts {
        starts.push((number, input.byte()));
        let gap = match input.byte() {
            0 => input.u32(),
            small => small.into(),
        };
        match number.checked_add(gap.max(1)) {
            Some(next) => number = next,
            None => break,
        }
    }
    let (mut program, mut leaves) = (Program::new(), Leaves::new());
    program.load(DATA_NR);
    program.tree(&starts, &mut leaves);
    for class in 1..=u8::MAX {
        if leaves.land(&mut program, class) {
            program.ret(answer(class));
        }
    }
    assert!(leaves.complete(), "as many leaves as there may be");
    let filter = Filter::checked(program.code().expect("it fits"));
    let some = starts.iter().step_by(1 + starts.len() / 48);
    let edges = some.flat_map(|(start, _)| {
        let around = [start.wrapping_sub(1), *start, start.wrapping_add(1)];
        around.into_iter()
    });
    for nr in edges.chain([0, input.u32(), u32::MAX]) {
        let class = starts.iter().rev().find(|(start, _)| *start <= nr);
        let expected = class.map_or(RET_ALLOW, |(_, class)| answer(*class));
        let call = Call {
            nr,
            arch: 0,
            ip: 0,
            args: [0; 6],
        };
        assert_eq!(filter.run(&call), expected, "number {nr} of {starts:?}");
    }
}
