//! The hosts of a lab and their addresses.
//!
//! | host | IPv4 | IPv6 |
//! |---|---|---|
//! | `client` | 10.1.0.2 | fd00:1::2 |
//! | `terminal`, on the hop | 10.9.0.1 | fd00:9::1 |
//! | `hub`, on the hop | 10.9.0.2 | fd00:9::2 |
//! | `server` | 10.2.0.2 | fd00:2::2 |
//! | `client2`, `client3`, … | 10.102.0.2, 10.103.0.2, … | fd00:102::2, … |
//! | `terminal2`, `terminal3`, … | 10.9.0.102, 10.9.0.103, … | fd00:9::102, … |
//!
//! `terminal` and `hub` have host 1 of their LANs.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use scenario::Preset;
use thiserror::Error;

/// A host of the lab: `client – terminal ═ hub – server`, and in a star more
/// terminals with a client each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// The host behind the terminal.
    Client,
    /// The router of the remote site, at one end of the satellite hop.
    Terminal,
    /// The router of the earth station, at the other end.
    Hub,
    /// The host behind the hub, with the test objects and the echo service.
    Server,
    /// The host behind a further terminal.
    FurtherClient(FurtherSite),
    /// The terminal of a further site.
    FurtherTerminal(FurtherSite),
}

/// A remote site: a terminal with its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site(u8);

/// A remote site that is not the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FurtherSite(Site);

/// A name that is not a host of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no host {name:?} in the lab: expected one of {known}")]
#[non_exhaustive]
pub struct UnknownNode {
    /// The name that no host has.
    pub name: String,
    /// The names that exist, as a list for the message.
    pub known: String,
}

impl Site {
    /// The site that every lab has.
    pub const FIRST: Self = Self(1);
    /// Maximum number of sites in a lab.
    pub const MOST: u8 = Preset::MOST_TERMINALS;

    /// Returns the site with this number, from 1 to [`Self::MOST`].
    pub fn new(number: u8) -> Option<Self> {
        (1..=Self::MOST).contains(&number).then_some(Self(number))
    }

    /// Returns the first `count` sites.
    pub(crate) fn first(count: u8) -> impl Iterator<Item = Self> + Clone {
        (1..=count.min(Self::MOST)).map(Self)
    }

    /// Returns the site's number, from 1.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the site's index, from 0.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Returns the client of the site.
    pub const fn client(self) -> Node {
        if self.0 == 1 { Node::Client } else { Node::FurtherClient(FurtherSite(self)) }
    }

    /// Returns the terminal of the site.
    pub const fn terminal(self) -> Node {
        if self.0 == 1 { Node::Terminal } else { Node::FurtherTerminal(FurtherSite(self)) }
    }

    /// Returns the subnet of the site's client and terminal.
    pub(crate) const fn lan(self) -> u8 {
        if self.0 == 1 { CLIENT_LAN } else { FURTHER + self.0 }
    }

    /// Returns the terminal's host number on the hop.
    const fn on_hop(self) -> u8 {
        if self.0 == 1 { TERMINAL } else { FURTHER + self.0 }
    }
}

impl Node {
    /// The hosts that every lab has, along the path.
    pub const ALL: [Self; 4] = [Self::Client, Self::Terminal, Self::Hub, Self::Server];

    /// Returns the client of the `number`-th terminal, from 1.
    pub fn client(number: u8) -> Option<Self> {
        Site::new(number).map(Site::client)
    }

    /// Returns the `number`-th terminal, from 1.
    pub fn terminal(number: u8) -> Option<Self> {
        Site::new(number).map(Site::terminal)
    }

    /// Returns the hosts of a lab with this many terminals: those of [`Self::ALL`], then each
    /// further client and terminal.
    pub fn of_lab(terminals: u8) -> impl Iterator<Item = Self> {
        let further = Site::first(terminals).skip(1);
        Self::ALL.into_iter().chain(further.flat_map(|site| [site.client(), site.terminal()]))
    }

