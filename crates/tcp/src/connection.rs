//! A connection: the state machine of RFC 9293.

mod acks;
mod arrival;
mod command;
mod emit;
mod handshake;
mod time;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use units::{Instant, Machine};

use crate::config::{Config, SynData};
use crate::receiver::Receiver;
use crate::segment::{Cookie, Segment};
use crate::sender::{Agreed, Sender};
use crate::stats::Stats;
use crate::tcb::ControlBlock;
use crate::wake::Wake;
use crate::{Payload, SeqNr};
use acks::Acks;

pub use command::WriteError;
pub use emit::refusal;

/// One end of a TCP connection, whose segments carry `P`.
///
/// A state machine without clock or socket (`docs/state-machines.md`). Inputs:
/// [`Connection::handle_segment`], the commands, [`Machine::handle_timeout`].
/// After each of them drain, in this order, [`Connection::poll_event`] and
/// [`Connection::poll_transmit`] until `None`; an endpoint that is asked for
/// its segments only later acknowledges the same, but in fewer segments.
///
/// Ports, addresses and the demultiplexing of segments belong to the owner.
///
/// Not modelled: urgent data, IP fragmentation and path MTU discovery (the MSS
/// never changes), ICMP errors, automatic sizing of buffers, SYN cookies,
/// RFC 6191's reuse of TIME-WAIT.
#[derive(Debug, Clone)]
pub struct Connection<P> {
    config: Arc<Config>,
    state: State,
    /// Opened by [`Connection::listen`]: a reset of the handshake leads back to
    /// LISTEN.
    is_passive: bool,
    iss: SeqNr,
    irs: SeqNr,
    sender: Sender<P>,
    receiver: Receiver<P>,
    agreed: Agreed,
    /// How far the peer's window fields are shifted, and ours.
    peer_shift: u8,
    own_shift: u8,
    scales: bool,
    /// SND.WL1 and SND.WL2.
    window_seq: SeqNr,
    window_ack: SeqNr,
    acks: Acks,
    clock: TimestampClock,
    /// A mark is to be echoed until the peer has reduced its window
    /// (RFC 3168 §6.1.3).
    echoes_mark: bool,
    /// What the server has given for the next time (RFC 7413 §4.1.3).
    cookie: Cookie,
    /// What our SYN-ACK gives the client.
    gives_cookie: bool,
    challenges: Challenges,
    timers: Timers,
    write_blocked: bool,
    events: VecDeque<Event>,
    /// Segments that answer others and carry nothing of the stream.
    outbox: VecDeque<Segment<P>>,
}

/// The states of RFC 9293 §3.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum State {
    Closed,
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is through.
    Connected,
    /// There is data to read.
    Readable,
    /// There is room to write, after [`Connection::write`] had too little.
    Writable,
    /// The peer has ended its stream: what can be read now is the last of it.
    Finished,
    /// Both streams have ended and are acknowledged.
    Closed,
    /// The connection ended before its streams did.
    Aborted(Abort),
}

/// Why a connection ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abort {
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer did not answer (RFC 9293 §3.8.3).
    TimedOut,
    /// The owner aborted it.
    Local,
}

#[derive(Debug, Clone, Default)]
struct Timers {
    time_wait: Option<Instant>,
    /// The next keepalive probe, and how many were sent.
    keepalive: Option<Instant>,
    probes: u32,
}

/// RFC 7323: what is echoed, and what the own clock shows: milliseconds.
#[derive(Debug, Clone, Default)]
struct TimestampClock {
    offset: u32,
    /// TS.Recent, and when it came.
    recent: u32,
    recent_at: Instant,
    /// Last.ACK.sent.
    last_ack_sent: SeqNr,
}

impl TimestampClock {
    fn value(&self, now: Instant) -> u32 {
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.offset)
    }
}

/// RFC 5961 §7: at most ten challenge ACKs in any five seconds.
#[derive(Debug, Clone, Default)]
struct Challenges {
    since: Instant,
    sent: u32,
}

impl Challenges {
    fn allow(&mut self, now: Instant) -> bool {
        if now.saturating_since(self.since) >= Duration::from_secs(5) {
            *self = Self { since: now, sent: 0 };
        }
        self.sent += 1;
        self.sent <= 10
    }
}

impl<P: Payload> Connection<P> {
    fn new(config: Arc<Config>, state: State, iss: SeqNr) -> Self {
        Self {
            state,
            is_passive: state == State::Listen,
            iss,
            irs: SeqNr::default(),
            sender: Sender::new(Arc::clone(&config)),
            receiver: Receiver::new(config.receive_buffer.get()),
            agreed: Agreed::default(),
            peer_shift: 0,
            own_shift: 0,
            scales: false,
            window_seq: SeqNr::default(),
            window_ack: SeqNr::default(),
            acks: Acks::new(config.acks),
            clock: TimestampClock { offset: iss.get(), ..TimestampClock::default() },
            echoes_mark: false,
            cookie: Cookie::new(),
            gives_cookie: false,
            challenges: Challenges::default(),
            timers: Timers::default(),
            write_blocked: false,
            events: VecDeque::new(),
            outbox: VecDeque::new(),
            config,
        }
    }

    /// Opens a connection: a SYN with the initial sequence number `iss` is to be
    /// sent. Who speaks to strangers makes it unpredictable (RFC 6528).
    pub fn connect(config: impl Into<Arc<Config>>, iss: SeqNr) -> Self {
        let mut connection = Self::new(config.into(), State::SynSent, iss);
        connection.sender.may_hurry = match &connection.config.syn_data {
            SynData::Off => false,
            SynData::FastOpen { cookie } => !cookie.is_empty(),
            SynData::Always => true,
        };
        connection
    }

    /// Waits for a SYN, which will be answered with `iss`.
    pub fn listen(config: impl Into<Arc<Config>>, iss: SeqNr) -> Self {
        Self::new(config.into(), State::Listen, iss)
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// What it knows of the path, for other connections
    /// ([`Config::shared`](crate::Config::shared)).
    pub fn control_block(&self) -> ControlBlock {
        self.sender.control_block()
    }

    /// The cookie that the server has given, for the data of a later
    /// connection's SYN ([`SynData::FastOpen`]); empty if it has given none.
    pub fn cookie(&self) -> &Cookie {
        &self.cookie
    }

    /// Counters, and the sender's state of the moment.
    pub fn stats(&self) -> Stats {
        self.sender.snapshot()
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn notify(&mut self, event: Event) {
        if self.events.back() != Some(&event) {
            self.events.push_back(event);
        }
    }

    /// The sequence number of a position of our stream.
    fn seq(&self, position: u64) -> SeqNr {
        self.iss.advance(position)
    }

    /// RCV.NXT.
    fn rcv_nxt(&self) -> SeqNr {
        self.irs.advance(self.receiver.next())
    }

    /// Whether the peer's SYN is known.
    fn is_synchronised(&self) -> bool {
        !matches!(self.state, State::Closed | State::Listen | State::SynSent)
    }

    /// Ends the connection before its time.
    fn end(&mut self, why: Abort) {
        self.state = State::Closed;
        self.timers = Timers::default();
        self.acks = Acks::new(self.config.acks);
        self.notify(Event::Aborted(why));
    }
}

impl<P: Payload> Machine for Connection<P> {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.pass_time(now);
    }
}
