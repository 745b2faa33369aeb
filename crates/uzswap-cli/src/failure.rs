//! *What*: why uzswap ended a process: one line with the cause and the next step.
//!
//! *Locking*: none. *Context*: `uzswap run`, after the command has ended.

use std::sync::atomic::Ordering;

use uzswap_core::StartStep;
use uzswap_group::group::FailureReason;
use uzswap_group::knobs::is_on;

use crate::group_view::totals::Totals;
use crate::group_view::{PAGE, Part, device, label, name_of, pid_of};
use crate::outside::{Causes, Over};
use crate::ram::Advice;
use crate::size::Size;

/// Why uzswap ended a process.
#[derive(Debug)]
pub struct Failure {
    /// The process.
    pub pid: u32,
    /// The message.
    pub line: String,
}

impl Failure {
    /// The group's first failure, if there was one.
    pub fn of(group: &Part<'_>, totals: &Totals, outside: &Causes) -> Option<Self> {
        let failure = group.failure();
        // Pairs with the release store of whoever failed: the other fields are complete.
        let reason = failure.reason.load(Ordering::Acquire);
        let pid = failure.pid.load(Ordering::Relaxed);
        let advice = Advice::of(group);
        let line = match reason {
            FailureReason::None => return None,
            FailureReason::OverLimit => over_limit(
                &who(group, pid),
                failure.needed.load(Ordering::Relaxed),
                failure.limit.load(Ordering::Relaxed),
                need(group, pid),
                totals.compression_ratio(),
                &swap(group, totals),
                advice,
            ),
            FailureReason::Mappings => format!(
                "{} was ended: it has as many mappings as a process may have, which without userfaultfd \
                 leaves none for its memory: raise 'sysctl vm.max_map_count'",
                who(group, pid)
            ),
            FailureReason::Start => start(
                &who(group, pid),
                failure.step.load(Ordering::Relaxed),
                failure.errno.load(Ordering::Relaxed),
                failure.limit.load(Ordering::Relaxed),
                advice,
            ),
            FailureReason::ReclaimerKilled => format!(
                "{} was ended: somebody killed its reclaimer (uzswap-reclaim), which works on its memory: \
                 leave that process alone, or run with --background-reclaim=off",
                who(group, pid)
            ),
            FailureReason::Unmanaged => format!(
                "{} was ended: {}: {}, or leave --over-limit=end out",
                who(group, pid),
                outside_alone(
                    Over {
                        bytes: failure.needed.load(Ordering::Relaxed),
                        own: group.unmanaged_peak(),
                        limit: failure.limit.load(Ordering::Relaxed),
                    },
                    outside
                ),
                advice.more()
            ),
            FailureReason::Internal => format!(
                "{} was ended because uzswap found its own state damaged: please report this with the \
                 command and the output of 'uzswap --version'",
                who(group, pid)
            ),
        };
        Some(Failure { pid, line })
    }
}

/// That memory which is not managed alone exceeds the limit.
pub fn outside_alone(over: Over, causes: &Causes) -> String {
    let Over { bytes, own, limit } = over;
    let own = match own < bytes {
        true => format!(", {} of it by this command", Size(own)),
        false => String::new(),
    };
    let causes = match causes.named() {
        none if none.is_empty() => none,
        named => format!(" ({named})"),
    };
    format!(
        "memory outside uzswap's control alone takes {} of the limit of {}{own}{causes}",
        Size(bytes),
        Size(limit)
    )
}

/// Why no more memory went to swap, and what to do about it.
fn swap(group: &Part<'_>, totals: &Totals) -> String {
    let Some(device) = device::names(group) else {
        return "there was no swap device (give one by --swap)".to_owned();
    };
    if !is_on(&group.knobs.writeback) {
        return "writing to swap was off (--writeback on)".to_owned();
    }
    let total = Size(group.config.swap.nr_slots() * PAGE);
    match (totals.get("swap_write_fail"), totals.get("swap_full")) {
        (0, 0) => format!("nothing more could go to swap on {device}"),
        (0, _) => {
            format!("the swap device {device} of {total} had no room left (see --swap-max, --swap)")
        }
        (nr, _) => format!("{nr} writes to the swap device {device} failed (see --swap)"),
    }
}

/// Most memory that process `pid` ever had, uncompressed.
fn need(group: &Part<'_>, pid: u32) -> u64 {
    let found = group.used().iter().find(|p| pid_of(p) == pid);
    found.map_or(0, |p| p.counters.need_peak.load(Ordering::Relaxed))
}

