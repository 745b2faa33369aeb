//! *What*: the part of ZeroMQ's protocol (ZMTP 3.0, RFC 23) that it takes to read and to publish
//! messages: greeting, handshake without authentication, frames.
//!
//! *Invariants*: a frame of more than [`MAX_FRAME`] bytes is passed over, so what a peer sends
//! takes bounded memory.
//! *Locking*: none. *Context*: threads of the supervisor.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Largest frame that is kept.
const MAX_FRAME: u64 = 64 << 10;
/// Frames of a message, at most.
const MAX_FRAMES: usize = 64;
/// Time that a peer has for the next piece of the handshake.
const PATIENCE: Duration = Duration::from_millis(500);

/// Signature, version 3.0, the mechanism `NULL`, and zeroes.
const GREETING: [u8; 64] = {
    let mut greeting = [0; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    (greeting[12], greeting[13], greeting[14], greeting[15]) = (b'N', b'U', b'L', b'L');
    greeting
};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A frame that a subscriber sends: it wants messages that begin with what follows the first byte.
pub const SUBSCRIBE: u8 = 1;

/// What a socket is to its peer.
#[derive(Clone, Copy)]
pub enum Kind {
    Publisher,
    Subscriber,
}

/// A peer after the handshake.
pub struct Peer(BufReader<TcpStream>);

impl Peer {
    /// Shakes hands. Reads wait for as long as it takes then.
    pub fn greet(stream: TcpStream, kind: Kind) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut peer = Peer(BufReader::new(stream));
        peer.write(&GREETING)?;
        let mut theirs = GREETING;
        peer.0.read_exact(&mut theirs)?;
        if theirs[0] != 0xff || theirs[10] < 3 || theirs[12..16] != *b"NULL" {
            return Err(ErrorKind::Unsupported.into());
        }
        let name: &[u8] = match kind {
            Kind::Publisher => b"PUB",
            Kind::Subscriber => b"SUB",
        };
        let ready = [b"\x05READY\x0bSocket-Type\0\0\0\x03", name].concat();
        peer.write_frame(COMMAND, &ready)?;
        let (flags, _) = peer.read_frame()?;
        if flags & COMMAND == 0 {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(peer)
    }

    /// Has reads wait for at most so long.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.get_ref().set_read_timeout(patience)
    }

    pub fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        let Some((last, others)) = frames.split_last() else {
            return Ok(());
        };
        others
            .iter()
            .try_for_each(|frame| self.write_frame(MORE, frame))?;
        self.write_frame(0, last)
    }

    /// The next message; frames that are too large are empty in it.
    pub fn receive(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        loop {
            let (flags, frame) = self.read_frame()?;
            if flags & COMMAND != 0 {
                continue;
            }
            if frames.len() < MAX_FRAMES {
                frames.push(frame);
            }
            if flags & MORE == 0 {
                return Ok(frames);
            }
        }
    }

    fn read_frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut flags = [0; 1];
        self.0.read_exact(&mut flags)?;
        let len = if flags[0] & LONG == 0 {
            let mut len = [0; 1];
            self.0.read_exact(&mut len)?;
            u64::from(len[0])
        } else {
            let mut len = [0; 8];
            self.0.read_exact(&mut len)?;
            u64::from_be_bytes(len)
        };
        let mut frame = Vec::new();
        let got = match len {
            ..=MAX_FRAME => (&mut self.0).take(len).read_to_end(&mut frame)? as u64,
            _ => io::copy(&mut (&mut self.0).take(len), &mut io::sink())?,
        };
        if got < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok((flags[0], frame))
    }

    fn write_frame(&mut self, flags: u8, body: &[u8]) -> io::Result<()> {
        let mut frame = match u8::try_from(body.len()) {
            Ok(len) => vec![flags, len],
            Err(_) => [&[flags | LONG][..], &(body.len() as u64).to_be_bytes()].concat(),
        };
        frame.extend_from_slice(body);
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn messages_arrive_whole_and_large_frames_are_passed_over() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let publisher = std::thread::spawn(move || {
            let mut peer = Peer::greet(listener.accept().unwrap().0, Kind::Publisher).unwrap();
            assert_eq!(peer.receive().unwrap(), [vec![SUBSCRIBE]]);
            let large = vec![7; usize::try_from(MAX_FRAME).unwrap() + 1];
            peer.send(&[b"a", &large, &large[..300], b""]).unwrap();
            peer.send(&[b"next"]).unwrap();
        });
        let mut peer = Peer::greet(stream, Kind::Subscriber).unwrap();
        peer.send(&[&[SUBSCRIBE]]).unwrap();
        let expected = [b"a".to_vec(), Vec::new(), vec![7; 300], Vec::new()];
        assert_eq!(peer.receive().unwrap(), expected);
        assert_eq!(peer.receive().unwrap(), [b"next"]);
        assert!(peer.receive().is_err());
        publisher.join().unwrap();
    }

    #[test]
    fn who_speaks_something_else_is_refused() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(&[b'x'; 64]).unwrap();
        let accepted = listener.accept().unwrap().0;
        assert!(Peer::greet(accepted, Kind::Publisher).is_err());
    }
}
