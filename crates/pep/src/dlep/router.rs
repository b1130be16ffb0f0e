//! The router's side of a DLEP session (RFC 8175 §7): discovers a modem, keeps a session with it, and holds
//! what it reports. A state machine without clock and sockets (`docs/state-machines.md`).
//!
//! - Inputs: [`Router::handle_offer`], [`Router::handle_connected`], [`Router::handle_bytes`],
//!   [`Router::handle_closed`], the time; and the capacity to request: [`Router::request`].
//! - Outputs: [`Router::poll_output`], to be carried out in order; then [`Router::poll_report`].
//!
//! Both reply size and memory are bounded: the reply to received bytes is at most half as large again, and
//! at most one message is buffered.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use units::{Instant, Machine};

use super::item::{DataItem, LinkAddress, code};
use super::message::{self, DlepMessage, MessageInbox, MessageKind};
use super::request::{CapacityRequest, LATER, RequestSchedule};
use super::{DlepStatusCode, InformationBase, PORT};

/// Our Peer Type item.
const PEER_TYPE: &str = "skyhop";
/// Discovery interval. §7.1 requires at least one second.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before the first discovery after losing a modem. It doubles up to `LONGEST_DELAY` while sessions
/// end soon, so that a modem that refuses is not asked every second.
const RECOVERY_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// A session that lasts this long did not end soon.
const LASTING: Duration = Duration::from_secs(60);
/// Time limit for the connection, and for the first answer on it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum connection points to try.
const MOST_POINTS: usize = 8;
/// Shortest heartbeat interval assumed: a modem that promises more frequent ones may still be late.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// An action for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DlepOutput {
    /// Send this signal to all modems on the interface.
    Signal(Vec<u8>),
    /// Open a connection; close any other.
    Connect(SocketAddr),
    /// Send this on the connection.
    Send(Vec<u8>),
    /// Close the connection once everything is sent, or stop opening it.
    Close,
}

/// Why a DLEP state machine must be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// To look for a modem.
    Search,
    /// To give up waiting for an answer.
    GiveUp,
    /// To send a heartbeat.
    Heartbeat,
    /// To ask for capacity.
    Request,
}

/// Phase of the session (§7, Figure 3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DlepPhase {
    /// Peer Discovery, or waiting to retry a configured modem.
    #[default]
    Looking,
    /// Opening the connection.
    Connecting,
    /// Session Initialization.
    Initializing,
    /// In-Session.
    Up,
    /// Session Termination.
    Ending,
    /// Stopped for good.
    Stopped,
}

/// Snapshot of the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DlepReport {
    /// Phase that the session is in.
    pub phase: DlepPhase,
    /// When that phase began.
    pub since: Instant,
    /// The modem's address, once connected.
    pub modem: Option<SocketAddr>,
    /// The modem's own description, while a session is up.
    pub peer_type: String,
    /// When the reported rates expire if the modem stays silent.
    pub until: Option<Instant>,
    /// When a rate was reported last.
    pub rate_at: Option<Instant>,
    /// Rates and destinations, valid until then.
    pub base: Arc<InformationBase>,
    /// Number of sessions so far.
    pub sessions: u64,
    /// Why there is no session, or why the last one ended.
    pub trouble: Option<String>,
}

impl DlepPhase {
    /// One-word name of the phase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Looking => "looking",
            Self::Connecting => "connecting",
            Self::Initializing => "initializing",
            Self::Up => "up",
            Self::Ending => "ending",
            Self::Stopped => "stopped",
        }
    }
}

#[derive(Debug)]
enum RouterSessionState {
    Looking { next: Instant },
    Connecting { until: Instant },
    Initializing { until: Instant },
    Up { heard: Instant, interval: Duration, beat: Instant },
    Ending { until: Instant },
    Stopped,
}

/// State machine of the router.
#[derive(Debug)]
pub struct Router {
    /// The configured modem; `None` to use discovery.
    configured: Option<SocketAddr>,
    heartbeat: Duration,
    state: RouterSessionState,
    stopping: bool,
    /// Start of the session; `None` without one.
    up_since: Option<Instant>,
    /// Delay before the next discovery after a session ends.
    delay: Duration,
    /// Connection points still to try, in order.
    points: VecDeque<SocketAddr>,
    inbox: MessageInbox,
    requests: RequestSchedule,
    outputs: VecDeque<DlepOutput>,
    report: DlepReport,
    changed: bool,
}

