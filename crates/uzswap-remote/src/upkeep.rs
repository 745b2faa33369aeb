//! *What*: what a broker does beside serving: looks whether the servers answer, renews the life of
//! the data, has lost copies made anew, and frees cells of threads that have died.
//!
//! *Invariants*: data are renewed four times as often as they need it.
//! *Locking*: none but the client's. *Context*: a thread of the broker.

use std::thread;
use std::time::{Duration, Instant};

use uzswap_io::exchange::{Exchange, NR_CELLS};
use uzswap_sync::primitive::Ordering::Relaxed;

use crate::client::{Client, Probe};

/// How often.
const PERIOD: Duration = Duration::from_secs(1);

/// Looks after the exchange for ever.
pub fn run(exchange: &Exchange, mut client: Box<dyn Client>, renewal: Option<Duration>) -> ! {
    let mut before = [0; NR_CELLS];
    let mut renewed = Instant::now();
    loop {
        exchange.sweep(&mut before, is_alive);
        let Probe { is_up, has_changed } = client.probe();
        exchange.is_up.store(is_up.into(), Relaxed);
        let is_due = is_up && renewal.is_some_and(|every| renewed.elapsed() >= every);
        // Renewal finds out what is gone, too.
        if is_due || has_changed {
            let clusters: Vec<_> = exchange.written().collect();
            client.renew(&clusters);
            renewed = Instant::now();
        }
        client.mend();
        thread::sleep(PERIOD);
    }
}

/// Whether there is a thread of that number.
fn is_alive(thread: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody.
    let sent = unsafe { libc::kill(thread.cast_signed(), 0) };
    sent == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}
