//! A connection: the state machine of RFC 9293.

mod acks;
mod arrival;
mod command;
mod emit;
mod handshake;
mod time;
mod transaction;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use units::{Instant, Machine};

use crate::config::{Config, SynData};
use crate::receiver::StreamReceiver;
use crate::segment::{Cookie, Segment};
use crate::sender::{NegotiatedOptions, StreamSender};
use crate::sharing::tcb::ControlBlock;
use crate::stats::ConnectionStats;
use crate::wake::TimerKind;
use crate::{SegmentPayload, SeqNr};
use acks::AckScheduler;
use transaction::TransactionState;

pub use command::WriteError;
pub use emit::refusal;

/// One end of a TCP connection, whose segments carry `P`.
///
/// A state machine without a clock or a socket (`docs/state-machines.md`). Inputs:
/// [`Connection::handle_segment`], the commands, [`Machine::handle_timeout`]. After each of them,
/// drain [`Connection::poll_event`] and then [`Connection::poll_transmit`] until they return
/// `None`. An endpoint that is polled later acknowledges the same data, but in fewer segments.
///
/// Ports, addresses and the demultiplexing of segments belong to the owner.
///
/// Not modelled: urgent data, IP fragmentation and path MTU discovery (the MSS never changes), ICMP
/// errors, automatic sizing of buffers, SYN cookies, RFC 6191's reuse of TIME-WAIT.
#[derive(Debug, Clone)]
pub struct Connection<P> {
    config: Arc<Config>,
    state: TcpState,
    /// True if opened by [`Connection::listen`]: a reset during the handshake then leads back to
    /// LISTEN.
    is_passive: bool,
    iss: SeqNr,
    irs: SeqNr,
    sender: StreamSender<P>,
    receiver: StreamReceiver<P>,
    agreed: NegotiatedOptions,
    /// Shifts of the peer's window fields and of this end's (RFC 7323 §2).
    peer_shift: u8,
    own_shift: u8,
    scales: bool,
    /// SND.WL1 and SND.WL2: the numbers of the segment that last updated the window.
    window_seq: SeqNr,
    window_ack: SeqNr,
    acks: AckScheduler,
    clock: TimestampClock,
    /// True while a congestion mark is echoed: until the peer has reduced its window (RFC 3168
    /// §6.1.3).
    echoes_mark: bool,
    /// The cookie from the server for the next connection (RFC 7413 §4.1.3).
    cookie: Cookie,
    /// True if our SYN-ACK gives the client a Fast Open cookie.
    gives_cookie: bool,
    /// T/TCP's connection counts and cache.
    transaction: TransactionState,
    challenges: Challenges,
    timers: ConnectionTimers,
    write_blocked: bool,
    events: VecDeque<ConnectionEvent>,
    /// Segments that answer others and carry no stream data.
    outbox: VecDeque<Segment<P>>,
}

/// The states of RFC 9293 §3.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum TcpState {
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

/// An event of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The handshake is complete.
    Connected,
    /// There is new data to read.
    Readable,
    /// There is room to write again, after [`Connection::write`] had too little.
    Writable,
    /// The peer has ended its stream; what can be read now is the rest of it.
    Finished,
    /// Both streams have ended and are acknowledged.
    Closed,
    /// The connection ended before its streams.
    Aborted(AbortReason),
}

/// The reason why a connection ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AbortReason {
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer did not answer (RFC 9293 §3.8.3).
    TimedOut,
    /// The network reported that there is no way to the peer (RFC 1122 §4.2.3.9).
    Unreachable,
    /// The owner called [`Connection::abort`].
    Local,
}

#[derive(Debug, Clone, Default)]
struct ConnectionTimers {
    time_wait: Option<Instant>,
    /// Time of the next keepalive probe, and the number of probes sent.
    keepalive: Option<Instant>,
    probes: u32,
}

