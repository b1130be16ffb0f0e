//! The parts of a hub at its start: sockets, listeners, endpoints and peers.

use std::net::SocketAddr;

use config::{HubConfig, PermittedTerminal, aggregates, link_rates, memory_limits};
use slacp::{Endpoint, IndexShare, PublicKey};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::upgrade::{MODEM_PATIENCE, Predecessor};
use super::{counted, names};
use crate::config::keys::random_bytes;
use crate::config::pair::PORT;
use crate::error::RunError;
use crate::hop::peers::PeerTable;
use crate::hop::udp::UdpLink;
use crate::hop::{Hop, tls};
use crate::roles::workers::{self, Workers};
use crate::{clock, presence};

/// The sockets of the hop, beside those of the process before.
pub(super) fn bind_hop(
    config: &HubConfig,
    workers: &Workers,
    beside: Option<(u8, IndexShare)>,
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

/// The endpoints of the hub's parts.
pub(super) fn endpoints(
    config: &HubConfig,
    terminals: &[PermittedTerminal],
) -> Result<Vec<Endpoint>, RunError> {
    let allow: Vec<PublicKey> = terminals.iter().map(|terminal| terminal.key).collect();
    let seed = random_bytes().map_err(RunError::Randomness)?;
    let (identity, count) = (&config.identity, config.workers);
    let mut endpoints = Endpoint::hub_in_parts(&config.link, identity, &allow, seed, count);
    for endpoint in &mut endpoints {
        endpoint.set_memory(memory_limits(terminals));
        endpoint.set_link_rates(link_rates(terminals, &config.links));
        endpoint.set_aggregates(clock::now(), aggregates(terminals));
    }
    Ok(endpoints)
}

/// The peers, with the rates that the modem has reported to the process before.
pub(super) fn peers(
    config: &HubConfig,
    terminals: &[PermittedTerminal],
    predecessor: Option<&Predecessor>,
) -> PeerTable {
    let (rate, most) = (&config.link.rate, config.operation.maximum_rate);
    let mut peers = PeerTable::new(rate, most, names(terminals), false).with_links(&config.links);
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
