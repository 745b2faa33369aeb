//! What the suite `usemem` shows.

use super::{Measured, Run, Side, THREADS};
use crate::rounds::{self, median};
use crate::section::{Chart, Kind, Section, Table};

/// A figure of a run, and what the project promises for it as a share of the kernel's, with 1 and 2 threads.
struct Row {
    name: &'static str,
    of: fn(&Run) -> f64,
    promised: Option<[f64; 2]>,
}

const ROWS: [Row; 6] = [
    Row {
        name: "random, µs per access",
        of: |run| run.work.random.us_per_access,
        promised: Some([0.60, 0.40]),
    },
    Row {
        name: "sequential, µs per access",
        of: |run| run.work.sequential.us_per_access,
        promised: Some([0.35, 0.25]),
    },
    Row {
        name: "fill, s per GiB",
        of: |run| run.work.fill.s_per_gib,
        promised: Some([0.50, 0.50]),
    },
    Row {
        name: "random, CPU s",
        of: |run| run.work.random.cpu_s,
        promised: Some([0.60, 0.60]),
    },
    Row {
        name: "sequential, CPU s",
        of: |run| run.work.sequential.cpu_s,
        promised: Some([0.60, 0.60]),
    },
    Row {
        name: "fill, CPU s",
        of: |run| run.work.fill.cpu_s,
        promised: None,
    },
];
const SIDES: [Side; 3] = [Side::Native, Side::KernelZswap, Side::Uzswap];

impl Measured {
    /// The charts and the table.
    #[must_use]
    pub fn section(&self) -> Section {
        Section {
            title: "Memory under a limit, beside the kernel's zswap".into(),
            notes: vec![self.setting(), rounds::describe(&self.rounds)],
            charts: vec![
                self.chart("Waiting for a page", "µs per access", &ROWS[..2]),
                self.chart("First touch", "s per GiB", &ROWS[2..3]),
                self.chart("Processor time", "CPU seconds", &ROWS[3..]),
            ],
            tables: vec![self.table()],
        }
    }

    fn setting(&self) -> String {
        let ram = THREADS
            .iter()
            .filter_map(|&threads| {
                let of = self.of(Side::Uzswap, threads);
                let ram = median(of.filter_map(|run| run.ram_mib).map(|mib| mib as f64))?;
                Some(format!("{ram:.0} MiB with {threads} thread(s)"))
            })
            .collect::<Vec<_>>()
            .join(", ");
        let kernel = if self.kernel.is_some() {
            format!(
                "The kernel's limit is {} MiB beside its pool; uzswap gets that limit plus the pool",
                self.limit_mib
            )
        } else {
            "Without the kernel's zswap beside it; uzswap gets what both would take".to_owned()
        };
        format!(
            "{} MiB of data that compresses about fourfold. {kernel}: {ram}.",
            self.mib
        )
    }

    fn of(&self, side: Side, threads: u32) -> impl Iterator<Item = &Run> {
        let counted = rounds::counted(&self.rounds);
        self.runs.iter().filter(move |run| {
            run.side == side && run.threads == threads && counted.contains(&run.round)
        })
    }

    fn value(&self, row: &Row, side: Side, threads: u32) -> Option<f64> {
        median(self.of(side, threads).map(row.of))
    }

    /// The median, and how far the rounds are from it at most.
    fn cell(&self, row: &Row, side: Side, threads: u32) -> String {
        let Some(value) = self.value(row, side, threads) else {
            return String::new();
        };
        let farthest = self
            .of(side, threads)
            .map(|run| ((row.of)(run) - value).abs())
            .fold(0.0, f64::max);
        if value < 0.1 {
            // Of so little, hundredths say enough.
            format!("{value:.2}")
        } else {
            format!("{value:.2} ±{:.0} %", farthest * 100.0 / value)
        }
    }

    fn name(&self, side: Side) -> String {
        match (side, &self.kernel) {
            (Side::Native, _) => "native".into(),
            (Side::KernelZswap, Some(compressor)) => format!("kernel zswap, {compressor}"),
            (Side::KernelZswap, None) => "kernel zswap (left out)".into(),
            (Side::Uzswap, _) => format!("uzswap, {}", self.compressor),
        }
    }

    fn table(&self) -> Table {
        let mut head = vec!["phase".to_owned(), "threads".into()];
        head.extend(SIDES.map(|side| self.name(side)));
        head.extend(["ratio", "promised"].map(str::to_owned));
        let mut rows = Vec::new();
        for row in &ROWS {
            for (at, threads) in THREADS.into_iter().enumerate() {
                let values = SIDES.map(|side| self.value(row, side, threads));
                let ratio = values[2].zip(values[1]).map(|(ours, theirs)| ours / theirs);
                let promised = row.promised.map(|both| both[at]);
                let missed = ratio
                    .zip(promised)
                    .is_some_and(|(ratio, most)| ratio > most);
                let mut cells = vec![row.name.to_owned(), threads.to_string()];
                cells.extend(SIDES.map(|side| self.cell(row, side, threads)));
                cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
                let promised = promised.filter(|_| ratio.is_some());
                cells.push(promised.map_or(String::new(), |most| {
                    format!("≤ {most:.2}{}", if missed { ", missed" } else { "" })
                }));
                rows.push(cells);
            }
        }
        Table {
            caption: "Medians, and how far the rounds are from them at most; ratio: uzswap's share of the kernel's figure".into(),
            head,
            rows,
        }
    }

    fn chart(&self, title: &str, unit: &str, rows: &[Row]) -> Chart {
        let sides: Vec<Side> = SIDES
            .into_iter()
            .filter(|&side| side != Side::KernelZswap || self.kernel.is_some())
            .collect();
        let groups = rows
            .iter()
            .flat_map(|row| THREADS.map(|threads| (row, threads)))
            .map(|(row, threads)| {
                let name = row.name.split(',').next().unwrap_or(row.name);
                let values = sides.iter().map(|&side| self.value(row, side, threads));
                let plural = if threads == 1 { "" } else { "s" };
                (
                    format!("{name}, {threads} thread{plural}"),
                    values.collect(),
                )
            })
            .collect();
        Chart {
            title: title.into(),
            kind: Kind::Bars {
                x: format!("{unit}, lower is better"),
                names: sides.iter().map(|&side| self.name(side)).collect(),
                groups,
            },
        }
    }
}
