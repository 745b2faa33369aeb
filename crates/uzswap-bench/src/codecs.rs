//! How the results of the suite `codecs` are shown.

use uzswap_corpus::codecs::{BLOCKS, Cell, Measured, Program};
use uzswap_corpus::rounds::{self, median};

use crate::section::{Chart, Kind, Section, Series, Table};

/// The codec and block size that times are relative to.
const REFERENCE: (&str, usize) = ("kernel lz4", BLOCKS[0]);

/// A codec at a block size, averaged over all programs.
struct Mean<'a> {
    codec: &'a str,
    block: usize,
    ratio: f64,
    packed: f64,
    compress_us: f64,
    decompress_us: f64,
}

/// The charts and tables of a measurement.
#[must_use]
pub fn section(measured: &Measured) -> Section {
    let means = means(measured);
    let sum = |of: fn(&Program) -> usize| measured.programs.iter().map(of).sum::<usize>();
    let (pages, same_filled) = (sum(|p| p.pages), sum(|p| p.same_filled));
    Section {
        title: "Codecs on pages of real programs".into(),
        notes: vec![
            format!(
                "{} programs, {:.0} MiB of pages, without the {:.1} % that are same-filled.",
                measured.programs.len(),
                pages as f64 / 256.0,
                same_filled as f64 * 100.0 / (same_filled + pages).max(1) as f64
            ),
            "Packed: each object rounded up to a size class of 16 bytes; a block that does not shrink is \
             kept raw. All programs together: sizes added up, times averaged. Times are processor time \
             for 4 KiB. kernel lz4 and kernel zstd: the same libraries, driven as the kernel drives them. \
             × lz4: relative to kernel lz4."
                .into(),
            rounds::describe(&measured.rounds),
        ],
        charts: vec![
            chart("Ratio and time to compress", &means, |mean| mean.compress_us),
            chart("Ratio and time to decompress", &means, |mean| mean.decompress_us),
        ],
        tables: vec![summary(&means), by_program(measured, &means)],
    }
}

/// The means, in the order of the cells.
fn means(measured: &Measured) -> Vec<Mean<'_>> {
    let mut means: Vec<Mean<'_>> = Vec::new();
    for cell in &measured.cells {
        if !means.iter().any(|mean| mean.is_of(cell)) {
            means.push(mean(measured, &cell.codec, cell.block));
        }
    }
    means
}

fn mean<'a>(measured: &Measured, codec: &'a str, block: usize) -> Mean<'a> {
    let counted = rounds::counted(&measured.rounds);
    let of_rounds = |values: &[f64]| {
        let values = counted.iter().filter_map(|&i| values.get(i)).copied();
        median(values).unwrap_or(f64::NAN)
    };
    let cells: Vec<&Cell> = measured
        .cells
        .iter()
        .filter(|cell| cell.codec == codec && cell.block == block)
        .collect();
    let sum = |what: fn(&Cell) -> usize| cells.iter().map(|cell| what(cell)).sum::<usize>() as f64;
    let average = |what: fn(&Cell) -> &[f64]| {
        cells.iter().map(|cell| of_rounds(what(cell))).sum::<f64>() / cells.len() as f64
    };
    Mean {
        codec,
        block,
        ratio: sum(|cell| cell.bytes) / sum(|cell| cell.compressed),
        packed: sum(|cell| cell.bytes) / sum(|cell| cell.packed),
        compress_us: average(|cell| &cell.compress_us),
        decompress_us: average(|cell| &cell.decompress_us),
    }
}

fn by_program(measured: &Measured, means: &[Mean<'_>]) -> Table {
    let programs = &measured.programs;
    let mut head = vec!["codec".to_owned(), "block".to_owned()];
    head.extend(programs.iter().map(|program| program.name.clone()));
    head.push("all".into());
    let rows = means
        .iter()
        .map(|mean| {
            let mut row = vec![mean.codec.to_owned(), block(mean.block)];
            row.extend(programs.iter().map(|program| {
                measured
                    .cells
                    .iter()
                    .find(|cell| mean.is_of(cell) && cell.program == program.name)
                    .map_or(String::new(), |cell| {
                        format!("{:.2}", cell.bytes as f64 / cell.packed as f64)
                    })
            }));
            row.push(format!("{:.2}", mean.packed));
            row
        })
        .collect();
    Table {
        caption: "Ratio after packing, by program".into(),
        head,
        rows,
    }
}

impl Mean<'_> {
    fn is_of(&self, cell: &Cell) -> bool {
        self.codec == cell.codec && self.block == cell.block
    }
}

fn block(bytes: usize) -> String {
    format!("{}K", bytes >> 10)
}

fn summary(means: &[Mean<'_>]) -> Table {
    let reference = means
        .iter()
        .find(|mean| (mean.codec, mean.block) == REFERENCE);
    let against = |value: f64, of: fn(&Mean<'_>) -> f64| {
        reference.map_or(String::new(), |mean| format!("{:.2}", value / of(mean)))
    };
    let rows = means
        .iter()
        .map(|mean| {
            vec![
                mean.codec.to_owned(),
                block(mean.block),
                format!("{:.2}", mean.ratio),
                format!("{:.2}", mean.packed),
                format!("{:.2}", mean.compress_us),
                format!("{:.2}", mean.decompress_us),
                against(mean.compress_us, |mean| mean.compress_us),
                against(mean.decompress_us, |mean| mean.decompress_us),
            ]
        })
        .collect();
    let head = [
        "codec",
        "block",
        "ratio",
        "packed",
        "compress, µs",
        "decompress, µs",
        "compress × lz4",
        "decompress × lz4",
    ];
    Table {
        caption: "All programs together".into(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    }
}

/// Ratio against time: one colour for each block size, one for the kernel.
fn chart(title: &str, means: &[Mean<'_>], time: fn(&Mean<'_>) -> f64) -> Chart {
    let points = |wanted: &dyn Fn(&Mean<'_>) -> bool| {
        means
            .iter()
            .filter(|mean| wanted(mean))
            .map(|mean| (time(mean), mean.packed, mean.codec.to_owned()))
            .collect()
    };
    let is_kernel = |mean: &Mean<'_>| mean.codec.starts_with("kernel");
    let mut series = vec![Series {
        name: "as the kernel, 4K".into(),
        points: points(&is_kernel),
    }];
    series.extend(BLOCKS.map(|size| Series {
        name: format!("uzswap, {}", block(size)),
        points: points(&|mean| mean.block == size && !is_kernel(mean)),
    }));
    Chart {
        title: title.into(),
        kind: Kind::Points {
            x: "µs of processor time for 4 KiB (logarithmic)".into(),
            y: "ratio, packed".into(),
            series,
        },
    }
}
