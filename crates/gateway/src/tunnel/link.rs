//! Configures the tunnel's network device.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::routing::Kernel;

/// The IPv4 dummy address (RFC 7600 §4.8), for interfaces without an address of their own.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Index of the device `name`.
pub(super) fn index(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}

/// Brings a device up without ARP, neighbour discovery and multicast, so that it sends only what is
/// routed into it.
pub(super) fn bring_up(name: &str, mtu: u16) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index(name)?;
    link.header.flags = LinkFlags::Up | LinkFlags::Noarp;
    link.header.change_mask = LinkFlags::Up | LinkFlags::Noarp | LinkFlags::Multicast;
    link.attributes = vec![LinkAttribute::Mtu(mtu.into())];
    Kernel::open()?.request(RouteNetlinkMessage::SetLink(link), 0)
}

/// Makes the kernel accept packets from the device although it would route replies elsewhere:
/// reverse path filtering ignores marks. The larger of the interface's `rp_filter` and that of
/// `all` applies; loose mode accepts packets only on a device that has an IPv4 address.
pub(super) fn accept_from_anywhere(name: &str) -> io::Result<()> {
    const LOOSE: &str = "2";
    let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
    if let Err(error) = fs::write(&path, LOOSE) {
        tracing::warn!("{path}: {error}: a strict filter would drop packets from the hop");
    }
    let mut address = AddressMessage::default();
    address.header.family = AddressFamily::Inet;
    address.header.prefix_len = 32;
    // Never chosen as a source address.
    address.header.scope = AddressScope::Host;
    address.header.index = index(name)?;
    address.attributes = vec![AddressAttribute::Local(DUMMY.into())];
    let request = RouteNetlinkMessage::NewAddress(address);
    Kernel::open()?.request(request, NLM_F_CREATE | NLM_F_EXCL)
}
