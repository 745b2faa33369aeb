//! The suite `same-filled`: same-filled pages, recognised or compressed.
//!
//! *What*: store and load alone, on pages in memory, in processor time; and the whole path of a
//! page, in a program whose memory is such pages, with `--same-filled-pages-enabled` on and off.
//! *Invariants*: both variants see the same pages and take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command.

use anyhow::{Result, ensure};
use uzswap_compress::{Codec, fill, same_filled};
use uzswap_corpus::codecs::{Contestant, Implementation, Objects, Pages, processor_time};
use uzswap_sys::PAGE_SIZE;

use crate::compare::{Figure, Goal, Measured, Values, pair, values};
use crate::sides::{Limits, Side, Sides};
use crate::work::{self, Tasks};

/// Pages for store and load alone.
const NR_PAGES: usize = 4096;
const PAGE_ALONE: &str = "the page alone";
const WHOLE_PATH: &str = "the whole path";

/// Measures, with `mib` MiB of data.
///
/// # Errors
/// If uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &Sides, mib: u64, rounds: usize) -> Result<Measured> {
    work::check_memory(mib)?;
    let goal = |figure, bound| Goal::new(figure, None, ("on", "off"), bound);
    let mut measured = Measured {
        title: "Same-filled pages".into(),
        notes: vec![format!(
            "{PAGE_ALONE}: recognising {NR_PAGES} pages and filling them again, against compressing and \
             decompressing them; processor time. {WHOLE_PATH}: reclaim and faults of a program with {mib} \
             MiB of such pages in a quarter of that."
        )],
        sides: [("off", "compressed"), ("on", "recognised")]
            .map(pair)
            .to_vec(),
        figures: vec![
            Figure::new("store_us", "a page stored", "µs").in_chart("Same-filled pages"),
            Figure::new("load_us", "a page loaded", "µs").in_chart("Same-filled pages"),
        ],
        ratios: vec![pair(("on", "off"))],
        goals: vec![goal("store_us", 0.20), goal("load_us", 0.40)],
        ..Measured::default()
    };
    // The codecs that 'auto' chooses from.
    let codecs = match sides.compressor.as_str() {
        "auto" => ["lz4", "pz:3", "zstd:1"].to_vec(),
        named => vec![named],
    };
    let mut contestants = codecs
        .into_iter()
        .map(|name| {
            let codec: Codec = name.parse()?;
            Ok((
                name,
                Contestant::new(Implementation::Ours(codec), PAGE_SIZE)?,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    let pages = Pages::same_filled(NR_PAGES);
    let tasks = Tasks {
        each_mib: mib,
        same_filled: true,
        ..Tasks::default()
    };
    let limits = Limits {
        ram_mib: mib / 4,
        pool_mib: None,
        swap_mib: mib,
    };
    measured.fill(rounds, 2, |round| {
        for (name, contestant) in &mut contestants {
            let pass = contestant.pass(&pages, &mut Objects::default())?;
            let job = format!("{PAGE_ALONE}, {name}");
            round.add(&job, "off", per_page([pass.compress_s, pass.decompress_s]));
            round.add(&job, "on", per_page(recognise(&pages)?));
        }
        for side in ["off", "on"] {
            round.at(WHOLE_PATH, side);
            let mut job = tasks.job(&sides.uzswap);
            job.options = vec!["--same-filled-pages-enabled".into(), side.into()];
            let run = sides
                .clone()
                .run(Side::Uzswap, limits, &job, round.progress)?;
            if let Some(run) = run {
                let job = format!("{WHOLE_PATH}, {}", sides.compressor);
                round.add(&job, side, work::per_page(&run.stats));
            }
        }
        Ok(())
    })?;
    Ok(measured)
}

/// µs per page of the seconds that storing and loading all pages took.
fn per_page(seconds: [f64; 2]) -> Values {
    let [store, load] = seconds.map(|seconds| seconds * 1e6 / NR_PAGES as f64);
    values([("store_us", store), ("load_us", load)])
}

/// Seconds to recognise all pages and to fill them again.
fn recognise(pages: &Pages) -> Result<[f64; 2]> {
    let mut words = Vec::with_capacity(NR_PAGES);
    let begin = processor_time();
    for page in pages.blocks(PAGE_SIZE) {
        // SAFETY: a page is readable, page-aligned and a multiple of 64 bytes long.
        words.push(unsafe { same_filled::same_filled(page.as_ptr(), PAGE_SIZE) });
    }
    let between = processor_time();
    let mut back = vec![0; PAGE_SIZE];
    let restart = processor_time();
    for word in words.iter().copied().flatten() {
        fill(std::hint::black_box(&mut back), word);
    }
    let end = processor_time();
    ensure!(
        words.iter().all(Option::is_some),
        "a same-filled page was not recognised"
    );
    Ok([between - begin, end - restart])
}
