//! Jobs of many processes that need more than 256 MiB finish, with the same result, under `--ram
//! 256M` in a memory cgroup that has 15 % more and no swap: nothing is killed for memory. The long
//! form runs each ten times, as root and as an ordinary user.

use std::fs;
use std::path::Path;
use std::time::Duration;

use uzswap_e2e::{
    HardLimit, Job, MIB, Outcome, Scratch, User, find_or_skip, long_form, skip, users,
};

const RAM: u64 = 256;
const HARD: u64 = RAM * MIB * 115 / 100;
/// More than any of the jobs takes.
const NONE: u64 = 8 << 30;
const TIMEOUT: Duration = Duration::from_secs(600);

/// Runs `job`, as `users` and with what `prepare` makes before each run, and compares the results.
fn finishes(job: &Job, users: &[User], prepare: impl Fn()) {
    let Some(unlimited) = HardLimit::new_or_skip(NONE) else {
        return;
    };
    let job = job.clone().timeout(TIMEOUT);
    let run = |job: &Job, limit: &HardLimit, managed: bool| -> Outcome {
        prepare();
        let job = job.clone().within(limit);
        let outcome = if managed { job.managed() } else { job.native() };
        assert_eq!(limit.oom_kills(), 0, "{}", outcome.stderr);
        outcome.expect_success("the job")
    };
    let user = *users.last().expect("somebody runs it");
    let native = run(&job.clone().user(user), &unlimited, false);
    if let Some(peak) = unlimited.peak() {
        println!("native: {} MiB, {:.1?}", peak / MIB, native.elapsed);
        assert!(peak > HARD, "it fits without uzswap: {peak} bytes");
    }
    let (rounds, users) = match long_form() {
        true => (10, users),
        false => (1, &[user][..]),
    };
    for &user in users {
        for round in 0..rounds {
            let Some(limit) = HardLimit::new_or_skip(HARD) else {
                return;
            };
            let job = job.clone().ram_mib(RAM).user(user);
            let managed = run(&job, &limit, true);
            managed.expect_same_output(&native);
            println!(
                "{user:?}, round {round}: {} MiB of {}, {:.1?}; granted and outside {} MiB",
                limit.peak().unwrap_or(0) / MIB,
                HARD / MIB,
                managed.elapsed,
                managed.stat("ram_peak_total") / MIB,
            );
        }
    }
}

/// Eight workers, each with a table of its own, beside data of their parent's.
const WORKERS: &str = r#"
import multiprocessing, sys
common = [n * n % 1000003 for n in range(1_000_000)]
def work(seed):
    rows = [(seed * 7919 + n) % 1000003 for n in range(300_000)]
    table = {row: "row %d" % row for row in rows}
    rows.sort(key=lambda row: common[row % len(common)])
    return sum(rows[::97]) + len(table) + len(table[rows[seed]])
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(8) as pool:
        print(pool.map(work, range(16), chunksize=1))
"#;

fn python_workers(how: &str) {
    let Some(python) = find_or_skip("python3", "python3") else {
        return;
    };
    let scratch = Scratch::new();
    let script = scratch.write("workers.py", WORKERS);
    let job = Job::new(python).arg(script).arg(how);
    finishes(&job, users(), || {});
}

#[test]
fn eight_python_workers_by_fork() {
    python_workers("fork");
}

#[test]
fn eight_python_workers_by_spawn() {
    python_workers("spawn");
}

/// As code that uses the standard library, more for the compiler to read than to translate.
const PART: &str = r#"
#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
int main() {
    std::map<std::string, int> numbers;
    std::unordered_map<int, std::string> names;
    for (int n = 0; n < 100; n++) names[n] = std::to_string(n * 7919 % 101);
    for (auto &[n, name] : names) numbers[name] = n;
    std::stringstream all;
    for (auto &[name, n] : numbers) all << name << n;
    std::cout << all.str() << "\n";
}
"#;

#[test]
fn eight_compilers() {
    if find_or_skip("g++", "g++").is_none() {
        return;
    }
    let Some(make) = find_or_skip("make", "make") else {
        return;
    };
    let scratch = Scratch::new();
    for part in 0..24 {
        scratch.write(&format!("part{part}.cc"), format!("{PART}// {part}\n"));
    }
    scratch.write(
        "Makefile",
        "all: $(patsubst %.cc,%.o,$(wildcard *.cc))\n\t@cat $(sort $^) | cksum\n\
         %.o: %.cc\n\t@g++ -O1 -w -c $< -o $@\n",
    );
    let job = Job::new(make).arg("-j8").cwd(scratch.path());
    let job = job.env("TMPDIR", scratch.path());
    finishes(&job, users(), || {
        // An ordinary user could not overwrite them.
        let files = fs::read_dir(scratch.path()).expect("it is ours").flatten();
        let objects = files.filter(|file| file.path().extension().is_some_and(|e| e == "o"));
        for object in objects {
            fs::remove_file(object.path()).expect("it is ours");
        }
    });
}