impl Router {
    /// Starts looking for a modem at `now`: at `configured`, or by discovery.
    pub fn new(now: Instant, configured: Option<SocketAddr>, heartbeat: Duration) -> Self {
        Self {
            configured,
            heartbeat,
            state: RouterSessionState::Looking { next: now },
            stopping: false,
            up_since: None,
            delay: RECOVERY_DELAY,
            points: VecDeque::new(),
            inbox: MessageInbox::default(),
            requests: RequestSchedule::default(),
            outputs: VecDeque::new(),
            report: DlepReport { since: now, ..DlepReport::default() },
            changed: true,
        }
    }

    /// The next action.
    pub fn poll_output(&mut self) -> Option<DlepOutput> {
        self.outputs.pop_front()
    }

    /// The latest report, if it changed.
    pub fn poll_report(&mut self) -> Option<DlepReport> {
        std::mem::take(&mut self.changed).then(|| self.report.clone())
    }

    /// Sets the request for capacity, for this session and later ones. [`Machine::handle_timeout`] sends
    /// it: at once if it changes from or to a rate of 0 or if foreseen data has arrived, after 100 ms for
    /// other changes, and again after 1 s if it stays the same. It is ignored unless exactly one
    /// destination is up.
    pub fn request(&mut self, wanted: CapacityRequest) {
        self.requests.set(wanted);
    }

    /// Returns `true` while Peer Offers are wanted.
    pub fn wants_offers(&self) -> bool {
        self.configured.is_none() && matches!(self.state, RouterSessionState::Looking { .. })
    }

