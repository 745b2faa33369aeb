//! Each typed wrapper does on the real kernel what its documentation says.
#![cfg(not(miri))]

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use uzswap_sys::mem::{self, IoVec, SelfMadvise};
use uzswap_sys::{Errno, PAGE_SIZE, arch, file, fmt, futex, nr, signal, syscall, thread};

const RW: i32 = mem::PROT_READ | mem::PROT_WRITE;
const ANON: i32 = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS;

fn map(pages: usize) -> usize {
    // SAFETY: a new mapping, where the kernel likes.
    unsafe { mem::mmap(0, pages * PAGE_SIZE, RW, ANON, -1, 0) }.expect("mmap")
}

fn word(addr: usize) -> *mut u64 {
    std::ptr::with_exposed_provenance_mut(addr)
}

#[test]
fn errors_come_back_as_numbers_and_leave_errno_alone() {
    let before = std::io::Error::last_os_error().raw_os_error();
    let failed = file::openat(file::AT_FDCWD, c"/no/such/file", file::O_RDONLY, 0);
    assert_eq!(failed, Err(Errno::ENOENT));
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), before);
    assert_eq!(
        format!("{:?} {:?}", Errno::EAGAIN, Errno(4000)),
        "EAGAIN errno 4000"
    );
    assert_eq!(
        Errno::ENOSYS.to_string(),
        "not implemented by this kernel (ENOSYS)"
    );
    // SAFETY: no such descriptor: nothing is closed.
    let raw = unsafe { syscall::call_raw(nr::CLOSE, [usize::MAX, 0, 0, 0, 0, 0]) };
    assert_eq!(raw, -9);
    // A large address is a value, not an error.
    assert_eq!(syscall::from_raw(-4096), Ok(usize::MAX - 4095));
}

#[test]
fn memory_is_mapped_protected_moved_and_given_back() {
    let addr = map(4);
    // SAFETY: the first page of the test's own mapping, aligned, and readable all the while.
    unsafe {
        word(addr).write(7);
        assert_eq!(mem::mprotect(addr, PAGE_SIZE, mem::PROT_READ), Ok(()));
        assert_eq!(word(addr).read(), 7);
        assert_eq!(mem::mprotect(addr, PAGE_SIZE, RW), Ok(()));
    }
    let mut residency = [0u8; 4];
    mem::mincore(addr, 4 * PAGE_SIZE, &mut residency).expect("mincore");
    assert_eq!(residency.map(|r| r & 1), [1, 0, 0, 0]);
    // SAFETY: the test's own mapping, into which it holds no reference.
    let moved = unsafe {
        mem::mremap(addr, 4 * PAGE_SIZE, 64 * PAGE_SIZE, mem::MREMAP_MAYMOVE, 0).expect("mremap")
    };
    // SAFETY: the first page of the test's own mapping, aligned and readable; no reference into it
    // is held.
    unsafe {
        assert_eq!(word(moved).read(), 7);
        assert_eq!(mem::madvise(moved, PAGE_SIZE, mem::MADV_DONTNEED), Ok(()));
        assert_eq!(word(moved).read(), 0);
    }
    if let Err(errno) = mem::mlock(moved, PAGE_SIZE) {
        println!("mlock refused here: {errno}");
    } else {
        assert_eq!(mem::munlock(moved, PAGE_SIZE), Ok(()));
    }
    // SAFETY: the test's own mapping, which it does not touch again.
    unsafe { mem::munmap(moved, 64 * PAGE_SIZE) }.expect("munmap");
    let gone = mem::mincore(moved, PAGE_SIZE, &mut residency);
    assert_eq!(gone, Err(Errno::ENOMEM));
    assert_eq!(
        // SAFETY: refused: that is not the start of a page.
        unsafe { mem::mmap(1, PAGE_SIZE, RW, ANON | mem::MAP_FIXED, -1, 0) },
        Err(Errno::EINVAL)
    );
}

