//! The contents of an opening: the connection, or other service, that a stream is opened for.

use core::fmt;
use std::net::SocketAddr;

/// The purpose of a new stream: a TCP connection to an address or, with [`Destination`], possibly
/// to a host name; a query to the peer's resolver; an HTTP exchange; or a bundle for its bundle
/// agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOpening<D = SocketAddr> {
    /// The destination to which the accepting side connects the stream.
    pub destination: D,
    /// The client that connected to the opening side.
    pub source: SocketAddr,
    /// DSCP of the connection's SYN (RFC 2474), below 64, if known. Not sent to peers that do not
    /// understand it.
    pub dscp: Option<u8>,
}

impl<D> StreamOpening<D> {
    /// The same opening with another destination.
    pub fn to<E>(&self, destination: E) -> StreamOpening<E> {
        StreamOpening { destination, source: self.source, dscp: self.dscp }
    }
}

impl From<StreamOpening> for StreamOpening<Destination> {
    fn from(open: StreamOpening) -> Self {
        open.to(open.destination.into())
    }
}

/// The destination of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An address and a port.
    Address(SocketAddr),
    /// A host name, resolved by the accepting side, and a port.
    Name(HostName, u16),
    /// The accepting side's resolver. The stream carries one DNS message each way.
    Resolver,
    /// A host with which the accepting side is to have an HTTP exchange. The stream carries the
    /// request and the response, not a connection.
    Exchange(Host),
    /// The accepting side's agent for bundles (RFC 9171). The stream carries one bundle.
    Bundles,
}

/// A host with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A host identified by its address.
    Address(SocketAddr),
    /// A host identified by its name, with a port.
    Name(HostName, u16),
}

impl From<Host> for Destination {
    fn from(host: Host) -> Self {
        match host {
            Host::Address(address) => Self::Address(address),
            Host::Name(name, port) => Self::Name(name, port),
        }
    }
}

/// The port of DNS (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;
/// The port of bundles over TCP (RFC 9174 §8.1).
const BUNDLE_PORT: u16 = 4556;

impl Destination {
    /// The port: for a resolver that of DNS, for a bundle agent that of bundles over TCP.
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(address) | Self::Exchange(Host::Address(address)) => address.port(),
            Self::Name(_, port) | Self::Exchange(Host::Name(_, port)) => *port,
            Self::Resolver => DNS_PORT,
            Self::Bundles => BUNDLE_PORT,
        }
    }
}

impl Destination {
    /// Returns `true` if the acceptor connects the stream to a server, which it reports by ACCEPT.
    pub(crate) fn is_connected_to(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Name(..))
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
            Self::Address(address) | Self::Exchange(Host::Address(address)) => address.fmt(f),
            Self::Name(name, port) | Self::Exchange(Host::Name(name, port)) => {
                write!(f, "{name}:{port}")
            }
            Self::Resolver => f.write_str("resolver"),
            Self::Bundles => f.write_str("bundles"),
        }
    }
}

/// A host name as used in the DNS: 1 to 253 letters, digits, hyphens, underscores and dots (RFC
/// 1035 §2.3.4; RFC 2181 §11 allows names that are not host names).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(Box<str>);

impl HostName {
    /// Maximum length of the text, in bytes.
    pub const MAX_LEN: usize = 253;

    /// Parses a host name; `None` if it is not valid.
    pub fn new(text: &str) -> Option<Self> {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let is_name = (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(known);
        is_name.then(|| Self(text.into()))
    }

    /// The name as text, as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Destinations and optional fields of openings that a side understands: the bits of parameter 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OpeningFeatures(pub(crate) u64);

impl OpeningFeatures {
    const CODE_POINTS: u64 = 1;
    const NAMES: u64 = 2;
    const QUESTIONS: u64 = 4;
    const COMPRESSED: u64 = 8;
    const EXCHANGES: u64 = 16;
    const BUNDLES: u64 = 32;

    /// The bits that this version sets: code points always, the others only if this side resolves
    /// names, answers questions or exchanges, or decompresses streams.
    pub(crate) fn of_this_version(
        names: bool,
        (questions, exchanges): (bool, bool),
        decompresses: bool,
    ) -> Self {
        let optional = |has, bit| if has { bit } else { 0 };
        Self(
            Self::CODE_POINTS
                | optional(names, Self::NAMES)
                | optional(questions, Self::QUESTIONS)
                | optional(exchanges, Self::EXCHANGES)
                | optional(decompresses, Self::COMPRESSED),
        )
    }

    /// The same bits, with that of bundles if this side takes them.
    pub(crate) fn with_bundles(self, takes: bool) -> Self {
        Self(self.0 | if takes { Self::BUNDLES } else { 0 })
    }

    /// Returns `true` if a stream may lead to this destination.
    pub(crate) fn accepts(self, destination: &Destination) -> bool {
        match destination {
            Destination::Address(_) => true,
            Destination::Name(..) => self.names(),
            Destination::Resolver => self.questions(),
            Destination::Exchange(_) => self.exchanges(),
            Destination::Bundles => self.bundles(),
        }
    }

    /// Returns `true` if the DSCP of a SYN is understood.
    pub(crate) fn code_points(self) -> bool {
        self.0 & Self::CODE_POINTS != 0
    }

    /// Returns `true` if compressed streams, whose data is sent in segments, are understood.
    pub(crate) fn compressed(self) -> bool {
        self.0 & Self::COMPRESSED != 0
    }

    /// Returns `true` if a host name is understood as destination.
    pub(crate) fn names(self) -> bool {
        self.0 & Self::NAMES != 0
    }

    /// Returns `true` if HTTP exchanges are understood.
    pub(crate) fn exchanges(self) -> bool {
        self.0 & Self::EXCHANGES != 0
    }

    /// Returns `true` if bundles are accepted.
    pub(crate) fn bundles(self) -> bool {
        self.0 & Self::BUNDLES != 0
    }

    /// Returns `true` if DNS questions are answered.
    pub(crate) fn questions(self) -> bool {
        self.0 & Self::QUESTIONS != 0
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
        assert!(HostName::new(&"a".repeat(HostName::MAX_LEN)).is_some());
        for none in ["", "a b", "a\0", "a/b", "ä", "::1", &"a".repeat(HostName::MAX_LEN + 1)] {
            assert_eq!(HostName::new(none), None, "{none:?}");
        }
    }
}
