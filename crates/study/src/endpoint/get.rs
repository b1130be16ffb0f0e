//! Fetches a test object over HTTP with an endpoint of `tcp`, and verifies every byte.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use lab::TestObject;
use meter::http::head;
use os::clock;
use os::station::Station;
use tcp::{Config, Connection, ConnectionEvent, Segment, SeqNr, TcpState, wire};
use thiserror::Error;
use units::{Instant, Machine};

use super::drive::{ConnectionOwner, drive, reverse};
use super::random;
use super::report::ReceivedObject;

const HTTP_PORT: u16 = 80;

/// URL of an object: `http://server/1MB` or `server:80/1MB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectUrl {
    /// The server's name or address.
    pub host: String,
    /// TCP port of the server.
    pub port: u16,
    name: String,
    object: TestObject,
}

/// The error for a text that is not the URL of an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?}: expected http://HOST[:PORT]/SIZE or HOST[:PORT]/SIZE, such as http://server/1MB"
)]
pub struct ParseUrlError {
    text: String,
}

impl FromStr for ObjectUrl {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<Self, ParseUrlError> {
        let read = || {
            let rest = text.strip_prefix("http://").unwrap_or(text);
            let (place, name) = rest.split_once('/')?;
            let (host, port) = match place.strip_prefix('[') {
                // An IPv6 address contains colons, and is therefore in brackets (RFC 3986 §3.2.2).
                Some(v6) => v6.split_once(']')?,
                None => place.split_at(place.find(':').unwrap_or(place.len())),
            };
            let port = match port.strip_prefix(':') {
                Some(port) => port.parse().ok()?,
                None if port.is_empty() => HTTP_PORT,
                None => return None,
            };
            let object = TestObject::named(name)?;
            let host = host.to_owned();
            let name = name.to_owned();
            (!host.is_empty()).then_some(Self { host, port, name, object })
        };
        read().ok_or_else(|| ParseUrlError { text: text.to_owned() })
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.host, self.port, self.name)
    }
}

/// A transfer that has ended.
pub struct FetchResult {
    /// The object, or the reason why it could not be fetched.
    pub outcome: Result<ReceivedObject, GetError>,
    /// The connection, from which later ones can learn.
    pub tcp: Connection<Bytes>,
}

/// Fetches the object from `server`, with `own` as the station's address.
///
/// # Errors
/// If the device is gone.
pub fn get(
    station: &mut Station,
    config: &Config,
    own: IpAddr,
    server: SocketAddr,
    target: &ObjectUrl,
) -> io::Result<FetchResult> {
    let way = wire::SegmentPath {
        from: own,
        // A dynamic port (RFC 6335 §6).
        from_port: 49_152 + (random() % 16_384) as u16,
        to: server.ip(),
        to_port: server.port(),
    };
    let tcp = Connection::connect(config.clone(), SeqNr::new(random() as u32));
    let mut client = GetClient::new(tcp, way, clock::now(), target);
    drive(station, &mut client)?;
    let outcome = client.outcome.unwrap_or(Err(GetError::NoObject));
    Ok(FetchResult { outcome, tcp: client.tcp })
}

/// The client of one transfer.
struct GetClient {
    tcp: Connection<Bytes>,
    way: wire::SegmentPath,
    begun: Instant,
    /// The part of the request not yet written.
    request: Bytes,
    reply: ReplyVerifier,
    first_byte: Option<Instant>,
    /// The outcome, once it is known.
    outcome: Option<Result<ReceivedObject, GetError>>,
    is_over: bool,
}

