//! *What*: runs a program under `uzswap run`: what no other look has foreseen shows here.
//!
//! *Locking*: none. *Context*: `uzswap doctor`.

use std::process::{Command, Stdio};

use super::Finding;

/// The command: a program that every machine has.
const COMMAND: [&str; 3] = ["/bin/sh", "-c", ":"];

/// Runs it.
pub fn look() -> Finding {
    let ran = std::env::current_exe().and_then(|uzswap| {
        Command::new(uzswap)
            .args(["run", "--quiet", "--"])
            .args(COMMAND)
            // Those of the caller's runs are to stay.
            .env_remove("UZSWAP_STATS")
            .env_remove("UZSWAP_TRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
    });
    match ran {
        Err(why) => Finding::fails("trial", format!("uzswap cannot start itself: {why}")),
        Ok(ran) if ran.status.success() => {
            Finding::new("trial", "'uzswap run -- /bin/sh -c :' ended well")
        }
        Ok(ran) => {
            let said = String::from_utf8_lossy(&ran.stderr);
            let last = said.lines().last().unwrap_or("it said nothing");
            let why = format!(
                "'uzswap run -- /bin/sh -c :' failed ({}): {last}",
                ran.status
            );
            Finding::fails("trial", why)
        }
    }
}
