//! *What*: the broker: a process beside the supervisor that serves one remote device to the programs
//! of a run, by an exchange in shared memory.
//!
//! It is a process of its own so that what clients and TLS need of memory and threads is not the
//! supervisor's, and so that its death ends nothing: the supervisor starts another one, and all
//! state is in the exchange.
//!
//! *Invariants*: it ends when its standard input does, however the supervisor has ended, and leaves
//! nothing on the servers then.
//! *Locking*: see `worker`. *Context*: `uzswap broker`, which the supervisor starts.

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, bail};
use uzswap_io::exchange::{EXCHANGE_LEN, Exchange};
use uzswap_swap::os;

use crate::client::Server;
use crate::order::{Answer, Order};
use crate::redis::Keys;
use crate::upkeep;
use crate::url::Place;
use crate::worker::{Gate, Worker};

/// Bytes of a worker's stack.
const STACK: usize = 256 << 10;

/// Serves as the order on standard input says, until that ends.
///
/// # Errors
/// The order cannot be read, or the supervisor has ended.
pub fn run() -> Result<()> {
    // SAFETY: ignoring a signal has no precondition. Those of the terminal are for the command,
    // whose end the broker must outlive.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"uzswap-broker".as_ptr());
        // What it knows, such as passwords, is not to be dumped or traced.
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
    let mut input = io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line).context("this is for 'uzswap run' to start")?;
    drop(line);
    // Of several providers in one binary none would be taken by itself.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server: Box<dyn Server> = match Place::parse(&order.url)? {
        Place::Redis(place) => Box::new(Keys::new(place, &order.job)),
        Place::Nbd(place) => Box::new(place),
    };
    let answer = match server.open() {
        Ok(bytes) => Answer::Ready { bytes },
        // The servers may be back later.
        Err(_) if order.again => Answer::Ready { bytes: 0 },
        Err(error) => Answer::Refused(format!("{error:#}")),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    io::stdout().write_all(text.as_bytes())?;
    if matches!(answer, Answer::Refused(_)) {
        return Ok(());
    }
    let exchange = attach(&order)?;
    exchange.recover(libc::ECONNRESET.unsigned_abs());
    let gate = Arc::new(Gate::default());
    serve(exchange, server.as_ref(), order.alone, &gate)?;
    // Until the supervisor ends.
    io::copy(&mut input, &mut io::sink())?;
    gate.close();
    let clusters: Vec<_> = exchange.written().collect();
    server.client().remove(&clusters);
    Ok(())
}

/// Starts the threads.
fn serve(
    exchange: &'static Exchange,
    server: &dyn Server,
    alone: bool,
    gate: &Arc<Gate>,
) -> Result<()> {
    let nr_workers = server.max_clients();
    for nr in 0..nr_workers {
        let client = server.client();
        let worker = Worker {
            gate: Arc::clone(gate),
            exchange,
            client,
            alone,
            // While a write stands, reads go on.
            only_reads: nr > 0 && nr == nr_workers - 1,
        };
        spawn(format!("worker-{nr}"), move || worker.run())?;
    }
    let (client, renewal) = (server.client(), server.renewal());
    spawn("upkeep".to_owned(), move || {
        upkeep::run(exchange, client, renewal)
    })
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name).stack_size(STACK);
    thread.spawn(run).context("cannot start a thread")?;
    Ok(())
}

/// Maps the exchange that the supervisor holds.
fn attach(order: &Order) -> Result<&'static Exchange> {
    let path = format!("/proc/{}/fd/{}", order.supervisor, order.exchange);
    let file = File::options().read(true).write(true).open(path);
    let file = file.context("cannot open the exchange")?;
    if file.metadata()?.len() < EXCHANGE_LEN as u64 {
        bail!("the exchange is too short");
    }
    let at = os::map_shared(&file, EXCHANGE_LEN, true).context("cannot map the exchange")?;
    // Best effort: what waits for a page to be read back must not wait for the machine's swap.
    // SAFETY: the mapping made just now.
    unsafe { libc::mlock(at.as_ptr(), EXCHANGE_LEN) };
    // SAFETY: as above; never unmapped. Zeroed memory is an exchange.
    Ok(unsafe { &*at.as_ptr().cast::<Exchange>() })
}