    /// Bytes buffered from the connection.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn held(&self) -> usize {
        self.inbox.len()
    }

    /// Handles a datagram from `from` whose TTL has been checked (§12.1).
    pub fn handle_offer(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        if !self.wants_offers() {
            return;
        }
        let Some(items) = message::offer(datagram) else { return };
        let points: Vec<_> = items.iter().filter_map(|item| connection_point(item, from)).collect();
        let open = points.iter().filter(|(_, tls)| !tls).map(|(point, _)| *point);
        self.points = open.take(MOST_POINTS).collect();
        if points.is_empty() {
            // §12.4: without a connection point, the source address and the default port.
            self.points = [at(from.ip(), PORT, from)].into();
        }
        if self.points.is_empty() {
            return self.record_trouble(&format!("{} accepts only TLS sessions", from.ip()));
        }
        self.connect(now);
    }

    /// Connects to the next connection point, or returns to discovery.
    fn connect(&mut self, now: Instant) {
        let Some(point) = self.points.pop_front() else {
            return self.look_for_modem(now, DISCOVERY_INTERVAL);
        };
        self.report.modem = Some(point);
        self.outputs.push_back(DlepOutput::Connect(point));
        self.enter(
            now,
            DlepPhase::Connecting,
            RouterSessionState::Connecting { until: now + RESPONSE_TIMEOUT },
        );
    }

    /// Handles a connection that was opened.
    pub fn handle_connected(&mut self, now: Instant) {
        if !matches!(self.state, RouterSessionState::Connecting { .. }) {
            return;
        }
        // §12.5
        let items =
            [DataItem::HeartbeatInterval(self.heartbeat), DataItem::PeerType(PEER_TYPE.to_owned())];
        self.send(MessageKind::SessionInitialization, &items);
        self.enter(
            now,
            DlepPhase::Initializing,
            RouterSessionState::Initializing { until: now + RESPONSE_TIMEOUT },
        );
    }

    /// Handles a connection that has ended or could not be opened.
    pub fn handle_closed(&mut self, now: Instant, why: &str) {
        match self.state {
            RouterSessionState::Looking { .. } | RouterSessionState::Stopped => return,
            RouterSessionState::Connecting { .. } => {
                self.record_trouble(&format!("cannot connect: {why}"));
                return self.connect(now);
            }
            RouterSessionState::Ending { .. } => {}
            RouterSessionState::Initializing { .. } | RouterSessionState::Up { .. } => {
                self.record_trouble(&format!("the connection ended: {why}"));
            }
        }
        self.reset(now);
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

    fn is_connected(&self) -> bool {
        matches!(
            self.state,
            RouterSessionState::Initializing { .. }
                | RouterSessionState::Up { .. }
                | RouterSessionState::Ending { .. }
        )
    }

    fn handle_message(&mut self, now: Instant, message: &[u8]) {
        let is_expected: fn(MessageKind) -> bool = match self.state {
            RouterSessionState::Initializing { .. } => is_expected_first,
            RouterSessionState::Up { .. } => is_expected_in_session,
            // §7.4: everything else is ignored.
            _ => |kind| kind == MessageKind::SessionTerminationResponse,
        };
        match (DlepMessage::parse(message, is_expected), &mut self.state) {
            (Ok(message), RouterSessionState::Ending { .. }) => self.apply(now, &message),
            (Err(_), RouterSessionState::Ending { .. }) => {}
            (Err(status), _) => self.terminate(now, status),
            (Ok(message), state) => {
                // §7.3.1: any message counts as a heartbeat.
                if let RouterSessionState::Up { heard, .. } = state {
                    *heard = now;
                }
                if message.metric(code::CURRENT_DATA_RATE_TRANSMIT).is_some() {
                    self.report.rate_at = Some(now);
                }
                self.apply(now, &message);
                self.report.until = self.silence();
                self.changed = true;
            }
        }
    }

    fn apply(&mut self, now: Instant, message: &DlepMessage) {
        let success = DataItem::Status(DlepStatusCode::SUCCESS, String::new());
        match (message.kind, message.mac()) {
            (MessageKind::SessionInitializationResponse, _) => self.begin(now, message),
            (MessageKind::SessionTermination, _) => self.handle_termination(now, message),
            (MessageKind::SessionTerminationResponse, _) => self.reset(now),
            (MessageKind::SessionUpdate, _) => {
                self.base().update_session(message);
                self.send(MessageKind::SessionUpdateResponse, &[success]);
            }
            (MessageKind::DestinationUp, Some(mac)) => {
                let taken = self.base().up(mac, message);
                let status =
                    if taken { DlepStatusCode::SUCCESS } else { DlepStatusCode::NOT_INTERESTED };
                let items = [DataItem::MacAddress(mac), DataItem::Status(status, String::new())];
                self.send(MessageKind::DestinationUpResponse, &items);
            }
            (MessageKind::DestinationDown, Some(mac)) if self.base().down(mac) => {
                self.send(
                    MessageKind::DestinationDownResponse,
                    &[DataItem::MacAddress(mac), success],
                );
            }
            (MessageKind::DestinationUpdate, Some(mac)) if self.base().update(mac, message) => {}
            (MessageKind::LinkCharacteristicsResponse, Some(mac)) => {
                self.handle_response(now, mac, message);
            }
            (MessageKind::DestinationDown | MessageKind::DestinationUpdate, _) => {
                self.terminate(now, DlepStatusCode::INVALID_DESTINATION);
            }
            _ => {}
        }
    }

    /// Handles the end of the session by the modem (§12.9).
    fn handle_termination(&mut self, now: Instant, message: &DlepMessage) {
        let (status, text) = message.status().unwrap_or((DlepStatusCode::SUCCESS, ""));
        self.record_trouble(&format!("the modem ended the session: {} {text}", status.phrase()));
        self.send(MessageKind::SessionTerminationResponse, &[]);
        self.reset(now);
    }

    /// Handles the modem's response to a request (§12.19): the metrics as they are now.
    fn handle_response(&mut self, now: Instant, mac: LinkAddress, message: &DlepMessage) {
        let refused = message.status().is_some_and(|(status, _)| status != DlepStatusCode::SUCCESS);
        if !self.requests.answered(refused) {
            return self.terminate(now, DlepStatusCode::UNEXPECTED_MESSAGE);
        }
        // The destination may have become unreachable meanwhile.
        self.base().update(mac, message);
    }

    /// Sends the request that is due (§12.18).
    fn send_request(&mut self, now: Instant) {
        let Some(mac) = self.report.base.only_up() else { return };
        let CapacityRequest { rate, is_foreseen } = self.requests.ask(now);
        let rate = DataItem::Metric(code::CURRENT_DATA_RATE_TRANSMIT, rate.bits_per_second());
        let latency = u64::try_from(LATER.as_micros()).unwrap_or(u64::MAX);
        let mut items = vec![DataItem::MacAddress(mac), rate];
        items.extend(is_foreseen.then_some(DataItem::Metric(code::LATENCY, latency)));
        self.send(MessageKind::LinkCharacteristicsRequest, &items);
    }

    /// Time of the next request.
    fn request_at(&self) -> Option<Instant> {
        self.requests.due().filter(|_| self.report.base.only_up().is_some())
    }

    /// Handles the modem's Session Initialization Response (§12.6).
    fn begin(&mut self, now: Instant, message: &DlepMessage) {
        let status = message.status().map_or(DlepStatusCode::SUCCESS, |(status, _)| status);
        if status != DlepStatusCode::SUCCESS {
            return self.terminate(now, status);
        }
        let mut interval = SHORTEST_INTERVAL;
        for item in &message.items {
            match item {
                DataItem::HeartbeatInterval(theirs) => interval = interval.max(*theirs),
                DataItem::PeerType(text) => self.report.peer_type.clone_from(text),
                _ => {}
            }
        }
        self.base().update_session(message);
        self.report.sessions += 1;
        self.up_since = Some(now);
        self.report.trouble = None;
        let beat = now + self.heartbeat;
        self.enter(now, DlepPhase::Up, RouterSessionState::Up { heard: now, interval, beat });
    }

    /// Terminates the session with `status`.
    fn terminate(&mut self, now: Instant, status: DlepStatusCode) {
        self.record_trouble(&format!("we ended the session: {}", status.phrase()));
        self.send(MessageKind::SessionTermination, &[DataItem::Status(status, String::new())]);
        self.forget();
        // §7.4
        self.enter(
            now,
            DlepPhase::Ending,
            RouterSessionState::Ending { until: now + 4 * self.heartbeat },
        );
    }

    /// Drops the connection and looks for a modem again (§7.5).
    fn reset(&mut self, now: Instant) {
        self.outputs.push_back(DlepOutput::Close);
        // Only a session that lasted shows that the modem accepts us.
        if self.up_since.take().is_some_and(|since| now.saturating_since(since) >= LASTING) {
            self.delay = RECOVERY_DELAY;
        }
        let pause = self.delay;
        self.delay = LONGEST_DELAY.min(pause * 2);
        self.look_for_modem(now, pause);
    }

    fn look_for_modem(&mut self, now: Instant, pause: Duration) {
        self.forget();
        self.inbox = MessageInbox::default();
        self.points.clear();
        self.report.modem = None;
        match self.stopping {
            true => self.enter(now, DlepPhase::Stopped, RouterSessionState::Stopped),
            false => self.enter(
                now,
                DlepPhase::Looking,
                RouterSessionState::Looking { next: now + pause },
            ),
        }
    }

    /// Drops the modem's reports, which are valid for its session only.
    fn forget(&mut self) {
        self.report.base = Arc::default();
        (self.report.until, self.report.rate_at) = (None, None);
        self.requests.forget();
        self.report.peer_type.clear();
    }

    /// Ends the session in an orderly way; the router is done when its phase is [`DlepPhase::Stopped`].
    pub fn stop(&mut self, now: Instant) {
        self.stopping = true;
        match self.state {
            RouterSessionState::Initializing { .. } | RouterSessionState::Up { .. } => {
                self.terminate(now, DlepStatusCode::SHUTTING_DOWN);
            }
            RouterSessionState::Ending { .. } | RouterSessionState::Stopped => {}
            RouterSessionState::Looking { .. } | RouterSessionState::Connecting { .. } => {
                self.reset(now);
            }
        }
    }

    fn search(&mut self, now: Instant) {
        match self.configured {
            Some(modem) => {
                self.points = [modem].into();
                self.connect(now);
            }
            None => {
                let signal = message::discovery(&[DataItem::PeerType(PEER_TYPE.to_owned())]);
                self.outputs.push_back(DlepOutput::Signal(signal));
                self.state = RouterSessionState::Looking { next: now + DISCOVERY_INTERVAL };
            }
        }
    }

    /// Time at which a silent modem counts as lost: half an interval after its second missed heartbeat
    /// (§7.3.1: not before two).
    fn silence(&self) -> Option<Instant> {
        match self.state {
            RouterSessionState::Up { heard, interval, .. } => Some(heard + interval * 5 / 2),
            _ => None,
        }
    }

    fn base(&mut self) -> &mut InformationBase {
        // Copies the base if a report that was handed out still shares it.
        Arc::make_mut(&mut self.report.base)
    }

    fn send(&mut self, kind: MessageKind, items: &[DataItem]) {
        self.outputs.push_back(DlepOutput::Send(message::emit(kind, items)));
    }

    /// Records why there is no session.
    pub fn record_trouble(&mut self, trouble: &str) {
        self.report.trouble = Some(trouble.trim_end().to_owned());
        self.changed = true;
    }

    fn enter(&mut self, now: Instant, phase: DlepPhase, state: RouterSessionState) {
        self.state = state;
        (self.report.phase, self.report.since) = (phase, now);
        self.changed = true;
    }
}

