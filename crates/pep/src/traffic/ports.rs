//! Port ranges of TCP and UDP.

use std::fmt;

/// TCP's IANA protocol number.
pub const TCP: u8 = 6;
/// UDP's IANA protocol number.
pub const UDP: u8 = 17;

/// A range of ports of TCP, of UDP, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// [`TCP`] or [`UDP`]; `None` for both.
    pub protocol: Option<u8>,
    /// Lowest port, at least 1.
    pub first: u16,
    /// Highest port, which the range includes.
    pub last: u16,
}

impl PortRange {
    /// Returns `true` if the range applies to this protocol.
    pub fn of(&self, protocol: u8) -> bool {
        self.protocol.is_none_or(|only| only == protocol)
    }

    /// Returns `true` if the range includes this port of this protocol.
    pub fn has(&self, protocol: u8, port: u16) -> bool {
        self.of(protocol) && (self.first..=self.last).contains(&port)
    }

    /// Ports from `first` to `last`; `None` if the range is empty or contains port 0.
    pub fn range(protocol: Option<u8>, first: u16, last: u16) -> Option<Self> {
        (0 < first && first <= last).then_some(Self { protocol, first, last })
    }

    /// Parses `22`, `5060-5061` or `udp/443`.
    pub fn parse(text: &str) -> Option<Self> {
        let (protocol, text) = match text.split_once('/') {
            Some(("tcp", ports)) => (Some(TCP), ports),
            Some(("udp", ports)) => (Some(UDP), ports),
            Some(_) => return None,
            None => (None, text),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::range(protocol, first.trim().parse().ok()?, last.trim().parse().ok()?)
    }
}

/// The form that [`PortRange::parse`] accepts.
impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(TCP) => f.write_str("tcp/")?,
            Some(_) => f.write_str("udp/")?,
            None => {}
        }
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}
