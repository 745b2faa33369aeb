//! *What*: `memcpy` and its relatives, which compilers call and no library is there to give.
//! *Invariants*: all that is read of a piece is read before any of it is written, so the ranges of
//! `memmove` may overlap. *Locking*: none. *Context*: any.

use core::arch::naked_asm;
use core::ffi::c_void;

/// From this length on the processor's own copy is quicker.
const LONG: usize = 2048;

/// See memcpy(3).
///
/// # Safety
/// As there.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    naked_asm!("jmp {memmove}", memmove = sym memmove)
}

/// See memmove(3).
///
/// # Safety
/// As there.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    naked_asm!(
        "mov rax, rdi",
        "cmp rdx, 16",
        "jb 5f",
        "cmp rdx, 32",
        "ja 2f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "ret",
        "2:",
        // Head or tail, up to 64 bytes, is kept in registers until all else is done.
        "cmp rdx, 64",
        "ja 3f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + rdx - 32]",
        "movups xmm3, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "ret",
        "3:",
        "mov rcx, rdi",
        "sub rcx, rsi",
        "cmp rcx, rdx",
        "jb 4f",
        "cmp rdx, {long}",
        "jae 9f",
        "movups xmm4, [rsi + rdx - 64]",
        "movups xmm5, [rsi + rdx - 48]",
        "movups xmm6, [rsi + rdx - 32]",
        "movups xmm7, [rsi + rdx - 16]",
        "lea r8, [rdi + rdx - 64]",
        "33:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "add rsi, 64",
        "add rdi, 64",
        "cmp rdi, r8",
        "jb 33b",
        "movups [r8], xmm4",
        "movups [r8 + 16], xmm5",
        "movups [r8 + 32], xmm6",
        "movups [r8 + 48], xmm7",
        "ret",
        // The end lies on what is still to be read: backwards.
        "4:",
        "movups xmm4, [rsi]",
        "movups xmm5, [rsi + 16]",
        "movups xmm6, [rsi + 32]",
        "movups xmm7, [rsi + 48]",
        "44:",
        "movups xmm0, [rsi + rdx - 64]",
        "movups xmm1, [rsi + rdx - 48]",
        "movups xmm2, [rsi + rdx - 32]",
        "movups xmm3, [rsi + rdx - 16]",
        "movups [rdi + rdx - 64], xmm0",
        "movups [rdi + rdx - 48], xmm1",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "sub rdx, 64",
        "cmp rdx, 64",
        "ja 44b",
        "movups [rdi], xmm4",
        "movups [rdi + 16], xmm5",
        "movups [rdi + 32], xmm6",
        "movups [rdi + 48], xmm7",
        "ret",
        "5:",
        "cmp edx, 8",
        "jb 6f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
        "6:",
        "cmp edx, 4",
        "jb 7f",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        "7:",
        "test edx, edx",
        "jz 8f",
        // One byte to three: the first, the middle, the last.
        "movzx ecx, byte ptr [rsi]",
        "movzx r8d, byte ptr [rsi + rdx - 1]",
        "mov r10, rdx",
        "shr r10, 1",
        "movzx r9d, byte ptr [rsi + r10]",
        "mov [rdi], cl",
        "mov [rdi + r10], r9b",
        "mov [rdi + rdx - 1], r8b",
        "8:",
        "ret",
        "9:",
        "mov rcx, rdx",
        "rep movsb",
        "ret",
        long = const LONG,
    )
}

/// See memset(3).
///
/// # Safety
/// As there.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut c_void, byte: i32, len: usize) -> *mut c_void {
    naked_asm!(
        "mov r8, rdi",
        "movzx eax, sil",
        "cmp rdx, 16",
        "jb 3f",
        "cmp rdx, {long}",
        "jae 3f",
        "mov rcx, 0x0101010101010101",
        "imul rax, rcx",
        "movq xmm0, rax",
        "punpcklqdq xmm0, xmm0",
        "lea rcx, [rdi + rdx - 16]",
        "2:",
        "movups [rdi], xmm0",
        "add rdi, 16",
        "cmp rdi, rcx",
        "jb 2b",
        "movups [rcx], xmm0",
        "mov rax, r8",
        "ret",
        "3:",
        "mov rcx, rdx",
        "rep stosb",
        "mov rax, r8",
        "ret",
        long = const LONG,
    )
}

/// See memcmp(3).
///
/// # Safety
/// As there.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const c_void, b: *const c_void, len: usize) -> i32 {
    naked_asm!(
        "2:",
        "cmp rdx, 8",
        "jb 3f",
        "mov rax, [rdi]",
        "mov rcx, [rsi]",
        "add rdi, 8",
        "add rsi, 8",
        "sub rdx, 8",
        "cmp rax, rcx",
        "je 2b",
        // The lowest address decides.
        "bswap rax",
        "bswap rcx",
        "cmp rax, rcx",
        "sbb eax, eax",
        "or eax, 1",
        "ret",
        "3:",
        "test rdx, rdx",
        "jz 4f",
        "movzx eax, byte ptr [rdi]",
        "movzx ecx, byte ptr [rsi]",
        "inc rdi",
        "inc rsi",
        "dec rdx",
        "sub eax, ecx",
        "jz 3b",
        "ret",
        "4:",
        "xor eax, eax",
        "ret",
    )
}

/// See bcmp(3).
///
/// # Safety
/// As there.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const c_void, b: *const c_void, len: usize) -> i32 {
    naked_asm!("jmp {memcmp}", memcmp = sym memcmp)
}

/// See strlen(3).
///
/// # Safety
/// As there.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(text: *const core::ffi::c_char) -> usize {
    naked_asm!(
        "mov rax, -1",
        "2:",
        "inc rax",
        "cmp byte ptr [rdi + rax], 0",
        "jne 2b",
        "ret",
    )
}
