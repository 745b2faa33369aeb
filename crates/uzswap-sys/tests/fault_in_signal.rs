//! The life of a page by hand: missing, SIGBUS, copied in, protected, written again, dropped, back.
#![cfg(not(miri))]

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{LockResult, Mutex, MutexGuard};
use uzswap_sys::signal::{self, SigAction, SigInfo, SigSet, UContext};
use uzswap_sys::uffd::{self, CopyError, Event, Uffd, UffdMsg, feature};
use uzswap_sys::{Errno, PAGE_SIZE, file, mem};

const PAGES: usize = 64;
const FLAGS: i32 = file::O_CLOEXEC | file::O_NONBLOCK | uffd::UFFD_USER_MODE_ONLY;

static UFFD: AtomicI32 = AtomicI32::new(-1);
static BASE: AtomicUsize = AtomicUsize::new(0);
static MISSING: AtomicUsize = AtomicUsize::new(0);
static PROTECTED: AtomicUsize = AtomicUsize::new(0);
static FOREIGN: AtomicBool = AtomicBool::new(false);
/// The tests share the handler's state.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Missing pages are filled with their number; a write to a protected page lifts the protection.
unsafe extern "C" fn on_sigbus(_: i32, info: *mut SigInfo, context: *mut UContext) {
    // SAFETY: the kernel's, of this signal.
    let addr = unsafe { (*info).si_addr() } & !(PAGE_SIZE - 1);
    let base = BASE.load(SeqCst);
    let uffd = Uffd(UFFD.load(SeqCst));
    if addr < base || addr >= base + PAGES * PAGE_SIZE {
        FOREIGN.store(true, SeqCst);
        uzswap_sys::thread::exit_group(99);
    }
    let page = [(addr - base) / PAGE_SIZE; PAGE_SIZE / 8];
    // SAFETY: a page of the arena that is missing, from one of ours.
    match unsafe { uffd.copy(addr, page.as_ptr().cast(), PAGE_SIZE, uffd::MODE_DONTWAKE) } {
        Ok(_) => _ = MISSING.fetch_add(1, SeqCst),
        Err(CopyError {
            errno: Errno::EEXIST,
            ..
        }) => {
            // A write to a protected page, or another thread came first and there is nothing to do.
            // SAFETY: as `info`.
            if unsafe { (*context).fault_access() } != signal::Access::Write {
                return;
            }
            uffd.write_protect(addr, PAGE_SIZE, false, true)
                .expect("unprotect");
            PROTECTED.fetch_add(1, SeqCst);
        }
        Err(error) => panic!("{error:?}"),
    }
}

struct Arena {
    uffd: Uffd,
    base: usize,
    _alone: LockResult<MutexGuard<'static, ()>>,
}

impl Arena {
    fn new(features: u64) -> Option<Arena> {
        let _alone = ONE_AT_A_TIME.lock();
        let uffd = match Uffd::open(FLAGS) {
            Ok(uffd) => uffd,
            Err(errno) => {
                println!("skipped: userfaultfd: {errno}");
                return None;
            }
        };
        uffd.api(features).expect("handshake");
        let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS | mem::MAP_NORESERVE;
        // SAFETY: a fresh mapping where the kernel likes.
        let base = unsafe { mem::mmap(0, PAGES * PAGE_SIZE, 3, flags, -1, 0) }.expect("mmap");
        let mode = uffd::REGISTER_MODE_MISSING | uffd::REGISTER_MODE_WP;
        // SAFETY: the mapping made above, which nobody uses yet.
        unsafe {
            mem::madvise(base, PAGES * PAGE_SIZE, mem::MADV_NOHUGEPAGE).expect("nohugepage");
            uffd.register(base, PAGES * PAGE_SIZE, mode)
                .expect("register");
        }
        UFFD.store(uffd.0, SeqCst);
        BASE.store(base, SeqCst);
        MISSING.store(0, SeqCst);
        PROTECTED.store(0, SeqCst);
        let action = SigAction::new(on_sigbus, 0, SigSet::FULL);
        // SAFETY: the handler takes what the kernel gives it, and calls nothing but the library.
        unsafe { signal::sigaction(signal::SIGBUS, Some(&action)) }.expect("sigaction");
        Some(Arena { uffd, base, _alone })
    }

