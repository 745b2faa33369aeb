//! *What*: exported allocation functions that look at their caller, which only assembly can state.
//! *Invariants*: a jump leaves registers and stack as the program's call left them.
//! *Locking*: none. *Context*: the program's.

/// An exported allocation function: jumps to `$to` with the caller's address as one more argument.
macro_rules! with_caller {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) => $to:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> *mut c_void {
            core::arch::naked_asm!(
                concat!("mov ", with_caller!(@register_behind $($arg),*), ", [rsp]"),
                "jmp {to}",
                to = sym $to,
            )
        }
    };
    (@register_behind $a:ident) => { "rsi" };
    (@register_behind $a:ident, $b:ident) => { "rdx" };
    (@register_behind $a:ident, $b:ident, $c:ident) => { "rcx" };
}
pub(crate) use with_caller;

/// Exported functions that are others under another name. Each jumps, so that those see its caller.
macro_rules! other_name {
    ($($name:ident => $to:path;)*) => {$(
        /// See the function that it jumps to.
        ///
        /// # Safety
        /// As that function's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!("jmp {to}", to = sym $to)
        }
    )*};
}
pub(crate) use other_name;
