//! The engine in a test process: how it is started, and the stories that it must tell in every
//! fault mode.
#![allow(dead_code, reason = "not every test tells every story")]

use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use uzswap_compress::Codec;
use uzswap_core::{
    Engine, Fault, FaultMode, ForkPolicy, Masked, NoRoom, PAGE_SIZE, RemapTo, in_arena,
};
use uzswap_group::group::{GROUP_LEN, Group, Identity, is_alive};
use uzswap_group::knobs::BLOCK_AUTO;
use uzswap_sys::mem;
use uzswap_sys::signal::{self, SA_SIGINFO, SIGBUS, SIGSEGV, SigAction, SigInfo, SigSet, UContext};

pub static ENGINE: Engine = Engine::new();
static GROUP: OnceLock<&'static Group> = OnceLock::new();
pub const RAM: u64 = 16 << 20;
const LEN: usize = 64 << 20;
/// What nothing here takes, on any machine: a story that does is stuck.
const TOO_LONG: Duration = Duration::from_secs(300);

unsafe extern "C" fn on_fault(_: i32, info: *mut SigInfo, _: *mut UContext) {
    // SAFETY: the kernel's siginfo; the handler's mask is full.
    let (addr, masked) = unsafe { ((*info).si_addr(), Masked::assume()) };
    assert!(in_arena(addr), "a fault of somebody else's at {addr:#x}");
    let out = ENGINE.fault(&masked, addr);
    assert_eq!(out, Fault::Resolved, "fault at {addr:#x}");
}

/// Who this process is.
fn identity() -> Identity {
    Identity {
        pid: std::process::id(),
        namespace: std::fs::metadata("/proc/self/ns/pid").unwrap().ino(),
        ..Identity::default()
    }
}

/// Starts the engine with folios of `order`; `None` where the kernel does not grant the mode.
pub fn start(mode: FaultMode, order: u32, background: bool) -> Option<&'static Group> {
    start_with(mode, order, background, |_| ())
}

/// [`start`], with the group set up by `set_up`.
pub fn start_with(
    mode: FaultMode,
    order: u32,
    background: bool,
    set_up: impl Fn(&Group),
) -> Option<&'static Group> {
    end_if_stuck();
    let (prot, flags) = (
        mem::PROT_READ | mem::PROT_WRITE,
        mem::MAP_SHARED | mem::MAP_ANONYMOUS,
    );
    // SAFETY: a fresh mapping at an address of the kernel's choice, kept.
    let group = unsafe { mem::mmap(0, GROUP_LEN, prot, flags, -1, 0) }.unwrap();
    // SAFETY: zeroed memory is a valid group: it is made of atomics.
    let group: &'static Group = unsafe { &*(group as *const Group) };
    GROUP.get_or_init(|| group);
    group.config.folio_order.store(order, Relaxed);
    group.knobs.reset();
    group.knobs.ram.store(RAM, Relaxed);
    group.config.fault_mode.store(mode.into(), Relaxed);
    group.config.background.store(background.into(), Relaxed);
    let config = &group.config;
    config.pid_namespace.store(identity().namespace, Relaxed);
    set_up(group);
    let process = group.claim(0, identity(), |_| true);
    // SAFETY: the handler serves arena faults only and has a full mask.
    unsafe {
        // On the thread's own stack: the standard library's other one has 8 KiB, less than the
        // engine may need.
        let action = SigAction::new(on_fault, SA_SIGINFO, SigSet::FULL);
        let signal = if mode == FaultMode::Segv {
            SIGSEGV
        } else {
            SIGBUS
        };
        signal::sigaction(signal, Some(&action)).unwrap();
    }
    match Masked::block(|masked| ENGINE.start(masked, group, process)) {
        Ok(_) => {}
        Err(error) if mode == FaultMode::Thread => {
            println!("skipped: thread mode is not granted here: {error}");
            return None;
        }
        Err(error) => panic!("the engine does not start: {error}"),
    }
    spawn_own_thread();
    Some(group)
}

