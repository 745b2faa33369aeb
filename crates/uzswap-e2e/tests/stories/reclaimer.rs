//! The reclaimer works beside the program: the program does not see it, it holds nothing open, has
//! no rights, and goes when the program goes, in whatever way that happens.

use std::path::Path;
use std::time::Duration;

use uzswap_e2e::{Job, find_or_skip, root_or_skip};

/// Twice as much memory as there is; `reclaimers` finds those of this run.
const PRELUDE: &str = r#"
import ctypes, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
supervisor = int(os.environ.setdefault("SUPERVISOR", str(os.getppid())))
held = b""

def fill():
    global held
    held = bytearray(96 << 20)
    for at in range(0, len(held), 4096):
        struct.pack_into("Q", held, at, at)

def is_whole():
    return all(struct.unpack_from("Q", held, at)[0] == at for at in range(0, len(held), 4096))

def reclaimers():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, rest = open(f"/proc/{pid}/stat").read().split("(", 1)[1].rsplit(") ", 1)
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name == "uzswap-reclaim" and int(parent) == supervisor and state != "Z":
            found.append(int(pid))
    return found
"#;

/// A Python program that holds 96 MiB, in 48 MiB; none, after a visible skip, without Python.
fn program(story: &str) -> Option<Job> {
    find_or_skip("python3", "python3")?;
    let job = Job::python(&format!("{PRELUDE}{story}"));
    Some(job.ram_mib(48).option("--swap", "none"))
}

#[test]
fn the_program_sees_no_thread_and_no_child() {
    let Some(job) = program(
        r#"
reader, writer = os.pipe()
fill()
print("whole", is_whole())
print("threads", len(os.listdir("/proc/self/task")))
print("children", open(f"/proc/self/task/{os.getpid()}/children").read())
WALL = 0x40000000
try:
    print("waited", os.waitpid(-1, os.WNOHANG | WALL))
except ChildProcessError:
    print("nobody to wait for")
os.close(writer)
print("end of the pipe", os.read(reader, 1))
child = os.fork()
if child == 0:
    fill()
    os._exit(0 if is_whole() else 1)
print("child", os.waitpid(child, 0)[1])
CLONE_NEWUSER = 0x10000000
print("unshare", libc.unshare(CLONE_NEWUSER), ctypes.get_errno())
"#,
    ) else {
        return;
    };
    let native = job.native().expect_success("natively");
    let modes: &[&str] = if root_or_skip("--fault-mode thread") {
        &["signal", "segv", "thread"]
    } else {
        &["signal", "segv"]
    };
    for mode in modes {
        let managed = job.clone().option("--fault-mode", mode).managed();
        let managed = managed.expect_success(mode);
        if *mode != "thread" {
            managed.expect_same_output(&native);
        }
        assert!(managed.stat("reclaim_background") > 0, "{mode}: it worked");
    }
}

#[test]
fn it_goes_before_exec_and_comes_again() {
    let Some(job) = program(
        r#"
if "AGAIN" not in os.environ:
    fill()
    print("at work:", len(reclaimers()))
    sys.stdout.flush()
    try:
        os.execv("/nowhere", ["nowhere"])
    except FileNotFoundError:
        print("no exec:", is_whole(), len(reclaimers()))
    sys.stdout.flush()
    os.environ["AGAIN"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
print("after exec:", len(reclaimers()))
fill()
print("again:", is_whole(), len(reclaimers()))
"#,
    ) else {
        return;
    };
    let done = job.managed().expect_success("exec");
    let expected = "at work: 1\nno exec: True 1\nafter exec: 0\nagain: True 1\n";
    assert_eq!(done.text(), expected);
}

#[test]
fn it_dies_with_the_program() {
    for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGTERM] {
        let story = "fill()\nprint('pids', os.getpid(), reclaimers()[0], flush=True)\n\
                     while True: is_whole()";
        let Some(job) = program(story) else { return };
        let live = job.start_until("pids");
        let said = live.stdout();
        let pids: Vec<i32> = said
            .split_whitespace()
            .filter_map(|w| w.parse().ok())
            .collect();
        let [program, reclaimer] = pids[..] else {
            panic!("{said}");
        };
        // SAFETY: no memory effects; the process is this story's.
        unsafe { libc::kill(program, signal) };
        let ended = live.wait();
        assert_eq!(ended.status, 128 + signal, "{}", ended.stderr);
        let left = Path::new("/proc").join(reclaimer.to_string());
        assert!(!left.exists(), "signal {signal} left {reclaimer} behind");
    }
}

#[test]
fn signals_do_not_reach_it_and_its_death_is_told() {
    let Some(job) = program(
        r#"
fill()
[reclaimer] = reclaimers()
for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
    os.kill(reclaimer, number)
print("still", reclaimers() == [reclaimer], is_whole(), flush=True)
os.kill(reclaimer, signal.SIGKILL)
while is_whole():
    pass
"#,
    ) else {
        return;
    };
    let ended = job.timeout(Duration::from_secs(120)).managed();
    assert_eq!(ended.status, 125, "{}", ended.stderr);
    assert_eq!(ended.text(), "still True True\n");
    ended.expect_stderr(&["killed its reclaimer", "--background-reclaim=off"]);
}

#[test]
fn it_has_no_rights() {
    if !root_or_skip("giving up rights") {
        return;
    }
    let Some(job) = program(
        r#"
fill()
[reclaimer] = reclaimers()
status = dict(line.split(":\t", 1) for line in open(f"/proc/{reclaimer}/status") if ":\t" in line)
print(status["CapEff"], end="")
print(status["CapPrm"], end="")
print("seccomp", status["Seccomp"], end="")
print("signals blocked", status["SigBlk"], end="")
os.setgid(65534)
os.setuid(65534)
print(is_whole(), os.getuid())
"#,
    ) else {
        return;
    };
    let done = job.managed().expect_success("setuid");
    let expected = "0000000000000000\n0000000000000000\nseccomp 2\n\
                    signals blocked 0000000000000000\nTrue 65534\n";
    assert_eq!(done.text(), expected);
}

/// A filter of the program's own may end whoever makes a process.
#[test]
fn none_is_started_under_a_filter_of_the_programs() {
    let Some(job) = program(
        r#"
class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction))]
LOAD_NR, IS, RETURN = 0x20, 0x15, 0x06
CLONE, KILL, ALLOW = 56, 0x80000000, 0x7fff0000
code = (Instruction * 4)(
    Instruction(LOAD_NR, 0, 0, 0), Instruction(IS, 0, 1, CLONE),
    Instruction(RETURN, 0, 0, KILL), Instruction(RETURN, 0, 0, ALLOW))
NO_NEW_PRIVS, SET_SECCOMP = 38, 22
libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
signal.signal(signal.SIGUSR1, lambda *_: None)
print("installed", libc.prctl(SET_SECCOMP, 2, ctypes.byref(Program(4, code)), 0, 0))
fill()
print("full", flush=True)
signal.pause()
print(is_whole(), len(reclaimers()))
"#,
    ) else {
        return;
    };
    let live = job.start_until("full");
    // What is asked from outside is served without a thread, too.
    let _ = live
        .uzswap("reclaim", &["16M"])
        .expect_success("reclaiming");
    let done = live.end_by(libc::SIGUSR1);
    assert_eq!(done.text(), "installed 0\nfull\nTrue 0\n");
}
