//! *What*: the pointer arguments of every system call ([`crate::table`]).
//! *Invariants*: no call is listed twice; complete below [`END`].
//! *Locking*: none. *Context*: any.

#[allow(clippy::wildcard_imports, reason = "the numbers of all calls")]
use uzswap_sys::nr::*;

use crate::table::{Pointer, r, rb, rl, rn, s, u, w, wa, wb, wl, wn};

/// Calls from this number on are newer than the table.
pub const END: usize = 468;

const STAT_LEN: u32 = 144;
const STATX_LEN: u32 = 256;
const RUSAGE: u32 = 144;
const TIMESPEC: u32 = 16;
const ITIME: u32 = 32;
const SIGINFO: u32 = 128;
const SET: u32 = 8;
const TIMEX: u32 = 208;
const SIGEVENT: u32 = 64;

macro_rules! table {
    ($($($nr:ident)+: $($pointer:expr),+;)*) => {
        /// The pointers of every call, by its number.
        pub static TABLE: [&[Pointer]; END] = {
            let mut table: [&[Pointer]; END] = [&[]; END];
            $(
                let pointers: &[Pointer] = const { &[$($pointer),+] };
                $(
                    assert!(table[$nr].is_empty(), "listed twice");
                    table[$nr] = pointers;
                )+
            )*
            table
        };
    };
}

