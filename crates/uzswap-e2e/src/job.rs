//! A command, run natively or under `uzswap run`, and what came of it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_corpus::proc_kib;
use uzswap_corpus::process::descendants;

use crate::cgroup::oom_kills;
use crate::sandbox::forbid;
use crate::user::NOBODY;
use crate::{HardLimit, MIB, Outcome, Scratch, User, find, users, uzswap, uzswap_failing};

/// A command, and how uzswap is to run it.
#[derive(Clone, Debug)]
pub struct Job {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
    stdin: Option<PathBuf>,
    cwd: Option<PathBuf>,
    user: User,
    within: Option<PathBuf>,
    failing: bool,
    forbidden: Option<(libc::c_long, i32)>,
    timeout: Duration,
}

/// A job that is still running.
#[derive(Debug)]
pub struct Live {
    pid: i32,
    failing: bool,
    within: Option<PathBuf>,
    started: Instant,
    timeout: Duration,
    scratch: Scratch,
    what: String,
    /// Its exit status and what it used, once it was waited for.
    ended: Option<(i32, libc::rusage)>,
    peak_rss: u64,
}

impl Job {
    /// `program`, found in `PATH` if it has no slash.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            argv: vec![program.as_ref().to_owned()],
            env: Vec::new(),
            options: Vec::new(),
            stdin: None,
            cwd: None,
            user: User::Same,
            within: None,
            failing: false,
            forbidden: None,
            timeout: Duration::from_secs(400),
        }
    }

    /// The words of `line`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn line(line: &str) -> Self {
        let mut words = line.split_whitespace();
        Self::new(words.next().expect("a job has a program")).args(words)
    }

    /// More arguments of the command: the words of `line`.
    #[must_use]
    pub fn words(self, line: &str) -> Self {
        self.args(line.split_whitespace())
    }

    /// A program of `tests/programs`, compiled into `scratch`, with `args` split at spaces.
    #[must_use]
    pub fn compiled(scratch: &Scratch, source: &str, args: &str) -> Self {
        Self::new(scratch.compile(source)).args(args.split(' '))
    }

    /// `apps/idle.c`: fills `mib` MiB and says "idle", sleeps until SIGTERM, then checks its memory
    /// and says "right".
    #[must_use]
    pub fn idle(scratch: &Scratch, mib: u64) -> Self {
        Self::compiled(scratch, "apps/idle.c", &mib.to_string())
    }

    /// A Python script.
    ///
    /// # Panics
    /// If Python is not installed.
    #[must_use]
    pub fn python(script: &str) -> Self {
        Self::new(find("python3").expect("python3 is installed")).args(["-c", script])
    }

    /// One more argument of the command.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments of the command.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.argv
            .extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// One more option of `uzswap run`, and its value.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.options.push(name.into());
        self.options.push(value.as_ref().to_owned());
        self
    }

    /// One more option of `uzswap run` that takes no value.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.options.push(name.into());
        self
    }

    /// More options of `uzswap run`, and their values.
    #[must_use]
    pub fn options(mut self, line: &str) -> Self {
        self.options.extend(line.split_whitespace().map(Into::into));
        self
    }

    /// `--ram`, in MiB.
    #[must_use]
    pub fn ram_mib(self, mib: u64) -> Self {
        self.option("--ram", format!("{mib}M"))
    }

    /// Sets the limit of each process, MiB.
    #[must_use]
    pub fn each_mib(self, mib: u64) -> Self {
        self.option("--ram-per-process", format!("{mib}M"))
    }

    /// A file as stdin; without it stdin is empty.
    #[must_use]
    pub fn stdin(mut self, path: impl AsRef<Path>) -> Self {
        self.stdin = Some(path.as_ref().to_owned());
        self
    }

    /// The working directory.
    #[must_use]
    pub fn cwd(mut self, path: impl AsRef<Path>) -> Self {
        self.cwd = Some(path.as_ref().to_owned());
        self
    }

    /// Who runs it.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.user = user;
        self
    }

    /// Runs it, and `uzswap` with it, inside a memory cgroup.
    #[must_use]
    pub fn within(mut self, limit: &HardLimit) -> Self {
        self.within = Some(limit.procs());
        self
    }

    /// Runs it, and `uzswap` with it, where a seccomp filter makes userfaultfd fail with `errno`.
    #[must_use]
    pub const fn without_userfaultfd(self, errno: i32) -> Self {
        self.without(libc::SYS_userfaultfd, errno)
    }

    /// As [`without_userfaultfd`](Self::without_userfaultfd), for any system call.
    #[must_use]
    pub const fn without(mut self, call: libc::c_long, errno: i32) -> Self {
        self.forbidden = Some((call, errno));
        self
    }

    /// Injects failures by `plan`, which `uzswap_io::inject` describes.
    #[must_use]
    pub fn failing(mut self, plan: &str) -> Self {
        self.failing = true;
        self.env("UZSWAP_SWAP_FAULTS", plan)
    }

    /// The time after which a job counts as hung, is killed, and fails its story.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the command alone.
    #[must_use]
    pub fn native(&self) -> Outcome {
        self.start_native().wait()
    }

    /// Runs `uzswap run OPTIONS -- COMMAND`.
    #[must_use]
    pub fn managed(&self) -> Outcome {
        self.start_managed().wait()
    }

    /// Starts the command alone.
    #[must_use]
    pub fn start_native(&self) -> Live {
        self.start(&self.argv, Scratch::new())
    }

    /// Starts `uzswap run OPTIONS -- COMMAND` and waits until the command has said `text`.
    #[must_use]
    pub fn start_until(&self, text: &str) -> Live {
        let mut live = self.start_managed();
        live.wait_for(text);
        live
    }

    /// Starts `uzswap run OPTIONS -- COMMAND`.
    #[must_use]
    pub fn start_managed(&self) -> Live {
        let scratch = Scratch::new();
        let binary = self.binary(&scratch);
        let mut argv: Vec<OsString> = vec![binary.into(), "run".into()];
        argv.extend(self.options.iter().cloned());
        if !self.options.iter().any(|o| o == "--stats") {
            argv.push("--stats".into());
            argv.push(scratch.join("stats.json").into());
        }
        argv.push("--".into());
        argv.extend(self.argv.iter().cloned());
        self.start(&argv, scratch)
    }

    /// Runs it as each user with a quarter of the memory that `native` took, and checks that it
    /// prints the same and stays within the limit, with `beside` bytes that no limit covers.
    /// `check` looks at what else it has made.
    ///
    /// # Panics
    /// If any of that is not so.
    pub fn same_in_a_quarter_of(&self, native: &Outcome, beside: u64, check: impl Fn(User)) {
        let ram = native.peak_rss / 4 / MIB;
        println!("native peak {} MiB, --ram {ram}M", native.peak_rss / MIB);
        for &user in users() {
            let managed = self.clone().ram_mib(ram).user(user).managed();
            let managed = managed.expect_success("the job in a quarter of its memory");
            managed.expect_same_output(native);
            managed.expect_within(beside);
            managed.expect_quarter_of(native);
            check(user);
        }
    }

    /// Runs `uzswap` with this job's arguments and nothing added.
    #[must_use]
    pub fn uzswap_itself(&self) -> Outcome {
        self.start_uzswap_itself().wait()
    }

    /// Starts `uzswap` with this job's arguments and nothing added.
    #[must_use]
    pub fn start_uzswap_itself(&self) -> Live {
        let scratch = Scratch::new();
        let mut argv: Vec<OsString> = vec![self.binary(&scratch).into()];
        argv.extend(self.argv.iter().cloned());
        self.start(&argv, scratch)
    }

    /// The binary; a copy for an ordinary user, who may not be able to reach the build directory.
    fn binary(&self, scratch: &Scratch) -> PathBuf {
        let binary = if self.failing {
            uzswap_failing()
        } else {
            uzswap()
        };
        if self.user == User::Same {
            return binary.to_owned();
        }
        let copy = scratch.join("uzswap");
        fs::copy(binary, &copy).expect("the binary can be copied");
        copy
    }

    // Live waits with wait4, which also reports what the job used.
    fn start(&self, argv: &[OsString], scratch: Scratch) -> Live {
        let what = argv
            .iter()
            .map(|a| a.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ");
        let output = |name| File::create(scratch.join(name)).expect("output files can be made");
        let (program, args) = argv.split_first().expect("a job has a program");
        let mut command = if let Some(procs) = &self.within {
            let mut shell = Command::new("/bin/sh");
            shell
                .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
                .arg(procs);
            if self.user == User::Ordinary {
                // An ordinary user may not enter the cgroup.
                shell.args(["setpriv", "--clear-groups"]);
                shell.args(["--reuid", "--regid"].map(|which| format!("{which}={NOBODY}")));
            }
            shell.arg(program);
            shell
        } else {
            Command::new(program)
        };
        command
            .args(args)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir(self.cwd.as_deref().unwrap_or(scratch.path()))
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .process_group(0);
        match &self.stdin {
            Some(path) => command.stdin(File::open(path).expect("stdin exists")),
            None => command.stdin(Stdio::null()),
        };
        if self.user == User::Ordinary && self.within.is_none() {
            command.uid(NOBODY).gid(NOBODY);
        }
        if let Some((call, errno)) = self.forbidden {
            forbid(&mut command, call, errno);
        }
        let child = loop {
            match command.spawn() {
                // Another story's thread forked while a copy of uzswap was being written, and has
                // not come to its exec.
                Err(e) if e.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                started => break started.unwrap_or_else(|e| panic!("{what}: {e}")),
            }
        };
        Live {
            pid: i32::try_from(child.id()).expect("process ids are positive ints"),
            failing: self.failing,
            within: self.within.clone(),
            started: Instant::now(),
            timeout: self.timeout,
            scratch,
            what,
            ended: None,
            peak_rss: 0,
        }
    }
}

