//! An endpoint: the state machine behind one UDP socket.

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

use std::net::SocketAddr;

use units::{Instant, Machine, earliest};

use crate::session::group::{EndpointCore, IndexOwner};
use crate::session::{Session, Wake};
use crate::setup::gate::AdmissionGate;
use crate::setup::hub::Hub;
use crate::setup::terminal::Terminal;
use crate::wire::packet::{self, Datagram, PacketHeader};
use crate::{
    ChannelId, Config, Ecn, EndpointNotice, Event, KeyPair, LogEntry, PublicKey, SessionId,
    StreamError,
};

mod commands;
mod contacts;
mod parts;
mod run;
mod watch;

pub use parts::LinkUse;
pub use run::DatagramRun;

/// One side of the hop: a terminal with its hubs, or a hub with its terminals.
///
/// A state machine without a clock or a socket (`docs/state-machines.md`). After any input or
/// command, call these in order, each until it returns `None`: [`Self::poll_event`],
/// [`Self::poll_packet`], [`Self::poll_transmit`]. Then come back at [`Machine::poll_timeout`].
///
/// A terminal sets up its session by itself, and a new one when the hub has lost it. It may have
/// sessions with several hubs ([`Endpoint::want_hub`]). All sessions of an endpoint share its rate.
pub struct Endpoint {
    pub(crate) core: EndpointCore,
    role: EndpointRole,
}

enum EndpointRole {
    Hub(Box<Hub>),
    Terminal(Box<Terminal>),
}

impl Endpoint {
    /// A hub that serves the terminals with the keys in `allow`. Its ephemeral keys are derived
    /// from `seed`, which must be unpredictable except in tests.
    pub fn hub(config: Config, identity: KeyPair, allow: Vec<PublicKey>, seed: [u8; 32]) -> Self {
        let mut core = EndpointCore::new(config, identity.clone(), seed);
        let gate = AdmissionGate::new(core.config.handshakes_per_second, &mut core.rng);
        Self { core, role: EndpointRole::Hub(Box::new(Hub::new(identity, allow, gate))) }
    }

    /// A terminal of the hub with the key `hub`, which is tried at each of `addresses` in turn.
    /// `seed` is as for [`Self::hub`].
    pub fn terminal(
        config: Config,
        identity: KeyPair,
        hub: PublicKey,
        addresses: Vec<SocketAddr>,
        seed: [u8; 32],
    ) -> Self {
        let core = EndpointCore::new(config, identity, seed);
        Self { core, role: EndpointRole::Terminal(Box::new(Terminal::new(hub, addresses))) }
    }