/// RFC 7323: the timestamp to echo, and this end's clock, in milliseconds.
#[derive(Debug, Clone, Default)]
struct TimestampClock {
    offset: u32,
    /// TS.Recent, and the time of its arrival.
    recent: u32,
    recent_at: Instant,
    /// Last.ACK.sent (RFC 7323 §4.3).
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

impl<P: SegmentPayload> Connection<P> {
    fn new(config: Arc<Config>, state: TcpState, iss: SeqNr) -> Self {
        Self {
            state,
            is_passive: state == TcpState::Listen,
            iss,
            irs: SeqNr::default(),
            sender: StreamSender::new(Arc::clone(&config)),
            receiver: StreamReceiver::new(config.receive_buffer.get()),
            agreed: NegotiatedOptions::default(),
            peer_shift: 0,
            own_shift: 0,
            scales: false,
            window_seq: SeqNr::default(),
            window_ack: SeqNr::default(),
            acks: AckScheduler::new(config.acks),
            // RFC 7323 §5.4: an offset of its own for each connection.
            clock: TimestampClock { offset: iss.get(), ..TimestampClock::default() },
            echoes_mark: false,
            cookie: Cookie::new(),
            gives_cookie: false,
            transaction: TransactionState::new(&config.syn_data),
            challenges: Challenges::default(),
            timers: ConnectionTimers::default(),
            write_blocked: false,
            events: VecDeque::new(),
            outbox: VecDeque::new(),
            config,
        }
    }

    /// Opens a connection by sending a SYN with the initial sequence number `iss`. It must be
    /// unpredictable if strangers can reach the connection (RFC 6528).
    pub fn connect(config: impl Into<Arc<Config>>, iss: SeqNr) -> Self {
        let mut connection = Self::new(config.into(), TcpState::SynSent, iss);
        connection.sender.may_send_early = match &connection.config.syn_data {
            SynData::Off => false,
            // Without a cookie, one is requested, and data waits for the handshake (RFC 7413).
            SynData::FastOpen { cookie } => !cookie.is_empty(),
            SynData::Transactions(_) => connection.transaction.connect(),
            SynData::Always => true,
        };
        connection
    }

    /// Waits for a SYN and answers it with `iss`.
    pub fn listen(config: impl Into<Arc<Config>>, iss: SeqNr) -> Self {
        Self::new(config.into(), TcpState::Listen, iss)
    }

    /// Returns the state of RFC 9293.
    pub fn state(&self) -> TcpState {
        self.state
    }

    /// Returns the settings it was created with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns its knowledge of the path, for other connections
    /// ([`Config::shared`](crate::Config::shared)).
    pub fn control_block(&self) -> ControlBlock {
        self.sender.control_block()
    }

    /// The cookie received from the server, for data on a later connection's SYN
    /// ([`SynData::FastOpen`]); empty if there is none.
    pub fn cookie(&self) -> &Cookie {
        &self.cookie
    }

    /// Returns true if both ends report holes to each other (SNACK); false before the handshake.
    pub fn has_snack(&self) -> bool {
        self.agreed.snack
    }

    /// Returns true if both ends acknowledge selectively (SACK); false before the handshake.
    pub fn has_sack(&self) -> bool {
        self.agreed.sack
    }

    /// Counters, and the current state of the sender.
    pub fn stats(&self) -> ConnectionStats {
        self.sender.snapshot()
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    fn notify(&mut self, event: ConnectionEvent) {
        // A repeated event, such as `Readable`, tells the owner nothing new.
        if self.events.back() != Some(&event) {
            self.events.push_back(event);
        }
    }

    /// The sequence number of a position of our stream.
    fn seq(&self, position: u64) -> SeqNr {
        self.iss.advance(position)
    }

    /// RCV.NXT as a sequence number.
    fn rcv_nxt(&self) -> SeqNr {
        self.irs.advance(self.receiver.next())
    }

    /// Returns true once the peer's SYN was received.
    fn is_synchronised(&self) -> bool {
        !matches!(self.state, TcpState::Closed | TcpState::Listen | TcpState::SynSent)
    }

    /// Ends the connection early.
    fn end(&mut self, why: AbortReason) {
        self.state = TcpState::Closed;
        self.timers = ConnectionTimers::default();
        self.acks = AckScheduler::new(self.config.acks);
        self.notify(ConnectionEvent::Aborted(why));
    }
}

impl<P: SegmentPayload> Machine for Connection<P> {
    type Wake = TimerKind;

    fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timers(now);
    }
}
