//! *What*: the knobs on the command line: options of `run`, assignments of `set`, text and JSON.
//! All are made from the list [`Knobs::ALL`]; only the long explanations ([`details`]) stand here.
//!
//! *Locking*: none; cells are relaxed atomics. *Context*: `uzswap run`, `uzswap set`.

use std::sync::atomic::Ordering;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value, json};
use uzswap_compress::Codec;
use uzswap_group::knobs::{
    BLOCK_AUTO, CODEC_AUTO, Knob, Knobs, MAPPED, MAX_SHOWN, MAX_WORKERS, MIN_SHOWN, OFF, ON,
    SHOW_LIMIT, SHOW_NATIVE, UNDECIDED, Values, codec_of,
};

use crate::compressor::Compressor;
use crate::size::Size;

/// Values of [`Values::Block`].
const BLOCKS: [(&str, u64); 4] = [("auto", BLOCK_AUTO), ("4K", 0), ("16K", 2), ("64K", 4)];

/// What help says of a knob beyond its meaning.
fn details(name: &str) -> Option<&'static str> {
    Some(match name {
        "ram" => {
            "A size such as 512M, 1.5GiB or 1048576. 'auto' is the tightest limit of cgroup v1 or v2,\n\
             less what the cgroup holds that is not the command's, and less a margin: a sixteenth (512\n\
             MiB at most) and 16 MiB. Page cache that can be dropped is not counted. Where no cgroup\n\
             allows less than the machine has, it is half of the available memory. While the command\n\
             runs it follows: it falls at once when less is left, and rises slowly.\n\n\
             'uzswap set PID ram=SIZE' changes it, 'ram=auto' has it follow from then on. A higher limit holds at once. For a lower one each\n\
             process evicts its part of what is too much, and 'set' returns once all together are below\n\
             it; if they cannot come down, nothing changes and no process is ended."
        }
        "ram_per_process" => {
            "Holds beside --ram: whichever leaves less. 'set' changes it as it does ram."
        }
        "compressor" => {
            "'auto' starts with lz4. From the first eviction on it tries lz4 and pz:1 to pz:3 (zstd:1 for\n\
             blocks) on samples of the program's own pages, and takes whichever costs the program the\n\
             least time in all: a denser pool takes longer to fill and to read, but leaves more memory\n\
             uncompressed, so that there are fewer faults, and less on the swap device. 'stat' and the\n\
             summary show what it picked.\n\n\
             lz4 is the fastest. pz:1 stores a sixth more in the same RAM at nearly that speed; pz:3,\n\
             which 'pz' means, and zstd store about half as much again and take two and three times as\n\
             long. A change applies to new pages; stored ones stay readable."
        }
        "block" => {
            "4K compresses every page alone, which makes single pages come back cheaply. Larger blocks\n\
             take a quarter less room or better. A page that is needed out of order leaves its block,\n\
             until half of the block is left; sequential access brings whole blocks back. 'auto' makes\n\
             blocks where the program has read its memory sequentially."
        }
        "ram_min" => {
            "When --ram is used up, the coldest memory goes first, whichever process has it. No process\n\
             loses memory to others below this size. Without it each keeps a quarter of its fair share,\n\
             which is --ram divided by the processes, until it has been idle for ten seconds."
        }
        "accel" => {
            "'engines:N' starts N worker threads, up to 8, which compress, and decompress when several\n\
             pages come back at once. With ',mapped' each CPU uses one of them; otherwise all share\n\
             every batch. Useful for codecs slower than lz4 where CPUs are idle.\n\n\
             The program has more threads than it started: Python warns at fork, and unshare of a user\n\
             namespace fails. 'uzswap set PID accel=none' stops them; 'set' can restart up to as many\n\
             as the run started with."
        }
        "max_pool_percent" => "Data that goes to swap stays compressed.",
        "writeback" => "'off' keeps all data off the disk, whether there is a swap device or not.",
        "checksum" => {
            "Finds damage by bad memory or a stray pointer. Costs 4 bytes a page and, each time a page\n\
             is stored or loaded, 0.15 µs at a ratio of 3 (0.4 µs if it does not compress)."
        }
        "densify" => {
            "The reclaimer recompresses pages that stay cold, in blocks of 64K with zstd:5. In a test\n\
             with zstd:6 they took 30 % less room than with lz4. They come back in blocks of 64K, too.\n\
             Cannot be turned on in a run with --background-reclaim=off."
        }
        "verify_compress" => "Compares every byte. What 'densify' makes is compared by a checksum.",
        "show_memory" => {
            "Many programs size themselves by what they see: DuckDB takes 80 % of it, Java a\n\
             quarter. With a size, such as twice --ram, they size themselves to what uzswap can\n\
             hold; with 'limit' to --ram, as it is when they look. docs/show-memory.md says which\n\
             programs it reaches, and what they see.\n\n\
             Costs about 1 µs each time a file is opened for reading; 'native' costs nothing.\n\
             'uzswap set' changes it for programs started from then on, and for those that were\n\
             started with a value other than 'native'."
        }
        _ => return None,
    })
}