impl Machine for Router {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        match self.state {
            RouterSessionState::Looking { next } => Some((next, Wake::Search)),
            RouterSessionState::Connecting { until }
            | RouterSessionState::Initializing { until }
            | RouterSessionState::Ending { until } => Some((until, Wake::GiveUp)),
            RouterSessionState::Up { beat, .. } => {
                let silence = self.silence().map(|at| (at, Wake::GiveUp));
                let request = self.request_at().map(|at| (at, Wake::Request));
                units::earliest(units::earliest(silence, Some((beat, Wake::Heartbeat))), request)
            }
            RouterSessionState::Stopped => None,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Some((_, why)) = self.poll_timeout().filter(|(at, _)| *at <= now) else { return };
        match (why, &mut self.state) {
            (Wake::Search, _) => self.search(now),
            (Wake::Heartbeat, RouterSessionState::Up { beat, .. }) => {
                *beat = now + self.heartbeat;
                self.send(MessageKind::Heartbeat, &[]);
            }
            (Wake::Request, RouterSessionState::Up { .. }) => self.send_request(now),
            (_, RouterSessionState::Up { .. }) => self.terminate(now, DlepStatusCode::TIMED_OUT),
            (_, RouterSessionState::Connecting { .. }) => {
                self.outputs.push_back(DlepOutput::Close);
                self.handle_closed(now, "no answer");
            }
            _ => self.handle_closed(now, "no answer"),
        }
    }
}

