//! What a fault costs in the engine alone: fill, random and sequential read+write passes over more
//! memory than the limit, 1 and 2 threads. No guard, no interposed malloc.
//!
//!     cargo bench -p uzswap-core --bench engine -- [MiB of data] [MiB of limit] [codec]

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use uzswap_compress::Codec;
use uzswap_core::page::{narrow, wide};
use uzswap_core::{Engine, Fault, Masked, PAGE_SIZE};
use uzswap_group::group::{GROUP_LEN, Group, Identity};
use uzswap_sys::signal::{self, SA_SIGINFO, SIGBUS, SigAction, SigInfo, SigSet, UContext};

static ENGINE: Engine = Engine::new();
const WORDS: usize = PAGE_SIZE / 8;

unsafe extern "C" fn on_sigbus(_: i32, info: *mut SigInfo, _: *mut UContext) {
    // SAFETY: the kernel's siginfo; the handler's mask is full.
    let (addr, masked) = unsafe { ((*info).si_addr(), Masked::assume()) };
    if ENGINE.fault(&masked, addr) != Fault::Resolved {
        std::process::abort();
    }
}

/// A page that lz4 halves twice: a quarter random, the rest small numbers.
fn fill(page: &mut [u64], number: u64) {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (at, word) in page.iter_mut().enumerate() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        *word = if at % 16 < 3 {
            x
        } else {
            number + (at as u64 & 3)
        };
    }
    page[0] = number;
}

fn page(base: usize, number: usize) -> &'static mut [u64] {
    // SAFETY: a mapped page that one thread uses.
    unsafe { std::slice::from_raw_parts_mut((base + number * PAGE_SIZE) as *mut u64, WORDS) }
}

fn touch(base: usize, number: usize) {
    let page = page(base, number);
    assert_eq!(page[0], number as u64, "page {number}");
    page[1] = page[1].wrapping_add(1);
}

fn timed(name: &str, nr: usize, threads: usize, work: impl Fn(usize) + Sync) {
    let c = &ENGINE.process().unwrap().counters;
    let before = (
        c.faults.load(Relaxed),
        c.zswpout.load(Relaxed),
        c.reclaim_ticks.load(Relaxed),
        c.fault_ticks.load(Relaxed),
    );
    let cpu = uzswap_sys::thread::process_cpu_ns();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for t in 1..threads {
            let work = &work;
            scope.spawn(move || work(t));
        }
        work(0);
    });
    let ns = start.elapsed().as_nanos() as f64;
    let cpu = (uzswap_sys::thread::process_cpu_ns() - cpu) as f64;
    let d = |a: u64, b: u64| (b - a) as f64 / nr as f64;
    println!(
        "{name:12} {threads} thread(s): {:8.0} ns an access, {:8.0} ns CPU, {:.3} faults, {:.3} stored, {:.0} fault ticks, {:.0} reclaim ticks",
        ns / nr as f64,
        cpu / nr as f64,
        d(before.0, c.faults.load(Relaxed)),
        d(before.1, c.zswpout.load(Relaxed)),
        d(before.3, c.fault_ticks.load(Relaxed)),
        d(before.2, c.reclaim_ticks.load(Relaxed)),
    );
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut number = |default: usize| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (data, limit): (usize, usize) = (number(1024), number(440));
    let codec: Codec = args
        .next()
        .map_or(Codec::Lz4, |name| name.parse().expect("a codec"));
    let layout = std::alloc::Layout::from_size_align(GROUP_LEN, 4096).unwrap();
    // SAFETY: zeroed memory is a valid group: it is made of atomics.
    let group: &'static Group = unsafe { &*std::alloc::alloc_zeroed(layout).cast::<Group>() };
    group.config.folio_order.store(4, Relaxed);
    group.knobs.reset();
    group.knobs.ram.store((limit as u64) << 20, Relaxed);
    group
        .knobs
        .compressor
        .store(codec.to_bits().into(), Relaxed);
    let process = group.claim(
        0,
        Identity {
            pid: std::process::id(),
            ..Identity::default()
        },
        |_| true,
    );
    // SAFETY: the handler serves arena faults only and has a full mask.
    unsafe {
        let action = SigAction::new(on_sigbus, SA_SIGINFO, SigSet::FULL);
        signal::sigaction(SIGBUS, Some(&action)).unwrap();
    }
    Masked::block(|masked| ENGINE.start(masked, group, process)).expect("the engine starts");
    for threads in [1, 2] {
        let base = Masked::block(|m| ENGINE.map(m, data << 20, 0, 3)).unwrap();
        let nr = (data << 20) / PAGE_SIZE;
        let share = nr / threads;
        timed("fill", nr, threads, |t| {
            for n in t * share..(t + 1) * share {
                fill(page(base, n), n as u64);
            }
        });
        let c = &ENGINE.process().unwrap().counters;
        println!(
            "  stored {} MiB in {} MiB of pool",
            c.stored_pages.load(Relaxed) >> 8,
            c.pool_total_size.load(Relaxed) >> 20
        );
        timed("random", nr, threads, |t| {
            let mut x = 88_172_645_463_325_252_u64 + t as u64;
            for _ in 0..share {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                touch(base, t * share + narrow(x % wide(share)));
            }
        });
        timed("sequential", nr, threads, |t| {
            for n in t * share..(t + 1) * share {
                touch(base, n);
            }
        });
        Masked::block(|m| ENGINE.unmap(m, base, data << 20)).unwrap();
    }
}
