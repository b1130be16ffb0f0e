//! Drives an endpoint with the clock, its UDP sockets and its TCP connections.
//!
//! One task owns the sockets and the timer. All work of an endpoint runs on one thread (a
//! current-thread runtime): a packet costs a few microseconds, packet numbers serialise the work
//! anyway, and no task waits for a lock or another core. A hub in several parts has a driver and a
//! thread for each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use os::Timer;
use pep::routes::Sources;
use slacp::{Ecn, Event, Notice, SessionId};
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use units::{Instant, Machine};

use crate::clock;
use crate::config::keys::format_public_key;
use crate::figures::counters::Counters;
use crate::hop::exchange::{Exchange, Mail, Received};
use crate::hop::sockets::Sockets;
use crate::hop::tcp::{Carried, ConnectionId, Sent, TcpEvent, TcpLinks};
use crate::hop::udp::{Batch, Built, Label, Reception, TrafficClass};
use crate::hop::{Hop, HopEvent};
use crate::runtime;

/// Destination of the packets received over the hop.
pub(crate) trait PacketSink: Send + Sync {
    /// Passes a packet of a session to the kernel for routing. Returns whether the kernel accepted it.
    fn deliver(&self, session: SessionId, packet: &[u8]) -> bool;
}

/// Maximum receptions per turn, so that sending and timers are not delayed by a flood.
const RECEPTIONS_PER_TURN: usize = 4;
/// Minimum timer delay while the kernel accepts no datagrams.
const WHILE_BLOCKED: Duration = Duration::from_millis(1);
/// Allowed delay of the timer when the end of the thread's pause normally wakes the driver first. The
/// timer is the fallback on a thread that is always busy and so never pauses.
const WITHOUT_PAUSE: Duration = Duration::from_millis(2);
/// Maximum events of TCP connections per turn, and messages from other parts of the hub.
const TCP_EVENTS_PER_TURN: usize = 64;
const MAIL_PER_TURN: usize = 64;
/// Minimum interval between two warnings of a lasting socket error.
const FAULT_INTERVAL: Duration = Duration::from_secs(10);

/// The task that moves datagrams.
pub(crate) struct Driver {
    hop: Hop,
    /// Number of the part that it drives, and its exchange with the other parts.
    part: u8,
    exchange: Option<Exchange>,
    sockets: Sockets,
    timer: Timer,
    events: UnboundedSender<HopEvent>,
    counters: Arc<Counters>,
    /// Destination of received IP packets.
    tunnel: Option<Arc<dyn PacketSink>>,
    reception: Reception,
    batch: Batch,
    /// A datagram taken from the endpoint that did not fit into the last batch.
    waiting: Option<(Label, Vec<u8>)>,
    sources: Sources,
    faults: LogLimiter,
    /// TCP connections that carry datagrams, and their events.
    links: TcpLinks,
    happened: Option<Receiver<TcpEvent>>,
}

impl Driver {
    /// Creates the driver of a part of `hop` over `sockets`; the exchange connects several parts. Events
    /// go to `events`.
    ///
    /// # Errors
    /// If the process has no descriptor left for the timer.
    pub(crate) fn new(
        (hop, part, exchange): (Hop, u8, Option<Exchange>),
        sockets: Sockets,
        sources: Sources,
        events: UnboundedSender<HopEvent>,
        counters: Arc<Counters>,
        tunnel: Option<Arc<dyn PacketSink>>,
    ) -> io::Result<Self> {
        let links = hop.links().clone();
        Ok(Self {
            happened: links.take_events(),
            links,
            hop,
            part,
            exchange,
            sockets,
            timer: Timer::new()?,
            events,
            counters,
            tunnel,
            reception: Reception::new(),
            batch: Batch::default(),
            waiting: None,
            sources,
            faults: LogLimiter::default(),
        })
    }

    /// Runs until dropped, or until the socket or the timer fails for good.
    pub(crate) async fn run(&mut self) -> io::Error {
        loop {
            if let Err(error) = self.turn().await {
                return error;
            }
        }
    }

