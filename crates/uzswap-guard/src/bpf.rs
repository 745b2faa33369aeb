//! *What*: an assembler for seccomp's BPF: decision trees over call numbers, and jumps that may be
//! longer than BPF's 255 instructions.
//!
//! *Invariants*: jumps go forward only (BPF has no other). Running out of room is remembered, and
//! reported once, at the end.
//! *Locking*: none. *Context*: init.

use uzswap_sys::seccomp::{BPF_MAXINSNS, RET_ALLOW, SockFilter, op};

/// The low half of an address: BPF compares words of 32 bits.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what BPF compares"
)]
pub const fn low(address: usize) -> u32 {
    address as u32
}

/// The high half of an address.
#[must_use]
pub const fn high(address: usize) -> u32 {
    low(address >> 32)
}

/// A filter being put together.
pub struct Program {
    code: [SockFilter; BPF_MAXINSNS],
    len: usize,
    overflow: bool,
}

impl Default for Program {
    fn default() -> Self {
        Self::new()
    }
}

impl Program {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Program {
            code: [SockFilter::stmt(0, 0); BPF_MAXINSNS],
            len: 0,
            overflow: false,
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.len = 0;
        self.overflow = false;
    }

    /// The filter, `None` if it did not fit.
    #[must_use]
    pub fn code(&self) -> Option<&[SockFilter]> {
        if self.overflow {
            return None;
        }
        self.code.get(..self.len)
    }

    /// Instructions so far: where the next one goes.
    #[must_use]
    pub const fn here(&self) -> usize {
        self.len
    }

    fn push(&mut self, i: SockFilter) -> usize {
        match self.code.get_mut(self.len) {
            Some(to) => {
                *to = i;
                self.len += 1;
            }
            None => self.overflow = true,
        }
        self.len.wrapping_sub(1)
    }

    /// An instruction without jumps.
    pub fn stmt(&mut self, code: u16, k: u32) {
        self.push(SockFilter::stmt(code, k));
    }

    /// Loads the word of the call's data at `offset`.
    pub fn load(&mut self, offset: u32) {
        self.stmt(op::LD_ABS, offset);
    }

    /// Returns `action`.
    pub fn ret(&mut self, action: u32) {
        self.stmt(op::RET, action);
    }

    /// A conditional jump: skip `jt` instructions if it holds, else `jf`.
    pub fn jump(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.push(SockFilter::jump(code, k, jt, jf));
    }

    /// A jump to a place not known yet: [`Program::land`] sets it.
    pub fn ja(&mut self) -> usize {
        self.push(SockFilter::stmt(op::JA, 0))
    }

    /// Makes the jump at `from` go to `to`, which lies behind it.
    pub fn land(&mut self, from: usize, to: usize) {
        let distance = to.checked_sub(from + 1).and_then(|d| u32::try_from(d).ok());
        match (self.code.get_mut(from), distance) {
            (Some(i), Some(d)) => i.k = d,
            _ => self.overflow = true,
        }
    }

    /// Decides by the accumulator, a call number: the class of each number is that of the last of
    /// `starts` not above it. Adds a jump for each leaf to `leaves`, to be landed by class. Class 0
    /// is allowed at once.
    pub fn tree(&mut self, starts: &[(u32, u8)], leaves: &mut Leaves) {
        match starts {
            [] => self.ret(RET_ALLOW),
            [(_, 0)] => self.ret(RET_ALLOW),
            [(_, class)] => {
                let at = self.ja();
                leaves.add(at, *class);
            }
            _ => {
                let (low, high) = starts.split_at(starts.len() / 2);
                let Some((pivot, _)) = high.first() else {
                    return;
                };
                // Below the pivot: skip the long jump.
                self.jump(op::JGE, *pivot, 0, 1);
                let right = self.ja();
                self.tree(low, leaves);
                let here = self.here();
                self.land(right, here);
                self.tree(high, leaves);
            }
        }
    }
}

/// Jumps out of a tree, with the class each belongs to.
pub struct Leaves {
    at: [(usize, u8); MAX_LEAVES],
    len: usize,
    overflow: bool,
}

/// Leaves that a tree may have.
pub const MAX_LEAVES: usize = 640;

impl Default for Leaves {
    fn default() -> Self {
        Self::new()
    }
}

impl Leaves {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Leaves {
            at: [(0, 0); MAX_LEAVES],
            len: 0,
            overflow: false,
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.len = 0;
        self.overflow = false;
    }

    /// Whether all leaves fitted.
    #[must_use]
    pub const fn complete(&self) -> bool {
        !self.overflow
    }

    fn add(&mut self, at: usize, class: u8) {
        match self.at.get_mut(self.len) {
            Some(to) => {
                *to = (at, class);
                self.len += 1;
            }
            None => self.overflow = true,
        }
    }

    /// Makes all jumps of `class` go to where the next instruction goes; `false` if there are none.
    pub fn land(&self, program: &mut Program, class: u8) -> bool {
        let here = program.here();
        let mut any = false;
        for (at, c) in self.at.iter().take(self.len) {
            if *c == class {
                program.land(*at, here);
                any = true;
            }
        }
        any
    }
}

/// Runs a filter, as the kernel would.
#[cfg(feature = "interpreter")]
#[allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "of tests"
)]
pub mod interpreter {
    use super::*;

    /// The data that a filter sees.
    #[derive(Clone, Copy, Debug)]
    pub struct Data {
        pub nr: u32,
        pub arch: u32,
        pub ip: u64,
        pub args: [u64; 6],
    }

    impl Data {
        fn word(&self, offset: u32) -> u32 {
            let wide = |v: u64, high: bool| {
                u32::try_from(if high { v >> 32 } else { v & 0xffff_ffff }).unwrap_or(0)
            };
            match offset {
                0 => self.nr,
                4 => self.arch,
                8 => wide(self.ip, false),
                12 => wide(self.ip, true),
                o => wide(self.args[(o as usize - 16) / 8], o % 8 == 4),
            }
        }
    }

    /// The action, and how many instructions it took.
    pub fn run(code: &[SockFilter], data: &Data) -> (u32, usize) {
        let (mut a, mut pc, mut steps) = (0u32, 0usize, 0usize);
        loop {
            let i = code[pc];
            pc += 1;
            steps += 1;
            let holds = match i.code {
                op::LD_ABS => {
                    a = data.word(i.k);
                    continue;
                }
                op::AND => {
                    a &= i.k;
                    continue;
                }
                op::RSH => {
                    a >>= i.k;
                    continue;
                }
                op::JA => {
                    pc += i.k as usize;
                    continue;
                }
                op::RET => return (i.k, steps),
                op::JEQ => a == i.k,
                op::JGT => a > i.k,
                op::JGE => a >= i.k,
                op::JSET => a & i.k != 0,
                other => panic!("instruction {other:#x}"),
            };
            pc += usize::from(if holds { i.jt } else { i.jf });
        }
    }
}