/// A database with parallel workers, in a directory of its own.
const POSTGRES: &str = r#"
set -e
bin=$1 data=$2/data
rm -rf "$data"
"$bin/initdb" -D "$data" -A trust -U u --no-sync >/dev/null
cat >>"$data/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$2'
shared_buffers = 16MB
work_mem = 192MB
max_parallel_workers_per_gather = 4
max_parallel_workers = 8
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
parallel_tuple_cost = 0
fsync = off
jit = off
END
"$bin/pg_ctl" -D "$data" -w -l "$2/log" start >/dev/null
trap '"$bin/pg_ctl" -D "$data" -w -m fast stop >/dev/null' EXIT
"$bin/psql" -h "$2" -U u -d postgres -qAt <<'END'
create table a as select n, n * 7919 % 1000003 as k, md5(n::text) as t from generate_series(1, 1500000) n;
create table b as select n as k, n % 1000 as g from generate_series(1, 1500000) n;
analyze;
set enable_mergejoin = off;
select count(*), sum(a.n), max(t) from a join b using (k) where g < 900;
select sum(rank * n % 1009) from (select n, rank() over (order by t) from a) ranked;
select count(*), sum(length(all_of)) from (select string_agg(t, ',' order by t) all_of from a group by k % 5000) grouped;
select md5(string_agg(t, ',' order by n)) from a;
END
"#;

#[test]
fn postgresql_with_parallel_workers() {
    let versions = Path::new("/usr/lib/postgresql");
    let found = fs::read_dir(versions).into_iter().flatten().flatten();
    let Some(bin) = found.map(|version| version.path().join("bin")).max() else {
        return skip("no /usr/lib/postgresql here (apt-get install postgresql)");
    };
    // It refuses to run as root.
    let user = *users().last().expect("somebody runs it");
    let scratch = Scratch::new();
    let script = scratch.write("postgres.sh", POSTGRES);
    let job = Job::new("/bin/sh").arg(script).arg(bin).arg(scratch.path());
    let job = job
        .cwd(scratch.path())
        .env("PGTZ", "UTC")
        .env("LC_ALL", "C");
    finishes(&job, &[user], || {});
}

const PAGE: &str = "<body><p id=sum></p><script>
const keep = [];
for (let i = 0; i < 500; i++) {
  const rows = [];
  for (let j = 0; j < 8000; j++) rows.push({ number: i * 8000 + j, text: 'value ' + i * j % 997 });
  keep.push(rows);
}
let sum = 0;
for (const rows of keep) for (const row of rows) sum = (sum * 31 + row.number + row.text.length) % 1000003;
document.getElementById('sum').textContent = 'sum ' + sum;
</script>";

#[test]
fn a_page_in_chromium() {
    let Some(chromium) = find_or_skip("chromium", "chromium") else {
        return;
    };
    let scratch = Scratch::new();
    let page = scratch.write("page.html", PAGE);
    let profile = scratch.join("profile");
    // Its sandbox is for who does not run as root.
    let job = Job::new(chromium)
        .words("--headless --no-sandbox --disable-gpu --dump-dom")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", scratch.path());
    finishes(&job, users(), || {
        let _ = fs::remove_dir_all(&profile);
    });
}

/// Eight workers forked from a server that has loaded its data; what they answer is added up.
const SERVER: &str = r#"
import hashlib
rows = {n: hashlib.md5(b"%d" % n).hexdigest() for n in range(500_000)}
seen = {}
def app(environ, start_response):
    n = int(environ["PATH_INFO"][1:])
    # What a worker remembers is its own.
    for more in range(n, n + 4000):
        seen[more] = rows[more] + str(more)
    body = str(sum(int(rows[more][:4], 16) for more in range(n, n + 4000))).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"#;
const CLIENT: &str = r#"
import concurrent.futures, http.client, os, signal, socket, subprocess, sys, time
gunicorn, at = sys.argv[1:]
path = at + "/socket"
server = subprocess.Popen([gunicorn, "--preload", "-w", "8", "-b", "unix:" + path,
                           "--timeout", "300", "--log-level", "error", "server:app"], cwd=at)
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
def ask(n):
    connection = Connection("here")
    connection.request("GET", "/%d" % n)
    return int(connection.getresponse().read())
while True:
    try:
        ask(0)
        break
    except OSError:
        assert server.poll() is None
        time.sleep(0.05)
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(ask, [n * 7919 % 490_000 for n in range(400)])))
server.send_signal(signal.SIGTERM)
print(server.wait())
"#;

#[test]
fn a_server_that_forks_its_workers() {
    let Some(gunicorn) = find_or_skip("gunicorn", "gunicorn") else {
        return;
    };
    let Some(python) = find_or_skip("python3", "python3") else {
        return;
    };
    let scratch = Scratch::new();
    scratch.write("server.py", SERVER);
    let client = scratch.write("client.py", CLIENT);
    let job = Job::new(python).arg(client).arg(gunicorn);
    let job = job.arg(scratch.path()).cwd(scratch.path());
    finishes(&job, users(), || {
        let _ = fs::remove_file(scratch.join("socket"));
    });
}
