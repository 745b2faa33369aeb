//! *What*: calls on sockets whose begin is noted, for whoever continues them where the socket has
//! a timeout ([`crate::guard::timed`]). They are not issued here: they are rare.
//!
//! *Invariants*, *Locking*, *Context*: as [`super`].

use super::{next, real, recv, send, timed};
use crate::guard;

type IoPeer = unsafe extern "C" fn(i32, usize, usize, i32, usize, usize) -> isize;
type Peer = unsafe extern "C" fn(i32, usize, usize) -> i32;
type PeerFlags = unsafe extern "C" fn(i32, usize, usize, i32) -> i32;
type SetOption = unsafe extern "C" fn(i32, i32, i32, usize, u32) -> i32;

macro_rules! with_peer {
    ($($name:ident => $without:path;)*) => {$(
        /// `recvfrom(2)`, `sendto(2)`: as [`recv`] and [`send`] where there is no address.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            fd: i32, buf: usize, len: usize, flags: i32, name: usize, name_len: usize,
        ) -> isize {
            // SAFETY: the program's own call.
            unsafe {
                if name == 0 {
                    return $without(fd, buf, len, flags);
                }
                let real = real::<IoPeer>(&next::$name);
                timed(|| real(fd, buf, len, flags, name, name_len))
            }
        }
    )*};
}
with_peer! {
    recvfrom => recv;
    sendto => send;
}

macro_rules! with_address {
    ($($name:ident)*) => {$(
        /// `accept(2)`, `connect(2)`.
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: i32, address: usize, len: usize) -> i32 {
            let real = real::<Peer>(&next::$name);
            // SAFETY: the program's own call.
            timed(|| unsafe { real(fd, address, len) })
        }
    )*};
}
with_address! { accept connect }

/// `accept4(2)`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: i32, address: usize, len: usize, flags: i32) -> i32 {
    let real = real::<PeerFlags>(&next::accept4);
    // SAFETY: the program's own call.
    timed(|| unsafe { real(fd, address, len, flags) })
}

/// `setsockopt(2)`: from the first timeout on, begins are noted.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(fd: i32, level: i32, name: i32, value: usize, len: u32) -> i32 {
    guard::timed::sets_option(level, name);
    let real = real::<SetOption>(&next::setsockopt);
    // SAFETY: the program's own call.
    unsafe { real(fd, level, name, value, len) }
}
