//! A device transfers everything or says why not: on a real file, and with injected failures.
#![cfg(not(miri))]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use uzswap_io::device::{Fd, Kind};
use uzswap_io::inject::{Failing, Plan};
use uzswap_io::{Device, DeviceError, Extent, HEADER_SLOTS, MAX_DEVICE_SLOTS, SLOT};
use uzswap_sys::Errno;

mod support;

const NR_SLOTS: u64 = 64;

#[repr(align(4096))]
#[derive(Clone, PartialEq, Debug)]
struct Slots<const N: usize>([[u8; SLOT]; N]);

impl<const N: usize> Slots<N> {
    fn of(byte: u8) -> Box<Self> {
        let mut slots = Box::new(Slots([[0; SLOT]; N]));
        for (slot, byte) in slots.0.iter_mut().zip(byte..) {
            slot.fill(byte);
        }
        slots
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.0.as_flattened_mut()
    }
}

fn file() -> File {
    support::direct_file(NR_SLOTS)
}

fn device(file: &File) -> Device<Fd> {
    Device::new(file.as_raw_fd(), NR_SLOTS).expect("a device")
}

/// A device that fails as `plan` says.
fn failing(file: &File, plan: &str) -> Device<Failing<Fd>> {
    let mut device = Device::<Failing<Fd>>::new(file.as_raw_fd(), NR_SLOTS).expect("a device");
    let plan = Plan::parse(plan).expect("a plan");
    device.medium_mut().inject(plan);
    device
}

#[test]
fn what_is_written_is_read_and_discarded_slots_take_no_space() {
    let file = file();
    let device = device(&file);
    assert_eq!((device.kind(), device.nr_slots()), (Kind::File, NR_SLOTS));
    let mut data = Slots::<4>::of(1);
    device.write_at(60, data.bytes()).expect("written");
    let mut back = Slots::<4>::of(0);
    device.read_at(60, back.bytes()).expect("read");
    assert_eq!(back, data);
    file.sync_all().expect("synced");
    let blocks = file.metadata().expect("metadata").blocks();
    device.discard(60, 3).expect("discarded");
    assert_eq!(blocks - file.metadata().expect("metadata").blocks(), 3 * 8);
    device.read_at(60, back.bytes()).expect("read");
    assert_eq!(back.0[..3], [[0; SLOT]; 3]);
    assert_eq!(back.0[3], data.0[3]);
    assert_eq!(device.discard(7, 0), Ok(()));
}

#[test]
fn nothing_outside_its_slots_is_touched() {
    let file = file();
    let device = device(&file);
    let invalid = Err(DeviceError::Io(Errno::EINVAL));
    let mut two = Slots::<2>::of(1);
    for slot in [NR_SLOTS - 1, NR_SLOTS, u64::MAX - 1, u64::MAX] {
        assert_eq!(device.write_at(slot, two.bytes()), invalid, "{slot}");
        assert_eq!(device.read_at(slot, two.bytes()), invalid, "{slot}");
        assert_eq!(device.discard(slot, 2), invalid, "{slot}");
    }
    assert_eq!(device.discard(0, u64::MAX), invalid);
    let part = &mut two.bytes()[..SLOT + 512];
    assert_eq!(device.write_at(0, part), invalid, "whole slots only");
    assert_eq!(file.metadata().expect("metadata").blocks(), 0);
    // Slot 0 lies behind the header, which stays.
    device.write_at(0, two.bytes()).expect("written");
    let mut header = Slots::<1>::of(9);
    file.read_exact_at(header.bytes(), (HEADER_SLOTS - 1) * SLOT as u64)
        .expect("read");
    assert_eq!(header.0[0], [0; SLOT]);
    let null = File::open("/dev/null").expect("opened");
    let refused = Device::<Fd>::new(null.as_raw_fd(), 1).map(drop);
    assert_eq!(refused, Err(Errno::EINVAL));
    let huge = Device::<Fd>::new(file.as_raw_fd(), MAX_DEVICE_SLOTS + 1).map(drop);
    assert_eq!(huge, Err(Errno::EINVAL));
    assert_eq!(Device::<Fd>::new(-1, 1).map(drop), Err(Errno::EBADF));
}