/// The syntax of a knob's values.
pub const fn takes(values: Values) -> &'static str {
    match values {
        Values::Switch => "on|off",
        Values::Percent => "1..100",
        Values::Share => "0..100",
        Values::Codec => "CODEC",
        Values::Block => "auto|4K|16K|64K",
        Values::Size => "auto|SIZE",
        Values::Limit => "none|SIZE",
        Values::Accel => "none|engines:N[,mapped]",
        Values::Shown => "native|limit|SIZE",
    }
}

/// Parses a value of `knob`.
pub fn parse(knob: &Knob, text: &str) -> Result<u64, String> {
    let value = match knob.values {
        Values::Switch => match text.to_ascii_lowercase().as_str() {
            "on" | "1" | "y" | "yes" | "true" => Some(ON),
            "off" | "0" | "n" | "no" | "false" => Some(OFF),
            _ => None,
        },
        Values::Percent => text.parse().ok().filter(|n| (1..=100).contains(n)),
        Values::Share => text.parse().ok().filter(|n| *n <= 100),
        Values::Block => BLOCKS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, value)| *value),
        Values::Limit if text.eq_ignore_ascii_case("none") => Some(0),
        Values::Size if text.eq_ignore_ascii_case("auto") => Some(UNDECIDED),
        Values::Size | Values::Limit => {
            let size = text.parse().map(|Size(bytes)| bytes);
            let takes = takes(knob.values);
            return size
                .map_err(|why: String| format!("{} takes {takes}: '{text}' is {why}", knob.name));
        }
        Values::Accel => parse_accel(text),
        Values::Shown => return parse_shown(knob, text),
        Values::Codec => return Ok(text.parse::<Compressor>()?.to_knob()),
    };
    let takes = takes(knob.values);
    value.ok_or_else(|| format!("{} takes {takes}, not '{text}'", knob.name))
}

/// Formats a value of `knob`.
pub fn show(knob: &Knob, value: u64) -> String {
    match knob.values {
        Values::Switch => if value == OFF { "off" } else { "on" }.to_owned(),
        Values::Percent | Values::Share => value.to_string(),
        Values::Block => BLOCKS
            .iter()
            .find(|(_, block)| *block == value)
            .map_or("unknown", |(name, _)| name)
            .to_owned(),
        Values::Limit if value == 0 => "none".to_owned(),
        Values::Size if value == UNDECIDED => "auto".to_owned(),
        Values::Size | Values::Limit => Size(value).to_string(),
        Values::Accel => show_accel(value),
        Values::Shown => match value {
            SHOW_NATIVE => "native".to_owned(),
            SHOW_LIMIT => "limit".to_owned(),
            bytes => Size(bytes).to_string(),
        },
        Values::Codec => show_codec(value),
    }
}

/// Parses a value of [`Values::Accel`].
fn parse_accel(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    if text == "none" {
        return Some(0);
    }
    let (engines, mapped) = match text.strip_suffix(",mapped") {
        Some(engines) => (engines, MAPPED),
        None => (text.as_str(), 0),
    };
    let nr = engines.strip_prefix("engines:")?.parse::<u64>().ok()?;
    (1..=MAX_WORKERS).contains(&nr).then_some(nr | mapped)
}