/// Ends the process when its stories are stuck: whoever runs them learns which, and at once.
fn end_if_stuck() {
    std::thread::spawn(|| {
        std::thread::sleep(TOO_LONG);
        eprintln!("stuck: not told within {TOO_LONG:?}");
        std::process::abort();
    });
}

/// Does `what` over and over on a thread of its own while `story` is told, also if that fails: what
/// waits for the thread would wait forever.
pub fn beside(mut what: impl FnMut() + Send, story: impl FnOnce()) {
    struct Ended<'a>(&'a AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                what();
            }
        });
        let _ended = Ended(&ended);
        story();
    });
}

/// The engine's own thread; again in a fork child, which has none.
fn spawn_own_thread() {
    if ENGINE.mode() == Some(FaultMode::Thread) {
        std::thread::spawn(|| Masked::block(|m| ENGINE.serve_faults(m, NoRoom::End)));
    }
}

/// All stories, one after the other: there is one engine in a process.
pub fn tell_all(group: &'static Group) {
    let counters = &group.processes[0].counters;
    threads_on_four_times_the_limit();
    let peak = counters.ram_peak.load(Relaxed);
    assert!(peak <= RAM, "peak {peak} over the limit {RAM}");
    assert!(counters.zswpout.load(Relaxed) > 10_000);
    unmapped_memory_comes_back_as_zero();
    discard_and_pageout();
    mremap_moves_contents();
    mremap_moves_contents_beside_fresh_memory();
    pins_keep_memory_in();
    compressor_changes_while_it_runs(group);
    random_histories_agree_with_a_model(group);
    fork_child_has_its_own_copy();
}

/// A page's contents: its number and stamp, in text that compresses about as real data does.
pub fn fill(page: &mut [u64], number: u64, stamp: u64) {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stamp;
    for (at, word) in page.iter_mut().enumerate() {
        if at % 16 == 0 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        *word = if at % 16 == 0 {
            x
        } else {
            number + stamp + (at as u64 & 7)
        };
    }
}

pub fn check(page: &[u64], number: u64, stamp: u64) {
    let mut expected = [0_u64; PAGE_SIZE / 8];
    fill(&mut expected, number, stamp);
    assert!(page == expected, "page {number} stamp {stamp} is wrong");
}

pub fn page(base: usize, number: usize) -> &'static mut [u64] {
    // SAFETY: a mapped page that only one thread of the test uses at a time.
    unsafe {
        std::slice::from_raw_parts_mut((base + number * PAGE_SIZE) as *mut u64, PAGE_SIZE / 8)
    }
}

pub fn map(len: usize) -> usize {
    Masked::block(|m| ENGINE.map(m, len, 0, 3)).unwrap()
}

/// A fault on untouched memory fills the rest of its folio with zeroes as well: also where contents
/// are about to arrive.
fn mremap_moves_contents_beside_fresh_memory() {
    const NR: usize = 16;
    const MOVES: u64 = 6_000;
    let base = map(2 * NR * PAGE_SIZE);
    let at = |number: usize| base + number * PAGE_SIZE;
    let places = [NR / 2, NR + NR / 2];
    let touch_and_discard = || {
        for first in [0, NR] {
            let neighbours = (first + 1, NR / 2 - 1);
            page(base, neighbours.0)[0] = 1;
            Masked::block(|m| ENGINE.discard(m, at(neighbours.0), neighbours.1 * PAGE_SIZE))
                .unwrap();
        }
    };
    beside(touch_and_discard, || {
        let (mut here, mut there) = (places[0], places[1]);
        for stamp in 0..MOVES {
            fill(page(base, here), 1, stamp);
            if stamp % 2 == 0 {
                Masked::block(|m| ENGINE.pageout(m, at(here), PAGE_SIZE)).unwrap();
            }
            let to = RemapTo::Fixed(at(there));
            let moved = Masked::block(|m| ENGINE.remap(m, at(here), PAGE_SIZE, PAGE_SIZE, to));
            assert_eq!(moved, Ok(at(there)), "move {stamp}");
            check(page(base, there), 1, stamp);
            (here, there) = (there, here);
        }
    });
    Masked::block(|m| ENGINE.unmap(m, base, 2 * NR * PAGE_SIZE)).unwrap();
}

