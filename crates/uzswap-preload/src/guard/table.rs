//! *What*: for each x86-64 system call, which of its arguments the kernel takes for pointers, and
//! how much of what they point at it reads or writes. Filter A is made from it (trap if one of
//! these arguments lies in the arena), and the SIGSYS handler (bring that much in).
//!
//! *Invariants*: sorted by number. A call that is not listed and below [`END`] has no pointers, or
//! its pointers are addresses that the kernel does not access (`munmap`), or it must not be
//! touched (`rt_sigreturn`, `clone`). Extents are never less than what the kernel accesses; more
//! is harmless. Where it depends on other arguments, [`super::ranges`] knows better.
//! *Locking*: none. *Context*: any.

#[allow(clippy::wildcard_imports, reason = "the numbers of all calls")]
use uzswap_sys::nr::*;

/// How many bytes a pointer argument points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many.
    Bytes(u32),
    /// Argument number `.0` says how many units of `.1` bytes.
    Units(u8, u16),
    /// The C `int` that argument number `.0` points at says how many.
    At(u8),
    /// Up to a zero byte.
    CString,
    /// Bits in argument number `.0`, in whole words of 8 bytes: file descriptor and CPU sets.
    Bits(u8),
    /// Nobody knows: a page and more, as far as mapped.
    Unknown,
}

/// One pointer argument.
#[derive(Clone, Copy, Debug)]
pub struct Pointer {
    /// Argument number, 0 to 5.
    pub arg: u8,
    /// The kernel writes there.
    #[allow(
        dead_code,
        reason = "pins make no difference yet; whoever reads the table does"
    )]
    pub write: bool,
    /// How much.
    pub extent: Extent,
}

/// A call and its pointers.
#[derive(Debug)]
pub struct Entry {
    /// Call number.
    pub nr: u16,
    /// Its pointers.
    pub pointers: &'static [Pointer],
}

/// Calls from this number on are newer than the table.
pub const END: usize = 468;

/// What is done for calls newer than the table: any argument may be a pointer.
pub const UNKNOWN: &[Pointer] = &[u(0), u(1), u(2), u(3), u(4), u(5)];

const fn p(arg: u8, write: bool, extent: Extent) -> Pointer {
    Pointer { arg, write, extent }
}
/// Read `n` bytes.
const fn r(arg: u8, n: u32) -> Pointer {
    p(arg, false, Extent::Bytes(n))
}
/// Written, `n` bytes.
const fn w(arg: u8, n: u32) -> Pointer {
    p(arg, true, Extent::Bytes(n))
}
/// Read, as long as argument `len` says.
const fn rl(arg: u8, len: u8) -> Pointer {
    p(arg, false, Extent::Units(len, 1))
}
/// Written, as long as argument `len` says.
const fn wl(arg: u8, len: u8) -> Pointer {
    p(arg, true, Extent::Units(len, 1))
}
/// Read, `unit` bytes for each that argument `len` counts.
const fn rn(arg: u8, len: u8, unit: u16) -> Pointer {
    p(arg, false, Extent::Units(len, unit))
}
/// Written, likewise.
const fn wn(arg: u8, len: u8, unit: u16) -> Pointer {
    p(arg, true, Extent::Units(len, unit))
}
/// A path or name.
const fn s(arg: u8) -> Pointer {
    p(arg, false, Extent::CString)
}
/// Written, as long as the `int` at argument `len` says.
const fn wa(arg: u8, len: u8) -> Pointer {
    p(arg, true, Extent::At(len))
}
/// A bit set, written.
const fn wb(arg: u8, bits: u8) -> Pointer {
    p(arg, true, Extent::Bits(bits))
}
/// A bit set, read.
const fn rb(arg: u8, bits: u8) -> Pointer {
    p(arg, false, Extent::Bits(bits))
}
/// Who knows.
const fn u(arg: u8) -> Pointer {
    p(arg, true, Extent::Unknown)
}

const STAT_LEN: u32 = 144;
const STATX_LEN: u32 = 256;
const RUSAGE: u32 = 144;
const TIME: u32 = 16;
const ITIME: u32 = 32;
const SIGINFO: u32 = 128;
const SET: u32 = 8;
const TIMEX: u32 = 208;
const SIGEVENT: u32 = 64;

macro_rules! table {
    ($($nr:ident: $($pointer:expr),+;)*) => {
        /// Every call with pointers, by number.
        pub static TABLE: &[Entry] = &[$(Entry {
            nr: {
                #[expect(clippy::cast_possible_truncation, reason = "below 1000")]
                { $nr as u16 }
            },
            pointers: &[$($pointer),+],
        },)*];
    };
}

