//! *What*: a stream to a server, of either kind of socket, by TLS if asked for.
//!
//! *Invariants*: with TLS a server is believed only if its certificate is good for its name and
//! those of the system, or of `SSL_CERT_FILE`, vouch for it.
//! *Locking*: none. *Context*: the broker.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::CONNECT_TIMEOUT;
use crate::url::Address;

/// A connected stream.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects to `address`, without TLS.
    pub fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp(host, port) => {
                let mut last = io::ErrorKind::NotFound.into();
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    /// The same stream by TLS from here on, to a server of that name. The handshake comes with the
    /// first bytes.
    pub fn encrypted(self, address: &Address) -> Result<Stream> {
        let (Stream::Tcp(stream), Address::Tcp(host, _)) = (self, address) else {
            bail!("TLS goes with TCP");
        };
        let mut roots = RootCertStore::empty();
        // Those that cannot be read vouch for nobody.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = Arc::new(config.with_no_client_auth());
        let name = ServerName::try_from(host.clone());
        let name = name.with_context(|| format!("{host} is no name of a server"))?;
        let connection = ClientConnection::new(config, name)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    /// How long one call waits.
    pub fn set_timeout(&self, time: Duration) -> io::Result<()> {
        let tcp = match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
            Stream::Unix(stream) => {
                stream.set_write_timeout(Some(time))?;
                return stream.set_read_timeout(Some(time));
            }
        };
        tcp.set_write_timeout(Some(time))?;
        tcp.set_read_timeout(Some(time))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
            Stream::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.flush(),
            _ => Ok(()),
        }
    }
}