    /// Returns the IPv4 address: on the LAN for clients and `server`, on the hop for terminals and
    /// `hub`.
    pub const fn address4(self) -> Ipv4Addr {
        self.address().v4()
    }

    /// Returns the IPv6 address, like [`Self::address4`].
    pub const fn address6(self) -> Ipv6Addr {
        self.address().v6()
    }

    /// Returns the host's address in both families.
    pub(crate) const fn address(self) -> HostAddress {
        match self {
            Self::Client => HostAddress { subnet: CLIENT_LAN, host: 2 },
            Self::Terminal => HostAddress { subnet: HOP, host: TERMINAL },
            Self::Hub => HostAddress { subnet: HOP, host: 2 },
            Self::Server => HostAddress { subnet: SERVER_LAN, host: 2 },
            Self::FurtherClient(FurtherSite(site)) => HostAddress { subnet: site.lan(), host: 2 },
            Self::FurtherTerminal(FurtherSite(site)) => {
                HostAddress { subnet: HOP, host: site.on_hop() }
            }
        }
    }

    /// Returns the remote site that the host belongs to; `None` for `hub` and `server`.
    pub const fn site(self) -> Option<Site> {
        match self {
            Self::Client | Self::Terminal => Some(Site::FIRST),
            Self::Hub | Self::Server => None,
            Self::FurtherClient(FurtherSite(site)) | Self::FurtherTerminal(FurtherSite(site)) => {
                Some(site)
            }
        }
    }

    /// Returns the host's index in [`Self::of_lab`].
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Terminal => 1,
            Self::Hub => 2,
            Self::Server => 3,
            Self::FurtherClient(FurtherSite(site)) => 2 + 2 * site.index(),
            Self::FurtherTerminal(FurtherSite(site)) => 3 + 2 * site.index(),
        }
    }
}

/// Returns the site that a client's or terminal's address belongs to.
pub(crate) fn site_of(address: IpAddr) -> Option<Site> {
    let HostAddress { subnet, host } = HostAddress::of(address)?;
    let number = match subnet {
        HOP if host == TERMINAL => 1,
        // 101 is not in use: the first site has LAN and host 1.
        HOP => host.checked_sub(FURTHER).filter(|number| *number > 1)?,
        CLIENT_LAN => 1,
        lan => lan.checked_sub(FURTHER).filter(|number| *number > 1)?,
    };
    Site::new(number)
}

/// The subnet of client and terminal.
pub(crate) const CLIENT_LAN: u8 = 1;
/// The subnet of hub and server.
pub(crate) const SERVER_LAN: u8 = 2;
/// The subnet of terminals and hub.
pub(crate) const HOP: u8 = 9;
/// The first terminal's host number on the hop.
const TERMINAL: u8 = 1;
/// Offset for further sites: the second has 102 as its LAN and as its terminal's host number, and
/// so on.
const FURTHER: u8 = 100;

/// A host's address in a subnet of the lab, in both families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostAddress {
    /// N in `10.N.0.0/24` and `fd00:N::/64`.
    pub(crate) subnet: u8,
    /// The last byte of the IPv4 address.
    pub(crate) host: u8,
}

impl HostAddress {
    pub(crate) const fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.subnet, 0, self.host)
    }

    pub(crate) const fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, digits(self.subnet), 0, 0, 0, 0, 0, digits(self.host))
    }

    /// Returns the address in each family, with the prefix length of its subnet.
    pub(crate) const fn both(self) -> [(IpAddr, u8); 2] {
        [(IpAddr::V4(self.v4()), 24), (IpAddr::V6(self.v6()), 64)]
    }

    /// Returns the addresses in the families that this machine supports.
    pub(crate) fn supported(self) -> impl Iterator<Item = (IpAddr, u8)> {
        let v6 = os::has_ipv6();
        self.both().into_iter().filter(move |(address, _)| v6 || address.is_ipv4())
    }

    /// Parses an address of a lab's subnet; the last byte only matters on the hop.
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => match address.octets() {
                [10, subnet, 0, host] => Some(Self { subnet, host }),
                _ => None,
            },
            IpAddr::V6(address) => match address.segments() {
                [0xfd00, subnet, 0, 0, .., host] => {
                    let host = number(host).unwrap_or(u8::MAX);
                    Some(Self { subnet: number(subnet)?, host })
                }
                _ => None,
            },
        }
    }
}