/// Parses a value of [`Values::Shown`].
fn parse_shown(knob: &Knob, text: &str) -> Result<u64, String> {
    match text.to_ascii_lowercase().as_str() {
        "native" => return Ok(SHOW_NATIVE),
        "limit" => return Ok(SHOW_LIMIT),
        _ => {}
    }
    let wrong = |why: String| {
        format!(
            "{}: '{text}' is neither native nor limit, and {why}",
            knob.name
        )
    };
    let Size(bytes) = text.parse().map_err(wrong)?;
    if !(MIN_SHOWN..=MAX_SHOWN).contains(&bytes) {
        let (least, most) = (Size(MIN_SHOWN), Size(MAX_SHOWN));
        return Err(format!(
            "{}: a size is from {least} to {most}, not '{text}'",
            knob.name
        ));
    }
    Ok(bytes & !0xfff)
}

fn show_accel(value: u64) -> String {
    match (value & !MAPPED, value & MAPPED) {
        (0, _) => "none".to_owned(),
        (nr, 0) => format!("engines:{nr}"),
        (nr, _) => format!("engines:{nr},mapped"),
    }
}

/// `auto`, or the codec as `--compressor` names it.
pub fn show_codec(value: u64) -> String {
    let named = |codec| match value {
        CODEC_AUTO => Compressor::Auto,
        _ => Compressor::Named(codec),
    };
    codec_of(value).map_or_else(|| "unknown".to_owned(), |codec| named(codec).to_string())
}

fn value_json(knob: &Knob, value: u64) -> Value {
    match knob.values {
        Values::Switch => json!(value != OFF),
        Values::Size if value == UNDECIDED => json!(show(knob, value)),
        Values::Percent | Values::Share | Values::Size => json!(value),
        Values::Shown if value >= MIN_SHOWN => json!(value),
        Values::Codec | Values::Block | Values::Accel | Values::Shown => json!(show(knob, value)),
        Values::Limit => json!((value != 0).then_some(value)),
    }
}

/// Every knob with its value, default, syntax and meaning.
pub fn to_json(knobs: &Knobs) -> Value {
    let entries = knobs.cells().into_iter().zip(Knobs::ALL);
    let entries = entries.map(|(cell, knob)| {
        let about = json!({
            "value": value_json(knob, cell.load(Ordering::Relaxed)),
            "default": value_json(knob, knob.default),
            "takes": takes(knob.values),
            "meaning": knob.meaning,
        });
        (knob.name.to_owned(), about)
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

/// `KNOB=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Index of the knob in [`Knobs::ALL`].
    pub index: usize,
    /// Its new value.
    pub value: u64,
}

impl std::str::FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("write KNOB=VALUE, such as ram=128M")?;
        // The options of 'run' have hyphens.
        let name = name.replace('-', "_");
        let found = Knobs::ALL.iter().position(|knob| knob.name == name);
        let Some(index) = found else {
            let known: Vec<_> = Knobs::ALL.iter().map(|knob| knob.name).collect();
            return Err(format!("no knob '{name}': there are {}", known.join(", ")));
        };
        let value = parse(&Knobs::ALL[index], value)?;
        Ok(Assignment { index, value })
    }
}

/// The values of all knobs, from the options of `run`.
#[derive(Clone, Debug)]
pub struct Settings(Vec<u64>);

impl Settings {
    /// The compressor; of `auto` the one it starts with.
    pub fn codec(&self) -> Codec {
        self.first(Values::Codec)
            .and_then(codec_of)
            .unwrap_or(Codec::Lz4)
    }

    /// `--ram`, if given.
    pub fn ram(&self) -> Option<Size> {
        self.first(Values::Size)
            .filter(|&bytes| bytes != UNDECIDED)
            .map(Size)
    }

    /// `--ram-per-process`, if given.
    pub fn ram_per_process(&self) -> Option<Size> {
        self.first(Values::Limit)
            .filter(|&bytes| bytes != 0)
            .map(Size)
    }

