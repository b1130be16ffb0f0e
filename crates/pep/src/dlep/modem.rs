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

use super::Status;
use super::item::{Item, Mac, code};
use super::message::{self, Kind, Message, MessageInbox};
use super::request::Wanted;
use super::router::{Output, Phase, Wake};
use crate::traffic::Prefix;

/// Time limit for the first message of a router that has connected.
const INITIALIZATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the response to a Session Termination, in heartbeat intervals (§7.4).
const TERMINATION: u32 = 4;

/// Settings of a modem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Description for people (Peer Type).
    pub peer_type: String,
    /// Interval of its heartbeats, at least 1 ms.
    pub heartbeat: Duration,
    /// Highest rates of the link.
    pub maximum: Rates,
}

/// Rates from the router's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Rate at which the router can send.
    pub transmit: BitRate,
    /// Rate at which the router may receive.
    pub receive: BitRate,
}

/// Metrics of the link or of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// Current rates.
    pub rates: Rates,
    /// One-way delay.
    pub latency: Duration,
}

impl Metrics {
    fn items(self) -> [Item; 3] {
        let micros = u64::try_from(self.latency.as_micros()).unwrap_or(u64::MAX);
        [
            Item::Metric(code::CURRENT_DATA_RATE_RECEIVE, self.rates.receive.bits_per_second()),
            Item::Metric(code::CURRENT_DATA_RATE_TRANSMIT, self.rates.transmit.bits_per_second()),
            Item::Metric(code::LATENCY, micros),
        ]
    }
}

/// State of a reachable destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reachable {
    /// Its metrics.
    pub metrics: Metrics,
    /// Its addresses (prefixes of full length), and the subnets behind it.
    pub networks: Vec<Prefix>,
}

#[derive(Debug, Default)]
struct Destination {
    /// Current state; `None` if the destination is unreachable.
    wanted: Option<Reachable>,
    /// State that was sent to the router.
    told: Option<Reachable>,
    /// `true` while a request awaits its response.
    pending: bool,
    /// `true` if the router does not want information about it (§12.12).
    declined: bool,
    /// The router's latest request (§12.18), until the owner takes it.
    requested: Option<Wanted>,
}

#[derive(Debug)]
enum State {
    Listening,
    Initializing { until: Instant },
    Up { heard: Instant, interval: Duration, beat: Instant },
    Ending { until: Instant },
}

/// State machine of the modem.
#[derive(Debug)]
pub struct Modem {
    settings: Settings,
    state: State,
    inbox: MessageInbox,
    outputs: VecDeque<Output>,
    link: Metrics,
    /// Metrics that were sent to the router, and `true` while its response is awaited.
    told: Metrics,
    pending: bool,
    destinations: BTreeMap<Mac, Destination>,
}

impl Modem {
    /// Creates a modem that waits for a router; `link` are the metrics of its link.
    pub fn new(settings: Settings, link: Metrics) -> Self {
        Self {
            settings,
            state: State::Listening,
            inbox: MessageInbox::default(),
            outputs: VecDeque::new(),
            link,
            told: link,
            pending: false,
            destinations: BTreeMap::new(),
        }
    }

    /// Returns the next action.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes a request of the router: the latest one for a destination. A rate of 0 withdraws it, and so
    /// does the end of the session.
    pub fn poll_request(&mut self) -> Option<(Mac, Wanted)> {
        let mut all = self.destinations.iter_mut();
        all.find_map(|(mac, destination)| Some((*mac, destination.requested.take()?)))
    }

