//! System calls on memory that is out: with the guard they work by themselves, without it they fail
//! and a pin helps. Each story in a process of its own: the guard stays for good.
#![allow(
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "test data is cut to size on purpose"
)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use uzswap::{FaultMode, Pool, Region};

const LIMIT: u64 = 16 << 20;
const STORY: &str = "UZSWAP_TEST_STORY";

fn tell(story: &str) {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new(me);
    let status = command
        .args(["--exact", "stories", "--nocapture"])
        .env(STORY, story)
        .status();
    assert!(status.unwrap().success(), "{story}");
}

#[test]
fn stories() {
    match std::env::var(STORY).as_deref() {
        Ok("guard") => guarded(FaultMode::Auto),
        Ok("segv") => guarded(FaultMode::Segv),
        Ok("refused") => unguarded(),
        Ok("sockets") => sockets(),
        Ok("child") => children(),
        Ok("inherited") => inherited(),
        _ => {}
    }
}

#[test]
fn with_the_guard_they_work() {
    tell("guard");
}

#[test]
fn without_userfaultfd_too() {
    tell("segv");
}

#[test]
fn without_it_they_fail_and_a_pin_helps() {
    tell("refused");
}

#[test]
fn threads_wait_in_them() {
    tell("sockets");
}

#[test]
fn programs_that_are_started_do_not_mind() {
    tell("child");
}

fn filled(pool: &Pool, len: usize, stamp: u8) -> Region {
    let mut region = pool.map(len).unwrap();
    for (n, page) in region.chunks_mut(4096).enumerate() {
        page.fill(stamp.wrapping_add(n as u8));
        page[..8].copy_from_slice(&n.to_le_bytes());
    }
    region
}

fn scratch() -> (std::path::PathBuf, File) {
    let path = std::env::temp_dir().join(format!("uzswap-guard-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    (path, file.unwrap())
}

fn guarded(mode: FaultMode) {
    let pool = Pool::builder()
        .limit(LIMIT)
        .fault_mode(mode)
        .build()
        .unwrap();
    let region = filled(&pool, 2 * LIMIT as usize, 1);
    pool.evict(&region).unwrap();
    let (path, mut file) = scratch();
    // Larger than what may be pinned at once.
    file.write_all(&region).unwrap();
    assert!(fs::read(&path).unwrap() == *region, "what was written");
    let mut copy = pool.map(region.len()).unwrap();
    pool.evict(&copy).unwrap();
    let mut again = File::open(&path).unwrap();
    assert_eq!(
        again.read(&mut copy).unwrap(),
        region.len(),
        "of a file all that there is"
    );
    assert!(copy[..] == region[..], "what was read");
    fs::remove_file(&path).unwrap();
    let mut name = pool.map(4096).unwrap();
    name[..10].copy_from_slice(b"/dev/null\0");
    pool.evict(&name).unwrap();
    // SAFETY: a string, and a structure that is written.
    unsafe {
        let fd = libc::open(name.as_ptr().cast(), libc::O_RDONLY);
        assert!(fd >= 0, "a path");
        pool.evict(&name).unwrap();
        assert_eq!(libc::fstat(fd, name.as_mut_ptr().cast()), 0, "a result");
        let absent = libc::write(fd, pool.map(4096).unwrap().as_ptr().cast(), 4096);
        assert_eq!(absent, -1, "errors stay errors");
        libc::close(fd);
        pool.evict(&name).unwrap();
        let set = name.as_mut_ptr().cast::<libc::sigset_t>();
        libc::sigemptyset(set);
        libc::sigaddset(set, libc::SIGUSR1);
        pool.evict(&name).unwrap();
        assert_eq!(
            libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut()),
            0
        );
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut now);
        assert_eq!(
            libc::sigismember(&raw const now, libc::SIGUSR1),
            1,
            "a mask stays"
        );
    }
    let stats = pool.stats();
    assert!(stats.guarded_calls > 0 && stats.peak <= LIMIT, "{stats:?}");
}

fn unguarded() {
    let pool = Pool::builder().limit(LIMIT).guard(false).build().unwrap();
    let region = filled(&pool, 1 << 20, 1);
    pool.evict(&region).unwrap();
    let (path, file) = scratch();
    let write = || {
        // SAFETY: the kernel checks.
        unsafe { libc::write(file.as_raw_fd(), region.as_ptr().cast(), region.len()) }
    };
    assert_eq!(write(), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EFAULT)
    );
    let pinned = pool.pin(&region).unwrap();
    assert_eq!(write(), 1 << 20);
    drop(pinned);
    assert!(fs::read(&path).unwrap() == *region);
    fs::remove_file(&path).unwrap();
    assert_eq!(pool.stats().guarded_calls, 0);
}

/// Threads that began before the guard, and calls that wait while signals arrive.
fn sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let (send, pools) = std::sync::mpsc::channel::<Pool>();
    let reader = std::thread::spawn(move || {
        let pool = pools.recv().unwrap();
        let mut region = pool.map(4 << 20).unwrap();
        for _ in 0..8 {
            pool.evict(&region).unwrap();
            far.read_exact(&mut region).unwrap();
            assert!(
                region
                    .chunks(4096)
                    .zip(0_usize..)
                    .all(|(page, n)| page[..8] == n.to_le_bytes())
            );
        }
    });
    // SAFETY: a handler that does nothing.
    unsafe {
        extern "C" fn nothing(_: i32) {}
        let handler = nothing as extern "C" fn(i32) as usize;
        libc::signal(libc::SIGUSR1, handler);
    }
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    send.send(pool.clone()).unwrap();
    let region = filled(&pool, 4 << 20, 3);
    for _ in 0..8 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        // SAFETY: the thread is not joined yet.
        unsafe {
            use std::os::unix::thread::JoinHandleExt;
            libc::pthread_kill(reader.as_pthread_t(), libc::SIGUSR1);
        }
        pool.evict(&region).unwrap();
        near.write_all(&region).unwrap();
    }
    reader.join().unwrap();
}

fn children() {
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    let region = filled(&pool, 1 << 20, 1);
    let output = Command::new("/bin/echo").arg("fine").output().unwrap();
    assert_eq!(output.stdout, b"fine\n");
    // One that has pools of its own, and the filter already.
    let me = std::env::current_exe().unwrap();
    let error = Command::new(me)
        .args(["--exact", "stories", "--nocapture"])
        .env(STORY, "inherited")
        .exec();
    drop(region);
    panic!("{error}");
}

fn inherited() {
    // SAFETY: reads the process's own state.
    let seccomp = unsafe { libc::prctl(libc::PR_GET_SECCOMP) };
    assert_eq!(seccomp, 2, "the filter stays");
    let pool = Pool::builder().limit(LIMIT).guard(false).build().unwrap();
    let region = filled(&pool, 1 << 20, 1);
    pool.evict(&region).unwrap();
    let (path, mut file) = scratch();
    file.write_all(&region).unwrap();
    fs::remove_file(&path).unwrap();
    let second = Pool::builder().limit(LIMIT).build().unwrap();
    drop(filled(&second, 1 << 20, 2));
}
