//! The links of a lab, and the devices at which they begin and end.

use crate::topology::exit::LinkExit;
use crate::topology::node::Site;
use crate::{LinkName, Node};

/// The device of terminals and `hub` on the hop.
pub const HOP_DEVICE: &str = "sat0";
/// The device of every host on its LAN.
pub const LAN_DEVICE: &str = "lan0";
/// MTU of the LANs, that of Ethernet, unless the hop's is larger.
pub(crate) const LAN_MTU: u16 = 1500;

/// The size of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Number of terminals, each with a client, from 1 to [`Site::MOST`].
    pub(crate) terminals: u8,
    /// Set if a link instead of a LAN joins hub and server.
    pub(crate) terrestrial: bool,
    /// Set if a link instead of a LAN joins each terminal and its client.
    pub(crate) client_side: bool,
    /// MTU of the hop in bytes.
    pub(crate) mtu: u16,
    /// Set if a plain cable joins terminal and hub instead of links.
    pub(crate) cabled: bool,
}

/// The beginning of a link: a device of a host whose peer is in `sky`. Packets sent on it enter the
/// link; the opposite direction delivers packets to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crossing {
    /// The link that packets enter.
    pub(crate) link: LinkName,
    /// The host at the beginning of the link.
    pub(crate) from: Node,
    /// Name of the host's device.
    pub(crate) device: &'static str,
    /// Name of the peer device in `sky`.
    pub(crate) sky: String,
    /// Hardware address of the host's device (locally administered, "SKY"). Fixed, so that `sky`
    /// can send to it without ARP.
    pub(crate) station: [u8; 6],
    /// MTU of the link in bytes.
    pub(crate) mtu: u16,
}

impl Extent {
    /// Returns the MTU of the LANs, and of links in their place, in bytes.
    pub(crate) fn lan_mtu(&self) -> u16 {
        LAN_MTU.max(self.mtu)
    }

    /// Returns all crossings: forward, the return of each terminal, terrestrial forward and return,
    /// forward and return of each client.
    pub(crate) fn crossings(&self) -> Vec<Crossing> {
        if self.cabled {
            return Vec::new();
        }
        let hop = |link, from, sky: String, last| Crossing {
            link,
            from,
            device: HOP_DEVICE,
            sky,
            station: station(last),
            mtu: self.mtu,
        };
        let forward = hop(LinkName::Forward, Node::Hub, "h0".to_owned(), [0, 2]);
        let returns = Site::first(self.terminals).map(|site| match site {
            Site::FIRST => hop(LinkName::Return(site), Node::Terminal, "t0".to_owned(), [0, 1]),
            site => {
                let sky = format!("t{}", site.number());
                let last = [1, site.number()];
                hop(LinkName::Return(site), site.terminal(), sky, last)
            }
        });
        let sides = self.terrestrial().into_iter().chain(self.client_side());
        [forward].into_iter().chain(returns).chain(sides).collect()
    }

    /// Returns the crossings server → hub and hub → server, if there is a terrestrial link.
    fn terrestrial(&self) -> Vec<Crossing> {
        let crossings = [
            self.beside(LinkName::TerrestrialForward, Node::Server, "s0".to_owned(), [2, 2]),
            self.beside(LinkName::TerrestrialReturn, Node::Hub, "g0".to_owned(), [2, 1]),
        ];
        crossings.into_iter().filter(|_| self.terrestrial).collect()
    }

    /// Returns the crossings terminal → client and client → terminal of each site, if there are
    /// links.
    fn client_side(&self) -> Vec<Crossing> {
        let sites = Site::first(self.terminals).filter(|_| self.client_side);
        let crossings = sites.flat_map(|site| {
            let number = site.number();
            let [near, far] = ["l", "c"].map(|end| format!("{end}{number}"));
            [
                self.beside(LinkName::ClientForward(site), site.terminal(), near, [3, number]),
                self.beside(LinkName::ClientReturn(site), site.client(), far, [4, number]),
            ]
        });
        crossings.collect()
    }

    /// Returns the crossing of a link in the place of a LAN.
    fn beside(&self, link: LinkName, from: Node, sky: String, last: [u8; 2]) -> Crossing {
        let station = station(last);
        let mtu = self.lan_mtu();
        Crossing { link, from, device: LAN_DEVICE, sky, station, mtu }
    }

    /// Returns the exit of a link's packets, as indices of [`Self::crossings`].
    pub(crate) fn exit(&self, link: LinkName) -> LinkExit {
        let terminals = usize::from(self.terminals);
        // Behind the forward link, the return links and the two terrestrial ones, if any.
        let clients = terminals + if self.terrestrial { 3 } else { 1 };
        match link {
            LinkName::Forward if terminals == 1 => LinkExit::To(1),
            LinkName::Forward => LinkExit::Terminals((1..=terminals).collect()),
            LinkName::Return(_) => LinkExit::To(0),
            LinkName::TerrestrialForward => LinkExit::To(terminals + 2),
            LinkName::TerrestrialReturn => LinkExit::To(terminals + 1),
            LinkName::ClientForward(site) => LinkExit::To(clients + 2 * site.index() + 1),
            LinkName::ClientReturn(site) => LinkExit::To(clients + 2 * site.index()),
        }
    }
}

fn station([kind, number]: [u8; 2]) -> [u8; 6] {
    [0x02, b'S', b'K', b'Y', kind, number]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_link_ends_where_the_opposite_one_begins() {
        for terrestrial in [true, false] {
            ends_and_beginnings(&Extent { terrestrial, ..extent(3) });
        }
    }

    fn extent(terminals: u8) -> Extent {
        Extent { terminals, terrestrial: true, client_side: true, mtu: 1500, cabled: false }
    }

    fn ends_and_beginnings(extent: &Extent) {
        let crossings = extent.crossings();
        let ends = |link| match extent.exit(link) {
            LinkExit::To(port) => vec![crossings[port].link],
            LinkExit::Terminals(ports) => ports.iter().map(|port| crossings[*port].link).collect(),
        };
        let returns: Vec<_> = Site::first(3).map(LinkName::Return).collect();
        assert_eq!(ends(LinkName::Forward), returns);
        assert!(returns.iter().all(|link| ends(*link) == [LinkName::Forward]));
        if extent.terrestrial {
            assert_eq!(ends(LinkName::TerrestrialForward), [LinkName::TerrestrialReturn]);
            assert_eq!(ends(LinkName::TerrestrialReturn), [LinkName::TerrestrialForward]);
        }
        for site in Site::first(3) {
            assert_eq!(ends(LinkName::ClientForward(site)), [LinkName::ClientReturn(site)]);
            assert_eq!(ends(LinkName::ClientReturn(site)), [LinkName::ClientForward(site)]);
        }
    }

    #[test]
    fn devices_and_stations_are_all_different() {
        let crossings = extent(Site::MOST).crossings();
        let names: BTreeSet<_> = crossings.iter().map(|crossing| &crossing.sky).collect();
        let stations: BTreeSet<_> = crossings.iter().map(|crossing| crossing.station).collect();
        assert_eq!((names.len(), stations.len()), (crossings.len(), crossings.len()));
    }
}
