//! A handler set by the raw interface sees what happened, can change where the thread resumes, and
//! comes back through our own restorer.
#![cfg(not(miri))]

use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use uzswap_sys::signal::{self, SigAction, SigInfo, SigSet, SigStack, UContext};
use uzswap_sys::{PAGE_SIZE, arch, mem, nr, seccomp, syscall, thread};

static SEEN_CODE: AtomicI32 = AtomicI32::new(0);
static SEEN_ADDR: AtomicUsize = AtomicUsize::new(0);
static SEEN_SP: AtomicUsize = AtomicUsize::new(0);
static SEEN_MASK: AtomicU64 = AtomicU64::new(0);
static SEEN_ERR: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn make_writable(_: i32, info: *mut SigInfo, context: *mut UContext) {
    // SAFETY: the kernel's own, both of them, and the handler's alone while it runs.
    let (info, context) = unsafe { (&*info, &*context) };
    SEEN_CODE.store(info.si_code, SeqCst);
    SEEN_ADDR.store(info.si_addr(), SeqCst);
    SEEN_ERR.store(context.uc_mcontext.err, SeqCst);
    let local = 0u8;
    SEEN_SP.store((&raw const local).addr(), SeqCst);
    SEEN_MASK.store(
        signal::sigprocmask(signal::SIG_BLOCK, None).map_or(0, |set| set.0),
        SeqCst,
    );
    let page = info.si_addr() & !(PAGE_SIZE - 1);
    // SAFETY: the page of the test's mapping that was written to.
    let _ = unsafe { mem::mprotect(page, PAGE_SIZE, mem::PROT_READ | mem::PROT_WRITE) };
}

#[test]
fn a_segv_handler_on_its_own_stack_repairs_the_access() {
    let flags = mem::MAP_PRIVATE | mem::MAP_ANONYMOUS;
    // SAFETY: a new mapping, wherever there is room.
    let addr = unsafe { mem::mmap(0, 17 * PAGE_SIZE, mem::PROT_READ, flags, -1, 0) }.expect("map");
    let (page, stack, stack_len) = (addr, addr + PAGE_SIZE, 16 * PAGE_SIZE);
    // SAFETY: the mapping's own pages, behind the first.
    unsafe { mem::mprotect(stack, stack_len, 3) }.expect("mprotect");
    let old_stack =
        // SAFETY: those pages, which are mapped until the old stack is back.
        unsafe { signal::sigaltstack(Some(&SigStack::new(stack, stack_len, 0))) }.expect("stack");
    let mask = SigSet::FULL
        .without(signal::SIGKILL)
        .without(signal::SIGSTOP);
    let action = SigAction::new(make_writable, signal::SA_ONSTACK, mask);
    // SAFETY: the handler takes what the kernel gives it, and its stack is there.
    let old = unsafe { signal::sigaction(signal::SIGSEGV, Some(&action)) }.expect("sigaction");
    assert_eq!(
        // SAFETY: only reads what is set.
        unsafe { signal::sigaction(signal::SIGSEGV, None) }.expect("read"),
        action
    );

    let target = std::ptr::with_exposed_provenance_mut::<u32>(page + 20);
    // SAFETY: in the mapping's first page, which the handler makes writable.
    unsafe { target.write_volatile(5) };
    // SAFETY: as above.
    assert_eq!(unsafe { target.read_volatile() }, 5);

    assert_eq!(SEEN_CODE.load(SeqCst), signal::SEGV_ACCERR);
    assert_eq!(SEEN_ADDR.load(SeqCst), page + 20);
    assert_eq!(
        SEEN_ERR.load(SeqCst) & (arch::signal::PF_WRITE | arch::signal::PF_USER),
        6
    );
    assert!((stack..stack + stack_len).contains(&SEEN_SP.load(SeqCst)));
    let mask = SigSet(SEEN_MASK.load(SeqCst));
    assert!(mask.contains(signal::SIGTERM) && mask.contains(signal::SIGSEGV));
    assert!(!mask.contains(signal::SIGKILL));
    // SAFETY: what was there before; nobody uses the mapping any more.
    unsafe {
        signal::sigaction(signal::SIGSEGV, Some(&old)).expect("restore");
        signal::sigaltstack(Some(&old_stack)).expect("restore");
        mem::munmap(addr, 17 * PAGE_SIZE).expect("munmap");
    }
}

