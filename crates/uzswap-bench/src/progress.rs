//! Progress with the time left, on standard error, where that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that is gone when it is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// For `steps` steps; `unit` says what they are.
    #[must_use]
    pub fn new(steps: usize, unit: &str) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(steps as u64)
        } else {
            ProgressBar::hidden()
        };
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{eta}} left  {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        Self(bar)
    }

    /// For what takes nobody knows how long.
    #[must_use]
    pub fn endless() -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new_spinner()
        } else {
            ProgressBar::hidden()
        };
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        Self(bar)
    }

    /// What is being done.
    pub fn at(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// One more step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        self.hidden(|| eprintln!("{line}"));
    }

    /// Calls what writes lines of its own.
    pub fn hidden(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