    /// Services the endpoint, then waits for its next input.
    async fn turn(&mut self) -> io::Result<()> {
        let now = clock::now();
        self.handle_timeouts(now);
        self.hop.begin_turn(self.part);
        self.hand_out_events().await;
        self.hand_out_packets();
        self.hand_over();
        let flowing = self.transmit(now);
        // Sending has made room in streams: their writers are told without waiting for a turn.
        self.hand_out_events().await;
        self.hop.say_waiting(now, self.counters.datagrams_sent.get());
        let deadline = self.deadline(now, flowing);
        let wants_turn = self.hop.part(self.part).wants_turn();
        if wants_turn || deadline.is_some_and(|at| at <= now) {
            // The relays that this turn has woken run before the next one.
            tokio::task::yield_now().await;
            self.handle_tcp(None);
            self.handle_mail(None);
            return self.receive();
        }
        // The end of the thread's pause wakes the driver, which saves setting a timerfd for each pause.
        let pauses = deadline.is_some_and(runtime::pauses_until);
        match deadline {
            Some(at) if pauses => self.timer.set_between(at, at + WITHOUT_PAUSE)?,
            _ => self.timer.set(deadline)?,
        }
        tokio::select! {
            readable = self.sockets.readable() => {
                readable?;
                self.receive()
            }
            expired = self.timer.expired() => expired,
            () = runtime::pause(), if pauses => Ok(()),
            Some(event) = happened(&mut self.happened) => {
                self.handle_tcp(Some(event));
                Ok(())
            }
            Some(mail) = mail(&mut self.exchange) => {
                self.handle_mail(Some(mail));
                Ok(())
            }
            () = self.hop.work(self.part) => Ok(()),
            writable = self.sockets.writable(), if !flowing => writable,
        }
    }

    /// Time of the next turn if no input comes before; `None` without a timer.
    fn deadline(&self, now: Instant, flowing: bool) -> Option<Instant> {
        let state = self.hop.part(self.part);
        let forecast = state.forecast_ends();
        let Some((at, _)) = state.endpoint.poll_timeout() else { return forecast };
        // If the socket is full, sending must wait anyway.
        let earliest = if flowing { Instant::ZERO } else { now + WHILE_BLOCKED };
        let at = at.max(earliest);
        Some(forecast.map_or(at, |ends| ends.min(at)))
    }

