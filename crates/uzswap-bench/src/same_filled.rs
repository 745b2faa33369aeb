//! The suite `same-filled`: pages that repeat one word, recognised or compressed.
//!
//! *What*: once the store and the load alone, on pages in memory, with processor time; once all that uzswap does
//! for a page, on a program whose memory is such pages, with `--same-filled-pages-enabled` on and off.
//! *Invariants*: both see the same pages; they take turns within each round.
//! *Locking*: none.
//! *Context*: the bench command.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use uzswap_compress::{Codec, fill, same_filled};

use crate::compare::{Figure, Goal, Measured, Run};
use crate::sides::{Room, Side, Sides};
use crate::work::{self, Tasks};
use uzswap_corpus::codecs::{Contestant, Implementation, Objects, Pages, processor_time};

const PAGE: usize = 4096;
/// Pages of the store and load alone.
const NR_PAGES: usize = 4096;
const ALONE: &str = "the page alone";
const ENGINE: &str = "all that is done for a page";

/// Measures, with `mib` MiB of data.
///
/// # Errors
/// If uzswap cannot run the work, or no round was completed.
pub fn measure(sides: &Sides, mib: u64, rounds: usize) -> Result<Measured> {
    work::check_memory(mib)?;
    let ratio = ("on".to_owned(), "off".to_owned());
    let goal = |figure: &str, bound| Goal {
        figure: figure.into(),
        job: None,
        ratio: ratio.clone(),
        bound,
    };
    let mut measured = Measured {
        title: "Same-filled pages".into(),
        notes: vec![format!(
            "{ALONE}: recognising {NR_PAGES} pages and filling them again, against compressing and decompressing them; processor time. {ENGINE}: reclaim \
             and faults of a program with {mib} MiB of such pages in a quarter of that."
        )],
        sides: vec![
            ("off".into(), "compressed".into()),
            ("on".into(), "recognised".into()),
        ],
        figures: vec![
            Figure::new("store_us", "a page stored", "µs").in_chart("Same-filled pages"),
            Figure::new("load_us", "a page loaded", "µs").in_chart("Same-filled pages"),
        ],
        ratios: vec![ratio.clone()],
        goals: vec![goal("store_us", 0.20), goal("load_us", 0.40)],
        ..Measured::default()
    };
    // What 'auto' chooses from.
    let codecs = match sides.compressor.as_str() {
        "auto" => ["lz4", "pz:3", "zstd:1"].to_vec(),
        named => vec![named],
    };
    let mut contestants = codecs
        .into_iter()
        .map(|name| {
            let codec: Codec = name.parse()?;
            Ok((name, Contestant::new(Implementation::Ours(codec), PAGE)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let pages = Pages::same_filled(NR_PAGES);
    measured.fill(rounds, 2, |round, progress| {
        let run = |job: &str, side: &str, values| Run {
            round,
            job: job.into(),
            side: side.into(),
            values,
        };
        let mut runs = Vec::new();
        for (name, contestant) in &mut contestants {
            let pass = contestant.pass(&pages, &mut Objects::default())?;
            let job = format!("{ALONE}, {name}");
            let compressed = [pass.compress_s, pass.decompress_s];
            runs.push(run(&job, "off", per_page(compressed)));
            runs.push(run(&job, "on", per_page(recognise(&pages)?)));
        }
        for side in ["off", "on"] {
            progress.at(&format!("round {}, {side}", round + 1));
            let tasks = Tasks {
                each_mib: mib,
                processes: 1,
                repeat: 2,
                random: false,
                same_filled: true,
            };
            let mut job = tasks.job(&sides.uzswap);
            job.options = vec!["--same-filled-pages-enabled".into(), side.into()];
            let room = Room {
                limit_mib: mib / 4,
                pool_mib: None,
                swap_mib: mib,
            };
            if let Some(ran) = sides.clone().run(Side::Uzswap, room, &job, progress)? {
                let job = format!("{ENGINE}, {}", sides.compressor);
                runs.push(run(&job, side, work::per_page(&ran.stats)));
            }
        }
        Ok(runs)
    })?;
    Ok(measured)
}

fn per_page(seconds: [f64; 2]) -> BTreeMap<String, f64> {
    let [store, load] = seconds.map(|seconds| seconds * 1e6 / NR_PAGES as f64);
    [("store_us".to_owned(), store), ("load_us".to_owned(), load)].into()
}

/// Seconds that recognising all pages and making them again take.
fn recognise(pages: &Pages) -> Result<[f64; 2]> {
    let mut words = Vec::with_capacity(NR_PAGES);
    let begin = processor_time();
    for page in pages.blocks(PAGE) {
        // SAFETY: a page is aligned to itself and readable, and a multiple of 64 long.
        words.push(unsafe { same_filled::same_filled(page.as_ptr(), PAGE) });
    }
    let between = processor_time();
    let mut back = vec![0; PAGE];
    let restart = processor_time();
    for word in words.iter().copied().flatten() {
        fill(std::hint::black_box(&mut back), word);
    }
    let end = processor_time();
    ensure!(
        words.iter().all(Option::is_some),
        "a page that repeats one word was not recognised"
    );
    Ok([between - begin, end - restart])
}
