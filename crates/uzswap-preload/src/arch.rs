//! *What*: code of this library that is written for one architecture: assembly, and what it shares
//! with assembly. A new architecture is a folder beside `x86_64`, and one in `uzswap-sys`.
//!
//! An architecture provides, under these names:
//! - `code`: the instructions before a system call of the C library, and the number they load.
//! - `dl`: `dlopen` and `dlsym`, which jump on.
//! - `entry`: where the kernel enters our handlers: `fault`, `sigsys`, `program`.
//! - `fast`: issuing a call in the program's own context.
//! - `malloc`: `with_caller!`, `other_name!`.
//! - `shortcut`: calls by rewritten sites.
//! - `site`: the instructions of a site, and those that take their place.
//! - `start`: the first instructions of the image.
//! - `stub`: issuing a call through the stub page, and the window.
//! - `symbols`: symbols that Rust cannot declare.
//! - `thread`: the start of the program's threads, and the switch to a handler stack.
//! - `tls`: one thread-local word.
//!
//! *Invariants*: what is not in the folder names no register, instruction or number of a CPU.
//! *Locking*: none. *Context*: any.

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    pub mod code;
    #[cfg(not(feature = "loader"))]
    pub mod dl;
    pub mod entry;
    #[cfg(not(feature = "loader"))]
    pub mod fast;
    #[cfg(not(feature = "loader"))]
    pub mod malloc;
    #[cfg(feature = "loader")]
    mod memory;
    #[cfg(feature = "loader")]
    pub mod shortcut;
    #[cfg(feature = "loader")]
    pub mod site;
    #[cfg(feature = "loader")]
    pub mod start;
    pub mod stub;
    #[cfg(not(feature = "loader"))]
    mod symbols;
    pub mod thread;
    #[cfg(not(feature = "loader"))]
    pub mod tls;
}

#[cfg(target_arch = "x86_64")]
pub use x86_64::{code, entry, stub, thread};
#[cfg(not(feature = "loader"))]
pub use x86_64::{dl, fast, malloc, tls};
#[cfg(feature = "loader")]
pub use x86_64::{shortcut, site};