/// Messages that may answer a Session Initialization (§7.2).
fn is_expected_first(kind: MessageKind) -> bool {
    matches!(kind, MessageKind::SessionInitializationResponse | MessageKind::SessionTermination)
}

/// Messages that a modem may send in a session; the last one only as a response.
fn is_expected_in_session(kind: MessageKind) -> bool {
    matches!(
        kind,
        MessageKind::SessionUpdate
            | MessageKind::SessionTermination
            | MessageKind::DestinationUp
            | MessageKind::DestinationDown
            | MessageKind::DestinationUpdate
            | MessageKind::Heartbeat
            | MessageKind::LinkCharacteristicsResponse
    )
}

/// The address at which a modem that offered from `from` accepts sessions; the second value is `true` for
/// TLS.
fn connection_point(item: &DataItem, from: SocketAddr) -> Option<(SocketAddr, bool)> {
    let DataItem::ConnectionPoint { address, port, tls } = item else { return None };
    let usable = !address.is_unspecified() && !address.is_multicast() && *port != Some(0);
    usable.then(|| (at(*address, port.unwrap_or(PORT), from), *tls))
}

/// Builds an address with its scope: a link-local one is on the same link as `from`.
fn at(address: IpAddr, port: u16, from: SocketAddr) -> SocketAddr {
    let mut point = SocketAddr::new(address, port);
    if let (SocketAddr::V6(v6), SocketAddr::V6(from)) = (&mut point, from)
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(from.scope_id());
    }
    point
}
