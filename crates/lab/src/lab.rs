//! The lab: network, driver and services, started and stopped together.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command;

use link::dama::Dama;
use link::{Delay, Link, LossModel, Outage, PacketCounters};
use os::packet::{PacketPort, RING_BYTES};
use os::{RUN_VARIABLE, clock};
use scenario::{DamaSpec, LinkSpec, Preset, RateSpec};
use thiserror::Error;
use units::{BitRate, Instant};

use crate::driver::carrier::LinkCarrier;
use crate::driver::{Faults, GaugeReader, LinkDriver, LinkLane, ReturnModem};
use crate::environment::hosts;
use crate::environment::scratch::RunDirectory;
use crate::environment::{LAB_VARIABLE, NETNS_VARIABLE, PROXIES, netns_value};
use crate::preset::PresetLinks as _;
use crate::server::Services;
use crate::start_error::StartError;
use crate::topology::crossing::{Crossing, Extent};
use crate::topology::{self, LabNetwork};
use crate::{Lateness, LinkName, NetNs, Node, ReturnRecord, Site, UnknownNode};

/// A change that is not possible while the lab runs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} cannot change while the lab runs")]
#[non_exhaustive]
pub struct ChangeError {
    /// The setting that cannot change.
    pub what: &'static str,
}

/// Size of a terminal's ring in bytes if there are more than [`MANY`] terminals.
const RING_OF_MANY: usize = 4 << 20;
const MANY: u8 = 4;

/// A running lab. Dropping it stops the driver and the services; the network disappears with the
/// last process in it.
pub struct Lab {
    preset: Preset,
    origin: Instant,
    network: LabNetwork,
    run: RunDirectory,
    driver: LinkDriver,
    _services: Services,
}

impl Lab {
    /// Starts a lab. The process must have [entered](crate::enter) its own namespaces. `seed`
    /// determines which packets are lost.
    ///
    /// # Errors
    /// If the kernel refuses a step; everything is then cleaned up.
    pub fn start(preset: &Preset, seed: u64) -> Result<Self, StartError> {
        hosts::publish(preset.terminals).map_err(|cause| StartError::Names { cause })?;
        let run = RunDirectory::new().map_err(|cause| StartError::Run { cause })?;
        let extent = preset.extent();
        let network = topology::build(&extent)?;
        // All links count from one moment: outages and traces run together.
        let origin = clock::now();
        let shared = shared_return(preset, seed, origin)?;
        let lanes = network.sky.run(|| open_lanes(preset, &extent, seed, origin))?;
        let driver =
            LinkDriver::start(lanes, shared).map_err(|cause| StartError::Driver { cause })?;
        let services = Services::start(network.host(Node::Server))?;
        Ok(Self { preset: preset.clone(), origin, network, run, driver, _services: services })
    }

    /// Returns the current configuration of the links.
    pub fn preset(&self) -> &Preset {
        &self.preset
    }

    /// Returns the private directory for the sockets of this lab's gateways. It is visible only in
    /// the lab and disappears with it; [`os::RUN_VARIABLE`] names it for every command in the lab.
    pub fn run_directory(&self) -> PathBuf {
        self.run.path()
    }

    /// Returns the MTU of the hop in bytes.
    pub fn mtu(&self) -> u16 {
        self.preset.mtu
    }