fn threads_on_four_times_the_limit() {
    for threads in [1, 2, 8] {
        write_and_check(threads);
    }
}

/// So many threads write all of four times what the limit allows, and read and write it here and
/// there.
pub fn write_and_check(threads: usize) {
    let base = map(LEN);
    let nr = LEN / PAGE_SIZE;
    std::thread::scope(|scope| {
        for t in 0..threads {
            scope.spawn(move || {
                let mine: Vec<usize> = (t..nr).step_by(threads).collect();
                for &n in &mine {
                    fill(page(base, n), n as u64, threads as u64);
                }
                let mut x = 12345 + t as u64;
                let mut stamps = vec![threads as u64; mine.len()];
                for _ in 0..20_000 / threads {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at = (x >> 33) as usize % mine.len();
                    check(page(base, mine[at]), mine[at] as u64, stamps[at]);
                    stamps[at] += 1;
                    fill(page(base, mine[at]), mine[at] as u64, stamps[at]);
                }
                for (at, &n) in mine.iter().enumerate() {
                    check(page(base, n), n as u64, stamps[at]);
                }
            });
        }
    });
    Masked::block(|m| ENGINE.unmap(m, base, LEN)).unwrap();
}

fn unmapped_memory_comes_back_as_zero() {
    let base = map(4 << 20);
    for n in 0..1024 {
        fill(page(base, n), 7, 7);
    }
    Masked::block(|m| ENGINE.unmap(m, base, 4 << 20)).unwrap();
    let again = map(4 << 20);
    for n in 0..1024 {
        assert!(page(again, n).iter().all(|&w| w == 0));
    }
    Masked::block(|m| ENGINE.unmap(m, again, 4 << 20)).unwrap();
}

fn discard_and_pageout() {
    let base = map(2 << 20);
    for n in 0..512 {
        fill(page(base, n), n as u64, 1);
    }
    Masked::block(|m| ENGINE.pageout(m, base, 1 << 20)).unwrap();
    Masked::block(|m| ENGINE.discard(m, base + 64 * PAGE_SIZE, 128 * PAGE_SIZE)).unwrap();
    for n in 0..512 {
        if (64..192).contains(&n) {
            assert!(page(base, n).iter().all(|&w| w == 0), "page {n}");
        } else {
            check(page(base, n), n as u64, 1);
        }
    }
    Masked::block(|m| ENGINE.unmap(m, base, 2 << 20)).unwrap();
}

fn mremap_moves_contents() {
    let base = map(1 << 20);
    let _stop = map(PAGE_SIZE);
    for n in 0..256 {
        fill(page(base, n), n as u64, 2);
    }
    Masked::block(|m| ENGINE.pageout(m, base, 512 << 10)).unwrap();
    Masked::block(|m| ENGINE.protect(m, base, 1 << 20, 0)).unwrap();
    let new = Masked::block(|m| ENGINE.remap(m, base, 1 << 20, 8 << 20, RemapTo::MayMove)).unwrap();
    assert_ne!(new, base);
    Masked::block(|m| ENGINE.protect(m, new, 8 << 20, 3)).unwrap();
    for n in 0..256 {
        check(page(new, n), n as u64, 2);
    }
    assert!(page(new, 300).iter().all(|&w| w == 0));
    Masked::block(|m| ENGINE.unmap(m, new, 8 << 20)).unwrap();
}

