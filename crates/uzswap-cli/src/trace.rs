//! `run --trace`: samples the group's counters while the command runs.
//!
//! *What*: says when the next sample is due, takes it, writes it. The file's form is in `uzswap_bench::trace`.
//! *Invariants*: tracing never ends the command: a file that cannot be written any more is told once and left.
//! *Locking*: none: it happens in the supervisor's one thread, between signals.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use uzswap_bench::trace::{self, End, Head, Sample, Writer};
use uzswap_group::group::{Group, is_alive};

use crate::clock::Moment;
use crate::command_line;
use crate::report::{PAGE, Totals, When, compressor, rounded, seconds, used_slots};

/// The trace of a group's life.
pub struct Tracer<'a> {
    group: &'a Group,
    begin: Moment,
    next: Duration,
    /// None once the file could not be written.
    writer: Option<Writer>,
}

impl<'a> Tracer<'a> {
    /// Begins with a sample at once.
    pub fn start(file: File, group: &'a Group, begin: Moment) -> Result<Self> {
        let head = Head::new(
            env!("CARGO_PKG_VERSION"),
            command_line::this(),
            compressor(group),
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

    /// Samples if it is time to; returns how long it is until the next time.
    pub fn tick(&mut self) -> Option<Duration> {
        let elapsed = self.begin.elapsed();
        if elapsed >= self.next {
            self.sample(When::Now);
            self.next = elapsed + trace::period(elapsed);
        }
        self.writer.as_ref()?;
        Some(self.next.saturating_sub(self.begin.elapsed()))
    }

    /// The command has ended with `status`.
    pub fn end(mut self, status: u8) {
        self.sample(When::AtEnd);
        if let Some(writer) = self.writer.take() {
            let end = End {
                exit_status: status,
                elapsed_s: rounded(self.begin.elapsed().as_secs_f64()),
            };
            told(writer.end(end));
        }
    }

    fn sample(&mut self, when: When) {
        let sample = self.look(when);
        if let Some(writer) = &mut self.writer
            && !told(writer.sample(sample))
        {
            self.writer = None;
        }
    }

    fn look(&self, when: When) -> Sample {
        let (group, hz) = (self.group, self.begin.hz_since());
        let totals = Totals::of(group, when, is_alive);
        let bytes = |name| totals.get(name) * PAGE;
        let live = used_slots(group).filter(|p| is_alive(p.pid.load(Ordering::Relaxed)));
        Sample {
            elapsed_s: rounded(self.begin.elapsed().as_secs_f64()),
            live: live.count() as u64,
            ram_limit: group.knobs.ram.load(Ordering::Relaxed),
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
            fault_s: seconds(totals.get("fault_ticks"), hz),
            reclaim_s: seconds(totals.get("reclaim_ticks"), hz),
        }
    }
}

/// Whether a line was written; if not, says so.
fn told(written: std::io::Result<()>) -> bool {
    if let Err(why) = &written {
        eprintln!("uzswap: the trace ends here, its file cannot be written: {why}");
    }
    written.is_ok()
}
