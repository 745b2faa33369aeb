//! *What*: objects on a device. What was sealed opens under its own label alone, once it is damaged
//! not at all, and whatever the device returned, opening stays in its window and changes nothing
//! there when it fails.

use std::mem::MaybeUninit;

use uzswap_io::format::MAX_BODY;
use uzswap_io::{Key, Label, Location, MAX_RUN, OpenError, PackError, Run, SLOT, Seal, Sequence};
use uzswap_io::{Place, Window};

use crate::bytes::Bytes;

struct Packed {
    label: Label,
    place: Place,
    body: Vec<u8>,
}

/// See the head.
pub fn open_as_sealed(input: &[u8]) {
    let mut input = Bytes::new(input);
    let mut memory = MaybeUninit::uninit();
    let key = Key::from_bytes(&mut memory, &mut [7; 32]);
    let sequence = Sequence::new();
    let seal = match input.flag() {
        true => Seal::Encrypted {
            key,
            sequence: &sequence,
        },
        false => Seal::Checksummed,
    };
    let nr_slots = 1 + input.below(MAX_RUN);
    let (packed, slots) = pack(seal, nr_slots, &mut input);
    let first = u64::from(input.u32()) & 0xfff_ffff;

    let open = |slots: &mut [u8], label, place: Place, len| {
        let location = Location::from_raw(place.on_device(first).raw());
        let mut window = Window::new(first, slots);
        window
            .open(seal, label, location, len)
            .map(|body| body.to_vec())
    };
    for object in &packed {
        let extent = object
            .place
            .on_device(first)
            .extent(object.body.len(), seal);
        let end = extent.slot - first + u64::from(extent.nr_slots);
        assert!(extent.nr_slots <= 2 && end as usize * SLOT <= slots.len());
        let opened = open(
            &mut slots.clone(),
            object.label,
            object.place,
            object.body.len(),
        );
        assert_eq!(opened.as_ref(), Ok(&object.body));
    }
    if let Some(object) = packed.get(input.below(packed.len())) {
        refuses_what_was_not_sealed(&slots, object, seal, &mut input, open);
    }
    opens_anything(seal, slots, &mut input);
}

/// Packs objects until the input or the run ends.
fn pack(seal: Seal<'_>, nr_slots: usize, input: &mut Bytes<'_>) -> (Vec<Packed>, Vec<u8>) {
    let mut buffer = vec![0xee; nr_slots * SLOT];
    let mut run = Run::new(&mut buffer, seal);
    let mut packed = Vec::new();
    for _ in 0..input.byte() {
        let len = usize::from(input.u16()) % (MAX_BODY + 2);
        let label = Label {
            page: input.u64(),
            generation: input.u32(),
            write: input.u32(),
        };
        let filler = input.byte();
        let body: Vec<u8> = (0..len).map(|at| filler.wrapping_add(at as u8)).collect();
        let before = run.nr_slots();
        match run.push(label, len, |to| to.copy_from_slice(&body)) {
            Ok(place) => packed.push(Packed { label, place, body }),
            Err(PackError::BadLength) => assert!(len == 0 || len > MAX_BODY),
            Err(PackError::Full) => {
                assert_eq!(run.nr_slots(), before);
                break;
            }
        }
    }
    let slots = run.finish().to_vec();
    (packed, slots)
}

/// Another label, another place, and any change of a bit.
fn refuses_what_was_not_sealed(
    slots: &[u8],
    object: &Packed,
    seal: Seal<'_>,
    input: &mut Bytes<'_>,
    open: impl Fn(&mut [u8], Label, Place, usize) -> Result<Vec<u8>, OpenError>,
) {
    let Packed { label, place, body } = object;
    let corrupt = Err(OpenError::Corrupt);
    let mut damaged = slots.to_vec();
    let begin = place.slot as usize * SLOT + usize::from(place.byte);
    let at = begin + input.u16() as usize % (seal.overhead() + body.len());
    damaged[at] ^= 1 << (input.byte() % 8);
    let as_damaged = damaged.clone();
    let opened = open(&mut damaged, *label, *place, body.len());
    assert_eq!(opened, corrupt, "a bit was changed");
    assert!(damaged == as_damaged, "the buffer has changed");
    let mut other = *label;
    match input.byte() % 128 {
        bit @ ..64 => other.page ^= 1 << bit,
        bit @ 64..96 => other.generation ^= 1 << (bit - 64),
        bit => other.write ^= 1 << (bit - 96),
    }
    let opened = open(&mut slots.to_vec(), other, *place, body.len());
    assert_eq!(opened, corrupt, "under another label");
}

/// Any place of what the device may have returned.
fn opens_anything(seal: Seal<'_>, mut slots: Vec<u8>, input: &mut Bytes<'_>) {
    let (first, location) = (input.u64(), Location::from_raw(input.u64()));
    let (label, len) = (
        Label {
            page: input.u64(),
            generation: 0,
            write: 0,
        },
        input.u64() as usize,
    );
    let any = input.rest();
    let over = any.len().min(slots.len());
    slots[..over].copy_from_slice(&any[..over]);
    let before = slots.clone();
    let mut window = Window::new(first, &mut slots);
    let opened = window.open(seal, label, location, len);
    match opened.map(|body| body.len()) {
        Ok(opened) => {
            // What was packed may lie there; a checksum may be forged.
            assert!(opened == len && len <= before.len());
        }
        Err(_) => assert!(slots == before, "the buffer has changed"),
    }
}
