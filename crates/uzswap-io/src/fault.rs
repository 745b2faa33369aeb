//! *What*: a medium that fails on purpose, by a plan written as text.
//!
//! A plan is a list of rules separated by commas, each `OPERATION=FAULT@WHEN`, and possibly `seed=N`:
//!
//! - operation: `read`, `write` or `discard`; `pool`: an object is put into the compressed pool, of which one bit
//!   is wrong from then on (`flip` is all that can happen to it)
//! - fault: an error (`enospc`, `edquot`, `eio`, `eintr`, `eagain`), `short` (only part is transferred),
//!   `flip` (one bit of what is read, or of what lies on the device after a write, is wrong) or `delay:US`
//! - when: `N` (the Nth call of this operation, from 1), `N+` (that and all after), or `P%` (by chance)
//!
//! as in `write=enospc@100+,read=flip@0.5%,seed=7`.
//!
//! It wraps any medium, so tests of this crate use it as a type. Tests of the whole binary build with the feature
//! `fault-injection`, which makes it the engine's medium; without the feature nothing of this is in the
//! binary, and no check is made on the way to the device or the pool.
//!
//! *Invariants*: which calls fail depends on the plan and the order of calls alone: a failure by chance is a function
//! of seed, rule and call number.
//!
//! *Locking*: none, call numbers are atomics. *Context*: as the medium's.

use core::sync::atomic::{AtomicU32, Ordering};

use uzswap_sys::{Errno, thread};

use crate::SLOT;
use crate::device::{Kind, Medium};

/// Environment variable from which a binary with the feature takes its plan.
pub const FAULTS_ENV: &str = "UZSWAP_SWAP_FAULTS";

const MAX_RULES: usize = 8;
const NR_OPERATIONS: usize = 4;
/// `100%` in the unit that chances are kept in.
const CERTAIN: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Discard,
    Pool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fails(Errno),
    Short,
    Flip,
    Delay { us: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Calls { first: u32, last: u32 },
    Chance { millionths: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    operation: Operation,
    fault: Fault,
    when: When,
}

/// When what fails; the default never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    rules: [Option<Rule>; MAX_RULES],
    seed: u64,
}

impl Plan {
    /// Reads a plan's text; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Plan> {
        let mut plan = Plan::default();
        let mut free = plan.rules.iter_mut();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=')?;
            if name == "seed" {
                plan.seed = value.parse().ok()?;
            } else {
                *free.next()? = Some(rule(name, value)?);
            }
        }
        Some(plan)
    }
}

fn rule(operation: &str, value: &str) -> Option<Rule> {
    let (fault, when) = value.split_once('@')?;
    let fault = match fault {
        "enospc" => Fault::Fails(Errno::ENOSPC),
        "edquot" => Fault::Fails(Errno::EDQUOT),
        "eio" => Fault::Fails(Errno::EIO),
        "eintr" => Fault::Fails(Errno::EINTR),
        "eagain" => Fault::Fails(Errno::EAGAIN),
        "short" => Fault::Short,
        "flip" => Fault::Flip,
        _ => Fault::Delay {
            us: fault.strip_prefix("delay:")?.parse().ok()?,
        },
    };
    Some(Rule {
        operation: match operation {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "discard" => Operation::Discard,
            "pool" if fault == Fault::Flip => Operation::Pool,
            _ => return None,
        },
        fault,
        when: parse_when(when)?,
    })
}

fn parse_when(when: &str) -> Option<When> {
    if let Some(percent) = when.strip_suffix('%') {
        return Some(When::Chance {
            millionths: parse_percent(percent)?,
        });
    }
    let (first, last) = match when.strip_suffix('+') {
        Some(first) => (first.parse().ok()?, u32::MAX),
        None => (when.parse().ok()?, when.parse().ok()?),
    };
    Some(When::Calls { first, last })
}

/// Millionths of a decimal fraction of a hundred, such as `0.5`.
fn parse_percent(percent: &str) -> Option<u64> {
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, ""));
    let mut millionths = whole.parse::<u64>().ok()?.checked_mul(CERTAIN / 100)?;
    let mut unit = CERTAIN / 1000;
    for digit in fraction.chars() {
        millionths += u64::from(digit.to_digit(10)?) * unit;
        unit /= 10;
    }
    (millionths <= CERTAIN).then_some(millionths)
}

