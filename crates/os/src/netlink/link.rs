//! Network devices and their addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use nix::net::if_::if_nametoindex;

use super::route::{RouteSocket, family};

/// One end of a veth pair to create.
pub struct End<'a> {
    /// The network namespace for it.
    pub netns: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a str,
    /// Its hardware address; `None` for a random one.
    pub station: Option<[u8; 6]>,
}

impl RouteSocket {
    /// Creates a veth pair (veth(4)).
    ///
    /// # Errors
    /// The kernel's refusal; `AlreadyExists` if one of the names is taken.
    pub fn add_veth(&mut self, [one, other]: [&End<'_>; 2]) -> io::Result<()> {
        let mut pair = describe(one);
        pair.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(describe(other)))),
        ]));
        self.create(RouteNetlinkMessage::NewLink(pair))
    }

    /// Brings `device` up with this MTU. Without `neighbours`, no kernel-generated packets leave
    /// it: no ARP, no neighbour discovery, no multicast.
    ///
    /// # Errors
    /// The kernel's refusal; ENODEV without the device.
    pub fn bring_up(&mut self, device: &str, mtu: u16, neighbours: bool) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = if_nametoindex(device)?;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        if !neighbours {
            link.header.flags |= LinkFlags::Noarp;
            link.header.change_mask |= LinkFlags::Noarp | LinkFlags::Multicast;
        }
        link.attributes = vec![LinkAttribute::Mtu(mtu.into())];
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Adds an address, given with its prefix length, to `device`. It is usable at once (IPv6
    /// without duplicate address detection, which would take seconds).
    ///
    /// # Errors
    /// The kernel's refusal; ENODEV without the device.
    pub fn add_address(&mut self, device: &str, (address, prefix): (IpAddr, u8)) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = if_nametoindex(device)?;
        message.attributes =
            vec![AddressAttribute::Address(address), AddressAttribute::Local(address)];
        match address {
            IpAddr::V4(address) => {
                message
                    .attributes
                    .extend(broadcast(address, prefix).map(AddressAttribute::Broadcast));
            }
            IpAddr::V6(_) => message.header.flags |= AddressHeaderFlags::Nodad,
        }
        self.create(RouteNetlinkMessage::NewAddress(message))
    }
}

/// The broadcast address of a subnet that has one (RFC 3021).
fn broadcast(address: Ipv4Addr, prefix: u8) -> Option<Ipv4Addr> {
    (prefix < 31).then(|| Ipv4Addr::from_bits(address.to_bits() | u32::MAX >> prefix))
}

fn describe(end: &End<'_>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::NetNsFd(end.netns.as_raw_fd()),
    ];
    link.attributes.extend(end.station.map(|station| LinkAttribute::Address(station.to_vec())));
    link
}
