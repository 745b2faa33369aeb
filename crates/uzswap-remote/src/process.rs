//! *What*: starts a broker, and makes the memory that it shares with the programs.
//!
//! *Invariants*: secrets are in no argument and no environment variable that the broker did not get
//! from the user. *Locking*: none. *Context*: `uzswap run`, `uzswap bench remote`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use uzswap_io::exchange::{EXCHANGE_LEN, Exchange};
use uzswap_swap::os;

use crate::order::{Answer, Order};

/// Starts a broker, which is this program, and waits for its answer. It ends when its standard
/// input does.
///
/// # Errors
/// It cannot be started, or died.
pub fn start(order: &Order) -> Result<(Child, Answer)> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("uzswap")
        .arg("broker")
        .env_clear()
        .envs(std::env::vars_os().filter(|(key, _)| {
            // What an URL leaves out, and where TLS finds its certificates.
            let key = key.to_string_lossy();
            key.starts_with("UZSWAP_SWAP_") || key.starts_with("SSL_CERT_") || key == "PATH"
        }))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // The terminal's signals are for the command.
        .process_group(0)
        .spawn()
        .context("cannot start the broker")?;
    let mut line = serde_json::to_string(order)?;
    line.push('\n');
    let mut answer = String::new();
    if let Some(input) = &mut child.stdin {
        // If it has died, it does not answer.
        let _ = input.write_all(line.as_bytes());
    }
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut answer)?;
    }
    let answer = serde_json::from_str(&answer).context("the broker has died")?;
    Ok((child, answer))
}

/// An exchange that nothing is under way in, mapped for good.
///
/// # Errors
/// As memfd_create(2), ftruncate(2) and mmap(2).
pub fn new_exchange() -> io::Result<(File, &'static Exchange)> {
    let memory = os::memory_file(c"uzswap-exchange")?;
    memory.set_len(EXCHANGE_LEN as u64)?;
    let at = os::map_shared(&memory, EXCHANGE_LEN, true)?;
    // SAFETY: mapped just now, of that length, page aligned, never unmapped; zeroes are an
    // exchange.
    Ok((memory, unsafe { &*at.as_ptr().cast::<Exchange>() }))
}

/// A random number of 64 bits, in hexadecimal digits: what tells the data of one run from those of
/// others.
///
/// # Errors
/// As getrandom(2).
pub fn new_job() -> io::Result<String> {
    let mut bytes = [0; 8];
    uzswap_sys::file::getrandom(&mut bytes)
        .map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
