//! *What*: puts the engine's image (the crate's other form, `loader`) into a program that the
//! dynamic linker cannot bring the library into: before exec, a process beside this one begins to
//! trace the thread; after exec, before the program's first instruction, it has the new process map
//! the image, starts it there, and ends.
//!
//! The program is the kernel's in all else: its own file, name, stack, auxiliary vector and limits.
//!
//! *Invariants*: what fails on the way leaves a program that runs as it does natively. The tracer
//! touches no memory that may be evicted, and frees its own. All signals of the program are blocked
//! while it makes calls for the tracer.
//! *Locking*: none. *Context*: [`exec`]: signal, with what is executed chosen; the rest: the
//! tracer.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use uzswap_core::Masked;
use uzswap_sys::file::{AT_FDCWD, O_CLOEXEC, O_RDONLY};
use uzswap_sys::mem::{
    IoVec, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap,
};
use uzswap_sys::process::{self, Beside};
use uzswap_sys::ptrace::{self, Registers, Stop};
use uzswap_sys::signal::{SIGKILL, SigSet, tgkill};
use uzswap_sys::syscall::{call5, call6, from_raw, int};
use uzswap_sys::thread::{Timespec, wait_exit};
use uzswap_sys::{Errno, PAGE_SIZE, arch, futex, nr, thread};

mod image;
use image::{Image, Segment};

/// See prctl(2).
pub const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

/// Longest path of the image, its zero byte included.
const PATH_LEN: usize = 256;

/// What the tracer and the thread tell each other.
const STARTED: u32 = 0;
/// The thread says: it may be traced.
const ALLOWED: u32 = 1;
/// The tracer says: it is traced.
const TRACED: u32 = 2;
/// The tracer says: it is not, and [`Job::errno`] is why.
const REFUSED: u32 = 3;

/// What the tracer works on, in a mapping of its own.
#[repr(C, align(4096))]
struct Job {
    tracer_stack: [u8; 48 << 10],
    helper_stack: [u8; 8 << 10],
    alive: AtomicU32,
    state: AtomicU32,
    errno: AtomicI32,
    tid: i32,
    path: [u8; PATH_LEN],
}

/// Executes by `issue` what the image at `path` can be put into. Returns what `issue` returns,
/// which is why exec failed.
///
/// # Errors
/// Nothing was executed: the image cannot be put in, and this is why.
pub fn exec(m: &Masked, path: &[u8], issue: impl FnOnce() -> isize) -> Result<isize, Errno> {
    can_dispatch()?;
    let job = Job::new(path)?;
    let done = job.start(m).map(|()| issue());
    // There was no exec: its tracee goes on by itself.
    let tracer = job.alive.load(Ordering::Relaxed).cast_signed();
    if tracer > 0 {
        let _ = tgkill(tracer, tracer, SIGKILL);
    }
    wait_exit(&job.alive);
    job.free();
    done
}

/// Whether the kernel has what the image's guard needs.
fn can_dispatch() -> Result<(), Errno> {
    if cfg!(feature = "loader") {
        // It is on, and must stay so: the exec may fail.
        return Ok(());
    }
    // SAFETY: turns off what is not on.
    unsafe { call5(nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) }.map(drop)
}

