//! One connection, from the contact header to its end.

use core::time::Duration;
use std::collections::VecDeque;

use pep::cost;
use pep::inbox::Inbox;
use thiserror::Error;
use units::{Instant, Machine, earliest_timer};

use super::message::{CONTACT, ContactHeader, Message, MessageError, TermReason};
use crate::Node;

/// What we offer: the longest time between messages, in seconds.
pub const KEEPALIVE: u16 = 30;
/// Segments that we take and send, in bytes: an acknowledgement each (RFC 9174 §5.2.3).
pub const SEGMENT: u64 = 64 << 10;
/// Time until the session is established, and from the end of it to that of the connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest message without the data of its segment.
const LONGEST: usize = 8 << 10;
/// Bytes that wait to be sent before we take no more of a bundle from the owner.
const AHEAD: usize = 256 << 10;

/// Reasons of refusals (RFC 9174 §9.4).
mod refusal {
    pub(super) const COMPLETED: u8 = 1;
    pub(super) const NO_RESOURCES: u8 = 2;
    pub(super) const NOT_ACCEPTABLE: u8 = 4;
    pub(super) const EXTENSION_FAILURE: u8 = 5;
}

/// Who has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// We did.
    Active,
    /// The peer did.
    Passive,
}

/// What a session says of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// This node.
    pub node: Node,
    /// The largest bundle that it takes, in bytes.
    pub largest: u64,
    /// Whether the session must be within TLS (RFC 9174 §4.4).
    pub tls: bool,
}

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The peer has ended it, with this reason.
    #[error("the peer has ended it ({0:?})")]
    ByPeer(TermReason),
    /// We have.
    #[error("ended")]
    Ended,
    /// The connection ended.
    #[error("the connection has ended")]
    Closed,
    /// It is no TCPCLv4.
    #[error("the peer does not speak TCPCLv4")]
    Foreign,
    /// The peer offers no TLS, which this node requires.
    #[error("the peer offers no TLS")]
    NoTls,
    /// The peer says something that is no message, or not now.
    #[error("{0}")]
    Violation(String),
    /// The peer is silent.
    #[error("the peer is silent")]
    Silent,
}

/// What a session tells its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// Once the output is sent, the connection becomes TLS, of which the active side is the client. The
    /// owner calls [`Session::secured`]; nothing is read before.
    Tls,
    /// The peer has said who it is. The owner calls [`Session::accept`], or [`Session::end`].
    Peer(Option<Node>),
    /// A bundle of this length at most begins to come. The owner may call [`Session::refuse`].
    Begins(u64),
    /// More of it.
    Data(Vec<u8>),
    /// It is whole. The owner calls [`Session::stored`] or [`Session::refuse`]; nothing else is read
    /// before.
    Whole,
    /// The peer has given it up.
    Broken,
    /// The bundle that we send is stored by the peer.
    Stored,
    /// The peer does not take it: for now, or never.
    Refused {
        /// Whether it may be sent again later.
        passing: bool,
    },
    /// Nothing more comes. Close the connection once all is sent.
    Over(SessionEnd),
}

/// Why a [`Session`] wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionWake {
    /// To send a keepalive.
    Keepalive,
    /// The peer has been silent for too long.
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for the contact header.
    Contact,
    /// The owner makes the connection TLS.
    Securing,
    /// Waits for the peer's parameters.
    Init,
    /// The owner decides on the peer.
    Asked,
    Open,
    /// We have said that we end.
    Ending,
    Over,
}

/// A bundle that is coming.
#[derive(Debug)]
struct Incoming {
    id: u64,
    came: u64,
    /// Of the segment that is coming: bytes left, and its flags.
    left: u64,
    start: bool,
    end: bool,
    /// It was refused: its data is not kept.
    refused: bool,
}

/// A bundle that we send.
#[derive(Debug)]
struct Outgoing {
    id: u64,
    total: u64,
    sent: u64,
}