table! {
    READ PREAD64 GETDENTS SYSLOG MODIFY_LDT FLISTXATTR LOOKUP_DCOOKIE GETDENTS64 SCHED_GETATTR BPF:
        wl(1, 2);
    WRITE PWRITE64 CONNECT BIND LSM_SET_SELF_ATTR: rl(1, 2);
    OPEN ACCESS TRUNCATE CHDIR MKDIR RMDIR CREAT UNLINK CHMOD CHOWN LCHOWN MKNOD CHROOT ACCT
        UMOUNT2 SWAPON SWAPOFF DELETE_MODULE MQ_UNLINK MEMFD_CREATE FSOPEN: s(0);
    STAT LSTAT: s(0), w(1, STAT_LEN);
    FSTAT: w(1, STAT_LEN);
    POLL: wn(0, 1, 8);
    RT_SIGACTION: r(1, 32), w(2, 32);
    RT_SIGPROCMASK: r(1, SET), w(2, SET);
    IOCTL SECCOMP: u(2);
    READV WRITEV VMSPLICE PREADV PWRITEV PREADV2 PWRITEV2 PROCESS_MADVISE: rn(1, 2, 16);
    PIPE TIME PIPE2: w(0, 8);
    SELECT: wb(1, 0), wb(2, 0), wb(3, 0), w(4, TIMESPEC);
    MINCORE: wn(2, 1, 1);
    SHMCTL MSGCTL: w(2, 256);
    NANOSLEEP: r(0, TIMESPEC), w(1, TIMESPEC);
    GETITIMER TIMER_GETTIME TIMERFD_GETTIME: w(1, ITIME);
    SETITIMER: r(1, ITIME), w(2, ITIME);
    SENDFILE: w(2, 8);
    ACCEPT GETSOCKNAME GETPEERNAME ACCEPT4 LSM_GET_SELF_ATTR: wa(1, 2), w(2, 4);
    SENDTO: rl(1, 2), rl(4, 5);
    RECVFROM: wl(1, 2), wa(4, 5), w(5, 4);
    SENDMSG: r(1, 56);
    RECVMSG: w(1, 56);
    SOCKETPAIR: w(3, 8);
    SETSOCKOPT: rl(3, 4);
    GETSOCKOPT: wa(3, 4), w(4, 4);
    EXECVE: s(0), u(1), u(2);
    WAIT4: w(1, 4), w(3, RUSAGE);
    UNAME: w(0, 390);
    SEMOP: rn(1, 2, 6);
    SEMCTL QUOTACTL_FD: u(3);
    MSGSND: rn(1, 2, 1);
    MSGRCV: wn(1, 2, 1);
    FCNTL: w(2, 64);
    GETCWD GETRANDOM: wl(0, 1);
    RENAME LINK SYMLINK PIVOT_ROOT REMOVEXATTR LREMOVEXATTR: s(0), s(1);
    READLINK LISTXATTR LLISTXATTR: s(0), wl(1, 2);
    GETTIMEOFDAY: w(0, TIMESPEC), w(1, 8);
    GETRLIMIT: w(1, 16);
    GETRUSAGE: w(1, RUSAGE);
    SYSINFO: w(0, 112);
    TIMES RSEQ: w(0, 32);
    PTRACE: u(2), u(3);
    GETGROUPS: wn(1, 0, 4);
    SETGROUPS: rn(1, 0, 4);
    GETRESUID GETRESGID: w(0, 4), w(1, 4), w(2, 4);
    CAPGET: w(0, 8), w(1, 24);
    CAPSET: r(0, 8), r(1, 24);
    RT_SIGPENDING: w(0, SET);
    RT_SIGTIMEDWAIT: r(0, SET), w(1, SIGINFO), r(2, TIMESPEC);
    RT_SIGQUEUEINFO PIDFD_SEND_SIGNAL: r(2, SIGINFO);
    RT_SIGSUSPEND: r(0, SET);
    SIGALTSTACK: r(0, 24), w(1, 24);
    UTIME: s(0), r(1, 16);
    USTAT: w(1, 32);
    STATFS: s(0), w(1, 120);
    FSTATFS: w(1, 120);
    SYSFS: u(1), u(2);
    SCHED_SETPARAM: r(1, 4);
    SCHED_GETPARAM: w(1, 4);
    SCHED_SETSCHEDULER: r(2, 4);
    SCHED_RR_GET_INTERVAL CLOCK_GETTIME CLOCK_GETRES: w(1, TIMESPEC);
    PRCTL KEYCTL: u(1), u(2), u(3), u(4);
    ARCH_PRCTL: w(1, 8);
    ADJTIMEX: w(0, TIMEX);
    SETRLIMIT: r(1, 16);
    SETTIMEOFDAY: r(0, TIMESPEC), r(1, 8);
    MOUNT: s(0), s(1), s(2), u(4);
    REBOOT: s(3);
    SETHOSTNAME SETDOMAINNAME LANDLOCK_CREATE_RULESET: rl(0, 1);
    INIT_MODULE: rl(0, 1), s(2);
    QUOTACTL: s(1), u(3);
    SETXATTR LSETXATTR ADD_KEY: s(0), s(1), rl(2, 3);
    FSETXATTR OPENAT2: s(1), rl(2, 3);
    GETXATTR LGETXATTR: s(0), s(1), wl(2, 3);
    FGETXATTR READLINKAT: s(1), wl(2, 3);
    FREMOVEXATTR INOTIFY_ADD_WATCH OPENAT MKDIRAT MKNODAT FCHOWNAT UNLINKAT FCHMODAT FACCESSAT
        FINIT_MODULE OPEN_TREE FSPICK FACCESSAT2 FCHMODAT2: s(1);
    FUTEX: w(0, 4), u(3), w(4, 4);
    SCHED_SETAFFINITY: rl(2, 1);
    SCHED_GETAFFINITY: wl(2, 1);
    SET_TID_ADDRESS: w(0, 4);
    SEMTIMEDOP: rn(1, 2, 6), r(3, TIMESPEC);
    TIMER_CREATE: r(1, SIGEVENT), w(2, 4);
    TIMER_SETTIME TIMERFD_SETTIME: r(2, ITIME), w(3, ITIME);
    CLOCK_SETTIME: r(1, TIMESPEC);
    CLOCK_NANOSLEEP: r(2, TIMESPEC), w(3, TIMESPEC);
    EPOLL_WAIT: wn(1, 2, 12);
    EPOLL_CTL: r(3, 12);
    UTIMES: s(0), r(1, 32);
    MBIND: rb(3, 4);
    SET_MEMPOLICY: rb(1, 2);
    GET_MEMPOLICY: w(0, 4), wb(1, 2);
    MQ_OPEN: s(0), r(3, 64);
    MQ_TIMEDSEND: rl(1, 2), r(4, TIMESPEC);
    MQ_TIMEDRECEIVE: wl(1, 2), w(3, 4), r(4, TIMESPEC);
    MQ_NOTIFY: r(1, SIGEVENT);
    MQ_GETSETATTR: r(1, 64), w(2, 64);
    KEXEC_LOAD: rn(2, 1, 32);
    WAITID: w(2, SIGINFO), w(4, RUSAGE);
    REQUEST_KEY: s(0), s(1), s(2);
    MIGRATE_PAGES: rb(2, 1), rb(3, 1);
    FUTIMESAT UTIMENSAT: s(1), r(2, 32);
    NEWFSTATAT: s(1), w(2, STAT_LEN);
    RENAMEAT LINKAT RENAMEAT2 MOVE_MOUNT REMOVEXATTRAT: s(1), s(3);
    SYMLINKAT: s(0), s(2);
    PSELECT6: wb(1, 0), wb(2, 0), wb(3, 0), w(4, TIMESPEC), r(5, 16);
    PPOLL: wn(0, 1, 8), w(2, TIMESPEC), r(3, SET);
    SET_ROBUST_LIST: w(0, 24);
    GET_ROBUST_LIST: w(1, 8), w(2, 8);
    SPLICE COPY_FILE_RANGE: w(1, 8), w(3, 8);
    MOVE_PAGES: rn(2, 1, 8), rn(3, 1, 4), wn(4, 1, 4);
    EPOLL_PWAIT: wn(1, 2, 12), r(4, SET);
    SIGNALFD SIGNALFD4: r(1, SET);
    RT_TGSIGQUEUEINFO: r(3, SIGINFO);
    PERF_EVENT_OPEN: w(0, 256);
    RECVMMSG: wn(1, 2, 64), w(4, TIMESPEC);
    FANOTIFY_MARK: s(4);
    PRLIMIT64: r(2, 16), w(3, 16);
    NAME_TO_HANDLE_AT: s(1), w(2, 136), w(3, 4);
    OPEN_BY_HANDLE_AT: r(1, 136);
    CLOCK_ADJTIME: w(1, TIMEX);
    SENDMMSG: wn(1, 2, 64);
    GETCPU: w(0, 4), w(1, 4), w(2, 128);
    PROCESS_VM_READV PROCESS_VM_WRITEV: rn(1, 2, 16), rn(3, 4, 16);
    SCHED_SETATTR: r(1, 256);
    KEXEC_FILE_LOAD: rl(3, 2);
    EXECVEAT: s(1), u(2), u(3);
    STATX: s(1), w(4, STATX_LEN);
    FSCONFIG: s(2), u(3);
    EPOLL_PWAIT2: wn(1, 2, 12), r(3, TIMESPEC), r(4, SET);
    MOUNT_SETATTR OPEN_TREE_ATTR: s(1), rl(3, 4);
    LANDLOCK_ADD_RULE: r(2, 64);
    FUTEX_WAITV: rn(0, 1, 24), r(3, TIMESPEC);
    CACHESTAT: r(1, 16), w(2, 40);
    FUTEX_WAIT: w(0, 4), r(4, TIMESPEC);
    FUTEX_REQUEUE: rn(0, 1, 48);
    STATMOUNT: r(0, 32), wl(1, 2);
    LISTMOUNT: r(0, 32), wn(1, 2, 8);
    LSM_LIST_MODULES: wa(0, 1), w(1, 4);
    SETXATTRAT GETXATTRAT: s(1), s(3), r(4, 16);
    LISTXATTRAT: s(1), wl(3, 4);
}
