//! Batches dealt out to devices: who gets what, and that software reads what devices make and the
//! reverse, whatever codec they are changed to and however often they come and go meanwhile.
#![cfg(not(any(loom, miri)))]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use uzswap_compress::{Codec, CompressError, Compressor, Decompressor};
use uzswap_core::accel::thread::{Contexts, STACK, WorkerThread};
use uzswap_core::accel::{Accel, BATCH, Job, Outcome, Params, Spread, Task, WorkQueue};
use uzswap_core::{Masked, PAGE_SIZE};

const PAGE_LEN: usize = PAGE_SIZE;
const CODECS: [Codec; 4] = [
    Codec::Lz4,
    Codec::ZSTD_DEFAULT,
    Codec::DEFLATE_DEFAULT,
    Codec::PZ_DEFAULT,
];

fn jobs() -> &'static [Job] {
    Box::leak((0..BATCH).map(|_| Job::new()).collect())
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Memory for good, aligned to pages.
fn memory(len: usize) -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(len, PAGE_LEN).unwrap();
    // SAFETY: not empty.
    unsafe { std::alloc::alloc_zeroed(layout) }
}

fn compressor(codec: Codec) -> Compressor {
    let len = Compressor::required_size(codec, PAGE_LEN);
    // SAFETY: fresh memory, nobody else's.
    unsafe { Compressor::init(memory(len), len, codec, PAGE_LEN) }.unwrap()
}

fn decompressor() -> Decompressor {
    let len = Decompressor::required_size();
    // SAFETY: fresh memory, nobody else's.
    unsafe { Decompressor::init(memory(len), len) }.unwrap()
}

fn engine(codec: Codec) -> &'static WorkerThread {
    let contexts = Contexts {
        compressor: compressor(codec),
        decompressor: decompressor(),
    };
    let stack = memory(STACK) as usize + STACK;
    // SAFETY: a stack of its own; the caller is the only one who starts it.
    let engine = leak(unsafe { WorkerThread::new(contexts, stack) });
    // SAFETY: all signals are blocked; nobody else starts it.
    assert!(Masked::block(|_| unsafe { engine.start() }));
    assert!(engine.open());
    engine
}

/// A queue that takes so many jobs at once and does nothing with them but to say whose they are.
struct Counted {
    room: usize,
    there: AtomicBool,
    asked: AtomicUsize,
    taken: Mutex<Vec<usize>>,
}

fn counted(room: usize) -> &'static Counted {
    leak(Counted {
        room,
        there: AtomicBool::new(true),
        asked: AtomicUsize::new(0),
        taken: Mutex::default(),
    })
}

impl WorkQueue for Counted {
    fn serves(&self, op: Task) -> bool {
        self.there.load(Relaxed) && matches!(op, Task::Compress(_))
    }

    fn submit(&self, jobs: &'static [Job]) -> usize {
        self.asked.fetch_add(1, Relaxed);
        let mut taken = self.taken.lock().unwrap();
        let nr = jobs.len().min(self.room - self.room.min(taken.len()));
        for job in &jobs[..nr] {
            taken.push(std::ptr::from_ref(job) as usize);
            job.settle(Outcome::Incompressible);
        }
        nr
    }

    fn wait(&self, _: &Job) {
        panic!("it is settled at once");
    }
}

const OP: Task = Task::Compress(Codec::Lz4);

#[test]
fn a_batch_is_shared_by_the_devices_that_are_there() {
    let accel = leak(Accel::new());
    let queues = [counted(100), counted(100), counted(100)];
    let nr_taken = || queues.map(|queue| std::mem::take(&mut *queue.taken.lock().unwrap()).len());
    assert_eq!(
        accel.dispatch(jobs(), OP, Spread::RoundRobin).nr,
        0,
        "no devices"
    );
    for queue in queues {
        assert!(accel.add(queue));
    }
    for _ in 0..3 {
        assert_eq!(accel.dispatch(jobs(), OP, Spread::RoundRobin).nr, BATCH);
        let mut shares = nr_taken();
        shares.sort_unstable();
        assert_eq!(shares, [5, 5, 6]);
    }
    // One goes: the others share; it comes back: it has its share again.
    queues[1].there.store(false, Relaxed);
    assert_eq!(accel.dispatch(jobs(), OP, Spread::RoundRobin).nr, BATCH);
    assert_eq!(nr_taken(), [8, 0, 8]);
    // A processor keeps to its own; there are two left, so the third processor shares the first
    // one's.
    for (cpu, expected) in [(0, [16, 0, 0]), (1, [0, 0, 16]), (2, [16, 0, 0])] {
        assert_eq!(accel.dispatch(jobs(), OP, Spread::Mapped { cpu }).nr, BATCH);
        assert_eq!(nr_taken(), expected, "processor {cpu}");
    }
    queues[1].there.store(true, Relaxed);
    assert_eq!(
        accel.dispatch(jobs(), OP, Spread::Mapped { cpu: 1 }).nr,
        BATCH
    );
    assert_eq!(nr_taken(), [0, 16, 0]);
    // None of them decompresses.
    let other = Task::Decompress(Codec::Lz4.id());
    assert!(!accel.serves(other));
    assert_eq!(accel.dispatch(jobs(), other, Spread::RoundRobin).nr, 0);
}