    /// The phase of the session; [`Phase::Looking`] without a router.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Listening => Phase::Looking,
            State::Initializing { .. } => Phase::Initializing,
            State::Up { .. } => Phase::Up,
            State::Ending { .. } => Phase::Ending,
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
        let free = matches!(self.state, State::Listening);
        let point =
            Item::ConnectionPoint { address: point.ip(), port: Some(point.port()), tls: false };
        let offer = || message::offer_of(&[Item::PeerType(self.settings.peer_type.clone()), point]);
        (free && message::is_discovery(datagram)).then(offer)
    }

    /// Handles a new connection of a router. Returns `false` if another one is served: the new one must be
    /// closed.
    pub fn handle_connected(&mut self, now: Instant) -> bool {
        let free = matches!(self.state, State::Listening);
        if free {
            self.state = State::Initializing { until: now + INITIALIZATION_TIMEOUT };
        }
        free
    }

    /// Handles the end of the connection.
    pub fn handle_closed(&mut self) {
        self.state = State::Listening;
        self.inbox = MessageInbox::default();
        self.pending = false;
        self.destinations.retain(|_, destination| {
            // The next router has been told nothing.
            let wanted = destination.wanted.take();
            *destination = Destination { wanted, ..Destination::default() };
            destination.wanted.is_some()
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
    pub fn set_link(&mut self, metrics: Metrics) {
        self.link = metrics;
        self.tell();
    }

    /// Sets the state of a reachable destination.
    pub fn set_destination(&mut self, mac: Mac, how: Reachable) {
        self.destinations.entry(mac).or_default().wanted = Some(how);
        self.tell();
    }

    /// Marks a destination as unreachable.
    pub fn remove_destination(&mut self, mac: Mac) {
        if let Some(destination) = self.destinations.get_mut(&mac) {
            destination.wanted = None;
        }
        self.tell();
    }

    /// Ends the session in an orderly way, if there is one. A router may then connect again.
    pub fn stop(&mut self, now: Instant) {
        if matches!(self.state, State::Initializing { .. } | State::Up { .. }) {
            self.terminate(now, Status::SHUTTING_DOWN);
        }
    }

    fn is_connected(&self) -> bool {
        !matches!(self.state, State::Listening)
    }

    fn handle_message(&mut self, now: Instant, message: &[u8]) {
        let is_expected: fn(Kind) -> bool = match self.state {
            State::Initializing { .. } => |kind| kind == Kind::SessionInitialization,
            State::Up { .. } => is_expected_in_session,
            // §7.4: everything else is ignored.
            _ => |kind| kind == Kind::SessionTerminationResponse,
        };
        match (Message::parse(message, is_expected), &mut self.state) {
            (Err(_), State::Ending { .. }) => {}
            (Err(status), _) => self.terminate(now, status),
            (Ok(message), state) => {
                // §7.3.1: any message counts as a heartbeat.
                if let State::Up { heard, .. } = state {
                    *heard = now;
                }
                if let Err(status) = self.apply(now, &message) {
                    self.terminate(now, status);
                }
                self.tell();
            }
        }
    }

    /// Handles a message that is expected.
    ///
    /// # Errors
    /// The status with which the session must be terminated.
    fn apply(&mut self, now: Instant, message: &Message) -> Result<(), Status> {
        let success = Item::Status(Status::SUCCESS, String::new());
        match (message.kind, message.mac()) {
            (Kind::SessionInitialization, _) => self.begin(now, message),
            (Kind::SessionTermination, _) => {
                self.send(Kind::SessionTerminationResponse, &[]);
                self.close();
            }
            (Kind::SessionTerminationResponse, _) => self.close(),
            (Kind::SessionUpdate, _) => self.send(Kind::SessionUpdateResponse, &[success]),
            (Kind::SessionUpdateResponse, _) => {
                let expected = std::mem::take(&mut self.pending);
                expected.then_some(()).ok_or(Status::UNEXPECTED_MESSAGE)?;
            }
            (Kind::DestinationUpResponse, Some(mac)) => {
                let refused = message.status().is_some_and(|(status, _)| status != Status::SUCCESS);
                self.answered(mac)?.declined = refused;
            }
            (Kind::DestinationDownResponse, Some(mac)) => {
                let destination = self.answered(mac)?;
                if destination.wanted.is_none() {
                    self.destinations.remove(&mac);
                }
            }
            (Kind::DestinationAnnounce, Some(mac)) => {
                self.respond_of(Kind::DestinationAnnounceResponse, mac);
            }
            (Kind::LinkCharacteristicsRequest, Some(mac)) => {
                let rate = message.metric(code::CURRENT_DATA_RATE_TRANSMIT);
                let known = self.destinations.get_mut(&mac).filter(|it| it.told.is_some());
                if let (Some(rate), Some(destination)) = (rate, known) {
                    let rate = BitRate::from_bits_per_second(rate);
                    // Only requests for foreseen data contain a latency; see `request`.
                    let is_foreseen = message.metric(code::LATENCY).is_some();
                    destination.requested = Some(Wanted { rate, is_foreseen });
                }
                self.respond_of(Kind::LinkCharacteristicsResponse, mac);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the router's Session Initialization (§12.5).
    fn begin(&mut self, now: Instant, message: &Message) {
        let interval = message.items.iter().find_map(|item| match item {
            Item::HeartbeatInterval(interval) => Some(*interval),
            _ => None,
        });
        let Rates { transmit, receive } = self.settings.maximum;
        let mut items = vec![
            Item::Status(Status::SUCCESS, String::new()),
            Item::PeerType(self.settings.peer_type.clone()),
            Item::HeartbeatInterval(self.settings.heartbeat),
            Item::Metric(code::MAXIMUM_DATA_RATE_RECEIVE, receive.bits_per_second()),
            Item::Metric(code::MAXIMUM_DATA_RATE_TRANSMIT, transmit.bits_per_second()),
        ];
        items.extend(self.link.items());
        self.send(Kind::SessionInitializationResponse, &items);
        // The response contains them.
        self.told = self.link;
        let interval = interval.unwrap_or_default();
        self.state = State::Up { heard: now, interval, beat: now + self.settings.heartbeat };
    }

    /// The destination whose pending request is answered by this message.
    fn answered(&mut self, mac: Mac) -> Result<&mut Destination, Status> {
        let destination = self.destinations.get_mut(&mac).ok_or(Status::INVALID_DESTINATION)?;
        let expected = std::mem::take(&mut destination.pending);
        expected.then_some(destination).ok_or(Status::UNEXPECTED_MESSAGE)
    }

    /// Answers a request about a destination: with its metrics, or with Request Denied.
    fn respond_of(&mut self, kind: Kind, mac: Mac) {
        let told = self.destinations.get(&mac).and_then(|it| it.told.as_ref());
        let status = if told.is_some() { Status::SUCCESS } else { Status::REQUEST_DENIED };
        let mut items = vec![Item::MacAddress(mac), Item::Status(status, String::new())];
        items.extend(told.into_iter().flat_map(|told| told.metrics.items()));
        self.send(kind, &items);
    }

    /// Sends changes that the router does not know, as far as no request is pending.
    fn tell(&mut self) {
        if !matches!(self.state, State::Up { .. }) {
            return;
        }
        if self.told != self.link && !self.pending {
            (self.told, self.pending) = (self.link, true);
            self.send(Kind::SessionUpdate, &self.link.items());
            // The router applies them to every destination.
            let told = self.destinations.values_mut().filter_map(|it| it.told.as_mut());
            told.for_each(|told| told.metrics = self.link);
        }
        for (mac, destination) in &mut self.destinations {
            self.outputs.extend(destination.tell(*mac).map(Output::Send));
        }
        // An unreachable destination is kept until the router has confirmed that it is down.
        let is_known = |it: &Destination| it.pending || it.told.is_some() && !it.declined;
        self.destinations.retain(|_, it| it.wanted.is_some() || is_known(it));
    }

    /// Ends the session with `status`.
    fn terminate(&mut self, now: Instant, status: Status) {
        self.send(Kind::SessionTermination, &[Item::Status(status, String::new())]);
        self.state = State::Ending { until: now + TERMINATION * self.settings.heartbeat };
    }

    fn close(&mut self) {
        self.outputs.push_back(Output::Close);
        self.handle_closed();
    }

    /// Time at which a silent router counts as lost: half an interval after its second missed heartbeat.
    fn silence(&self) -> Option<Instant> {
        match self.state {
            State::Up { heard, interval, .. } if !interval.is_zero() => {
                Some(heard + interval * 5 / 2)
            }
            _ => None,
        }
    }

    fn send(&mut self, kind: Kind, items: &[Item]) {
        self.outputs.push_back(Output::Send(message::emit(kind, items)));
    }
}

impl Destination {
    /// Builds the next message about the destination, if one is due.
    fn tell(&mut self, mac: Mac) -> Option<Vec<u8>> {
        if self.pending || self.declined || self.wanted == self.told {
            return None;
        }
        let (kind, items) = match (&self.told, &self.wanted) {
            (None, Some(new)) => (Kind::DestinationUp, changes(None, new)),
            (Some(old), Some(new)) => (Kind::DestinationUpdate, changes(Some(old), new)),
            (_, None) => (Kind::DestinationDown, Vec::new()),
        };
        // A Destination Update has no response (§12.17).
        self.pending = kind != Kind::DestinationUpdate;
        self.told.clone_from(&self.wanted);
        let items: Vec<Item> = [Item::MacAddress(mac)].into_iter().chain(items).collect();
        Some(message::emit(kind, &items))
    }
}

/// Items that change the state known to the router into the current one.
fn changes(old: Option<&Reachable>, new: &Reachable) -> Vec<Item> {
    let known: &[Prefix] = old.map_or(&[], |old| &old.networks);
    let network =
        |add, prefix: &Prefix| Item::Network { subnet: !prefix.is_host(), add, prefix: *prefix };
    let gone = known.iter().filter(|prefix| !new.networks.contains(prefix));
    let come = new.networks.iter().filter(|prefix| !known.contains(prefix));
    let networks = gone.map(|it| network(false, it)).chain(come.map(|it| network(true, it)));
    let metrics = (old.map(|old| old.metrics) != Some(new.metrics)).then(|| new.metrics.items());
    metrics.into_iter().flatten().chain(networks).collect()
}

impl Machine for Modem {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        match self.state {
            State::Listening => None,
            State::Initializing { until } | State::Ending { until } => Some((until, Wake::GiveUp)),
            State::Up { beat, .. } => {
                let silence = self.silence().map(|at| (at, Wake::GiveUp));
                units::earliest(silence, Some((beat, Wake::Heartbeat)))
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Some((_, why)) = self.poll_timeout().filter(|(at, _)| *at <= now) else { return };
        match (why, &mut self.state) {
            (Wake::Heartbeat, State::Up { beat, .. }) => {
                *beat = now + self.settings.heartbeat;
                self.send(Kind::Heartbeat, &[]);
            }
            (_, State::Up { .. }) => self.terminate(now, Status::TIMED_OUT),
            _ => self.close(),
        }
    }
}

/// Messages that a router may send in a session.
fn is_expected_in_session(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::SessionUpdate
            | Kind::SessionUpdateResponse
            | Kind::SessionTermination
            | Kind::DestinationUpResponse
            | Kind::DestinationDownResponse
            | Kind::DestinationAnnounce
            | Kind::LinkCharacteristicsRequest
            | Kind::Heartbeat
    )
}