/// Threads write and check while the compressor changes under them; what each codec stored lies
/// about in the pool for the next ones to find.
fn compressor_changes_while_it_runs(group: &'static Group) {
    const LEN: usize = 32 << 20;
    let base = map(LEN);
    let nr = LEN / PAGE_SIZE;
    let metadata = || group.processes[0].counters.metadata.load(Relaxed);
    let ask = |codec: Codec| {
        group
            .knobs
            .compressor
            .store(codec.to_bits().into(), Relaxed)
    };
    // Whoever makes pages denser beside this has such tables too, now and then: what is there
    // without them.
    let looks = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        metadata()
    });
    let before = looks.min().unwrap();
    let mut most = 0;
    for n in 0..nr {
        fill(page(base, n), n as u64, 0);
    }
    let stamps: Vec<AtomicU64> = (0..nr).map(|_| AtomicU64::new(0)).collect();
    let names = ["zstd:3", "pz", "lz4", "deflate:1", "zstd:-1", "lz4"];
    for (name, round) in names.into_iter().zip(0..) {
        ask(name.parse().unwrap());
        group.knobs.checksum.store(round % 2, Relaxed);
        std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|t| {
                let stamps = &stamps;
                scope.spawn(move || {
                    let mut x = 99 + t as u64;
                    for _ in 0..3000 {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let n = (x >> 33) as usize % (nr / 4) * 4 + t;
                        let stamp = stamps[n].load(Relaxed);
                        check(page(base, n), n as u64, stamp);
                        fill(page(base, n), n as u64, stamp + 1);
                        stamps[n].store(stamp + 1, Relaxed);
                    }
                })
            });
            while threads.iter().any(|thread| !thread.is_finished()) {
                most = metadata().max(most);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        most = metadata().max(most);
    }
    for (n, stamp) in stamps.iter().enumerate() {
        check(page(base, n), n as u64, stamp.load(Relaxed));
    }
    println!("metadata: {before} bytes with lz4, up to {most}");
    assert!(most > before + (100 << 10), "zstd's tables are counted");
    // Whoever makes pages denser beside this is done with its own at some time.
    let began = Instant::now();
    while metadata() >= most {
        assert!(began.elapsed() < TOO_LONG / 10, "they never go");
        std::thread::sleep(Duration::from_millis(1));
    }
    ask(Codec::Zstd { level: 99 });
    fill(page(base, 0), 0, 1);
    Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
    check(page(base, 0), 0, 1);
    Masked::block(|m| ENGINE.unmap(m, base, LEN)).unwrap();
}

