//! A progress bar with the time left, on standard error if that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar; dropping it clears it.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps` steps, counted in `unit`.
    #[must_use]
    pub fn new(steps: usize, unit: &str) -> Self {
        let bar = visible(ProgressBar::new(steps as u64));
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{eta}} left  {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        Self(bar)
    }

    /// A spinner, for work of unknown length.
    #[must_use]
    pub fn endless() -> Self {
        let bar = visible(ProgressBar::new_spinner());
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        Self(bar)
    }

    /// Shows what is being done.
    pub fn at(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Counts one more step as done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Prints a line that stays.
    pub fn say(&self, line: &str) {
        self.hidden(|| eprintln!("{line}"));
    }

    /// Calls `write`, which prints lines of its own, with the bar out of the way.
    pub fn hidden(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }
}

fn visible(bar: ProgressBar) -> ProgressBar {
    if std::io::stderr().is_terminal() {
        bar
    } else {
        ProgressBar::hidden()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
