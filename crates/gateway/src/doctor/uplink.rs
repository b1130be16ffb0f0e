//! Guess of the interface that leads to the clients.

use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use os::netlink::RouteSocket;

/// Properties of an interface that distinguish a LAN from an uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CandidateDevice {
    name: String,
    is_loopback: bool,
    is_point_to_point: bool,
    is_uplink: bool,
    has_private_address: bool,
}

/// Returns the interface that probably leads to the clients; `None` without a candidate. An interface with a
/// default route is never proposed, since it leads to the hub.
pub fn clients_interface() -> Option<String> {
    let uplinks = RouteSocket::open().and_then(|mut kernel| kernel.routes()).unwrap_or_default();
    let uplinks: Vec<u32> = uplinks.iter().filter_map(default_route_device).collect();
    let mut devices: Vec<CandidateDevice> = Vec::new();
    for entry in getifaddrs().into_iter().flatten() {
        let name = entry.interface_name;
        let at = devices.iter().position(|device| device.name == name).unwrap_or_else(|| {
            let index = if_nametoindex(name.as_str()).unwrap_or(0);
            devices.push(CandidateDevice {
                is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                is_point_to_point: entry.flags.contains(InterfaceFlags::IFF_POINTOPOINT),
                is_uplink: uplinks.contains(&index),
                name: name.clone(),
                has_private_address: false,
            });
            devices.len() - 1
        });
        let address = entry.address.as_ref().and_then(|address| address.as_sockaddr_in());
        devices[at].has_private_address |= address.is_some_and(|own| own.ip().is_private());
    }
    proposal(devices)
}

/// Chooses the first candidate by name among those with a private address, or else among all.
fn proposal(mut devices: Vec<CandidateDevice>) -> Option<String> {
    devices.retain(|device| !device.is_loopback && !device.is_point_to_point && !device.is_uplink);
    devices.sort_by(|one, other| {
        let rank = |device: &CandidateDevice| (!device.has_private_address, device.name.clone());
        rank(one).cmp(&rank(other))
    });
    devices.into_iter().next().map(|device| device.name)
}

/// Returns the index of the device of a default route in the main table; `None` for other routes.
fn default_route_device(route: &RouteMessage) -> Option<u32> {
    let header = &route.header;
    let is_default = header.destination_prefix_length == 0
        && header.kind == RouteType::Unicast
        && header.table == libc::RT_TABLE_MAIN;
    let device = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    device.filter(|_| is_default)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;

    use super::*;
    use crate::testkit::in_namespace;

    #[test]
    fn an_uplink_is_never_proposed_and_a_private_network_is_preferred() {
        let device =
            |name: &str| CandidateDevice { name: name.to_owned(), ..CandidateDevice::default() };
        let loopback = CandidateDevice { is_loopback: true, ..device("lo") };
        let uplink =
            CandidateDevice { is_uplink: true, has_private_address: true, ..device("eth0") };
        let tunnel = CandidateDevice { is_point_to_point: true, ..device("ppp0") };
        let lan = CandidateDevice { has_private_address: true, ..device("wlan0") };
        let all = vec![loopback.clone(), uplink.clone(), tunnel, device("eth1"), lan];
        assert_eq!(proposal(all).as_deref(), Some("wlan0"));
        let few = vec![loopback.clone(), uplink.clone(), device("eth2"), device("eth1")];
        assert_eq!(proposal(few).as_deref(), Some("eth1"));
        assert_eq!(proposal(vec![loopback, uplink]), None);
    }

    #[test]
    fn the_device_of_the_default_route_is_an_uplink() {
        in_namespace(|| {
            let netns = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
            let end = |name| os::netlink::VethEnd { netns: netns.as_fd(), name, station: None };
            let mut kernel = RouteSocket::open().unwrap();
            kernel.add_veth([&end("eth0"), &end("eth1")]).unwrap();
            for (name, last) in [("eth0", 1), ("eth1", 2)] {
                kernel.bring_up(name, None, true).unwrap();
                kernel.add_address(name, [10, last, 0, 1].into(), 24).unwrap();
            }
            assert_eq!(clients_interface().as_deref(), Some("eth0"), "there is no uplink");
            let (all, router) = (Ipv4Addr::UNSPECIFIED.into(), [10, 1, 0, 2].into());
            kernel.add_route(all, 0, router).unwrap();
            assert_eq!(clients_interface().as_deref(), Some("eth1"));
        });
    }
}
