//! `uzswap bench` and `uzswap report` from outside: what they print, write and end with.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("uzswap-benches.{}.{name}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// `uzswap` with these words, here.
    fn uzswap(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uzswap"));
        command.args(words.split(' ')).current_dir(&self.0);
        command.output().unwrap()
    }

    /// What `uzswap` with these words prints. It succeeds, and prints all `parts`.
    fn prints(&self, words: &str, parts: &[&str]) -> String {
        let done = self.uzswap(words);
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8(done.stdout).unwrap();
        for part in parts {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        text
    }

    /// The page that `uzswap report` makes of `file`. It holds all `parts`.
    fn report(&self, file: &str, parts: &[&str]) -> String {
        self.prints(&format!("report {file} -o page.html"), &[]);
        let page = fs::read_to_string(self.0.join("page.html")).unwrap();
        for part in parts {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        page
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A corpus of one program: text and numbers.
fn corpus(dir: &Path) {
    let pages: Vec<u8> = (0..4 * 65536_u32)
        .map(|i| {
            if i % 64 < 40 {
                b"every record looks much like the others."[(i % 64) as usize]
            } else {
                (i / 64 * 7919).to_le_bytes()[(i % 3) as usize]
            }
        })
        .collect();
    fs::write(dir.join("records.pages"), pages).unwrap();
}

#[test]
fn codecs_are_measured_on_a_corpus_and_reported() {
    let scratch = Scratch::new("codecs");
    corpus(&scratch.0);
    scratch.prints(
        "bench codecs --corpus . --codec lz4 --codec zstd:1 --rounds 2 --json c.json",
        &[
            "| kernel lz4 | 4K |",
            "| lz4 | 16K |",
            "| zstd:1 | 64K |",
            "| records |",
            "Medians of 2 round(s)",
        ],
    );
    scratch.report("c.json", &["zstd:1", "bench codecs --corpus . --codec lz4"]);
}

#[test]
fn what_cannot_be_used_ends_with_one_line_and_status_2() {
    let scratch = Scratch::new("refused");
    let dir = &scratch.0;
    fs::create_dir(dir.join("empty")).unwrap();
    fs::create_dir(dir.join("short")).unwrap();
    fs::write(dir.join("short/x.pages"), [1; 5000]).unwrap();
    fs::write(dir.join("other.json"), "{\"format\": \"something else\"}").unwrap();
    fs::write(
        dir.join("cut.json"),
        "{\"format\": \"uzswap-bench\", \"version\"",
    )
    .unwrap();
    for (words, part) in [
        ("report other.json", "not written by"),
        ("report cut.json", "cut short"),
        ("report gone.json", "cannot read"),
        ("bench codecs --corpus gone", "cannot read the corpus"),
        ("bench codecs --corpus empty", "holds no .pages files"),
        ("bench codecs --corpus short", "is cut short"),
        ("bench usemem --corpus short", "is cut short"),
        ("bench disk --corpus gone", "cannot read the corpus"),
        ("bench usemem --peer native --mib 1048576", "do not fit"),
        ("bench disk --peer windows", "windows"),
        ("bench alloc --frees newest", "newest"),
        ("bench alloc --quick --threads 1024 --order 9", "too few"),
    ] {
        let done = scratch.uzswap(words);
        let line = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{words}: {line}");
        assert!(
            line.starts_with("uzswap: ") && line.contains(part),
            "{words}: {line}"
        );
        assert_eq!(line.lines().count(), 1, "{words}: {line}");
    }
    assert!(!dir.join("report.html").exists());
}

#[test]
fn the_work_program_is_the_binary_itself() {
    let parts = ["\"threads\":2", "us_per_access"];
    Scratch::new("work").prints("bench work --mib 16 --threads 2", &parts);
}

#[test]
fn usemem_runs_beside_whom_it_is_told() {
    let scratch = Scratch::new("usemem");
    scratch.prints(
        "bench usemem --peer native --mib 64 --rounds 1 --json u.json",
        &[
            "| figure | job | native | uzswap, auto |\n",
            "| random, µs per access | 1 thread |",
            "| fill, CPU s | 2 threads |",
        ],
    );
    scratch.report("u.json", &["Waiting for a page", "<svg"]);
}

#[test]
fn disk_and_usemem_work_on_pages_of_real_programs() {
    let scratch = Scratch::new("real");
    corpus(&scratch.0);
    for (suite, mib) in [("disk", "63"), ("usemem", "64")] {
        scratch.prints(
            &format!("bench {suite} --corpus . --peer native --mib 64 --quick"),
            &[
                &format!("{mib} MiB of the pages of real programs"),
                "| random, µs per access | 2 threads |",
            ],
        );
    }
}

#[test]
fn uzswap_is_compared_with_itself_by_folio_size_and_same_filled_pages() {
    let scratch = Scratch::new("itself");
    for (suite, parts) in [
        (
            "store",
            ["| throughput, MB/s | zstd:1 |", "2M folios ÷ 4K folios"],
        ),
        (
            "same-filled",
            [
                "| a page loaded, µs | the page alone, zstd:1 |",
                "recognised ÷ compressed",
            ],
        ),
    ] {
        let words = format!("bench {suite} --mib 64 --rounds 1 --json {suite}.json");
        scratch.prints(&words, &parts);
        let page = scratch.report(&format!("{suite}.json"), &["<svg"]);
        assert!(!page.contains("NaN"), "{page}");
    }
}

#[test]
fn slot_allocators_are_compared_and_reported() {
    let scratch = Scratch::new("alloc");
    scratch.prints(
        "bench alloc --quick --threads 2 --order 0,9 --frees random --json a.json",
        &[
            "| free and alloc, order 0, millions/s | 2 threads, random, 75 % in use |",
            "| waiting, order 9, % of the threads' time |",
            "uzswap ÷ one lock",
        ],
    );
    scratch.report("a.json", &["Swap slots, order 9", "<svg"]);
}

#[test]
fn a_project_is_built_with_less_memory() {
    let scratch = Scratch::new("build");
    let dir = &scratch.0;
    let done = scratch.uzswap("bench build --quick --peer native --json b.json");
    let stderr = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(2) && stderr.contains("installed") {
        eprintln!("SKIPPED {stderr}");
        return;
    }
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    for part in [
        "| figure | job | native | uzswap, auto |",
        "| time, s | make -j2 |",
        "| processor time, CPU s | make -j2 |",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // Each of two compilers got less than both took natively.
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("b.json")).unwrap()).unwrap();
    let ram = |side: &str| {
        let mut runs = json["suites"][0]["runs"].as_array().unwrap().iter();
        let run = runs.find(|run| run["side"] == side).unwrap();
        run["values"]["ram_mib"].as_f64().unwrap()
    };
    assert!(ram("uzswap") < ram("native"), "{json}");
    scratch.report("b.json", &["Compiling a C project", "<svg"]);
}

/// What the kernel's sides change, while no tool that shares their lock changes it.
fn machine() -> String {
    let lock = fs::File::create("/run/kernel-zswap-run.lock").unwrap();
    // SAFETY: no memory effects.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let mut state = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let parameters = [
        "compressor",
        "enabled",
        "max_pool_percent",
        "shrinker_enabled",
        "accept_threshold_percent",
    ];
    for name in parameters {
        let path = Path::new("/sys/module/zswap/parameters").join(name);
        state += &fs::read_to_string(path).unwrap_or_default();
    }
    state += &fs::read_to_string("/proc/sys/vm/page-cluster").unwrap_or_default();
    let mut names = Vec::new();
    for dir in ["/sys/block", "/var/tmp"] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        names.extend(entries.map(|entry| entry.file_name().into_string().unwrap()));
    }
    names.retain(|name| name.starts_with("zram") || name.starts_with("uzswap-bench"));
    names.sort();
    state + &names.join(" ")
}

