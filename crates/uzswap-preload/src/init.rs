//! *What*: start of the library in a process: finds the group, claims an entry in it, starts the
//! engine, installs handlers and guard.
//!
//! It runs once, at the first allocation, the first mapping or the library's own constructor,
//! whichever comes first; ld.so allocates before any constructor runs. Where there is no ld.so, the
//! image starts with it. Without a group in the environment the library stays inert: every exported
//! function does what it does natively.
//!
//! *Invariants*: uses raw system calls only, since libc may not be set up yet; never allocates.
//! The engine starts before the handlers are installed, the handlers before the guard.
//! *Locking*: none. A process has one thread when this runs.
//! *Context*: init.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Arguments;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use uzswap_core::{Engine, Masked, StartError, StartStep};
use uzswap_group::environment::{GROUP_ENV, MAX_FILE, Told};
use uzswap_group::group::{
    FailureReason, GROUP_LEN, Group, Identity, MAGIC, Process, Reservation, is_alive,
};
use uzswap_sys::fmt::write_line;
use uzswap_sys::syscall::call5;
use uzswap_sys::{Errno, arch, file, mem, nr, thread};

#[cfg(not(feature = "loader"))]
use crate::guard::{
    filter,
    room::{self, MAX_FILTERS, Room},
};
use crate::proc_files::for_each_record;
use crate::{engine_files, environ, guard, malloc};

/// This process's engine. Zero-filled until it starts.
pub static ENGINE: Engine = Engine::new();

/// The group's mapping; null in a process that is not managed.
static GROUP: AtomicPtr<Group> = AtomicPtr::new(core::ptr::null_mut());

/// The number of this process's run; its children's as well.
static RUN: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the longest path of a group file, its zero byte included.
const PATH_LEN: usize = 1024;
/// Bytes of the longest value of [`GROUP_ENV`].
const VALUE_LEN: usize = PATH_LEN + 16 + 2 * MAX_FILE;

/// Whether [`start`] has begun.
static TRIED: AtomicBool = AtomicBool::new(false);

#[cfg(not(feature = "loader"))]
/// This process is not managed and executes programs without our being asked.
static EXECUTES_UNSEEN: AtomicBool = AtomicBool::new(false);

/// Whether this process is managed; starts it if nothing has yet.
#[inline]
pub fn managed() -> bool {
    if !TRIED.load(Ordering::Relaxed) {
        start();
    }
    ENGINE.started()
}

#[cold]
fn start() {
    // A call that re-enters during the start is served natively until the engine has started.
    if TRIED.swap(true, Ordering::Relaxed) {
        return;
    }
    malloc::set_up();
    let mut value = [0_u8; VALUE_LEN];
    let Some(value) = told(&mut value) else {
        return;
    };
    #[cfg(not(feature = "loader"))]
    if guard::text::is_go() {
        EXECUTES_UNSEEN.store(true, Ordering::Relaxed);
        say(format_args!(
            "uzswap: a Go program is not managed: it makes system calls behind the C library"
        ));
        return;
    }
    #[cfg(not(feature = "loader"))]
    if room::for_filters() == Room::None && filter::present() {
        EXECUTES_UNSEEN.store(true, Ordering::Relaxed);
        say(format_args!(
            "uzswap: this process is not managed: {MAX_FILTERS} programs that executed one another \
             have left a filter each, and the kernel has no room for many more"
        ));
        return;
    }
    match open_run(value) {
        Ok((group, run)) => manage(group, run),
        // The run that this program came from has ended; programs it left behind go on unmanaged.
        Err(Errno::ENOENT) => {}
        Err(errno) => {
            say(format_args!(
                "uzswap: this process is not managed: cannot open the group file {}: {errno}",
                core::str::from_utf8(value).unwrap_or("?")
            ));
        }
    }
}

fn manage(group: &'static Group, run: usize) {
    RUN.store(run, Ordering::Relaxed);
    GROUP.store(core::ptr::from_ref(group).cast_mut(), Ordering::Release);
    let process = claim(group);
    let limit = group.knobs.ram.load(Ordering::Relaxed);
    malloc::set_limit(limit);
    let installed = guard::open_gate().and_then(|()| {
        Masked::block(|m| {
            let mode = ENGINE.start(m, group, process)?;
            guard::install(m, mode)
        })
    });
    if let Err(error) = installed {
        refuse(group, limit, error);
    }
    guard::unblock();
}

/// The group that this process belongs to.
pub fn group() -> Option<&'static Group> {
    // SAFETY: null, or a mapping that is never unmapped.
    unsafe { GROUP.load(Ordering::Acquire).as_ref() }
}

/// Ends a process that cannot be managed any more.
pub fn refuse_now(error: StartError) -> ! {
    match group() {
        Some(group) => refuse(group, group.knobs.ram.load(Ordering::Relaxed), error),
        None => thread::exit_group(125),
    }
}

/// Ends the process: it was to be managed and cannot be.
fn refuse(group: &Group, limit: u64, error: StartError) -> ! {
    let pid = thread::getpid().unsigned_abs();
    let errno = error.errno.0.unsigned_abs();
    let run = group.run(RUN.load(Ordering::Relaxed));
    run.failure.record(
        FailureReason::Start,
        pid,
        errno,
        error.step as u32,
        0,
        limit,
    );
    say(format_args!("uzswap: cannot start: {error}"));
    thread::exit_group(125)
}

