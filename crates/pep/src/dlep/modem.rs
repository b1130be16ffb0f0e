//! The modem's side of a DLEP session (RFC 8175): accepts a router, and keeps it informed of the link and
//! its destinations. A state machine without clock and sockets (`docs/state-machines.md`); it serves one
//! router at a time.
//!
//! - Inputs: [`Modem::handle_discovery`], [`Modem::handle_connected`], [`Modem::handle_bytes`],
//!   [`Modem::handle_closed`], the time; and what changes on the link: [`Modem::set_link`],
//!   [`Modem::set_destination`], [`Modem::remove_destination`].
//! - Outputs: [`Modem::poll_output`], to be carried out in order; then [`Modem::poll_request`].
//!
//! The owner sets the state of the link whenever it changes. The modem compares it with what the router was
//! told, and sends the difference as soon as the standard allows: one request at a time may await its
//! response for each destination, and one for the session (§5). Changes in the meantime are sent together.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use units::{BitRate, Instant, Machine};

use super::DlepStatusCode;
use super::item::{DataItem, LinkAddress, code};
use super::message::{self, DlepMessage, MessageInbox, MessageKind};
use super::request::CapacityRequest;
use super::router::{DlepOutput, DlepPhase, Wake};
use crate::traffic::Prefix;

/// Time limit for the first message of a router that has connected.
const INITIALIZATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the response to a Session Termination, in heartbeat intervals (§7.4).
const TERMINATION: u32 = 4;

/// Settings of a modem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModemSettings {
    /// Description for people (Peer Type).
    pub peer_type: String,
    /// Interval of its heartbeats, at least 1 ms.
    pub heartbeat: Duration,
    /// Highest rates that the link ever has.
    pub maximum: LinkRates,
}

/// Rates from the router's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRates {
    /// Rate at which the router can send.
    pub transmit: BitRate,
    /// Rate at which the router may receive.
    pub receive: BitRate,
}

/// Metrics of the link or of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkMetrics {
    /// Rates that the link has now.
    pub rates: LinkRates,
    /// One-way delay, reported as latency (§13.16).
    pub latency: Duration,
}

impl LinkMetrics {
    fn items(self) -> [DataItem; 3] {
        let micros = u64::try_from(self.latency.as_micros()).unwrap_or(u64::MAX);
        [
            DataItem::Metric(code::CURRENT_DATA_RATE_RECEIVE, self.rates.receive.bits_per_second()),
            DataItem::Metric(
                code::CURRENT_DATA_RATE_TRANSMIT,
                self.rates.transmit.bits_per_second(),
            ),
            DataItem::Metric(code::LATENCY, micros),
        ]
    }
}

/// State of a reachable destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachableDestination {
    /// Its own metrics, which may differ from the link's.
    pub metrics: LinkMetrics,
    /// Its addresses (prefixes of full length), and the subnets behind it.
    pub networks: Vec<Prefix>,
}

#[derive(Debug, Default)]
struct ModemDestination {
    /// Current state; `None` if the destination is unreachable.
    current: Option<ReachableDestination>,
    /// State that was sent to the router.
    told: Option<ReachableDestination>,
    /// `true` while a request awaits its response.
    pending: bool,
    /// `true` if the router does not want information about it (§12.12).
    declined: bool,
    /// The router's latest request (§12.18), until the owner takes it.
    requested: Option<CapacityRequest>,
}

#[derive(Debug)]
enum ModemSessionState {
    Listening,
    Initializing { until: Instant },
    Up { heard: Instant, interval: Duration, beat: Instant },
    Ending { until: Instant },
}

/// State machine of the modem.
#[derive(Debug)]
pub struct Modem {
    settings: ModemSettings,
    state: ModemSessionState,
    inbox: MessageInbox,
    outputs: VecDeque<DlepOutput>,
    link: LinkMetrics,
    /// Metrics that were sent to the router, and `true` while its response is awaited.
    told: LinkMetrics,
    pending: bool,
    destinations: BTreeMap<LinkAddress, ModemDestination>,
}

impl Modem {
    /// Creates a modem that waits for a router; `link` are the metrics of its link.
    pub fn new(settings: ModemSettings, link: LinkMetrics) -> Self {
        Self {
            settings,
            state: ModemSessionState::Listening,
            inbox: MessageInbox::default(),
            outputs: VecDeque::new(),
            link,
            told: link,
            pending: false,
            destinations: BTreeMap::new(),
        }
    }

    /// Returns the next action for the driver.
    pub fn poll_output(&mut self) -> Option<DlepOutput> {
        self.outputs.pop_front()
    }

