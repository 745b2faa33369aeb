//! Swap to the memory of other machines: real servers on this one's loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use uzswap_e2e::{
    Job, MIB, Outcome, Scratch, find_or_skip, long_form, root_or_skip, seed, uzswap, wait_until,
    workspace,
};

/// A port that nobody listens on, and whose cluster bus, 10000 above, is a port.
fn free_port() -> u16 {
    loop {
        let socket = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = socket.local_addr().expect("bound").port();
        if port < 50_000 {
            return port;
        }
    }
}

/// A server of the story's own.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(libc::SIGCONT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &Path, port: u16, args: &[&str]) -> Self {
        let child = Command::new(program)
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let server = Server { child, port };
        wait_until("the server listens", || server.connect().is_some());
        server
    }

    /// A Redis server, with more options.
    fn redis(program: &Path, scratch: &Scratch, more: &[&str]) -> Self {
        let port = free_port();
        let dir = scratch.join(port.to_string());
        std::fs::create_dir_all(&dir).expect("a directory");
        let (dir, port_text) = (dir.to_string_lossy().into_owned(), port.to_string());
        let mut args = vec![
            "--port",
            &port_text,
            "--dir",
            &dir,
            "--save",
            "",
            "--bind",
            "127.0.0.1",
        ];
        args.extend(more);
        let server = Server::start(program, port, &args);
        wait_until("the server answers", || !server.ask("PING").is_empty());
        server
    }

    fn connect(&self) -> Option<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port)).ok()
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        // SAFETY: a plain system call on a child that is not waited for.
        unsafe { libc::kill(pid, signal) };
    }

    /// Sends one command; the lines of its answer, without what tells their kind.
    fn ask(&self, command: &str) -> Vec<String> {
        let Some(mut stream) = self.connect() else {
            return Vec::new();
        };
        let _ = stream.write_all(format!("{command}\r\n").as_bytes());
        let mut reader = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            line.trim().to_owned()
        };
        let first = line();
        match first
            .strip_prefix('*')
            .and_then(|nr| nr.parse::<usize>().ok())
        {
            None => vec![first],
            Some(nr) => (0..nr * 2).map(|_| line()).skip(1).step_by(2).collect(),
        }
    }

    fn nr_keys(&self) -> usize {
        self.ask("KEYS *").len()
    }
}

/// `mib` MiB of incompressible data in 32 MiB.
fn noise(scratch: &Scratch, mib: u64, url: &str) -> Job {
    Job::compiled(scratch, "apps/noise.c", &format!("{mib} {}", seed()))
        .ram_mib(32)
        .option("--swap", url)
        .option("--swap-max", "512M")
}

fn expect_right(outcome: &Outcome) {
    assert_eq!(outcome.text(), "right\n");
    assert!(outcome.stat("swap_bytes_in") > 8 * MIB, "{}", outcome.stats);
}

/// A run that swaps to `url` ends before its command starts, with one line that has `words`.
fn expect_refused(scratch: &Scratch, url: &str, words: &[&str]) {
    let outcome = noise(scratch, 1, url).managed();
    let _ = outcome.expect_refused(125, words);
}

fn redis_or_skip() -> Option<PathBuf> {
    find_or_skip("redis-server", "redis-server")
}

/// Processes that are brokers.
fn brokers_of(run: i32) -> Vec<i32> {
    let list = format!("/proc/{run}/task/{run}/children");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    let children = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    let is_broker = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "uzswap-broker")
    };
    children.filter(is_broker).collect()
}

#[test]
fn an_nbd_export_is_a_swap_device() {
    let Some(nbdkit) = find_or_skip("nbdkit", "nbdkit") else {
        return;
    };
    let scratch = Scratch::new();
    let port = free_port();
    let port_text = port.to_string();
    let args = ["-f", "-p", &port_text, "-i", "127.0.0.1", "memory", "400M"];
    let _server = Server::start(&nbdkit, port, &args);
    let url = format!("nbd://127.0.0.1:{port}/");
    let outcome = noise(&scratch, 96, &url).managed().expect_success("NBD");
    expect_right(&outcome);
    let device = &outcome.stats["swap_devices"][0];
    assert!(device["bytes_out"].as_u64() > Some(40 * MIB), "{device}");
    // What is no swap area is not overwritten, and a read-only export is not taken.
    for (more, words) in [
        (&["data", "raw=1", "size=64M"][..], "not a swap area"),
        (&["-r", "memory", "64M"][..], "read-only"),
        (&["memory", "1M"][..], "too small"),
    ] {
        let port = free_port();
        let port_text = port.to_string();
        let args = [&["-f", "-p", &port_text, "-i", "127.0.0.1"][..], more].concat();
        let _server = Server::start(&nbdkit, port, &args);
        expect_refused(
            &scratch,
            &format!("nbd://127.0.0.1:{port}/"),
            &["--swap nbd://", words],
        );
    }
}