/// All ranges are dropped whatever the kernel can do, and a hole fails but does not spoil the rest.
#[test]
fn vectored_advice_gives_the_same_result_both_ways() {
    let probed = mem::probe_vectored_dontneed();
    println!("this kernel: {probed:?}");
    for how in [SelfMadvise::OneByOne, SelfMadvise::Vectored] {
        let addr = map(64);
        let ranges: Vec<IoVec> = (0..32)
            .map(|i| IoVec {
                base: addr + 2 * i * PAGE_SIZE,
                len: PAGE_SIZE,
            })
            .collect();
        for i in 0..64 {
            // SAFETY: a page of the test's own mapping, aligned and writable.
            unsafe { word(addr + i * PAGE_SIZE).write(i as u64 + 1) };
        }
        // SAFETY: the ranges lie in the test's own mapping, into which it holds no reference.
        unsafe { mem::madvise_vectored_self(how, &ranges, mem::MADV_DONTNEED) }.expect("advise");
        for i in 0..64 {
            let expected = if i % 2 == 0 { 0 } else { i as u64 + 1 };
            assert_eq!(
                // SAFETY: a page of the test's own mapping, aligned and readable.
                unsafe { word(addr + i * PAGE_SIZE).read() },
                expected,
                "{how:?}"
            );
        }
        // A hole at range 5: the error is reported, ranges before it are done.
        for i in 0..64 {
            // SAFETY: a page of the test's own mapping, aligned and writable.
            unsafe { word(addr + i * PAGE_SIZE).write(9) };
        }
        // SAFETY: a page of the test's own mapping, which it does not touch again.
        unsafe { mem::munmap(addr + 10 * PAGE_SIZE, PAGE_SIZE) }.expect("munmap");
        // SAFETY: the ranges lie in the test's own mapping, or where nothing is.
        let result = unsafe { mem::madvise_vectored_self(how, &ranges, mem::MADV_DONTNEED) };
        assert_eq!(result, Err(Errno::ENOMEM), "{how:?}");
        // SAFETY: a page of the test's own mapping, before the hole.
        assert_eq!(unsafe { word(addr + 8 * PAGE_SIZE).read() }, 0);
        // SAFETY: the test's own mapping, which it does not touch again.
        unsafe { mem::munmap(addr, 64 * PAGE_SIZE) }.expect("munmap");
    }
}

#[test]
fn process_madvise_tells_how_much_it_advised() {
    let addr = map(2);
    let ranges = [IoVec {
        base: addr,
        len: 2 * PAGE_SIZE,
    }];
    // SAFETY: the test's own mapping, aligned and writable.
    unsafe { word(addr).write(1) };
    // SAFETY: this process's own mapping, and advice that keeps what is in it.
    match unsafe { mem::process_madvise(&ranges, mem::MADV_COLD) } {
        Ok(done) => assert_eq!(done, 2 * PAGE_SIZE),
        Err(errno) => println!("process_madvise refused: {errno}"),
    }
    // SAFETY: the test's own mapping, which it does not touch again.
    unsafe { mem::munmap(addr, 2 * PAGE_SIZE) }.expect("munmap");
}

#[test]
fn files_are_written_read_and_described() {
    let fd = file::memfd_create(c"uzswap-sys-test", file::MFD_CLOEXEC).expect("memfd");
    file::write_all(fd, b"hello").expect("write");
    assert_eq!(file::pwrite(fd, b"J", 0), Ok(1));
    let mut buf = [0u8; 16];
    assert_eq!(file::pread(fd, &mut buf, 0), Ok(5));
    assert_eq!(&buf[..5], b"Jello");
    assert_eq!(file::pwrite(fd, b"!", 9_999), Ok(1));
    let stat = file::fstat(fd).expect("fstat");
    assert_eq!(
        (stat.st_size, stat.st_mode & file::S_IFMT),
        (10_000, file::S_IFREG)
    );
    assert!(stat.st_blksize >= 512);
    let copy = file::dupfd_cloexec(fd, 300).expect("dup");
    assert!(copy >= 300);
    assert_eq!(file::fcntl(copy, file::F_GETFD, 0), Ok(1));
    assert_eq!(file::fstat(copy).expect("fstat").st_ino, stat.st_ino);
    let mut poll = [file::PollFd {
        fd: copy,
        events: file::POLLIN,
        revents: 0,
    }];
    assert_eq!(
        file::poll(&mut poll, Some(&thread::Timespec::from_nanos(1_000_000))),
        Ok(1)
    );
    file::close(copy).expect("close");
    assert_eq!(file::close(copy), Err(Errno::EBADF));
    file::close(fd).expect("close");
    let dir = file::fstatat(file::AT_FDCWD, c"/", 0).expect("fstatat");
    assert_eq!(dir.st_mode & file::S_IFMT, file::S_IFDIR);
    let mut random = [0u8; 32];
    file::getrandom(&mut random).expect("getrandom");
    assert_ne!(random, [0; 32]);
}

#[test]
fn a_waiter_sleeps_until_it_is_woken() {
    static WORD: AtomicU32 = AtomicU32::new(1);
    assert_eq!(futex::wait(&WORD, 0, None), Err(Errno::EAGAIN));
    let short = thread::Timespec::from_nanos(1_000_000);
    assert_eq!(futex::wait(&WORD, 1, Some(&short)), Err(Errno::ETIMEDOUT));
    let waiter = std::thread::spawn(|| {
        while WORD.load(Ordering::Acquire) == 1 {
            let _ = futex::wait(&WORD, 1, None);
        }
    });
    WORD.store(2, Ordering::Release);
    // Until it is gone: the wake-up may come before the wait.
    while !waiter.is_finished() {
        futex::wake(&WORD, u32::MAX);
        thread::sched_yield();
    }
    waiter.join().expect("join");
}