#[test]
fn what_no_device_has_room_for_stays_after_a_bounded_number_of_attempts() {
    let accel = leak(Accel::new());
    let queues = [counted(3), counted(4)];
    for queue in queues {
        assert!(accel.add(queue));
    }
    let jobs = jobs();
    let dealt = accel.dispatch(jobs, OP, Spread::RoundRobin);
    assert_eq!(dealt.nr, 7);
    assert!(dealt.refused >= 2);
    accel.settle(jobs, &dealt);
    let asked = queues.map(|queue| queue.asked.load(Relaxed));
    assert!(
        asked.iter().all(|&asked| asked <= 3),
        "asked {asked:?} times"
    );
    let taken: Vec<usize> = queues
        .iter()
        .flat_map(|q| q.taken.lock().unwrap().clone())
        .collect();
    for job in &jobs[..7] {
        let address = std::ptr::from_ref(job) as usize;
        let times = taken.iter().filter(|&&job| job == address).count();
        assert_eq!(times, 1, "every one is with one device");
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % below
    }

    /// A page that compresses well, badly or not at all.
    fn fill(&mut self, page: &mut [u8]) {
        let span = [2, 40, 256][self.below(3)];
        for byte in page {
            *byte = self.below(span).to_le_bytes()[0];
        }
    }
}

/// One who asks: a batch of jobs, its pages and its own software.
struct Asker {
    jobs: &'static [Job],
    pages: &'static mut [u8],
    made: &'static mut [u8],
    decompressor: Decompressor,
    random: Random,
    /// Jobs that devices did, and that they gave back or did not take.
    done: [usize; 2],
}

impl Asker {
    fn new(seed: u64) -> Self {
        let len = BATCH * PAGE_LEN;
        // SAFETY: fresh memory for good, nobody else's.
        let buffer = || unsafe { std::slice::from_raw_parts_mut(memory(len), len) };
        Self {
            jobs: jobs(),
            pages: buffer(),
            made: buffer(),
            decompressor: decompressor(),
            random: Random(seed * 2 + 1),
            done: [0; 2],
        }
    }

    /// Hands over what `work` says of each of the first `nr` jobs, and returns what became of each.
    fn run(
        &mut self,
        accel: &Accel,
        nr: usize,
        op: Task,
        work: impl Fn(usize) -> Params,
    ) -> Vec<Outcome> {
        for (at, job) in self.jobs.iter().enumerate().take(nr) {
            // SAFETY: settled; the buffers are this asker's, who waits below.
            unsafe { job.prepare(work(at)) };
        }
        let spread = match self.random.below(2) {
            0 => Spread::RoundRobin,
            cpu => Spread::Mapped { cpu },
        };
        let dealt = accel.dispatch(&self.jobs[..nr], op, spread);
        for job in &self.jobs[dealt.nr..nr] {
            job.settle(Outcome::Aborted);
        }
        accel.settle(self.jobs, &dealt);
        let outcomes: Vec<_> = self.jobs[..nr]
            .iter()
            .map(|job| job.outcome().unwrap())
            .collect();
        for outcome in &outcomes {
            self.done[usize::from(*outcome == Outcome::Aborted)] += 1;
        }
        outcomes
    }

