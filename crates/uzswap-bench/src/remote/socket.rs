//! *What*: sockets of either family, and a delay before a server.
//!
//! *Invariants*: what is delayed comes in order, complete, and no sooner than the delay.
//! *Locking*: none. *Context*: threads of the bench command.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use uzswap_remote::url::Address;

use crate::timer;

/// A connected stream socket of any family: the calls are the same.
pub type Socket = UnixStream;

/// Bytes that the delay takes at once.
const CHUNK: usize = 64 << 10;

/// Connects to `address`.
pub fn connect(address: &Address) -> io::Result<Socket> {
    match address {
        Address::Unix(path) => UnixStream::connect(path),
        Address::Tcp(host, port) => of_tcp(TcpStream::connect((host.as_str(), *port))?),
    }
}

fn of_tcp(stream: TcpStream) -> io::Result<Socket> {
    stream.set_nodelay(true)?;
    Ok(OwnedFd::from(stream).into())
}

/// A port of the loopback that nobody listens on.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Listens at an address of the same family as `server`'s, of which a socket is made in `dir`, and
/// passes everything on, each way `delay` later. It ends with the process.
pub fn delay(server: &Address, delay: Duration, dir: &Path) -> Result<Address> {
    let (own, accept) = listen(server, dir, delay).context("cannot listen")?;
    let server = server.clone();
    thread::spawn(move || {
        while let Ok(client) = accept() {
            // A server that is gone closes the connection.
            let Ok(behind) = connect(&server) else {
                continue;
            };
            if let (Ok(from), Ok(to)) = (client.try_clone(), behind.try_clone()) {
                pass(from, to, delay);
                pass(behind, client, delay);
            }
        }
    });
    Ok(own)
}

type Accept = Box<dyn Fn() -> io::Result<Socket> + Send>;

fn listen(server: &Address, dir: &Path, delay: Duration) -> io::Result<(Address, Accept)> {
    match server {
        Address::Unix(_) => {
            let path = dir.join(format!("{}-ns-late", delay.as_nanos()));
            let listener = UnixListener::bind(&path)?;
            let accept = move || listener.accept().map(|(socket, _)| socket);
            Ok((Address::Unix(path), Box::new(accept)))
        }
        Address::Tcp(host, _) => {
            let listener = TcpListener::bind((host.as_str(), 0))?;
            let port = listener.local_addr()?.port();
            let accept = move || listener.accept().and_then(|(socket, _)| of_tcp(socket));
            Ok((Address::Tcp(host.clone(), port), Box::new(accept)))
        }
    }
}

/// Passes what comes from one socket to the other, `delay` later.
fn pass(mut from: Socket, mut to: Socket, delay: Duration) {
    let (put, take) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        while let Ok(len @ 1..) = from.read(&mut chunk) {
            if put
                .send((Instant::now() + delay, chunk[..len].to_vec()))
                .is_err()
            {
                break;
            }
        }
    });
    thread::spawn(move || {
        timer::be_on_time();
        for (due, bytes) in take {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_in_order_and_late() {
        let scratch = uzswap_corpus::Scratch::new().unwrap();
        let path = scratch.path().join("server");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut back = socket.try_clone().unwrap();
            io::copy(&mut socket, &mut back).unwrap();
        });
        let each_way = Duration::from_millis(20);
        let late = delay(&Address::Unix(path), each_way, scratch.path()).unwrap();
        let mut socket = connect(&late).unwrap();
        let sent: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let began = Instant::now();
        let mut to = socket.try_clone().unwrap();
        let copy = sent.clone();
        let writer = thread::spawn(move || to.write_all(&copy).unwrap());
        let mut came = vec![0; sent.len()];
        socket.read_exact(&mut came[..1]).unwrap();
        assert!(began.elapsed() >= 2 * each_way);
        socket.read_exact(&mut came[1..]).unwrap();
        writer.join().unwrap();
        assert!(came == sent);
        // The end, too.
        socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(socket.read(&mut came).unwrap(), 0);
    }
}
