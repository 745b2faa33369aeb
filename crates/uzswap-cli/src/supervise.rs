//! *What*: starts the command with the signal state that uzswap was given, passes signals on to it,
//! and waits for its end in a loop on sigtimedwait(2), which the caller may use for other work.
//!
//! *Invariants*: the command is in our process group, so the terminal's signals reach it without
//! us. Processes that lose their parent become ours, as under a session's systemd, and are waited
//! for: the command's reclaimers are such. Only signals that kill(2) sent to uzswap are passed on.
//! One sent to the whole group, as timeout(1) does, reaches the command twice, since it looks the
//! same. The command dies with uzswap.
//! *Locking*: none. *Context*: one thread, with all forwarded signals blocked for its whole life.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use libc::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPIPE, SIGPWR, SIGQUIT, SIGTERM, SIGTSTP,
    SIGTTIN, SIGTTOU, SIGURG, SIGUSR1, SIGUSR2, SIGWINCH,
};

use crate::status::{FAILED, NOT_EXECUTABLE, NOT_FOUND, refused};
use crate::target::{SHELL, Target, Way};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this status.
    Exit(u8),
    /// This signal ended it.
    Signal(u8),
}

impl End {
    /// The exit status that stands for it.
    pub fn status(self) -> u8 {
        match self {
            End::Exit(status) => status,
            End::Signal(signal) => 128_u8.saturating_add(signal),
        }
    }
}

/// What executes a command that the library cannot be preloaded into.
#[derive(Debug)]
pub struct Carrier<'a> {
    /// The image, which puts itself into the command.
    pub image: &'a Path,
    /// The command must not run without.
    pub required: bool,
}

/// A process that became our child when it lost its parent, and has ended.
#[derive(Clone, Copy, Debug)]
pub struct Orphan {
    /// Its process id.
    pub pid: u32,
    /// Whether a signal ended it.
    pub killed: bool,
}

/// A command that is running.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
}

/// The signals that are waited for: all that are sent on purpose, but not SIGKILL and SIGSTOP,
/// which cannot be blocked.
const WAITED: [libc::c_int; 17] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGWINCH, SIGURG, SIGIO, SIGPWR, SIGPIPE, SIGCHLD,
];

/// The disposition of SIGPIPE that uzswap was started with. std ignores SIGPIPE before main.
static INHERITED_SIGPIPE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

extern "C" fn note_sigpipe() {
    // SAFETY: an all-zero sigaction is valid; the call fills it and changes nothing.
    unsafe {
        let mut old: libc::sigaction = mem::zeroed();
        if libc::sigaction(SIGPIPE, ptr::null(), &raw mut old) == 0 {
            INHERITED_SIGPIPE.store(old.sa_sigaction, Ordering::Relaxed);
        }
    }
}

// SAFETY: libc calls the functions in this section before main, with C's calling convention; this
// one uses nothing that std initialises.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_sigpipe;

/// Signal mask and disposition that uzswap was started with, for the command.
struct Inherited {
    mask: libc::sigset_t,
    child_ignored: bool,
}

