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
        Ok("vectors") => vectors(FaultMode::Auto),
        Ok("vectors in segv mode") => vectors(FaultMode::Segv),
        Ok("messages") => messages(),
        Ok("pipes") => pipes(),
        Ok("copies") => copies_by_the_kernel(),
        Ok("executed") => executed(),
        Ok("busy") => busy_while_it_comes(),
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

#[test]
fn vectors_of_buffers_work() {
    tell("vectors");
    tell("vectors in segv mode");
    tell("messages");
}

#[test]
fn a_pipe_takes_pages() {
    tell("pipes");
}

#[test]
fn the_kernel_copies_between_processes_that_are_one() {
    tell("copies");
}

#[test]
fn programs_get_arguments_that_are_out() {
    tell("executed");
}

#[test]
fn threads_in_the_midst_of_calls_do_not_notice() {
    tell("busy");
}

/// Whether the C library's calls with vectors can be guarded here.
fn vectors_are_served() -> bool {
    let served = uzswap::guard::serves_vectors();
    if !served {
        println!("skipped: this C library's calls with vectors of buffers are not guarded");
    }
    served
}

/// Buffers of a region that alternate with the test's own: a page of the one, 100 bytes of the other.
fn mixed(region: &[u8], own: &[u8]) -> Vec<libc::iovec> {
    let vector = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    region
        .chunks(4096)
        .zip(own.chunks(100))
        .flat_map(|(page, own)| [vector(page), vector(own)])
        .collect()
}

fn vectors(mode: FaultMode) {
    let pool = Pool::builder().limit(LIMIT).fault_mode(mode);
    let pool = pool.build().unwrap();
    if !vectors_are_served() {
        return;
    }
    let (source, own) = (filled(&pool, 400 * 4096, 1), vec![7_u8; 400 * 100]);
    let (path, file) = scratch();
    let (fd, len) = (file.as_raw_fd(), 400 * 4196_isize);
    let from = mixed(&source, &own);
    pool.evict(&source).unwrap();
    // SAFETY: the vectors name memory that lives, and the rest of the test looks at it.
    unsafe {
        assert_eq!(libc::writev(fd, from.as_ptr(), 800), len);
        pool.evict(&source).unwrap();
        assert_eq!(libc::pwritev(fd, from.as_ptr(), 800, len as i64), len);
        let (mut copy, mut rest) = (pool.map(400 * 4096).unwrap(), vec![0_u8; 400 * 100]);
        let to = mixed(&copy, &rest);
        pool.evict(&copy).unwrap();
        assert_eq!(libc::preadv(fd, to.as_ptr(), 800, 0), len);
        assert!(copy[..] == source[..] && rest == own, "preadv");
        copy.fill(0);
        rest.fill(0);
        pool.evict(&copy).unwrap();
        assert_eq!(libc::preadv2(fd, to.as_ptr(), 800, len as i64, 0), len);
        assert!(copy[..] == source[..] && rest == own, "preadv2");
        // One buffer longer than may be pinned at once, in a vector that lies in the pool itself.
        let large = filled(&pool, 2 * LIMIT as usize, 9);
        let mut vector = pool.map(4096).unwrap();
        vector
            .as_mut_ptr()
            .cast::<libc::iovec>()
            .write(libc::iovec {
                iov_base: large.as_ptr().cast_mut().cast(),
                iov_len: large.len(),
            });
        pool.evict(&vector).unwrap();
        libc::lseek(fd, 0, libc::SEEK_SET);
        let written = libc::writev(fd, vector.as_ptr().cast(), 1);
        assert_eq!(written, large.len().cast_signed());
        assert!(
            fs::read(&path).unwrap()[..large.len()] == large[..],
            "writev"
        );
        // What is wrong is still said by the kernel.
        assert_eq!(libc::writev(fd, std::ptr::dangling(), 1), -1);
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EFAULT)
        );
        assert_eq!(libc::writev(-1, vector.as_ptr().cast(), 1), -1);
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EBADF)
        );
        // A fork child, too.
        pool.evict(&source).unwrap();
        match libc::fork() {
            0 => libc::_exit(i32::from(libc::writev(fd, from.as_ptr(), 800) != len)),
            child => {
                let mut status = -1;
                libc::waitpid(child, &raw mut status, 0);
                assert_eq!(status, 0, "in a fork child");
            }
        }
    }
    assert!(pool.stats().guarded_calls >= 5, "{:?}", pool.stats());
    fs::remove_file(&path).unwrap();
}