extern "C" fn add_to(arg: *mut std::ffi::c_void) {
    // SAFETY: `arg` is the static that the test gave to `spawn_raw`.
    let word = unsafe { &*arg.cast::<AtomicU32>() };
    word.fetch_add(41, Ordering::Relaxed);
    // A little stack and a system call, to see that both work there.
    let mut buf = fmt::StackBuf::<256>::new();
    let _ = write!(buf, "{}", thread::gettid());
    word.fetch_add(u32::from(!buf.as_str().is_empty()), Ordering::Relaxed);
}

#[test]
fn a_raw_thread_runs_on_its_own_stack_and_is_waited_for() {
    static ALIVE: AtomicU32 = AtomicU32::new(0);
    static SUM: AtomicU32 = AtomicU32::new(0);
    let stack = map(16);
    let old = signal::sigprocmask(signal::SIG_SETMASK, Some(signal::SigSet::FULL)).expect("mask");
    for _ in 0..20 {
        let arg = std::ptr::from_ref(&SUM).cast_mut().cast();
        // SAFETY: a plain mapping that nobody else uses until `ALIVE` is 0; `add_to` needs neither
        // thread-local storage nor the C library, and takes what `arg` is.
        let tid = unsafe { thread::spawn_raw(stack + 16 * PAGE_SIZE, add_to, arg, &ALIVE) }
            .expect("clone");
        assert!(tid > 0 && tid != thread::gettid());
        thread::wait_exit(&ALIVE);
        assert_eq!(ALIVE.load(Ordering::Acquire), 0);
    }
    signal::sigprocmask(signal::SIG_SETMASK, Some(old)).expect("mask");
    assert_eq!(SUM.load(Ordering::Relaxed), 20 * 42);
    // SAFETY: the last thread on it was waited for.
    unsafe { mem::munmap(stack, 16 * PAGE_SIZE) }.expect("munmap");
}

#[test]
fn threads_are_counted() {
    let nr = thread::nr_threads().expect("/proc");
    let real = std::fs::read_dir("/proc/self/task").expect("/proc").count() as u64;
    // Other tests start threads meanwhile.
    assert!(nr.abs_diff(real) <= 4, "{nr} {real}");
}

#[test]
fn cpu_number_and_clocks_agree_with_the_kernel() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = arch::current_cpu();
    println!("segment limit: {cpu:?}, {cpus} cpus");
    let mut kernel = 0u32;
    let agree = (0..1000).any(|_| {
        let ours = thread::sched_getcpu();
        // SAFETY: the kernel writes to `kernel` alone.
        unsafe { syscall::call3(nr::GETCPU, (&raw mut kernel).addr(), 0, 0) }.expect("getcpu");
        ours == kernel
    });
    assert!(agree);
    let (t0, c0) = (thread::monotonic_ns(), arch::ticks());
    assert_eq!(thread::nanosleep(2_000_000), Ok(()));
    let (t1, c1) = (thread::monotonic_ns(), arch::ticks());
    assert!(t1 - t0 >= 2_000_000 && c1 > c0);
    assert!(thread::process_cpu_ns() > 0);
}

#[test]
fn a_line_is_cut_not_lost() {
    let mut buf = fmt::StackBuf::<8>::new();
    write!(buf, "äöü").expect("never fails");
    write!(buf, "ß-").expect("never fails");
    assert_eq!((buf.as_str(), buf.truncated()), ("äöüß", true));
    write!(buf, "x").expect("never fails");
    assert_eq!(buf.as_str(), "äöüß");
    assert!(buf.as_c_str().is_none());
    buf.clear();
    write!(buf, "abc").expect("never fails");
    assert_eq!(buf.as_c_str(), Some(c"abc"));

    let fd = file::memfd_create(c"lines", 0).expect("memfd");
    fmt::write_line(fd, format_args!("uzswap: {}", 5)).expect("write");
    fmt::write_line(fd, format_args!("{}", "y".repeat(4000))).expect("write");
    let mut buf = [0u8; 1024];
    let n = file::pread(fd, &mut buf, 0).expect("read");
    assert_eq!(n, 10 + 512);
    assert!(buf.starts_with(b"uzswap: 5\nyyy"));
    assert_eq!(buf[n - 1], b'\n');
    file::close(fd).expect("close");
}
