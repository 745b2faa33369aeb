//! *What*: formatting into a fixed buffer, for one-line messages from places that may not allocate.
//! *Invariants*: never fails and never grows; text that does not fit is cut off, and the cut is
//! noted.
//! *Locking*: none. *Context*: any (uses `N` bytes of stack).

use crate::{Errno, file};
use core::fmt;

/// A text of at most `N` bytes on the stack.
#[derive(Clone)]
pub struct StackBuf<const N: usize> {
    bytes: [u8; N],
    len: usize,
    truncated: bool,
}

impl<const N: usize> Default for StackBuf<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> StackBuf<N> {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        StackBuf {
            bytes: [0; N],
            len: 0,
            truncated: false,
        }
    }

    /// The text so far, cut on a character boundary.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// The same as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or("")
    }

    /// Whether text was cut off.
    #[must_use]
    pub const fn truncated(&self) -> bool {
        self.truncated
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.len = 0;
        self.truncated = false;
    }

    /// The bytes with a zero after them, as a path for [`crate::file`]; `None` if there is no
    /// room for the zero, the text was cut, or a zero is inside.
    #[must_use]
    pub fn as_c_str(&mut self) -> Option<&core::ffi::CStr> {
        if self.truncated {
            return None;
        }
        *self.bytes.get_mut(self.len)? = 0;
        core::ffi::CStr::from_bytes_with_nul(self.bytes.get(..=self.len)?).ok()
    }
}

impl<const N: usize> fmt::Write for StackBuf<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // Nothing more after a cut: a later short piece would read as if it followed.
        if self.truncated {
            return Ok(());
        }
        let mut take = s.len();
        if take > N - self.len {
            self.truncated = true;
            take = N - self.len;
            while !s.is_char_boundary(take) {
                take -= 1;
            }
        }
        if let (Some(to), Some(from)) = (
            self.bytes.get_mut(self.len..self.len + take),
            s.as_bytes().get(..take),
        ) {
            to.copy_from_slice(from);
            self.len += take;
        }
        Ok(())
    }
}

/// Writes one line (a newline is added) of at most 511 bytes to `fd` with one `write(2)`, so that
/// lines of several processes do not mix.
///
/// # Errors
/// Whatever `write(2)` says.
pub fn write_line(fd: i32, args: fmt::Arguments<'_>) -> Result<(), Errno> {
    let mut line = StackBuf::<512>::new();
    let _ = fmt::Write::write_fmt(&mut line, args);
    let len = line.len.min(511);
    if let Some(end) = line.bytes.get_mut(len) {
        *end = b'\n';
    }
    file::write_all(fd, line.bytes.get(..=len).unwrap_or(&[]))
}
