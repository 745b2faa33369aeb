//! *What*: the one place from which this crate and those above take atomics, cells and spin hints:
//! `core`'s, or with `--cfg loom` a model checker's, which sees every access that the real build
//! makes. The checker is loom, which tries every order of a few steps, or with `--cfg shuttle` as
//! well shuttle, which tries many random orders of many steps.
//!
//! *Invariants*: a value that two threads share and that a model reaches is never one of
//! `core::sync::atomic` by name.
//! *Locking*: none.
//! *Context*: any: signal, worker, init.

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering, fence,
};

#[cfg(all(loom, not(shuttle)))]
#[doc(hidden)]
pub use loom as checker;
#[cfg(all(loom, shuttle))]
#[doc(hidden)]
pub use shuttle as checker;

#[cfg(loom)]
pub use checker::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering, fence,
};

/// Defines a constructor that is `const`, but not under a model checker: its atomics are made at
/// run time.
#[macro_export]
macro_rules! const_unless_modelled {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $of:ty)?) -> Self $body:block) => {
        $(#[$doc])*
        #[cfg(not(loom))]
        $vis const fn $name($($arg: $of)?) -> Self $body

        $(#[$doc])*
        #[cfg(loom)]
        $vis fn $name($($arg: $of)?) -> Self $body
    };
}

/// Tells the processor (or the model) that this thread waits for another one.
#[inline]
pub fn spin_loop() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    // A checker gives up on a loop that never lets another thread run.
    #[cfg(loom)]
    checker::thread::yield_now();
}

#[cfg(all(loom, not(shuttle)))]
pub use loom::cell::{ConstPtr, MutPtr, UnsafeCell};

#[cfg(any(not(loom), shuttle))]
pub use plain::{ConstPtr, MutPtr, UnsafeCell};

#[cfg(any(not(loom), shuttle))]
mod plain {
    /// `core`'s cell behind the interface that loom's cell has.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// A pointer to the value, to read. Under loom, holding it is the tracked access.
        #[inline]
        pub const fn get(&self) -> ConstPtr<T> {
            ConstPtr(self.0.get())
        }

        /// A pointer to the value, to write. Under loom, holding it is the tracked access.
        #[inline]
        pub const fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }
    }

    /// A pointer into an [`UnsafeCell`], to read.
    #[derive(Debug)]
    pub struct ConstPtr<T>(*const T);

    impl<T> ConstPtr<T> {
        /// Hands the pointer to `f`.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0)
        }
    }

    /// A pointer into an [`UnsafeCell`], to write.
    #[derive(Debug)]
    pub struct MutPtr<T>(*mut T);

    impl<T> MutPtr<T> {
        /// Hands the pointer to `f`.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0)
        }
    }
}