/// Right data, nothing left on the server, and no word of the password.
#[test]
fn a_redis_server_is_a_swap_device() {
    let Some(redis) = redis_or_skip() else { return };
    let scratch = Scratch::new();
    let server = Server::redis(&redis, &scratch, &["--maxmemory", "400mb"]);
    let password = "CONFIG SET requirepass se%cret";
    let file = scratch.write("url", server.url().replace("://", "://:se%25cret@"));
    assert_eq!(server.ask(password), ["+OK"]);
    expect_refused(&scratch, &server.url(), &["refuses user or password"]);
    let job = noise(&scratch, 96, &format!("@{}", file.display()));
    let mut live = job.start_managed();
    live.wait_until("has a broker", |live| !brokers_of(live.pid()).is_empty());
    let outcome = live.wait().expect_success("redis");
    expect_right(&outcome);
    let said = format!("{}{}", outcome.stats, outcome.stderr);
    assert!(!said.contains("cret@") && !said.contains("se%"), "{said}");
    let secret = server.url().replace("://", "://:se%25cret@");
    expect_refused(&scratch, &secret, &["can be seen by everybody"]);
    let none = "AUTH se%cret\r\nCONFIG SET requirepass \"\"";
    let _ = server.ask(none);
    wait_until("the server is open again", || {
        server.ask("PING") == ["+PONG"]
    });
    assert_eq!(server.nr_keys(), 0);
    // A server that may evict is refused, with what mends it.
    assert_eq!(
        server.ask("CONFIG SET maxmemory-policy allkeys-lru"),
        ["+OK"]
    );
    expect_refused(
        &scratch,
        &server.url(),
        &["CONFIG SET maxmemory-policy noeviction"],
    );
    // Nor is a place used that nobody answers at.
    drop(server);
    expect_refused(
        &scratch,
        "redis://127.0.0.1:1",
        &["no Redis server answers at 127.0.0.1:1"],
    );
}

