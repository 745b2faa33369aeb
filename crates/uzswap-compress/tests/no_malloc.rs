//! After init no codec calls the C library's allocator, even on errors; and its stack use is
//! bounded, because a fault handler runs on the program's stack.
#![cfg(not(miri))]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use uzswap_compress::{Codec, MAX_BLOCK, Workspace};

mod owned;
mod pages;

thread_local! {
    /// Calls of any allocator function on this thread, Rust's own included.
    static NR_CALLS: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(len: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, len: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, len: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, len: usize) -> *mut c_void;
    fn __libc_free(ptr: *mut c_void);
}

fn count() {
    NR_CALLS.with(|n| n.set(n.get() + 1));
}

// These win over the C library's, for the codecs as for everybody.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(len: usize) -> *mut c_void {
    count();
    // SAFETY: the caller's call, handed on.
    unsafe { __libc_malloc(len) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(n: usize, len: usize) -> *mut c_void {
    count();
    // SAFETY: the caller's call, handed on.
    unsafe { __libc_calloc(n, len) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, len: usize) -> *mut c_void {
    count();
    // SAFETY: the caller's call, handed on; all memory here is the C library's.
    unsafe { __libc_realloc(old, len) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, len: usize) -> i32 {
    count();
    // SAFETY: the caller's call, handed on: `out` is there to be written.
    unsafe { out.write(__libc_memalign(align, len)) };
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn free(ptr: *mut c_void) {
    count();
    // SAFETY: the caller's call, handed on; all memory here is the C library's.
    unsafe { __libc_free(ptr) }
}

fn codecs() -> Vec<Codec> {
    owned::codecs("lz4 zstd:-1 zstd:1 zstd:3 zstd:19 deflate:1 deflate:6 deflate:12 pz:1 pz:3")
}

/// Compresses and decompresses, with good and bad arguments.
fn exercise(w: &mut Workspace, sources: &[pages::Block], out: &mut [u8], back: &mut [u8]) {
    for src in sources {
        // SAFETY: the block is of that length, in ordinary memory, aligned to 64.
        let compressed = unsafe { w.compressor.compress(src.as_ptr(), src.len(), out) };
        if let Ok(n) = compressed {
            let back = &mut back[..src.len()];
            w.decompressor
                .decompress(w.compressor.codec().id(), &out[..n], back)
                .expect("its own object");
            let _ = w
                .decompressor
                .decompress(w.compressor.codec().id(), &out[..n / 2], back);
        }
        // SAFETY: as above.
        let _ = unsafe {
            w.compressor
                .compress(src.as_ptr(), src.len(), &mut out[..100])
        };
    }
}

fn sources() -> Vec<pages::Block> {
    let kinds = pages::KINDS.iter();
    kinds
        .flat_map(|kind| [4096, MAX_BLOCK].map(|len| pages::block(kind, len, 5)))
        .collect()
}

#[test]
fn nothing_is_allocated_from_init_on() {
    let sources = sources();
    let (mut out, mut back) = (vec![0; MAX_BLOCK], vec![0; MAX_BLOCK]);
    let before = NR_CALLS.get();
    drop(std::hint::black_box(Box::new(before)));
    assert!(NR_CALLS.get() >= before + 2, "the counter counts");
    for codec in codecs() {
        let len = Workspace::required_size(codec, MAX_BLOCK);
        let mut memory = pages::Memory::new(len);
        let before = NR_CALLS.get();
        // SAFETY: the memory is that long, outlives the workspace and is left alone while it lives.
        let mut w = unsafe { Workspace::init(memory.as_mut_ptr(), len, codec, MAX_BLOCK) }
            .expect("workspace");
        exercise(&mut w, &sources, &mut out, &mut back);
        assert_eq!(NR_CALLS.get() - before, 0, "{codec}");
    }
}

struct Job {
    workspace: owned::Owned,
    sources: Vec<pages::Block>,
    out: Vec<u8>,
    back: Vec<u8>,
}

extern "C" fn run_job(job: *mut c_void) {
    // SAFETY: the only caller passes a `Job`, which it leaves alone until this thread has ended.
    let job = unsafe { &mut *job.cast::<Job>() };
    exercise(
        &mut job.workspace,
        &job.sources,
        &mut job.out,
        &mut job.back,
    );
}

/// Measures each codec's stack on a thread whose stack is filled with a pattern.
#[test]
fn the_stack_use_of_every_codec_is_bounded() {
    static ALIVE: AtomicU32 = AtomicU32::new(0);
    static DEEPEST: AtomicUsize = AtomicUsize::new(0);
    const STACK: usize = 256 << 10;
    for codec in codecs() {
        let (out, back) = (vec![0; MAX_BLOCK], vec![0; MAX_BLOCK]);
        let mut job = Job {
            workspace: owned::Owned::new(codec, MAX_BLOCK),
            sources: sources(),
            out,
            back,
        };
        let mut stack = pages::Memory::new(STACK);
        stack.fill(0xc3);
        let top = stack.as_mut_ptr().addr() + STACK;
        let full = uzswap_sys::signal::SigSet::FULL;
        let set = uzswap_sys::signal::SIG_SETMASK;
        let old = uzswap_sys::signal::sigprocmask(set, Some(full)).expect("mask");
        let arg = (&raw mut job).cast();
        // SAFETY: the stack and the job are there until the thread has ended, which is waited for;
        // signals are blocked, and what it runs uses no thread-local storage.
        unsafe { uzswap_sys::thread::spawn_raw(top, run_job, arg, &ALIVE) }.expect("clone");
        uzswap_sys::thread::wait_exit(&ALIVE);
        uzswap_sys::signal::sigprocmask(set, Some(old)).expect("mask");
        let untouched = stack.iter().take_while(|&&b| b == 0xc3).count();
        let used = STACK - untouched;
        println!("{codec}: {used} bytes of stack");
        DEEPEST.fetch_max(used, Ordering::Relaxed);
        assert!(used < 32 << 10, "{codec} needs {used} bytes of stack");
    }
    assert!(DEEPEST.load(Ordering::Relaxed) > 500);
}