/// The reason why the object could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GetError {
    /// The connection was aborted, for the given reason.
    #[error("the connection ended: {0:?}")]
    Aborted(tcp::AbortReason),
    /// The connection was closed before there was an outcome.
    #[error("the connection ended without an object")]
    NoObject,
    /// The stream ended too early.
    #[error("the server ended the stream after {got} of {expected} bytes")]
    Short {
        /// Bytes of the object received.
        got: u64,
        /// Size of the object in bytes.
        expected: u64,
    },
    /// The reply does not begin with a head.
    #[error("the server's reply is not HTTP")]
    NoHttp,
    /// The status is not 200.
    #[error("the server answered {status}")]
    Status {
        /// The status code of the reply.
        status: u16,
    },
    /// The announced length is not the object's.
    #[error("the server announces {told} bytes, the object has {expected}")]
    Length {
        /// The length announced in the head.
        told: u64,
        /// Size of the object in bytes.
        expected: u64,
    },
    /// A byte differs from the object's.
    #[error("byte {at} differs from the one sent")]
    Wrong {
        /// Index of the byte in the object.
        at: u64,
    },
    /// The stream goes on after the object.
    #[error("the server sent more than the object's {expected} bytes")]
    Long {
        /// Size of the object in bytes.
        expected: u64,
    },
}

impl GetClient {
    fn new(
        tcp: Connection<Bytes>,
        way: wire::SegmentPath,
        now: Instant,
        target: &ObjectUrl,
    ) -> Self {
        let request = head::get(&format!("/{}", target.name), "1.1", &target.host, false);
        let mut client = Self {
            tcp,
            way,
            begun: now,
            request: request.into(),
            reply: ReplyVerifier::new(target.object),
            first_byte: None,
            outcome: None,
            is_over: false,
        };
        client.service(now);
        client
    }

    fn service(&mut self, now: Instant) {
        if !self.request.is_empty()
            && let Ok(taken) = self.tcp.write(&self.request)
        {
            self.request = self.request.slice(taken..);
        }
        let mut finished = false;
        while let Some(event) = self.tcp.poll_event() {
            match event {
                ConnectionEvent::Finished => finished = true,
                ConnectionEvent::Closed => self.is_over = true,
                ConnectionEvent::Aborted(why) => {
                    self.set_outcome(Err(GetError::Aborted(why)));
                    self.is_over = true;
                }
                _ => {}
            }
        }
        while let Some(data) = self.tcp.read(usize::MAX) {
            self.first_byte.get_or_insert(now);
            if let Err(error) = self.reply.receive(&data) {
                self.set_outcome(Err(error));
                self.tcp.abort(now);
            }
        }
        if finished {
            let time = now.saturating_since(self.begun);
            let first = self.first_byte.map(|at| at.saturating_since(self.begun));
            let bytes = self.reply.got;
            self.set_outcome(self.reply.end().map(|()| ReceivedObject::new(bytes, time, first)));
            self.tcp.close();
        }
    }

    fn set_outcome(&mut self, outcome: Result<ReceivedObject, GetError>) {
        // The first outcome is the cause of later ones: a wrong byte aborts the connection.
        self.outcome.get_or_insert(outcome);
    }
}