    /// Returns all hosts of this lab.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        Node::of_lab(self.preset.terminals)
    }

    /// Checks that this lab has a host.
    ///
    /// # Errors
    /// If the lab has fewer terminals.
    pub fn expect(&self, node: Node) -> Result<(), UnknownNode> {
        if self.nodes().any(|each| each == node) {
            return Ok(());
        }
        let known: Vec<String> = self.nodes().map(|each| each.to_string()).collect();
        Err(UnknownNode { name: node.to_string(), known: known.join(", ") })
    }

    /// Returns the start of the links by the monotonic clock. Their traces and outages count from
    /// here.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Returns a host's network namespace.
    ///
    /// # Panics
    /// If this lab does not have the host; see [`Self::expect`].
    pub fn node(&self, node: Node) -> &NetNs {
        self.network.host(node)
    }

    /// Returns a host's IPv4 address.
    pub fn address4(&self, node: Node) -> Ipv4Addr {
        node.address4()
    }

    /// Returns a host's IPv6 address.
    pub fn address6(&self, node: Node) -> Ipv6Addr {
        node.address6()
    }

    /// Returns a command that will run on a host. Its environment has [`LAB_VARIABLE`],
    /// [`NETNS_VARIABLE`] and [`RUN_VARIABLE`], and no proxies.
    pub fn command(&self, node: Node, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.node(node).command(program);
        command.envs(self.variables());
        // The lab cannot reach a proxy outside.
        for proxy in PROXIES {
            command.env_remove(proxy);
        }
        command
    }

    /// Returns the variables by which a program recognises that it runs in this lab.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        let places = netns_value(self.nodes().zip(&self.network.hosts));
        let run = self.run_directory().display().to_string();
        [(LAB_VARIABLE, self.preset.name.clone()), (NETNS_VARIABLE, places), (RUN_VARIABLE, run)]
    }

    /// Returns the counters of the hop's links: forward, and the return link of the first terminal.
    pub fn counters(&self) -> (PacketCounters, PacketCounters) {
        (self.counters_of(LinkName::Forward), self.counters_of(LinkName::Return(Site::FIRST)))
    }

    /// Returns the counters of a link.
    ///
    /// # Panics
    /// If this lab does not have the link.
    pub fn counters_of(&self, link: LinkName) -> PacketCounters {
        let all = self.driver.gauges().read();
        all.iter().find(|gauge| gauge.link == link).expect("the lab has the link").counters
    }

    /// Changes all links to those of `preset` at the same moment. Unchanged settings carry on
    /// undisturbed, and the change loses no packets. The preset's outages count from the start of
    /// the lab and stay as they are.
    ///
    /// # Errors
    /// If anything besides the links would have to change.
    pub fn change(&mut self, preset: Preset) -> Result<(), ChangeError> {
        let old = self.preset.extent();
        let new = preset.extent();
        let is_same_return = fixed_return(&self.preset) == fixed_return(&preset);
        let fixed = [
            ("the MTU", old.mtu == new.mtu),
            ("the number of terminals", old.terminals == new.terminals),
            ("the presence of a terrestrial link", old.terrestrial == new.terrestrial),
            ("the presence of links to clients", old.client_side == new.client_side),
            ("a return link with DAMA, except for its losses and its rate,", is_same_return),
            (
                "the rate of a return link with DAMA beyond that of its start",
                self.has_room_for(&preset),
            ),
        ];
        if let Some((what, _)) = fixed.into_iter().find(|(_, same)| !same) {
            return Err(ChangeError { what });
        }
        self.driver.change(|name, link, now| {
            link.reconfigure(now, &self.preset.link(name), preset.link(name));
        });
        self.preset = preset;
        Ok(())
    }

    /// Returns true if the frames of the shared return link, if any, have room for the rate of this
    /// preset.
    fn has_room_for(&self, preset: &Preset) -> bool {
        let modem = self.return_modem(Site::FIRST).and_then(|modem| modem.frames());
        let rate = preset.link(LinkName::Return(Site::FIRST)).rate.greatest();
        modem.is_none_or(|frames| frames.can_hold(rate))
    }

    /// Adds an outage of the hop, with times relative to now.
    pub fn add_outage(&self, outage: Outage) {
        self.driver.change(|name, link, now| {
            if name.is_hop() {
                link.add_outage(now, outage);
            }
        });
    }

    /// Ends all outages, current and later, on all links.
    pub fn end_outages(&self) {
        self.driver.change(|_, link, now| link.end_outages(now));
    }

    /// Returns a handle to read the links while the lab runs.
    pub fn gauges(&self) -> GaugeReader {
        self.driver.gauges()
    }

    /// Returns the modem of a site's terminal, if the terminals share the return link.
    pub fn return_modem(&self, site: Site) -> Option<ReturnModem> {
        self.driver.modem(site.index())
    }

    /// Starts recording the events of the return link, if the terminals share it.
    pub fn record_return(&self) {
        self.driver.record();
    }

    /// Returns the record since [`Self::record_return`]; `None` without a shared return link.
    pub fn recorded_return(&self) -> Option<ReturnRecord> {
        self.driver.recorded()
    }

    /// Returns the numbers of packets lost other than on the links.
    pub fn faults(&self) -> Faults {
        self.driver.faults()
    }

    /// Returns the lateness of packets that left the links, over all links.
    pub fn lateness(&self) -> Lateness {
        self.driver.lateness()
    }
}

