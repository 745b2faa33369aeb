//! Whether two processors are available at the moment.

use std::hint::black_box;
use std::time::Instant;

/// Times of the same spinning.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    /// Seconds on one thread.
    pub alone_s: f64,
    /// Seconds on the slower of two threads at once.
    pub together_s: f64,
}

impl Spin {
    /// Spins for a few tenths of a second.
    ///
    /// # Panics
    /// If no thread can be started.
    #[must_use]
    pub fn measure() -> Self {
        let one = || {
            let start = Instant::now();
            let mut x = 1_u64;
            for i in 0..400_000_000_u64 {
                x = black_box(x.rotate_left(5) ^ i);
            }
            black_box(x);
            start.elapsed().as_secs_f64()
        };
        let alone_s = one();
        let together_s = std::thread::scope(|scope| {
            let other = scope.spawn(one);
            let here = one();
            here.max(other.join().expect("spinning does not panic"))
        });
        Self {
            alone_s,
            together_s,
        }
    }

    /// Near 1 if two processors are available.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.together_s / self.alone_s
    }
}
