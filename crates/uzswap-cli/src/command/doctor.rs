//! *What*: `uzswap doctor`: what this machine allows, which fault mode `run` would use and why,
//! what is worse because of it, and what to type to change that.
//!
//! *Invariants*: whether something works is decided by the functions that `run` calls, with the
//! options that the environment gives it; files of the kernel are read only to explain and to
//! advise. Nothing on the machine is changed.
//! *Locking*: none. *Context*: one thread.

mod faults;
mod memory;
mod places;
mod trial;

use std::fmt::{Display, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;

use super::print;
use crate::args::{Cli, Doctor, FaultMode, one_line};
use crate::status;

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As good as it gets.
    Ok,
    /// Programs run, but not as well as they could.
    Worse,
    /// No program can be run.
    Fails,
}

/// What one look found.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    verdict: Verdict,
    /// What is so.
    found: String,
    /// What is worse because of it.
    costs: Option<String>,
    /// What to type to change it, one way a line.
    change: Vec<String>,
}

impl Finding {
    fn new(name: &'static str, found: impl Into<String>) -> Self {
        Finding {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            costs: None,
            change: Vec::new(),
        }
    }

    fn worse(name: &'static str, found: impl Into<String>, costs: impl Into<String>) -> Self {
        Finding {
            verdict: Verdict::Worse,
            costs: Some(costs.into()),
            ..Finding::new(name, found)
        }
    }

    /// What `run` would refuse with.
    fn fails(name: &'static str, why: impl Display) -> Self {
        Finding {
            verdict: Verdict::Fails,
            ..Finding::new(name, format!("{why:#}"))
        }
    }

    fn change(mut self, line: impl Into<String>) -> Self {
        self.change.push(line.into());
        self
    }
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    kernel: String,
    /// Whether programs can be run.
    runs: bool,
    /// The mode that `run` would use.
    fault_mode: Option<&'static str>,
    /// The limit that `run` would take, bytes.
    ram_limit: Option<u64>,
    findings: Vec<Finding>,
}

/// Looks, and prints what was found.
pub fn doctor(options: &Doctor) -> Result<u8> {
    let uzswap = std::env::current_exe().context("cannot find out where uzswap is")?;
    let found = look(&uzswap)?;
    print(&if options.json {
        serde_json::to_string_pretty(&found)? + "\n"
    } else {
        found.text()
    })?;
    Ok(if found.runs { 0 } else { status::FAILURE })
}

/// What is found here, with a trial of the binary `uzswap`.
fn look(uzswap: &Path) -> Result<Findings> {
    let run = Cli::run_of_environment().map_err(|error| anyhow!("{}", one_line(&error)))?;
    let (served, mut findings) = faults::look(run.fault_mode);
    let (ram_limit, of_memory) = memory::look(&run);
    findings.extend(of_memory);
    findings.extend(places::look(&run));
    let may_run = findings.iter().all(|one| one.verdict != Verdict::Fails);
    findings.extend(may_run.then(|| trial::look(uzswap)));
    Ok(Findings {
        version: env!("CARGO_PKG_VERSION"),
        kernel: faults::kernel(),
        runs: findings.iter().all(|one| one.verdict != Verdict::Fails),
        fault_mode: served.map(FaultMode::name),
        ram_limit,
        findings,
    })
}

/// The text of a file of the kernel's, without its end of line.
fn fact(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

/// The number in a file of the kernel's.
fn number(path: &str) -> Option<u64> {
    fact(path)?.parse().ok()
}

impl Findings {
    fn text(&self) -> String {
        let mut text = format!("uzswap {} on Linux {}\n\n", self.version, self.kernel);
        for finding in &self.findings {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Worse => "worse",
                Verdict::Fails => "fails",
            };
            let _ = writeln!(text, "{verdict:<6} {:<14} {}", finding.name, finding.found);
            if let Some(costs) = &finding.costs {
                let _ = writeln!(text, "{:21} {costs}", "");
            }
            for (line, at) in finding.change.iter().zip(0..) {
                let word = if at == 0 { "to change it:" } else { "or:" };
                let _ = writeln!(text, "{:21} {word:<13} {line}", "");
            }
        }
        text + "\n" + &self.summary() + "\n"
    }

    fn summary(&self) -> String {
        let is = |verdict| {
            self.findings
                .iter()
                .filter(move |one| one.verdict == verdict)
        };
        if !self.runs {
            let names: Vec<_> = is(Verdict::Fails).map(|one| one.name).collect();
            return format!("Programs cannot be run here: {}.", names.join(", "));
        }
        match is(Verdict::Worse).count() {
            0 => "Programs can be run, and nothing is worse than it could be.".to_owned(),
            1 => "Programs can be run; one thing is worse than it could be.".to_owned(),
            nr => format!("Programs can be run; {nr} things are worse than they could be."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_that_is_not_ok_says_why_or_what_to_do() {
        // Not this test's own binary, which would run the test again.
        let found = look(Path::new("/bin/true")).unwrap();
        for one in &found.findings {
            assert!(
                !one.found.is_empty() && !one.found.contains('\n'),
                "{one:?}"
            );
            match one.verdict {
                Verdict::Ok => assert!(one.costs.is_none(), "{one:?}"),
                Verdict::Worse => assert!(one.costs.is_some(), "{one:?}"),
                Verdict::Fails => assert!(one.found.contains(": "), "{one:?}"),
            }
        }
    }

    #[test]
    fn the_text_names_what_fails() {
        let found = Findings {
            version: "0",
            kernel: "6.1".to_owned(),
            runs: false,
            fault_mode: None,
            ram_limit: None,
            findings: vec![
                Finding::worse("swap", "none", "less fits").change("mkdir /swap"),
                Finding::fails("fault mode", "no userfaultfd: allow it"),
            ],
        };
        let text = found.text();
        assert!(
            text.contains("fails  fault mode     no userfaultfd: allow it\n"),
            "{text}"
        );
        assert!(text.contains("to change it: mkdir /swap\n"), "{text}");
        assert!(
            text.ends_with("Programs cannot be run here: fault mode.\n"),
            "{text}"
        );
    }
}