/// Opens both ends of all links. The calling thread must be in `sky`.
fn open_lanes(
    preset: &Preset,
    extent: &Extent,
    seed: u64,
    origin: Instant,
) -> Result<Vec<LinkLane>, StartError> {
    let lane = |crossing: Crossing| {
        let Crossing { link: name, sky: device, station, mtu, .. } = crossing;
        let many = matches!(name, LinkName::Return(_)) && extent.terminals > MANY;
        let ring = if many { RING_OF_MANY } else { RING_BYTES };
        let port = PacketPort::open(&device, station, mtu, ring)
            .map_err(|cause| StartError::Port { device, cause })?;
        let carrier = match (&preset.dama, name) {
            (Some(_), LinkName::Return(site)) => LinkCarrier::Shared(site.index()),
            _ => {
                let link = Link::starting_at(origin, preset.link(name), seed_of(name, seed));
                LinkCarrier::Own(Box::new(link))
            }
        };
        Ok(LinkLane { port, carrier, name, exit: extent.exit(name) })
    };
    extent.crossings().into_iter().map(lane).collect()
}

/// Builds the return link that the terminals share, if the preset has one.
fn shared_return(
    preset: &Preset,
    seed: u64,
    origin: Instant,
) -> Result<Option<Dama<Vec<u8>>>, StartError> {
    let Some(spec) = &preset.dama else { return Ok(None) };
    let name = LinkName::Return(Site::FIRST);
    let config = spec.config(&preset.forward, &preset.link(name), preset.terminals.into())?;
    Ok(Some(Dama::starting_at(origin, config, seed_of(name, seed))?))
}

/// Returns the part of a return link with DAMA that cannot change: everything but its rate and its
/// losses. Its allocations need the forward link's delay.
fn fixed_return(preset: &Preset) -> Option<(DamaSpec, LinkSpec, Delay)> {
    let spec = preset.dama.clone()?;
    let rate = RateSpec::Given(BitRate::default().into());
    let ret = LinkSpec { loss: LossModel::None, rate, ..preset.ret.clone() };
    Some((spec, ret, preset.forward.delay.clone()))
}

/// Derives a seed for each direction. The links that every lab has get the same seeds whatever
/// other links exist.
fn seed_of(name: LinkName, seed: u64) -> u64 {
    let (pair, direction) = match name {
        LinkName::Forward => (0, 0),
        LinkName::Return(site) => (site.index() as u64, 1),
        LinkName::TerrestrialForward => (TERRESTRIAL, 0),
        LinkName::TerrestrialReturn => (TERRESTRIAL, 1),
        LinkName::ClientForward(site) => (CLIENT_SIDE + site.index() as u64, 0),
        LinkName::ClientReturn(site) => (CLIENT_SIDE + site.index() as u64, 1),
    };
    // Twice the seed, so that neighbouring seeds share no link's seed.
    seed.wrapping_mul(2).wrapping_add(direction) ^ (pair << 56)
}

/// Larger than the number of any site.
const TERRESTRIAL: u64 = 0xff;
/// The links of the first client; those of other sites follow. Larger than the number of any site.
const CLIENT_SIDE: u64 = 0x80;

#[cfg(test)]
mod tests;
