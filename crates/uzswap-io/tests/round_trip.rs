//! A packed object opens from the slots of its extent, under its own label only; with any bit wrong
//! it does not open.
#![allow(clippy::cast_possible_truncation, reason = "test data")]

use std::mem::MaybeUninit;

use uzswap_io::format::MAX_BODY;
use uzswap_io::seal::KEY_LEN;
use uzswap_io::{
    GRAIN, Key, Label, Layout, Location, MAX_RUN, MAX_SLOTS, OpenError, PackError, Place, Run,
    SLOT, Seal, Sequence, Window,
};

mod support;
use support::Rng;

/// Where the runs of these tests lie on their device.
const RUN: u64 = 1000;

/// `n`, or few enough for Miri.
fn many(n: usize) -> usize {
    if cfg!(miri) { n.min(3) } else { n }
}

/// A random key; under Miri, which has no system calls, a fixed one.
fn key(memory: &mut MaybeUninit<Key>) -> &Key {
    if cfg!(miri) {
        return Key::from_bytes(memory, &mut [7; KEY_LEN]);
    }
    Key::generate(memory).expect("getrandom")
}

/// Runs a story with checksums, then with encryption; under Miri, which takes minutes to encrypt a
/// page, with checksums only.
fn with_both(story: impl Fn(Seal<'_>)) {
    story(Seal::Checksummed);
    if cfg!(miri) {
        return;
    }
    let mut memory = MaybeUninit::uninit();
    let key = key(&mut memory);
    let sequence = Sequence::new();
    story(Seal::Encrypted {
        key,
        sequence: &sequence,
    });
}

/// An object as the engine remembers it, and its expected body.
struct Packed {
    label: Label,
    place: Place,
    body: Vec<u8>,
}

impl Packed {
    fn location(&self) -> Location {
        self.place.on_device(RUN)
    }

    /// Opens it from a read of the slots of its extent alone.
    fn open_from(&self, seal: Seal<'_>, disk: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (slot, mut read) = self.read(seal, disk);
        Window::new(slot, &mut read)
            .open(seal, self.label, self.location(), self.body.len())
            .map(|body| body.to_vec())
    }

    /// Its bytes in the run, header included.
    fn stored(&self, seal: Seal<'_>) -> std::ops::Range<usize> {
        let begin = self.place.slot as usize * SLOT + usize::from(self.place.byte);
        begin..begin + seal.overhead() + self.body.len()
    }

    fn read(&self, seal: Seal<'_>, disk: &[u8]) -> (u64, Vec<u8>) {
        let extent = self.location().extent(self.body.len(), seal);
        let nr_slots = usize::try_from(extent.nr_slots).expect("small");
        assert!((1..=MAX_SLOTS).contains(&nr_slots));
        let begin = usize::try_from(extent.slot - RUN).expect("small") * SLOT;
        (extent.slot, disk[begin..begin + nr_slots * SLOT].to_vec())
    }
}

/// A copy of `disk` with one bit wrong, counted from byte `begin`.
fn spoilt(disk: &[u8], begin: usize, bit: usize) -> Vec<u8> {
    let mut spoilt = disk.to_vec();
    spoilt[begin + bit / 8] ^= 1 << (bit % 8);
    spoilt
}

/// Packs bodies until the run is full or `lens` ends, in a dirty buffer.
fn pack(seal: Seal<'_>, nr_slots: usize, lens: &[usize], rng: &mut Rng) -> (Vec<Packed>, Vec<u8>) {
    let mut buffer = vec![0xee; nr_slots * SLOT];
    let mut run = Run::new(&mut buffer, seal);
    let mut packed = Vec::new();
    for &len in lens {
        let label = Label {
            page: rng.next(),
            generation: u32::try_from(rng.below(8192)).expect("small"),
            write: u32::try_from(rng.below(1 << 32)).expect("small"),
        };
        // No byte of a body is 0xee or 0: what is left of either would show.
        let body: Vec<u8> = (0..len).map(|_| (rng.next() % 0xed) as u8 + 1).collect();
        match run.push(label, len, |out| out.copy_from_slice(&body)) {
            Ok(place) => packed.push(Packed { label, place, body }),
            Err(error) => {
                assert_eq!(error, PackError::Full);
                break;
            }
        }
    }
    let used = run.nr_slots();
    let disk = run.finish().to_vec();
    assert_eq!(disk.len(), used * SLOT);
    (packed, disk)
}

#[test]
fn small_objects_share_slots_and_come_back() {
    with_both(|seal| {
        let lens: Vec<usize> = (1..=12).map(|i| i * 100).collect();
        let (packed, disk) = pack(seal, 4, &lens, &mut Rng(1));
        assert_eq!((packed.len(), disk.len()), (12, 2 * SLOT));
        for object in &packed {
            assert_eq!(object.open_from(seal, &disk).as_ref(), Ok(&object.body));
        }
    });
}

#[test]
fn a_full_run_takes_no_more_and_loses_nothing() {
    with_both(|seal| {
        let (packed, disk) = pack(seal, 3, &[MAX_BODY; 3], &mut Rng(2));
        assert_eq!((packed.len(), disk.len()), (2, 3 * SLOT));
        for object in &packed {
            assert_eq!(object.open_from(seal, &disk).as_ref(), Ok(&object.body));
        }
        let mut buffer = vec![0; SLOT];
        let mut run = Run::new(&mut buffer, seal);
        let label = packed[0].label;
        for (len, error) in [
            (0, PackError::BadLength),
            (MAX_BODY + 1, PackError::BadLength),
            (MAX_BODY, PackError::Full),
        ] {
            assert_eq!(run.push(label, len, |_| panic!("no room")), Err(error));
        }
        assert_eq!(run.finish(), [0; 0]);
    });
}

#[test]
fn an_object_opens_for_its_own_page_and_time_only() {
    with_both(|seal| {
        let (mut packed, disk) = pack(seal, 4, &[700, 700, 700], &mut Rng(3));
        let [first, second, _] = &mut packed[..] else {
            panic!("three objects")
        };
        // Moved: what lies there is whole, but it is another page's.
        std::mem::swap(&mut first.place, &mut second.place);
        assert_eq!(first.open_from(seal, &disk), Err(OpenError::Corrupt));
        std::mem::swap(&mut first.place, &mut second.place);
        first.label.generation ^= 1;
        assert_eq!(first.open_from(seal, &disk), Err(OpenError::Corrupt));
        first.label.generation ^= 1;
        assert_eq!(first.open_from(seal, &disk).as_ref(), Ok(&first.body));
        // A length that is not its own.
        first.body.pop();
        assert_eq!(first.open_from(seal, &disk), Err(OpenError::Corrupt));
    });
}

#[test]
fn a_window_opens_neighbours_and_refuses_what_it_does_not_hold() {
    with_both(|seal| {
        let (packed, disk) = pack(seal, 8, &vec![1500; many(15)], &mut Rng(4));
        let mut read = disk.clone();
        let mut window = Window::new(RUN, &mut read);
        // Any order; a refused one spoils neither itself nor its neighbours.
        for object in packed.iter().rev() {
            let (location, len) = (object.location(), object.body.len());
            let other = Label {
                page: !object.label.page,
                ..object.label
            };
            let older = Label {
                write: object.label.write ^ 1,
                ..object.label
            };
            for wrong in [other, older] {
                let refused = window.open(seal, wrong, location, len);
                assert_eq!(refused, Err(OpenError::Corrupt));
            }
            let body = window.open(seal, object.label, location, len);
            assert_eq!(body.as_deref(), Ok(&object.body[..]));
        }
        let outside = Err(OpenError::Outside);
        let last = packed.last().expect("objects");
        let (slot, mut read) = last.read(seal, &disk);
        let mut open = |begin: u64, location| {
            Window::new(begin, &mut read)
                .open(seal, last.label, location, last.body.len())
                .map(|body| body.to_vec())
        };
        assert_eq!(open(slot + 1, last.location()), outside);
        assert_eq!(open(slot - 2, last.location()), outside);
        let huge = Location {
            slot: u64::MAX,
            byte: 4080,
        };
        assert_eq!(open(0, huge), outside);
    });
}

#[test]
fn nothing_in_the_clear_reaches_the_device_under_encryption() {
    let mut memory = MaybeUninit::uninit();
    let key = key(&mut memory);
    let sequence = Sequence::new();
    let seal = Seal::Encrypted {
        key,
        sequence: &sequence,
    };
    let (packed, disk) = pack(seal, 8, &vec![333; many(60)], &mut Rng(5));
    for object in &packed {
        let part = &object.body[100..116];
        assert!(disk.windows(16).all(|bytes| bytes != part));
    }
    // The same pages again are written differently: each nonce is another.
    let (_, again) = pack(seal, 8, &vec![333; many(60)], &mut Rng(5));
    for object in &packed {
        let stored = object.stored(seal);
        let body = stored.start + seal.overhead()..stored.end;
        let pairs = disk[body.clone()].iter().zip(&again[body]);
        let same = pairs.filter(|(a, b)| a == b).count();
        assert!(same < 30, "{same} of 333");
    }
}

/// The bytes that docs/on-disk-format.md describes, as another implementation (Python's
/// cryptography) made them.
#[test]
fn an_object_is_what_the_format_says() {
    let mut bytes: [u8; KEY_LEN] = std::array::from_fn(|i| i as u8);
    let mut memory = MaybeUninit::uninit();
    let key = Key::from_bytes(&mut memory, &mut bytes);
    assert_eq!(bytes, [0; KEY_LEN], "wiped");
    let sequence = Sequence::new();
    let seal = Seal::Encrypted {
        key,
        sequence: &sequence,
    };
    let mut buffer = vec![0xee; SLOT];
    let mut run = Run::new(&mut buffer, seal);
    let count: [u8; 20] = std::array::from_fn(|i| i as u8);
    let objects = [
        (41, 5, 0, &b"a page"[..]),
        ((1 << 40) + 7, 8191, 1 << 31 | 3, &count),
    ];
    for (page, generation, write, body) in objects {
        let label = Label {
            page,
            generation,
            write,
        };
        run.push(label, body.len(), |out| out.copy_from_slice(body))
            .expect("fits");
    }
    let hex: Vec<String> = run.finish().chunks(GRAIN).map(hex).collect();
    assert_eq!(
        hex[..5],
        [
            "0000000000000000de928813a873c1a6",
            "f30bbe864e22f8e36f9cc5bfd2490000",
            "01000000000000008f214ef4063ff1c6",
            "c2ab88fc4737f7efe22d803ca0aaea00",
            "420d0fc830cc86c4dc70dd3d00000000",
        ]
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_byte_of_a_run_is_sealed_or_zero() {
    with_both(|seal| {
        let lens = [1, 5, 4096, 17, 4000, 300, 1];
        let (packed, mut disk) = pack(seal, 16, &lens, &mut Rng(6));
        assert_eq!(packed.len(), lens.len());
        for object in &packed {
            let stored = object.stored(seal);
            assert!(stored.start.is_multiple_of(GRAIN));
            disk[stored].fill(0);
        }
        assert!(disk.iter().all(|&byte| byte == 0), "left from before");
    });
}

#[test]
fn one_layout_for_planning_and_packing_and_no_object_over_three_slots() {
    with_both(|seal| {
        for first in (1..=SLOT).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let mut layout = Layout::new();
            layout.place(first);
            let place = layout.place(seal.overhead() + MAX_BODY);
            let extent = place.on_device(0).extent(MAX_BODY, seal);
            assert!(extent.nr_slots as usize <= MAX_SLOTS, "after {first}");
        }
        let mut rng = Rng(7);
        let lens: Vec<usize> = (0..many(100)).map(|_| 1 + rng.below(MAX_BODY)).collect();
        let (packed, disk) = pack(seal, MAX_RUN, &lens, &mut rng);
        let mut layout = Layout::new();
        for object in &packed {
            assert_eq!(
                layout.place(seal.overhead() + object.body.len()),
                object.place
            );
            let location = object.location();
            assert_eq!(Location::from_raw(location.raw()), location);
            assert!(location.raw() < 1 << 36);
        }
        assert_eq!(layout.nr_slots() * SLOT, disk.len());
    });
}

#[test]
fn any_bit_of_a_small_object_counts() {
    let bits = if cfg!(miri) { 97 } else { 1 };
    with_both(|seal| {
        let (packed, disk) = pack(seal, 2, &[40, 200, 60], &mut Rng(8));
        for object in &packed {
            let stored = object.stored(seal);
            for bit in (0..8 * stored.len()).step_by(bits) {
                let opened = object.open_from(seal, &spoilt(&disk, stored.start, bit));
                assert_eq!(opened, Err(OpenError::Corrupt), "bit {bit}");
            }
            assert_eq!(object.open_from(seal, &disk).as_ref(), Ok(&object.body));
        }
    });
}

/// `UZSWAP_SEED`, or the time; printed, so that a failure can be told again.
#[cfg(not(miri))]
fn seed() -> u64 {
    let given = std::env::var("UZSWAP_SEED").ok();
    let seed = given.map_or_else(
        || {
            std::time::UNIX_EPOCH
                .elapsed()
                .map_or(1, |now| now.subsec_nanos().into())
        },
        |seed| seed.parse().expect("a number"),
    );
    println!("UZSWAP_SEED={seed}");
    seed
}

#[cfg(not(miri))]
#[test]
fn objects_of_any_size_come_back_whole_or_not_at_all() {
    let rounds = match std::env::var_os("UZSWAP_LONG") {
        Some(_) => 20_000,
        None => 400,
    };
    let seed = seed();
    with_both(|seal| {
        let mut rng = Rng(seed | 1);
        for _ in 0..rounds {
            let lens: Vec<usize> = (0..=rng.below(59))
                .map(|_| match rng.below(10) {
                    0 => MAX_BODY,
                    1 => 1 + rng.below(64),
                    _ => 1 + rng.below(MAX_BODY),
                })
                .collect();
            let nr_slots = 1 + rng.below(16);
            let (packed, disk) = pack(seal, nr_slots, &lens, &mut rng);
            for object in &packed {
                assert_eq!(object.open_from(seal, &disk).as_ref(), Ok(&object.body));
                let stored = object.stored(seal);
                let bit = rng.below(8 * stored.len());
                let opened = object.open_from(seal, &spoilt(&disk, stored.start, bit));
                let place = object.place;
                assert_eq!(opened, Err(OpenError::Corrupt), "bit {bit} of {place:?}");
                // What lies around it is nobody's business.
                let mut around = vec![0xaa; disk.len()];
                around[stored.clone()].copy_from_slice(&disk[stored]);
                assert_eq!(object.open_from(seal, &around).as_ref(), Ok(&object.body));
            }
        }
    });
}

/// A fingerprint identifies the copy on the device, so it depends on every bit and on the page.
#[test]
fn a_fingerprint_is_of_every_bit_and_of_the_page() {
    let mut memory = MaybeUninit::uninit();
    let key = key(&mut memory);
    let mut rng = Rng(0x0123_4567_89ab_cdef);
    for len in [1, 15, 16, 17, 700, MAX_BODY].into_iter().take(many(6)) {
        let mut body: Vec<u8> = (0..len).map(|_| rng.next().to_le_bytes()[0]).collect();
        let print = key.fingerprint(3, &body);
        assert_eq!(print, key.fingerprint(3, &body), "the same body");
        assert_ne!(print, key.fingerprint(4, &body), "another page's");
        assert_ne!(print, key.fingerprint(3, &body[1..]), "less of it");
        for bit in (0..len * 8).step_by(1 + len / 16) {
            body[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(print, key.fingerprint(3, &body), "bit {bit} of {len} bytes");
            body[bit / 8] ^= 1 << (bit % 8);
        }
        body.push(0);
        assert_ne!(print, key.fingerprint(3, &body), "a zero more");
    }
}