/// Random operations on a few folios, against a plain array of what each page must hold. The sizes
/// of blocks and the compressor change under way, so that pages are stored in every form.
fn random_histories_agree_with_a_model(group: &'static Group) {
    const NR: usize = 512;
    const LEN: usize = NR * PAGE_SIZE;
    let seed = std::env::var("UZSWAP_SEED").map_or_else(
        |_| u64::from(std::process::id()),
        |seed| seed.parse().expect("UZSWAP_SEED is a number"),
    );
    println!("UZSWAP_SEED={seed}");
    let mut x = seed.wrapping_mul(2) + 1;
    let mut random = move |below: usize| {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as usize % below
    };
    let counters = &group.processes[0].counters;
    let out = || {
        [
            &counters.stored_pages,
            &counters.same_filled_pages,
            &counters.stored_incompressible_pages,
            &counters.swapped_pages,
            &counters.block_pages,
        ]
        .map(|cell| cell.load(Relaxed))
    };
    let block_before = group.knobs.block.load(Relaxed);
    let before = out();
    let mut base = map(LEN);
    let mut model: Vec<Option<u64>> = vec![None; NR];
    let expect = |base: usize, n: usize, stamp: Option<u64>| match stamp {
        Some(stamp) => check(page(base, n), n as u64, stamp),
        None => assert!(
            page(base, n).iter().all(|&w| w == 0),
            "page {n} is not zero"
        ),
    };
    let mut in_blocks = 0;
    for step in 0..6000_u64 {
        let from = random(NR);
        let to = (from + 1 + random(if step % 5 == 0 { 100 } else { 6 })).min(NR);
        let (addr, len) = (base + from * PAGE_SIZE, (to - from) * PAGE_SIZE);
        match random(13) {
            0..=2 => {
                for (n, stamp) in model.iter_mut().enumerate().take(to).skip(from) {
                    fill(page(base, n), n as u64, step);
                    *stamp = Some(step);
                }
            }
            3..=4 => {
                for (n, stamp) in model.iter().enumerate().take(to).skip(from) {
                    expect(base, n, *stamp);
                }
            }
            5..=7 => {
                // Whole folios, or there are no blocks.
                let (from, to) = (from & !15, to.next_multiple_of(16));
                let (addr, len) = (base + from * PAGE_SIZE, (to - from) * PAGE_SIZE);
                Masked::block(|m| ENGINE.pageout(m, addr, len)).unwrap();
                in_blocks = counters.block_pages.load(Relaxed).max(in_blocks);
            }
            8 => {
                Masked::block(|m| ENGINE.discard(m, addr, len)).unwrap();
                model[from..to].fill(None);
                let mut holds = vec![2; to - from];
                Masked::block(|m| ENGINE.residency(m, addr, &mut holds)).unwrap();
                assert!(
                    holds.iter().all(|&page| page == 0),
                    "pages {from} to {to}: {holds:?}"
                );
            }
            9 => {
                Masked::block(|m| ENGINE.unmap(m, addr, len)).unwrap();
                Masked::block(|m| ENGINE.map_fixed(m, addr, len, 3)).unwrap();
                model[from..to].fill(None);
            }
            10 => {
                let pin = Masked::block(|m| ENGINE.pin(m, addr, len)).unwrap();
                Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
                assert!(
                    ENGINE.is_resident(addr, len),
                    "pages {from} to {to} are pinned"
                );
                Masked::block(|m| ENGINE.unpin(m, pin));
            }
            11 => {
                // While nobody may read them, others go and they stay; then as before.
                let protect = |prot| Masked::block(|m| ENGINE.protect(m, addr, len, prot)).unwrap();
                protect([0, 1][random(2)]);
                Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
                protect(3);
            }
            _ if step % 7 == 0 => {
                let fresh = map(LEN);
                let to = RemapTo::Fixed(fresh);
                base = Masked::block(|m| ENGINE.remap(m, base, LEN, LEN, to)).unwrap();
                assert_eq!(base, fresh);
            }
            _ => {
                let block = [0, 2, 4, BLOCK_AUTO][random(4)];
                group.knobs.block.store(block, Relaxed);
                let codec: Codec = ["lz4", "zstd:1", "deflate:1", "pz"][random(4)]
                    .parse()
                    .unwrap();
                group
                    .knobs
                    .compressor
                    .store(codec.to_bits().into(), Relaxed);
            }
        }
        let n = random(NR);
        let mut holds = [0];
        Masked::block(|m| ENGINE.residency(m, base + n * PAGE_SIZE, &mut holds)).unwrap();
        assert!(
            holds[0] == 1 || model[n].is_none(),
            "page {n} is not told of"
        );
    }
    let alone = group.config.folio_order.load(Relaxed) == 0;
    assert!(
        alone || in_blocks >= 64,
        "{in_blocks} pages were in blocks at most"
    );
    for (n, stamp) in model.iter().enumerate() {
        expect(base, n, *stamp);
    }
    Masked::block(|m| ENGINE.pageout(m, base, LEN)).unwrap();
    Masked::block(|m| ENGINE.unmap(m, base, LEN)).unwrap();
    assert_eq!(out(), before, "nothing is left behind");
    group.knobs.block.store(block_before, Relaxed);
    group
        .knobs
        .compressor
        .store(Codec::Lz4.to_bits().into(), Relaxed);
}

fn pins_keep_memory_in() {
    let base = map(1 << 20);
    fill(page(base, 3), 3, 3);
    Masked::block(|m| ENGINE.pageout(m, base, 1 << 20)).unwrap();
    let pin = Masked::block(|m| ENGINE.pin(m, base + 3 * PAGE_SIZE + 5, 10)).unwrap();
    Masked::block(|m| ENGINE.pageout(m, base, 1 << 20)).unwrap();
    let mut resident = [0_u8; 1];
    uzswap_sys::mem::mincore(base + 3 * PAGE_SIZE, PAGE_SIZE, &mut resident).unwrap();
    assert_eq!(resident[0] & 1, 1, "pinned pages stay");
    Masked::block(|m| ENGINE.unpin(m, pin));
    Masked::block(|m| ENGINE.pageout(m, base, 1 << 20)).unwrap();
    uzswap_sys::mem::mincore(base + 3 * PAGE_SIZE, PAGE_SIZE, &mut resident).unwrap();
    assert_eq!(resident[0] & 1, 0, "unpinned pages go");
    check(page(base, 3), 3, 3);
    let not_held = || ENGINE.not_held(base, PAGE_SIZE);
    let folio = not_held();
    assert!(folio >= PAGE_SIZE && folio == ENGINE.not_held(base, folio));
    Masked::block(|m| ENGINE.hold(m, base, 1)).unwrap();
    assert_eq!(not_held(), 0, "what is held counts once");
    assert_eq!(ENGINE.not_held(base, folio + 1), folio);
}

