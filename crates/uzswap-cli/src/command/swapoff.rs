//! *What*: `uzswap swapoff GROUP|PID [DEVICE]`: has all processes of a group bring back what they
//! have on a swap device. The device is not written to any more.
//!
//! *Invariants*: a device that could not be emptied is in use again when this ends, and nothing is
//! lost. If this is killed, the device stays off and its data readable; the same command resumes.
//! *Locking*: none. *Context*: one thread.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use uzswap_group::group::{DeviceState, Group, Process, SwapUser, is_alive};
use uzswap_group::request::RequestKind;

use super::print;
use crate::args::SwapOff;
use crate::chosen::Chosen;
use crate::group_file::Access;
use crate::group_view::device::{SwapDevice, devices};
use crate::group_view::{label, name_of, pid_of};
use crate::request::{check_pid_namespace, send, spinner};
use crate::size::Size;
use crate::swap::shared::Users;

/// How long a fork child may take until it can be asked.
const MAX_START_TIME: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Empties the device that `options` names.
pub fn swapoff(options: &SwapOff) -> Result<u8> {
    let group = Chosen::open(&options.whom, Access::Change)?;
    check_pid_namespace(group.pid())?;
    let devices = devices(&group);
    let number = find(&devices, options.device.as_deref())?;
    let name = &devices[number].name;
    let device = &group.config.swap.devices[number];
    let users = Users::of(&group, number)?;
    let before = device.state.swap(DeviceState::Off, Ordering::AcqRel);
    let brought = bring_back(&group, number, &users);
    let brought = brought.map_err(|why| {
        // It was off already if an earlier swapoff was killed.
        let before = if before == DeviceState::Off {
            DeviceState::On
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
                "pid": pid_of(process), "name": name_of(process), "brought_back": bytes,
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

/// Index of the device named `wanted`, or with that number in the list of `uzswap stat`.
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
            "{wanted} is not a swap device of this run, which has {}",
            list()
        ),
        _ => bail!(
            "this run has several swap devices: give the name or number of one: {}",
            list()
        ),
    }
}

/// Asks each process with data on device `number` until none is left. Returns each one's bytes.
fn bring_back<'a>(
    group: &'a Group,
    number: usize,
    users: &Users,
) -> Result<Vec<(&'a Process, u64)>> {
    let waiting = spinner();
    let mut brought = Vec::new();
    let began = Instant::now();
    loop {
        let mut starting = false;
        let mut asked = 0;
        for (at, process) in group.used().iter().enumerate() {
            if !users.has(at) {
                continue;
            }
            if !process.is_live() {
                starting = true;
                continue;
            }
            let pid = pid_of(process);
            if process.swap_user.load(Ordering::Relaxed) == SwapUser::Unknown {
                bail!("process {pid} is in another pid namespace, where it cannot be signalled");
            }
            if !is_alive(pid) {
                continue;
            }
            waiting.set_message(format!("{} reads its memory back", label(process)));
            match send(process, RequestKind::SwapOff, number as u64) {
                Ok(done) => brought.push((process, done.done)),
                Err(_) if !is_alive(pid) => continue,
                Err(why) => return Err(why),
            }
            asked += 1;
            if users.has(at) && is_alive(pid) {
                bail!(
                    "{} has no room for {} in its --ram or on another device, or cannot read it",
                    label(process),
                    Size(users.bytes(at)),
                );
            }
        }
        if asked == 0 && !starting {
            waiting.finish_and_clear();
            return Ok(brought);
        }
        if starting && began.elapsed() > MAX_START_TIME {
            bail!(
                "a child process did not start within {} s: it is stopped, or the machine is very busy",
                MAX_START_TIME.as_secs()
            );
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