/// A TCPCLv4 session, which sends one bundle at a time.
///
/// Inputs: [`Session::handle_bytes`], [`Session::handle_close`], the time. Commands:
/// [`Session::secured`], [`Session::accept`], [`Session::send`] and [`Session::send_part`], [`Session::stored`],
/// [`Session::refuse`], [`Session::end`]. After each, drain [`Session::poll_event`], then
/// [`Session::take_output`].
#[derive(Debug)]
pub struct Session {
    role: Role,
    config: SessionConfig,
    state: State,
    input: Inbox,
    output: Vec<u8>,
    events: VecDeque<SessionEvent>,
    incoming: Option<Incoming>,
    /// A whole bundle waits for the owner's word.
    judging: bool,
    outgoing: Option<Outgoing>,
    next_id: u64,
    /// What the peer takes, in bytes.
    segment: u64,
    largest: u64,
    keepalive: Option<Duration>,
    began: Instant,
    heard: Instant,
    said: Instant,
}

impl Session {
    /// A session on a new connection.
    pub fn new(now: Instant, role: Role, config: SessionConfig) -> Self {
        let mut session = Self {
            role,
            config,
            state: State::Contact,
            input: Inbox::default(),
            output: Vec::new(),
            events: VecDeque::new(),
            incoming: None,
            judging: false,
            outgoing: None,
            next_id: 0,
            segment: SEGMENT,
            largest: 0,
            keepalive: None,
            began: now,
            heard: now,
            said: now,
        };
        // The passive side answers (RFC 9174 §4.1).
        if role == Role::Active {
            session.say_contact();
        }
        session
    }

    fn say_contact(&mut self) {
        let header = ContactHeader { can_tls: self.config.tls, ..ContactHeader::OURS };
        self.output.extend(header.encode());
    }