fn fork_child_has_its_own_copy() {
    // Parent and child change all of it: together they need twice as much.
    let ram = &GROUP.get().unwrap().knobs.ram;
    ram.store(2 * RAM, Relaxed);
    let base = map(24 << 20);
    let wiped = map(1 << 20);
    let nr = (24 << 20) / PAGE_SIZE;
    for n in 0..nr {
        fill(page(base, n), n as u64, 4);
    }
    fill(page(wiped, 0), 1, 1);
    Masked::block(|m| ENGINE.fork_policy(m, wiped, 1 << 20, ForkPolicy::Wipe, true));
    let pid = fork();
    let stamp = if pid == 0 { 50 } else { 60 };
    for n in 0..nr {
        check(page(base, n), n as u64, 4);
        fill(page(base, n), n as u64, stamp);
        let claimed = GROUP.get().unwrap().ledger.held().claimed;
        let shares = ENGINE.mode() != Some(FaultMode::Segv);
        // At most a few pages that neither could be made to give back.
        let most = (2 * RAM + RAM / 4) / PAGE_SIZE as u64;
        assert!(!shares || claimed <= most, "{claimed} together");
    }
    for n in 0..nr {
        check(page(base, n), n as u64, stamp);
    }
    if pid == 0 {
        assert!(page(wiped, 0).iter().all(|&w| w == 0));
        uzswap_sys::thread::exit_group(CONTENT);
    }
    check(page(wiped, 0), 1, 1);
    wait_for(pid);
    ram.store(RAM, Relaxed);
    Masked::block(|m| ENGINE.pageout(m, base, 24 << 20)).unwrap();
}

/// What a child ends with that found everything as it must be.
pub const CONTENT: i32 = 42;

/// Forks: 0 in the child, which has one thread beside the engine's own.
pub fn fork() -> usize {
    // SAFETY: the child only uses the engine and its own memory, then exits.
    unsafe {
        let m = Masked::assume();
        let ledger = &GROUP.get().unwrap().ledger;
        let before = ledger.held();
        let guard = ENGINE.fork_prepare(&m);
        let after = ledger.held();
        let resident = ENGINE.process().unwrap().counters.resident.load(Relaxed);
        let twice = after.used.saturating_sub(before.used - after.shared);
        if ENGINE.mode() == Some(FaultMode::Segv) {
            let pool = &ENGINE.process().unwrap().counters.pool_total_size;
            let pool = pool.load(Relaxed) / PAGE_SIZE as u64;
            assert!(after.shared <= pool, "of the pool's {pool} pages alone");
        } else {
            assert!(
                after.shared * PAGE_SIZE as u64 >= resident / 2,
                "of {resident}"
            );
            assert!(
                twice <= before.used - after.shared,
                "what is shared counts once"
            );
        }
        let pid = uzswap_sys::syscall::call0(uzswap_sys::nr::FORK).unwrap();
        if pid == 0 {
            let record = guard.reserved().unwrap().begin(identity()).unwrap();
            guard.in_child(&m, record).unwrap();
            spawn_own_thread();
        } else {
            guard.in_parent(&m, u32::try_from(pid).unwrap());
        }
        pid
    }
}

/// Waits for a child, which must end [`CONTENT`].
pub fn wait_for(pid: usize) {
    let mut status = 0_i32;
    // SAFETY: waits for a child of ours.
    unsafe {
        uzswap_sys::syscall::call4(uzswap_sys::nr::WAIT4, pid, &raw mut status as usize, 0, 0)
            .unwrap();
    }
    assert_eq!(status >> 8 & 0xff, CONTENT, "the child is content");
    // As a supervisor does.
    GROUP
        .get()
        .unwrap()
        .expire_dead(std::process::id(), is_alive);
}
