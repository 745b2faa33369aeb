//! What the figures were measured on.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine, as its kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let kib = field(&read("/proc/meminfo"), "MemTotal");
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mib: kib.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) >> 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} × {}, {:.1} GiB, Linux {}",
            self.processors,
            self.cpu,
            self.memory_mib as f64 / 1024.0,
            self.kernel
        )
    }
}
