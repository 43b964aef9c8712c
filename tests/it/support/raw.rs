//! A connection with byte-level control.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Raw(pub TcpStream);

impl Raw {
    #[track_caller]
    pub fn open(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Raw(stream)
    }

    /// Sends bytes; returns false if the connection is closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.try_send(bytes), "the server reads");
    }

    /// Reads until the other end closes.
    #[track_caller]
    pub fn rest(&mut self) -> String {
        let mut all = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.0.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => all.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("not closed within {PATIENCE:?}: {error}"),
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Reads up to the end of a head; empty if the other end closes before.
    #[track_caller]
    pub fn head(&mut self) -> String {
        let mut all = Vec::new();
        let mut byte = [0];
        while !all.ends_with(b"\r\n\r\n") {
            match self.0.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => all.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("no head within {PATIENCE:?}: {error}"),
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Returns true if the other end has closed, without waiting.
    pub fn is_closed(&self) -> bool {
        self.0.set_nonblocking(true).expect("it can be set");
        let peeked = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).expect("it can be set");
        match peeked {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}
