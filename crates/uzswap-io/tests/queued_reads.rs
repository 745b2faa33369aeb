//! Queued reads of several places return what single reads return, and fail where those fail.
#![cfg(not(miri))]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use uzswap_io::device::Fd;
use uzswap_io::{Device, DeviceError, Extent, HEADER_SLOTS, MAX_READS, Queue, SLOT};

mod support;

const NR_SLOTS: u64 = 256;

/// A file in which every slot is full of its number.
fn device() -> (File, Device<Fd>) {
    let file = support::file(NR_SLOTS);
    for slot in 0..NR_SLOTS {
        let byte = u8::try_from(slot).expect("256 slots");
        file.write_all_at(&[byte; SLOT], (HEADER_SLOTS + slot) * SLOT as u64)
            .expect("write");
    }
    let device = Device::new(file.as_raw_fd(), NR_SLOTS).expect("a file");
    (file, device)
}

fn extents(seed: u64, nr: usize) -> Vec<Extent> {
    let mut rng = support::Rng(seed | 1);
    let extent = |_| {
        let x = rng.next();
        Extent {
            slot: x % (NR_SLOTS - 3),
            nr_slots: u32::try_from(x >> 20 & 1).expect("a bit") + 1,
        }
    };
    (0..nr).map(extent).collect()
}

fn is_right(extents: &[Extent], mut buffer: &[u8]) -> bool {
    extents.iter().all(|extent| {
        (extent.slot..extent.slot + u64::from(extent.nr_slots)).all(|slot| {
            let (bytes, rest) = buffer.split_at(SLOT);
            buffer = rest;
            bytes.iter().all(|&byte| u64::from(byte) == slot)
        })
    })
}

fn len(extents: &[Extent]) -> usize {
    extents.iter().map(|e| e.nr_slots as usize * SLOT).sum()
}

#[test]
fn scattered_slots_come_in_the_order_that_was_asked() {
    let (_file, device) = device();
    let mut queue = Queue::new();
    for seed in 1..200 {
        // One more than go at once: the last is read by itself.
        let nr = usize::try_from(seed).expect("small") % (MAX_READS + 2);
        let extents = extents(seed, nr);
        let mut buffer = vec![0xee; len(&extents)];
        let done = device.read_extents(Some(&mut queue), &extents, &mut buffer);
        assert_eq!(done, Ok(()));
        assert!(is_right(&extents, &buffer), "seed {seed}: {extents:?}");
    }
}

/// The other tests pass without a queue too; this one checks that there is one.
#[test]
fn the_kernel_takes_them_together() {
    let (file, _device) = device();
    let mut buffer = [0; 3 * SLOT];
    let parts = [9, 5, 200].map(|slot| (SLOT, (HEADER_SLOTS + slot) * SLOT as u64));
    let complete = Queue::new().read(file.as_raw_fd(), parts.into_iter(), &mut buffer);
    if complete == 0 {
        eprintln!("SKIPPED: io_setup is refused here");
        return;
    }
    assert_eq!(complete, 0b111);
    assert_eq!([buffer[0], buffer[SLOT], buffer[2 * SLOT]], [9, 5, 200]);
    let at_end = [(SLOT, (HEADER_SLOTS + NR_SLOTS) * SLOT as u64), (SLOT, 0)];
    let complete = Queue::new().read(file.as_raw_fd(), at_end.into_iter(), &mut buffer);
    assert_eq!(complete, 0b10, "nothing is there at the end");
}

#[test]
fn what_was_cut_off_fails_as_it_does_alone() {
    let (file, device) = device();
    file.set_len((HEADER_SLOTS + NR_SLOTS / 2) * SLOT as u64)
        .expect("cut off");
    let extents = [3, NR_SLOTS - 5, 9].map(|slot| Extent { slot, nr_slots: 1 });
    let mut buffer = vec![0; len(&extents)];
    let done = device.read_extents(Some(&mut Queue::new()), &extents, &mut buffer);
    assert_eq!(done, Err(DeviceError::Short));
    let outside = [0, NR_SLOTS].map(|slot| Extent { slot, nr_slots: 1 });
    let done = device.read_extents(Some(&mut Queue::new()), &outside, &mut buffer);
    assert!(matches!(done, Err(DeviceError::Io(_))), "{done:?}");
}

/// The kernel keeps a queue for one process: a fork child sets up its own, and the parent's goes
/// on.
#[test]
fn a_fork_child_reads_on() {
    let (_file, device) = device();
    let mut queue = Queue::new();
    let extents = extents(77, 9);
    let mut buffer = vec![0; len(&extents)];
    let mut read = || {
        buffer.fill(0xee);
        let done = device.read_extents(Some(&mut queue), &extents, &mut buffer);
        done.is_ok() && is_right(&extents, &buffer)
    };
    assert!(read());
    // The child has its own copy of `read`, and of what that borrows.
    let read = std::cell::RefCell::new(read);
    let status = support::in_child(
        || i32::from(!(0..3).all(|_| read.borrow_mut()())),
        || assert!(read.borrow_mut()(), "the parent, beside its child"),
    );
    assert_eq!(status, 0, "the child");
    let mut read = read.into_inner();
    assert!(read(), "the parent, after its child");
}

/// `start` returns before the read is complete, `finish` reports what is incomplete, and a second
/// `start` waits for the first read.
#[test]
fn what_is_begun_comes_later() {
    let (file, device) = device();
    let end = (HEADER_SLOTS + NR_SLOTS / 2) * SLOT as u64;
    file.set_len(end).expect("cut off");
    let mut queue = Queue::new();
    let mut buffers = [vec![0xee; SLOT], vec![0xee; 2 * SLOT]];
    let [one, two] = &mut buffers;
    let start = |queue: &mut Queue, slot, buffer: &mut [u8]| {
        let nr_slots = u32::try_from(buffer.len() / SLOT).expect("few");
        // SAFETY: the buffer is not looked at before the queue is finished.
        unsafe { device.start_read(queue, Extent { slot, nr_slots }, buffer) }
    };
    if !start(&mut queue, 9, one) {
        eprintln!("SKIPPED: io_setup is refused here");
        return;
    }
    assert!(start(&mut queue, 20, two));
    assert_eq!(queue.finish(), 1);
    assert_eq!(queue.finish(), 0, "nothing is under way");
    assert_eq!([one[0], two[0], two[SLOT]], [9, 20, 21]);
    assert!(start(&mut queue, NR_SLOTS - 1, one));
    assert_eq!(queue.finish(), 0, "it is not there");
    assert!(!start(&mut queue, NR_SLOTS, one), "no slot of the device");
}
