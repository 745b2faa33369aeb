//! Python objects, JSON and in-memory SQLite in a quarter of the memory, with the same output.

use uzswap_e2e::{Job, MIB, find_or_skip, users, workspace};

#[test]
fn objects_json_and_sqlite() {
    let Some(python) = find_or_skip("python3", "python3") else {
        return;
    };
    let job = Job::new(python)
        .arg(workspace().join("examples/group_by.py"))
        .words("--scale 0.3 --lookups 15000")
        .ram_mib(80);
    let native = job.native().expect_success("group_by.py alone");
    for &user in users() {
        let managed = job
            .clone()
            .user(user)
            .managed()
            .expect_success("group_by.py in 80 MiB");
        managed.expect_same_output(&native);
        managed.expect_within(40 * MIB);
        managed.expect_quarter_of(&native);
    }
}

/// Threads, subprocesses, a process pool that forks, pipes and big reads into bytes.
#[test]
fn threads_and_process_pools() {
    let Some(python) = find_or_skip("python3", "python3") else {
        return;
    };
    const STORY: &str = r#"
import concurrent.futures, hashlib, multiprocessing, os, subprocess, sys, tempfile, zlib

def work(n):
    rows = [f"row {i} of block {n}: " + "abcdefgh" * 10 for i in range(40_000)]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12]

def main():
    keep = [bytearray(f"page {i} ".encode() * 500) for i in range(20_000)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print("threads", list(pool.map(work, range(8))))
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print("forked", pool.map(work, range(6)))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("spawned", pool.map(work, range(2)))
    big = b"".join(bytes(b) for b in keep)
    out = subprocess.run(["cat"], input=big, stdout=subprocess.PIPE, check=True).stdout
    print("through cat", len(out), out == big)
    with tempfile.TemporaryFile() as f:
        f.write(big)
        f.seek(0)
        back = bytearray(len(big))
        n = f.readinto(back)
        print("through a file", n, back == big)
        vec = [bytearray(100_000) for _ in range(50)]
        print("readv", os.preadv(f.fileno(), vec, 12345), zlib.crc32(b"".join(vec)))
    r, w = os.pipe()
    if os.fork() == 0:
        os.close(r)
        view = memoryview(big)
        while view:
            view = view[os.write(w, view):]
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        print("through a pipe from a child", f.read() == big)
    os.wait()
    print("kept", all(b == f"page {i} ".encode() * 500 for i, b in enumerate(keep)))

if __name__ == "__main__":
    main()
"#;
    let scratch = uzswap_e2e::Scratch::new();
    let job = Job::new(python)
        .arg(scratch.write("story.py", STORY))
        .ram_mib(64);
    let native = job.native().expect_success("the story alone");
    for &user in users() {
        let managed = job
            .clone()
            .user(user)
            .managed()
            .expect_success("the story in 64 MiB");
        managed.expect_same_output(&native);
    }
}
