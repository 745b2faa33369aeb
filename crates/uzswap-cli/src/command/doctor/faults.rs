//! *What*: how page faults are served here, and what that rests on: userfaultfd, seccomp, ptrace,
//! address space, mappings.
//!
//! *Locking*: none. *Context*: `uzswap doctor`.

use std::fs::OpenOptions;

use super::{Finding, fact, number};
use crate::args::FaultMode;
use crate::kernel;
use crate::os;

/// Mappings that a process may have unless the administrator says otherwise.
const DEFAULT_MAP_COUNT: u64 = 65530;

/// The mode that `asked` comes to, and what was found.
pub fn look(asked: FaultMode) -> (Option<FaultMode>, Vec<Finding>) {
    let (served, of_mode) = mode(asked);
    let mut findings = vec![release(), of_mode, userfaultfd(), filters(), tracing()];
    if served == Some(FaultMode::Segv) {
        findings.push(mappings());
    }
    (served, findings)
}

/// The kernel's release.
pub fn kernel() -> String {
    fact("/proc/sys/kernel/osrelease").unwrap_or_else(|| "of unknown release".to_owned())
}

fn release() -> Finding {
    let release = kernel();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    let version: (u32, u32) = (next().unwrap_or(0), next().unwrap_or(0));
    if version >= (5, 11) {
        return Finding::new(
            "kernel",
            format!("{release}; 5.11 or later is needed for all"),
        );
    }
    Finding::worse(
        "kernel",
        release,
        "before 5.11 static, musl and Go programs are not managed, and userfaultfd needs a sysctl",
    )
}

fn mode(asked: FaultMode) -> (Option<FaultMode>, Finding) {
    let asked_by = match asked {
        FaultMode::Auto => String::new(),
        given => format!(" (UZSWAP_FAULT_MODE={})", given.name()),
    };
    match kernel::check(asked) {
        Err(why) => (None, allow_userfaultfd(Finding::fails("fault mode", why))),
        Ok(served) => {
            let found = format!("{}{asked_by}", served.mode.name());
            let finding = match (&served.slower, served.mode) {
                (Some(why), _) => allow_userfaultfd(Finding::worse(
                    "fault mode",
                    format!("{found}: {why}"),
                    "a fault costs about three times as much, and a process has fewer mappings",
                )),
                (None, FaultMode::Segv) => Finding::worse(
                    "fault mode",
                    found,
                    "a fault costs about three times as much, and a process has fewer mappings",
                )
                .change("unset UZSWAP_FAULT_MODE"),
                _ => Finding::new("fault mode", found),
            };
            (Some(served.mode), finding)
        }
    }
}

/// How userfaultfd is allowed, here or for the container.
fn allow_userfaultfd(finding: Finding) -> Finding {
    let is_container = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|file| std::path::Path::new(file).exists());
    let sysctl = "sudo sysctl vm.unprivileged_userfaultfd=1";
    match (is_container, filters_above()) {
        (false, Some(0)) => finding.change(sysctl),
        _ => finding
            .change("docker run --security-opt seccomp=seccomp-userfaultfd.json IMAGE ...")
            .change(sysctl),
    }
}

/// Which modes would work, and why the others would not.
fn userfaultfd() -> Finding {
    let modes = [FaultMode::Signal, FaultMode::Thread, FaultMode::Segv];
    let tried = modes.map(|mode| match kernel::check(mode) {
        Ok(_) => format!("{} works", mode.name()),
        Err(_) => format!("{} does not", mode.name()),
    });
    let device = match OpenOptions::new().read(true).open("/dev/userfaultfd") {
        Ok(_) => "readable".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "missing".to_owned(),
        Err(_) => "not readable".to_owned(),
    };
    let sysctl = fact("/proc/sys/vm/unprivileged_userfaultfd");
    Finding::new(
        "modes",
        format!(
            "{}; vm.unprivileged_userfaultfd={}, /dev/userfaultfd {device}",
            tried.join(", "),
            sysctl.as_deref().unwrap_or("?"),
        ),
    )
}

/// Seccomp filters that this process was started under.
fn filters_above() -> Option<u64> {
    let status = fact("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:"))?;
    line.trim().parse().ok()
}

fn filters() -> Finding {
    let found = match filters_above() {
        Some(0) => "this shell is under no filter".to_owned(),
        Some(1) => "this shell is under one filter of somebody else's".to_owned(),
        Some(nr) => format!("this shell is under {nr} filters of others"),
        None => "the kernel does not say under how many filters this shell is".to_owned(),
    };
    Finding::new("seccomp", found)
}

/// Programs without a dynamic linker get the engine from a tracer.
fn tracing() -> Finding {
    let scope = number("/proc/sys/kernel/yama/ptrace_scope");
    let said = scope.map_or("without Yama".to_owned(), |scope| {
        format!("kernel.yama.ptrace_scope={scope}")
    });
    let costs = "static, musl and Go programs are refused, or run without a limit where a managed \
                 program starts them";
    match (os::may_trace(), scope) {
        (false, _) => Finding::worse("ptrace", "the sandbox forbids it", costs)
            .change("docker run --cap-add SYS_PTRACE IMAGE ..."),
        (true, Some(2)) if os::euid() == 0 => Finding::new("ptrace", said),
        (true, Some(2)) => {
            Finding::worse("ptrace", said, costs).change("sudo sysctl kernel.yama.ptrace_scope=1")
        }
        (true, Some(3..)) => Finding::worse("ptrace", said, costs)
            .change("sudo sed -i '/ptrace_scope/d' /etc/sysctl.d/*.conf; sudo reboot"),
        _ => Finding::new("ptrace", said),
    }
}

/// In segv mode each border between pages that are there and pages that are not takes a mapping.
fn mappings() -> Finding {
    let most = number("/proc/sys/vm/max_map_count").unwrap_or(DEFAULT_MAP_COUNT);
    let found = format!("vm.max_map_count={most}");
    if most > DEFAULT_MAP_COUNT {
        return Finding::new("mappings", found);
    }
    Finding::worse(
        "mappings",
        found,
        "in segv mode a program that uses most of its mappings itself may be ended",
    )
    .change("sudo sysctl vm.max_map_count=1048576")
}
