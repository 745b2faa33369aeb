//! *What*: `uzswap reclaim GROUP|PID [SIZE]`: asks managed processes to evict memory, or to write
//! compressed memory to swap, and waits until they have.
//!
//! *Locking*: none. *Context*: one thread.

use anyhow::{Result, bail};
use serde_json::json;
use uzswap_group::knobs::is_on;
use uzswap_group::request::{Request, RequestKind};

use super::print;
use crate::args::Reclaim;
use crate::chosen::Chosen;
use crate::group_file::Access;
use crate::group_view::{label, name_of, pid_of};
use crate::idle;
use crate::request::{Done, send_older, spinner};
use crate::size::Size;
use crate::status;

/// Asks the process that is named, or those of a run or group one after the other.
pub fn reclaim(options: &Reclaim) -> Result<u8> {
    let wanted = options.size.map_or(u64::MAX, |size| size.0);
    let group = Chosen::open(&options.whom, Access::Change)?;
    let what = if options.writeback_only {
        if group.config.swap.nr_slots() == 0 {
            bail!(
                "this run has no swap device to write to: start it with 'uzswap run --swap PATH'"
            );
        }
        if !is_on(&group.knobs.writeback) {
            bail!(
                "writeback to swap is off in this run: turn it on with 'uzswap set {} writeback=on'",
                options.whom
            );
        }
        let path = group.part().path();
        if !group.ledger.may_write_back(path) {
            bail!(
                "zswap.writeback is off for {}, or a group that it lies in: turn it on with \
                 'uzswap set GROUP zswap.writeback=on'",
                options.whom
            );
        }
        RequestKind::WriteBack
    } else {
        RequestKind::Evict
    };
    let before = options
        .older_than
        .map_or(Request::ANY_TIME, |age| idle::before(&group, age));
    let waiting = spinner();
    let mut sum = Done::default();
    let mut asked = Vec::new();
    for process in group.targets()? {
        if sum.done >= wanted {
            break;
        }
        waiting.set_message(format!("{} reclaims", label(process)));
        let (pid, name) = (pid_of(process), name_of(process));
        let Done { done, freed, .. } = send_older(process, what, wanted - sum.done, before)?;
        asked.push(json!({ "pid": pid, "name": name, "reclaimed": done, "freed": freed }));
        sum.done += done;
        sum.freed += freed;
    }
    waiting.finish_and_clear();
    let verb = if what == RequestKind::Evict {
        "evicted"
    } else {
        "written back"
    };
    let Done { done, freed, .. } = sum;
    print(&if options.json {
        let all = json!({
            "asked": options.size.map(|size| size.0),
            "older_than_s": options.older_than.map(|age| age.as_secs_f64()),
            "reclaimed": done,
            "freed": freed,
            "writeback_only": what == RequestKind::WriteBack,
            "processes": asked,
        });
        serde_json::to_string_pretty(&all)? + "\n"
    } else {
        format!(
            "{verb} {}, which freed {} of RAM\n",
            Size(done),
            Size(freed)
        )
    })?;
    if done >= wanted || options.older_than.is_some() {
        return Ok(0);
    }
    eprintln!(
        "uzswap: only {} of {} could be {verb}: the rest is in use, held by system calls, or does not fit",
        Size(done),
        Size(wanted)
    );
    Ok(status::FAILURE)
}