    /// The only knob with such values.
    fn first(&self, values: Values) -> Option<u64> {
        let mut knobs = Knobs::ALL.iter().zip(&self.0);
        let found = knobs.find(|(knob, _)| knob.values == values);
        found.map(|(_, value)| *value)
    }

    /// Sets the group's knobs.
    pub fn store(&self, knobs: &Knobs) {
        for (cell, value) in knobs.cells().into_iter().zip(&self.0) {
            cell.store(*value, Ordering::Relaxed);
        }
    }
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        command.args(Knobs::ALL.iter().map(|knob| {
            let arg = Arg::new(knob.name)
                .long(knob.name.replace('_', "-"))
                .value_name(takes(knob.values))
                .value_parser(|text: &str| parse(knob, text));
            let details = details(knob.name).map_or(String::new(), |more| format!("\n\n{more}"));
            arg.default_value(show(knob, knob.default))
                .help(knob.meaning)
                .long_help(format!("{}{details}", knob.meaning))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |knob: &Knob| matches.get_one(knob.name).copied().unwrap_or(knob.default);
        Ok(Settings(Knobs::ALL.iter().map(value).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_takes_what_it_shows_and_nothing_else() {
        let defaults = Knobs::ALL.iter().enumerate();
        let values = defaults.map(|(index, knob)| (index, knob, knob.default));
        let size = Knobs::ALL
            .iter()
            .position(|knob| knob.values == Values::Size);
        let size = size.map(|index| (index, &Knobs::ALL[index], 64 << 20));
        for (index, knob, value) in values.chain(size) {
            let text = show(knob, value);
            assert_eq!(parse(knob, &text), Ok(value));
            let assignment = format!("{}={text}", knob.name);
            assert_eq!(assignment.parse(), Ok(Assignment { index, value }));
            let hyphens = assignment.replace('_', "-");
            assert_eq!(hyphens.parse(), Ok(Assignment { index, value }));
            for wrong in ["", "maybe", "-1", "99999999999999999999"] {
                let error = parse(knob, wrong).unwrap_err();
                assert!(error.contains(knob.name), "{error}");
            }
        }
    }

    #[test]
    fn a_percentage_is_a_whole_number_up_to_100() {
        let percent = |knob: &&Knob| knob.values == Values::Percent;
        for knob in Knobs::ALL.iter().filter(percent) {
            assert_eq!(parse(knob, "100"), Ok(100));
            for wrong in ["0", "101", "1.5"] {
                assert!(parse(knob, wrong).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn engines_are_told_as_they_were_asked_for() {
        let accel = Knobs::ALL.iter().find(|knob| knob.values == Values::Accel);
        let accel = accel.expect("there is such a knob");
        for text in ["none", "engines:1", "engines:8", "engines:2,mapped"] {
            let value = parse(accel, text).expect("it is taken");
            assert_eq!(show(accel, value), text);
        }
        for wrong in [
            "engines",
            "engines:",
            "engines:0",
            "engines:9",
            "iaa",
            "engines:2,",
            "none,mapped",
        ] {
            assert!(parse(accel, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_shown_total_is_a_word_or_a_size_within_reason() {
        let shown = Knobs::ALL.iter().find(|knob| knob.values == Values::Shown);
        let shown = shown.expect("there is such a knob");
        for text in ["native", "limit", "1 MiB", "1.5 GiB", "1 PiB"] {
            let value = parse(shown, text).expect("it is taken");
            assert_eq!(show(shown, value), text);
        }
        assert_eq!(value_json(shown, 3 << 29), json!(3_u64 << 29));
        assert_eq!(value_json(shown, SHOW_LIMIT), json!("limit"));
        for wrong in ["0", "1", "1023K", "1025T", "2x", "limits", "50%"] {
            assert!(parse(shown, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_knob_is_told_with_what_is_one() {
        let error = "frob=1".parse::<Assignment>().unwrap_err();
        for part in ["frob", "max_pool_percent"] {
            assert!(error.contains(part), "{error}");
        }
        assert!("max_pool_percent".parse::<Assignment>().is_err());
    }
}