/// One line on standard error.
pub fn say(line: Arguments<'_>) {
    let _ = write_line(2, line);
}

/// An entry in `group` for this process.
pub fn claim(group: &Group) -> &Process {
    let process = group.claim(RUN.load(Ordering::Relaxed), identity(), is_alive);
    note_name(process);
    process
}

/// The entry that was reserved for this process, a fork child.
pub fn begin(reserved: &Reservation<'static>) -> Result<&'static Process, StartError> {
    let process = reserved.begin(identity()).ok_or(StartError {
        step: StartStep::Child,
        errno: Errno::ESRCH,
    })?;
    note_name(process);
    Ok(process)
}

fn note_name(process: &Process) {
    let mut comm = [0_u64; 2];
    const PR_GET_NAME: usize = 16;
    // SAFETY: the kernel writes 16 bytes.
    let named = unsafe { call5(nr::PRCTL, PR_GET_NAME, comm.as_mut_ptr() as usize, 0, 0, 0) };
    if named.is_ok() {
        for (cell, word) in process.comm.iter().zip(comm) {
            cell.store(word, Ordering::Relaxed);
        }
    }
}

/// Who this process is.
fn identity() -> Identity {
    // SAFETY: takes no argument.
    let ppid = unsafe { uzswap_sys::syscall::call0(nr::GETPPID) }.unwrap_or(0);
    let namespace = file::fstatat(file::AT_FDCWD, c"/proc/self/ns/pid", 0);
    Identity {
        pid: thread::getpid().unsigned_abs(),
        ppid: u32::try_from(ppid).unwrap_or(0),
        namespace: namespace.map_or(0, |stat| stat.st_ino),
        start_tsc: arch::ticks(),
    }
}

/// Maps the group file for good, and finds the run in it, as a value of [`GROUP_ENV`] says. ENOENT:
/// the run has ended.
fn open_run(value: &[u8]) -> Result<(&'static Group, usize), Errno> {
    let told = Told::parse(value).ok_or(Errno::EINVAL)?;
    let mut path = [0_u8; PATH_LEN];
    // With a zero byte behind it.
    let room = path.split_last_mut().map(|(_, room)| room);
    let to = room.and_then(|room| room.get_mut(..told.group.len()));
    to.ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(told.group);
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::EINVAL)?;
    let group = open_group(path)?;
    let run = group.run_by(told.supervisor).ok_or(Errno::ENOENT)?;
    engine_files::keep(&told);
    Ok((group, run))
}

/// Maps the group file for good.
fn open_group(path: &CStr) -> Result<&'static Group, Errno> {
    let fd = file::openat(file::AT_FDCWD, path, file::O_RDWR | file::O_CLOEXEC, 0)?;
    let mapped = map_group(fd);
    let _ = file::close(fd);
    let addr = mapped?;
    // SAFETY: a shared mapping of a whole `Group`, never unmapped; every field is an atomic.
    let group = unsafe { &*(addr as *const Group) };
    // Acquire: pairs with the creator's release; the configuration is complete.
    if group.magic.load(Ordering::Acquire) == MAGIC {
        Ok(group)
    } else {
        Err(Errno::EINVAL)
    }
}

fn map_group(fd: i32) -> Result<usize, Errno> {
    let stat = file::fstat(fd)?;
    if usize::try_from(stat.st_size).unwrap_or(0) < GROUP_LEN {
        return Err(Errno::EINVAL);
    }
    let prot = mem::PROT_READ | mem::PROT_WRITE;
    // SAFETY: a fresh mapping where the kernel likes.
    unsafe { mem::mmap(0, GROUP_LEN, prot, mem::MAP_SHARED, fd, 0) }
}

/// The value of [`GROUP_ENV`], in `buffer`. Reads the initial environment from the kernel: libc's is
/// not set up yet.
fn told(buffer: &mut [u8; VALUE_LEN]) -> Option<&[u8]> {
    let mut len = 0;
    // A longer entry is cut: it cannot be ours.
    let mut entry = [0_u8; GROUP_ENV.len() + 1 + VALUE_LEN];
    for_each_record(c"/proc/self/environ", 0, &mut entry, |entry| {
        let value = entry
            .strip_prefix(GROUP_ENV.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .filter(|value| !value.is_empty() && len == 0);
        if let Some(value) = value
            && let Some(to) = buffer.get_mut(..value.len())
        {
            to.copy_from_slice(value);
            len = value.len();
        }
    });
    buffer.get(..len).filter(|value| !value.is_empty())
}

#[cfg(not(feature = "loader"))]
unsafe extern "C" fn constructor(_: c_int, _: *mut *mut c_char, envp: *mut *mut c_char) {
    managed();
    if EXECUTES_UNSEEN.load(Ordering::Relaxed) && !envp.is_null() {
        // SAFETY: the loader passes the process's environment, before the program runs.
        unsafe { environ::clear(envp) };
    }
}

#[cfg(not(feature = "loader"))]
/// Runs before other constructors, which may map memory by raw calls and need our handlers.
#[used]
#[unsafe(link_section = ".init_array.00001")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = constructor;
