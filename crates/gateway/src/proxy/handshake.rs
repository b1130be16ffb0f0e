//! What a client of the proxy says before it is connected: SOCKS5 or HTTP
//! CONNECT, which its first byte tells apart. No I/O, no clock: bytes in, what is
//! to be done out.

use std::net::{IpAddr, SocketAddr};

use slacp::{Destination, HostName, ResetReason};

use super::{http, socks};

/// The destination of a host as text: an address, in brackets or not, or a name.
/// `None` for anything else.
pub(super) fn destination(host: &str, port: u16) -> Option<Destination> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = |ip| Destination::Address(SocketAddr::new(ip, port));
    if let Some(bare) = bare {
        return bare.parse().ok().map(IpAddr::V6).map(address);
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(address(ip));
    }
    HostName::new(host).map(|name| Destination::Name(name, port))
}

/// The protocol that a client speaks, and wants its answer in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Socks,
    Http,
}

impl Dialect {
    /// What is said to a client that is connected, or is not for this reason.
    pub(crate) fn answer(self, outcome: Result<(), ResetReason>) -> Vec<u8> {
        match self {
            Self::Socks => socks::reply(outcome.map_or_else(socks::code, |()| socks::SUCCEEDED)),
            Self::Http => outcome.map_or_else(http::refusal, |()| http::ESTABLISHED.to_vec()),
        }
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read more.
    Hear,
    /// Send this and go on.
    Say(Vec<u8>),
    /// Connect the client.
    Connect(Request),
    /// Send this and close: nothing can come of it.
    Refuse(Vec<u8>),
}

/// A request to be connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) destination: Destination,
    pub(crate) dialect: Dialect,
    /// What the client has said already to whom it will be connected to.
    pub(crate) first: Vec<u8>,
}

/// How far a handshake is.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    heard: Vec<u8>,
    /// A SOCKS client has been greeted.
    greeted: bool,
}

/// What a parser made of the bytes there are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<T> {
    /// It needs more of them.
    Partial,
    /// So many bytes were this.
    Whole(T, usize),
    /// This is the answer to what cannot be meant.
    Bad(Vec<u8>),
}

impl Handshake {
    /// Takes what the client has said.
    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
    }

    /// What is to be done now. [`Step::Connect`] and [`Step::Refuse`] are the end.
    pub(crate) fn step(&mut self) -> Step {
        match self.heard.first() {
            None => Step::Hear,
            Some(&socks::VERSION) if !self.greeted => self.greet(),
            _ if self.greeted => self.connect(socks::request(&self.heard), Dialect::Socks),
            Some(&socks::VERSION_4) => Step::Refuse(socks::REFUSAL_4.to_vec()),
            Some(_) => self.connect(http::request(&self.heard), Dialect::Http),
        }
    }

    fn greet(&mut self) -> Step {
        match socks::greeting(&self.heard) {
            Parsed::Partial => Step::Hear,
            Parsed::Bad(answer) => Step::Refuse(answer),
            Parsed::Whole(answer, length) => {
                self.heard.drain(..length);
                self.greeted = true;
                Step::Say(answer)
            }
        }
    }

    fn connect(&mut self, parsed: Parsed<Destination>, dialect: Dialect) -> Step {
        match parsed {
            Parsed::Partial => Step::Hear,
            Parsed::Bad(answer) => Step::Refuse(answer),
            Parsed::Whole(destination, length) => {
                let first = self.heard.split_off(length);
                Step::Connect(Request { destination, dialect, first })
            }
        }
    }
}

#[cfg(test)]
mod tests;
