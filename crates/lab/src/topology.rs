//! The network: five namespaces, four veth pairs, addresses and routes.

use std::io;

use thiserror::Error;

use crate::netlink::{End, Netlink, Station};
use crate::node::{Address, CLIENT_LAN, HOP, SERVER_LAN};
use crate::settings::{self, Setting};
use crate::{NetNs, Node, offload};

/// The device of `terminal` and `hub` on the hop.
pub const HOP_DEVICE: &str = "sat0";
/// The device of every host on its LAN.
pub const LAN_DEVICE: &str = "lan0";
/// The devices of `sky`: towards the terminal and towards the hub.
pub(crate) const SKY_DEVICES: [&str; 2] = ["t0", "h0"];
/// The hardware addresses of terminal and hub on the hop (locally administered,
/// "SKY"): `sky` sends to them without asking.
pub(crate) const STATIONS: [Station; 2] =
    [[0x02, b'S', b'K', b'Y', 0, 1], [0x02, b'S', b'K', b'Y', 0, 2]];
/// The MTU of the LANs, unless the hop's is larger: Ethernet's.
const LAN_MTU: u16 = 1500;

/// Why the network cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// No new network namespace.
    #[error("cannot make a network namespace: {cause}")]
    Namespace {
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A kernel setting is missing or refused.
    #[error("cannot set {setting} = {value} on {place}: {cause}")]
    Setting {
        /// The namespace.
        place: &'static str,
        /// The name below `/proc/sys/net`.
        setting: String,
        /// The value.
        value: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// No connection to the kernel's routing subsystem.
    #[error("cannot open a netlink socket on {place}: {cause}")]
    Netlink {
        /// The namespace.
        place: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A link, an address or a route is refused.
    #[error("cannot add {what} on {place}: {cause}")]
    Refused {
        /// The namespace.
        place: &'static str,
        /// What was to be added.
        what: String,
        /// The kernel's answer.
        cause: Box<rtnetlink::Error>,
    },
    /// A device would not carry single packets.
    #[error("cannot switch off the offloads of {device} on {place}: {cause}")]
    Offloads {
        /// The namespace.
        place: &'static str,
        /// The device.
        device: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
}

/// The namespaces of a lab.
pub(crate) struct Network {
    /// The hosts, in the order of [`Node::ALL`].
    pub(crate) hosts: [NetNs; 4],
    /// Where the hop is.
    pub(crate) sky: NetNs,
}

/// A device of a host: its name and its address.
type Device = (&'static str, Address);
/// A route of a host: a subnet and the neighbour on the way.
type Route = (u8, Address);

/// Makes the network; the hop carries packets of up to `mtu` bytes.
pub(crate) fn build(mtu: u16) -> Result<Network, TopologyError> {
    let make = || NetNs::create().map_err(|cause| TopologyError::Namespace { cause });
    let network = Network { hosts: [make()?, make()?, make()?, make()?], sky: make()? };
    network.prepare()?;
    network.connect()?;
    for node in Node::ALL {
        network.set_up_host(node, mtu)?;
    }
    network.set_up_sky(mtu)?;
    for node in Node::ALL {
        network.add_routes(node)?;
    }
    Ok(network)
}

impl Network {
    fn host(&self, node: Node) -> &NetNs {
        &self.hosts[node.index()]
    }

    /// Settings that new devices inherit.
    fn prepare(&self) -> Result<(), TopologyError> {
        for node in Node::ALL {
            self.host(node).run(|| apply(node.name(), &settings::of_host()))?;
        }
        self.sky.run(|| apply("sky", &settings::of_sky()))
    }

    /// All veth pairs.
    fn connect(&self) -> Result<(), TopologyError> {
        let lan = |node| End { netns: self.host(node), name: LAN_DEVICE, station: None };
        let hop = |node, station| End {
            netns: self.host(node),
            name: HOP_DEVICE,
            station: Some(station),
        };
        let sky = |name| End { netns: &self.sky, name, station: None };
        self.sky.run(|| {
            let netlink = open("sky")?;
            for [one, other] in [
                [lan(Node::Client), lan(Node::Terminal)],
                [lan(Node::Hub), lan(Node::Server)],
                [hop(Node::Terminal, STATIONS[0]), sky(SKY_DEVICES[0])],
                [hop(Node::Hub, STATIONS[1]), sky(SKY_DEVICES[1])],
            ] {
                netlink.add_veth([&one, &other]).map_err(refused("sky", || {
                    format!("the pair {} – {}", one.name, other.name)
                }))?;
            }
            Ok(())
        })
    }

    fn set_up_host(&self, node: Node, mtu: u16) -> Result<(), TopologyError> {
        let place = node.name();
        self.host(node).run(|| {
            let netlink = open(place)?;
            netlink.bring_up("lo", u16::MAX, true).map_err(refused(place, || "lo".into()))?;
            for (device, address) in devices(node) {
                if device == HOP_DEVICE {
                    set_up_hop(place, &netlink, device, mtu)?;
                } else {
                    netlink
                        .bring_up(device, LAN_MTU.max(mtu), true)
                        .map_err(refused(place, || device.to_owned()))?;
                }
                for address in address.both() {
                    netlink
                        .add_address(device, address)
                        .map_err(refused(place, || format!("{} to {device}", address.0)))?;
                }
            }
            if matches!(node, Node::Terminal | Node::Hub) {
                apply(place, &settings::of_router())?;
            }
            Ok(())
        })
    }

    fn set_up_sky(&self, mtu: u16) -> Result<(), TopologyError> {
        self.sky.run(|| {
            let netlink = open("sky")?;
            SKY_DEVICES.iter().try_for_each(|device| set_up_quiet("sky", &netlink, device, mtu))
        })
    }

    fn add_routes(&self, node: Node) -> Result<(), TopologyError> {
        let place = node.name();
        self.host(node).run(|| {
            let netlink = open(place)?;
            for (subnet, via) in routes(node) {
                let to = Address { subnet, host: 0 };
                for (to, via) in to.both().into_iter().zip(via.both()) {
                    netlink
                        .add_route(to, via.0)
                        .map_err(refused(place, || format!("a route to {} via {}", to.0, via.0)))?;
                }
            }
            Ok(())
        })
    }
}

/// The devices of a host.
fn devices(node: Node) -> Vec<Device> {
    let router = |subnet| (LAN_DEVICE, Address { subnet, host: 1 });
    match node {
        Node::Client | Node::Server => vec![(LAN_DEVICE, node.address())],
        Node::Terminal => vec![router(CLIENT_LAN), (HOP_DEVICE, node.address())],
        Node::Hub => vec![router(SERVER_LAN), (HOP_DEVICE, node.address())],
    }
}

/// The routes of a host to the subnets it is not in. There is no default route:
/// nothing outside the lab can be reached, and programs hear so at once.
fn routes(node: Node) -> Vec<Route> {
    let router = |subnet| Address { subnet, host: 1 };
    match node {
        Node::Client => vec![(HOP, router(CLIENT_LAN)), (SERVER_LAN, router(CLIENT_LAN))],
        Node::Terminal => vec![(SERVER_LAN, Node::Hub.address())],
        Node::Hub => vec![(CLIENT_LAN, Node::Terminal.address())],
        Node::Server => vec![(HOP, router(SERVER_LAN)), (CLIENT_LAN, router(SERVER_LAN))],
    }
}

fn set_up_hop(
    place: &'static str,
    netlink: &Netlink,
    device: &'static str,
    mtu: u16,
) -> Result<(), TopologyError> {
    apply(place, &settings::of_hop(device))?;
    set_up_quiet(place, netlink, device, mtu)
}

/// Brings up a device that carries single packets, and none of the kernel's own.
fn set_up_quiet(
    place: &'static str,
    netlink: &Netlink,
    device: &'static str,
    mtu: u16,
) -> Result<(), TopologyError> {
    offload::switch_off(device).map_err(|cause| TopologyError::Offloads {
        place,
        device,
        cause,
    })?;
    netlink.bring_up(device, mtu, false).map_err(refused(place, || device.to_owned()))
}

fn apply(place: &'static str, settings: &[Setting]) -> Result<(), TopologyError> {
    for setting in settings {
        settings::write(setting).map_err(|cause| TopologyError::Setting {
            place,
            setting: setting.0.clone(),
            value: setting.1.clone(),
            cause,
        })?;
    }
    Ok(())
}

fn open(place: &'static str) -> Result<Netlink, TopologyError> {
    Netlink::open().map_err(|cause| TopologyError::Netlink { place, cause })
}

fn refused(
    place: &'static str,
    what: impl FnOnce() -> String,
) -> impl FnOnce(rtnetlink::Error) -> TopologyError {
    move |cause| TopologyError::Refused { place, what: what(), cause: Box::new(cause) }
}