impl Job {
    fn new(path: &[u8]) -> Result<&'static Job, Errno> {
        let prot = PROT_READ | PROT_WRITE;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        // SAFETY: a fresh mapping where the kernel likes, zero-filled: a `Job`.
        let job = unsafe { &mut *(mmap(0, size_of::<Job>(), prot, flags, -1, 0)? as *mut Job) };
        match job.path.get_mut(..path.len()) {
            Some(to) if !path.is_empty() && path.len() < PATH_LEN => to.copy_from_slice(path),
            _ => {
                job.free();
                return Err(Errno::ENOENT);
            }
        }
        job.tid = thread::gettid();
        Ok(job)
    }

    fn free(&self) {
        // SAFETY: `new` mapped it, and the tracer is gone.
        let _ = unsafe { munmap(core::ptr::from_ref(self) as usize, size_of::<Job>()) };
    }

    /// Starts the tracer, and waits until it traces this thread.
    fn start(&'static self, _: &Masked) -> Result<(), Errno> {
        const PR_SET_PTRACER: usize = 0x5961_6d61;
        let end = |stack: &[u8]| stack.as_ptr_range().end as usize;
        let what = Beside {
            stack_top: end(&self.tracer_stack),
            helper_stack_top: end(&self.helper_stack),
            entry: trace,
            argument: core::ptr::from_ref(self).cast_mut().cast(),
            alive: &self.alive,
        };
        // SAFETY: fresh stacks; the tracer runs code of ours only; all signals are blocked.
        unsafe { process::spawn_beside(&what) }?;
        let tracer = self.alive.load(Ordering::Relaxed) as usize;
        // Where only ancestors may trace (Yama). Elsewhere the kernel does not know it.
        // SAFETY: changes who may trace.
        let _ = unsafe { call5(nr::PRCTL, PR_SET_PTRACER, tracer, 0, 0, 0) };
        self.say(ALLOWED);
        match self.next(ALLOWED) {
            TRACED => Ok(()),
            _ => Err(Errno(self.errno.load(Ordering::Relaxed))),
        }
    }

    fn say(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        futex::wake(&self.state, 1);
    }

    /// Waits until the other says something else than `state`. It says [`REFUSED`] if it does not
    /// speak: it has been killed.
    fn next(&self, state: u32) -> u32 {
        const LOOK: Timespec = Timespec {
            sec: 0,
            nsec: 10_000_000,
        };
        const MAX_LOOKS: u32 = 200;
        for _ in 0..MAX_LOOKS {
            match self.state.load(Ordering::Acquire) {
                same if same == state => {}
                other => return other,
            }
            let _ = futex::wait(&self.state, state, Some(&LOOK));
            if self.alive.load(Ordering::Acquire) == 0 {
                break;
            }
        }
        self.errno.store(Errno::ESRCH.0, Ordering::Relaxed);
        REFUSED
    }
}

// The tracer --------------------------------------------------------------------------------------

/// Where the tracer starts.
extern "C" fn trace(job: *mut c_void) {
    // SAFETY: `start` passes one, which is there until the tracer has ended.
    let job = unsafe { &*job.cast::<Job>() };
    // Copies of the program's: somebody may wait for their end.
    let _ = process::close_all_but(&[]);
    let image = Image::read(&job.path);
    let traced = match job.next(STARTED) {
        REFUSED => return,
        _ => image.and_then(|image| ptrace::seize(job.tid).map(|()| image)),
    };
    match traced {
        Err(errno) => {
            job.errno.store(errno.0, Ordering::Relaxed);
            job.say(REFUSED);
        }
        Ok(image) => {
            job.say(TRACED);
            follow(&job.path, &image);
            // The maker of a vfork child has this memory, too, and does not know of it.
            // SAFETY: nobody else uses it: who made it has executed, or is gone.
            unsafe { process::leave(core::ptr::from_ref(job) as usize, size_of::<Job>()) }
        }
    }
}

/// Waits for the exec.
fn follow(path: &[u8; PATH_LEN], image: &Image) {
    while let Ok((pid, stop)) = ptrace::wait() {
        let on = match stop {
            Stop::Exec => {
                let _ = put_in(pid, path, image);
                let _ = ptrace::detach(pid);
                return;
            }
            Stop::Ended => return,
            Stop::Group => ptrace::listen(pid).or_else(|_| ptrace::go_on(pid, 0)),
            Stop::Call => ptrace::go_on(pid, 0),
            Stop::Signal(signal) => ptrace::go_on(pid, signal),
        };
        if on.is_err() {
            return;
        }
    }
}

/// A stopped process that makes calls for us.
struct Tracee {
    pid: i32,
    /// What it begins with. A call instruction lies there meanwhile.
    registers: Registers,
}