impl ConnectionOwner for GetClient {
    /// Segments of other connections belong to other programs.
    fn handle_segment(&mut self, now: Instant, path: &wire::SegmentPath, segment: &Segment<Bytes>) {
        if reverse(path) == self.way {
            self.tcp.handle_segment(now, segment);
            self.service(now);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.tcp.poll_timeout().map(|(at, _)| at)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tcp.handle_timeout(now);
        self.service(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(wire::SegmentPath, Segment<Bytes>)> {
        Some((self.way, self.tcp.poll_transmit(now)?))
    }

    fn is_over(&self) -> bool {
        self.is_over || self.tcp.state() == TcpState::Closed
    }
}

/// The part of a reply received so far.
struct ReplyVerifier {
    object: TestObject,
    head: Vec<u8>,
    in_body: bool,
    /// Verified bytes of the object.
    got: u64,
    expected: Box<dyn Iterator<Item = Vec<u8>>>,
    chunk: Bytes,
}

impl ReplyVerifier {
    fn new(object: TestObject) -> Self {
        Self {
            object,
            head: Vec::new(),
            in_body: false,
            got: 0,
            expected: Box::new(object.chunks()),
            chunk: Bytes::new(),
        }
    }

    fn receive(&mut self, data: &[u8]) -> Result<(), GetError> {
        if self.in_body {
            return self.compare(data);
        }
        self.head.extend_from_slice(data);
        let response = head::ParsedResponse::parse(&self.head).map_err(|_| GetError::NoHttp)?;
        let Some(response) = response else { return Ok(()) };
        if response.status != 200 {
            return Err(GetError::Status { status: response.status });
        }
        let expected = self.object.size().get();
        // Without a length the object ends with the connection, and `end` checks its size.
        if let Some(told) = response.length.filter(|told| *told != expected) {
            return Err(GetError::Length { told, expected });
        }
        self.in_body = true;
        let body = self.head.split_off(response.size);
        self.compare(&body)
    }

    fn compare(&mut self, mut data: &[u8]) -> Result<(), GetError> {
        while !data.is_empty() {
            if self.chunk.is_empty() {
                let expected = self.object.size().get();
                let next = self.expected.next().ok_or(GetError::Long { expected })?;
                self.chunk = next.into();
            }
            let len = data.len().min(self.chunk.len());
            let (here, rest) = data.split_at(len);
            if here != &self.chunk[..len] {
                let same = here.iter().zip(&self.chunk[..]).take_while(|(a, b)| a == b).count();
                return Err(GetError::Wrong { at: self.got + same as u64 });
            }
            self.got += len as u64;
            self.chunk = self.chunk.slice(len..);
            data = rest;
        }
        Ok(())
    }

    /// Handles the end of the stream.
    fn end(&self) -> Result<(), GetError> {
        let got = self.got;
        let expected = self.object.size().get();
        if got == expected && self.in_body {
            return Ok(());
        }
        Err(GetError::Short { got, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        for (text, shown) in [
            ("http://server/1MB", "server:80/1MB"),
            ("server:8080/64kB", "server:8080/64kB"),
            ("http://[fd00:2::2]:81/1kB", "fd00:2::2:81/1kB"),
            ("10.2.0.2/1B", "10.2.0.2:80/1B"),
        ] {
            assert_eq!(text.parse::<ObjectUrl>().unwrap().to_string(), shown);
        }
        for text in
            ["server", "http://server", "/1MB", "server:x/1MB", "server/index.html", "[::1]x/1B"]
        {
            let error = text.parse::<ObjectUrl>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("expected http://"), "{error}");
        }
    }

    fn reply(parts: &[&[u8]]) -> Result<(), GetError> {
        let mut reply = ReplyVerifier::new(TestObject::named("1kB").unwrap());
        parts.iter().try_for_each(|part| reply.receive(part))?;
        reply.end()
    }

    #[test]
    fn the_object_and_nothing_else_is_taken() {
        let object = TestObject::named("1kB").unwrap().chunks().next().unwrap();
        let head: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
        assert_eq!(reply(&[head, &object]), Ok(()));
        assert_eq!(reply(&[&head[..9], &head[9..], &object[..7], &object[7..]]), Ok(()));
        assert_eq!(reply(&[head, &object[..7]]), Err(GetError::Short { got: 7, expected: 1000 }));
        assert_eq!(reply(&[head, &object, b"x"]), Err(GetError::Long { expected: 1000 }));
        let mut wrong = object.clone();
        wrong[700] ^= 1;
        assert_eq!(reply(&[head, &wrong]), Err(GetError::Wrong { at: 700 }));
        assert_eq!(reply(&[b"HTTP/1.1 404 X\r\n\r\n"]), Err(GetError::Status { status: 404 }));
        assert_eq!(reply(&[b"SSH-2.0-x\r\n"]), Err(GetError::NoHttp));
        let other = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(reply(&[other]), Err(GetError::Length { told: 7, expected: 1000 }));
    }
}
