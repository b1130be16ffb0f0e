//! The lab: the network, the driver and the services, started and stopped as
//! one.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use link::{Counters, Link};
use thiserror::Error;

use crate::driver::{Driver, Faults, Gauges, Lane};
use crate::environment::{LAB_VARIABLE, NETNS_VARIABLE, PROXIES, netns_value};
use crate::port::Port;
use crate::server::Services;
use crate::topology::{self, Network, SKY_DEVICES, STATIONS};
use crate::{Lateness, NetNs, Node, Preset, TopologyError, clock, hosts};

/// Why a lab does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The network cannot be made.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The names of the hosts cannot be made known.
    #[error("cannot put the lab's names into /etc/hosts: {cause}")]
    Names {
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The hop's ends cannot be opened.
    #[error("cannot open the packet socket on {device}: {cause}")]
    Port {
        /// The device in `sky`.
        device: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The driver's thread does not start.
    #[error("cannot start the link's driver: {cause}")]
    Driver {
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The services on `server` do not start.
    #[error("cannot start the service on port {port} of server: {cause}")]
    Service {
        /// The TCP port.
        port: u16,
        /// The kernel's answer.
        cause: io::Error,
    },
}

/// The driver's lanes.
const FORWARD: usize = 0;
const RETURN: usize = 1;
/// The driver's ports: towards the terminal and towards the hub.
const TERMINAL_PORT: usize = 0;
const HUB_PORT: usize = 1;

/// A running lab. Dropping it stops the driver and the services; the network
/// goes with the last process that is in it.
pub struct Lab {
    name: String,
    mtu: u16,
    network: Network,
    driver: Driver,
    _services: Services,
}

impl Lab {
    /// Starts a lab; the process must have [entered](crate::enter) its own
    /// namespaces. `seed` decides which packets are lost.
    ///
    /// # Errors
    /// When the kernel refuses a part of it; nothing remains then.
    pub fn start(preset: &Preset, seed: u64) -> Result<Self, StartError> {
        hosts::publish().map_err(|cause| StartError::Names { cause })?;
        let network = topology::build(preset.mtu)?;
        let ports = network.sky.run(|| open_ports(preset.mtu))?;
        let driver = Driver::start(ports, lanes(preset, seed))
            .map_err(|cause| StartError::Driver { cause })?;
        let services = Services::start(&network.hosts[Node::Server.index()])?;
        Ok(Self {
            name: preset.name.clone(),
            mtu: preset.mtu,
            network,
            driver,
            _services: services,
        })
    }

    /// The longest IP packet on the hop in bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// A host's network namespace.
    pub fn node(&self, node: Node) -> &NetNs {
        &self.network.hosts[node.index()]
    }

    /// A host's IPv4 address.
    pub fn address4(&self, node: Node) -> Ipv4Addr {
        node.address4()
    }

    /// A host's IPv6 address.
    pub fn address6(&self, node: Node) -> Ipv6Addr {
        node.address6()
    }

    /// A command that will run on a host and knows that it is in a lab: its
    /// environment has [`LAB_VARIABLE`] and [`NETNS_VARIABLE`], and no proxies.
    pub fn command(&self, node: Node, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.node(node).command(program);
        let places = Node::ALL.into_iter().zip(&self.network.hosts);
        command.env(LAB_VARIABLE, &self.name).env(NETNS_VARIABLE, netns_value(places));
        for proxy in PROXIES {
            command.env_remove(proxy);
        }
        command
    }

    /// What the links have counted: forward and return.
    pub fn counters(&self) -> (Counters, Counters) {
        (self.driver.counters(FORWARD), self.driver.counters(RETURN))
    }

    /// For whoever watches the links while the lab runs.
    pub fn gauges(&self) -> Gauges {
        self.driver.gauges()
    }

    /// Packets that were lost otherwise than on the links.
    pub fn faults(&self) -> Faults {
        self.driver.faults()
    }

    /// How late packets left the links, both together.
    pub fn lateness(&self) -> Lateness {
        self.driver.lateness()
    }
}

fn open_ports(mtu: u16) -> Result<[Port; 2], StartError> {
    let open = |side: usize| {
        let device = SKY_DEVICES[side];
        Port::open(device, STATIONS[side], mtu).map_err(|cause| StartError::Port { device, cause })
    };
    Ok([open(TERMINAL_PORT)?, open(HUB_PORT)?])
}

/// The two directions have luck of their own, from one seed.
fn lanes(preset: &Preset, seed: u64) -> [Lane; 2] {
    let [forward, ret] = preset.links();
    let now = clock::now();
    let forward = Link::starting_at(now, forward, seed.wrapping_mul(2));
    let ret = Link::starting_at(now, ret, seed.wrapping_mul(2).wrapping_add(1));
    [
        Lane { from: HUB_PORT, to: TERMINAL_PORT, link: forward },
        Lane { from: TERMINAL_PORT, to: HUB_PORT, link: ret },
    ]
}
