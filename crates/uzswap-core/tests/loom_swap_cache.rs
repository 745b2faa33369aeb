//! The swap cache, explored in every interleaving that loom knows:
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p uzswap-core --test loom_swap_cache`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::thread;
use uzswap_core::backing::swap_cache::{CachedCopy, Leaf, SwapCache};
use uzswap_core::page::Page;
use uzswap_core::page::{Age, Content, Entry};
use uzswap_io::Fingerprint;

fn copy(page: usize) -> CachedCopy {
    CachedCopy {
        page: Page::from_index(page),
        entry: Entry::Swapped {
            location: 77,
            size: 700,
            age: Age(9),
            content: Content::Page,
        },
        fingerprint: Fingerprint::ZERO,
    }
}

struct Shared {
    cache: SwapCache<'static>,
    /// Slots counted and not put yet.
    counts: AtomicU32,
    charged: AtomicU32,
}

impl Shared {
    /// A page is read back: its count passes to the cache or is put.
    fn read_back(&self, page: usize) {
        self.counts.fetch_add(1, SeqCst);
        let kept = self.cache.keep(copy(page), || {
            self.charged.fetch_add(1, SeqCst);
            true
        });
        if !kept {
            self.counts.fetch_sub(1, SeqCst);
        }
    }

    fn written(&self, page: usize) {
        if let Some(taken) = self.cache.take(Page::from_index(page)) {
            assert_eq!(taken, copy(page));
            self.counts.fetch_sub(1, SeqCst);
        }
    }

    fn device_full(&self) {
        self.cache.drain(
            |_| true,
            |_| {
                self.counts.fetch_sub(1, SeqCst);
            },
        );
    }
}

/// Two threads read pages back and write them, one of them finds the device full in between. Pages
/// 0 and 2 share a place, of two.
#[test]
fn no_count_is_lost_or_put_twice_and_the_leaf_is_charged_once() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let leaves: &'static [Leaf] = Box::leak(Box::new([Leaf::default()]));
        let shared = Arc::new(Shared {
            cache: SwapCache::new(leaves),
            counts: AtomicU32::new(0),
            charged: AtomicU32::new(0),
        });
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.read_back(0);
                shared.device_full();
                shared.written(0);
            })
        };
        shared.read_back(2);
        shared.written(2);
        shared.read_back(1);
        other.join().unwrap();
        shared.device_full();
        assert_eq!(shared.counts.load(SeqCst), 0);
        assert_eq!(shared.charged.load(SeqCst), 1);
    });
}