impl Live {
    /// Process id of the job's first process: `uzswap` itself for a managed one.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Runs `uzswap COMMAND PID ARGS` on it.
    #[must_use]
    pub fn uzswap(&self, command: &str, args: &[&str]) -> Outcome {
        let mut job = Job::new(command).arg(self.pid.to_string()).args(args);
        job.failing = self.failing;
        job.uzswap_itself()
    }

    /// What `uzswap stat --json` says of it.
    #[must_use]
    pub fn stat(&self) -> Value {
        self.uzswap("stat", &["--json"])
            .expect_success("stat")
            .json()
    }

    /// What it has written to stdout so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.scratch.join("stdout")).unwrap_or_default()).into()
    }

    /// Waits until its stdout holds `text`.
    ///
    /// # Panics
    /// If it ends or its time is up before that.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(&format!("said {text:?}"), |live| {
            live.stdout().contains(text)
        });
    }

    /// Waits until something is so of it.
    ///
    /// # Panics
    /// If it ends or its time is up before that.
    pub fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Live) -> bool) {
        while !is_so(self) {
            self.check_time(&format!("never: {what}"));
            if let Some((status, _)) = self.try_wait() {
                // It may have come to be so with its end.
                assert!(
                    is_so(self),
                    "{} ended with {status}, and never: {what}; stdout:\n{}\nstderr:\n{}\n{}",
                    self.what,
                    self.stdout(),
                    self.stderr(),
                    self.where_it_hangs()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal to the job's first process only.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the process is ours and not yet waited for.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Sends `signal` to its first process, then waits for it to end well.
    #[must_use]
    pub fn end_by(self, signal: i32) -> Outcome {
        self.signal(signal);
        self.wait().expect_success("a job that was told to end")
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it hangs.
    #[must_use]
    pub fn wait(mut self) -> Outcome {
        let (status, usage) = loop {
            if let Some(ended) = self.try_wait() {
                break ended;
            }
            self.check_time("hangs");
            self.peak_rss = self.peak_rss.max(highest_resident_set(self.pid));
            std::thread::sleep(Duration::from_millis(5));
        };
        let stats = fs::read(self.scratch.join("stats.json"))
            .ok()
            // It may have been killed before it wrote them.
            .filter(|text| !text.is_empty())
            .map_or(Value::Null, |text| {
                serde_json::from_slice(&text).expect("the stats are JSON")
            });
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec.unsigned_abs())
                + Duration::from_micros(t.tv_usec.unsigned_abs())
        };
        Outcome {
            status,
            stdout: fs::read(self.scratch.join("stdout")).expect("stdout was a file"),
            stderr: self.stderr(),
            stats,
            peak_rss: self.peak_rss,
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            elapsed: self.started.elapsed(),
        }
    }

    /// What it has written to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.scratch.join("stderr")).unwrap_or_default()).into()
    }

    fn try_wait(&mut self) -> Option<(i32, libc::rusage)> {
        if self.ended.is_some() {
            return self.ended;
        }
        let mut status = 0;
        // SAFETY: all zeroes is a valid rusage, and wait4 writes to the two locals only.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (
                libc::wait4(self.pid, &raw mut status, libc::WNOHANG, &raw mut usage),
                usage,
            )
        };
        if pid != self.pid {
            return None;
        }
        let code = if libc::WIFSIGNALED(status) {
            128 + libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        };
        self.ended = Some((code, usage));
        self.ended
    }

    /// Fails the story when the job's time is up.
    fn check_time(&self, why: &str) {
        assert!(
            self.started.elapsed() < self.timeout,
            "{} {why} within {:?}; stdout:\n{}\nstderr:\n{}\n{}",
            self.what,
            self.timeout,
            self.stdout(),
            self.stderr(),
            self.where_it_hangs()
        );
    }

    /// Whether the kernel killed any of it, and what each thread of the job is doing, for the
    /// message about a hang.
    fn where_it_hangs(&self) -> String {
        let mut report = String::new();
        // Who waits for one that was killed may wait for ever.
        let cgroup = self.within.as_deref().and_then(Path::parent);
        if let Some(kills @ 1..) = cgroup.and_then(oom_kills) {
            report += &format!("the kernel has killed {kills} in its cgroup, for memory\n");
        }
        for task in self.processes().iter().flat_map(|(dir, _)| tasks(dir)) {
            let read = |name| fs::read_to_string(task.join(name)).unwrap_or_default();
            let (stat, wchan, syscall) = (read("stat"), read("wchan"), read("syscall"));
            let stat: Vec<&str> = stat.split(' ').take(3).collect();
            let (task, stat, syscall) = (task.display(), stat.join(" "), syscall.trim());
            report += &format!("{task} {stat} wchan={wchan} syscall={syscall}\n");
        }
        report
    }

    /// The processes of the job's process group: their directories in `/proc`, and the fields of
    /// their `stat` from the state on.
    #[must_use]
    pub fn processes(&self) -> Vec<(PathBuf, Vec<String>)> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let with_fields = processes.filter_map(|process| {
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            let fields = stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned);
            Some((process.path(), fields.collect::<Vec<_>>()))
        });
        // After the state and the parent, the process group.
        with_fields
            .filter(|(_, fields)| fields[2].parse() == Ok(self.pid))
            .collect()
    }
}

/// The directories of a process's threads.
pub fn tasks(process: &Path) -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir(process.join("task"));
    let found = tasks.into_iter().flatten().flatten();
    found.map(|task| task.path())
}

/// Highest resident set so far of process `pid` and its live descendants, bytes; `uzswap` itself
/// does not count.
fn highest_resident_set(pid: i32) -> u64 {
    // exec wakes its parent a moment before it replaces the memory; until then that is this test's.
    let ours = std::env::current_exe().ok();
    let counts = |pid: &u32| {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        ours.as_ref() != Some(&exe) && !exe.ends_with("uzswap")
    };
    let all = descendants(pid.unsigned_abs()).into_iter().filter(counts);
    let kib = all.filter_map(|pid| proc_kib(&format!("/proc/{pid}/status"), "VmHWM:"));
    kib.max().unwrap_or(0) * 1024
}

impl Drop for Live {
    fn drop(&mut self) {
        // SAFETY: plain system call. The group is the job's own; if nothing of it is left, the call
        // finds nobody.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        if self.ended.is_none() {
            // SAFETY: a null status is allowed; the child is ours.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}