    /// Takes a request of the router: the latest one for a destination. A rate of 0 withdraws it, and so
    /// does the end of the session.
    pub fn poll_request(&mut self) -> Option<(LinkAddress, CapacityRequest)> {
        let mut all = self.destinations.iter_mut();
        all.find_map(|(mac, destination)| Some((*mac, destination.requested.take()?)))
    }

    /// The phase of the session; [`DlepPhase::Looking`] without a router.
    pub fn phase(&self) -> DlepPhase {
        match self.state {
            ModemSessionState::Listening => DlepPhase::Looking,
            ModemSessionState::Initializing { .. } => DlepPhase::Initializing,
            ModemSessionState::Up { .. } => DlepPhase::Up,
            ModemSessionState::Ending { .. } => DlepPhase::Ending,
        }
    }

    /// Bytes buffered from the connection.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn held(&self) -> usize {
        self.inbox.len()
    }

    /// Builds the Peer Offer (§12.4) for a Peer Discovery, with the connection point `point`. `None` if the
    /// datagram is anything else, or another router is served.
    pub fn handle_discovery(&self, datagram: &[u8], point: SocketAddr) -> Option<Vec<u8>> {
        let free = matches!(self.state, ModemSessionState::Listening);
        let point =
            DataItem::ConnectionPoint { address: point.ip(), port: Some(point.port()), tls: false };
        let offer =
            || message::offer_of(&[DataItem::PeerType(self.settings.peer_type.clone()), point]);
        (free && message::is_discovery(datagram)).then(offer)
    }

    /// Handles a new connection of a router. Returns `false` if another one is served: the new one must be
    /// closed.
    pub fn handle_connected(&mut self, now: Instant) -> bool {
        let free = matches!(self.state, ModemSessionState::Listening);
        if free {
            self.state = ModemSessionState::Initializing { until: now + INITIALIZATION_TIMEOUT };
        }
        free
    }

    /// Handles the end of the connection.
    pub fn handle_closed(&mut self) {
        self.state = ModemSessionState::Listening;
        self.inbox = MessageInbox::default();
        self.pending = false;
        self.destinations.retain(|_, destination| {
            // The next router has been told nothing.
            let wanted = destination.current.take();
            *destination = ModemDestination { current: wanted, ..ModemDestination::default() };
            destination.current.is_some()
        });
    }

    /// Handles bytes received on the connection.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        self.inbox.push(bytes);
        while self.is_connected()
            && let Some(message) = self.inbox.next()
        {
            self.handle_message(now, &message);
        }
    }

    /// Sets the metrics of the link. A session update sets those of all destinations as well (§12.7).
    pub fn set_link(&mut self, metrics: LinkMetrics) {
        self.link = metrics;
        self.send_changes();
    }

    /// Sets the state of a reachable destination.
    pub fn set_destination(&mut self, mac: LinkAddress, how: ReachableDestination) {
        self.destinations.entry(mac).or_default().current = Some(how);
        self.send_changes();
    }

    /// Marks a destination as unreachable.
    pub fn remove_destination(&mut self, mac: LinkAddress) {
        if let Some(destination) = self.destinations.get_mut(&mac) {
            destination.current = None;
        }
        self.send_changes();
    }

    /// Ends the session in an orderly way, if there is one. A router may then connect again.
    pub fn stop(&mut self, now: Instant) {
        if matches!(
            self.state,
            ModemSessionState::Initializing { .. } | ModemSessionState::Up { .. }
        ) {
            self.terminate(now, DlepStatusCode::SHUTTING_DOWN);
        }
    }

    fn is_connected(&self) -> bool {
        !matches!(self.state, ModemSessionState::Listening)
    }

    fn handle_message(&mut self, now: Instant, message: &[u8]) {
        let is_expected: fn(MessageKind) -> bool = match self.state {
            ModemSessionState::Initializing { .. } => {
                |kind| kind == MessageKind::SessionInitialization
            }
            ModemSessionState::Up { .. } => is_expected_in_session,
            // §7.4: everything else is ignored.
            _ => |kind| kind == MessageKind::SessionTerminationResponse,
        };
        match (DlepMessage::parse(message, is_expected), &mut self.state) {
            (Err(_), ModemSessionState::Ending { .. }) => {}
            (Err(status), _) => self.terminate(now, status),
            (Ok(message), state) => {
                // §7.3.1: any message counts as a heartbeat.
                if let ModemSessionState::Up { heard, .. } = state {
                    *heard = now;
                }
                if let Err(status) = self.apply(now, &message) {
                    self.terminate(now, status);
                }
                self.send_changes();
            }
        }
    }

    /// Handles a message that is expected.
    ///
    /// # Errors
    /// The status with which the session must be terminated.
    fn apply(&mut self, now: Instant, message: &DlepMessage) -> Result<(), DlepStatusCode> {
        let success = DataItem::Status(DlepStatusCode::SUCCESS, String::new());
        match (message.kind, message.mac()) {
            (MessageKind::SessionInitialization, _) => self.begin(now, message),
            (MessageKind::SessionTermination, _) => {
                self.send(MessageKind::SessionTerminationResponse, &[]);
                self.close();
            }
            (MessageKind::SessionTerminationResponse, _) => self.close(),
            (MessageKind::SessionUpdate, _) => {
                self.send(MessageKind::SessionUpdateResponse, &[success]);
            }
            (MessageKind::SessionUpdateResponse, _) => {
                // A response to no request ends the session (§12.1).
                let expected = std::mem::take(&mut self.pending);
                expected.then_some(()).ok_or(DlepStatusCode::UNEXPECTED_MESSAGE)?;
            }
            (MessageKind::DestinationUpResponse, Some(mac)) => {
                let refused =
                    message.status().is_some_and(|(status, _)| status != DlepStatusCode::SUCCESS);
                self.answered(mac)?.declined = refused;
            }
            (MessageKind::DestinationDownResponse, Some(mac)) => {
                let destination = self.answered(mac)?;
                if destination.current.is_none() {
                    self.destinations.remove(&mac);
                }
            }
            (MessageKind::DestinationAnnounce, Some(mac)) => {
                self.respond_of(MessageKind::DestinationAnnounceResponse, mac);
            }
            (MessageKind::LinkCharacteristicsRequest, Some(mac)) => {
                self.handle_request(mac, message);
                self.respond_of(MessageKind::LinkCharacteristicsResponse, mac);
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps the router's request for capacity (§12.18) until the owner takes it.
    fn handle_request(&mut self, mac: LinkAddress, message: &DlepMessage) {
        let rate = message.metric(code::CURRENT_DATA_RATE_TRANSMIT);
        // A destination that the router was not told about gets Request Denied.
        let known =
            self.destinations.get_mut(&mac).filter(|destination| destination.told.is_some());
        if let (Some(rate), Some(destination)) = (rate, known) {
            let rate = BitRate::from_bits_per_second(rate);
            // Only requests for foreseen data contain a latency; see `request`.
            let is_foreseen = message.metric(code::LATENCY).is_some();
            destination.requested = Some(CapacityRequest { rate, is_foreseen });
        }
    }

    /// Handles the router's Session Initialization (§12.5).
    fn begin(&mut self, now: Instant, message: &DlepMessage) {
        let interval = message.items.iter().find_map(|item| match item {
            DataItem::HeartbeatInterval(interval) => Some(*interval),
            _ => None,
        });
        let LinkRates { transmit, receive } = self.settings.maximum;
        let mut items = vec![
            DataItem::Status(DlepStatusCode::SUCCESS, String::new()),
            DataItem::PeerType(self.settings.peer_type.clone()),
            DataItem::HeartbeatInterval(self.settings.heartbeat),
            DataItem::Metric(code::MAXIMUM_DATA_RATE_RECEIVE, receive.bits_per_second()),
            DataItem::Metric(code::MAXIMUM_DATA_RATE_TRANSMIT, transmit.bits_per_second()),
        ];
        items.extend(self.link.items());
        self.send(MessageKind::SessionInitializationResponse, &items);
        // The response contains them.
        self.told = self.link;
        let interval = interval.unwrap_or_default();
        self.state =
            ModemSessionState::Up { heard: now, interval, beat: now + self.settings.heartbeat };
    }

    /// The destination whose pending request is answered by this message.
    fn answered(&mut self, mac: LinkAddress) -> Result<&mut ModemDestination, DlepStatusCode> {
        let destination =
            self.destinations.get_mut(&mac).ok_or(DlepStatusCode::INVALID_DESTINATION)?;
        let expected = std::mem::take(&mut destination.pending);
        expected.then_some(destination).ok_or(DlepStatusCode::UNEXPECTED_MESSAGE)
    }

    /// Answers a request about a destination: with its metrics, or with Request Denied.
    fn respond_of(&mut self, kind: MessageKind, mac: LinkAddress) {
        let told = self.destinations.get(&mac).and_then(|destination| destination.told.as_ref());
        let status =
            if told.is_some() { DlepStatusCode::SUCCESS } else { DlepStatusCode::REQUEST_DENIED };
        let mut items = vec![DataItem::MacAddress(mac), DataItem::Status(status, String::new())];
        items.extend(told.into_iter().flat_map(|told| told.metrics.items()));
        self.send(kind, &items);
    }

    /// Sends changes that the router does not know, as far as no request is pending.
    fn send_changes(&mut self) {
        if !matches!(self.state, ModemSessionState::Up { .. }) {
            return;
        }
        if self.told != self.link && !self.pending {
            (self.told, self.pending) = (self.link, true);
            self.send(MessageKind::SessionUpdate, &self.link.items());
            // The router applies them to every destination.
            let told =
                self.destinations.values_mut().filter_map(|destination| destination.told.as_mut());
            told.for_each(|told| told.metrics = self.link);
        }
        for (mac, destination) in &mut self.destinations {
            self.outputs.extend(destination.tell(*mac).map(DlepOutput::Send));
        }
        // An unreachable destination is kept until the router has confirmed that it is down.
        let is_known = |destination: &ModemDestination| {
            destination.pending || destination.told.is_some() && !destination.declined
        };
        self.destinations
            .retain(|_, destination| destination.current.is_some() || is_known(destination));
    }

    /// Ends the session with `status`.
    fn terminate(&mut self, now: Instant, status: DlepStatusCode) {
        self.send(MessageKind::SessionTermination, &[DataItem::Status(status, String::new())]);
        self.state =
            ModemSessionState::Ending { until: now + TERMINATION * self.settings.heartbeat };
    }

    fn close(&mut self) {
        self.outputs.push_back(DlepOutput::Close);
        self.handle_closed();
    }

    /// Time at which a silent router counts as lost: half an interval after its second missed heartbeat.
    fn silence(&self) -> Option<Instant> {
        match self.state {
            ModemSessionState::Up { heard, interval, .. } if !interval.is_zero() => {
                Some(heard + interval * 5 / 2)
            }
            _ => None,
        }
    }

    fn send(&mut self, kind: MessageKind, items: &[DataItem]) {
        self.outputs.push_back(DlepOutput::Send(message::emit(kind, items)));
    }
}

impl ModemDestination {
    /// Builds the next message about the destination, if one is due.
    fn tell(&mut self, mac: LinkAddress) -> Option<Vec<u8>> {
        if self.pending || self.declined || self.current == self.told {
            return None;
        }
        let (kind, items) = match (&self.told, &self.current) {
            (None, Some(new)) => (MessageKind::DestinationUp, changes(None, new)),
            (Some(old), Some(new)) => (MessageKind::DestinationUpdate, changes(Some(old), new)),
            (_, None) => (MessageKind::DestinationDown, Vec::new()),
        };
        // A Destination Update has no response (§12.17).
        self.pending = kind != MessageKind::DestinationUpdate;
        self.told.clone_from(&self.current);
        let items: Vec<DataItem> = [DataItem::MacAddress(mac)].into_iter().chain(items).collect();
        Some(message::emit(kind, &items))
    }
}

/// Items that change the state known to the router into the current one.
fn changes(old: Option<&ReachableDestination>, new: &ReachableDestination) -> Vec<DataItem> {
    let known: &[Prefix] = old.map_or(&[], |old| &old.networks);
    let network = |add, prefix: &Prefix| DataItem::Network {
        subnet: !prefix.is_host(),
        add,
        prefix: *prefix,
    };
    let gone = known.iter().filter(|prefix| !new.networks.contains(prefix));
    let come = new.networks.iter().filter(|prefix| !known.contains(prefix));
    let networks =
        gone.map(|prefix| network(false, prefix)).chain(come.map(|prefix| network(true, prefix)));
    let metrics = (old.map(|old| old.metrics) != Some(new.metrics)).then(|| new.metrics.items());
    metrics.into_iter().flatten().chain(networks).collect()
}

impl Machine for Modem {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        match self.state {
            ModemSessionState::Listening => None,
            ModemSessionState::Initializing { until } | ModemSessionState::Ending { until } => {
                Some((until, Wake::GiveUp))
            }
            ModemSessionState::Up { beat, .. } => {
                let silence = self.silence().map(|at| (at, Wake::GiveUp));
                units::earliest(silence, Some((beat, Wake::Heartbeat)))
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Some((_, why)) = self.poll_timeout().filter(|(at, _)| *at <= now) else { return };
        match (why, &mut self.state) {
            (Wake::Heartbeat, ModemSessionState::Up { beat, .. }) => {
                *beat = now + self.settings.heartbeat;
                self.send(MessageKind::Heartbeat, &[]);
            }
            (_, ModemSessionState::Up { .. }) => self.terminate(now, DlepStatusCode::TIMED_OUT),
            _ => self.close(),
        }
    }
}

/// Messages that a router may send in a session.
fn is_expected_in_session(kind: MessageKind) -> bool {
    matches!(
        kind,
        MessageKind::SessionUpdate
            | MessageKind::SessionUpdateResponse
            | MessageKind::SessionTermination
            | MessageKind::DestinationUpResponse
            | MessageKind::DestinationDownResponse
            | MessageKind::DestinationAnnounce
            | MessageKind::LinkCharacteristicsRequest
            | MessageKind::Heartbeat
    )
}
