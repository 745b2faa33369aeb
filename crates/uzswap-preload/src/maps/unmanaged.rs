//! *What*: what is mapped outside the arena because it has to be, so that the gauges of unmanaged
//! memory fall again when it is unmapped.
//!
//! *Invariants*: the gauges hold the sum of the table. What finds the table full, or locked for
//! long, is not counted: nothing depends on the gauges.
//! *Locking*: one leaf lock, only ever tried: its holder may be a frame that a handler of the
//! program interrupted, or a thread that a fork left behind. *Context*: the program's.

use core::hint::spin_loop;
use core::sync::atomic::AtomicU64;

use uzswap_group::counters::{Counters, add, sub};
use uzswap_sync::lock::{Lock, LockGuard};

use super::span::Span;
use crate::init::ENGINE;

const MAX_ENTRIES: usize = 256;

/// Why memory is not managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its place is fixed, outside the arena.
    Fixed,
    /// It is a stack.
    Stack,
    /// Executable, shared, of huge pages or below 2 GiB.
    Special,
}

impl Reason {
    const fn gauge(self, counters: &Counters) -> &AtomicU64 {
        match self {
            Reason::Fixed => &counters.unmanaged_fixed,
            Reason::Stack => &counters.unmanaged_stack,
            Reason::Special => &counters.unmanaged_special,
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    end: usize,
    reason: Reason,
}

struct Table {
    entries: [Entry; MAX_ENTRIES],
    nr: usize,
}

static TABLE: Lock<Table> = Lock::new(Table {
    entries: [Entry {
        start: 0,
        end: 0,
        reason: Reason::Fixed,
    }; MAX_ENTRIES],
    nr: 0,
});

fn table() -> Option<LockGuard<'static, Table>> {
    const TRIES: u32 = 1000;
    (0..TRIES).find_map(|_| {
        let guard = TABLE.try_lock();
        if guard.is_none() {
            spin_loop();
        }
        guard
    })
}

impl Table {
    fn push(&mut self, entry: Entry) -> bool {
        if entry.start >= entry.end {
            return true;
        }
        let Some(free) = self.entries.get_mut(self.nr) else {
            return false;
        };
        *free = entry;
        self.nr += 1;
        true
    }
}

/// `span` has been left to the kernel.
pub fn count(span: Span, reason: Reason) {
    let Some(process) = ENGINE.process() else {
        return;
    };
    let Some(mut table) = table() else { return };
    let entry = Entry {
        start: span.addr,
        end: span.end(),
        reason,
    };
    if table.push(entry) {
        add(reason.gauge(&process.counters), span.len as u64);
    }
}

/// `span` has been unmapped, or mapped over.
pub fn uncount(span: Span) {
    let Some(process) = ENGINE.process() else {
        return;
    };
    let Some(mut table) = table() else { return };
    let mut at = 0;
    while at < table.nr {
        let Some(&entry) = table.entries.get(at) else {
            break;
        };
        let (start, end) = (entry.start.max(span.addr), entry.end.min(span.end()));
        if start >= end {
            at += 1;
            continue;
        }
        // The last entry takes its place; what is left of this one is pushed behind it.
        table.nr -= 1;
        let last = table.nr;
        table.entries.swap(at, last);
        let mut gone = end - start;
        let below = Entry {
            end: start,
            ..entry
        };
        let above = Entry {
            start: end,
            ..entry
        };
        for rest in [below, above] {
            if !table.push(rest) {
                gone += rest.end - rest.start;
            }
        }
        sub(entry.reason.gauge(&process.counters), gone as u64);
        // Neither rest overlaps the span, so looking at one again does no harm.
    }
}
