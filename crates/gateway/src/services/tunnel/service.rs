//! The tunnel as a service: follows the sessions, quotas and permits of its role.

use std::io;

use config::{PermittedTerminal, TerminalConfig};
use control::status::GatewayStatus;
use pep::traffic::{Prefix, TrafficPolicy};
use slacp::{Event, SessionId};

use super::{Admitted, Selection, Traffic, Translation, Tunnel, everywhere, of_clients};
use crate::hop::Hop;
use crate::process::error::RunError;
use crate::services::{Config, Service, SharedDevice, Surroundings};

/// The selection of a hub's tunnel. Without interception, only the tunnel's table can count connections for
/// the policies.
#[derive(Clone)]
pub(crate) struct HubSelection {
    /// The UDP port of the hop, whose own packets never enter the tunnel.
    pub(crate) port: u16,
    pub(crate) intercepts: bool,
    pub(crate) policies: Vec<TrafficPolicy>,
    /// Addresses for terminals without networks, if the hub has a tunnel.
    pub(crate) pool: Option<Prefix>,
}

impl HubSelection {
    pub(crate) fn of(&self, terminals: &[PermittedTerminal]) -> Selection {
        // Where every terminal has networks, addresses are routed.
        let needs_pool = terminals.iter().any(|terminal| terminal.address.is_some());
        Selection {
            traffic: Traffic::ToTerminals { hop: self.port },
            policies: self.policies.clone(),
            admitted: admitted(terminals),
            counts_connections: !self.intercepts,
            translation: self.pool.filter(|_| needs_pool).map(Translation::Of),
            is_moving: false,
        }
    }
}

/// Rules for packets from terminals. Terminals with the same rights share one rule set.
fn admitted(terminals: &[PermittedTerminal]) -> Vec<Admitted> {
    let mut others = terminals.iter().map(|terminal| &terminal.egress);
    if let Some(first) = others.next()
        && others.all(|other| other == first)
    {
        return Admitted::from_anyone(first);
    }
    let of = |terminal: &PermittedTerminal| Admitted {
        sources: terminal.networks.clone(),
        egress: terminal.egress.clone(),
    };
    terminals.iter().map(of).collect()
}

/// The selection of a terminal's tunnel; `None` if the terminal intercepts nothing, and so has no tunnel.
pub(crate) fn terminal_selection(config: &TerminalConfig) -> Option<Selection> {
    let intercept = config.intercept.as_ref()?;
    Some(of_clients(intercept, &config.policies, &config.accept))
}

/// The tunnel of a hub, with a path to each terminal.
pub(crate) struct HubTunnel {
    pub(crate) tunnel: Tunnel,
    pub(crate) selection: HubSelection,
}

impl HubTunnel {
    /// Lets packets pass between the tunnel and a session, unless its terminal has used up its quota.
    fn open(&self, role: &Surroundings<'_>, session: SessionId) {
        let Some((hop, hub)) = role.hub() else { return };
        if hub.is_blocked(session) {
            self.tunnel.remove(session);
        } else if !self.tunnel.has(session) {
            self.tunnel.add(hop, session, hub.sites.networks(session));
            self.tunnel.set_open(session, hub.sites.is_reachable(session));
        }
    }
}

impl Service for HubTunnel {
    fn start(&mut self, role: &mut Surroundings<'_>) {
        role.hop.into_iter().for_each(|hop| self.tunnel.start(hop.clone()));
    }

    fn handle_session(&mut self, role: &mut Surroundings<'_>, session: SessionId, event: &Event) {
        match event {
            Event::Up { .. } => self.open(role, session),
            Event::Unreachable => self.tunnel.set_open(session, false),
            Event::Reachable => self.tunnel.set_open(session, true),
            Event::Down(_) => self.tunnel.remove(session),
            _ => {}
        }
    }

    fn follow_quota(&mut self, role: &mut Surroundings<'_>, session: SessionId) {
        self.open(role, session);
    }

