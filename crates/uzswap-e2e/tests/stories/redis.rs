//! redis-server loads, saves in the background (which forks) and restarts from the dump, with the
//! same data throughout.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use uzswap_e2e::{Job, Live, MIB, Outcome, Scratch, User, find_or_skip, users, wait_until};

const KEYS: usize = 250_000;

/// A server of the story's own, spoken to through a socket in its directory.
struct Server {
    live: Live,
    socket: PathBuf,
}

impl Server {
    fn start(job: &Job, socket: PathBuf, managed: bool) -> Self {
        let _ = std::fs::remove_file(&socket);
        let live = if managed {
            job.start_managed()
        } else {
            job.start_native()
        };
        let server = Server { live, socket };
        let listens = || UnixStream::connect(&server.socket).is_ok();
        wait_until("the server listens", listens);
        wait_until("the server answers", || server.ask("PING") == "+PONG");
        server
    }

    /// Sends one command; returns one line of the answer, or all of a bulk answer.
    fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).expect("the server listens");
        stream
            .write_all(format!("{command}\r\n").as_bytes())
            .expect("the server reads");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("the server answers");
        if let Some(len) = line
            .strip_prefix('$')
            .and_then(|l| l.trim().parse::<usize>().ok())
        {
            let mut bulk = vec![0; len];
            std::io::Read::read_exact(&mut reader, &mut bulk).expect("the server answers");
            return String::from_utf8_lossy(&bulk).into();
        }
        line.trim().to_owned()
    }

    /// A number of `INFO section`.
    fn figure(&self, section: &str, name: &str) -> u64 {
        let info = self.ask(&format!("INFO {section}"));
        info.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {info}"))
    }

    /// Sends `commands` as a pipeline and waits for as many answers.
    fn pipeline(&self, nr: usize, commands: impl Iterator<Item = String>) {
        let mut stream = UnixStream::connect(&self.socket).expect("the server listens");
        let answers = stream.try_clone().expect("a socket can be shared");
        let reader = std::thread::spawn(move || BufReader::new(answers).lines().take(nr).count());
        let mut batch = Vec::new();
        for command in commands {
            batch.extend_from_slice(command.as_bytes());
            batch.extend_from_slice(b"\r\n");
            if batch.len() > 1 << 20 {
                stream.write_all(&batch).expect("the server reads");
                batch.clear();
            }
        }
        stream.write_all(&batch).expect("the server reads");
        assert_eq!(reader.join().expect("the reader lives"), nr);
    }

    /// Loads strings, hashes, lists and sorted sets.
    fn load(&self) {
        let command = |i: usize| {
            let text =
                format!("value_of_{i}_") + &"leave_at_the_door_and_ring_twice_".repeat(i % 32);
            match i % 5 {
                0 => format!("HSET hash:{} field:{} {text}", i / 100, i % 100),
                1 => format!("RPUSH list:{} {text}", i / 50),
                2 => format!("ZADD sorted:{} {i} {text}", i / 1000),
                _ => format!("SET key:{i} {text}"),
            }
        };
        self.pipeline(KEYS, (0..KEYS).map(command));
    }

    fn digest(&self) -> String {
        self.ask("DEBUG DIGEST")
    }

    /// Saves in a child, with `meanwhile` called while it does.
    fn save_in_background(&self, meanwhile: impl FnOnce(&Self)) {
        assert!(self.ask("BGSAVE").starts_with('+'));
        meanwhile(self);
        let says = |line| self.ask("INFO persistence").contains(line);
        wait_until("BGSAVE ends", || says("rdb_bgsave_in_progress:0"));
        assert!(says("rdb_last_bgsave_status:ok"));
    }

    /// Changes a tenth of the strings.
    fn change(&self) {
        let changed = (3..KEYS).step_by(10);
        let append = |i| format!("APPEND key:{i} _changed");
        self.pipeline(changed.len(), changed.map(append));
    }

    fn stop(self, how: &str) -> Outcome {
        let mut stream = UnixStream::connect(&self.socket).expect("the server listens");
        stream
            .write_all(format!("SHUTDOWN {how}\r\n").as_bytes())
            .expect("the server reads");
        self.live.wait().expect_success("redis-server")
    }
}

fn story(user: User, server: &PathBuf) {
    let scratch = Scratch::new();
    let socket = scratch.join("socket");
    let job = Job::new(server)
        .args(["--save", ""])
        .words("--port 0 --enable-debug-command yes --daemonize no")
        .words("--unixsocketperm 777 --unixsocket")
        .arg(&socket)
        .arg("--dir")
        .arg(scratch.path())
        .user(user);

    let native = Server::start(&job, socket.clone(), false);
    native.load();
    let loaded = native.digest();
    native.change();
    let changed = native.digest();
    let native = native.stop("NOSAVE");
    let ram = native.peak_rss / 4 / MIB;
    println!("native peak {} MiB, --ram {ram}M", native.peak_rss / MIB);
    let job = job.ram_mib(ram);

    let first = Server::start(&job, socket.clone(), true);
    first.load();
    assert_eq!(first.digest(), loaded, "after loading; seen as {user:?}");
    // Changed while the child saves: its dump must hold the state before.
    first.save_in_background(Server::change);
    assert_eq!(first.digest(), changed, "after changes; seen as {user:?}");
    // Its own allocator still serves it, and counts.
    let allocated = first.figure("memory", "allocator_allocated");
    let used = first.figure("memory", "used_memory");
    assert!(
        first.ask("INFO memory").contains("mem_allocator:libc") || allocated > used / 2,
        "{allocated} bytes allocated of {used} used"
    );
    let outcome = first.stop("NOSAVE");
    outcome.expect_within(32 * MIB);
    outcome.expect_quarter_of(&native);

    let second = Server::start(&job, socket.clone(), true);
    assert_eq!(
        second.digest(),
        loaded,
        "restarted from the child's dump; seen as {user:?}"
    );
    second.change();
    second.save_in_background(|_| {});
    second.stop("NOSAVE").expect_within(32 * MIB);

    // A native server can read the dump that a managed one wrote.
    let third = Server::start(&job, socket, false);
    assert_eq!(third.digest(), changed, "read natively; seen as {user:?}");
    third.stop("NOSAVE");
}

#[test]
fn load_save_restart() {
    let Some(server) = find_or_skip("redis-server", "redis-server") else {
        return;
    };
    for &user in users() {
        story(user, &server);
    }
}
