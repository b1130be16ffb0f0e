//! Handshake with a client of the proxy: SOCKS5 or HTTP CONNECT, told apart by the first byte. No I/O, no
//! clock: bytes in, actions out.

use std::net::{IpAddr, SocketAddr};

use slacp::{Destination, HostName, ResetReason};

use super::{http, socks};

/// Parses a host: an address, with or without brackets, or a name. `None` if it is neither.
pub(super) fn destination(host: &str, port: u16) -> Option<Destination> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = |ip| Destination::Address(SocketAddr::new(ip, port));
    if let Some(bare) = bare {
        // Brackets are for IPv6 only, so `[name]` is not a host.
        return bare.parse().ok().map(IpAddr::V6).map(address);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(address(ip));
    }
    HostName::new(host).map(|name| Destination::Name(name, port))
}

/// Protocol of a proxy client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// SOCKS5, without authentication.
    Socks,
    /// HTTP/1.1 with the method CONNECT.
    Http,
}

impl ProxyProtocol {
    /// Builds the answer to a client: connected, or the reason of the failure.
    pub fn answer(self, outcome: Result<(), ResetReason>) -> Vec<u8> {
        match self {
            Self::Socks => socks::reply(outcome.map_or_else(socks::code, |()| socks::SUCCEEDED)),
            Self::Http => outcome.map_or_else(http::refusal, |()| http::ESTABLISHED.to_vec()),
        }
    }
}

/// Next action of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Read more bytes: the request is incomplete.
    Read,
    /// Send this and ask for the next step.
    Write(Vec<u8>),
    /// Connect the client, then send [`ProxyProtocol::answer`].
    Connect(ProxyRequest),
    /// Send this and close: the request is invalid.
    Refuse(Vec<u8>),
}

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRequest {
    /// The destination that the client names, by address or by name.
    pub destination: Destination,
    /// The protocol in which to answer.
    pub dialect: ProxyProtocol,
    /// Data that the client has already sent for its destination.
    pub first: Vec<u8>,
}

/// State machine of a handshake.
#[derive(Debug, Default)]
pub struct ProxyHandshake {
    heard: Vec<u8>,
    /// Length of the part of `heard` that is known to contain no end of an HTTP head.
    searched: usize,
    /// `true` once a SOCKS client's greeting was answered.
    greeted: bool,
}

/// Result of parsing the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParseResult<T> {
    /// The bytes are the beginning of a message.
    Partial,
    /// Complete, with the number of bytes consumed.
    Whole(T, usize),
    /// Invalid, with the answer to send.
    Bad(Vec<u8>),
}

impl ProxyHandshake {
    /// Appends bytes from the client.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
    }

    /// The next action. [`HandshakeStep::Connect`] and [`HandshakeStep::Refuse`] are final.
    pub fn step(&mut self) -> HandshakeStep {
        match self.heard.first() {
            None => HandshakeStep::Read,
            Some(&socks::VERSION) if !self.greeted => self.greet(),
            _ if self.greeted => self.connect(socks::request(&self.heard), ProxyProtocol::Socks),
            Some(&socks::VERSION_4) => HandshakeStep::Refuse(socks::REFUSAL_4.to_vec()),
            Some(_) => self.connect_by_http(),
        }
    }

    fn greet(&mut self) -> HandshakeStep {
        match socks::greeting(&self.heard) {
            ParseResult::Partial => HandshakeStep::Read,
            ParseResult::Bad(answer) => HandshakeStep::Refuse(answer),
            ParseResult::Whole(answer, length) => {
                self.heard.drain(..length);
                self.greeted = true;
                HandshakeStep::Write(answer)
            }
        }
    }

    fn connect_by_http(&mut self) -> HandshakeStep {
        let parsed = http::request(&self.heard, self.searched);
        self.searched = self.heard.len();
        self.connect(parsed, ProxyProtocol::Http)
    }

    fn connect(
        &mut self,
        parsed: ParseResult<Destination>,
        dialect: ProxyProtocol,
    ) -> HandshakeStep {
        match parsed {
            ParseResult::Partial => HandshakeStep::Read,
            ParseResult::Bad(answer) => HandshakeStep::Refuse(answer),
            ParseResult::Whole(destination, length) => {
                // A client may send its first data without waiting for the answer.
                let first = self.heard.split_off(length);
                HandshakeStep::Connect(ProxyRequest { destination, dialect, first })
            }
        }
    }
}

#[cfg(test)]
mod tests;
