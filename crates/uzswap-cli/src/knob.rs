//! The live knobs as the command line has them: options of `run`, assignments of `set`, a table and JSON.
//! Everything is made from [`Knobs::ALL`].

use std::sync::atomic::Ordering;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value, json};
use uzswap_compress::Codec;
use uzswap_group::knobs::{
    BLOCK_AUTO, CODEC_AUTO, Knob, Knobs, MAPPED, MAX_WORKERS, OFF, ON, UNDECIDED, Values, codec_of,
};

use crate::compressor::Compressor;
use crate::size::Size;

/// What [`Values::Block`] takes.
const BLOCKS: [(&str, u64); 4] = [("auto", BLOCK_AUTO), ("4K", 0), ("16K", 2), ("64K", 4)];

/// What `--ram` is unless it is told.
const DEFAULT_RAM: &str =
    "[default: 80 % of what the cgroup still allows, else half of the memory available]";

/// What a knob takes, for a person to read.
pub const fn takes(values: Values) -> &'static str {
    match values {
        Values::Switch => "on|off",
        Values::Percent => "1..100",
        Values::Share => "0..100",
        Values::Codec => "CODEC",
        Values::Block => "auto|4K|16K|64K",
        Values::Size => "SIZE",
        Values::Accel => "none|engines:N[,mapped]",
    }
}

/// A value of `knob` out of its text.
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
        Values::Size => {
            let size = text.parse().map(|Size(bytes)| bytes);
            return size.map_err(|why: String| format!("{}: '{text}' is {why}", knob.name));
        }
        Values::Accel => parse_accel(text),
        Values::Codec => return Ok(text.parse::<Compressor>()?.to_knob()),
    };
    let takes = takes(knob.values);
    value.ok_or_else(|| format!("{} takes {takes}, not '{text}'", knob.name))
}

/// The text of a value.
pub fn show(knob: &Knob, value: u64) -> String {
    match knob.values {
        Values::Switch => if value == OFF { "off" } else { "on" }.to_owned(),
        Values::Percent | Values::Share => value.to_string(),
        Values::Block => BLOCKS
            .iter()
            .find(|(_, block)| *block == value)
            .map_or("unknown", |(name, _)| name)
            .to_owned(),
        Values::Size => Size(value).to_string(),
        Values::Accel => show_accel(value),
        Values::Codec => show_codec(value),
    }
}

/// Whether the knob has a default; else what it is at the beginning is decided then.
fn decided(knob: &Knob) -> bool {
    knob.default != UNDECIDED
}

/// What [`Values::Accel`] takes.
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
        Values::Percent | Values::Share | Values::Size => json!(value),
        Values::Codec | Values::Block | Values::Accel => json!(show(knob, value)),
    }
}

/// Every knob with its value, default, what it takes and what it is for.
pub fn to_json(knobs: &Knobs) -> Value {
    let entries = knobs.cells().into_iter().zip(Knobs::ALL);
    let entries = entries.map(|(cell, knob)| {
        let about = json!({
            "value": value_json(knob, cell.load(Ordering::Relaxed)),
            "default": decided(knob).then(|| value_json(knob, knob.default)),
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
    /// Number of the knob in [`Knobs::ALL`].
    pub index: usize,
    /// What it is to be.
    pub value: u64,
}

impl std::str::FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("it is not KNOB=VALUE")?;
        // As the options of 'run' spell them.
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

/// The values of all knobs: options of `run`, of the same names.
#[derive(Clone, Debug)]
pub struct Settings(Vec<u64>);

impl Settings {
    /// The compressor; of `auto` the one that it begins with.
    pub fn codec(&self) -> Codec {
        self.first(Values::Codec)
            .and_then(codec_of)
            .unwrap_or(Codec::Lz4)
    }

    /// `--ram`, if it was told.
    pub fn ram(&self) -> Option<Size> {
        self.first(Values::Size)
            .filter(|&bytes| bytes != UNDECIDED)
            .map(Size)
    }

    /// The only knob that takes such values.
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
                .env(format!("UZSWAP_{}", knob.name.to_ascii_uppercase()))
                .hide_env(true)
                .value_parser(|text: &str| parse(knob, text));
            if decided(knob) {
                arg.default_value(show(knob, knob.default))
                    .help(knob.meaning)
            } else {
                arg.help(format!("{}\n{DEFAULT_RAM}", knob.meaning))
            }
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
        for (index, knob) in Knobs::ALL.iter().enumerate() {
            let value = if decided(knob) {
                knob.default
            } else {
                64 << 20
            };
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
    fn what_is_no_knob_is_told_with_what_is_one() {
        let error = "frob=1".parse::<Assignment>().unwrap_err();
        for part in ["frob", "max_pool_percent"] {
            assert!(error.contains(part), "{error}");
        }
        assert!("max_pool_percent".parse::<Assignment>().is_err());
    }
}