fn over_limit(
    who: &str,
    needed: u64,
    limit: u64,
    need: u64,
    ratio: f64,
    swap: &str,
    advice: Advice,
) -> String {
    format!(
        "{who} was ended: its {} need at least {} even with what is cold compressed {ratio:.1}:1, \
         {}, and {swap}; {} or more, or --over-limit=allow to let it use what it needs",
        Size(need),
        Size(needed),
        advice.allows(limit),
        advice.amount(&suggestion(needed.max(limit))),
    )
}

/// A limit to try: a quarter above the need at the end, since the program was still growing.
fn suggestion(needed: u64) -> String {
    let step = 16 << 20;
    let mib = (needed / 4 * 5).div_ceil(step) * 16;
    format!("{mib}M")
}

/// Why the engine could not start in a process. `kernel` checks the same, but a process may have
/// changed its limits or its root directory since.
fn start(who: &str, step: u32, errno: u32, limit: u64, advice: Advice) -> String {
    let why = match StartStep::from_number(step) {
        Some(StartStep::Arena) => {
            "the address range that uzswap manages is taken or cannot be reserved: see 'ulimit -v' and \
             'sysctl vm.overcommit_memory'"
        }
        Some(StartStep::Tables) => "no address space for uzswap's tables: see 'ulimit -v'",
        Some(StartStep::UffdOpen) => {
            "userfaultfd is not available: allow it in the container's seccomp profile, or use --fault-mode segv"
        }
        Some(StartStep::UffdApi) => {
            "the kernel's userfaultfd lacks write protection: use Linux 5.7 or later"
        }
        Some(StartStep::UffdRegister) => {
            "userfaultfd does not accept uzswap's memory: please report this"
        }
        Some(StartStep::Guard) => {
            "the kernel rejects uzswap's seccomp filter: a sandbox forbids it, or more than a hundred \
             programs that execute one another have added one each"
        }
        Some(StartStep::Workspace) => {
            let more = advice.more();
            return format!(
                "uzswap could not start in {who}: no memory for the compressor's buffers: {more}"
            );
        }
        Some(StartStep::RamTooSmall) => {
            return format!(
                "uzswap could not start in {who}: {}, which is too little: {}, or another --compressor",
                advice.allows(limit),
                advice.more()
            );
        }
        Some(StartStep::Compressor) => {
            "its library lacks this compressor: use another --compressor"
        }
        Some(StartStep::Memory) => {
            "without userfaultfd it needs /proc/self/mem, which cannot be opened or written: mount /proc"
        }
        Some(StartStep::Child) => {
            "its parent was killed while it forked, and its place was given to another"
        }
        None => "its system call guard could not be set up: use --fault-mode thread as root",
    };
    let error = match errno {
        0 => String::new(),
        errno => format!(
            " ({})",
            std::io::Error::from_raw_os_error(errno.cast_signed())
        ),
    };
    format!("uzswap could not start in {who}: {why}{error}")
}

/// How messages name process `pid`.
fn who(group: &Part<'_>, pid: u32) -> String {
    let found = group.used().iter().find(|p| pid_of(p) == pid);
    match found {
        Some(process) if !name_of(process).is_empty() => label(process),
        _ => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_view::totals::tests::group;

    #[test]
    fn memory_outside_is_named() {
        let [bytes, own, limit] = [230, 30, 200].map(|mib| mib << 20);
        let line = |own| outside_alone(Over { bytes, own, limit }, &Causes::default());
        let alone = "memory outside uzswap's control alone takes 230 MiB of the limit of 200 MiB";
        assert_eq!(line(bytes), alone);
        assert_eq!(line(own), format!("{alone}, 30 MiB of it by this command"));
    }

    #[test]
    fn the_message_says_how_much_and_what_to_do() {
        let [needed, limit, need] = [300, 256, 590].map(|mib| mib << 20);
        let line = over_limit(
            "job (7)",
            needed,
            limit,
            need,
            2.06,
            "swap was full",
            Advice::of(&group()),
        );
        assert_eq!(
            line,
            "job (7) was ended: its 590 MiB need at least 300 MiB even with what is cold \
             compressed 2.1:1, --ram allows 256 MiB, and swap was full; give --ram 384M or more, or \
             --over-limit=allow to let it use what it needs"
        );
    }
}
