//! What a stream is opened for: the TCP connection that it carries.

use core::fmt;
use std::net::SocketAddr;

/// What a new stream is for: the TCP connection it carries, to an address or, with
/// [`Destination`], perhaps to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open<D = SocketAddr> {
    /// Where the accepting side is to connect to.
    pub destination: D,
    /// Who connected to the opening side.
    pub source: SocketAddr,
    /// The code point of the connection's SYN (RFC 2474), below 64, where it is known.
    /// To a peer that does not understand it, it is not told.
    pub dscp: Option<u8>,
}

impl<D> Open<D> {
    /// The same to another destination.
    pub fn to<E>(&self, destination: E) -> Open<E> {
        Open { destination, source: self.source, dscp: self.dscp }
    }
}

impl From<Open> for Open<Destination> {
    fn from(open: Open) -> Self {
        open.to(open.destination.into())
    }
}

/// Where a stream leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// To an address and a port.
    Address(SocketAddr),
    /// To what the accepting side finds under a name, and a port.
    Name(HostName, u16),
}

impl Destination {
    /// The port, which both kinds have.
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) => address.port(),
            Self::Name(_, port) => *port,
        }
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// The name of a host, as it is asked for in the DNS: 1 to 253 letters, digits, hyphens,
/// underscores and dots (RFC 1035 §2.3.4; RFC 2181 §11 has names that are no host names).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(Box<str>);

impl HostName {
    /// The longest, in text.
    pub const LONGEST: usize = 253;

    /// The name that this text is; `None` if it is none.
    pub fn new(text: &str) -> Option<Self> {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let is_name = (1..=Self::LONGEST).contains(&text.len()) && text.bytes().all(known);
        is_name.then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a side understands in openings beside two addresses: the bits of parameter 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Openings(pub(crate) u64);

impl Openings {
    const CODE_POINTS: u64 = 1;
    const NAMES: u64 = 2;

    /// What this version understands. Names are understood by who resolves them.
    pub(crate) fn of_this_version(names: bool) -> Self {
        Self(Self::CODE_POINTS | if names { Self::NAMES } else { 0 })
    }

    /// Whether the code point of a SYN is understood.
    pub(crate) fn code_points(self) -> bool {
        self.0 & Self::CODE_POINTS != 0
    }

    /// Whether a name is, as the destination.
    pub(crate) fn names(self) -> bool {
        self.0 & Self::NAMES != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_resolver_may_be_asked_for() {
        for name in ["a", "server.example", "_sip._tcp.example.", "x-1"] {
            assert_eq!(HostName::new(name).unwrap().as_str(), name);
        }
        assert!(HostName::new(&"a".repeat(HostName::LONGEST)).is_some());
        for none in ["", "a b", "a\0", "a/b", "ä", "::1", &"a".repeat(HostName::LONGEST + 1)] {
            assert_eq!(HostName::new(none), None, "{none:?}");
        }
    }
}