impl Child {
    /// Starts `target` with these arguments, of which the first is its name. If exec fails, the
    /// error has the exit status of env(1).
    pub fn start(
        target: &Target,
        arguments: &[OsString],
        environment: &[(OsString, OsString)],
        carrier: &Carrier<'_>,
    ) -> Result<Self> {
        let mut argv = Vec::with_capacity(arguments.len() + 4);
        let path = if target.by_shell {
            argv.push(c_string(OsStr::new(SHELL))?);
            argv.push(c_string(target.path.as_os_str())?);
            c_string(OsStr::new(SHELL))?
        } else {
            argv.extend(arguments.first().map(|name| c_string(name)).transpose()?);
            c_string(target.path.as_os_str())?
        };
        for argument in arguments.iter().skip(1) {
            argv.push(c_string(argument)?);
        }
        let path = if target.way == Way::Image {
            let image = c_string(carrier.image.as_os_str())?;
            let how = if carrier.required {
                c"required"
            } else {
                c"optional"
            };
            argv.splice(0..0, [image.clone(), how.to_owned(), path]);
            image
        } else {
            path
        };
        let mut envp = Vec::with_capacity(environment.len());
        for (name, value) in environment {
            envp.push(c_string(&[name.as_os_str(), value].join(OsStr::new("=")))?);
        }
        let argv = pointers(&argv);
        let envp = pointers(&envp);

        // SAFETY: no memory effects. Where it fails, another process waits for the orphans.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let (read, write) = io::pipe().context("cannot create a pipe")?;
        let inherited = take_signals().context("cannot block signals")?;
        let parent = std::process::id();
        // SAFETY: this process has one thread; the child calls only async-signal-safe functions and
        // allocates nothing before exec or _exit.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => {
                let error = io::Error::last_os_error();
                Err(refused!(FAILED, "cannot fork: {error}"))
            }
            // SAFETY: we are the child; the pointers lead into vectors that live on in its copy.
            0 => unsafe { exec(&path, &argv, &envp, &inherited, parent, &write) },
            pid => {
                drop(write);
                let child = Child { pid };
                match exec_error(read) {
                    None => Ok(child),
                    Some(error) => {
                        child.reap();
                        Err(exec_refused(target, &error))
                    }
                }
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Waits for its end and passes signals on. Calls `meanwhile`, with those of our other children
    /// that have ended, at the latest after the time that it last returned.
    pub fn wait(&self, mut meanwhile: impl FnMut(&[Orphan]) -> Duration) -> Result<End> {
        let mut stop_asked = false;
        loop {
            let mut orphans = Vec::new();
            match self.state()? {
                State::Ended(end) => return Ok(end),
                // The shell must see its job stopped. A plain SIGSTOP stops only the command:
                // whoever continues the command would not continue us.
                State::Stopped(signal) if signal != libc::SIGSTOP || stop_asked => {
                    stop_asked = false;
                    self.stop_along();
                }
                State::Stopped(_) | State::Running => orphans = self.reap_orphans(),
            }
            let Some((signal, info)) = next_signal(meanwhile(&orphans)) else {
                continue;
            };
            stop_asked |= signal == SIGTSTP;
            // Not from the kernel (the terminal signals the whole group), nor from the command.
            // SAFETY: kill(2) and sigqueue(3), which a code of zero or less means, fill in the pid.
            if info.si_code <= 0 && unsafe { info.si_pid() } != self.pid {
                self.send(signal);
            }
        }
    }

    /// Kills it.
    pub fn kill(&self) {
        self.send(libc::SIGKILL);
    }

    fn send(&self, signal: libc::c_int) {
        // SAFETY: the child is not reaped yet, so the pid is its own.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Stops this process as well, and continues the command when this process is continued.
    fn stop_along(&self) {
        // SAFETY: raise has no preconditions; SIGSTOP cannot be blocked: we return when continued.
        unsafe { libc::raise(libc::SIGSTOP) };
        // 'kill -CONT' on uzswap alone must continue the command; a shell's fg continues both.
        self.send(SIGCONT);
    }

    fn state(&self) -> Result<State> {
        let mut status = 0;
        let options = libc::WNOHANG | libc::WUNTRACED;
        // SAFETY: status is writable for the call.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, options) };
        match pid {
            0 => Ok(State::Running),
            -1 => Err(io::Error::last_os_error()).context("cannot wait for the command"),
            _ if libc::WIFSTOPPED(status) => Ok(State::Stopped(libc::WSTOPSIG(status))),
            _ if libc::WIFSIGNALED(status) => Ok(State::Ended(End::Signal(
                u8::try_from(libc::WTERMSIG(status)).unwrap_or(u8::MAX),
            ))),
            _ => Ok(State::Ended(End::Exit(
                u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX),
            ))),
        }
    }

    /// Waits for all others of our children that have ended.
    fn reap_orphans(&self) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        loop {
            // SAFETY: an all-zero siginfo_t is valid; the call fills it. The command is only looked
            // at: its end is for `state`.
            let pid = unsafe {
                let mut info: libc::siginfo_t = mem::zeroed();
                let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
                match libc::waitid(libc::P_ALL, 0, &raw mut info, options) {
                    0 => info.si_pid(),
                    _ => 0,
                }
            };
            if pid == 0 || pid == self.pid {
                return orphans;
            }
            let mut status = 0;
            // SAFETY: status is writable for the call.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            orphans.push(Orphan {
                pid: pid.unsigned_abs(),
                killed: libc::WIFSIGNALED(status),
            });
        }
    }

    fn reap(&self) {
        // SAFETY: a null status pointer is allowed.
        unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
    }
}

/// The next signal that comes within `time`; none if it is SIGCHLD.
fn next_signal(time: Duration) -> Option<(libc::c_int, libc::siginfo_t)> {
    let set = waited();
    let time = libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: an all-zero siginfo_t is valid; the call fills it.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: all point to live values of the right types.
    let signal = unsafe { libc::sigtimedwait(&raw const set, &raw mut info, &raw const time) };
    (signal > 0 && signal != SIGCHLD).then_some((signal, info))
}

enum State {
    Running,
    Stopped(libc::c_int),
    Ended(End),
}