/// The broker is killed again and again, and the server stands still for some seconds: the job only
/// takes longer.
#[test]
fn the_death_of_a_broker_and_a_server_that_stands_still_cost_only_time() {
    let Some(redis) = redis_or_skip() else { return };
    let scratch = Scratch::new();
    let server = Server::redis(&redis, &scratch, &[]);
    let mut live = noise(&scratch, 128, &server.url()).start_managed();
    let mut nr_killed = 0;
    for round in 0..4 {
        live.wait_until("has a broker and data there", |live| {
            server.nr_keys() > 2 && !brokers_of(live.pid()).is_empty() || !live.stdout().is_empty()
        });
        for broker in brokers_of(live.pid()) {
            // SAFETY: a plain system call on a broker of this story's run.
            unsafe { libc::kill(broker, libc::SIGKILL) };
            nr_killed += 1;
        }
        if round == 1 {
            server.signal(libc::SIGSTOP);
            std::thread::sleep(std::time::Duration::from_secs(3));
            server.signal(libc::SIGCONT);
        }
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    let outcome = live.wait().expect_success("killed brokers");
    expect_right(&outcome);
    assert!(nr_killed > 0, "it ended before any was killed");
    assert_eq!(server.nr_keys(), 0);
}

/// A script that fills memory, waits to be told, fills it anew, waits, and compares.
const TWICE: &str = r#"
import os, sys
n = 96 << 20
memory = bytearray(n)
def fill(seed):
    import random
    rng = random.Random(seed)
    for at in range(0, n, 1 << 20):
        memory[at:at + (1 << 20)] = rng.randbytes(1 << 20)
def check(seed):
    import random
    rng = random.Random(seed)
    for at in range(0, n, 1 << 20):
        if memory[at:at + (1 << 20)] != rng.randbytes(1 << 20):
            print("wrong", flush=True); sys.exit(3)
def pause(word):
    print(word, flush=True)
    while not os.path.exists(sys.argv[1] + word):
        import time; time.sleep(0.05)
fill(1); pause("one")
fill(2); pause("two")
check(2); print("right", flush=True)
"#;

/// A failover may bring back an older object: it must not open, though it was sealed by the same
/// process for the same page. The program gets SIGBUS, never the old bytes.
#[test]
fn old_values_that_come_back_are_refused() {
    let Some(redis) = redis_or_skip() else { return };
    let scratch = Scratch::new();
    let server = Server::redis(&redis, &scratch, &[]);
    let mark = scratch.join("go-");
    let job = Job::python(TWICE)
        .arg(&mark)
        .ram_mib(48)
        .option("--swap", format!("{}?deadline=5", server.url()))
        .option("--swap-max", "128M");
    let mut live = job.start_managed();
    let go = |word: &str| std::fs::write(format!("{}{word}", mark.display()), "").expect("written");
    live.wait_for("one");
    let old = server.ask("KEYS uzswap:*");
    assert!(old.len() > 10, "{old:?}");
    for key in &old {
        assert_eq!(server.ask(&format!("COPY {key} old:{key}")), [":1"]);
    }
    go("one");
    live.wait_for("two");
    for key in &old {
        let _ = server.ask(&format!("COPY old:{key} {key} REPLACE"));
    }
    go("two");
    let outcome = live.wait();
    assert!(!outcome.text().contains("wrong"), "{}", outcome.text());
    assert!(!outcome.text().contains("right"), "nothing was replayed");
    outcome.expect_stderr(&["cannot be read back from the swap device redis://"]);
}

/// With nobody to read from, the program is told so within the deadline.
#[test]
fn a_server_that_is_gone_for_good_ends_in_one_message_by_the_deadline() {
    let Some(redis) = redis_or_skip() else { return };
    let scratch = Scratch::new();
    let server = Server::redis(&redis, &scratch, &[]);
    let mark = scratch.join("go-");
    let mut live = Job::python(TWICE)
        .arg(&mark)
        .ram_mib(48)
        .option("--swap", format!("{}?deadline=2", server.url()))
        .option("--swap-max", "128M")
        .start_managed();
    live.wait_for("one");
    drop(server);
    std::fs::write(format!("{}one", mark.display()), "").expect("written");
    let outcome = live.wait();
    assert!(!outcome.text().contains("right"), "{}", outcome.text());
    let messages = outcome.stderr.matches("cannot be read back").count();
    assert!(messages <= 1, "{}", outcome.stderr);
}

/// usemem, and a program in Python, of four times their memory, in each fault mode.
#[test]
fn all_swap_may_be_remote_in_any_fault_mode() {
    let Some(redis) = redis_or_skip() else { return };
    let scratch = Scratch::new();
    let server = Server::redis(&redis, &scratch, &[]);
    let python = "
import random
def noise(at): return random.Random(at).randbytes(1 << 20)
memory = [noise(at) for at in range(96)]
print('right' if all(memory[at] == noise(at) for at in range(96)) else 'wrong')
";
    for mode in ["signal", "thread", "segv"] {
        if mode == "thread" && !root_or_skip("fault mode thread") {
            continue;
        }
        let usemem =
            Job::new(uzswap()).words("bench work --mib 96 --threads 2 --compressibility 1");
        for (what, job) in [("usemem", usemem), ("python", Job::python(python))] {
            let job = job.ram_mib(24).option("--fault-mode", mode);
            let job = job
                .option("--swap", server.url())
                .option("--swap-max", "256M");
            let outcome = job.managed().expect_success(&format!("{what} by {mode}"));
            assert!(!outcome.text().contains("wrong"), "{}", outcome.text());
            assert!(outcome.stat("swap_bytes_in") > 8 * MIB, "{}", outcome.stats);
        }
    }
    assert_eq!(server.nr_keys(), 0);
}

/// A cluster of which everything fails: `scripts/remote-storm`, in its short form.
#[test]
fn a_storm_of_failures_costs_only_time() {
    let tools = ["redis-server", "gcc", "python3"];
    if tools.iter().any(|tool| find_or_skip(tool, tool).is_none()) {
        return;
    }
    let rounds = if long_form() { "100" } else { "3" };
    let output = Command::new(workspace().join("scripts/remote-storm"))
        .args(["--rounds", rounds, "--seed", &seed().to_string()])
        .arg("--uzswap")
        .arg(uzswap())
        .output()
        .expect("the script starts");
    let text = String::from_utf8_lossy(&output.stderr);
    print!("{text}");
    assert!(output.status.success(), "{text}");
}

/// By TLS, with a certificate of the story's own; one that has expired, or that nobody vouches for,
/// is refused by name.
#[test]
fn certificates_are_checked() {
    let Some(redis) = redis_or_skip() else { return };
    let Some(openssl) = find_or_skip("openssl", "openssl") else {
        return;
    };
    let scratch = Scratch::new();
    let make = |line: &str| {
        let mut command = Command::new(&openssl);
        command.args(line.split(' ')).current_dir(scratch.path());
        let output = command.output().expect("openssl starts");
        assert!(output.status.success(), "{line}: {output:?}");
    };
    make("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 9 -subj /CN=story");
    make("req -newkey rsa:2048 -nodes -keyout key -out request -subj /CN=localhost");
    scratch.write("names", "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
    for (name, days) in [("good", "9"), ("expired", "-1")] {
        make(&format!(
            "x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -out {name} -days {days} \
             -extfile names"
        ));
    }
    let path = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let start = |certificate: &str| {
        let port = free_port();
        let (port_text, dir) = (port.to_string(), path("."));
        let (key, ca, certificate) = (path("key"), path("ca.crt"), path(certificate));
        let args = [
            ["--port", "0", "--tls-port", &port_text],
            ["--tls-cert-file", &certificate, "--tls-key-file", &key],
            ["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"],
            ["--save", "", "--dir", &dir],
        ];
        let server = Server::start(&redis, port, args.as_flattened());
        (server, format!("rediss://localhost:{port}"))
    };
    let (_server, url) = start("good");
    let known = noise(&scratch, 64, &url).env("SSL_CERT_FILE", scratch.join("ca.crt"));
    expect_right(&known.managed().expect_success("TLS"));
    expect_refused(&scratch, &url, &["--swap rediss://", "UnknownIssuer"]);
    let (_server, url) = start("expired");
    let job = noise(&scratch, 1, &url).env("SSL_CERT_FILE", scratch.join("ca.crt"));
    let outcome = job.managed();
    let _ = outcome.expect_refused(125, &["--swap rediss://", "xpired"]);
}
