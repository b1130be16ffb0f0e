//! Network devices and their addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use nix::net::if_::if_nametoindex;

use super::route::{RouteSocket, family};

/// One end of a veth pair to create.
pub struct VethEnd<'a> {
    /// The network namespace for it.
    pub netns: BorrowedFd<'a>,
    /// The name of the device there.
    pub name: &'a str,
    /// Its hardware address; `None` for a random one.
    pub station: Option<[u8; 6]>,
}

/// The settings of a bridge that interception needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bridge {
    /// The hardware address of the bridge.
    pub station: [u8; 6],
    /// True if this bridge passes IPv4, and IPv6, through the netfilter hooks of IP, whatever
    /// `net.bridge.bridge-nf-call-iptables` and `-ip6tables` are set to.
    pub filters: [bool; 2],
}

impl Bridge {
    fn parse(link: &LinkMessage) -> Option<Self> {
        let mut station = None;
        let mut settings = None;
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Address(address) => station = address.first_chunk().copied(),
                LinkAttribute::LinkInfo(info) => settings = info.iter().find_map(settings_of),
                _ => {}
            }
        }
        let settings = settings?;
        let filters = [InfoBridge::NfCallIpTables(true), InfoBridge::NfCallIp6Tables(true)]
            .map(|filter| settings.contains(&filter));
        Some(Self { station: station?, filters })
    }
}

fn settings_of(info: &LinkInfo) -> Option<&[InfoBridge]> {
    match info {
        LinkInfo::Data(InfoData::Bridge(settings)) => Some(settings),
        _ => None,
    }
}

impl RouteSocket {
    /// Creates a veth pair (veth(4)).
    ///
    /// # Errors
    /// The kernel's refusal; `AlreadyExists` if one of the names is taken.
    pub fn add_veth(&mut self, [one, other]: [&VethEnd<'_>; 2]) -> io::Result<()> {
        let mut pair = describe(one);
        pair.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(describe(other)))),
        ]));
        self.create(RouteNetlinkMessage::NewLink(pair))
    }

    /// Brings `device` up, and sets its MTU if one is given. Without `neighbours`, no
    /// kernel-generated packets leave it: no ARP, no neighbour discovery, no multicast.
    ///
    /// # Errors
    /// The kernel's refusal; ENODEV without the device.
    pub fn bring_up(&mut self, device: &str, mtu: Option<u16>, neighbours: bool) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = if_nametoindex(device)?;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        if !neighbours {
            link.header.flags |= LinkFlags::Noarp;
            // In the mask but not in the flags: multicast is switched off.
            link.header.change_mask |= LinkFlags::Noarp | LinkFlags::Multicast;
        }
        link.attributes = mtu.map(|mtu| LinkAttribute::Mtu(mtu.into())).into_iter().collect();
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Returns the MTU of `device` in bytes.
    ///
    /// # Errors
    /// ENODEV without the device.
    pub fn mtu(&mut self, device: &str) -> io::Result<u32> {
        let mut link = LinkMessage::default();
        link.header.index = if_nametoindex(device)?;
        let RouteNetlinkMessage::NewLink(link) = self.query(RouteNetlinkMessage::GetLink(link))?
        else {
            return Err(io::Error::other(format!("no answer about {device}")));
        };
        let mtu = link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(mtu),
            _ => None,
        });
        mtu.ok_or_else(|| io::Error::other(format!("{device} has no MTU")))
    }

    /// Returns the settings of a bridge; `None` if the device is not a bridge.
    ///
    /// # Errors
    /// ENODEV without the device.
    pub fn bridge(&mut self, device: &str) -> io::Result<Option<Bridge>> {
        let mut link = LinkMessage::default();
        link.header.index = if_nametoindex(device)?;
        let RouteNetlinkMessage::NewLink(link) = self.query(RouteNetlinkMessage::GetLink(link))?
        else {
            return Err(io::Error::other(format!("no answer about {device}")));
        };
        Ok(Bridge::parse(&link))
    }

    /// Adds an address, given with its prefix length, to `device`. It is usable at once (IPv6
    /// without duplicate address detection, which would take seconds).
    ///
    /// # Errors
    /// The kernel's refusal; ENODEV without the device.
    pub fn add_address(&mut self, device: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = address_message(device, address, prefix)?;
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

    /// Removes an address, given with its prefix length, from `device`; returns true if it existed.
    ///
    /// # Errors
    /// The kernel's refusal; ENODEV without the device.
    pub fn remove_address(
        &mut self,
        device: &str,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<bool> {
        let message = address_message(device, address, prefix)?;
        match self.remove(RouteNetlinkMessage::DelAddress(message)) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
            removed => removed,
        }
    }
}

fn address_message(device: &str, address: IpAddr, prefix: u8) -> io::Result<AddressMessage> {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix;
    message.header.index = if_nametoindex(device)?;
    message.attributes = vec![AddressAttribute::Address(address), AddressAttribute::Local(address)];
    Ok(message)
}

/// Returns the broadcast address of a subnet; `None` for two addresses or fewer (RFC 3021).
fn broadcast(address: Ipv4Addr, prefix: u8) -> Option<Ipv4Addr> {
    (prefix < 31).then(|| Ipv4Addr::from_bits(address.to_bits() | u32::MAX >> prefix))
}

fn describe(end: &VethEnd<'_>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::NetNsFd(end.netns.as_raw_fd()),
    ];
    link.attributes.extend(end.station.map(|station| LinkAttribute::Address(station.to_vec())));
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_that_of_the_device() {
        let mut kernel = RouteSocket::open().unwrap();
        assert!(kernel.mtu("lo").unwrap() >= 1500);
        assert_eq!(kernel.mtu("no-such").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn a_subnet_of_two_has_no_broadcast_address() {
        let address = [10, 1, 0, 2].into();
        assert_eq!(broadcast(address, 24), Some([10, 1, 0, 255].into()));
        assert_eq!([broadcast(address, 31), broadcast(address, 32)], [None, None]);
    }
}
