//! `uzswap reclaim PID SIZE`: asks managed processes to evict memory, or to write what is compressed to
//! swap, and waits until they have.

use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use serde_json::json;
use uzswap_group::knobs::is_on;
use uzswap_group::request::{EVICT, WRITE_BACK};

use crate::args::Reclaim;
use crate::ask::{Done, ask, processes, spinner};
use crate::command::print;
use crate::failure::comm;
use crate::group_file::{self, Access};
use crate::size::Size;
use crate::status;

/// Asks process `options.pid`, or all processes of the run if that is 'uzswap run' itself.
pub fn reclaim(options: &Reclaim) -> Result<u8> {
    let Size(wanted) = options.size;
    let group = group_file::of_process(options.pid, Access::Change)?;
    let what = if options.writeback_only {
        if group.config.swap.nr_slots() == 0 {
            bail!("there is no swap device to write to: see 'uzswap run --swap'");
        }
        if !is_on(&group.knobs.writeback) {
            bail!(
                "writing to swap is off: 'uzswap set {} writeback=on'",
                options.pid
            );
        }
        WRITE_BACK
    } else {
        EVICT
    };
    let waiting = spinner();
    let mut sum = Done::default();
    let mut asked = Vec::new();
    for process in processes(&group, options.pid)? {
        if sum.done >= wanted {
            break;
        }
        let name = comm(&process.comm);
        let pid = process.pid.load(Ordering::Relaxed);
        waiting.set_message(format!("{name} ({pid}) reclaims"));
        let Done { done, freed, .. } = ask(process, what, wanted - sum.done)?;
        asked.push(json!({ "pid": pid, "name": name, "reclaimed": done, "freed": freed }));
        sum.done += done;
        sum.freed += freed;
    }
    waiting.finish_and_clear();
    let verb = if what == EVICT {
        "evicted"
    } else {
        "written back"
    };
    let Done { done, freed, .. } = sum;
    print(&if options.json {
        let all = json!({
            "asked": wanted, "reclaimed": done, "freed": freed, "writeback_only": what == WRITE_BACK,
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
    if done >= wanted {
        return Ok(0);
    }
    eprintln!(
        "uzswap: only {} of {} could be {verb}: the rest is in use, held by system calls, or does not fit",
        Size(done),
        Size(wanted)
    );
    Ok(status::FAILURE)
}