    /// [`Self::handle_datagram_with_ecn`] for a driver that cannot read the codepoint.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        self.handle_datagram_with_ecn(now, from, Ecn::NotEct, datagram)
    }

    /// Processes a datagram from the network, whose IP header had the codepoint `ecn`. Anything that
    /// is not authentic is counted and dropped. Returns the session that `from` has proved to belong
    /// to: `None` for handshakes, strangers, and sessions that are over.
    pub fn handle_datagram_with_ecn(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ecn: Ecn,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        self.run(now).handle_datagram(from, ecn, datagram)
    }

    fn take_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        let core = &mut self.core;
        let Some(kind) = packet::parse(datagram) else {
            core.count_ignored();
            return None;
        };
        match (kind, &mut self.role) {
            (Datagram::Data(header), _) => return self.handle_data(now, from, &header, datagram),
            (Datagram::Initiation { sender }, EndpointRole::Hub(hub)) => {
                hub.handle_initiation(core, now, from, sender, datagram);
            }
            (Datagram::Foreign { version, echo }, EndpointRole::Hub(hub)) => {
                hub.handle_foreign(core, now, from, version, echo, datagram);
            }
            (Datagram::Response { sender, receiver, body }, EndpointRole::Terminal(terminal)) => {
                terminal.handle_response(core, now, from, sender, receiver, &datagram[body..]);
            }
            (Datagram::Cookie { receiver, cookie }, EndpointRole::Terminal(terminal)) => {
                terminal.handle_cookie(core, now, receiver, &cookie, datagram);
            }
            (Datagram::Versions { echo }, EndpointRole::Terminal(terminal)) => {
                terminal.handle_versions(core, echo, datagram);
            }
            (Datagram::Unknown(header), EndpointRole::Terminal(terminal)) => {
                terminal.handle_unknown(core, now, &header, datagram);
            }
            _ => core.count_ignored(),
        }
        None
    }

    fn handle_data(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &PacketHeader,
        datagram: &mut [u8],
    ) -> Option<SessionId> {
        match (self.core.indices.get(&header.receiver).copied(), &mut self.role) {
            (Some(IndexOwner::Session(id)), _) => {
                let ecn = self.core.ecn_received;
                let session = self.core.sessions.get_mut(id)?;
                session.handle_packet(now, from, ecn, header, datagram).then_some(id)
            }
            (Some(IndexOwner::Link(id, link)), _) => {
                let along = (from, self.core.ecn_received);
                let session = self.core.sessions.get_mut(id)?;
                let taken = session.handle_link_packet(now, link, along, header, datagram);
                taken.then_some(id)
            }
            (Some(IndexOwner::Joining(peer)), EndpointRole::Hub(hub)) => {
                hub.handle_first_of_link(&mut self.core, now, from, peer, header, datagram)
            }
            (Some(IndexOwner::Tentative(peer)), EndpointRole::Hub(hub)) => {
                hub.handle_first_data(&mut self.core, now, from, peer, header, datagram)
            }
            (None, EndpointRole::Hub(hub)) => {
                hub.handle_unknown(&mut self.core, now, from, header, datagram.len());
                None
            }
            _ => {
                self.core.count_ignored();
                None
            }
        }
    }

    /// Returns the next session event, in order.
    pub fn poll_event(&mut self) -> Option<(SessionId, Event)> {
        // Up and Down are queued here, so that a session's own events follow its Up.
        if let Some(event) = self.core.events.pop_front() {
            return Some(event);
        }
        let id = self.core.sessions.with_event()?;
        Some((id, self.core.with(id, Session::poll_event)??))
    }

    /// Writes the next datagram that may be sent now to `buf`, which is cleared first, and returns
    /// its destination. `None` while the pacer holds the link or there is nothing to send;
    /// [`Machine::poll_timeout`] says when to ask again.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        buf.clear();
        self.run(now).transmit(buf)
    }

    /// Begins a run of datagrams that are received or sent at one time. The sessions' next actions
    /// are evaluated only once, at its end, which costs far less than after each datagram.
    pub fn run(&mut self, now: Instant) -> DatagramRun<'_> {
        DatagramRun::new(self, now)
    }

    /// The link, an index of [`Config::links`], on which a session's datagram arrived; 0 for any
    /// other datagram. To be called after [`Self::handle_datagram`], which may add the link.
    pub fn link_of(&self, datagram: &[u8]) -> u8 {
        let Some(Datagram::Data(header)) = packet::parse(datagram) else { return 0 };
        match self.core.indices.get(&header.receiver) {
            Some(IndexOwner::Link(_, link)) => *link,
            Some(IndexOwner::Session(id)) => {
                self.core.session(*id).and_then(Session::link).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The ECN codepoint for the IP header of the datagram that [`Self::poll_transmit`] returned last.
    pub fn transmit_ecn(&self) -> Ecn {
        self.core.ecn_sent
    }

    /// The link, an index of [`Config::links`], for the datagram that [`Self::poll_transmit`] returned
    /// last. A hub need not ask: its peers have an address on each link.
    pub fn transmit_link(&self) -> u8 {
        self.core.link_sent
    }

    /// The session of the datagram that [`Self::poll_transmit`] returned last; `None` for messages
    /// outside of sessions.
    pub fn transmit_session(&self) -> Option<SessionId> {
        self.core.departed.map(|departed| departed.session)
    }

    /// The code point (DSCP), 0 to 63, for the IP header of the datagram that [`Self::poll_transmit`]
    /// returned last: that of the class whose data it carries ([`crate::ClassConfig::dscp`]).
    pub fn transmit_dscp(&self) -> u8 {
        self.core.dscp_sent
    }

    /// Returns whether the datagram that [`Self::poll_transmit`] returned last belongs to the
    /// control channel: it carries no new data. A link layer may send it ahead of data that waits.
    pub fn transmit_is_control(&self) -> bool {
        self.core.control_sent
    }

    /// Returns the next event that belongs to no session.
    pub fn poll_notice(&mut self) -> Option<EndpointNotice> {
        self.core.notices.pop_front()
    }

    /// Returns the next packet received on a packet channel.
    pub fn poll_packet(&mut self) -> Option<(SessionId, ChannelId, Vec<u8>)> {
        let id = self.core.sessions.with_packet()?;
        let (channel, packet) = self.core.with(id, |session| session.poll_packet())??;
        Some((id, channel, packet))
    }

    /// Returns the oldest entry of the sessions' event logs; see [`Config::event_log`]. A session's
    /// entries are lost when it ends.
    pub fn poll_log(&mut self) -> Option<LogEntry> {
        self.poll_session_log(self.core.sessions.with_log()?)
    }

    /// Sets the capacity of a session's event log from now on, overriding [`Config::event_log`]; 0
    /// turns it off.
    ///
    /// # Errors
    /// [`StreamError::NoSession`] if the session does not exist or is over.
    pub fn set_event_log(&mut self, id: SessionId, events: usize) -> Result<(), StreamError> {
        self.with(id, |session| session.log_mut().resize(events))
    }

    /// Like [`Self::poll_log`], but for one session.
    pub fn poll_session_log(&mut self, id: SessionId) -> Option<LogEntry> {
        let (time, event) = self.core.with(id, |session| session.log_mut().poll())??;
        Some(LogEntry { time, session: id, event })
    }

    /// Runs a function on a session that is not over.
    fn with<T>(
        &mut self,
        id: SessionId,
        what: impl FnOnce(&mut Session) -> T,
    ) -> Result<T, StreamError> {
        let usable = self.core.session(id).is_some();
        let result = if usable { self.core.with(id, what) } else { None };
        result.ok_or(StreamError::NoSession)
    }
}

impl Machine for Endpoint {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let handshake = match &self.role {
            EndpointRole::Hub(hub) => hub.poll_timeout(),
            EndpointRole::Terminal(terminal) => terminal.poll_timeout(&self.core),
        };
        let handshake = handshake.map(|time| (time, Wake::Handshake));
        earliest(handshake, self.core.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.core.now = now;
        self.core.handle_timeout(now);
        match &mut self.role {
            EndpointRole::Hub(hub) => hub.handle_timeout(&mut self.core, now),
            EndpointRole::Terminal(terminal) => terminal.handle_timeout(&mut self.core, now),
        }
    }
}

#[cfg(test)]
mod tests;
