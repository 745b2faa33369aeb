//! The programs that a corpus samples, and when.
//!
//! *What*: for each program its command, its input, and how to see that it is in a state worth
//! sampling.
//! *Invariants*: the input is the same every time: no clock, no random seed.
//! *Locking*: none.
//! *Context*: the bench command.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{cpu_ticks, proc_kib};
use crate::{Scratch, interrupt, source};

/// Longest that a program may take to reach its state.
const MAX_START: Duration = Duration::from_secs(90);

/// When to sample.
#[derive(Clone, Copy, Debug)]
enum Ready {
    /// When its work is done and it waits.
    Idle,
    /// In the middle of its work, once it has this many MiB.
    Holding(u64),
}

/// A program to sample.
pub struct Program {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// What its memory holds then.
    pub what: &'static str,
    command: fn(&Path) -> Result<Command>,
    /// Gives it its input once it runs.
    feed: Option<fn(&Path) -> Result<()>>,
    ready: Ready,
}

/// All programs, installed or not.
pub fn all() -> Vec<Program> {
    let program = |name, what, ready, command| Program {
        name,
        what,
        command,
        feed: None,
        ready,
    };
    vec![
        program("python", "dicts, lists and strings", Ready::Idle, |dir| {
            let script = write(dir, "objects.py", include_str!("sources/objects.py"))?;
            Ok(command(find("python3")?, [script]))
        }),
        program("numeric", "columns of numbers", Ready::Idle, |dir| {
            let script = write(dir, "columns.py", include_str!("sources/columns.py"))?;
            Ok(command(find("python3")?, [script]))
        }),
        program(
            "sqlite",
            "tables and indices in memory",
            Ready::Idle,
            |dir| {
                let script = write(dir, "orders.sql", include_str!("sources/orders.sql"))?;
                let mut sqlite = Command::new(find("sqlite3")?);
                // Its standard input stays open after the script; otherwise it would exit.
                let read = format!(".read {}", script.display());
                sqlite.args(["-cmd", &read, ":memory:"]);
                Ok(sqlite)
            },
        ),
        program("node", "a heap of JavaScript objects", Ready::Idle, |dir| {
            let script = write(dir, "records.js", include_str!("sources/records.js"))?;
            Ok(command(find("node")?, [script]))
        }),
        Program {
            feed: Some(fill_redis),
            ..program(
                "redis",
                "strings, hashes and sorted sets",
                Ready::Idle,
                |dir| {
                    let mut server = Command::new(find("redis-server")?);
                    server
                        .args(["--port", "0", "--save", "", "--unixsocket"])
                        .arg(dir.join(REDIS_SOCKET))
                        .arg("--dir")
                        .arg(dir);
                    Ok(server)
                },
            )
        },
        program("java", "a heap of Java objects", Ready::Idle, |dir| {
            let source = write(dir, "Ledger.java", include_str!("sources/Ledger.java"))?;
            let mut java = Command::new(find("java")?);
            java.args(["-Xmx400m", "-XX:+UseSerialGC"]).arg(source);
            Ok(java)
        }),
        program("perl", "hashes of records", Ready::Idle, |dir| {
            let script = write(dir, "hashes.pl", include_str!("sources/hashes.pl"))?;
            Ok(command(find("perl")?, [script]))
        }),
        program(
            "cc1",
            "the C compiler in a large source",
            Ready::Holding(90),
            |dir| {
                let code = write(dir, "big.c", &source::c(1, 1500))?;
                compiler(dir, "gcc", "cc1", &code)
            },
        ),
        program(
            "cc1plus",
            "the C++ compiler among templates",
            Ready::Holding(180),
            |dir| {
                let code = write(dir, "big.cc", &source::cxx())?;
                compiler(dir, "g++", "cc1plus", &code)
            },
        ),
        program(
            "rustc",
            "the Rust compiler in a large source",
            Ready::Holding(160),
            |dir| {
                let code = write(dir, "big.rs", &source::rust())?;
                let mut rustc = Command::new(find("rustc")?);
                rustc
                    .args(["--crate-type=lib", "--edition=2021", "-O", "-Awarnings"])
                    .arg("-o")
                    .arg(dir.join("big.rlib"))
                    .arg(code);
                Ok(rustc)
            },
        ),
        program("sort", "lines of text", Ready::Holding(90), |dir| {
            let lines = write(dir, "lines", &source::lines(100))?;
            let mut sort = Command::new(find("sort")?);
            sort.args(["--parallel=1", "-S", "400M", "-k", "3", "-o"]);
            sort.arg(dir.join("sorted")).arg(lines);
            Ok(sort)
        }),
        program(
            "xz",
            "a compressor's window and tables",
            Ready::Holding(80),
            |dir| {
                let lines = write(dir, "lines", &source::lines(100))?;
                let mut xz = Command::new(find("xz")?);
                xz.args(["-T1", "-6", "-k", "-c"]).arg(lines);
                Ok(xz)
            },
        ),
    ]
}

