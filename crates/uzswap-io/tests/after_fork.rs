//! Fork children share the key, and seal, read and fail independently.
#![cfg(not(miri))]

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use uzswap_io::device::Fd;
use uzswap_io::{
    Device, DeviceError, HEADER_SLOTS, Key, Label, Place, Run, SLOT, Seal, Sequence, Window,
};
use uzswap_sys::signal::{self, SigSet};
use uzswap_sys::{mem, nr, syscall, thread};

mod support;
use support::in_child;

const LABEL: Label = Label {
    page: 3,
    generation: 1,
    write: 0,
};
const BODY: usize = 40;
/// Distance of two objects, in bytes: 64 objects a slot.
const STEP: usize = 64;
const NR_SLOTS: usize = 32;
const NR_OBJECTS: usize = NR_SLOTS * SLOT / STEP;

/// Zeroed memory that a fork child shares.
fn shared(len: usize) -> *mut u8 {
    let rw = mem::PROT_READ | mem::PROT_WRITE;
    let flags = mem::MAP_SHARED | mem::MAP_ANONYMOUS;
    // SAFETY: new memory, in nobody's place.
    let addr = unsafe { mem::mmap(0, len, rw, flags, -1, 0) }.expect("mmap");
    std::ptr::with_exposed_provenance_mut(addr)
}

fn fill(run: &mut Run<'_>, byte: u8) -> bool {
    (0..NR_OBJECTS).all(|_| run.push(LABEL, BODY, |out| out.fill(byte)).is_ok())
}

#[test]
fn parent_and_child_never_use_a_nonce_twice_and_read_each_other() {
    let len = NR_SLOTS * SLOT;
    // SAFETY: zeroed memory of a page, mapped for good: a sequence at its beginning.
    let sequence: &Sequence = unsafe { &*shared(SLOT).cast() };
    let memory = shared(2 * len);
    // SAFETY: two halves of what is mapped for good, used by nobody else.
    let (ours, theirs) = unsafe {
        (
            std::slice::from_raw_parts_mut(memory, len),
            std::slice::from_raw_parts_mut(memory.add(len), len),
        )
    };
    let mut key = MaybeUninit::uninit();
    let key = Key::generate(&mut key).expect("getrandom");
    let seal = Seal::Encrypted { key, sequence };
    let mut before = Box::new([0; SLOT]);
    let mut run = Run::new(&mut before[..], seal);
    let place = run.push(LABEL, 100, |out| out.fill(5)).expect("fits");
    let _ = run.finish();

    let child = || {
        let opened = Window::new(0, &mut before[..])
            .open(seal, LABEL, place.on_device(0), 100)
            .is_ok_and(|body| body == [5; 100]);
        let packed = fill(&mut Run::new(theirs, seal), 6);
        i32::from(!(opened && packed))
    };
    let status = in_child(child, || assert!(fill(&mut Run::new(ours, seal), 7)));
    assert_eq!(status, 0);

    // SAFETY: the same memory; the halves are not used any more, and the child has ended.
    let all = unsafe { std::slice::from_raw_parts_mut(memory, 2 * len) };
    let nonces: HashSet<_> = all
        .chunks(STEP)
        .map(|object| object[..8].to_vec())
        .collect();
    assert_eq!(nonces.len(), 2 * NR_OBJECTS);
    // What the child wrote the parent can read.
    for (slot, byte) in [(0, 7), (NR_SLOTS, 6)] {
        let place = Place {
            slot: u32::try_from(slot).expect("small"),
            byte: 128,
        };
        let body = Window::new(0, all)
            .open(seal, LABEL, place.on_device(0), BODY)
            .map(|body| body.to_vec());
        assert_eq!(body, Ok(vec![byte; BODY]));
    }
}

/// Bytes of a family's memory that one member seals objects into.
const PART: usize = NR_SLOTS * SLOT;