/// The numbers of a device's slots change nothing else about it.
#[test]
fn slots_are_known_by_the_numbers_they_were_given() {
    const FIRST: u64 = 1000;
    let file = file();
    let (plain, numbered) = (device(&file), device(&file).numbered_from(FIRST));
    for (slot, byte) in [(0, 1), (NR_SLOTS - 1, 2)] {
        assert!(numbered.has(FIRST + slot) && !numbered.has(slot));
        let mut one = Slots::<1>::of(byte);
        numbered
            .write_at(FIRST + slot, one.bytes())
            .expect("written");
        let mut back = Slots::<1>::of(0);
        plain.read_at(slot, back.bytes()).expect("read");
        assert_eq!(back.0[0], one.0[0]);
        let extent = Extent {
            slot: FIRST + slot,
            nr_slots: 1,
        };
        let mut back = Slots::<1>::of(0);
        let read = numbered.read_extents(None, &[extent], back.bytes());
        assert_eq!(read, Ok(()));
        assert_eq!(back.0[0], one.0[0]);
    }
    let invalid = Err(DeviceError::Io(Errno::EINVAL));
    let mut one = Slots::<1>::of(9);
    for slot in [0, FIRST - 1, FIRST + NR_SLOTS, u64::MAX] {
        assert!(!numbered.has(slot));
        assert_eq!(numbered.write_at(slot, one.bytes()), invalid, "{slot}");
        assert_eq!(numbered.read_at(slot, one.bytes()), invalid, "{slot}");
        assert_eq!(numbered.discard(slot, 1), invalid, "{slot}");
    }
    assert_eq!(numbered.discard(FIRST, 1), Ok(()));
    let mut back = Slots::<1>::of(7);
    plain.read_at(0, back.bytes()).expect("read");
    assert_eq!(back.0[0], [0; SLOT]);
}

#[test]
fn a_file_that_was_cut_off_is_short_and_a_closed_one_an_error() {
    let file = file();
    let device = device(&file);
    file.set_len((HEADER_SLOTS + 10) * SLOT as u64 + 100)
        .expect("cut");
    let mut slots = Slots::<4>::of(1);
    assert_eq!(device.read_at(6, slots.bytes()), Ok(()));
    for slot in [7, 10, 11] {
        let result = device.read_at(slot, slots.bytes());
        assert_eq!(result, Err(DeviceError::Short), "{slot}");
    }
    let reader = OpenOptions::new()
        .read(true)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .expect("opened");
    let device = Device::<Fd>::new(reader.as_raw_fd(), NR_SLOTS).expect("a device");
    let written = device.write_at(0, slots.bytes());
    assert_eq!(written, Err(DeviceError::Io(Errno::EBADF)));
}

#[test]
fn interruptions_and_short_transfers_are_gone_through() {
    let file = file();
    for plan in [
        "eintr@1",
        "eagain@1",
        "short@1",
        "eintr@40%",
        "short@30%",
        "eagain@20%",
    ] {
        let device = failing(
            &file,
            &format!("write={plan},read={plan},discard={plan},seed=3"),
        );
        let mut data = Slots::<16>::of(7);
        for slot in [0, 16, 32, 48] {
            device.write_at(slot, data.bytes()).expect(plan);
            let mut back = Slots::<16>::of(0);
            device.read_at(slot, back.bytes()).expect(plan);
            assert_eq!(back, data, "{plan}");
            device.discard(slot, 16).expect(plan);
            device.read_at(slot, back.bytes()).expect(plan);
            assert_eq!(back.0, [[0; SLOT]; 16], "{plan}");
        }
    }
}