/// Returns the number whose hexadecimal digits are the decimal digits of `number`, so that an IPv6
/// address reads like the IPv4 one.
const fn digits(number: u8) -> u16 {
    let number = number as u16;
    ((number / 100) << 8) | ((number / 10 % 10) << 4) | (number % 10)
}

/// Inverts [`digits`]; `None` if a hexadecimal digit is not decimal.
fn number(digits: u16) -> Option<u8> {
    let number = (digits >> 8) * 100 + ((digits >> 4) & 0xf) * 10 + (digits & 0xf);
    // Hexadecimal digits above 9 do not occur in these addresses.
    u8::try_from(number).ok().filter(|number| self::digits(*number) == digits)
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.pad("client"),
            Self::Terminal => f.pad("terminal"),
            Self::Hub => f.pad("hub"),
            Self::Server => f.pad("server"),
            Self::FurtherClient(FurtherSite(site)) => f.pad(&format!("client{}", site.0)),
            Self::FurtherTerminal(FurtherSite(site)) => f.pad(&format!("terminal{}", site.0)),
        }
    }
}

impl FromStr for Node {
    type Err = UnknownNode;

    fn from_str(name: &str) -> Result<Self, UnknownNode> {
        Self::of_lab(Site::MOST).find(|node| node.to_string() == name).ok_or_else(|| UnknownNode {
            name: name.to_owned(),
            known: "client, terminal, hub, server, and client2, terminal2, … in a star".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let all: Vec<Node> = Node::of_lab(Site::MOST).collect();
        assert_eq!(all.len(), 2 + 2 * usize::from(Site::MOST));
        for (index, node) in all.into_iter().enumerate() {
            assert_eq!(node.to_string().parse(), Ok(node));
            assert_eq!(node.index(), index);
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        for wrong in ["sky", "client1", "client33", "Client", "hub2", ""] {
            let error = wrong.parse::<Node>().unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("terminal"), "{error}");
        }
    }

    #[test]
    fn addresses_read_alike_in_both_families() {
        let third = Site::new(3).unwrap();
        assert_eq!(third.client().address4().to_string(), "10.103.0.2");
        assert_eq!(third.client().address6().to_string(), "fd00:103::2");
        assert_eq!(third.terminal().address4().to_string(), "10.9.0.103");
        assert_eq!(third.terminal().address6().to_string(), "fd00:9::103");
    }

    #[test]
    fn no_two_hosts_share_an_address_and_each_site_owns_its_own() {
        let all: Vec<Node> = Node::of_lab(Site::MOST).collect();
        let addresses: std::collections::BTreeSet<_> =
            all.iter().flat_map(|node| node.address().both()).collect();
        assert_eq!(addresses.len(), 2 * all.len());
        for site in Site::first(Site::MOST) {
            for (address, _) in
                [site.client(), site.terminal()].map(|node| node.address().both()).concat()
            {
                assert_eq!(site_of(address), Some(site), "{address}");
            }
        }
        for node in [Node::Hub, Node::Server] {
            assert_eq!(node.address().both().map(|(address, _)| site_of(address)), [None, None]);
        }
    }

    #[test]
    fn any_host_of_a_client_s_lan_is_its_site_s() {
        for address in ["10.101.0.2", "10.133.0.2", "10.102.1.2", "fd00:1a2::2", "fd00:9::65"] {
            assert_eq!(site_of(address.parse().unwrap()), None, "{address}");
        }
        for address in ["10.102.0.77", "fd00:102::abcd", "fd00:102::1:2:3:4"] {
            assert_eq!(site_of(address.parse().unwrap()), Site::new(2), "{address}");
        }
    }
}
