//! *What*: runs a program under `uzswap run`: what no other look has foreseen shows here.
//!
//! *Locking*: none. *Context*: `uzswap doctor`.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Finding;

/// The command: a program that every machine has.
const COMMAND: [&str; 3] = ["/bin/sh", "-c", ":"];

/// Has the binary `uzswap` run it.
pub fn look(uzswap: &Path) -> Finding {
    let ran = Command::new(uzswap)
        .args(["run", "--quiet", "--"])
        .args(COMMAND)
        // Those of the caller's runs are to stay.
        .env_remove("UZSWAP_STATS")
        .env_remove("UZSWAP_TRACE")
        .env_remove("UZSWAP_METRICS")
        .env_remove("UZSWAP_GROUP")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
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
