//! `uzswap swapoff PID [DEVICE]`: has all processes of a run bring back what they have on a swap device, which is
//! not written to any more.
//!
//! *Invariants*: a device from which not everything could be brought back is in use again, as before, when this ends.
//! If this is killed, the device stays off and what is there is read as ever; the same command goes on with it.
//! *Context*: one thread.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use uzswap_group::group::{DEVICE_OFF, DEVICE_ON, Group, LIVE, Process, SLOTS_KEPT, is_alive};
use uzswap_group::request::SWAP_OFF;

use crate::args::SwapOff;
use crate::ask::{ask, must_be_near, spinner};
use crate::command::print;
use crate::failure::comm;
use crate::group_file::{self, Access};
use crate::size::Size;
use crate::swap_devices::{SwapDevice, swap_devices};
use crate::swap_group::Users;

/// How long a fork child may take to begin, so that it can be asked.
const BIRTH: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// Brings back everything from the device that `options` name.
pub fn swapoff(options: &SwapOff) -> Result<u8> {
    let group = group_file::of_process(options.pid, Access::Change)?;
    must_be_near(options.pid)?;
    let devices = swap_devices(&group);
    let number = find(&devices, options.device.as_deref())?;
    let name = &devices[number].name;
    let device = &group.config.swap.devices[number];
    let users = Users::of(&group, device)?;
    let before = device.state.swap(DEVICE_OFF, Ordering::AcqRel);
    let brought = bring_back(&group, number, &users);
    let brought = brought.map_err(|why| {
        // It was off because an attempt was broken off.
        let before = if before == DEVICE_OFF {
            DEVICE_ON
        } else {
            before
        };
        device.state.store(before, Ordering::Release);
        anyhow!("{name} stays in use, nothing is lost: {why:#}")
    })?;
    let bytes: u64 = brought.iter().map(|(_, bytes)| bytes).sum();
    print(&if options.json {
        let processes = brought.iter().map(|(process, bytes)| {
            json!({
                "pid": process.pid.load(Ordering::Relaxed), "name": comm(&process.comm), "brought_back": bytes,
            })
        });
        let all = json!({
            "device": name, "brought_back": bytes, "processes": processes.collect::<Vec<_>>(),
        });
        serde_json::to_string_pretty(&all)? + "\n"
    } else {
        format!("{name} is off; {} were brought back from it\n", Size(bytes))
    })?;
    Ok(0)
}

/// The number of the device that is called `wanted`, or has that number as `stat` counts them.
fn find(devices: &[SwapDevice], wanted: Option<&str>) -> Result<usize> {
    let list = || {
        let names = devices.iter().zip(1..);
        let names: Vec<_> = names.map(|(d, at)| format!("{at}: {}", d.name)).collect();
        names.join(", ")
    };
    let all = 0..devices.len();
    let found: Vec<usize> = match wanted {
        _ if devices.is_empty() => bail!("this run has no swap device"),
        None => all.filter(|&at| devices[at].state != "off").collect(),
        Some(wanted) => match wanted.parse::<usize>() {
            Ok(nr) => all.filter(|at| at + 1 == nr).collect(),
            Err(_) => all.filter(|&at| devices[at].name == wanted).collect(),
        },
    };
    match (&found[..], wanted) {
        ([one], _) => Ok(*one),
        ([], None) => bail!("every swap device of this run is off"),
        ([], Some(wanted)) => bail!(
            "{wanted} is no swap device of this run, which has {}",
            list()
        ),
        _ => bail!("which device? name one, or give its number: {}", list()),
    }
}

/// Asks every process that has something on device `number`, until none has. Returns what each brought back.
fn bring_back<'a>(
    group: &'a Group,
    number: usize,
    users: &Users,
) -> Result<Vec<(&'a Process, u64)>> {
    let waiting = spinner();
    let mut brought = Vec::new();
    let began = Instant::now();
    loop {
        let mut unborn = false;
        let mut asked = 0;
        for (at, process) in group.used().iter().enumerate() {
            if !users.has(at) {
                continue;
            }
            if process.state.load(Ordering::Acquire) != LIVE {
                unborn = true;
                continue;
            }
            let pid = process.pid.load(Ordering::Relaxed);
            if process.swap_user.load(Ordering::Relaxed) == SLOTS_KEPT {
                bail!("process {pid} is in another pid namespace and cannot be asked");
            }
            if !is_alive(pid) {
                continue;
            }
            waiting.set_message(format!("{} ({pid}) brings back", comm(&process.comm)));
            match ask(process, SWAP_OFF, number as u64) {
                Ok(done) => brought.push((process, done.done)),
                Err(_) if !is_alive(pid) => continue,
                Err(why) => return Err(why),
            }
            asked += 1;
            if users.has(at) && is_alive(pid) {
                bail!(
                    "{} ({pid}) has no room for {} in its --ram or on another device, or cannot read it",
                    comm(&process.comm),
                    Size(users.bytes(at)),
                );
            }
        }
        if asked == 0 && !unborn {
            waiting.finish_and_clear();
            return Ok(brought);
        }
        if unborn && began.elapsed() > BIRTH {
            bail!(
                "a child that is being made does not begin: it is stopped, or the machine is very busy"
            );
        }
        std::thread::sleep(LOOK);
    }
}
