//! *What*: the kernel's classic BPF, as seccomp runs it. First what the kernel checks before it
//! takes a filter, then its execution. Written from bpf(4) and seccomp(2), apart from the
//! interpreter of the guard's own tests.

use uzswap_sys::seccomp::{BPF_MAXINSNS, SockFilter};

const LD_W_ABS: u16 = 0x20;
const ALU_AND_K: u16 = 0x54;
const ALU_RSH_K: u16 = 0x74;
const JMP_JA: u16 = 0x05;
const JMP_JEQ_K: u16 = 0x15;
const JMP_JGT_K: u16 = 0x25;
const JMP_JGE_K: u16 = 0x35;
const JMP_JSET_K: u16 = 0x45;
const RET_K: u16 = 0x06;

/// `struct seccomp_data`.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub nr: u32,
    pub arch: u32,
    pub ip: u64,
    pub args: [u64; 6],
}

impl Call {
    const LEN: usize = 64;

    fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.nr.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.arch.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.ip.to_le_bytes());
        for (to, arg) in bytes[16..].chunks_exact_mut(8).zip(self.args) {
            to.copy_from_slice(&arg.to_le_bytes());
        }
        bytes
    }
}

/// A filter that the kernel takes.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a>(&'a [SockFilter]);

impl<'a> Filter<'a> {
    /// Checks a filter as the kernel does.
    ///
    /// # Panics
    /// If the kernel would refuse it.
    pub fn checked(code: &'a [SockFilter]) -> Self {
        assert!((1..=BPF_MAXINSNS).contains(&code.len()), "its length");
        for (at, i) in code.iter().enumerate() {
            let behind = code.len() - at - 1;
            let reaches = |skipped: usize| assert!(skipped < behind, "{at} jumps out of it");
            match i.code {
                LD_W_ABS => assert!(
                    i.k % 4 == 0 && (i.k as usize) < Call::LEN,
                    "{at} loads from {}",
                    i.k
                ),
                ALU_AND_K | RET_K => {}
                ALU_RSH_K => assert!(i.k < 32, "{at} shifts by {}", i.k),
                JMP_JA => reaches(i.k as usize),
                JMP_JEQ_K | JMP_JGT_K | JMP_JGE_K | JMP_JSET_K => {
                    reaches(i.jt.into());
                    reaches(i.jf.into());
                }
                other => panic!("{at} is of code {other:#x}"),
            }
        }
        let last = code.last().expect("not empty");
        assert_eq!(last.code, RET_K, "it runs off its end");
        Filter(code)
    }

    /// What it decides.
    pub fn run(self, call: &Call) -> u32 {
        let data = call.bytes();
        let (mut accumulator, mut at) = (0_u32, 0);
        loop {
            let i = self.0[at];
            at += 1;
            let holds = match i.code {
                LD_W_ABS => {
                    let word = data[i.k as usize..].first_chunk().expect("was checked");
                    accumulator = u32::from_le_bytes(*word);
                    continue;
                }
                ALU_AND_K => {
                    accumulator &= i.k;
                    continue;
                }
                ALU_RSH_K => {
                    accumulator >>= i.k;
                    continue;
                }
                JMP_JA => {
                    at += i.k as usize;
                    continue;
                }
                RET_K => return i.k,
                JMP_JEQ_K => accumulator == i.k,
                JMP_JGT_K => accumulator > i.k,
                JMP_JGE_K => accumulator >= i.k,
                _ => accumulator & i.k != 0,
            };
            at += usize::from(if holds { i.jt } else { i.jf });
        }
    }
}
