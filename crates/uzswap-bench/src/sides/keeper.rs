//! The keeper: it ends a job with all that the job has started, at the latest when we die.
//!
//! *What*: a process between us and a command that waits for the command. When the command has
//! ended, when the keeper is told to end, or when we are killed, it kills whatever the command has
//! left running, daemons too, and ends as the command did.
//! *Invariants*: all processes that come from the command are below the keeper in the process tree,
//! whatever session they create. The keeper has none of our files but standard input, output and
//! error, so it holds no lock or pipe of ours.
//! *Locking*: none.
//! *Context*: the keeper is a fork of us without exec: it only makes system calls and allocates
//! nothing.

use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals that end the keeper.
const END_SIGNALS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Puts a keeper between us and `command`; the child's pid is the keeper's.
pub fn keep(command: &mut Command) {
    // SAFETY: no memory effects.
    let parent = unsafe { libc::getpid() };
    // SAFETY: what runs between fork and exec makes system calls only.
    unsafe { command.pre_exec(move || split(parent)) };
}

/// Forks: returns in the command's process, and never in the keeper's.
fn split(parent: i32) -> Result<()> {
    // SAFETY: system calls on locals, which are allowed between fork and exec.
    unsafe {
        let mut signals = MaybeUninit::uninit();
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in END_SIGNALS.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        let signals = signals.assume_init();
        // Before a child can send SIGCHLD; an ignored SIGCHLD could not be waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        if libc::getppid() != parent {
            return Err(Error::from_raw_os_error(libc::ESRCH));
        }
        match libc::fork() {
            -1 => Err(Error::last_os_error()),
            0 => {
                // The command dies with a keeper that is killed.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::sigprocmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut());
                Ok(())
            }
            child => {
                libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
                let status = wait(child, &signals);
                end_all();
                end_as(status)
            }
        }
    }
}

/// Waits for `child` or for one of [`END_SIGNALS`]; returns the child's status, or SIGTERM's.
fn wait(child: i32, signals: &libc::sigset_t) -> i32 {
    loop {
        let mut status = 0;
        // SAFETY: writes to `status` only.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => {
                // SAFETY: reads `signals` only.
                let signal = unsafe { libc::sigwaitinfo(signals, std::ptr::null_mut()) };
                if END_SIGNALS.contains(&signal) {
                    return libc::SIGTERM;
                }
            }
            pid if pid == child => return status,
            -1 => return libc::SIGTERM,
            // A daemon that had been reparented to us.
            _ => {}
        }
    }
}

/// Kills our children until there are none; a killed child's children become ours.
fn end_all() {
    loop {
        kill_children();
        // SAFETY: no status is asked for.
        if unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } < 0 {
            return;
        }
    }
}

fn kill_children() {
    let mut text = [0_u8; 4096];
    // SAFETY: the path is a terminated constant, `text` is as long as stated, and each pid is a
    // child's that we have not waited for.
    unsafe {
        let file = libc::open(
            c"/proc/thread-self/children".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        );
        let len = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        let text = text.get(..usize::try_from(len).unwrap_or(0)).unwrap_or(&[]);
        // A number cut off at the end has no space after it.
        for number in text.split_inclusive(|&byte| byte == b' ') {
            let Some(digits) = number.strip_suffix(b" ") else {
                break;
            };
            let pid = digits
                .iter()
                .fold(0, |pid, digit| pid * 10 + i32::from(digit - b'0'));
            if pid > 1 {
                libc::kill(pid, libc::SIGKILL);
            }
        }
    }
}

fn end_as(status: i32) -> ! {
    // SAFETY: no memory effects.
    unsafe {
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::signal(signal, libc::SIG_DFL);
            let mut only = MaybeUninit::uninit();
            libc::sigemptyset(only.as_mut_ptr());
            libc::sigaddset(only.as_mut_ptr(), signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
            libc::raise(signal);
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    /// A shell that starts a daemon in its own session and prints its pid; then it does `then`.
    fn start(then: &str) -> (Child, i32) {
        let mut command = Command::new("sh");
        let script = format!("setsid sh -c 'echo $$; exec sleep 1000' & {then}");
        command.args(["-c", &script]).stdout(Stdio::piped());
        keep(&mut command);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (child, line.trim().parse().unwrap())
    }

    fn is_gone(pid: i32) -> bool {
        let begin = Instant::now();
        let there = || std::path::Path::new(&format!("/proc/{pid}")).exists();
        while there() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        !there()
    }

    #[test]
    fn daemons_end_with_the_command() {
        let (mut child, daemon) = start("sleep 0.2; exit 7");
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert!(is_gone(daemon));
    }

    #[test]
    fn a_signal_that_ended_the_command_is_reported() {
        let (mut child, daemon) = start("sleep 0.2; kill -USR1 $$");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
        assert!(is_gone(daemon));
    }

    #[test]
    fn all_end_when_the_keeper_is_terminated() {
        let (mut child, daemon) = start("sleep 1000");
        // SAFETY: a child that is not waited for yet.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(is_gone(daemon));
    }

    #[test]
    fn a_command_that_cannot_be_started_is_reported() {
        let mut command = Command::new("/no such program");
        keep(&mut command);
        assert!(command.spawn().is_err());
    }
}
