//! *What*: the kernel's error numbers as a type.
//! *Invariants*: an [`Errno`] made by this crate is in `1..=4095`.
//! *Locking*: none. *Context*: any.

/// An error number as the kernel returned it. Nothing to do with the C library's `errno`, which
/// this crate neither reads nor writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// The symbolic name, `None` for numbers that uzswap never had to know.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(stringify!($name)),)* _ => None }
            }

            /// What the number means, in a few words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 { $($value => $text,)* _ => "unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file, or range not registered";
    ESRCH = 3, "no such process";
    EINTR = 4, "interrupted by a signal";
    EIO = 5, "input/output error";
    ENXIO = 6, "no such device or address";
    E2BIG = 7, "argument list too long";
    ENOEXEC = 8, "not an executable format";
    EBADF = 9, "bad file descriptor";
    ECHILD = 10, "no child processes";
    EAGAIN = 11, "try again";
    ENOMEM = 12, "out of memory, or range not mapped";
    EACCES = 13, "permission denied";
    EFAULT = 14, "bad address";
    EBUSY = 16, "busy";
    EEXIST = 17, "already exists";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENFILE = 23, "too many open files in the system";
    EMFILE = 24, "too many open files";
    ENOTTY = 25, "not a terminal, or ioctl not known";
    ETXTBSY = 26, "text file busy";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left on device";
    ESPIPE = 29, "illegal seek";
    EROFS = 30, "read-only file system";
    EPIPE = 32, "broken pipe";
    ERANGE = 34, "result out of range";
    EDEADLK = 35, "resource deadlock avoided";
    ENAMETOOLONG = 36, "file name too long";
    ENOSYS = 38, "not implemented by this kernel";
    ELOOP = 40, "too many levels of symbolic links";
    EOVERFLOW = 75, "value too large";
    EOPNOTSUPP = 95, "operation not supported";
    ECONNRESET = 104, "connection reset";
    ETIMEDOUT = 110, "timed out";
    EINPROGRESS = 115, "under way";
    EDQUOT = 122, "disk quota exceeded";
    EHWPOISON = 133, "memory page has a hardware error";
}

impl core::fmt::Debug for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.text()),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl core::error::Error for Errno {}
