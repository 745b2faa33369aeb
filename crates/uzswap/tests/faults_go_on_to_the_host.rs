//! Faults that are not a pool's reach the handler that the host had before, and a handler that the
//! host installs later is put up with. Each story in a process of its own, as it changes signal
//! handlers or ends by a signal.
#![allow(
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "test data is cut to size on purpose"
)]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use uzswap::{FaultMode, Pool, Swap, faults};

const LIMIT: u64 = 16 << 20;
const STORY: &str = "UZSWAP_TEST_STORY";

/// Runs `story` of this program in a process of its own.
fn tell(story: &str) -> ExitStatus {
    let me = std::env::current_exe().unwrap();
    let status = Command::new(me)
        .args(["--exact", "stories", "--nocapture"])
        .env(STORY, story)
        .status();
    status.unwrap()
}

#[test]
fn stories() {
    match std::env::var(STORY).as_deref() {
        Ok("chain") => a_host_handler_gets_its_own(),
        Ok("replaced") => a_later_handler_is_put_up_with(),
        Ok("default") => touch_beyond_a_file(),
        Ok("unmapped") => touch_what_is_given_back(),
        Ok("over") => touch_more_than_fits(FaultMode::Auto),
        Ok("over in thread mode") => touch_more_than_fits(FaultMode::Thread),
        Ok("over and caught") => catch_what_does_not_fit(),
        Ok("occupied") => the_host_has_memory_there(),
        Ok("blocked") => a_thread_blocks_the_signal(),
        Ok("blocked before") => a_thread_had_blocked_the_signal(),
        _ => {}
    }
}

#[test]
fn a_host_that_has_a_handler_keeps_it() {
    assert!(tell("chain").success());
}

#[test]
fn a_handler_that_comes_later_is_told_of_and_put_behind() {
    assert!(tell("replaced").success());
}

#[test]
fn other_faults_end_as_they_did() {
    assert_eq!(tell("default").signal(), Some(libc::SIGBUS));
    assert_eq!(tell("unmapped").signal(), Some(libc::SIGSEGV));
}

#[test]
fn what_does_not_fit_ends_in_sigbus() {
    assert_eq!(tell("over").signal(), Some(libc::SIGBUS));
}

#[test]
fn so_it_does_in_thread_mode() {
    assert_eq!(tell("over in thread mode").signal(), Some(libc::SIGBUS));
    assert!(tell("over and caught").success());
}

#[test]
fn addresses_that_the_host_has_are_passed_over() {
    assert!(tell("occupied").success());
}

#[test]
fn threads_that_block_all_signals_are_served() {
    assert!(tell("blocked").success());
    assert!(tell("blocked before").success());
}

fn built() -> Pool {
    Pool::builder().limit(LIMIT).build().unwrap()
}

fn use_up(pool: &Pool) {
    let mut region = pool.map(2 * LIMIT as usize).unwrap();
    for (n, page) in region.chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&n.to_le_bytes());
    }
    for (n, page) in region.chunks(4096).enumerate() {
        assert_eq!(page[..8], n.to_le_bytes());
    }
}

/// A page of a file that ends before it: SIGBUS.
fn beyond_a_file() -> *mut u8 {
    // SAFETY: a fresh mapping of an empty file.
    unsafe {
        let fd = libc::memfd_create(c"empty".as_ptr(), 0);
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), 4096, prot, flags, fd, 0).cast()
    }
}

fn touch_beyond_a_file() {
    let pool = built();
    use_up(&pool);
    // SAFETY: it faults, as it is meant to.
    unsafe { beyond_a_file().write_volatile(1) };
}

fn touch_what_is_given_back() {
    let pool = built();
    let region = pool.map(1 << 20).unwrap();
    let at = region.as_ptr();
    drop(region);
    // SAFETY: it faults, as it is meant to.
    println!("{}", unsafe { at.read_volatile() });
}

fn touch_more_than_fits(mode: FaultMode) {
    let pool = Pool::builder()
        .limit(LIMIT)
        .swap(Swap::None)
        .fault_mode(mode)
        .build()
        .unwrap();
    let mut region = pool.map(4 * LIMIT as usize).unwrap();
    let mut x = 1_u64;
    for word in region.chunks_exact_mut(8) {
        word.copy_from_slice(&random(&mut x).to_le_bytes());
    }
}

/// A host whose handler raises the limit: nothing is lost.
fn catch_what_does_not_fit() {
    extern "C" fn make_room(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's information; the pool is leaked.
        unsafe {
            let at = (*info).si_addr() as usize;
            let pool = &*(POOL.load(SeqCst) as *const Pool);
            if CAUGHT.fetch_add(1, SeqCst) > 0 || !pool.contains(at as *const u8) {
                libc::_exit(1);
            }
            pool.set_limit(8 * LIMIT).unwrap();
        }
    }
    install(make_room);
    let pool = Pool::builder().limit(LIMIT).swap(Swap::None);
    let pool = pool.fault_mode(FaultMode::Thread).build().unwrap();
    let pool: &Pool = Box::leak(Box::new(pool));
    POOL.store(std::ptr::from_ref(pool) as usize, SeqCst);
    let mut region = pool.map(4 * LIMIT as usize).unwrap();
    let mut x = 1_u64;
    for word in region.chunks_exact_mut(8) {
        word.copy_from_slice(&random(&mut x).to_le_bytes());
    }
    x = 1;
    let right = region
        .chunks_exact(8)
        .all(|word| word == random(&mut x).to_le_bytes());
    assert!(right && CAUGHT.load(SeqCst) == 1);
}

