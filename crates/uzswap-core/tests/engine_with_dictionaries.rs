//! Dictionaries are trained on what is stored, used while that gains, replaced when the program's data change, and given back with the last
//! page that needs them, while threads read and write, and across fork; and every byte is what was written.

mod engine_support;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use engine_support::{CONTENT, ENGINE, RAM, beside, fork, map, page, wait_for};
use uzswap_compress::Codec;
use uzswap_core::{FaultMode, Masked, PAGE_SIZE, RemapTo};
use uzswap_group::counters::Counters;
use uzswap_group::knobs::{OFF, ON};

const LEN: usize = 12 << 20;
const NR: usize = LEN / PAGE_SIZE;
/// Words of a record that all records of a kind have.
const COMMON: usize = 12;

fn mixed(x: u64) -> u64 {
    let x = (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ x >> 29).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// A page of records of 24 kinds that its `family` has, each with some words of its own.
fn write(page: &mut [u64], family: u64, number: u64) {
    for (at, record) in page.chunks_mut(16).enumerate() {
        let own = mixed(number << 8 | at as u64);
        let kind = family << 16 | (own % 24) << 8;
        for (place, word) in record.iter_mut().enumerate() {
            *word = match place {
                ..COMMON => mixed(kind | place as u64),
                COMMON => own,
                _ => 0,
            };
        }
    }
}

fn check(page: &[u64], family: u64, number: u64) {
    let mut expected = [0; PAGE_SIZE / 8];
    write(&mut expected, family, number);
    assert!(
        page == expected,
        "page {number} of family {family} is wrong"
    );
}

fn pageout(base: usize, len: usize) {
    Masked::block(|m| ENGINE.pageout(m, base, len)).unwrap();
}

fn tend() {
    Masked::block(|m| ENGINE.tend_dictionaries(m));
}

/// One test: there is one engine in a process.
#[test]
fn the_engine_tells_of_its_dictionaries() {
    let group = engine_support::start_with(FaultMode::Signal, 4, false, |group| {
        let zstd = Codec::Zstd { level: 1 };
        group.knobs.compressor.store(zstd.to_bits().into(), Relaxed);
        group.knobs.dictionary.store(ON, Relaxed);
        group.knobs.ram.store(2 * RAM, Relaxed);
    });
    let Some(group) = group else { return };
    let counters = &group.processes[0].counters;
    let switch = |on| group.knobs.dictionary.store(on, Relaxed);
    one_is_replaced_and_goes_with_its_last_page(counters, switch);
    println!("{counters:?}");
    threads_and_children_do_not_notice(counters, switch);
    println!("{counters:?}");
    switch(OFF);
    tend();
    assert_eq!(counters.dictionary_pages.load(Relaxed), 0);
    assert_eq!(counters.dictionary_bytes.load(Relaxed), 0);
    assert_eq!(counters.decompress_fail.load(Relaxed), 0);
}

fn one_is_replaced_and_goes_with_its_last_page(counters: &Counters, switch: impl Fn(u64)) {
    let [trained, dropped, pages, bytes, metadata] = [
        &counters.dictionary_trained,
        &counters.dictionary_dropped,
        &counters.dictionary_pages,
        &counters.dictionary_bytes,
        &counters.metadata,
    ]
    .map(|cell| move || cell.load(Relaxed));
    let base = map(LEN);
    for n in 0..NR {
        write(page(base, n), 1, n as u64);
    }
    pageout(base, LEN);
    switch(OFF);
    tend();
    assert_eq!(trained(), 0, "switched off");
    switch(ON);
    let (plain, tables) = (counters.pool_total_size.load(Relaxed), metadata());
    tend();
    assert_eq!((trained(), pages()), (1, 0), "{counters:?}");
    let each = bytes();
    assert_eq!(
        metadata(),
        tables + each,
        "it is counted, the trainer is gone"
    );
    tend();
    assert_eq!(trained(), 1, "one that is as good as it was is kept");

    // Stored once more, by the first.
    for n in 0..NR {
        check(page(base, n), 1, n as u64);
    }
    pageout(base, LEN);
    let by = counters.pool_total_size.load(Relaxed);
    println!("pool {plain} bytes, {by} with a dictionary");
    assert!(by < plain - plain / 8, "{by} of {plain} bytes");
    assert_eq!(pages(), NR as u64);

    // Half of the program's data change their kind: a second one.
    for n in 0..NR / 2 {
        write(page(base, n), 2, n as u64);
    }
    pageout(base, LEN);
    tend();
    assert_eq!((trained(), dropped(), bytes()), (2, 0, 2 * each));
    for n in NR / 2..NR / 2 + 64 {
        check(page(base, n), 1, n as u64);
    }

    // Some of what the first one made moves, and becomes parts of blocks, which no dictionary makes.
    let fresh = map(LEN);
    let to = RemapTo::Fixed(fresh);
    let base = Masked::block(|m| ENGINE.remap(m, base, LEN, LEN, to)).unwrap();
    let before = pages();
    Masked::block(|m| ENGINE.densify(m));
    println!("{before} pages by a dictionary, {} when denser", pages());
    assert!(pages() < before);
    for n in (NR / 2..NR).step_by(7) {
        check(page(base, n), 1, n as u64);
    }
    for n in 0..NR / 2 {
        check(page(base, n), 2, n as u64);
    }
    pageout(base, LEN);
    tend();
    assert_eq!(
        dropped(),
        u64::from(bytes() == each),
        "only with its last page"
    );

    Masked::block(|m| ENGINE.unmap(m, base, LEN)).unwrap();
    assert_eq!(pages(), 0);
    tend();
    assert_eq!(
        (dropped(), bytes()),
        (1, each),
        "the first goes, the second is in use"
    );
}

/// Threads write, read, push out and drop pages whose data change their kind, while dictionaries come, go, and are
/// switched off and on; children find what there was when they were born, and train some of their own.
fn threads_and_children_do_not_notice(counters: &Counters, switch: impl Fn(u64) + Send + Copy) {
    const THREADS: usize = 3;
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let base = map(4 * LEN);
    let nr = 4 * NR;
    let stamps: Vec<AtomicU64> = (0..nr).map(|_| AtomicU64::new(0)).collect();
    // A family, and its number; 0: zeroes.
    let expect = |n: usize| match stamps[n].load(Relaxed) {
        0 => assert!(page(base, n).iter().all(|&word| word == 0), "page {n}"),
        stamp => check(page(base, n), stamp >> 32, stamp & 0xffff_ffff),
    };
    let mut turns = 0_u64;
    let tend_and_switch = move || {
        turns += 1;
        switch(if turns % 8 == 7 { OFF } else { ON });
        tend();
        if turns.is_multiple_of(4) {
            Masked::block(|m| ENGINE.densify(m));
        }
        std::thread::yield_now();
    };
    let story = || {
        for round in 1..=3 {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (stamps, expect) = (&stamps, &expect);
                    scope.spawn(move || {
                        let mut x = mixed(seed ^ (round * 16 + thread as u64));
                        for _ in 0..4000 {
                            x = mixed(x + 1);
                            let n = (x >> 20) as usize % (nr / THREADS) * THREADS + thread;
                            expect(n);
                            let stamp = (round + x % 2) << 32 | x >> 40;
                            write(page(base, n), stamp >> 32, stamp & 0xffff_ffff);
                            stamps[n].store(stamp, Relaxed);
                            let addr = base + n * PAGE_SIZE;
                            match x >> 8 & 127 {
                                0 => pageout(base + (n & !255) * PAGE_SIZE, 1 << 20),
                                1..8 => {
                                    Masked::block(|m| ENGINE.discard(m, addr, PAGE_SIZE)).unwrap();
                                    stamps[n].store(0, Relaxed);
                                }
                                _ => {}
                            }
                        }
                    });
                }
            });
            let pid = fork();
            if pid == 0 {
                switch(ON);
                tend();
            }
            for n in (0..nr).step_by(5) {
                expect(n);
            }
            if pid == 0 {
                pageout(base, LEN);
                tend();
                for n in 0..nr {
                    expect(n);
                }
                uzswap_sys::thread::exit_group(CONTENT);
            }
            wait_for(pid);
        }
    };
    beside(tend_and_switch, story);
    for n in 0..nr {
        expect(n);
    }
    assert!(counters.ram_peak.load(Relaxed) <= 2 * RAM);
    Masked::block(|m| ENGINE.unmap(m, base, 4 * LEN)).unwrap();
}
