//! *What*: `uzswap run --trace FILE`: samples the group's counters while the command runs. The file
//! format is in `uzswap_bench::trace`.
//!
//! *Invariants*: a write error ends the trace with one message, never the command.
//! *Locking*: none. *Context*: the supervisor's only thread, between signals.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use uzswap_bench::trace::{self, End, Head, Sample, Writer};
use uzswap_sys::clock::Moment;

use crate::command_line;
use crate::group_view::totals::{Totals, When, compressor, rounded};
use crate::group_view::{PAGE, Part, live_processes};

/// Writes a run's trace.
pub struct Tracer<'a> {
    group: Part<'a>,
    begin: Moment,
    next: Duration,
    /// None after a write error.
    writer: Option<Writer>,
}

impl<'a> Tracer<'a> {
    /// Starts the trace; the first [`Tracer::tick`] takes a sample.
    pub fn start(file: File, group: Part<'a>, begin: Moment) -> Result<Self> {
        let head = Head::new(
            env!("CARGO_PKG_VERSION"),
            command_line::this(),
            compressor(&group),
            PAGE << group.config.folio_order.load(Ordering::Relaxed),
        );
        let writer = Writer::start(file, &head).context("cannot write the trace")?;
        Ok(Tracer {
            group,
            begin,
            next: Duration::ZERO,
            writer: Some(writer),
        })
    }

    /// Takes a sample if one is due. Returns the time until the next; none after a write error.
    pub fn tick(&mut self) -> Option<Duration> {
        let elapsed = self.begin.elapsed();
        if elapsed >= self.next {
            self.sample(When::Now);
            self.next = elapsed + trace::period(elapsed);
        }
        self.writer.as_ref()?;
        Some(self.next.saturating_sub(self.begin.elapsed()))
    }

    /// Takes the last sample and records the command's exit status.
    pub fn end(mut self, status: u8) {
        self.sample(When::AtEnd);
        if let Some(writer) = self.writer.take() {
            let end = End {
                exit_status: status,
                elapsed_s: rounded(self.begin.elapsed().as_secs_f64()),
            };
            written(writer.end(end));
        }
    }

    fn sample(&mut self, when: When) {
        let sample = self.look(when);
        if let Some(writer) = &mut self.writer
            && !written(writer.sample(sample))
        {
            self.writer = None;
        }
    }

    fn look(&self, when: When) -> Sample {
        let group = &self.group;
        let totals = Totals::of(group, when, self.begin.hz_since());
        let bytes = |name| totals.get(name) * PAGE;
        Sample {
            elapsed_s: rounded(self.begin.elapsed().as_secs_f64()),
            live: live_processes(group).count() as u64,
            ram_limit: group.limit(),
            resident: totals.get("resident"),
            zswap: totals.get("pool_total_size"),
            metadata: totals.get("metadata"),
            zswapped: bytes("stored_pages"),
            swapped: bytes("swapped_pages"),
            swap_used: group.config.swap.used() * PAGE,
            faults: totals.get("faults"),
            refaults: totals.get("refaults"),
            zswpout: totals.get("zswpout"),
            zswpin: totals.get("zswpin"),
            pswpout: totals.get("pswpout"),
            pswpin: totals.get("pswpin"),
            fault_s: totals.seconds("fault_ticks"),
            reclaim_s: totals.seconds("reclaim_ticks"),
        }
    }
}

/// Whether a line was written; prints a message if not.
fn written(result: std::io::Result<()>) -> bool {
    if let Err(why) = &result {
        eprintln!("uzswap: cannot write the trace, which ends here: {why}");
    }
    result.is_ok()
}