fn messages() {
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    if !vectors_are_served() {
        return;
    }
    let source = filled(&pool, 4 << 20, 5);
    let copy = pool.map(4 << 20).unwrap();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let one = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let header = |vector: &libc::iovec| {
        // SAFETY: plain numbers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = std::ptr::from_ref(vector).cast_mut();
        header.msg_iovlen = 1;
        header
    };
    pool.evict(&source).unwrap();
    pool.evict(&copy).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let vector = one(&source);
            let header = header(&vector);
            // SAFETY: it names memory that lives.
            let sent = unsafe { libc::sendmsg(near.as_raw_fd(), &raw const header, 0) };
            assert_eq!(sent, 4 << 20, "a stream takes all");
        });
        let vector = one(&copy);
        let mut header = header(&vector);
        let flags = libc::MSG_WAITALL;
        // SAFETY: as above; nobody else has the copy.
        let got = unsafe { libc::recvmsg(far.as_raw_fd(), &raw mut header, flags) };
        assert_eq!(got, 4 << 20, "a read that waits for all");
    });
    assert!(copy[..] == source[..]);
    // Datagrams stay whole, and say where they are from.
    let (near, far) = std::os::unix::net::UnixDatagram::pair().unwrap();
    pool.evict(&source).unwrap();
    pool.evict(&copy).unwrap();
    // SAFETY: as above.
    unsafe {
        let vectors = mixed(&source[..10 * 4096], &[3; 1000]);
        let mut message: libc::mmsghdr = std::mem::zeroed();
        message.msg_hdr = header(&vectors[0]);
        message.msg_hdr.msg_iovlen = vectors.len();
        let sent = libc::sendmmsg(near.as_raw_fd(), &raw mut message, 1, 0);
        assert_eq!((sent, message.msg_len), (1, 10 * 4196));
        let vector = one(&copy[..1 << 20]);
        let mut header = header(&vector);
        let got = libc::recvmsg(far.as_raw_fd(), &raw mut header, 0);
        assert_eq!(got, 10 * 4196);
        assert!(copy[..4096] == source[..4096] && copy[4096] == 3);
        assert_eq!(header.msg_flags & libc::MSG_TRUNC, 0);
    }
    // A buffer that is longer than the limit, of a call with one.
    let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let large = filled(&pool, 2 * LIMIT as usize, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| near.write_all(&large).unwrap());
        let mut copy = pool.map(large.len()).unwrap();
        // SAFETY: the buffer is the call's for as long as it takes.
        let got = unsafe {
            libc::recv(
                far.as_raw_fd(),
                copy.as_mut_ptr().cast(),
                copy.len(),
                libc::MSG_WAITALL,
            )
        };
        assert_eq!(got, copy.len().cast_signed());
        assert!(copy[..] == large[..]);
    });
}

