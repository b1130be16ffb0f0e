//! State machine of one connection, from the contact header to its end.

use core::time::Duration;
use std::collections::VecDeque;

use pep::work::cost;
use pep::work::inbox::Inbox;
use thiserror::Error;
use units::{Instant, Machine, earliest_timer};

use super::message::{CONTACT, ContactHeader, MessageError, TcpclMessage, TermReason};
use crate::BundleNodeId;

/// Keepalive interval that this side offers, in seconds.
pub const KEEPALIVE: u16 = 30;
/// Longest segment that this side accepts and sends, in bytes; each is acknowledged (RFC 9174 §5.2.3).
pub const SEGMENT: u64 = 64 << 10;
/// Time limit for the establishment of a session, and for the end of the connection after its termination.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest message without segment data, in bytes.
const LONGEST: usize = 8 << 10;
/// Unsent bytes above which no more of a bundle is requested from the owner.
const MOST_UNSENT: usize = 256 << 10;

/// Reason codes of refusals (RFC 9174 §9.4).
mod refusal {
    pub(super) const COMPLETED: u8 = 1;
    pub(super) const NO_RESOURCES: u8 = 2;
    pub(super) const NOT_ACCEPTABLE: u8 = 4;
    pub(super) const EXTENSION_FAILURE: u8 = 5;
}

/// The side that opened the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionRole {
    /// This node opened the connection.
    Active,
    /// The peer opened the connection.
    Passive,
}

/// Settings of this node in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// Node ID of this node.
    pub node: BundleNodeId,
    /// Largest bundle that it accepts, in bytes.
    pub largest: u64,
    /// `true` if sessions must use TLS (RFC 9174 §4.4).
    pub tls: bool,
}

/// Why a session has ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The peer has terminated it with this reason.
    #[error("the peer has ended the session ({0:?})")]
    ByPeer(TermReason),
    /// This node has terminated it.
    #[error("ended")]
    Ended,
    /// The connection was closed.
    #[error("the connection has ended")]
    Closed,
    /// The peer does not speak TCPCLv4.
    #[error("the peer does not speak TCPCLv4")]
    Foreign,
    /// The peer does not offer TLS, which this node requires.
    #[error("the peer offers no TLS")]
    NoTls,
    /// The peer has sent an invalid or unexpected message.
    #[error("{0}")]
    Violation(String),
    /// The peer has been silent for too long.
    #[error("the peer is silent")]
    Silent,
}

/// Event for the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// Once the output is sent, the connection becomes TLS, with the active side as client. The owner then
    /// calls [`TcpclConnection::handle_tls_established`]; nothing is read before.
    Tls,
    /// The peer has sent its node ID; [`None`] if that is empty or of an unsupported form. The owner calls
    /// [`TcpclConnection::accept`] or [`TcpclConnection::end`].
    Peer(Option<BundleNodeId>),
    /// A bundle of at most this length begins to arrive. The owner may call [`TcpclConnection::refuse`].
    BundleStarted(u64),
    /// More bytes of the bundle.
    Data(Vec<u8>),
    /// The bundle is complete. The owner calls [`TcpclConnection::stored`] or [`TcpclConnection::refuse`];
    /// nothing else is read before.
    BundleComplete,
    /// The peer has given up the transfer, or the bundle is too long.
    BundleAborted,
    /// The peer has stored the bundle that was sent.
    Stored,
    /// The peer refuses the bundle that was sent.
    Refused {
        /// `true` if it may be accepted later.
        passing: bool,
    },
    /// The session is over. The owner closes the connection once the output is sent.
    Finished(SessionEnd),
}

/// Why a [`TcpclConnection`] asks to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionWake {
    /// To send a keepalive, as nothing else was sent.
    Keepalive,
    /// The peer has been silent for too long.
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TcpclState {
    /// Waits for the peer's contact header.
    Contact,
    /// Waits for the owner to establish TLS.
    Securing,
    /// Waits for the peer's SESS_INIT.
    Init,
    /// Waits for the owner's decision about the peer.
    Asked,
    Open,
    /// This side has sent SESS_TERM.
    Ending,
    Over,
}