/// A well mixed number for each input.
fn mix(input: u64) -> u64 {
    // The finalizer of splitmix64.
    let z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// What the plan has for one call.
#[derive(Default)]
struct Call {
    error: Option<Errno>,
    short: bool,
    /// A number that says which bit.
    flip: Option<u64>,
}

impl Call {
    /// How many of `len` bytes are to be transferred.
    fn len(&self, len: usize) -> usize {
        if self.short { len / 2 } else { len }
    }

    /// How many of `done` bytes are owned up to: with a short transfer no whole number of sectors.
    fn told(&self, done: usize) -> usize {
        done.saturating_sub(self.short.into())
    }
}

/// A plan, and how often each operation was called.
#[derive(Debug, Default)]
pub struct Course {
    plan: Plan,
    nr_calls: [AtomicU32; NR_OPERATIONS],
}

impl Course {
    /// At the beginning of `plan`: calls are counted from 1.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Course {
            plan,
            nr_calls: Default::default(),
        }
    }

    /// `object` was put into the pool: if it is its turn, one bit of it changes.
    pub fn spoil_stored(&self, object: &mut [u8]) {
        if let Some(which) = self.call(Operation::Pool).flip {
            flip(object, which);
        }
    }

    fn call(&self, operation: Operation) -> Call {
        let Some(count) = self.nr_calls.get(operation as usize) else {
            return Call::default();
        };
        let number = count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut call = Call::default();
        for (index, rule) in (0_u64..).zip(self.plan.rules.iter().flatten()) {
            let chance = mix(mix(self.plan.seed ^ index << 32) ^ u64::from(number));
            let applies = match rule.when {
                When::Calls { first, last } => (first..=last).contains(&number),
                When::Chance { millionths } => chance % CERTAIN < millionths,
            };
            if rule.operation != operation || !applies {
                continue;
            }
            match rule.fault {
                Fault::Fails(errno) => call.error = Some(errno),
                Fault::Short => call.short = true,
                Fault::Flip => call.flip = Some(mix(chance)),
                Fault::Delay { us } => {
                    let _ = thread::nanosleep(us.saturating_mul(1000));
                }
            }
        }
        call
    }
}

/// A medium that fails by a plan.
#[derive(Debug)]
pub struct Faulty<M> {
    medium: M,
    course: Course,
}

impl<M> Faulty<M> {
    /// Makes it fail by `plan` from now on.
    pub fn inject(&mut self, plan: Plan) {
        self.course = Course::new(plan);
    }
}

/// A slot's bytes where `O_DIRECT` wants them.
#[repr(align(4096))]
struct Aligned([u8; SLOT]);

impl<M: Medium> Faulty<M> {
    /// Flips one bit of the `len` bytes that lie on the device at `offset`.
    fn spoil(&self, offset: u64, len: usize, which: u64) -> Result<(), Errno> {
        let mut slot = Aligned([0; SLOT]);
        let index = which / 8 % (len / SLOT).max(1) as u64;
        let offset = offset + index * SLOT as u64;
        self.medium.pread(&mut slot.0, offset)?;
        flip(&mut slot.0, which);
        self.medium.pwrite(&slot.0, offset).map(drop)
    }
}

fn flip(bytes: &mut [u8], which: u64) {
    let at = (which >> 3).checked_rem(bytes.len() as u64).unwrap_or(0);
    if let Some(byte) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
        *byte ^= 1 << (which % 8);
    }
}

impl<M: Medium> Medium for Faulty<M> {
    fn new(fd: i32) -> Self {
        Faulty {
            medium: M::new(fd),
            course: Course::default(),
        }
    }

    fn kind(&self) -> Result<Kind, Errno> {
        self.medium.kind()
    }

    fn descriptor(&self) -> i32 {
        self.medium.descriptor()
    }

    fn came(&self, buffer: &mut [u8]) -> bool {
        let call = self.course.call(Operation::Read);
        if let Some(which) = call.flip {
            flip(buffer, which);
        }
        let failed = call.error.is_some() || call.short;
        if failed {
            // It holds anything.
            buffer.fill(0x5a);
        }
        !failed && self.medium.came(buffer)
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let call = self.course.call(Operation::Read);
        if let Some(errno) = call.error {
            return Err(errno);
        }
        let len = call.len(buffer.len());
        let buffer = buffer.get_mut(..len).unwrap_or_default();
        let nr_read = self.medium.pread(buffer, offset)?;
        if let (Some(which), Some(read)) = (call.flip, buffer.get_mut(..nr_read)) {
            flip(read, which);
        }
        Ok(call.told(nr_read))
    }

    fn pwrite(&self, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
        let call = self.course.call(Operation::Write);
        if let Some(errno) = call.error {
            return Err(errno);
        }
        let len = call.len(buffer.len());
        let nr_written = self
            .medium
            .pwrite(buffer.get(..len).unwrap_or_default(), offset)?;
        if let Some(which) = call.flip {
            self.spoil(offset, nr_written, which)?;
        }
        Ok(call.told(nr_written))
    }

    fn discard(&self, kind: Kind, offset: u64, len: u64) -> Result<(), Errno> {
        match self.course.call(Operation::Discard).error {
            Some(errno) => Err(errno),
            None => self.medium.discard(kind, offset, len),
        }
    }
}
