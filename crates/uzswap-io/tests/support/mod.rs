//! Files to be devices, fork children, and random numbers.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use uzswap_io::{HEADER_SLOTS, SLOT};
use uzswap_sys::file::{O_DIRECT, O_DIRECTORY};
use uzswap_sys::{nr, syscall, thread};

const O_TMPFILE: i32 = 0o20_000_000 | O_DIRECTORY;

/// An unnamed file of `nr_slots` slots.
pub fn file(nr_slots: u64) -> File {
    open(nr_slots, 0).expect("a file in /var/tmp")
}

/// The same, with `O_DIRECT` where the file system has it.
pub fn direct_file(nr_slots: u64) -> File {
    open(nr_slots, O_DIRECT).unwrap_or_else(|_| file(nr_slots))
}

fn open(nr_slots: u64, flags: i32) -> std::io::Result<File> {
    let dir = std::env::var_os("UZSWAP_SWAP_DIR").unwrap_or_else(|| "/var/tmp".into());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_TMPFILE | flags)
        .mode(0o600)
        .open(dir)?;
    file.set_len((HEADER_SLOTS + nr_slots) * SLOT as u64)?;
    Ok(file)
}

/// Runs `child` in a fork child, and `meanwhile` here; returns the child's wait status.
pub fn in_child(child: impl FnOnce() -> i32, meanwhile: impl FnOnce()) -> i32 {
    // SAFETY: the child makes system calls and exits; it takes no lock that another thread may
    // hold.
    let pid = unsafe { syscall::call0(nr::FORK) }.expect("fork");
    if pid == 0 {
        thread::exit_group(child());
    }
    meanwhile();
    let mut status = 0_i32;
    let out = std::ptr::from_mut(&mut status) as usize;
    // SAFETY: the status is an `int` of ours.
    unsafe { syscall::call4(nr::WAIT4, pid, out, 0, 0) }.expect("wait");
    status
}

/// xorshift: numbers that a seed repeats.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }
}
