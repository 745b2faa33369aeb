//! Microseconds to seal and open one object, beside the bare checksum: `cargo bench -p uzswap-io`.
#![allow(clippy::undocumented_unsafe_blocks, reason = "bench memory")]

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

use uzswap_io::{Key, Label, Location, Place, Run, SLOT, Seal, Sequence, Window};

/// Objects a round: what fits a run whatever their length.
const OBJECTS: usize = 31;
const ROUNDS: usize = 2000;
const LABEL: Label = Label {
    page: 7,
    generation: 0,
    write: 0,
};
const HERE: Location = Location { slot: 0, byte: 0 };

#[repr(align(4096))]
struct Buffer([u8; 64 * SLOT]);

/// Fills a run with objects of `len` bytes.
fn pack(buffer: &mut Buffer, seal: Seal<'_>, body: &[u8]) {
    let mut run = Run::new(&mut buffer.0, seal);
    for _ in 0..OBJECTS {
        let place = run.push(LABEL, body.len(), |out| out.copy_from_slice(body));
        black_box(place).expect("fits");
    }
    black_box(run.finish());
}

/// Opens the objects of the run, after a copy, as a read would put them there.
fn unpack(buffer: &mut Buffer, packed: &Buffer, places: &[Place], seal: Seal<'_>, len: usize) {
    buffer.0.copy_from_slice(&packed.0);
    let mut window = Window::new(0, &mut buffer.0);
    for place in places {
        let body = window.open(seal, LABEL, place.on_device(HERE.slot), len);
        black_box(body).expect("what was sealed");
    }
}

/// The fastest of all rounds, in microseconds an object.
fn fastest(mut round: impl FnMut()) -> f64 {
    let best = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        round();
        begin.elapsed()
    });
    best.min().expect("rounds").as_secs_f64() * 1e6 / OBJECTS as f64
}

fn main() {
    let mut memory = MaybeUninit::uninit();
    let key: &Key = Key::generate(&mut memory).expect("getrandom");
    let sequence = Sequence::new();
    let seals = [
        (
            "aes-256-gcm",
            Seal::Encrypted {
                key,
                sequence: &sequence,
            },
        ),
        ("crc32c", Seal::Checksummed),
    ];
    let mut buffer = Box::new(Buffer([0; 64 * SLOT]));
    let mut packed = Box::new(Buffer([0; 64 * SLOT]));
    println!("us an object           bytes   copy   seal   open");
    for (name, seal) in seals {
        for len in [256, 1024, 4096] {
            let body = vec![0x5a; len];
            let copy = fastest(|| buffer.0.copy_from_slice(black_box(&packed.0)));
            let sealed = fastest(|| pack(&mut buffer, seal, &body));
            pack(&mut packed, seal, &body);
            let mut layout = uzswap_io::Layout::new();
            let places: Vec<_> = (0..OBJECTS)
                .map(|_| layout.place(seal.overhead() + len))
                .collect();
            let opened = fastest(|| unpack(&mut buffer, &packed, &places, seal, len)) - copy;
            println!("{name:20} {len:7} {copy:6.3} {sealed:6.3} {opened:6.3}");
        }
    }
}