    fn page(&self, i: usize) -> usize {
        self.base + i * PAGE_SIZE
    }

    fn word(&self, i: usize) -> *mut usize {
        std::ptr::with_exposed_provenance_mut(self.page(i))
    }

    fn read(&self, i: usize) -> usize {
        // SAFETY: word 100 of a page of the mapping.
        unsafe { self.word(i).add(100).read_volatile() }
    }

    fn write(&self, i: usize, value: usize) {
        // SAFETY: as in `read`.
        unsafe { self.word(i).add(100).write_volatile(value) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let _ = self.uffd.close();
        // SAFETY: the arena's own mapping; nobody has a page of it any more.
        let _ = unsafe { mem::munmap(self.base, PAGES * PAGE_SIZE) };
    }
}

#[test]
fn a_page_goes_out_and_comes_back_by_sigbus() {
    let Some(a) = Arena::new(feature::SIGBUS | feature::PAGEFAULT_FLAG_WP) else {
        return;
    };
    for i in 0..PAGES {
        assert_eq!(a.read(i), i);
    }
    assert_eq!(MISSING.load(SeqCst), PAGES);

    // Protected: readable without a fault, a write faults once.
    a.uffd
        .write_protect(a.base, PAGES * PAGE_SIZE, true, false)
        .expect("protect");
    assert_eq!(a.read(5), 5);
    assert_eq!(PROTECTED.load(SeqCst), 0);
    a.write(5, 1005);
    a.write(5, 2005);
    assert_eq!((a.read(5), PROTECTED.load(SeqCst)), (2005, 1));

    // Dropped: comes back from the store, and protection does not stick to the new page.
    // SAFETY: pages of the arena, which the handler brings back as they were.
    unsafe { mem::madvise(a.page(8), 4 * PAGE_SIZE, mem::MADV_DONTNEED) }.expect("drop");
    assert_eq!(a.read(9), 9);
    a.write(9, 3009);
    assert_eq!(
        (MISSING.load(SeqCst), PROTECTED.load(SeqCst)),
        (PAGES + 1, 1)
    );
}

#[test]
fn threads_that_fault_on_the_same_page_all_see_it() {
    let Some(a) = Arena::new(feature::SIGBUS | feature::PAGEFAULT_FLAG_WP) else {
        return;
    };
    for round in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..PAGES).for_each(|i| assert_eq!(a.read(i), i)));
            }
        });
        // SAFETY: as above; the threads that read them have ended.
        unsafe { mem::madvise(a.base, PAGES * PAGE_SIZE, mem::MADV_DONTNEED) }.expect("drop");
        assert_eq!(MISSING.load(SeqCst), (round + 1) * PAGES);
    }
}

