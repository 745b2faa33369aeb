//! One timed phase.

use std::sync::Barrier;
use std::time::Instant;

use uzswap_sys::process::share_memory;

/// The times of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Seconds from when all threads were ready until the last was done.
    pub wall: f64,
    /// User and system time meanwhile, seconds, of the process and of whoever works on its memory
    /// beside it.
    pub cpu: f64,
}

impl Phase {
    /// Runs `work` with the thread's number on each of `threads` threads; one thread is the main
    /// thread.
    pub fn run(threads: u32, work: impl Fn(u32) + Sync) -> Self {
        if threads == 1 {
            let (cpu, start) = (own_seconds(), Instant::now());
            work(0);
            return Self::since(start, cpu);
        }
        let ready = Barrier::new(threads as usize + 1);
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|t| {
                    let (ready, work) = (&ready, &work);
                    scope.spawn(move || {
                        ready.wait();
                        work(t);
                    })
                })
                .collect();
            ready.wait();
            let (cpu, start) = (own_seconds(), Instant::now());
            for handle in handles {
                handle.join().expect("a worker found wrong data");
            }
            Self::since(start, cpu)
        })
    }

    fn since(start: Instant, cpu: f64) -> Self {
        Self {
            wall: start.elapsed().as_secs_f64(),
            cpu: own_seconds() - cpu,
        }
    }

    /// The phase as a member of a JSON object, with one figure derived from it.
    pub fn json(&self, name: &str, figure: &str, value: f64) -> String {
        format!(
            "\"{name}\":{{\"{figure}\":{value:.4},\"wall_s\":{:.4},\"cpu_s\":{:.4}}}",
            self.wall, self.cpu
        )
    }
}

/// Processor time of this process and of those that share its memory, seconds: a manager's work is
/// this program's, wherever it runs.
fn own_seconds() -> f64 {
    let beside: u64 = beside().filter_map(run_nanos).sum();
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
    let beside = beside as f64 / 1e9;
    cpu_seconds(libc::RUSAGE_SELF) + beside
}

/// The other processes that share this one's memory.
fn beside() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |&pid| pid != own && share_memory(own, pid) == Some(true))
}

/// Nanoseconds that process `pid`, of one thread, has run.
fn run_nanos(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    stat.split(' ').next()?.parse().ok()
}

/// User and system time of `who`, as in getrusage, seconds.
pub fn cpu_seconds(who: libc::c_int) -> f64 {
    // SAFETY: all zeroes is a valid rusage, and getrusage writes to nothing else.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds of one process fit easily"
    )]
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
