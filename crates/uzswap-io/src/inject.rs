//! *What*: injected failures: a medium that fails as a plan says, for tests.
//!
//! A plan is a list of rules separated by commas, each `OPERATION=FAILURE@WHEN`, and possibly
//! `seed=N`, as in `write=enospc@100+,read=flip@0.5%,seed=7`:
//!
//! - operation: `read`, `write`, `discard`, or `pool`: an object is put into the compressed pool
//!   (only `flip` applies)
//! - failure: an error (`enospc`, `edquot`, `eio`, `eintr`, `eagain`), `short` (only part is
//!   transferred), `flip` (one bit of what is read, or of what was written, is wrong) or `delay:US`
//! - when: `N` (the Nth call of this operation, from 1), `N+` (that and all after) or `P%` (chance)
//!
//! Tests of this crate use [`Failing`] as a type. With the feature `fault-injection` it is the
//! engine's medium; without the feature none of this is in the binary.
//!
//! *Invariants*: which calls fail depends only on the plan and the order of calls: chance is a
//! function of seed, rule and call number.
//! *Locking*: none, call numbers are atomics. *Context*: as the medium's.

use core::sync::atomic::{AtomicU32, Ordering};

use uzswap_sys::{Errno, thread};

use crate::SLOT;
use crate::device::{Kind, Medium};

/// The environment variable that holds the plan, in builds with the feature.
pub const PLAN_ENV: &str = "UZSWAP_SWAP_FAULTS";

const MAX_RULES: usize = 8;
const NR_OPERATIONS: usize = 4;
/// A chance of 100 %, in millionths.
const CERTAIN: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Discard,
    Pool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
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
    failure: Failure,
    when: When,
}

/// Which calls fail, and how; the default: none.
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
    let (failure, when) = value.split_once('@')?;
    let failure = match failure {
        "enospc" => Failure::Fails(Errno::ENOSPC),
        "edquot" => Failure::Fails(Errno::EDQUOT),
        "eio" => Failure::Fails(Errno::EIO),
        "eintr" => Failure::Fails(Errno::EINTR),
        "eagain" => Failure::Fails(Errno::EAGAIN),
        "short" => Failure::Short,
        "flip" => Failure::Flip,
        _ => Failure::Delay {
            us: failure.strip_prefix("delay:")?.parse().ok()?,
        },
    };
    Some(Rule {
        operation: match operation {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "discard" => Operation::Discard,
            "pool" if failure == Failure::Flip => Operation::Pool,
            _ => return None,
        },
        failure,
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

/// Parses a percentage such as `0.5`; returns millionths.
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

/// Mixes the bits of `input`.
fn mix(input: u64) -> u64 {
    // The finalizer of splitmix64.
    let z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// What happens to one call.
#[derive(Default)]
struct Call {
    error: Option<Errno>,
    short: bool,
    /// Selects the bit to flip.
    flip: Option<u64>,
}

impl Call {
    /// Bytes to transfer of `len`.
    fn len(&self, len: usize) -> usize {
        if self.short { len / 2 } else { len }
    }

    /// Bytes to report of `done` transferred: a short transfer is no whole number of sectors.
    fn reported(&self, done: usize) -> usize {
        done.saturating_sub(self.short.into())
    }
}

/// A plan under way.
#[derive(Debug, Default)]
pub struct Injector {
    plan: Plan,
    nr_calls: [AtomicU32; NR_OPERATIONS],
}

impl Injector {
    /// Starts `plan`: calls are counted from 1.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Injector {
            plan,
            nr_calls: Default::default(),
        }
    }

    /// Flips a bit of `object`, which was put into the pool, if the plan says so.
    pub fn damage_stored(&self, object: &mut [u8]) {
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
            match rule.failure {
                Failure::Fails(errno) => call.error = Some(errno),
                Failure::Short => call.short = true,
                Failure::Flip => call.flip = Some(mix(chance)),
                Failure::Delay { us } => {
                    let _ = thread::nanosleep(us.saturating_mul(1000));
                }
            }
        }
        call
    }
}

/// A medium that fails as a plan says.
#[derive(Debug)]
pub struct Failing<M> {
    medium: M,
    injector: Injector,
}

impl<M> Failing<M> {
    /// `medium`, which does not fail yet.
    #[must_use]
    pub fn over(medium: M) -> Self {
        Failing {
            medium,
            injector: Injector::default(),
        }
    }

    /// Starts `plan`.
    pub fn inject(&mut self, plan: Plan) {
        self.injector = Injector::new(plan);
    }
}

/// A slot, aligned for `O_DIRECT`.
#[repr(align(4096))]
struct Aligned([u8; SLOT]);

impl<M: Medium> Failing<M> {
    /// Flips one bit of the `len` bytes that lie on the device at `offset`.
    fn damage(&self, offset: u64, len: usize, which: u64) -> Result<(), Errno> {
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

impl<M: Medium> Medium for Failing<M> {
    fn new(fd: i32) -> Self {
        Failing::over(M::new(fd))
    }

    fn kind(&self) -> Result<Kind, Errno> {
        self.medium.kind()
    }

    fn descriptor(&self) -> i32 {
        self.medium.descriptor()
    }

    fn remote(&self) -> Option<crate::remote::Remote> {
        self.medium.remote()
    }

    fn accepts(&self, buffer: &mut [u8]) -> bool {
        let call = self.injector.call(Operation::Read);
        if let Some(which) = call.flip {
            flip(buffer, which);
        }
        let failed = call.error.is_some() || call.short;
        if failed {
            // After a failed read the buffer holds anything.
            buffer.fill(0x5a);
        }
        !failed && self.medium.accepts(buffer)
    }

    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let call = self.injector.call(Operation::Read);
        if let Some(errno) = call.error {
            return Err(errno);
        }
        let len = call.len(buffer.len());
        let buffer = buffer.get_mut(..len).unwrap_or_default();
        let nr_read = self.medium.pread(buffer, offset)?;
        if let (Some(which), Some(read)) = (call.flip, buffer.get_mut(..nr_read)) {
            flip(read, which);
        }
        Ok(call.reported(nr_read))
    }

    fn pwrite(&self, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
        let call = self.injector.call(Operation::Write);
        if let Some(errno) = call.error {
            return Err(errno);
        }
        let len = call.len(buffer.len());
        let nr_written = self
            .medium
            .pwrite(buffer.get(..len).unwrap_or_default(), offset)?;
        if let Some(which) = call.flip {
            self.damage(offset, nr_written, which)?;
        }
        Ok(call.reported(nr_written))
    }

    fn discard(&self, kind: Kind, offset: u64, len: u64) -> Result<(), Errno> {
        match self.injector.call(Operation::Discard).error {
            Some(errno) => Err(errno),
            None => self.medium.discard(kind, offset, len),
        }
    }
}
