//! A seccomp filter without one call: without userfaultfd, like Docker's default profile.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `_IO(0xaa, 0)`: the request to /dev/userfaultfd for a descriptor.
const USERFAULTFD_IOC_NEW: u32 = 0xaa00;
/// Offsets in `seccomp_data` of the call's number and of the lower half of its second argument.
const NR: u32 = 0;
const ARG_1: u32 = 24;

const fn load(offset: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

const fn skip_unless(value: u32, skip: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, skip)
}

const fn end(action: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "operations are 16 bits")]
const fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of system calls and errors are small and positive"
)]
const fn filter(call: libc::c_long, errno: i32) -> [libc::sock_filter; 8] {
    let fail = end(libc::SECCOMP_RET_ERRNO | errno as u32);
    [
        load(NR),
        skip_unless(call as u32, 1),
        fail,
        skip_unless(libc::SYS_ioctl as u32, 3),
        load(ARG_1),
        skip_unless(USERFAULTFD_IOC_NEW, 1),
        fail,
        end(libc::SECCOMP_RET_ALLOW),
    ]
}

/// Makes `call`, and a userfaultfd from /dev, fail with `errno` in `command` and whatever it
/// starts.
pub fn forbid(command: &mut Command, call: libc::c_long, errno: i32) {
    let enter = move || {
        let mut filter = filter(call, errno);
        let program = libc::sock_fprog {
            len: 8,
            filter: filter.as_mut_ptr(),
        };
        let program = &raw const program;
        // SAFETY: both calls affect this process alone and read the filter, which outlives them.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: two system calls, no memory from the allocator and no lock.
    unsafe { command.pre_exec(enter) };
}