/// Why the kernel's sides cannot be measured here, if so.
fn kernel_is_not_to_be_had() -> Option<&'static str> {
    // SAFETY: no memory effects.
    if unsafe { libc::geteuid() } != 0 {
        return Some("needs root");
    }
    if !Path::new("/sys/module/zswap").exists() {
        return Some("this kernel has no zswap");
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    (swaps.lines().count() > 1).then_some("a swap device is in use, or another test uses one")
}

#[test]
fn the_kernels_sides_leave_the_machine_as_it_was() {
    if let Some(why) = kernel_is_not_to_be_had() {
        eprintln!("SKIPPED {why}");
        return;
    }
    let scratch = Scratch::new("kernel");
    let before = machine();
    // Killed with no chance to put anything back …
    let mut killed = Command::new(env!("CARGO_BIN_EXE_uzswap"))
        .args(["bench", "usemem", "--peer", "kernel-zswap", "--mib", "1024"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let swap = format!("uzswap-bench.{}.swap", killed.id());
    let swaps_to_it = || fs::read_to_string("/proc/swaps").is_ok_and(|text| text.contains(&swap));
    while !swaps_to_it() {
        if let Some(status) = killed.try_wait().unwrap() {
            eprintln!("SKIPPED somebody else has the kernel's swap ({status})");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_ne!(machine(), before);
    // … the next run does it, and puts back its own changes, too.
    let mut peers = "kernel-zswap,kernel-swap".to_owned();
    if Path::new("/sys/class/zram-control").exists() {
        peers += ",zram";
    }
    let done = scratch.uzswap(&format!("bench usemem --mib 64 --rounds 1 --peer {peers}"));
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{done:?}");
    assert!(stderr.contains("restoring settings"), "{stderr}");
    assert!(!stderr.contains("could not undo"), "{stderr}");
    assert_eq!(machine(), before);
    let text = String::from_utf8_lossy(&done.stdout);
    for peer in peers.split(',') {
        let name = peer.replace("zram", "kernel zram").replace('-', " ");
        assert!(
            text.contains(&format!("÷ {name}")) || stderr.contains("SKIPPED"),
            "{name} in\n{text}\n{stderr}"
        );
    }
}

/// Skipped, visibly, where neither server is installed.
#[test]
fn remote_reads_are_beside_a_client_that_does_nothing_else() {
    let installed = |name: &str| Path::new("/usr/bin").join(name).exists();
    if !installed("redis-server") {
        eprintln!("SKIPPED bench remote: redis-server is not installed");
        return;
    }
    let scratch = Scratch::new("remote");
    scratch.prints(
        "bench remote --quick --threads 2 --delay 0.2 --mib 96 --json r.json",
        &[
            "| half within, µs | pages, 2 threads, + 0.2 ms |",
            "redis ÷ bare GETRANGE",
            "| the broker's processor time, µs per page | streams, 2 threads, + 0.2 ms |",
            "| time, s | job, + 0.2 ms |",
        ],
    );
    scratch.report("r.json", &["Waiting for a page", "<svg"]);
    let done = scratch.uzswap("bench remote --delay 2000");
    assert_eq!(done.status.code(), Some(2));
}