fn random(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

static POOL: AtomicUsize = AtomicUsize::new(0);

static CAUGHT: AtomicU32 = AtomicU32::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// Maps memory where there was none, as hosts do that read files by their addresses.
extern "C" fn map_there(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CAUGHT.fetch_add(1, SeqCst);
    // SAFETY: the kernel's information; the page is the test's own.
    unsafe {
        let at = (*info).si_addr();
        ADDRESS.store(at as usize, SeqCst);
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        libc::mmap(
            ((at as usize) & !4095) as *mut _,
            4096,
            prot,
            flags | libc::MAP_FIXED,
            -1,
            0,
        );
    }
}

fn install(handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)) {
    // SAFETY: a handler of that form.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

fn fault_of_the_host() {
    let (before, at) = (CAUGHT.load(SeqCst), beyond_a_file());
    // SAFETY: the handler maps memory there.
    unsafe { at.add(5).write_volatile(7) };
    // SAFETY: as above.
    assert_eq!(unsafe { at.add(5).read_volatile() }, 7);
    assert_eq!(CAUGHT.load(SeqCst), before + 1);
    assert_eq!(ADDRESS.load(SeqCst) & !4095, at as usize);
}

fn a_host_handler_gets_its_own() {
    install(map_there);
    let pool = built();
    for _ in 0..3 {
        use_up(&pool);
        fault_of_the_host();
    }
    // Signals that are sent, too.
    // SAFETY: the handler returns.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(CAUGHT.load(SeqCst), 4);
}

fn a_later_handler_is_put_up_with() {
    let pool = built();
    use_up(&pool);
    faults::check().unwrap();
    install(map_there);
    let replaced = faults::check().unwrap_err();
    assert_eq!(replaced.signal, libc::SIGBUS);
    assert!(replaced.to_string().contains("reinstall"), "{replaced}");
    faults::reinstall().unwrap();
    faults::check().unwrap();
    use_up(&pool);
    fault_of_the_host();
    install(map_there);
    let other = built();
    faults::check().expect("a new pool does so");
    use_up(&other);
    fault_of_the_host();
}

/// As the heap of Go's run-time, which lies anywhere.
fn the_host_has_memory_there() {
    const FIRST_PLACES: [usize; 2] = [16 << 40, (16 << 40) + (300 << 30)];
    let maps = FIRST_PLACES.map(|at| {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping, which takes nothing away.
        unsafe {
            let at = libc::mmap(
                at as *mut _,
                4096,
                prot,
                flags | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            );
            at.cast::<u8>().write_volatile(7);
            at.cast::<u8>()
        }
    });
    let pool = built();
    use_up(&pool);
    let file = std::fs::File::create("/dev/null").unwrap();
    for at in maps {
        // SAFETY: mapped above; the kernel reads it, too.
        unsafe {
            assert!(!pool.contains(at) && at.read_volatile() == 7);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            assert_eq!(libc::write(fd, at.cast(), 4096), 4096);
        }
    }
}

/// As a library's worker does.
fn block_all() {
    // SAFETY: the set is initialized by sigfillset.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

fn a_thread_blocks_the_signal() {
    let pool = Pool::builder().limit(LIMIT).fault_mode(FaultMode::Signal);
    let pool = pool.build().unwrap();
    block_all();
    if !uzswap::guard::serves_vectors() {
        // Another C library: its masks are not looked at.
        faults::unblock();
    }
    use_up(&pool);
    // The others are blocked.
    // SAFETY: the set is initialized by the call.
    unsafe {
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut now);
        assert_eq!(libc::sigismember(&raw const now, libc::SIGUSR1), 1);
        assert_eq!(libc::sigismember(&raw const now, libc::SIGBUS), 0);
    }
    std::thread::spawn(move || use_up(&pool)).join().unwrap();
}

fn a_thread_had_blocked_the_signal() {
    let (send, pools) = std::sync::mpsc::channel::<Pool>();
    let ready = std::sync::Arc::new(std::sync::Barrier::new(2));
    let there = ready.clone();
    let worker = std::thread::spawn(move || {
        block_all();
        there.wait();
        let pool = pools.recv().unwrap();
        if pool.fault_mode() != FaultMode::Thread {
            faults::unblock();
        }
        use_up(&pool);
    });
    ready.wait();
    let pool = built();
    let found = faults::blocking_thread();
    assert!(found.is_some());
    send.send(pool).unwrap();
    worker.join().unwrap();
}