/// A bundle that is arriving.
#[derive(Debug)]
struct IncomingTransfer {
    id: u64,
    came: u64,
    /// Bytes left of the current segment, and its flags.
    left: u64,
    start: bool,
    end: bool,
    /// `true` if it was refused: its data is dropped.
    refused: bool,
}

/// A bundle that is being sent.
#[derive(Debug)]
struct OutgoingTransfer {
    id: u64,
    total: u64,
    sent: u64,
}

/// A TCPCLv4 session, which sends one bundle at a time.
///
/// Inputs: [`TcpclConnection::handle_bytes`], [`TcpclConnection::handle_close`], the time. Commands:
/// [`TcpclConnection::handle_tls_established`], [`TcpclConnection::accept`], [`TcpclConnection::send`] and
/// [`TcpclConnection::send_part`], [`TcpclConnection::stored`], [`TcpclConnection::refuse`],
/// [`TcpclConnection::end`]. After each, drain [`TcpclConnection::poll_event`], then
/// [`TcpclConnection::take_output`].
#[derive(Debug)]
pub struct TcpclConnection {
    role: ConnectionRole,
    config: SessionConfig,
    state: TcpclState,
    input: Inbox,
    output: Vec<u8>,
    events: VecDeque<SessionEvent>,
    incoming: Option<IncomingTransfer>,
    /// `true` while a complete bundle awaits the owner's decision.
    awaits_decision: bool,
    outgoing: Option<OutgoingTransfer>,
    next_id: u64,
    /// Longest segment and longest bundle that the peer accepts, in bytes.
    segment: u64,
    largest: u64,
    keepalive: Option<Duration>,
    began: Instant,
    heard: Instant,
    said: Instant,
}

impl TcpclConnection {
    /// Starts a session on a new connection.
    pub fn new(now: Instant, role: ConnectionRole, config: SessionConfig) -> Self {
        let mut session = Self {
            role,
            config,
            state: TcpclState::Contact,
            input: Inbox::default(),
            output: Vec::new(),
            events: VecDeque::new(),
            incoming: None,
            awaits_decision: false,
            outgoing: None,
            next_id: 0,
            segment: SEGMENT,
            largest: 0,
            keepalive: None,
            began: now,
            heard: now,
            said: now,
        };
        // The passive side sends its header after the peer's (RFC 9174 §4.1).
        if role == ConnectionRole::Active {
            session.say_contact();
        }
        session
    }

    fn say_contact(&mut self) {
        let header = ContactHeader { can_tls: self.config.tls, ..ContactHeader::OURS };
        self.output.extend(header.encode());
    }

