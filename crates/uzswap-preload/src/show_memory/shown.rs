//! *What*: how memory looks to a program that is to see another total.
//!
//! The run's memory is the whole machine: the total is what was asked for, free is what its
//! processes do not hold of it, in RAM or not. Page cache, shared memory and swap are not the
//! program's to use, so there are none. All else is as it is.
//!
//! *Invariants*: free and available are at most the total.
//! *Locking*: none. *Context*: any.

use core::fmt::Write;

use uzswap_sys::fmt::StackBuf;

use super::source::Source;

/// The memory that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that the run's processes hold; at most `total`.
    pub used: u64,
}

/// The kernel's `struct sysinfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "see sysinfo(2)")]
pub struct SysInfo {
    pub uptime: i64,
    pub loads: [u64; 3],
    pub totalram: u64,
    pub freeram: u64,
    pub sharedram: u64,
    pub bufferram: u64,
    pub totalswap: u64,
    pub freeswap: u64,
    pub procs: u16,
    pub pad: u16,
    pub totalhigh: u64,
    pub freehigh: u64,
    pub mem_unit: u32,
}

const _: () = assert!(size_of::<SysInfo>() == 112);

impl Shown {
    const fn free(&self) -> u64 {
        self.total - self.used
    }

    /// Changes what sysinfo(2) has filled in.
    pub fn change(&self, info: &mut SysInfo) {
        let unit = u64::from(info.mem_unit.max(1));
        info.totalram = self.total / unit;
        info.freeram = self.free() / unit;
        info.sharedram = 0;
        info.bufferram = 0;
        info.totalswap = 0;
        info.freeswap = 0;
    }

    /// Writes a line of a file of kind `source`, which comes without its end, to `out`.
    pub fn rewrite<const N: usize>(&self, source: Source, line: &[u8], out: &mut StackBuf<N>) {
        let line = core::str::from_utf8(line).unwrap_or_default();
        let (key, _) = line.split_once([' ', ':']).unwrap_or((line, ""));
        // Never fails: what has no room is cut.
        let _ = match (source, self.value(source, key)) {
            (_, None) => writeln!(out, "{line}"),
            (Source::Meminfo, Some(bytes)) => {
                let colon = ":";
                let width = 15_usize.saturating_sub(key.len());
                writeln!(out, "{key}{colon:<width$} {:>8} kB", bytes / 1024)
            }
            (Source::Stat, Some(bytes)) => writeln!(out, "{key} {bytes}"),
            (_, Some(bytes)) => writeln!(out, "{bytes}"),
        };
    }

    /// Bytes to show for `key`; `None`: the line as it is.
    fn value(&self, source: Source, key: &str) -> Option<u64> {
        match source {
            Source::Limit => Some(self.total),
            Source::Usage => Some(self.used),
            Source::Swap => Some(0),
            Source::Stat => match key {
                "hierarchical_memory_limit" | "hierarchical_memsw_limit" => Some(self.total),
                _ => None,
            },
            Source::Meminfo => match key {
                "MemTotal" => Some(self.total),
                "MemFree" | "MemAvailable" => Some(self.free()),
                "Buffers" | "Cached" | "SReclaimable" | "Shmem" => Some(0),
                "SwapTotal" | "SwapFree" | "SwapCached" => Some(0),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Shown = Shown {
        total: 2 << 30,
        used: 512 << 20,
    };

    fn rewritten(source: Source, line: &str) -> String {
        let mut out = StackBuf::<257>::new();
        SHOWN.rewrite(source, line.as_bytes(), &mut out);
        out.as_str().to_owned()
    }

    #[test]
    fn meminfo_keeps_its_columns() {
        for (line, want) in [
            (
                "MemTotal:       24684084 kB",
                "MemTotal:        2097152 kB\n",
            ),
            (
                "MemFree:        23521536 kB",
                "MemFree:         1572864 kB\n",
            ),
            (
                "MemAvailable:   24235844 kB",
                "MemAvailable:    1572864 kB\n",
            ),
            (
                "Cached:           875052 kB",
                "Cached:                0 kB\n",
            ),
            (
                "SwapTotal:       8388604 kB",
                "SwapTotal:             0 kB\n",
            ),
            (
                "Dirty:            120328 kB",
                "Dirty:            120328 kB\n",
            ),
            ("HugePages_Total:       0", "HugePages_Total:       0\n"),
            ("", "\n"),
        ] {
            assert_eq!(rewritten(Source::Meminfo, line), want);
        }
    }

    #[test]
    fn a_cgroup_has_the_total_as_its_limit() {
        for unlimited in ["max", "9223372036854771712", "1"] {
            assert_eq!(rewritten(Source::Limit, unlimited), "2147483648\n");
        }
        assert_eq!(rewritten(Source::Usage, "4096"), "536870912\n");
        assert_eq!(rewritten(Source::Swap, "max"), "0\n");
        let stat = |line| rewritten(Source::Stat, line);
        assert_eq!(
            stat("hierarchical_memory_limit 9223372036854771712"),
            "hierarchical_memory_limit 2147483648\n"
        );
        assert_eq!(stat("cache 4096"), "cache 4096\n");
    }

    #[test]
    fn sysinfo_counts_in_its_unit() {
        let mut info = SysInfo {
            totalram: 7,
            totalswap: 9,
            procs: 3,
            mem_unit: 4096,
            ..SysInfo::default()
        };
        SHOWN.change(&mut info);
        assert_eq!(info.totalram, 524_288);
        assert_eq!(info.freeram, 393_216);
        assert_eq!((info.totalswap, info.procs), (0, 3));
    }
}