/// Waits for process `pid`, which is about to end, if it is a child of ours. No longer than a
/// second: in another pid namespace the number is somebody else's.
pub fn wait_for_orphan(pid: u32) {
    for _ in 0..1000 {
        // SAFETY: a null status pointer is allowed.
        if unsafe { libc::waitpid(pid.cast_signed(), ptr::null_mut(), libc::WNOHANG) } != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for those of our children that have ended. Whether there are no others: then nobody below
/// us is left either, if those who lose their parent become our children.
pub fn nobody_is_left() -> bool {
    let mut adopts: libc::c_int = 0;
    // SAFETY: the value is writable for the call.
    if unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts) } != 0 || adopts == 0 {
        return false;
    }
    loop {
        // SAFETY: a null status pointer is allowed.
        match unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG | libc::__WALL) } {
            0 => return false,
            -1 => return io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD),
            _ => {}
        }
    }
}

/// Kills our `children`, who are the processes that are still below us, and waits for them. As one
/// ends, its children become ours: none is missed. A number is not another's meanwhile, since
/// nobody else waits for our children.
pub fn end_orphans(children: impl Fn() -> Vec<u32>) {
    loop {
        let pids = children();
        if pids.is_empty() {
            return;
        }
        for pid in pids.into_iter().map(u32::cast_signed) {
            // SAFETY: a child that is not reaped yet; a null status pointer is allowed.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, ptr::null_mut(), libc::__WALL);
            }
        }
    }
}

/// User and system CPU time in seconds of all children that have been waited for.
pub fn cpu_seconds() -> (f64, f64) {
    // SAFETY: an all-zero rusage is valid; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| {
        let whole = Duration::from_secs(time.tv_sec.unsigned_abs());
        let part = Duration::from_micros(time.tv_usec.unsigned_abs());
        (whole + part).as_secs_f64()
    };
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes()).context("an argument holds a NUL byte")
}

/// The strings' addresses and a null, as execve wants them.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([ptr::null()])
        .collect()
}

fn waited() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set; sigaddset adds valid signal numbers.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in WAITED {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Blocks the signals that [`Child::wait`] waits for. Ignored signals stay ignored, as nohup(1)
/// wants, but for SIGCHLD: the command's status would be lost.
fn take_signals() -> io::Result<Inherited> {
    let set = waited();
    // SAFETY: all-zero values are valid and the calls fill them; the pointers are live.
    unsafe {
        let mut mask = mem::zeroed();
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut mask) != 0 {
            return Err(io::Error::last_os_error());
        }
        let default: libc::sigaction = mem::zeroed();
        let mut old: libc::sigaction = mem::zeroed();
        if libc::sigaction(SIGCHLD, &raw const default, &raw mut old) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Inherited {
            mask,
            child_ignored: old.sa_sigaction == libc::SIG_IGN,
        })
    }
}

/// The child between fork and exec. On failure it writes errno to the pipe.
///
/// # Safety
/// Only in a forked child. `argv` and `envp` end with a null and lead to NUL-terminated strings.
unsafe fn exec(
    path: &CString,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    inherited: &Inherited,
    parent: u32,
    report: &PipeWriter,
) -> ! {
    // SAFETY: async-signal-safe calls with live pointers, as the caller promises for argv and envp.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid().unsigned_abs() != parent {
            libc::_exit(FAILED.into());
        }
        libc::signal(SIGPIPE, INHERITED_SIGPIPE.load(Ordering::Relaxed));
        if inherited.child_ignored {
            libc::signal(SIGCHLD, libc::SIG_IGN);
        }
        libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const inherited.mask,
            ptr::null_mut(),
        );
        libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
        let errno = *libc::__errno_location();
        libc::write(
            report.as_raw_fd(),
            (&raw const errno).cast(),
            size_of_val(&errno),
        );
        libc::_exit(FAILED.into());
    }
}

/// The error that the child wrote; none if exec closed the pipe.
fn exec_error(mut read: PipeReader) -> Option<io::Error> {
    let mut errno = [0; size_of::<libc::c_int>()];
    read.read_exact(&mut errno).ok()?;
    Some(io::Error::from_raw_os_error(libc::c_int::from_ne_bytes(
        errno,
    )))
}

fn exec_refused(target: &Target, error: &io::Error) -> anyhow::Error {
    let shown = target.path.display();
    match error.raw_os_error() {
        Some(libc::ENOENT) => refused!(
            NOT_FOUND,
            "{shown}: its interpreter is missing: check the file's #! line or ELF interpreter"
        ),
        Some(libc::E2BIG) => refused!(
            NOT_EXECUTABLE,
            "{shown}: arguments and environment are too long: shorten them"
        ),
        _ => refused!(NOT_EXECUTABLE, "{shown}: cannot be executed: {error}"),
    }
}
