//! The parts of a hub at its start: sockets, listeners, endpoints and peers.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use config::{
    HubConfig, PermittedTerminal, aggregates, link_rates, memory_limits, packet_addresses,
};
use slacp::{Endpoint, PublicKey};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::upgrade::{MODEM_PATIENCE, Predecessor};
use super::{counted, names};
use crate::config::keys::random_bytes;
use crate::config::pair::PORT;
use crate::hop::Hop;
use crate::hop::peers::PeerTable;
use crate::hop::sockets::HopSockets;
use crate::hop::udp::{SiblingSockets, UdpLink};
use crate::intercept::own::OwnAddresses;
use crate::network::presence;
use crate::network::tls;
use crate::process::clock;
use crate::process::error::RunError;
use crate::relay::terms::DialPolicy;
use crate::roles::gateway::Side;
use crate::roles::pair::Setup;
use crate::roles::workers::{self, Workers};
use crate::services::tunnel::HubSelection;

/// The threads of the hub's parts, each with its socket of the hop.
pub(super) struct PartSockets {
    workers: Workers,
    links: Vec<UdpLink>,
}

impl PartSockets {
    /// Starts the threads and binds the sockets, beside those of the process before.
    pub(super) fn bind(
        config: &HubConfig,
        predecessor: Option<&Predecessor>,
    ) -> Result<Self, RunError> {
        // Threads gather packets unless `burst` limits what may leave at once.
        let workers = Workers::start(config.workers, config.link.burst.is_none())
            .map_err(RunError::System)?;
        let links = bind_hop(config, &workers, predecessor.map(Predecessor::sockets))?;
        Ok(Self { workers, links })
    }

    /// The address that all sockets share.
    pub(super) fn local_addr(&self) -> Result<SocketAddr, RunError> {
        self.links[0].local_addr().map_err(RunError::System)
    }
}

/// Composes the hub's side of the pair. `device`: the tunnel's, if another process hands it over.
///
/// # Errors
/// If the system gives no randomness.
pub(super) fn setup<'a>(
    config: &'a HubConfig,
    terminals: &[PermittedTerminal],
    selection: &HubSelection,
    own: OwnAddresses,
    sockets: PartSockets,
    device: Option<OwnedFd>,
    predecessor: Option<&Predecessor>,
) -> Result<Setup<'a>, RunError> {
    let tunnel = config.tunnel.as_ref();
    Ok(Setup {
        side: Side::Hub,
        key: config.identity.public(),
        own,
        endpoints: endpoints(config, terminals)?,
        sockets: sockets.links.into_iter().map(HopSockets::from).collect(),
        workers: sockets.workers,
        peers: peers(config, terminals, predecessor),
        dial: dial_policy(config),
        operation: &config.operation,
        intercept: config.intercept.as_ref(),
        policies: config.policies.clone(),
        classes: config.classes.clone(),
        names: None,
        tunnel: tunnel.map(|tunnel| (tunnel, selection.of(terminals), config.mesh)),
        device,
    })
}

fn dial_policy(config: &HubConfig) -> DialPolicy {
    DialPolicy {
        timeout: config.connect_timeout,
        transparent: config.transparent,
        marked: config.intercept.as_ref().is_some_and(|intercept| intercept.own_traffic),
    }
}

/// Binds the sockets of the hop, beside those of the process before.
fn bind_hop(
    config: &HubConfig,
    workers: &Workers,
    beside: Option<SiblingSockets>,
) -> Result<Vec<UdpLink>, RunError> {
    let Some(address) = config.listen else {
        return workers::bind_anywhere(PORT, workers, beside);
    };
    presence::warn_of_address(address);
    workers::bind(address, workers, beside)
}

/// The listener for terminals whose networks block UDP.
pub(super) struct TcpListening {
    address: SocketAddr,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl TcpListening {
    /// Opens the listener, if one is configured.
    pub(super) fn open(config: &HubConfig) -> Result<Option<Self>, RunError> {
        let Some(address) = config.listen_tcp else { return Ok(None) };
        let bound = presence::listen(address);
        let listener = bound.map_err(|cause| RunError::Bind { address, cause })?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose();
        Ok(Some(Self { address, listener, tls: tls.map_err(RunError::Certificate)? }))
    }

    pub(super) fn serve(self, tasks: &mut JoinSet<()>, hop: &Hop) {
        let Self { address, listener, tls } = self;
        tracing::info!("serving terminals whose networks block UDP on TCP {address}");
        tasks.spawn(hop.links().clone().serve(listener, tls));
    }
}

/// Creates the endpoints of the hub's parts, with the limits of these terminals.
fn endpoints(
    config: &HubConfig,
    terminals: &[PermittedTerminal],
) -> Result<Vec<Endpoint>, RunError> {
    let allow: Vec<PublicKey> = terminals.iter().map(|terminal| terminal.key).collect();
    let seed = random_bytes().map_err(RunError::Randomness)?;
    let HubConfig { link, identity, workers, .. } = config;
    let mut endpoints = Endpoint::hub_in_parts(link, identity, &allow, seed, *workers);
    for endpoint in &mut endpoints {
        endpoint.set_memory(memory_limits(terminals));
        endpoint.set_packet_addresses(packet_addresses(terminals));
        endpoint.set_link_rates(link_rates(terminals, &config.links));
        endpoint.set_aggregates(clock::now(), aggregates(terminals));
    }
    Ok(endpoints)
}

/// Creates the table of peers, with the rates that the modem has reported to the process before.
fn peers(
    config: &HubConfig,
    terminals: &[PermittedTerminal],
    predecessor: Option<&Predecessor>,
) -> PeerTable {
    let rate = &config.link.rate;
    let maximum = config.operation.maximum_rate;
    let peers = PeerTable::new(rate, maximum, names(terminals), false);
    let mut peers = peers.with_links(&config.links);
    if let Some(before) = predecessor {
        peers.inherit(clock::now(), before.rates(), MODEM_PATIENCE);
    }
    peers
}

pub(super) fn log_start(config: &HubConfig, terminals: usize, local: SocketAddr) {
    let threads = match config.workers {
        count if count > 1 => format!(" with {count} workers"),
        _ => String::new(),
    };
    tracing::info!("serving {} on UDP {local}{threads}", counted(terminals));
}