/// Seals half of the objects of part `nr`, forks the next member, and seals the other half beside
/// it. Every other member but the first is killed in the middle of that.
fn member(parts: &mut [&mut [u8]], nr: usize, seal: Seal<'_>) {
    let Some((own, rest)) = parts.split_first_mut() else {
        return;
    };
    let (first, second) = own.split_at_mut(PART / 2);
    let fill = |part: &mut [u8], killed: bool| {
        let mut run = Run::new(part, seal);
        for object in 0..NR_OBJECTS / 2 {
            let pushed = run.push(LABEL, BODY, |out| {
                if killed && object == NR_OBJECTS / 4 {
                    let pid = thread::getpid();
                    let _ = signal::tgkill(pid, pid, signal::SIGKILL);
                }
                out.fill(7);
            });
            assert!(pushed.is_ok());
        }
    };
    fill(first, false);
    let child = || {
        member(rest, nr + 1, seal);
        0
    };
    let _ = in_child(child, || fill(second, nr % 2 == 1));
}

#[test]
fn a_family_of_which_some_are_killed_never_uses_a_nonce_twice() {
    const NR_MEMBERS: usize = 9;
    // SAFETY: zeroed memory of a page, mapped for good: a sequence at its beginning.
    let sequence: &Sequence = unsafe { &*shared(SLOT).cast() };
    let memory = shared(NR_MEMBERS * PART);
    // SAFETY: what is mapped for good, used by nobody else.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory, NR_MEMBERS * PART) };
    let mut key = MaybeUninit::uninit();
    let key = Key::generate(&mut key).expect("getrandom");
    let seal = Seal::Encrypted { key, sequence };
    // Number 0 is nobody's, as memory without an object reads so.
    let mut before = Box::new([0; SLOT]);
    assert!(
        Run::new(&mut before[..], seal)
            .push(LABEL, BODY, |out| out.fill(0))
            .is_ok()
    );

    let mut parts: Vec<_> = memory.chunks_mut(PART).collect();
    member(&mut parts, 0, seal);
    // A killed member leaves its descendants: they have ended when nobody uses a number any more.
    let sealed = || {
        let objects = parts.iter().flat_map(|part| part.chunks(STEP));
        let nonces = objects.map(|object| object[..8].to_vec());
        nonces.filter(|nonce| *nonce != [0; 8]).collect::<Vec<_>>()
    };
    let killed = NR_MEMBERS / 2;
    let expected = NR_MEMBERS * NR_OBJECTS - killed * (NR_OBJECTS / 4);
    let began = std::time::Instant::now();
    while sealed().len() < expected {
        assert!(began.elapsed().as_secs() < 60, "{}", sealed().len());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let nonces = sealed();
    assert_eq!(nonces.len(), expected);
    assert_eq!(nonces.iter().collect::<HashSet<_>>().len(), expected);
}

#[test]
fn a_limit_on_file_sizes_fills_the_device_and_does_not_signal_the_program() {
    let file = support::file(8);
    let device = Device::<Fd>::new(file.as_raw_fd(), 8).expect("a device");
    let data = Box::new([7; SLOT]);
    let status = in_child(
        || {
            const RLIMIT_FSIZE: usize = 1;
            // As all of the engine runs.
            let masked = signal::sigprocmask(signal::SIG_SETMASK, Some(SigSet::FULL));
            let limit = [HEADER_SLOTS * SLOT as u64; 2];
            // SAFETY: two numbers of 64 bits, as the call reads them.
            let limited = unsafe {
                syscall::call4(nr::PRLIMIT64, 0, RLIMIT_FSIZE, limit.as_ptr() as usize, 0)
            };
            let full = device.write_at(3, &data[..]) == Err(DeviceError::Full);
            let unmasked = signal::sigprocmask(signal::SIG_SETMASK, masked.ok());
            i32::from(!(limited.is_ok() && full && unmasked.is_ok()))
        },
        || {},
    );
    assert_eq!(status, 0, "wait status; 25 is SIGXFSZ");
}
