//! The hosts of a lab and their addresses.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// A host of the lab: `client – terminal ═ hub – server`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// The host behind the terminal.
    Client,
    /// The remote side's router, at one end of the satellite hop.
    Terminal,
    /// The earth station's router, at the other end.
    Hub,
    /// The host behind the hub; the test objects and the echo service are here.
    Server,
}

/// A name that is not one of the lab's hosts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no host {name:?} in the lab: there are client, terminal, hub, server")]
#[non_exhaustive]
pub struct UnknownNode {
    /// The name as given.
    pub name: String,
}

impl Node {
    /// All hosts, along the path.
    pub const ALL: [Self; 4] = [Self::Client, Self::Terminal, Self::Hub, Self::Server];

    /// The name by which the other hosts know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Terminal => "terminal",
            Self::Hub => "hub",
            Self::Server => "server",
        }
    }

    /// Its IPv4 address: on its LAN for `client` and `server`, on the hop for
    /// `terminal` and `hub`.
    pub const fn address4(self) -> Ipv4Addr {
        self.address().v4()
    }

    /// Its IPv6 address, like [`Self::address4`].
    pub const fn address6(self) -> Ipv6Addr {
        self.address().v6()
    }

    /// The address it is known by.
    pub(crate) const fn address(self) -> Address {
        match self {
            Self::Client => Address { subnet: CLIENT_LAN, host: 2 },
            Self::Terminal => Address { subnet: HOP, host: 1 },
            Self::Hub => Address { subnet: HOP, host: 2 },
            Self::Server => Address { subnet: SERVER_LAN, host: 2 },
        }
    }

    /// Its place in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The subnet of client and terminal.
pub(crate) const CLIENT_LAN: u8 = 1;
/// The subnet of hub and server.
pub(crate) const SERVER_LAN: u8 = 2;
/// The subnet of terminal and hub.
pub(crate) const HOP: u8 = 9;

/// A host in a subnet of the lab; in both families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    /// N in `10.N.0.0/24` and `fd00:N::/64`.
    pub(crate) subnet: u8,
    /// The last byte.
    pub(crate) host: u8,
}

impl Address {
    pub(crate) const fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.subnet, 0, self.host)
    }

    pub(crate) const fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, self.subnet as u16, 0, 0, 0, 0, 0, self.host as u16)
    }

    /// The address in each family, with the length of its subnet's prefix.
    pub(crate) const fn both(self) -> [(IpAddr, u8); 2] {
        [(IpAddr::V4(self.v4()), 24), (IpAddr::V6(self.v6()), 64)]
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Node {
    type Err = UnknownNode;

    fn from_str(name: &str) -> Result<Self, UnknownNode> {
        let found = Self::ALL.into_iter().find(|node| node.name() == name);
        found.ok_or_else(|| UnknownNode { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for node in Node::ALL {
            assert_eq!(node.to_string().parse(), Ok(node));
            assert_eq!(Node::ALL[node.index()], node);
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let error = "sky".parse::<Node>().unwrap_err().to_string();
        assert!(error.contains("\"sky\"") && error.contains("terminal"), "{error}");
    }
}