#[test]
fn what_does_not_pass_ends_as_what_it_is() {
    let file = file();
    let mut slots = Slots::<4>::of(1);
    for (failure, error) in [
        ("enospc", DeviceError::Full),
        ("edquot", DeviceError::Full),
        ("eio", DeviceError::Io(Errno::EIO)),
        ("eintr", DeviceError::Io(Errno::EINTR)),
        ("eagain", DeviceError::Io(Errno::EAGAIN)),
    ] {
        let device = failing(
            &file,
            &format!("write={failure}@2+,read={failure}@2+,discard={failure}@2+"),
        );
        for expected in [Ok(()), Err(error), Err(error)] {
            assert_eq!(device.write_at(0, slots.bytes()), expected, "{failure}");
            assert_eq!(device.read_at(0, slots.bytes()), expected, "{failure}");
            assert_eq!(device.discard(0, 4), expected, "{failure}");
        }
    }
    // One slot at a time comes through as less than a slot, for ever.
    let device = failing(&file, "write=short@1+,read=short@1+");
    let one = &mut slots.bytes()[..SLOT];
    assert_eq!(device.write_at(0, one), Err(DeviceError::Short));
    assert_eq!(device.read_at(0, one), Err(DeviceError::Short));
}

#[test]
fn one_bit_flips_where_the_plan_says_so() {
    let file = file();
    let count = |device: &Device<Failing<Fd>>| {
        let mut back = Slots::<4>::of(0);
        device.read_at(0, back.bytes()).expect("read");
        back.bytes()
            .iter()
            .map(|byte| byte.count_ones())
            .sum::<u32>()
    };
    let mut zeros = Slots::<4>::of(0);
    zeros.bytes().fill(0);
    let device = failing(&file, "read=flip@2,seed=5");
    device.write_at(0, zeros.bytes()).expect("written");
    assert_eq!([0; 3].map(|_| count(&device)), [0, 1, 0]);
    let device = failing(&file, "write=flip@1,seed=6");
    device.write_at(0, zeros.bytes()).expect("written");
    assert_eq!([0; 2].map(|_| count(&device)), [1, 1], "it stays");
    assert!(
        zeros.bytes().iter().all(|&byte| byte == 0),
        "the caller's data"
    );
    device.write_at(0, zeros.bytes()).expect("written");
    assert_eq!(count(&device), 0);
}

#[test]
fn chance_is_what_seed_and_order_make_it() {
    let file = file();
    let failures = |plan: &str| -> Vec<bool> {
        let device = failing(&file, plan);
        let mut slot = Slots::<1>::of(1);
        (0..1000)
            .map(|_| device.read_at(0, slot.bytes()).is_err())
            .collect()
    };
    let first = failures("read=eio@12.5%,seed=1");
    assert_eq!(first, failures("read=eio@12.5%,seed=1"));
    assert_ne!(first, failures("read=eio@12.5%,seed=2"));
    let nr_failed = first.iter().filter(|&&failed| failed).count();
    assert!((80..180).contains(&nr_failed), "{nr_failed} of 1000");
    let begin = Instant::now();
    failing(&file, "write=delay:20000@1")
        .write_at(0, Slots::<1>::of(1).bytes())
        .expect("late");
    assert!(begin.elapsed() >= Duration::from_millis(20));
}

#[test]
fn plans_are_read_or_refused() {
    for plan in [
        "",
        "seed=9",
        "read=eio@1",
        "write=enospc@100+,read=flip@0.5%,discard=eio@3,read=delay:500@10%,seed=7",
        "pool=flip@2%",
    ] {
        assert!(Plan::parse(plan).is_some(), "{plan}");
    }
    for plan in [
        "read",
        "read=eio",
        "read=eio@",
        "read=eio@x",
        "read=eio@101%",
        "read=eio@1.x%",
        "look=eio@1",
        "pool=eio@1",
        "read=oops@1",
        "read=delay:@1",
        "seed=x",
        "read=eio@1,read=eio@1,read=eio@1,read=eio@1,read=eio@1,read=eio@1,read=eio@1,read=eio@1,read=eio@1",
    ] {
        assert!(Plan::parse(plan).is_none(), "{plan}");
    }
}
