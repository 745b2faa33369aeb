//! *What*: exported allocation functions that only assembly can state: those that look at their
//! caller, and those that leave by a jump.
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

/// Forms of `operator new` that throw: call `allocate(size, align)` (0: no alignment asked for),
/// and where it returns null jump to what `thrower()` returns, with the stack as the caller left
/// it.
macro_rules! throwing_new {
    ($($name:ident($($arg:ident),*);)*) => {$(
        /// A form of `operator new` that throws.
        ///
        /// # Safety
        /// As the C++ library's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the C++ ABI's name")]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> *mut c_void {
            core::arch::naked_asm!(
                "sub rsp, 8",
                throwing_new!(@align $($arg),*),
                "call {allocate}",
                "test rax, rax",
                "jz 2f",
                "add rsp, 8",
                "ret",
                "2:",
                "call {thrower}",
                "add rsp, 8",
                "jmp rax",
                allocate = sym allocate,
                thrower = sym thrower,
            )
        }
    )*};
    (@align $size:ident) => { "xor esi, esi" };
    (@align $size:ident, $align:ident) => { "" };
}
pub(crate) use throwing_new;
