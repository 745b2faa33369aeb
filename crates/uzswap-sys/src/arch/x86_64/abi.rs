//! *What*: constants and structures of the kernel that differ between architectures.
//! *Invariants*: kernel ABI: they never change.
//! *Locking*: none. *Context*: any.

/// `AUDIT_ARCH_X86_64`: the architecture of a 64-bit call, as seccomp and SIGSYS report it. x32
/// calls carry it too.
pub const AUDIT_ARCH: u32 = 0xc000_003e;

/// Call numbers from this one on belong to another ABI of the same [`AUDIT_ARCH`]: x32.
pub const FOREIGN_ABI_NR: u32 = 0x4000_0000;

/// The arguments of `clone` that point at the parent's and the child's word for the thread id.
pub const CLONE_TID_ARGS: [usize; 2] = [2, 3];

/// First address above those of user space, with four-level page tables.
pub const USER_END: usize = 0x7fff_ffff_0000;

/// `mmap` below 2 GiB. 0 where the architecture has no such flag.
pub const MAP_32BIT: i32 = 0x40;

/// See open(2).
pub const O_DIRECT: i32 = 0o40_000;
/// See open(2).
pub const O_DIRECTORY: i32 = 0o200_000;
/// See open(2).
pub const O_NOFOLLOW: i32 = 0o400_000;

/// The kernel's `struct stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "see stat(2)")]
pub struct Stat {
    pub st_dev: u64,
    pub st_ino: u64,
    pub st_nlink: u64,
    pub st_mode: u32,
    pub st_uid: u32,
    pub st_gid: u32,
    pad: u32,
    pub st_rdev: u64,
    pub st_size: i64,
    pub st_blksize: i64,
    pub st_blocks: i64,
    pub st_atime: u64,
    pub st_atime_nsec: u64,
    pub st_mtime: u64,
    pub st_mtime_nsec: u64,
    pub st_ctime: u64,
    pub st_ctime_nsec: u64,
    unused: [i64; 3],
}

const _: () = assert!(size_of::<Stat>() == 144);
