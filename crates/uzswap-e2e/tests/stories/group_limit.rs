//! One limit for all processes of a run: when it is reached the coldest memory goes first, whoever
//! has it, and what the dead held comes back.

use std::time::{Duration, Instant};

use serde_json::Value;
use uzswap_e2e::{
    HardLimit, Job, Live, MIB, Scratch, find_or_skip, long_form, number, seed, tasks,
};

/// Members of a run. `idle` fills memory and sleeps in a system call that would tell of a signal or
/// another thread; `busy` goes over its memory again and again until stdin ends.
const PRELUDE: &str = r#"
import ctypes, os, random, select, signal, struct, subprocess, sys, threading, time
MIB = 1 << 20

def fill(mib, salt=0):
    held = bytearray(mib * MIB)
    for at in range(0, len(held), 4096):
        struct.pack_into("QQ", held, at, at ^ salt, at * 7)
        held[at + 64:at + 1064] = bytes([at >> 12 & 255]) * 1000
    return held

def is_whole(held, salt=0):
    return all(struct.unpack_from("Q", held, at)[0] == at ^ salt for at in range(0, len(held), 4096))

def member(story, *words, **more):
    return subprocess.Popen([sys.executable, "-c", PRELUDE + story, *map(str, words)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)

IDLE = r'''
held = fill(int(sys.argv[1]))
print("idle", flush=True)
# By libc, as Python itself would try again. It ends by what is read, not by EINTR.
told = ctypes.CDLL(None).poll(struct.pack("ihh", 0, select.POLLIN, 0), 1, -1)
print(is_whole(held), told, len(os.listdir("/proc/self/task")), flush=True)
'''

BUSY = r'''
held = fill(int(sys.argv[1]), 1)
print("busy", flush=True)
rounds = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    if not is_whole(held, 1):
        sys.exit("WRONG")
    rounds += 1
print(rounds, flush=True)
'''

def start(story, mib, said):
    one = member(story, mib)
    assert one.stdout.readline() == said, said
    return one

def end(one):
    # Its stdin is at its end.
    text, _ = one.communicate()
    return text.strip(), one.returncode
"#;

/// A Python program that starts members; none, after a visible skip, without Python.
fn program(story: &str) -> Option<Job> {
    find_or_skip("python3", "python3")?;
    let script = format!("PRELUDE = {PRELUDE:?}\nexec(PRELUDE)\n{story}");
    Some(Job::python(&script).option("--swap", "none"))
}

/// The live process of `pid`.
fn process(live: &Live, pid: u64) -> Value {
    let stats = live.stat();
    let all = stats["live"].as_array().expect("live processes");
    let found = all.iter().find(|process| number(process, "pid") == pid);
    found
        .unwrap_or_else(|| panic!("{pid} is live: {stats}"))
        .clone()
}

/// Waits until `is_so`, 10 s at most. Returns how long it took.
fn within_ten_seconds(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{what} within 10 s"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

fn last_number(text: &str) -> u64 {
    let number = text.split_whitespace().last();
    number.and_then(|word| word.parse().ok()).expect(text)
}

/// An idle process beside a busy one, under a limit for one and a half.
const IDLE_AND_BUSY: &str = r#"
idle = start(IDLE, 120, "idle\n")
print("idle", idle.pid, flush=True)
busy = start(BUSY, 160, "busy\n")
print("busy", busy.pid, flush=True)
signal.sigwait([signal.SIGUSR1])
print(end(busy)[1], end(idle), flush=True)
"#;

fn idle_and_busy() -> Option<Job> {
    let block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n";
    Some(program(&format!("{block}{IDLE_AND_BUSY}"))?.ram_mib(180))
}

#[test]
fn what_is_idle_goes_first_and_notices_nothing() {
    let Some(job) = idle_and_busy() else { return };
    let mut live = job.start_until("idle ");
    let idle = last_number(&live.stdout());
    live.wait_for("busy ");
    let took = within_ten_seconds("80 % of the idle process is stored", || {
        number(&process(&live, idle), "zswapped") >= 120 * MIB / 10 * 8
    });
    println!("stored after {took:?}");
    let threads = tasks(std::path::Path::new(&format!("/proc/{idle}"))).count();
    assert_eq!(threads, 1);
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(outcome.text().lines().last(), Some("0 ('True 1 1', 0)"));
}

#[test]
fn nobody_takes_what_ram_min_keeps() {
    let Some(job) = idle_and_busy() else { return };
    let mut live = job.option("--ram-min", "90M").start_until("idle ");
    let idle = last_number(&live.stdout());
    live.wait_for("busy ");
    let in_use = |process: &Value| -> u64 {
        let parts = ["resident", "zswap", "metadata"];
        parts.map(|key| number(process, key)).iter().sum()
    };
    within_ten_seconds("what is above it goes", || {
        in_use(&process(&live, idle)) < 100 * MIB
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        let now = process(&live, idle);
        // An operation's reserve counts, too, but is not shown.
        assert!(in_use(&now) >= 89 * MIB, "{now}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(outcome.text().lines().last(), Some("0 ('True 1 1', 0)"));
}

#[test]
fn a_process_starts_while_the_group_is_full() {
    let Some(job) = program(
        r#"
idle = start(IDLE, 200, "idle\n")
more = [start(IDLE, 20, "idle\n") for _ in range(6)]
print([end(one) for one in more + [idle]])
"#,
    ) else {
        return;
    };
    let outcome = job.ram_mib(192).managed().expect_success("a full group");
    let right = ["('True 1 1', 0)"; 7].join(", ");
    assert_eq!(outcome.text(), format!("[{right}]\n"));
    assert_eq!(outcome.stat("ram_granted"), 0);
}

#[test]
fn what_killed_processes_held_comes_back() {
    let rounds = if long_form() { 1000 } else { 100 };
    let story = format!(
        r#"
random.seed({})
CHURN = r'''
held = fill(24)
print("busy", flush=True)
while True:
    child = os.fork()
    if child == 0:
        is_whole(held)
        held[::4096] = bytes(len(held) // 4096)
        os._exit(0)
    is_whole(held)
    os.waitpid(child, 0)
'''
members = []
for round in range({rounds}):
    while len(members) < 3:
        members.append(member(CHURN, start_new_session=True))
    time.sleep(random.random() / 5)
    one = members.pop(random.randrange(len(members)))
    # With its child, or without.
    (os.killpg if random.random() < 0.5 else os.kill)(one.pid, signal.SIGKILL)
    one.wait()
for one in members:
    os.killpg(one.pid, signal.SIGKILL)
    one.wait()
print("alone", flush=True)
signal.sigwait([signal.SIGUSR1])
print("end")
"#,
        seed()
    );
    let block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n";
    let Some(job) = program(&format!("{block}{story}")) else {
        return;
    };
    let mut job = job.ram_mib(64).timeout(Duration::from_secs(1800));
    // What counts twice just after a fork is memory that is not there: the kernel sees less.
    let hard = HardLimit::new_or_skip(64 * MIB * 115 / 100);
    if let Some(hard) = &hard {
        job = job.within(hard);
    }
    let live = job.start_until("alone");
    within_ten_seconds("only what is alive holds memory", || {
        let stats = live.stat();
        let alive = stats["live"].as_array().expect("live processes").len();
        alive == 1 && number(&stats, "ram_granted") < 32 * MIB
    });
    let outcome = live.end_by(libc::SIGUSR1);
    assert_eq!(outcome.stat("ram_granted"), 0);
    let (peak, limit) = (outcome.stat("ram_peak"), outcome.stat("ram_limit"));
    println!("peak {peak} of {limit}");
    if let Some(hard) = &hard {
        println!("the kernel's peak: {:?}", hard.peak());
        assert_eq!(hard.oom_kills(), 0);
    }
}

/// The program waits for nothing that a fault would wake it from: it cannot notice itself.
#[test]
fn a_program_whose_reclaimer_is_killed_is_ended_though_it_sleeps() {
    let scratch = Scratch::new();
    let live = Job::idle(&scratch, 96).ram_mib(48).start_until("idle\n");
    let parent = live.pid().to_string();
    let reclaimer = || {
        let found = std::fs::read_dir("/proc").expect("/proc").flatten();
        let stats = found.filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (head, fields) = stat.rsplit_once(") ")?;
            let is_ours = head.ends_with("(uzswap-reclaim")
                && fields.split(' ').nth(1) == Some(parent.as_str());
            is_ours.then(|| head.split(' ').next()?.parse::<i32>().ok())?
        });
        stats.into_iter().next()
    };
    let pid = reclaimer().expect("it has a reclaimer");
    // SAFETY: no memory effects; the process is this story's.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let ended = live.wait();
    assert_eq!(ended.status, 125, "{}", ended.stderr);
    ended.expect_stderr(&["killed its reclaimer"]);
}
