//! The machine that was measured on.

use std::fs;

use serde::{Deserialize, Serialize};
use uzswap_corpus::proc_kib;

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
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cpu: model.map_or("", |(_, value)| value.trim()).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mib: proc_kib("/proc/meminfo", "MemTotal:").unwrap_or(0) >> 10,
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