#[test]
fn a_blocked_signal_waits_until_it_is_unblocked() {
    static HITS: AtomicI32 = AtomicI32::new(0);
    unsafe extern "C" fn count(_: i32, _: *mut SigInfo, _: *mut UContext) {
        HITS.fetch_add(1, SeqCst);
    }
    let action = SigAction::new(count, 0, SigSet::EMPTY);
    // SAFETY: the handler takes what the kernel gives it.
    unsafe { signal::sigaction(signal::SIGUSR1, Some(&action)) }.expect("sigaction");
    let old = signal::sigprocmask(signal::SIG_BLOCK, Some(SigSet::EMPTY.with(signal::SIGUSR1)))
        .expect("mask");
    let (pid, tid) = (thread::getpid(), thread::gettid());
    signal::tgkill(pid, tid, signal::SIGUSR1).expect("tgkill");
    assert_eq!(HITS.load(SeqCst), 0);
    signal::sigprocmask(signal::SIG_SETMASK, Some(old.without(signal::SIGUSR1))).expect("mask");
    assert_eq!(HITS.load(SeqCst), 1);
}

#[test]
fn sets_hold_exactly_what_was_put_in() {
    let set = SigSet::EMPTY.with(1).with(64).with(0).with(65).with(-3);
    assert_eq!(set.0, 1 | 1 << 63);
    assert!(
        !SigSet::FULL
            .without(signal::SIGBUS)
            .contains(signal::SIGBUS)
    );
    assert!(SigSet::FULL.contains(64) && !SigSet::FULL.contains(65));
}

unsafe extern "C" fn emulate(_: i32, info: *mut SigInfo, context: *mut UContext) {
    // SAFETY: the kernel's own, both of them, and the handler's alone while it runs.
    let (info, context) = unsafe { (&*info, &mut *context) };
    let args = context.syscall_args();
    let right = info.si_code == signal::SYS_SECCOMP
        && usize::try_from(info.si_syscall()) == Ok(nr::GETPPID)
        && info.si_errno == 0x77;
    let answer = if right { args[0] + args[5] } else { 0 };
    context.set_syscall_return(isize::try_from(answer).unwrap_or(-1));
}

/// A filter traps one call by its argument's high half; the handler answers in the kernel's place.
/// In a forked child, because a filter is for ever.
#[test]
fn a_trapped_call_is_answered_by_the_handler() {
    use seccomp::{SockFilter, op};
    const ARENA_HI: u32 = 0x1000;
    let program = [
        SockFilter::stmt(op::LD_ABS, seccomp::DATA_NR),
        SockFilter::jump(op::JEQ, 110, 0, 3),
        SockFilter::stmt(op::LD_ABS, seccomp::data_arg_hi(0)),
        SockFilter::jump(op::JEQ, ARENA_HI, 0, 1),
        SockFilter::stmt(op::RET, seccomp::RET_TRAP | 0x77),
        SockFilter::stmt(op::RET, seccomp::RET_ALLOW),
    ];
    // SAFETY: the child only makes system calls, and exits.
    let pid = unsafe { syscall::call0(nr::FORK) }.expect("fork");
    if pid == 0 {
        let action = SigAction::new(emulate, 0, SigSet::FULL);
        let steps = || -> Result<i32, uzswap_sys::Errno> {
            // SAFETY: the handler takes what the kernel gives it.
            unsafe { signal::sigaction(signal::SIGSYS, Some(&action)) }?;
            seccomp::set_no_new_privs()?;
            // SAFETY: a filter that allows everything but what the handler answers.
            unsafe { seccomp::install_filter(&program, seccomp::FILTER_FLAG_TSYNC) }?;
            // SAFETY: takes no arguments: those given are for the filter to see.
            let plain = unsafe { syscall::call6(nr::GETPPID, 5, 0, 0, 0, 0, 7) }?;
            // SAFETY: as above.
            let trapped = unsafe { syscall::call6(nr::GETPPID, 0x1000 << 32, 0, 0, 0, 0, 7) }?;
            let ok = plain < 0x1000_0000 && trapped == (0x1000 << 32) + 7;
            Ok(if ok { 42 } else { 43 })
        };
        thread::exit_group(steps().unwrap_or_else(|errno| errno.0));
    }
    let mut status = 0i32;
    // SAFETY: the status is writable for the call.
    unsafe { syscall::call4(nr::WAIT4, pid, (&raw mut status).addr(), 0, 0) }.expect("wait4");
    assert_eq!(status, 42 << 8, "exit status of the child");
}