    fn handle_timeouts(&self, now: Instant) {
        let mut state = self.hop.part(self.part);
        if state.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
            state.endpoint.handle_timeout(now);
        }
    }

    /// Sends the endpoint's events to the main loop, and logs its notices.
    async fn hand_out_events(&mut self) {
        let events: Vec<HopEvent> = {
            let mut state = self.hop.part(self.part);
            while let Some(notice) = state.endpoint.poll_notice() {
                log_notice(&notice, &self.counters);
            }
            std::iter::from_fn(|| self.hop.take_event(&mut state)).collect()
        };
        let news = events.iter().any(|event| matches!(event, HopEvent::Session(..)));
        for event in events {
            if let HopEvent::Session(session, Event::Down(_)) = event {
                self.sources.forget(session);
            }
            // Fails while the gateway shuts down. That drops the stream in the event, which resets it
            // and takes the lock, so the lock must not be held here.
            let _ = self.events.send(event);
        }
        if news {
            // The main loop must learn of a session before its packets arrive.
            tokio::task::yield_now().await;
        }
    }

    /// Passes received packets to the tunnel.
    fn hand_out_packets(&self) {
        let Some(tunnel) = &self.tunnel else { return };
        let mut state = self.hop.part(self.part);
        while let Some((session, channel, packet)) = state.endpoint.poll_packet() {
            if tunnel.deliver(session, &packet) {
                self.hop.count_delivered(&mut state, session, channel, packet.len());
            }
        }
    }

    /// Sends all datagrams that are due. Returns false if the kernel has no room for more.
    fn transmit(&mut self, now: Instant) -> bool {
        loop {
            self.share_link(now);
            self.fill(now);
            if self.batch.count() == 0 {
                return true;
            }
            if !self.flush(now) {
                return false;
            }
        }
    }

    /// Exchanges the use of the common link with the other parts of the hub.
    fn share_link(&mut self, now: Instant) {
        let Some(exchange) = &mut self.exchange else { return };
        let endpoint = &mut self.hop.part(self.part).endpoint;
        let (free_at, others) = exchange.link(now, endpoint.link_use());
        exchange.publish(endpoint.share_link(now, free_at, others));
    }

    /// Fills the batch with datagrams that can be sent in one call.
    fn fill(&mut self, now: Instant) {
        let most = self.sockets.most_segments();
        let mut state = self.hop.part(self.part);
        let mut run = state.endpoint.run(now);
        while !self.batch.is_closed(most) {
            if let Some((label, datagram)) = &self.waiting {
                if !self.batch.join(*label, datagram, most) {
                    return;
                }
                self.waiting = None;
                continue;
            }
            let built = self.batch.build(most, |buffer| {
                let to = run.transmit(buffer)?;
                let endpoint = run.endpoint();
                let (dscp, ecn) = (endpoint.transmit_dscp(), endpoint.transmit_ecn());
                let (link, session) = (endpoint.transmit_link(), endpoint.transmit_session());
                Some(Label { to, traffic_class: TrafficClass { dscp, ecn }, link, session })
            });
            match built {
                Built::Joined => {
                    self.batch.add(most, |buffer, room| run.transmit_more(buffer, room));
                }
                Built::Nothing => return,
                Built::Apart(label, datagram) => {
                    self.waiting = Some((label, datagram));
                    return;
                }
            }
        }
    }

    /// Handles `event` and further events of TCP connections, up to the limit of a turn.
    fn handle_tcp(&mut self, mut event: Option<TcpEvent>) {
        let now = clock::now();
        for _ in 0..TCP_EVENTS_PER_TURN {
            let next = || self.happened.as_mut().and_then(|happened| happened.try_recv().ok());
            match event.take().or_else(next) {
                Some(TcpEvent::Datagram(over, datagram)) => self.take(now, over, datagram),
                Some(TcpEvent::Room(carried)) => self.hold_back(now, carried, false),
                Some(TcpEvent::Ended(id)) => {
                    let _ = self.events.send(HopEvent::TcpEnded(id));
                }
                None => return,
            }
        }
    }

    /// Handles a datagram received over TCP.
    fn take(&mut self, now: Instant, over: ConnectionId, datagram: Vec<u8>) {
        self.counters.datagrams_received.increment();
        // The connection has been closed since: the datagram is dropped.
        let Some(from) = self.links.source(over) else { return };
        let over = Some(over);
        self.sort(now, Received { from, ours: None, ecn: Ecn::NotEct, over, bytes: datagram });
    }

    /// Handles a datagram, or forwards it to the part of the hub that it belongs to.
    fn sort(&mut self, now: Instant, received: Received) {
        let exchange = self.exchange.as_ref();
        match exchange.and_then(|it| Some((it, it.elsewhere(&received.bytes)?))) {
            Some((exchange, part)) => exchange.send(part, Mail::Datagram(received)),
            None => self.handle_datagram(now, received),
        }
    }

    fn handle_datagram(&mut self, now: Instant, received: Received) {
        let Received { from, ours, ecn, over, mut bytes } = received;
        let mut state = self.hop.part(self.part);
        let session = state.endpoint.handle_datagram_with_ecn(now, from, ecn, &mut bytes);
        let Some(over) = over else { return self.sources.remember(from, ours, session) };
        let carried = session.map(|session| (session, state.endpoint.link_of(&bytes)));
        drop(state);
        carried.into_iter().for_each(|carried| self.links.prove(over, carried));
    }

    /// Handles `first` and further messages from other parts of the hub, up to the limit of a turn.
    fn handle_mail(&mut self, mut first: Option<Mail>) {
        let now = clock::now();
        for _ in 0..MAIL_PER_TURN {
            let next = || self.exchange.as_mut().and_then(Exchange::try_receive);
            match first.take().or_else(next) {
                Some(Mail::Datagram(received)) => self.handle_datagram(now, received),
                Some(Mail::Handover(handover)) => {
                    self.hop.part(self.part).endpoint.handle_handover(now, &handover);
                }
                None => return,
            }
        }
    }

    /// Forwards handshakes to the parts of the hub that their terminals belong to.
    fn hand_over(&self) {
        let Some(exchange) = &self.exchange else { return };
        let mut state = self.hop.part(self.part);
        while let Some(handover) = state.endpoint.poll_handover() {
            exchange.send(handover.part, Mail::Handover(handover));
        }
    }

    fn hold_back(&self, now: Instant, (session, link): Carried, held: bool) {
        // Fails only for a session that has ended.
        let _ = self.hop.lock(session).endpoint.hold_back(now, session, link, held);
        self.hop.notify_driver(session);
    }

    /// Sends the batch over TCP, if a connection carries its session or destination. Returns false if it
    /// must go over UDP (also).
    fn flush_over_tcp(&mut self, now: Instant) -> bool {
        let Some(to) = self.batch.destination() else { return false };
        let (to, session) = ((self.batch.link(), to), self.batch.session());
        if !self.links.carries(to, session) {
            // The session may have left a full connection for UDP while it was held back.
            session.into_iter().for_each(|session| self.links.let_go((session, to.0)));
            return false;
        }
        for datagram in self.batch.datagrams() {
            if let Sent::Full(carried) = self.links.send(to, session, datagram) {
                self.hold_back(now, carried, true);
            }
        }
        if session.is_none() && self.links.accepts() {
            // An answer outside sessions. Its receiver may be the TCP connection or, behind address
            // translation, a UDP socket with the same address and port, so both get it.
            return false;
        }
        self.counters.datagrams_sent.add(self.batch.count() as u64);
        self.batch.clear();
        true
    }

    /// Sends the batch; false if the kernel has no room now and the batch is kept.
    fn flush(&mut self, now: Instant) -> bool {
        if self.flush_over_tcp(now) {
            return true;
        }
        let from = self.sources.of(self.batch.destination());
        match self.sockets.send(&self.batch, from) {
            Ok(true) => self.counters.datagrams_sent.add(self.batch.count() as u64),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // EMSGSIZE: the network device takes less than the configured MTU. The path MTU search
            // learns that from the loss.
            Err(error) if quinn_udp::is_msg_size_err(&error) => {
                self.counters.too_large.add(self.batch.count() as u64);
            }
            // The datagrams are lost, which the protocol repairs.
            Err(error) => {
                self.counters.socket_errors.increment();
                self.faults.warn(now, &format!("cannot send: {error}"));
            }
        }
        self.batch.clear();
        true
    }

    /// Receives waiting datagrams, up to the limit of a turn.
    fn receive(&mut self) -> io::Result<()> {
        let now = clock::now();
        for _ in 0..RECEPTIONS_PER_TURN {
            let mut state = self.hop.part(self.part);
            let mut run = state.endpoint.run(now);
            let (sources, counters) = (&mut self.sources, &self.counters);
            let exchange = self.exchange.as_ref();
            let taken = self.sockets.receive(&mut self.reception, |from, ours, ecn, datagram| {
                counters.datagrams_received.increment();
                if let Some(exchange) = exchange
                    && let Some(part) = exchange.elsewhere(datagram)
                {
                    let (over, bytes) = (None, datagram.to_vec());
                    let received = Received { from, ours, ecn, over, bytes };
                    return exchange.send(part, Mail::Datagram(received));
                }
                let session = run.handle_datagram(from, ecn, datagram);
                sources.remember(from, ours, session);
            });
            match taken {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Often an ICMP error about an earlier datagram. It does not end the driver: the
                // protocol handles an unreachable peer.
                Err(error) => {
                    self.counters.socket_errors.increment();
                    self.faults.warn(now, &format!("cannot receive: {error}"));
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Receives the next message from another part; `None` without other parts.
async fn mail(exchange: &mut Option<Exchange>) -> Option<Mail> {
    exchange.as_mut()?.receive().await
}

/// Receives the next event of TCP connections; `None` if another part's driver takes them.
async fn happened(events: &mut Option<Receiver<TcpEvent>>) -> Option<TcpEvent> {
    events.as_mut()?.recv().await
}

/// Logs a notice of the endpoint, and counts those of shared keys.
fn log_notice(notice: &Notice, counters: &Counters) {
    if matches!(notice, Notice::SharedKey { .. }) {
        counters.shared_keys.increment();
    }
    match notice {
        // With the key in the format of `[[terminal]]`, so that it can be permitted by copying it.
        Notice::Stranger { address, key: Some(key) } => tracing::warn!(
            "refused a terminal at {address}: its key {} is not permitted here",
            format_public_key(key)
        ),
        Notice::Stranger { address, key: None } => tracing::warn!(
            "refused a terminal at {address}: it asks for a hub with another key than this one's"
        ),
        notice => tracing::warn!("{notice}"),
    }
}

/// Logs a lasting fault of a socket at most every 10 s.
#[derive(Default)]
struct LogLimiter {
    last: Option<Instant>,
}

impl LogLimiter {
    fn warn(&mut self, now: Instant, what: &str) {
        if self.last.is_none_or(|last| now.saturating_since(last) >= FAULT_INTERVAL) {
            tracing::warn!("UDP socket: {what}");
            self.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use slacp::PublicKey;

    use super::*;

    #[test]
    fn a_lasting_fault_is_logged_once_in_a_while() {
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let mut faults = LogLimiter::default();
        let mut logged = Vec::new();
        for second in 0..25 {
            faults.warn(at(second), "cannot send");
            if faults.last == Some(at(second)) {
                logged.push(second);
            }
        }
        assert_eq!(logged, [0, 10, 20]);
    }

    #[test]
    fn two_machines_with_one_key_are_counted() {
        let (counters, at) = (Counters::default(), |port| SocketAddr::from(([192, 0, 2, 1], port)));
        let shared = Notice::SharedKey { key: PublicKey([1; 32]), served: at(1), refused: at(2) };
        for notice in [&shared, &Notice::Refused { parameter: 7 }, &shared] {
            log_notice(notice, &counters);
        }
        assert_eq!(counters.shared_keys.get(), 2);
    }
}