fn command<A: AsRef<OsStr>>(program: PathBuf, args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Writes a file into `dir`.
pub fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Path of a program: the distribution's own rather than a version manager's shim.
pub fn find(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    [PathBuf::from("/usr/bin"), PathBuf::from("/bin")]
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed"))
}

/// The command of the compiler proper behind a driver.
fn compiler(dir: &Path, driver: &str, name: &str, code: &Path) -> Result<Command> {
    let output = Command::new(find(driver)?)
        .arg(format!("-print-prog-name={name}"))
        .output()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    ensure!(path.is_absolute(), "{name} is not installed");
    let mut compiler = Command::new(path);
    compiler
        .args([
            "-quiet",
            "-O2",
            "-w",
            "-imultiarch",
            "x86_64-linux-gnu",
            "-D_GNU_SOURCE",
            "-o",
        ])
        .arg(dir.join("big.s"))
        .arg(code);
    Ok(compiler)
}

const REDIS_SOCKET: &str = "redis.socket";

/// Has the server fill itself with a Lua script.
fn fill_redis(dir: &Path) -> Result<()> {
    let begin = Instant::now();
    let mut stream = loop {
        match UnixStream::connect(dir.join(REDIS_SOCKET)) {
            Ok(stream) => break stream,
            Err(why) if begin.elapsed() > Duration::from_secs(10) => {
                bail!("it does not listen: {why}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let script = include_str!("sources/keys.lua");
    write!(
        stream,
        "*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n",
        script.len()
    )?;
    stream.set_read_timeout(Some(MAX_START))?;
    let mut answer = [0; 256];
    let len = stream.read(&mut answer).context("it does not answer")?;
    let answer = String::from_utf8_lossy(&answer[..len]);
    ensure!(answer.starts_with(':'), "it answers {answer}");
    Ok(())
}

impl Program {
    /// Starts it and waits until it is in its state.
    pub fn start(&self, scratch: &Scratch) -> Result<Running> {
        let dir = scratch.path();
        let mut command = (self.command)(dir)?;
        command
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: the closure only makes a system call.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut running = Running(command.spawn().context("it cannot be started")?);
        if let Some(feed) = self.feed {
            feed(dir)?;
        }
        running.wait_until(self.ready)?;
        Ok(running)
    }
}

/// A program that we started, of one process. It is killed when this is dropped, or when we are
/// killed.
pub struct Running(Child);

impl Running {
    fn wait_until(&mut self, ready: Ready) -> Result<()> {
        let begin = Instant::now();
        // Compilers grow fast, so they are polled often. Idleness takes a while to show.
        let pause = match ready {
            Ready::Idle => Duration::from_millis(400),
            Ready::Holding(_) => Duration::from_millis(5),
        };
        let mut before = None;
        while begin.elapsed() < MAX_START && !interrupt::happened() {
            std::thread::sleep(pause);
            if let Some(status) = self.0.try_wait()? {
                bail!("it ended early ({status})");
            }
            match ready {
                Ready::Holding(mib) if self.anonymous_mib()? >= mib => return Ok(()),
                Ready::Holding(_) => {}
                Ready::Idle => {
                    let ticks = cpu_ticks(self.0.id());
                    if before == ticks && self.anonymous_mib()? >= 8 {
                        return Ok(());
                    }
                    before = ticks;
                }
            }
        }
        bail!(
            "it reached no state worth sampling within {} s",
            MAX_START.as_secs()
        )
    }

    fn anonymous_mib(&self) -> Result<u64> {
        proc_kib(&format!("/proc/{}/status", self.0.id()), "RssAnon:")
            .map(|kib| kib >> 10)
            .context("it has no memory any more")
    }

    /// Stops it for good; its pid.
    pub fn stop(&self) -> Result<u32> {
        let pid = self.0.id();
        // SAFETY: no memory effects; the pid is that of a child that is not reaped yet.
        let sent = unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
        ensure!(sent == 0, "it cannot be stopped");
        Ok(pid)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process, too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