#[test]
fn a_copy_stops_at_what_is_there_and_says_how_far_it_came() {
    let Some(a) = Arena::new(feature::SIGBUS | feature::PAGEFAULT_FLAG_WP) else {
        return;
    };
    let src = vec![7usize; PAGES * PAGE_SIZE / 8];
    let src = src.as_ptr().cast::<u8>();
    // SAFETY: callers name pages of the arena; the source is as long as it, and lives to the end of
    // the test.
    let copy = |i: usize, n: usize| unsafe { a.uffd.copy(a.page(i), src, n * PAGE_SIZE, 1) };

    assert_eq!(a.read(10), 10);
    let stopped = copy(6, 8).expect_err("page 10 is there");
    assert_eq!(
        stopped,
        CopyError {
            copied: 4 * PAGE_SIZE,
            errno: Errno::EAGAIN
        }
    );
    assert_eq!(
        copy(10, 4),
        Err(CopyError {
            copied: 0,
            errno: Errno::EEXIST
        })
    );
    assert_eq!((a.read(6), a.read(9), a.read(10)), (7, 7, 10));
    assert_eq!(copy(11, 3), Ok(3 * PAGE_SIZE));

    // Installed protected: the first write faults.
    let mode = uffd::MODE_DONTWAKE | uffd::COPY_MODE_WP;
    // SAFETY: as in `copy`.
    unsafe { a.uffd.copy(a.page(20), src, PAGE_SIZE, mode) }.expect("copy");
    a.write(20, 1);
    assert_eq!((PROTECTED.load(SeqCst), a.read(20)), (1, 1));

    // SAFETY: a page of the arena; what cannot be read the kernel refuses.
    let unreadable = unsafe { a.uffd.copy(a.page(30), 8 as *const u8, PAGE_SIZE, 1) };
    assert_eq!(
        unreadable,
        Err(CopyError {
            copied: 0,
            errno: Errno::EFAULT
        })
    );
}

#[test]
fn system_calls_get_efault_on_missing_pages() {
    let Some(a) = Arena::new(feature::SIGBUS | feature::PAGEFAULT_FLAG_WP) else {
        return;
    };
    let fd = file::memfd_create(c"source", 0).expect("memfd");
    file::write_all(fd, &[1; 100]).expect("write");
    // SAFETY: what the call would write to is a page of the arena, which is not there.
    let into = unsafe {
        uzswap_sys::syscall::call4(
            uzswap_sys::nr::PREAD64,
            uzswap_sys::syscall::int(fd),
            a.page(3),
            100,
            0,
        )
    };
    assert_eq!(into, Err(Errno::EFAULT));
    file::close(fd).expect("close");
}

#[test]
fn without_sigbus_the_fault_is_a_message() {
    let Some(a) = Arena::new(feature::PAGEFAULT_FLAG_WP) else {
        return;
    };
    let mut msgs = [UffdMsg::default(); 4];
    assert_eq!(a.uffd.read_events(&mut msgs), Err(Errno::EAGAIN));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| a.read(12));
        let mut poll = [file::PollFd {
            fd: a.uffd.0,
            events: file::POLLIN,
            revents: 0,
        }];
        assert_eq!(file::poll(&mut poll, None), Ok(1));
        assert_eq!(a.uffd.read_events(&mut msgs), Ok(1));
        let Event::Pagefault {
            addr,
            flags,
            thread: 0,
        } = msgs[0].event()
        else {
            panic!("{:?}", msgs[0].event())
        };
        assert_eq!(
            (addr & !(PAGE_SIZE - 1), flags & uffd::PAGEFAULT_FLAG_WRITE),
            (a.page(12), 0)
        );
        let page = [77usize; PAGE_SIZE / 8];
        // SAFETY: a page of the arena that is not there; the source lives during the call.
        unsafe {
            a.uffd.copy(
                a.page(12),
                page.as_ptr().cast(),
                PAGE_SIZE,
                uffd::MODE_DONTWAKE,
            )
        }
        .expect("copy");
        a.uffd.wake(a.page(12), PAGE_SIZE).expect("wake");
        assert_eq!(reader.join().expect("join"), 77);
    });
}

#[test]
fn features_are_told_and_unknown_ones_refused() {
    let Ok(uffd) = Uffd::open(FLAGS) else {
        return println!("skipped: userfaultfd");
    };
    assert_eq!(uffd.api(1 << 63), Err(Errno::EINVAL));
    // A refused handshake does not spend the descriptor.
    let features = uffd.api(feature::SIGBUS).expect("handshake");
    println!("features {features:#x}");
    assert_ne!(features & feature::SIGBUS, 0);
    uffd.close().expect("close");
}