fn vector_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn pipes() {
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    if !vectors_are_served() {
        return;
    }
    // A pipe holds sixteen pages, or pieces of them.
    let (source, own) = (filled(&pool, 6 * 4096, 1), vec![7_u8; 6 * 100]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut expected = Vec::new();
    for (page, own) in source.chunks(4096).zip(own.chunks(100)) {
        expected.extend_from_slice(page);
        expected.extend_from_slice(own);
    }
    let from = mixed(&source, &own);
    pool.evict(&source).unwrap();
    // SAFETY: the vectors name memory that lives, and that nobody changes until it has been read.
    let given = unsafe { libc::vmsplice(writer.as_raw_fd(), from.as_ptr(), 12, 0) };
    assert_eq!(given, 6 * 4196, "vmsplice");
    // What the pipe holds stays, whatever becomes of the memory that it was given.
    pool.evict(&source).unwrap();
    let mut got = vec![0; 6 * 4196];
    reader.read_exact(&mut got).unwrap();
    assert!(got == expected);
    // The other way round.
    (&writer).write_all(&expected).unwrap();
    let (copy, rest) = (pool.map(6 * 4096).unwrap(), vec![0_u8; 6 * 100]);
    let to = mixed(&copy, &rest);
    pool.evict(&copy).unwrap();
    // SAFETY: as above; the buffers are this test's.
    let got = unsafe { libc::vmsplice(reader.as_raw_fd(), to.as_ptr(), 12, 0) };
    assert_eq!(got, 6 * 4196, "vmsplice from a pipe");
    assert!(copy[..] == source[..] && rest == own);
}

fn copies_by_the_kernel() {
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    let other = Pool::builder().limit(LIMIT).build().unwrap();
    if !vectors_are_served() {
        return;
    }
    // More than either pool may have resident, in vectors that are cut differently.
    let len = 2 * usize::try_from(LIMIT).unwrap();
    let (source, mut copy) = (filled(&pool, len, 1), other.map(len).unwrap());
    let pieces = |bytes: &[u8], size| bytes.chunks(size).map(vector_of).collect::<Vec<_>>();
    let (from, to) = (pieces(&source, 100_000), pieces(&copy, 70_000));
    let (nr_from, nr_to) = (from.len() as u64, to.len() as u64);
    let whole = len.cast_signed();
    // SAFETY: the vectors name memory that lives.
    unsafe {
        let own = libc::getpid();
        let read = libc::process_vm_readv(own, to.as_ptr(), nr_to, from.as_ptr(), nr_from, 0);
        assert_eq!(read, whole, "process_vm_readv");
        assert!(copy[..] == source[..]);
        copy.fill(0);
        other.evict(&copy).unwrap();
        pool.evict(&source).unwrap();
        let written = libc::process_vm_writev(own, from.as_ptr(), nr_from, to.as_ptr(), nr_to, 0);
        assert_eq!(written, whole, "process_vm_writev");
        assert!(copy[..] == source[..]);
        // A child, as it sees its parent: what is resident there.
        let mut word = [0_u8; 8];
        let ours = vector_of(&mut word[..]);
        let theirs = vector_of(&source[4096..4104]);
        match libc::fork() {
            0 => {
                let read = libc::process_vm_readv(own, &raw const ours, 1, &raw const theirs, 1, 0);
                let right = read == 8 && word == 1_usize.to_le_bytes();
                let errno = *libc::__errno_location();
                libc::_exit(i32::from(
                    !right && errno != libc::EFAULT && errno != libc::EPERM,
                ));
            }
            child => assert_eq!(wait(child), 0, "of another process"),
        }
    }
    assert!(pool.stats().peak <= LIMIT && other.stats().peak <= LIMIT);
    assert!(pool.stats().guarded_calls > 0, "{:?}", pool.stats());
}

fn wait(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: the status is written.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}

/// Arguments of `printf`, a string of many pages among them, and an environment, all in a region,
/// with the vectors behind: their addresses.
fn arguments(region: &mut Region) -> (*const libc::c_char, [*const *const libc::c_char; 2]) {
    let long = "x".repeat(100_000);
    let [path, strings @ ..] = ["/usr/bin/printf", "printf", "%s.%s", "first", &long, "A=1"];
    let base = region.as_ptr() as usize;
    let mut at = 0;
    let mut put = |text: &str| {
        let start = at;
        region[at..at + text.len()].copy_from_slice(text.as_bytes());
        // On pages of their own.
        at = (at + text.len() + 1).next_multiple_of(4096);
        base + start
    };
    let path = put(path);
    let strings = strings.map(&mut put);
    let vectors = [&strings[..4], &strings[4..]].map(|strings| {
        let start = at;
        for (n, address) in strings.iter().chain([&0]).enumerate() {
            let place = start + n * 8;
            region[place..place + 8].copy_from_slice(&address.to_le_bytes());
        }
        at = (at + 1).next_multiple_of(4096);
        (base + start) as *const *const libc::c_char
    });
    (path as *const libc::c_char, vectors)
}

/// Starts a child that executes something, with `output` as its standard output.
///
/// # Safety
/// `exec` does nothing that a fork child must not.
unsafe fn fork_and(output: i32, exec: &dyn Fn()) -> libc::pid_t {
    // SAFETY: the caller's promise.
    unsafe {
        match libc::fork() {
            0 => {
                libc::dup2(output, 1);
                exec();
                libc::_exit(1)
            }
            child => child,
        }
    }
}

fn executed() {
    let pool = Pool::builder().limit(LIMIT).build().unwrap();
    if !vectors_are_served() {
        return;
    }
    let mut region = pool.map(64 * 4096).unwrap();
    let (path, [argv, envp]) = arguments(&mut region);
    let printed = format!("first.{}", "x".repeat(100_000));
    let run = |what: &str, start: &dyn Fn(i32) -> libc::pid_t| {
        let (mut reader, writer) = std::io::pipe().unwrap();
        pool.evict(&region).unwrap();
        let child = start(writer.as_raw_fd());
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(wait(child), 0, "{what}");
        assert!(text == printed, "{what}: {} bytes", text.len());
    };
    // SAFETY: a fork child does nothing but exec, and the addresses are those of strings.
    unsafe {
        let execve = || {
            let _ = libc::execve(path, argv, envp);
        };
        run("execve", &|output| fork_and(output, &execve));
        let raw = || {
            let _ = libc::syscall(libc::SYS_execve, path, argv, envp);
        };
        run("a call of its own", &|output| fork_and(output, &raw));
        let at = || {
            let _ = libc::syscall(libc::SYS_execveat, -1, path, argv, envp, 0);
        };
        run("execveat", &|output| fork_and(output, &at));
        // Only strings behind vectors of the test's own.
        let own: Vec<_> = (0..5).map(|n| *argv.add(n)).collect();
        let strings = || {
            drop(libc::execve(
                c"/usr/bin/printf".as_ptr(),
                own.as_ptr(),
                envp,
            ))
        };
        run("strings", &|output| fork_and(output, &strings));
        run("posix_spawn", &|output| {
            let mut actions = std::mem::zeroed();
            libc::posix_spawn_file_actions_init(&raw mut actions);
            libc::posix_spawn_file_actions_adddup2(&raw mut actions, output, 1);
            let (argv, envp) = (argv.cast::<*mut _>(), envp.cast::<*mut _>());
            let mut child = 0;
            let none = std::ptr::null();
            let child_at = &raw mut child;
            let failed = libc::posix_spawn(child_at, path, &raw const actions, none, argv, envp);
            libc::posix_spawn_file_actions_destroy(&raw mut actions);
            assert_eq!(failed, 0, "posix_spawn");
            child
        });
        // What is wrong is still said by the kernel, and nothing stays pinned.
        pool.evict(&region).unwrap();
        assert_eq!(libc::execve(c"/nonexistent".as_ptr(), argv, envp), -1);
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(libc::execve(path, std::ptr::dangling(), envp), -1);
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
    pool.evict(&region).unwrap();
    assert!(pool.stats().resident < 64 * 4096, "{:?}", pool.stats());
}

/// Threads that are making such calls, with all signals blocked, while the first pool is built.
fn busy_while_it_comes() {
    let ended = std::sync::atomic::AtomicBool::new(false);
    let ended = &ended;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                // SAFETY: the set is initialized by sigfillset; the buffers live.
                unsafe {
                    let mut all: libc::sigset_t = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
                    let file = File::options().write(true).open("/dev/null").unwrap();
                    let own = [1_u8; 4 * 4196];
                    let vectors = mixed(&own[..4 * 4096], &own[4 * 4096..]);
                    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                        let written = libc::writev(file.as_raw_fd(), vectors.as_ptr(), 8);
                        assert_eq!(written, 4 * 4196);
                    }
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let pool = Pool::builder().limit(LIMIT).build().unwrap();
        drop(filled(&pool, 1 << 20, 1));
        std::thread::sleep(std::time::Duration::from_millis(20));
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
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
