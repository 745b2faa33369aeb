//! What was packed comes back from the slots that were named, and only for the page it was packed for.

use std::mem::MaybeUninit;

use uzswap_io::{Key, Label, MAX_SLOTS, OpenError, PackError, Run, SLOT, Seal, Sequence, Window};

const LABEL: Label = Label {
    page: 41,
    generation: 5,
};

/// Tells the story with encryption, then with the checksum.
fn with_both(story: impl Fn(Seal<'_>)) {
    let mut memory = MaybeUninit::uninit();
    let key = Key::generate(&mut memory).expect("getrandom");
    let sequence = Sequence::new();
    story(Seal::Encrypted {
        key,
        sequence: &sequence,
    });
    story(Seal::Checksummed);
}

#[test]
fn small_objects_share_slots_and_come_back() {
    with_both(|seal| {
        let mut buffer = vec![0xee; 4 * SLOT];
        let mut run = Run::new(&mut buffer, seal);
        let bodies: Vec<Vec<u8>> = (1..=12_u8).map(|i| vec![i; 100 * usize::from(i)]).collect();
        let places: Vec<_> = (0..)
            .zip(&bodies)
            .map(|(page, body)| {
                let label = Label { page, ..LABEL };
                run.push(label, body.len(), |out| out.copy_from_slice(body))
                    .expect("fits")
            })
            .collect();
        assert_eq!(run.nr_slots(), 2);
        let disk = run.finish().to_vec();
        assert_eq!(disk.len(), 2 * SLOT);
        for (page, (place, body)) in (0..).zip(places.iter().zip(&bodies)) {
            let at = place.on_device(1000);
            let extent = at.extent(body.len(), seal);
            assert!(extent.nr_slots as usize <= MAX_SLOTS);
            let from = usize::try_from(extent.slot - 1000).expect("small") * SLOT;
            let mut read = disk[from..from + extent.nr_slots as usize * SLOT].to_vec();
            let mut window = Window::new(extent.slot, &mut read);
            let label = Label { page, ..LABEL };
            let other = Label {
                page: page + 1,
                ..LABEL
            };
            assert_eq!(
                window.open(seal, other, at, body.len()),
                Err(OpenError::Corrupt)
            );
            assert_eq!(
                window.open(seal, label, at, body.len()).as_deref(),
                Ok(&body[..])
            );
        }
    });
}

#[test]
fn a_full_run_takes_no_more_and_loses_nothing() {
    with_both(|seal| {
        let mut buffer = vec![0xee; 2 * SLOT];
        let mut run = Run::new(&mut buffer, seal);
        let raw = [7; SLOT];
        let first = run
            .push(LABEL, SLOT, |out| out.copy_from_slice(&raw))
            .expect("fits");
        assert_eq!(
            run.push(LABEL, SLOT, |_| panic!("no room")),
            Err(PackError::Full)
        );
        let mut read = run.finish().to_vec();
        assert_eq!(read.len(), 2 * SLOT);
        let mut window = Window::new(9, &mut read);
        assert_eq!(
            window
                .open(seal, LABEL, first.on_device(9), SLOT)
                .as_deref(),
            Ok(&raw[..])
        );
    });
}