    fn follow_permits(&mut self, role: &mut Surroundings<'_>) {
        let Some((_, hub)) = role.hub() else { return };
        if let Err(error) = self.tunnel.configure(self.selection.of(hub.sites.terminals())) {
            tracing::error!("the tunnel keeps its rules: {error}");
        }
    }

    fn housekeep(&mut self, _: &mut Surroundings<'_>) {
        self.tunnel.housekeep();
    }

    fn add_status(&self, _: &Surroundings<'_>, status: &mut GatewayStatus) {
        self.tunnel.add_status(status);
    }

    /// The rules follow with the permits.
    fn configure(&mut self, _: &mut Surroundings<'_>, config: Config<'_>) -> Result<(), RunError> {
        if let Config::Hub(config) = config {
            self.selection.policies.clone_from(&config.policies);
        }
        Ok(())
    }

    fn share_device(&self) -> io::Result<Option<SharedDevice>> {
        let descriptor = self.tunnel.share()?;
        Ok(Some(SharedDevice { name: self.tunnel.name().to_owned(), descriptor }))
    }

    fn give_way(&mut self) {
        self.tunnel.stop_reading();
    }
}

/// The tunnel of a terminal, which leads to the hub in use.
pub(crate) struct TerminalTunnel {
    tunnel: Tunnel,
    /// The session that it leads to.
    session: Option<SessionId>,
    /// `true` while that session's hub answers.
    is_open: bool,
}

impl TerminalTunnel {
    pub(crate) fn new(tunnel: Tunnel) -> Self {
        Self { tunnel, session: None, is_open: false }
    }

    /// Lets packets pass between the tunnel and a session, translated if its hub gives an address. Without a session,
    /// the address stays for the next one.
    ///
    /// # Errors
    /// The reason for which the tunnel cannot be used.
    fn enter(&mut self, hop: &Hop, session: Option<SessionId>) -> Result<(), String> {
        let Some(session) = session else { return Ok(()) };
        let address = hop.packet_address(session);
        let unusable = |reason| match address {
            Some(address) => format!("cannot use {address} in the tunnel: {reason}"),
            None => reason,
        };
        self.tunnel.translate(address).map_err(unusable)?;
        // Only IPv4 is translated.
        let networks = if address.is_some() { vec![Prefix::ALL_V4] } else { everywhere() };
        match self.tunnel.add(hop, session, networks) {
            true => Ok(()),
            false => Err("the hub has no tunnel for this terminal".to_owned()),
        }
    }
}

impl Service for TerminalTunnel {
    fn start(&mut self, role: &mut Surroundings<'_>) {
        role.hop.into_iter().for_each(|hop| self.tunnel.start(hop.clone()));
    }

    fn follow_uplink(&mut self, role: &mut Surroundings<'_>) {
        let Some(hop) = role.hop else { return };
        let uplink = role.uplink;
        if self.session != uplink.session {
            self.session.into_iter().for_each(|former| self.tunnel.remove(former));
            // Adding a session opens it; a hub that does not answer closes it again below.
            self.session = uplink.session;
            self.is_open = true;
            if let Err(reason) = self.enter(hop, uplink.session) {
                tracing::warn!("{reason}: traffic that is not split passes unaccelerated");
            }
        }
        if let Some(session) = self.session
            && self.is_open != uplink.answers
        {
            self.is_open = uplink.answers;
            self.tunnel.set_open(session, self.is_open);
        }
    }

    fn housekeep(&mut self, _: &mut Surroundings<'_>) {
        self.tunnel.housekeep();
    }

    fn add_status(&self, _: &Surroundings<'_>, status: &mut GatewayStatus) {
        self.tunnel.add_status(status);
    }

    fn configure(&mut self, _: &mut Surroundings<'_>, config: Config<'_>) -> Result<(), RunError> {
        let selection = match config {
            Config::Terminal(config) => terminal_selection(config),
            _ => None,
        };
        selection.map_or(Ok(()), |selection| self.tunnel.configure(selection))
    }
}