table! {
    READ: wl(1, 2);
    WRITE: rl(1, 2);
    OPEN: s(0);
    STAT: s(0), w(1, STAT_LEN);
    FSTAT: w(1, STAT_LEN);
    LSTAT: s(0), w(1, STAT_LEN);
    POLL: wn(0, 1, 8);
    RT_SIGACTION: r(1, 32), w(2, 32);
    RT_SIGPROCMASK: r(1, SET), w(2, SET);
    IOCTL: u(2);
    PREAD64: wl(1, 2);
    PWRITE64: rl(1, 2);
    READV: rn(1, 2, 16);
    WRITEV: rn(1, 2, 16);
    ACCESS: s(0);
    PIPE: w(0, 8);
    SELECT: wb(1, 0), wb(2, 0), wb(3, 0), w(4, TIME);
    MINCORE: wn(2, 1, 1);
    SHMCTL: w(2, 256);
    NANOSLEEP: r(0, TIME), w(1, TIME);
    GETITIMER: w(1, ITIME);
    SETITIMER: r(1, ITIME), w(2, ITIME);
    SENDFILE: w(2, 8);
    CONNECT: rl(1, 2);
    ACCEPT: wa(1, 2), w(2, 4);
    SENDTO: rl(1, 2), rl(4, 5);
    RECVFROM: wl(1, 2), wa(4, 5), w(5, 4);
    SENDMSG: r(1, 56);
    RECVMSG: w(1, 56);
    BIND: rl(1, 2);
    GETSOCKNAME: wa(1, 2), w(2, 4);
    GETPEERNAME: wa(1, 2), w(2, 4);
    SOCKETPAIR: w(3, 8);
    SETSOCKOPT: rl(3, 4);
    GETSOCKOPT: wa(3, 4), w(4, 4);
    EXECVE: s(0), u(1), u(2);
    WAIT4: w(1, 4), w(3, RUSAGE);
    UNAME: w(0, 390);
    SEMOP: rn(1, 2, 6);
    SEMCTL: u(3);
    MSGSND: rn(1, 2, 1);
    MSGRCV: wn(1, 2, 1);
    MSGCTL: w(2, 256);
    FCNTL: w(2, 64);
    TRUNCATE: s(0);
    GETDENTS: wl(1, 2);
    GETCWD: wl(0, 1);
    CHDIR: s(0);
    RENAME: s(0), s(1);
    MKDIR: s(0);
    RMDIR: s(0);
    CREAT: s(0);
    LINK: s(0), s(1);
    UNLINK: s(0);
    SYMLINK: s(0), s(1);
    READLINK: s(0), wl(1, 2);
    CHMOD: s(0);
    CHOWN: s(0);
    LCHOWN: s(0);
    GETTIMEOFDAY: w(0, TIME), w(1, 8);
    GETRLIMIT: w(1, 16);
    GETRUSAGE: w(1, RUSAGE);
    SYSINFO: w(0, 112);
    TIMES: w(0, 32);
    PTRACE: u(2), u(3);
    SYSLOG: wl(1, 2);
    GETGROUPS: wn(1, 0, 4);
    SETGROUPS: rn(1, 0, 4);
    GETRESUID: w(0, 4), w(1, 4), w(2, 4);
    GETRESGID: w(0, 4), w(1, 4), w(2, 4);
    CAPGET: w(0, 8), w(1, 24);
    CAPSET: r(0, 8), r(1, 24);
    RT_SIGPENDING: w(0, SET);
    RT_SIGTIMEDWAIT: r(0, SET), w(1, SIGINFO), r(2, TIME);
    RT_SIGQUEUEINFO: r(2, SIGINFO);
    RT_SIGSUSPEND: r(0, SET);
    SIGALTSTACK: r(0, 24), w(1, 24);
    UTIME: s(0), r(1, 16);
    MKNOD: s(0);
    USTAT: w(1, 32);
    STATFS: s(0), w(1, 120);
    FSTATFS: w(1, 120);
    SYSFS: u(1), u(2);
    SCHED_SETPARAM: r(1, 4);
    SCHED_GETPARAM: w(1, 4);
    SCHED_SETSCHEDULER: r(2, 4);
    SCHED_RR_GET_INTERVAL: w(1, TIME);
    MODIFY_LDT: wl(1, 2);
    PIVOT_ROOT: s(0), s(1);
    PRCTL: u(1), u(2), u(3), u(4);
    ARCH_PRCTL: w(1, 8);
    ADJTIMEX: w(0, TIMEX);
    SETRLIMIT: r(1, 16);
    CHROOT: s(0);
    ACCT: s(0);
    SETTIMEOFDAY: r(0, TIME), r(1, 8);
    MOUNT: s(0), s(1), s(2), u(4);
    UMOUNT2: s(0);
    SWAPON: s(0);
    SWAPOFF: s(0);
    REBOOT: s(3);
    SETHOSTNAME: rl(0, 1);
    SETDOMAINNAME: rl(0, 1);
    INIT_MODULE: rl(0, 1), s(2);
    DELETE_MODULE: s(0);
    QUOTACTL: s(1), u(3);
    SETXATTR: s(0), s(1), rl(2, 3);
    LSETXATTR: s(0), s(1), rl(2, 3);
    FSETXATTR: s(1), rl(2, 3);
    GETXATTR: s(0), s(1), wl(2, 3);
    LGETXATTR: s(0), s(1), wl(2, 3);
    FGETXATTR: s(1), wl(2, 3);
    LISTXATTR: s(0), wl(1, 2);
    LLISTXATTR: s(0), wl(1, 2);
    FLISTXATTR: wl(1, 2);
    REMOVEXATTR: s(0), s(1);
    LREMOVEXATTR: s(0), s(1);
    FREMOVEXATTR: s(1);
    TIME_: w(0, 8);
    FUTEX: w(0, 4), u(3), w(4, 4);
    SCHED_SETAFFINITY: rl(2, 1);
    SCHED_GETAFFINITY: wl(2, 1);
    LOOKUP_DCOOKIE: wl(1, 2);
    GETDENTS64: wl(1, 2);
    SET_TID_ADDRESS: w(0, 4);
    SEMTIMEDOP: rn(1, 2, 6), r(3, TIME);
    TIMER_CREATE: r(1, SIGEVENT), w(2, 4);
    TIMER_SETTIME: r(2, ITIME), w(3, ITIME);
    TIMER_GETTIME: w(1, ITIME);
    CLOCK_SETTIME: r(1, TIME);
    CLOCK_GETTIME: w(1, TIME);
    CLOCK_GETRES: w(1, TIME);
    CLOCK_NANOSLEEP: r(2, TIME), w(3, TIME);
    EPOLL_WAIT: wn(1, 2, 12);
    EPOLL_CTL: r(3, 12);
    UTIMES: s(0), r(1, 32);
    MBIND: rb(3, 4);
    SET_MEMPOLICY: rb(1, 2);
    GET_MEMPOLICY: w(0, 4), wb(1, 2);
    MQ_OPEN: s(0), r(3, 64);
    MQ_UNLINK: s(0);
    MQ_TIMEDSEND: rl(1, 2), r(4, TIME);
    MQ_TIMEDRECEIVE: wl(1, 2), w(3, 4), r(4, TIME);
    MQ_NOTIFY: r(1, SIGEVENT);
    MQ_GETSETATTR: r(1, 64), w(2, 64);
    KEXEC_LOAD: rn(2, 1, 32);
    WAITID: w(2, SIGINFO), w(4, RUSAGE);
    ADD_KEY: s(0), s(1), rl(2, 3);
    REQUEST_KEY: s(0), s(1), s(2);
    KEYCTL: u(1), u(2), u(3), u(4);
    INOTIFY_ADD_WATCH: s(1);
    MIGRATE_PAGES: rb(2, 1), rb(3, 1);
    OPENAT: s(1);
    MKDIRAT: s(1);
    MKNODAT: s(1);
    FCHOWNAT: s(1);
    FUTIMESAT: s(1), r(2, 32);
    NEWFSTATAT: s(1), w(2, STAT_LEN);
    UNLINKAT: s(1);
    RENAMEAT: s(1), s(3);
    LINKAT: s(1), s(3);
    SYMLINKAT: s(0), s(2);
    READLINKAT: s(1), wl(2, 3);
    FCHMODAT: s(1);
    FACCESSAT: s(1);
    PSELECT6: wb(1, 0), wb(2, 0), wb(3, 0), w(4, TIME), r(5, 16);
    PPOLL: wn(0, 1, 8), w(2, TIME), r(3, SET);
    SET_ROBUST_LIST: w(0, 24);
    GET_ROBUST_LIST: w(1, 8), w(2, 8);
    SPLICE: w(1, 8), w(3, 8);
    VMSPLICE: rn(1, 2, 16);
    MOVE_PAGES: rn(2, 1, 8), rn(3, 1, 4), wn(4, 1, 4);
    UTIMENSAT: s(1), r(2, 32);
    EPOLL_PWAIT: wn(1, 2, 12), r(4, SET);
    SIGNALFD: r(1, SET);
    TIMERFD_SETTIME: r(2, ITIME), w(3, ITIME);
    TIMERFD_GETTIME: w(1, ITIME);
    ACCEPT4: wa(1, 2), w(2, 4);
    SIGNALFD4: r(1, SET);
    PIPE2: w(0, 8);
    PREADV: rn(1, 2, 16);
    PWRITEV: rn(1, 2, 16);
    RT_TGSIGQUEUEINFO: r(3, SIGINFO);
    PERF_EVENT_OPEN: w(0, 256);
    RECVMMSG: wn(1, 2, 64), w(4, TIME);
    FANOTIFY_MARK: s(4);
    PRLIMIT64: r(2, 16), w(3, 16);
    NAME_TO_HANDLE_AT: s(1), w(2, 136), w(3, 4);
    OPEN_BY_HANDLE_AT: r(1, 136);
    CLOCK_ADJTIME: w(1, TIMEX);
    SENDMMSG: wn(1, 2, 64);
    GETCPU: w(0, 4), w(1, 4), w(2, 128);
    PROCESS_VM_READV: rn(1, 2, 16), rn(3, 4, 16);
    PROCESS_VM_WRITEV: rn(1, 2, 16), rn(3, 4, 16);
    FINIT_MODULE: s(1);
    SCHED_SETATTR: r(1, 256);
    SCHED_GETATTR: wl(1, 2);
    RENAMEAT2: s(1), s(3);
    SECCOMP: u(2);
    GETRANDOM: wl(0, 1);
    MEMFD_CREATE: s(0);
    KEXEC_FILE_LOAD: rl(3, 2);
    BPF: wl(1, 2);
    EXECVEAT: s(1), u(2), u(3);
    COPY_FILE_RANGE: w(1, 8), w(3, 8);
    PREADV2: rn(1, 2, 16);
    PWRITEV2: rn(1, 2, 16);
    STATX: s(1), w(4, STATX_LEN);
    RSEQ: w(0, 32);
    PIDFD_SEND_SIGNAL: r(2, SIGINFO);
    OPEN_TREE: s(1);
    MOVE_MOUNT: s(1), s(3);
    FSOPEN: s(0);
    FSCONFIG: s(2), u(3);
    FSPICK: s(1);
    OPENAT2: s(1), rl(2, 3);
    FACCESSAT2: s(1);
    PROCESS_MADVISE: rn(1, 2, 16);
    EPOLL_PWAIT2: wn(1, 2, 12), r(3, TIME), r(4, SET);
    MOUNT_SETATTR: s(1), rl(3, 4);
    QUOTACTL_FD: u(3);
    LANDLOCK_CREATE_RULESET: rl(0, 1);
    LANDLOCK_ADD_RULE: r(2, 64);
    FUTEX_WAITV: rn(0, 1, 24), r(3, TIME);
    CACHESTAT: r(1, 16), w(2, 40);
    FCHMODAT2: s(1);
    FUTEX_WAIT: w(0, 4), r(4, TIME);
    FUTEX_REQUEUE: rn(0, 1, 48);
    STATMOUNT: r(0, 32), wl(1, 2);
    LISTMOUNT: r(0, 32), wn(1, 2, 8);
    LSM_GET_SELF_ATTR: wa(1, 2), w(2, 4);
    LSM_SET_SELF_ATTR: rl(1, 2);
    LSM_LIST_MODULES: wa(0, 1), w(1, 4);
    SETXATTRAT: s(1), s(3), r(4, 16);
    GETXATTRAT: s(1), s(3), r(4, 16);
    LISTXATTRAT: s(1), wl(3, 4);
    REMOVEXATTRAT: s(1), s(3);
    OPEN_TREE_ATTR: s(1), rl(3, 4);
}

/// `nr::TIME`, whose name is the length of a timespec here.
const TIME_: usize = 201;

/// The pointers of call `nr`.
#[must_use]
pub fn pointers(nr: usize) -> &'static [Pointer] {
    if nr >= END {
        return UNKNOWN;
    }
    TABLE
        .binary_search_by(|e| usize::from(e.nr).cmp(&nr))
        .ok()
        .and_then(|n| TABLE.get(n))
        .map_or(&[], |e| e.pointers)
}

/// Bit `n` for each argument `n` of call `nr` that is a pointer.
#[must_use]
pub fn mask(nr: usize) -> u8 {
    pointers(nr).iter().fold(0, |m, p| m | 1 << p.arg)
}