    /// Handles bytes from the peer.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.state != TcpclState::Over && !bytes.is_empty() {
            self.heard = now;
            self.input.push(bytes);
            self.read(now);
        }
    }

    /// Returns `true` if more should be read from the connection, which is not while the owner has to
    /// decide.
    pub fn wants_bytes(&self) -> bool {
        !self.awaits_decision
            && !matches!(self.state, TcpclState::Securing | TcpclState::Asked | TcpclState::Over)
    }

    /// Handles the end of the connection.
    pub fn handle_close(&mut self) {
        self.over(SessionEnd::Closed);
    }

    /// Takes all bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the next event for the owner.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn input_held(&self) -> usize {
        self.input.len()
    }

    /// Returns `true` while the session is established.
    pub fn is_open(&self) -> bool {
        self.state == TcpclState::Open
    }

    fn say(&mut self, now: Instant, message: &TcpclMessage<'_>) {
        self.said = now;
        message.write(&mut self.output);
    }

    fn over(&mut self, end: SessionEnd) {
        if self.state == TcpclState::Over {
            return;
        }
        self.state = TcpclState::Over;
        // While the owner decides, it has the complete bundle already.
        if self.incoming.take().is_some_and(|transfer| !transfer.refused) && !self.awaits_decision {
            self.events.push_back(SessionEvent::BundleAborted);
        }
        self.outgoing = None;
        self.events.push_back(SessionEvent::Finished(end));
    }

    /// Ends the session because of a fault of the peer.
    fn fail(&mut self, now: Instant, end: SessionEnd) {
        if !matches!(self.state, TcpclState::Contact | TcpclState::Securing) {
            let reason = TermReason::Unknown;
            self.say(now, &TcpclMessage::SessTerm { reply: false, reason });
        }
        self.over(end);
    }

    /// Terminates the session with this reason. The peer may still acknowledge transfers.
    pub fn end(&mut self, now: Instant, reason: TermReason) {
        match self.state {
            TcpclState::Over | TcpclState::Ending => {}
            TcpclState::Contact | TcpclState::Securing => self.over(SessionEnd::Ended),
            TcpclState::Init | TcpclState::Asked | TcpclState::Open => {
                self.say(now, &TcpclMessage::SessTerm { reply: false, reason });
                (self.state, self.began) = (TcpclState::Ending, now);
                // The peer's SESS_TERM may be in the input already.
                self.read(now);
            }
        }
    }

    fn read(&mut self, now: Instant) {
        while self.wants_bytes() {
            // Moved out for a moment, because `step` borrows the session.
            let input = std::mem::take(&mut self.input);
            let step = self.step(now, input.unused());
            self.input = input;
            match step {
                Ok(Some(used)) => {
                    cost::count(used);
                    self.input.consume(used);
                }
                Ok(None) => return,
                Err(end) => return self.fail(now, end),
            }
        }
    }

    /// Handles the first item of the received bytes, and returns its length. [`None`] if it is incomplete.
    fn step(&mut self, now: Instant, input: &[u8]) -> Result<Option<usize>, SessionEnd> {
        if self.incoming.as_ref().is_some_and(|incoming| incoming.left > 0) {
            return Ok(self.data(now, input));
        }
        if self.state == TcpclState::Contact {
            let Some(header) = input.first_chunk() else { return Ok(None) };
            return self.contact(now, header).map(|()| Some(CONTACT));
        }
        match TcpclMessage::read(input) {
            Ok(Some((message, rest))) => {
                self.message(now, &message)?;
                Ok(Some(input.len() - rest.len()))
            }
            Ok(None) if input.len() > LONGEST => Err(SessionEnd::Violation("too long".into())),
            Ok(None) => Ok(None),
            Err(error) => {
                if let MessageError::Type(header) = error {
                    // Reason 1: message type unknown (RFC 9174 §9.7).
                    self.say(now, &TcpclMessage::MsgReject { reason: 1, header });
                }
                Err(SessionEnd::Violation(error.to_string()))
            }
        }
    }

    fn contact(&mut self, now: Instant, header: &[u8; CONTACT]) -> Result<(), SessionEnd> {
        let theirs = ContactHeader::read(header).ok_or(SessionEnd::Foreign)?;
        // Before the check, so that a peer of another version sees ours.
        if self.role == ConnectionRole::Passive {
            self.say_contact();
        }
        if theirs.version != ContactHeader::OURS.version {
            return Err(SessionEnd::Foreign);
        }
        if !self.config.tls {
            self.begin_init(now);
            return Ok(());
        }
        if !theirs.can_tls {
            // Without an agreement on TLS the session is terminated (RFC 9174 §4.3).
            let reason = TermReason::ContactFailure;
            self.say(now, &TcpclMessage::SessTerm { reply: false, reason });
            self.over(SessionEnd::NoTls);
            return Ok(());
        }
        self.state = TcpclState::Securing;
        self.events.push_back(SessionEvent::Tls);
        Ok(())
    }

    /// Records that the connection has become TLS.
    pub fn handle_tls_established(&mut self, now: Instant) {
        if self.state != TcpclState::Securing {
            return;
        }
        if !self.input.is_empty() {
            // These bytes were not authenticated: an attacker could have injected them.
            return self.over(SessionEnd::Violation("bytes before TLS".to_owned()));
        }
        self.begin_init(now);
    }

    fn begin_init(&mut self, now: Instant) {
        self.state = TcpclState::Init;
        if self.role == ConnectionRole::Active {
            self.say_init(now);
        }
    }

    fn say_init(&mut self, now: Instant) {
        let node = self.config.node.to_string();
        let init = TcpclMessage::SessInit {
            keepalive: KEEPALIVE,
            segment_mru: SEGMENT,
            transfer_mru: self.config.largest,
            node: &node,
            critical: false,
        };
        self.say(now, &init);
    }

    /// Accepts the peer as a node to exchange bundles with.
    pub fn accept(&mut self, now: Instant) {
        if self.state != TcpclState::Asked {
            return;
        }
        if self.role == ConnectionRole::Passive {
            self.say_init(now);
        }
        // Messages behind SESS_INIT have waited in the input.
        self.state = TcpclState::Open;
        self.read(now);
    }

    fn message(&mut self, now: Instant, message: &TcpclMessage<'_>) -> Result<(), SessionEnd> {
        match (self.state, message) {
            (TcpclState::Init, TcpclMessage::SessInit { .. }) => self.init(message),
            (_, TcpclMessage::SessTerm { reply, reason }) => {
                if !reply {
                    self.say(now, &TcpclMessage::SessTerm { reply: true, reason: *reason });
                }
                let ours = self.state == TcpclState::Ending;
                self.over(if ours { SessionEnd::Ended } else { SessionEnd::ByPeer(*reason) });
                Ok(())
            }
            (TcpclState::Open | TcpclState::Ending, TcpclMessage::XferSegment { .. }) => {
                self.segment(now, message)
            }
            (TcpclState::Open | TcpclState::Ending, TcpclMessage::XferAck { id, length, .. }) => {
                self.ack(*id, *length)
            }
            (TcpclState::Open | TcpclState::Ending, TcpclMessage::XferRefuse { reason, id }) => {
                self.handle_refusal(*reason, *id);
                Ok(())
            }
            (TcpclState::Open | TcpclState::Ending, TcpclMessage::Keepalive) => Ok(()),
            (_, TcpclMessage::MsgReject { header, .. }) => {
                Err(SessionEnd::Violation(format!("the peer rejects a message of type {header}")))
            }
            _ => Err(SessionEnd::Violation("an unexpected message".to_owned())),
        }
    }

    fn init(&mut self, message: &TcpclMessage<'_>) -> Result<(), SessionEnd> {
        let TcpclMessage::SessInit { keepalive, segment_mru, transfer_mru, node, critical } =
            message
        else {
            return Ok(());
        };
        if *critical {
            return Err(SessionEnd::Violation("an unsupported critical extension".to_owned()));
        }
        // Both sides use the shorter interval; 0 disables keepalives (RFC 9174 §4.7).
        let seconds = (*keepalive).min(KEEPALIVE);
        self.keepalive = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        self.segment = (*segment_mru).min(SEGMENT);
        self.largest = *transfer_mru;
        if self.segment == 0 {
            return Err(SessionEnd::Violation("the peer accepts no bytes".to_owned()));
        }
        self.state = TcpclState::Asked;
        self.events.push_back(SessionEvent::Peer(node.parse().ok()));
        Ok(())
    }

    /// Handles the header of a segment.
    fn segment(&mut self, now: Instant, message: &TcpclMessage<'_>) -> Result<(), SessionEnd> {
        let TcpclMessage::XferSegment { start, end, id, total, critical, length } = *message else {
            return Ok(());
        };
        let violation = |what: &str| Err(SessionEnd::Violation(what.to_owned()));
        if length > SEGMENT {
            return violation("segment too long");
        }
        if start {
            // Only a refused transfer may be given up by the start of another one.
            if self.incoming.as_ref().is_some_and(|incoming| !incoming.refused) {
                return violation("a transfer within another");
            }
            let most = total.unwrap_or(self.config.largest);
            let incoming =
                IncomingTransfer { id, came: 0, left: length, start, end, refused: false };
            self.incoming = Some(incoming);
            if critical {
                self.refuse_as(now, refusal::EXTENSION_FAILURE);
            } else if most > self.config.largest {
                self.refuse_as(now, refusal::NOT_ACCEPTABLE);
            } else {
                self.events.push_back(SessionEvent::BundleStarted(most));
            }
        } else {
            match &mut self.incoming {
                Some(incoming) if incoming.id == id => {
                    (incoming.left, incoming.start, incoming.end) = (length, start, end);
                }
                _ => return violation("a segment without a transfer"),
            }
        }
        // No data follows that would end the segment.
        if length == 0 {
            self.segment_ends(now);
        }
        Ok(())
    }

    /// Handles data of the current segment; returns its length.
    fn data(&mut self, now: Instant, input: &[u8]) -> Option<usize> {
        let incoming = self.incoming.as_mut()?;
        let count = usize::try_from(incoming.left).unwrap_or(usize::MAX).min(input.len());
        if count == 0 {
            return None;
        }
        incoming.left -= count as u64;
        incoming.came += count as u64;
        // The announced length may be missing or too small, so what has come is counted.
        if incoming.came > self.config.largest && !incoming.refused {
            self.events.push_back(SessionEvent::BundleAborted);
            self.refuse_as(now, refusal::NOT_ACCEPTABLE);
        }
        let incoming = self.incoming.as_mut()?;
        if !incoming.refused {
            self.events.push_back(SessionEvent::Data(input[..count].to_vec()));
        }
        if incoming.left == 0 {
            self.segment_ends(now);
        }
        Some(count)
    }

    /// Handles the end of a segment. The last one is acknowledged when the bundle is stored.
    fn segment_ends(&mut self, now: Instant) {
        let Some(incoming) = &self.incoming else { return };
        let IncomingTransfer { id, came, start, end, refused, .. } = *incoming;
        match (end, refused) {
            (true, true) => self.incoming = None,
            (true, false) => {
                self.awaits_decision = true;
                self.events.push_back(SessionEvent::BundleComplete);
            }
            (false, true) => {}
            (false, false) => {
                self.say(now, &TcpclMessage::XferAck { start, end, id, length: came });
            }
        }
    }

    /// Records that the complete bundle was stored.
    pub fn stored(&mut self, now: Instant) {
        if std::mem::take(&mut self.awaits_decision)
            && let Some(IncomingTransfer { id, came, start, end, .. }) = self.incoming.take()
        {
            self.say(now, &TcpclMessage::XferAck { start, end, id, length: came });
        }
        self.read(now);
    }

    /// Refuses the arriving bundle, for now (`passing`) or for good.
    pub fn refuse(&mut self, now: Instant, passing: bool) {
        let why = if passing { refusal::NO_RESOURCES } else { refusal::NOT_ACCEPTABLE };
        self.refuse_as(now, why);
        if std::mem::take(&mut self.awaits_decision) {
            self.incoming = None;
        }
        self.read(now);
    }

    fn refuse_as(&mut self, now: Instant, reason: u8) {
        if let Some(incoming) = &mut self.incoming
            && !std::mem::replace(&mut incoming.refused, true)
        {
            let id = incoming.id;
            self.say(now, &TcpclMessage::XferRefuse { reason, id });
        }
    }

    /// Largest bundle that the peer accepts, in bytes; 0 until it is known.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Returns `true` if a bundle may be sent now.
    pub fn can_send(&self) -> bool {
        self.state == TcpclState::Open && self.outgoing.is_none()
    }

    /// Starts to send a bundle of this length, whose bytes are passed to [`Self::send_part`]. Returns
    /// `false` if the peer accepts no bundle of this length.
    pub fn send(&mut self, length: u64) -> bool {
        debug_assert!(self.can_send());
        if length > self.largest || length == 0 {
            return false;
        }
        self.outgoing = Some(OutgoingTransfer { id: self.next_id, total: length, sent: 0 });
        self.next_id += 1;
        true
    }

    /// Offset and number of the bytes to pass to [`Self::send_part`] now; [`None`] if nothing is being
    /// sent, or enough is waiting.
    pub fn wanted_range(&self) -> Option<(u64, u64)> {
        let outgoing = self.outgoing.as_ref()?;
        let left = outgoing.total - outgoing.sent;
        (left > 0 && self.output.len() < MOST_UNSENT && self.state != TcpclState::Over)
            .then_some((outgoing.sent, left.min(self.segment)))
    }

    /// Sends the bytes that [`Self::wanted_range`] asked for.
    pub fn send_part(&mut self, now: Instant, part: &[u8]) {
        let Some(outgoing) = &mut self.outgoing else { return };
        let length = part.len() as u64;
        debug_assert!(length <= outgoing.total - outgoing.sent);
        let start = outgoing.sent == 0;
        outgoing.sent += length;
        let end = outgoing.sent == outgoing.total;
        let id = outgoing.id;
        let total = Some(outgoing.total);
        self.say(
            now,
            &TcpclMessage::XferSegment { start, end, id, total, critical: false, length },
        );
        self.output.extend_from_slice(part);
    }

    /// Handles an acknowledgement. Its flags should be those of the segment (RFC 9174 §5.2.3), but some
    /// implementations send none, and the length suffices.
    fn ack(&mut self, id: u64, length: u64) -> Result<(), SessionEnd> {
        let Some(outgoing) = &self.outgoing else { return Ok(()) };
        // It may be late, for a transfer that the peer has refused.
        if outgoing.id != id {
            return Ok(());
        }
        if length > outgoing.sent {
            return Err(SessionEnd::Violation("bytes acknowledged that were not sent".to_owned()));
        }
        if length == outgoing.total {
            self.outgoing = None;
            self.events.push_back(SessionEvent::Stored);
        }
        Ok(())
    }

    fn handle_refusal(&mut self, reason: u8, id: u64) {
        // No further segment follows: the next transfer begins instead (RFC 9174 §5.2.4).
        if self.outgoing.take_if(|outgoing| outgoing.id == id).is_none() {
            return;
        }
        self.events.push_back(match reason {
            refusal::COMPLETED => SessionEvent::Stored,
            refusal::NOT_ACCEPTABLE => SessionEvent::Refused { passing: false },
            _ => SessionEvent::Refused { passing: true },
        });
    }

    /// Time at which the peer counts as gone.
    fn silence_deadline(&self) -> Option<Instant> {
        match self.state {
            TcpclState::Over => None,
            TcpclState::Contact
            | TcpclState::Securing
            | TcpclState::Init
            | TcpclState::Asked
            | TcpclState::Ending => Some(self.began + SETUP_TIMEOUT),
            // Nothing is read while the owner decides about a bundle, so silence means nothing.
            TcpclState::Open if self.awaits_decision => None,
            TcpclState::Open => self.keepalive.map(|every| self.heard + 2 * every),
        }
    }

    fn keepalive_at(&self) -> Option<Instant> {
        let every = self.keepalive.filter(|_| self.state == TcpclState::Open)?;
        Some(self.said + every / 2)
    }
}

impl Machine for TcpclConnection {
    type Wake = SessionWake;

    fn poll_timeout(&self) -> Option<(Instant, SessionWake)> {
        earliest_timer([
            (self.silence_deadline(), SessionWake::Silence),
            (self.keepalive_at(), SessionWake::Keepalive),
        ])
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.silence_deadline().is_some_and(|at| at <= now) {
            let ended = self.state == TcpclState::Ending;
            self.over(if ended { SessionEnd::Ended } else { SessionEnd::Silent });
        }
        if self.keepalive_at().is_some_and(|at| at <= now) {
            self.say(now, &TcpclMessage::Keepalive);
        }
    }
}