    /// Bytes have come from the peer.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.state != State::Over && !bytes.is_empty() {
            self.heard = now;
            self.input.push(bytes);
            self.read(now);
        }
    }

    /// Whether more should be read from the connection: not while a bundle or the peer is judged.
    pub fn wants_bytes(&self) -> bool {
        !self.judging && !matches!(self.state, State::Securing | State::Asked | State::Over)
    }

    /// The peer has closed the connection.
    pub fn handle_close(&mut self) {
        self.over(SessionEnd::Closed);
    }

    /// Bytes to send, all that there are.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn input_held(&self) -> usize {
        self.input.len()
    }

    /// Whether the session is established.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    fn say(&mut self, now: Instant, message: &Message<'_>) {
        self.said = now;
        message.write(&mut self.output);
    }

    fn over(&mut self, end: SessionEnd) {
        if self.state == State::Over {
            return;
        }
        self.state = State::Over;
        if self.incoming.take().is_some_and(|it| !it.refused) && !self.judging {
            self.events.push_back(SessionEvent::Broken);
        }
        self.outgoing = None;
        self.events.push_back(SessionEvent::Over(end));
    }

    /// Ends the session because of the peer's fault.
    fn fail(&mut self, now: Instant, end: SessionEnd) {
        if !matches!(self.state, State::Contact | State::Securing) {
            let reason = TermReason::Unknown;
            self.say(now, &Message::SessTerm { reply: false, reason });
        }
        self.over(end);
    }

    /// Ends the session, for this reason. The peer may still acknowledge.
    pub fn end(&mut self, now: Instant, reason: TermReason) {
        match self.state {
            State::Over | State::Ending => {}
            State::Contact | State::Securing => self.over(SessionEnd::Ended),
            State::Init | State::Asked | State::Open => {
                self.say(now, &Message::SessTerm { reply: false, reason });
                (self.state, self.began) = (State::Ending, now);
                // Its answer may be here already.
                self.read(now);
            }
        }
    }

    fn read(&mut self, now: Instant) {
        while self.wants_bytes() {
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

    /// Takes one thing from the front of what has come. [`None`] if it is not whole yet.
    fn step(&mut self, now: Instant, input: &[u8]) -> Result<Option<usize>, SessionEnd> {
        if self.incoming.as_ref().is_some_and(|incoming| incoming.left > 0) {
            return Ok(self.data(now, input));
        }
        if self.state == State::Contact {
            let Some(header) = input.first_chunk() else { return Ok(None) };
            return self.contact(now, header).map(|()| Some(CONTACT));
        }
        match Message::read(input) {
            Ok(Some((message, rest))) => {
                self.message(now, &message)?;
                Ok(Some(input.len() - rest.len()))
            }
            Ok(None) if input.len() > LONGEST => Err(SessionEnd::Violation("too long".into())),
            Ok(None) => Ok(None),
            Err(error) => {
                if let MessageError::Type(header) = error {
                    // Unknown type (RFC 9174 §9.7).
                    self.say(now, &Message::MsgReject { reason: 1, header });
                }
                Err(SessionEnd::Violation(error.to_string()))
            }
        }
    }

    fn contact(&mut self, now: Instant, header: &[u8; CONTACT]) -> Result<(), SessionEnd> {
        let theirs = ContactHeader::read(header).ok_or(SessionEnd::Foreign)?;
        if self.role == Role::Passive {
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
            // RFC 9174 §4.3.
            let reason = TermReason::ContactFailure;
            self.say(now, &Message::SessTerm { reply: false, reason });
            self.over(SessionEnd::NoTls);
            return Ok(());
        }
        self.state = State::Securing;
        self.events.push_back(SessionEvent::Tls);
        Ok(())
    }

    /// The connection has become TLS.
    pub fn secured(&mut self, now: Instant) {
        if self.state != State::Securing {
            return;
        }
        if !self.input.is_empty() {
            // It came before TLS, from anybody.
            return self.over(SessionEnd::Violation("bytes before TLS".to_owned()));
        }
        self.begin_init(now);
    }

    fn begin_init(&mut self, now: Instant) {
        self.state = State::Init;
        if self.role == Role::Active {
            self.say_init(now);
        }
    }

    fn say_init(&mut self, now: Instant) {
        let node = self.config.node.to_string();
        let init = Message::SessInit {
            keepalive: KEEPALIVE,
            segment_mru: SEGMENT,
            transfer_mru: self.config.largest,
            node: &node,
            critical: false,
        };
        self.say(now, &init);
    }

    /// The peer is one to exchange bundles with.
    pub fn accept(&mut self, now: Instant) {
        if self.state != State::Asked {
            return;
        }
        if self.role == Role::Passive {
            self.say_init(now);
        }
        self.state = State::Open;
        self.read(now);
    }

    fn message(&mut self, now: Instant, message: &Message<'_>) -> Result<(), SessionEnd> {
        match (self.state, message) {
            (State::Init, Message::SessInit { .. }) => self.init(message),
            (_, Message::SessTerm { reply, reason }) => {
                if !reply {
                    self.say(now, &Message::SessTerm { reply: true, reason: *reason });
                }
                let ours = self.state == State::Ending;
                self.over(if ours { SessionEnd::Ended } else { SessionEnd::ByPeer(*reason) });
                Ok(())
            }
            (State::Open | State::Ending, Message::XferSegment { .. }) => {
                self.segment(now, message)
            }
            (State::Open | State::Ending, Message::XferAck { id, length, .. }) => {
                self.ack(*id, *length)
            }
            (State::Open | State::Ending, Message::XferRefuse { reason, id }) => {
                self.refused(*reason, *id);
                Ok(())
            }
            (State::Open | State::Ending, Message::Keepalive) => Ok(()),
            (_, Message::MsgReject { header, .. }) => {
                Err(SessionEnd::Violation(format!("the peer rejects a message of type {header}")))
            }
            _ => Err(SessionEnd::Violation("a message that does not belong here".to_owned())),
        }
    }

    fn init(&mut self, message: &Message<'_>) -> Result<(), SessionEnd> {
        let Message::SessInit { keepalive, segment_mru, transfer_mru, node, critical } = message
        else {
            return Ok(());
        };
        if *critical {
            return Err(SessionEnd::Violation("an extension that is not known".to_owned()));
        }
        // The shorter of both; 0 is none (RFC 9174 §4.7).
        let seconds = (*keepalive).min(KEEPALIVE);
        self.keepalive = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        self.segment = (*segment_mru).min(SEGMENT);
        self.largest = *transfer_mru;
        if self.segment == 0 {
            return Err(SessionEnd::Violation("it takes no bytes".to_owned()));
        }
        self.state = State::Asked;
        self.events.push_back(SessionEvent::Peer(node.parse().ok()));
        Ok(())
    }

    /// The beginning of a segment.
    fn segment(&mut self, now: Instant, message: &Message<'_>) -> Result<(), SessionEnd> {
        let Message::XferSegment { start, end, id, total, critical, length } = *message else {
            return Ok(());
        };
        let violation = |what: &str| Err(SessionEnd::Violation(what.to_owned()));
        if length > SEGMENT {
            return violation("a segment that is too long");
        }
        if start {
            // The peer gives up what was refused, and only that.
            if self.incoming.as_ref().is_some_and(|incoming| !incoming.refused) {
                return violation("a transfer within another");
            }
            let most = total.unwrap_or(self.config.largest);
            let incoming = Incoming { id, came: 0, left: length, start, end, refused: false };
            self.incoming = Some(incoming);
            if critical {
                self.refuse_as(now, refusal::EXTENSION_FAILURE);
            } else if most > self.config.largest {
                self.refuse_as(now, refusal::NOT_ACCEPTABLE);
            } else {
                self.events.push_back(SessionEvent::Begins(most));
            }
        } else {
            match &mut self.incoming {
                Some(incoming) if incoming.id == id => {
                    (incoming.left, incoming.start, incoming.end) = (length, start, end);
                }
                _ => return violation("a segment of no transfer"),
            }
        }
        if length == 0 {
            self.segment_ends(now);
        }
        Ok(())
    }

    /// Takes data of the segment that is coming.
    fn data(&mut self, now: Instant, input: &[u8]) -> Option<usize> {
        let incoming = self.incoming.as_mut()?;
        let count = usize::try_from(incoming.left).unwrap_or(usize::MAX).min(input.len());
        if count == 0 {
            return None;
        }
        incoming.left -= count as u64;
        incoming.came += count as u64;
        if incoming.came > self.config.largest && !incoming.refused {
            self.events.push_back(SessionEvent::Broken);
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

    /// A segment is whole. The last one is acknowledged when the bundle is stored.
    fn segment_ends(&mut self, now: Instant) {
        let Some(incoming) = &self.incoming else { return };
        let Incoming { id, came, start, end, refused, .. } = *incoming;
        match (end, refused) {
            (true, true) => self.incoming = None,
            (true, false) => {
                self.judging = true;
                self.events.push_back(SessionEvent::Whole);
            }
            (false, true) => {}
            (false, false) => {
                self.say(now, &Message::XferAck { start, end, id, length: came });
            }
        }
    }

    /// The bundle that was whole is stored.
    pub fn stored(&mut self, now: Instant) {
        if std::mem::take(&mut self.judging)
            && let Some(Incoming { id, came, start, end, .. }) = self.incoming.take()
        {
            self.say(now, &Message::XferAck { start, end, id, length: came });
        }
        self.read(now);
    }

    /// The bundle that is coming is not taken, for now or never.
    pub fn refuse(&mut self, now: Instant, passing: bool) {
        let why = if passing { refusal::NO_RESOURCES } else { refusal::NOT_ACCEPTABLE };
        self.refuse_as(now, why);
        if std::mem::take(&mut self.judging) {
            self.incoming = None;
        }
        self.read(now);
    }

    fn refuse_as(&mut self, now: Instant, reason: u8) {
        if let Some(incoming) = &mut self.incoming
            && !std::mem::replace(&mut incoming.refused, true)
        {
            let id = incoming.id;
            self.say(now, &Message::XferRefuse { reason, id });
        }
    }

    /// The largest bundle that the peer takes, in bytes, once it is known.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Whether a bundle may be sent now.
    pub fn can_send(&self) -> bool {
        self.state == State::Open && self.outgoing.is_none()
    }

    /// Begins to send a bundle of this length. The owner hands over its bytes with
    /// [`Self::send_part`]. Returns whether the peer takes one of this length.
    pub fn send(&mut self, length: u64) -> bool {
        debug_assert!(self.can_send());
        if length > self.largest || length == 0 {
            return false;
        }
        self.outgoing = Some(Outgoing { id: self.next_id, total: length, sent: 0 });
        self.next_id += 1;
        true
    }

    /// How many bytes of the bundle to hand over now, from where on; [`None`] if there is nothing to
    /// send, or enough waits.
    pub fn wanted(&self) -> Option<(u64, u64)> {
        let outgoing = self.outgoing.as_ref()?;
        let left = outgoing.total - outgoing.sent;
        (left > 0 && self.output.len() < AHEAD && self.state != State::Over)
            .then_some((outgoing.sent, left.min(self.segment)))
    }

    /// Sends a part of the bundle, of the length of [`Self::wanted`].
    pub fn send_part(&mut self, now: Instant, part: &[u8]) {
        let Some(outgoing) = &mut self.outgoing else { return };
        let length = part.len() as u64;
        debug_assert!(length <= outgoing.total - outgoing.sent);
        let start = outgoing.sent == 0;
        outgoing.sent += length;
        let end = outgoing.sent == outgoing.total;
        let (id, total) = (outgoing.id, Some(outgoing.total));
        self.say(now, &Message::XferSegment { start, end, id, total, critical: false, length });
        self.output.extend_from_slice(part);
    }

    /// The flags of an acknowledgement should be those of its segment (RFC 9174 §5.2.3), and are none in
    /// some implementations: the length says as much.
    fn ack(&mut self, id: u64, length: u64) -> Result<(), SessionEnd> {
        let Some(outgoing) = &self.outgoing else { return Ok(()) };
        if outgoing.id != id {
            return Ok(());
        }
        if length > outgoing.sent {
            return Err(SessionEnd::Violation("it acknowledges what was not sent".to_owned()));
        }
        if length == outgoing.total {
            self.outgoing = None;
            self.events.push_back(SessionEvent::Stored);
        }
        Ok(())
    }

    fn refused(&mut self, reason: u8, id: u64) {
        // Without an end: the next transfer begins instead (RFC 9174 §5.2.4).
        if self.outgoing.take_if(|outgoing| outgoing.id == id).is_none() {
            return;
        }
        self.events.push_back(match reason {
            refusal::COMPLETED => SessionEvent::Stored,
            refusal::NOT_ACCEPTABLE => SessionEvent::Refused { passing: false },
            _ => SessionEvent::Refused { passing: true },
        });
    }

    /// When the peer counts as gone.
    fn patience(&self) -> Option<Instant> {
        match self.state {
            State::Over => None,
            State::Contact | State::Securing | State::Init | State::Asked | State::Ending => {
                Some(self.began + PATIENCE)
            }
            // While a bundle is judged, nothing is read.
            State::Open if self.judging => None,
            State::Open => self.keepalive.map(|every| self.heard + 2 * every),
        }
    }

    fn keepalive_at(&self) -> Option<Instant> {
        let every = self.keepalive.filter(|_| self.state == State::Open)?;
        Some(self.said + every / 2)
    }
}

impl Machine for Session {
    type Wake = SessionWake;

    fn poll_timeout(&self) -> Option<(Instant, SessionWake)> {
        earliest_timer([
            (self.patience(), SessionWake::Silence),
            (self.keepalive_at(), SessionWake::Keepalive),
        ])
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.patience().is_some_and(|at| at <= now) {
            let ended = self.state == State::Ending;
            self.over(if ended { SessionEnd::Ended } else { SessionEnd::Silent });
        }
        if self.keepalive_at().is_some_and(|at| at <= now) {
            self.say(now, &Message::Keepalive);
        }
    }
}
