//! The network: a namespace for each host and one for the links, veth pairs, addresses and routes. Below are the
//! hosts, the links between them, and the names of both.

pub(crate) mod crossing;
pub(crate) mod exit;
pub(crate) mod link_name;
pub(crate) mod node;
pub(crate) mod settings;

use core::fmt;
use std::io;
use std::os::fd::AsFd;

use os::netlink::{RouteSocket, VethEnd};
use thiserror::Error;

use self::crossing::{Crossing, Extent, HOP_DEVICE, LAN_DEVICE};
use self::node::{HOP, HostAddress, SERVER_LAN, Site};
use self::settings::Setting;
use crate::{NetNs, Node};

/// A network namespace of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabNamespace {
    /// The namespace of a host.
    Host(Node),
    /// The namespace of the links.
    Sky,
}

impl fmt::Display for LabNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(node) => node.fmt(f),
            Self::Sky => f.write_str("sky"),
        }
    }
}

/// The reason why the network could not be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A network namespace could not be created.
    #[error("cannot create a network namespace: {cause}")]
    Namespace {
        /// The error of the system call.
        cause: io::Error,
    },
    /// A kernel setting is missing or was refused.
    #[error("cannot set {setting} = {value} on {place}: {cause}")]
    Setting {
        /// The namespace it applied to.
        place: LabNamespace,
        /// Name of the setting, below `/proc/sys/net`.
        setting: String,
        /// The value that was to be written.
        value: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A netlink socket could not be opened.
    #[error("cannot open a netlink socket on {place}: {cause}")]
    Netlink {
        /// The namespace it applied to.
        place: LabNamespace,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A link, an address or a route was refused.
    #[error("cannot add {what} on {place}: {cause}")]
    Refused {
        /// The namespace it applied to.
        place: LabNamespace,
        /// Description of the object that was to be added.
        what: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A device's offloads could not be switched off.
    #[error("cannot switch off the offloads of {device} on {place}: {cause}")]
    Offloads {
        /// The namespace it applied to.
        place: LabNamespace,
        /// Name of the device in that namespace.
        device: String,
        /// The error of the system call.
        cause: io::Error,
    },
}

/// The namespaces of a lab.
pub(crate) struct LabNetwork {
    /// The hosts, in the order of [`Node::of_lab`].
    pub(crate) hosts: Vec<NetNs>,
    /// The namespace of the links.
    pub(crate) sky: NetNs,
}

/// A device of a host: its name and its address.
type Device = (&'static str, HostAddress);
/// A route of a host: a subnet and the next hop.
type Route = (u8, HostAddress);

/// Creates the network: namespaces, devices, addresses and routes.
pub(crate) fn build(extent: &Extent) -> Result<LabNetwork, TopologyError> {
    let make = || NetNs::create().map_err(|cause| TopologyError::Namespace { cause });
    let hosts = Node::of_lab(extent.terminals).map(|_| make()).collect::<Result<_, _>>()?;
    let network = LabNetwork { hosts, sky: make()? };
    let crossings = extent.crossings();
    // Before the devices exist: some settings are defaults for new devices.
    for node in Node::of_lab(extent.terminals) {
        network.run_in(LabNamespace::Host(node), |place| apply(place, &settings::of_host()))?;
    }
    network.run_in(LabNamespace::Sky, |place| apply(place, &settings::of_sky()))?;
    network.connect(extent, &crossings)?;
    for node in Node::of_lab(extent.terminals) {
        network.set_up_host(node, extent, &crossings)?;
    }
    network.set_up_sky(&crossings)?;
    for node in Node::of_lab(extent.terminals) {
        // After all devices are up: the kernel refuses routes over others.
        network.add_routes(node, extent)?;
    }
    Ok(network)
}

impl LabNetwork {
    pub(crate) fn host(&self, node: Node) -> &NetNs {
        &self.hosts[node.index()]
    }

    /// Runs `f` in a namespace.
    fn run_in(
        &self,
        place: LabNamespace,
        f: impl FnOnce(LabNamespace) -> Result<(), TopologyError> + Send,
    ) -> Result<(), TopologyError> {
        let netns = match place {
            LabNamespace::Host(node) => self.host(node),
            LabNamespace::Sky => &self.sky,
        };
        netns.run(|| f(place))
    }

    /// Creates all veth pairs: the plain LANs, and both ends of the links.
    fn connect(&self, extent: &Extent, crossings: &[Crossing]) -> Result<(), TopologyError> {
        let lan =
            |node| VethEnd { netns: self.host(node).as_fd(), name: LAN_DEVICE, station: None };
        let mut pairs: Vec<_> = Site::first(extent.terminals)
            .filter(|_| !extent.client_side)
            .map(|site| [lan(site.client()), lan(site.terminal())])
            .collect();
        if !extent.terrestrial {
            pairs.push([lan(Node::Hub), lan(Node::Server)]);
        }
        if extent.cabled {
            let end =
                |node| VethEnd { netns: self.host(node).as_fd(), name: HOP_DEVICE, station: None };
            pairs.push([end(Node::Terminal), end(Node::Hub)]);
        }
        pairs.extend(crossings.iter().map(|crossing| {
            let name = crossing.device;
            let station = Some(crossing.station);
            let host = VethEnd { netns: self.host(crossing.from).as_fd(), name, station };
            [host, VethEnd { netns: self.sky.as_fd(), name: &crossing.sky, station: None }]
        }));
        // The kernel takes both ends' namespaces with the request, so one socket creates all pairs.
        self.run_in(LabNamespace::Sky, |place| {
            let mut netlink = open(place)?;
            pairs.iter().try_for_each(|[one, other]| {
                netlink
                    .add_veth([one, other])
                    .map_err(refused(place, || format!("the pair {} – {}", one.name, other.name)))
            })
        })
    }

    fn set_up_host(
        &self,
        node: Node,
        extent: &Extent,
        crossings: &[Crossing],
    ) -> Result<(), TopologyError> {
        self.run_in(LabNamespace::Host(node), |place| {
            let mut netlink = open(place)?;
            netlink.bring_up("lo", Some(u16::MAX), true).map_err(refused(place, || "lo".into()))?;
            for (device, address) in devices(node) {
                let on = |crossing: &&Crossing| (crossing.from, crossing.device) == (node, device);
                match crossings.iter().find(on) {
                    Some(crossing) => {
                        apply(place, &settings::of_hop(device))?;
                        set_up_quiet(place, &mut netlink, device, crossing.mtu)?;
                    }
                    None => netlink
                        .bring_up(device, Some(extent.lan_mtu()), true)
                        .map_err(refused(place, || device.to_owned()))?,
                }
                for (address, prefix) in address.supported() {
                    netlink
                        .add_address(device, address, prefix)
                        .map_err(refused(place, || format!("{address} to {device}")))?;
                }
            }
            if is_router(node) {
                apply(place, &settings::of_router())?;
            }
            Ok(())
        })
    }

    fn set_up_sky(&self, crossings: &[Crossing]) -> Result<(), TopologyError> {
        self.run_in(LabNamespace::Sky, |place| {
            let mut netlink = open(place)?;
            crossings.iter().try_for_each(|crossing| {
                set_up_quiet(place, &mut netlink, &crossing.sky, crossing.mtu)
            })
        })
    }

    fn add_routes(&self, node: Node, extent: &Extent) -> Result<(), TopologyError> {
        self.run_in(LabNamespace::Host(node), |place| {
            let mut netlink = open(place)?;
            for (subnet, via) in routes(node, extent) {
                let to = HostAddress { subnet, host: 0 };
                for ((to, prefix), (via, _)) in to.supported().zip(via.supported()) {
                    netlink
                        .add_route(to, prefix, via)
                        .map_err(refused(place, || format!("a route to {to} via {via}")))?;
                }
            }
            Ok(())
        })
    }
}

/// Returns the devices of a host, with their addresses.
fn devices(node: Node) -> Vec<Device> {
    let router = |subnet| (LAN_DEVICE, HostAddress { subnet, host: 1 });
    match node.site() {
        Some(site) if node == site.terminal() => {
            vec![router(site.lan()), (HOP_DEVICE, node.address())]
        }
        None if node == Node::Hub => vec![router(SERVER_LAN), (HOP_DEVICE, node.address())],
        _ => vec![(LAN_DEVICE, node.address())],
    }
}

fn is_router(node: Node) -> bool {
    devices(node).len() > 1
}

/// Returns the routes of a host to the other subnets. There is no default route: nothing outside
/// the lab can be reached, and programs get an error at once.
fn routes(node: Node, extent: &Extent) -> Vec<Route> {
    let sites = Site::first(extent.terminals);
    let via = |subnet| HostAddress { subnet, host: 1 };
    match node.site() {
        // A client, through its terminal.
        Some(own) if node == own.client() => sites
            .filter(|site| *site != own)
            .map(Site::lan)
            .chain([HOP, SERVER_LAN])
            .map(|subnet| (subnet, via(own.lan())))
            .collect(),
        // A terminal: all others are behind the hub.
        Some(own) => sites
            .filter(|site| *site != own)
            .map(Site::lan)
            .chain([SERVER_LAN])
            .map(|subnet| (subnet, Node::Hub.address()))
            .collect(),
        None if node == Node::Hub => {
            sites.map(|site| (site.lan(), site.terminal().address())).collect()
        }
        // The server.
        None => sites.map(Site::lan).chain([HOP]).map(|subnet| (subnet, via(SERVER_LAN))).collect(),
    }
}

/// Brings up a device that carries single packets, and on which the kernel sends none of its own.
fn set_up_quiet(
    place: LabNamespace,
    netlink: &mut RouteSocket,
    device: &str,
    mtu: u16,
) -> Result<(), TopologyError> {
    os::device::offload::switch_off(device).map_err(|cause| TopologyError::Offloads {
        place,
        device: device.to_owned(),
        cause,
    })?;
    // Without ARP: the links know the hardware addresses of the hosts.
    netlink.bring_up(device, Some(mtu), false).map_err(refused(place, || device.to_owned()))
}

fn apply(place: LabNamespace, settings: &[Setting]) -> Result<(), TopologyError> {
    for (name, value) in settings {
        settings::write(name, value).map_err(|cause| TopologyError::Setting {
            place,
            setting: name.clone(),
            value: value.clone(),
            cause,
        })?;
    }
    Ok(())
}

fn open(place: LabNamespace) -> Result<RouteSocket, TopologyError> {
    RouteSocket::open().map_err(|cause| TopologyError::Netlink { place, cause })
}

fn refused(
    place: LabNamespace,
    what: impl FnOnce() -> String,
) -> impl FnOnce(io::Error) -> TopologyError {
    move |cause| TopologyError::Refused { place, what: what(), cause }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_host_has_one_way_to_every_subnet() {
        for terminals in [1, 2, 32] {
            let terrestrial = false;
            let client_side = false;
            let extent = Extent { terminals, terrestrial, client_side, mtu: 1500, cabled: false };
            let lans = Site::first(terminals).map(Site::lan);
            let all: BTreeSet<u8> = lans.chain([HOP, SERVER_LAN]).collect();
            for node in Node::of_lab(terminals) {
                let own: Vec<u8> =
                    devices(node).iter().map(|(_, address)| address.subnet).collect();
                let routes = routes(node, &extent);
                for (_, via) in &routes {
                    assert!(own.contains(&via.subnet), "{node} is not on the LAN of {via:?}");
                }
                let mut reached: Vec<u8> = routes.iter().map(|(subnet, _)| *subnet).collect();
                reached.extend(&own);
                assert_eq!(reached.len(), all.len(), "{node}: {reached:?}");
                assert_eq!(reached.into_iter().collect::<BTreeSet<u8>>(), all, "{node}");
            }
        }
    }
}
