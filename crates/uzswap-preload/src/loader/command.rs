//! *What*: the image as a program: `uzswap run` executes it in place of a command that it is to be
//! put into. Its name is its path; its first argument says whether the command may run without, the
//! second is the file to execute, the others are the command's.
//!
//! *Invariants*: what fails here is said, and ends with the exit status of env(1).
//! *Locking*: none. *Context*: a process of its own, with one thread.

use core::ffi::{CStr, c_char};

use uzswap_core::Masked;
use uzswap_sys::syscall::call3;
use uzswap_sys::{Errno, nr, signal, thread};

use crate::guard::frame::fail;
use crate::init::say;
use crate::inject;

/// What the first argument says where the command may run unmanaged.
const OPTIONAL: &CStr = c"optional";

/// Executes the command, with the engine put into it.
///
/// # Safety
/// `stack` is what the kernel made for this program.
pub unsafe fn run(stack: *const usize) -> ! {
    // SAFETY: the kernel's layout: the number of arguments, the arguments, null, the environment.
    let (own, how, path, argv, envp) = unsafe {
        let nr = *stack;
        let argv = stack.add(1);
        if nr < 4 {
            say(format_args!("uzswap: this program is for 'uzswap run'"));
            thread::exit_group(125);
        }
        let word = |at: usize| CStr::from_ptr(*argv.add(at) as *const c_char);
        (word(0), word(1), word(2), argv.add(3), argv.add(nr + 1))
    };
    let mask = signal::block_all();
    // SAFETY: blocked just now, on the stack that the kernel made.
    let m = unsafe { Masked::assume() };
    let issue = || {
        signal::set_mask(mask);
        let (path, argv, envp) = (path.as_ptr() as usize, argv as usize, envp as usize);
        // SAFETY: the command.
        let done = unsafe { call3(nr::EXECVE, path, argv, envp) };
        signal::block_all();
        done.map_or_else(fail, usize::cast_signed)
    };
    let shown = path.to_str().unwrap_or("?");
    let ret = match inject::exec(&m, own.to_bytes(), issue) {
        Ok(ret) => ret,
        Err(_) if how == OPTIONAL => issue(),
        Err(errno) => {
            say(format_args!(
                "uzswap: {shown} cannot be managed: it cannot be traced while it starts: {errno}: \
                 give --allow-unmanaged to run it all the same, without a limit"
            ));
            thread::exit_group(125);
        }
    };
    let errno = Errno(i32::try_from(-ret).unwrap_or(0));
    say(format_args!("uzswap: cannot execute {shown}: {errno}"));
    thread::exit_group(if errno == Errno::ENOENT { 127 } else { 126 })
}