    fn round(&mut self, accel: &Accel, software: &mut Compressor) {
        let codec = software.codec();
        let nr = 1 + self.random.below(BATCH);
        for page in self.pages.chunks_mut(PAGE_LEN) {
            self.random.fill(page);
        }
        let (pages, made) = (self.pages.as_ptr(), self.made.as_mut_ptr());
        let most = PAGE_LEN - 64;
        let outcomes = self.run(accel, nr, Task::Compress(codec), |at| Params {
            task: Task::Compress(codec),
            src: pages.wrapping_add(at * PAGE_LEN),
            src_len: PAGE_LEN,
            dst: made.wrapping_add(at * PAGE_LEN),
            dst_len: most,
        });
        let mut sizes = [0; BATCH];
        for (at, outcome) in outcomes.iter().enumerate() {
            let mut expected = [0; PAGE_LEN];
            let source = &self.pages[at * PAGE_LEN..][..PAGE_LEN];
            let object = &mut self.made[at * PAGE_LEN..][..PAGE_LEN];
            let len = software.compress_stable(source, &mut expected[..most]);
            match outcome {
                // Not the same bytes: lz4's table remembers the pages before.
                Outcome::Done(made) => {
                    let mut page = [0; PAGE_LEN];
                    let object = &object[..*made];
                    let unpacked = self.decompressor.decompress(codec.id(), object, &mut page);
                    assert_eq!(unpacked, Ok(()), "{codec}");
                    assert!(page == *source, "{codec}, page {at}");
                }
                Outcome::Incompressible => {
                    assert!(len.is_err_and(|e| e == CompressError::Poor), "{codec}")
                }
                Outcome::Aborted => {}
                Outcome::Failed => panic!("{codec} failed"),
            }
            sizes[at] = len.unwrap_or(0);
            object.copy_from_slice(&expected);
        }
        // And back, as far as there is an object of each.
        let whole = sizes.iter().take(nr).take_while(|&&size| size > 0).count();
        let before = self.pages.to_vec();
        self.pages.fill(0xaa);
        let (pages, made) = (self.pages.as_mut_ptr(), self.made.as_ptr());
        let op = Task::Decompress(codec.id());
        let outcomes = self.run(accel, whole, op, |at| Params {
            task: op,
            src: made.wrapping_add(at * PAGE_LEN),
            src_len: sizes[at],
            dst: pages.wrapping_add(at * PAGE_LEN),
            dst_len: PAGE_LEN,
        });
        for (at, outcome) in outcomes.iter().enumerate() {
            let range = at * PAGE_LEN..(at + 1) * PAGE_LEN;
            match outcome {
                Outcome::Done(len) => assert_eq!(*len, PAGE_LEN),
                Outcome::Aborted => {
                    let object = &self.made[range.start..][..sizes[at]];
                    let out = &mut self.pages[range.clone()];
                    self.decompressor
                        .decompress(codec.id(), object, out)
                        .unwrap();
                }
                other => panic!("{codec}: {other:?}"),
            }
            assert!(
                self.pages[range.clone()] == before[range],
                "{codec}, page {at}"
            );
        }
    }
}

#[test]
fn devices_and_software_read_each_other_while_devices_come_and_go() {
    let seed = std::env::var("UZSWAP_SEED").map_or_else(
        |_| u64::from(std::process::id()),
        |seed| seed.parse().expect("UZSWAP_SEED is a number"),
    );
    println!("UZSWAP_SEED={seed}");
    let accel = leak(Accel::new());
    let engines = [engine(Codec::ZSTD_DEFAULT), engine(Codec::ZSTD_DEFAULT)];
    for engine in engines {
        assert!(accel.add(engine));
    }
    let mut first = Asker::new(seed);
    first.round(accel, &mut compressor(Codec::ZSTD_DEFAULT));
    assert!(first.done[0] > 0, "devices that are there do something");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let askers: Vec<_> = (1..4)
            .map(|nr| {
                scope.spawn(move || {
                    let mut asker = Asker::new(seed + nr * 1000);
                    let mut software = CODECS.map(compressor);
                    for _ in 0..150 {
                        let codec = asker.random.below(CODECS.len());
                        asker.round(accel, &mut software[codec]);
                    }
                    asker.done
                })
            })
            .collect();
        scope.spawn(|| {
            let mut random = Random(seed * 2 + 77);
            while !ended.load(Relaxed) {
                let engine = engines[random.below(2)];
                engine.close();
                while !engine.is_away() {
                    std::thread::yield_now();
                }
                let codec = CODECS[random.below(CODECS.len())];
                if engine.codec() != Some(codec) {
                    // SAFETY: nobody else replaces or opens; what it had is leaked.
                    let old = unsafe { engine.replace(compressor(codec)) };
                    assert_ne!(old.codec(), codec, "it was away");
                }
                while !engine.open() {
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        });
        let done: Vec<_> = askers.into_iter().map(|asker| asker.join()).collect();
        ended.store(true, Relaxed);
        for done in done {
            let [by_devices, left] = done.expect("an asker is content");
            println!("{by_devices} by devices, {left} not");
        }
    });
}
