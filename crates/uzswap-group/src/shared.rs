//! *What*: [`Shared`], an enum in shared memory, so that a cell says which values it takes.
//! *Invariants*: four bytes; zero is the enum's first value. A number that stands for none, as a
//! newer version may write it, reads as that first value.
//! *Locking*: none. *Context*: any, in every process of the group.

use core::marker::PhantomData;
use uzswap_sync::primitive::{AtomicU32, Ordering};

/// A value that four bytes hold.
pub trait Encoded: Copy + PartialEq {
    /// As a number.
    fn encode(self) -> u32;
    /// What a number stands for.
    fn decode(number: u32) -> Self;
}

/// An atomic `T`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Shared<T> {
    cell: AtomicU32,
    value: PhantomData<fn() -> T>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self {
            cell: AtomicU32::default(),
            value: PhantomData,
        }
    }
}

impl<T: Encoded> Shared<T> {
    /// The number, to sleep on.
    pub fn as_futex(&self) -> &AtomicU32 {
        &self.cell
    }

    /// See [`AtomicU32::load`].
    pub fn load(&self, order: Ordering) -> T {
        T::decode(self.cell.load(order))
    }

    /// See [`AtomicU32::store`].
    pub fn store(&self, value: T, order: Ordering) {
        self.cell.store(value.encode(), order);
    }

    /// See [`AtomicU32::swap`].
    pub fn swap(&self, value: T, order: Ordering) -> T {
        T::decode(self.cell.swap(value.encode(), order))
    }

    /// See [`AtomicU32::compare_exchange`].
    ///
    /// # Errors
    /// It holds the value returned, which is not `from`.
    pub fn compare_exchange(
        &self,
        from: T,
        to: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        self.cell
            .compare_exchange(from.encode(), to.encode(), success, failure)
            .map(T::decode)
            .map_err(T::decode)
    }

    /// Changes `from` to `to`, acquiring and releasing; whether it held `from`.
    pub fn turn(&self, from: T, to: T) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// See [`AtomicU32::fetch_update`].
    ///
    /// # Errors
    /// It holds the value returned, for which `change` gave none.
    pub fn fetch_update(
        &self,
        success: Ordering,
        failure: Ordering,
        mut change: impl FnMut(T) -> Option<T>,
    ) -> Result<T, T> {
        let change = |number| change(T::decode(number)).map(T::encode);
        self.cell
            .fetch_update(success, failure, change)
            .map(T::decode)
            .map_err(T::decode)
    }
}

/// An enum whose values are numbers in shared memory; the first one stands for 0.
macro_rules! encoded {
    (
        $(#[$about:meta])*
        $name:ident {
            $(#[$first_doc:meta])* $first:ident,
            $($(#[$doc:meta])* $variant:ident = $number:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name {
            $(#[$first_doc])* $first = 0,
            $($(#[$doc])* $variant = $number,)+
        }

        impl $crate::shared::Encoded for $name {
            fn encode(self) -> u32 {
                self as u32
            }

            fn decode(number: u32) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    _ => Self::$first,
                }
            }
        }
    };
}
pub(crate) use encoded;
