//! *What*: what a call points at in pools, pinned while it is issued.
//!
//! *Invariants*: after [`Pins::pin`] every byte that the call reaches through its own pointers is
//! present, or not mapped. Each pin is taken off once, by [`Pins::release`].
//! *Locking*: the engines'. *Context*: signal.

use uzswap_core::{Engine, Fault, Masked, Pin, arena_part};
use uzswap_group::counters::add;
use uzswap_guard::table::{self, Extent, Pointer};
use uzswap_sys::{Errno, PAGE_SIZE, nr};

use super::Call;
use crate::{engines, user};

/// Pins of a call by its own pointers: it has six arguments, two of which may say how long another
/// is.
pub(super) const MAX_POINTERS: usize = 8;
/// Longest path, its zero byte included.
const PATH_MAX: usize = 4096;

/// What is pinned for a call.
pub(super) struct Pins<const N: usize> {
    held: [Option<(&'static Engine, Pin)>; N],
    calls: u64,
}

/// The engine of an address in a pool.
pub(super) fn engine_of(addr: usize) -> Option<&'static Engine> {
    engines::of(addr).filter(|engine| engine.started())
}

impl<const N: usize> Pins<N> {
    pub(super) const fn new() -> Self {
        Pins {
            held: [const { None }; N],
            calls: 0,
        }
    }

    /// One more call is served.
    pub(super) fn count(&mut self) {
        self.calls = 1;
    }

    /// Pins what `call` points at.
    ///
    /// # Errors
    /// `ENOMEM`: it does not fit. `EIO`: what was stored there is lost.
    pub(super) fn pin(&mut self, call: &Call) -> Result<(), Errno> {
        for pointer in table::pointers(call.nr) {
            let addr = argument(call, pointer.arg);
            if arena_part(addr, 1).is_some() {
                let len = self.extent(call, pointer)?;
                self.pin_range(addr, len)?;
            }
        }
        Ok(())
    }

    /// Bytes that a pointer argument points at.
    fn extent(&mut self, call: &Call, pointer: &Pointer) -> Result<usize, Errno> {
        Ok(match pointer.extent {
            Extent::Bytes(nr) => nr as usize,
            Extent::Units(arg, unit) => argument(call, arg).saturating_mul(unit.into()),
            Extent::Bits(arg) => argument(call, arg).div_ceil(64).saturating_mul(8),
            Extent::At(arg) => {
                let at = argument(call, arg);
                self.pin_range(at, 4)?;
                // SAFETY: a number.
                let len = unsafe { user::read::<u32>(at) };
                len.map_or(0, |len| len as usize)
            }
            Extent::CString => PATH_MAX,
            Extent::Unknown => match call.nr {
                nr::FUTEX => 16,
                nr::IOCTL => ioctl_len(call.args[1]),
                _ => PAGE_SIZE,
            },
        })
    }

    /// Pins what of `[addr, addr + len)` is in a pool.
    pub(super) fn pin_range(&mut self, addr: usize, len: usize) -> Result<(), Errno> {
        let Some((engine, (addr, len))) = engine_of(addr).zip(arena_part(addr, len)) else {
            return Ok(());
        };
        if let Some(process) = engine.process() {
            add(
                &process.counters.guarded_syscalls,
                std::mem::take(&mut self.calls),
            );
        }
        let place = self.held.iter_mut().find(|place| place.is_none());
        let Some(place) = place else {
            return Err(Errno::ENOMEM);
        };
        // SAFETY: in a handler whose mask is full, on a stack of the library's.
        let m = unsafe { Masked::assume() };
        match engine.pin(&m, addr, len) {
            Ok(pin) => *place = Some((engine, pin)),
            // Not mapped: the call itself reports it.
            Err(Fault::Resolved | Fault::NotMapped | Fault::Foreign) => {}
            Err(Fault::OverLimit { .. }) => return Err(Errno::ENOMEM),
            Err(Fault::Corrupt) => return Err(Errno(libc::EIO)),
        }
        Ok(())
    }

    /// Takes all pins off.
    pub(super) fn release(&mut self) {
        // SAFETY: as in `pin_range`.
        let m = unsafe { Masked::assume() };
        for (engine, pin) in self.held.iter_mut().filter_map(Option::take) {
            engine.unpin(&m, pin);
        }
    }
}

fn argument(call: &Call, number: u8) -> usize {
    call.args.get(usize::from(number)).copied().unwrap_or(0)
}

/// Bytes of an ioctl's argument: the request says it in its upper half, old ones do not.
const fn ioctl_len(request: usize) -> usize {
    let (len, direction) = (request >> 16 & 0x3fff, request >> 30 & 3);
    if direction != 0 && len != 0 {
        len
    } else {
        PAGE_SIZE
    }
}