fn put_in(pid: i32, path: &[u8; PATH_LEN], image: &Image) -> Result<(), Errno> {
    ptrace::end_together(pid)?;
    let mask = ptrace::mask(pid)?;
    ptrace::set_mask(pid, SigSet::FULL)?;
    // Past the exec itself, whose return would overwrite a register.
    step(pid)?;
    let registers = ptrace::registers(pid)?;
    if registers.is_native() {
        let tracee = Tracee { pid, registers };
        let at = registers.instruction_pointer();
        let text = ptrace::word(pid, at)?;
        let mut code = text.to_ne_bytes();
        for (to, from) in code.iter_mut().zip(arch::ptrace::CALL_CODE) {
            *to = from;
        }
        ptrace::set_word(pid, at, usize::from_ne_bytes(code))?;
        let mapped = tracee.map(path, image);
        ptrace::set_word(pid, at, text)?;
        let begin = match mapped {
            Ok(()) => registers.with_entry(image.entry, at),
            Err(_) => registers,
        };
        ptrace::set_registers(pid, &begin)?;
    }
    ptrace::set_mask(pid, mask)
}

/// Lets the process run to its next entry to, or return from, a call.
fn step(pid: i32) -> Result<(), Errno> {
    let mut on = ptrace::to_call(pid);
    loop {
        on?;
        match ptrace::wait()?.1 {
            Stop::Call => return Ok(()),
            Stop::Ended => return Err(Errno::ESRCH),
            Stop::Group => on = ptrace::listen(pid).or_else(|_| ptrace::to_call(pid)),
            Stop::Exec | Stop::Signal(_) => on = ptrace::to_call(pid),
        }
    }
}

impl Tracee {
    /// Has it make a call.
    fn call(&self, nr: usize, args: [usize; 6]) -> Result<usize, Errno> {
        ptrace::set_registers(self.pid, &self.registers.with_call(nr, args))?;
        step(self.pid)?;
        step(self.pid)?;
        from_raw(ptrace::registers(self.pid)?.result())
    }

    /// Writes to its memory.
    fn write(&self, to: usize, bytes: &[u8]) -> Result<(), Errno> {
        let local = IoVec {
            base: bytes.as_ptr() as usize,
            len: bytes.len(),
        };
        let remote = IoVec {
            base: to,
            len: bytes.len(),
        };
        let (local, remote) = (&raw const local, &raw const remote);
        let (local, remote) = (local as usize, remote as usize);
        // SAFETY: the kernel reads the vectors and the bytes.
        let done = unsafe { call6(nr::PROCESS_VM_WRITEV, int(self.pid), local, 1, remote, 1, 0) }?;
        (done == bytes.len()).then_some(()).ok_or(Errno::EFAULT)
    }

    /// Has it map the image.
    fn map(&self, path: &[u8; PATH_LEN], image: &Image) -> Result<(), Errno> {
        // Below the red zone; the kernel gives a new stack 128 KiB.
        let at = self.registers.stack_pointer() - 4 * PATH_LEN;
        self.write(at, path)?;
        let flags = (O_RDONLY | O_CLOEXEC).unsigned_abs() as usize;
        let fd = self.call(nr::OPENAT, [int(AT_FDCWD), at, flags, 0, 0, 0])?;
        let mapped = image
            .segments()
            .try_for_each(|segment| self.map_segment(segment, fd));
        let closed = self.call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]);
        mapped.and(closed).map(drop)
    }

    fn map_segment(&self, s: &Segment, fd: usize) -> Result<(), Errno> {
        const ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        let skew = s.start % PAGE_SIZE;
        let start = s.start - skew;
        let file_end = (s.start + s.file_len).next_multiple_of(PAGE_SIZE);
        let end = (s.start + s.len).next_multiple_of(PAGE_SIZE);
        let flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE;
        let map = |start, end, flags: i32, fd, offset| {
            if end <= start {
                return Ok(());
            }
            let args = [start, end - start, s.prot, int(flags), fd, offset];
            self.call(nr::MMAP, args)
                .and_then(|at| (at == start).then_some(()).ok_or(Errno::EEXIST))
        };
        if s.file_len > 0 {
            map(start, file_end, flags, fd, s.offset - skew)?;
            if s.len > s.file_len {
                let from = s.start + s.file_len;
                self.write(from, ZEROES.get(..file_end - from).unwrap_or_default())?;
            }
        }
        let rest = if s.file_len > 0 { file_end } else { start };
        map(rest, end, flags | MAP_ANONYMOUS, usize::MAX, 0)
    }
}
