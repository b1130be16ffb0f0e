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
use pep::routes::SourceAddresses;
use slacp::{Ecn, EndpointNotice, Event, SessionId};
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use units::{Instant, Machine};

use crate::config::keys::format_public_key;
use crate::figures::counters::GatewayCounters;
use crate::hop::exchange::{PartExchange, PartMessage, ReceivedDatagram};
use crate::hop::sockets::HopSockets;
use crate::hop::tcp::{ConnectionId, SendOutcome, SessionLink, TcpEvent, TcpLinks};
use crate::hop::udp::{BuildOutcome, DatagramBatch, DatagramLabel, ReceiveMemory, TrafficClass};
use crate::hop::{Hop, HopEvent};
use crate::process::clock;
use crate::process::runtime;

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
const PAUSE_SLACK: Duration = Duration::from_millis(2);
/// Maximum events of TCP connections per turn, and messages from other parts of the hub.
const TCP_EVENTS_PER_TURN: usize = 64;
const MAIL_PER_TURN: usize = 64;
/// Minimum interval between two warnings of a lasting socket error.
const FAULT_INTERVAL: Duration = Duration::from_secs(10);

/// The part of a hub that a driver serves; a terminal is one part.
pub(crate) struct DrivenPart {
    pub(crate) hop: Hop,
    pub(crate) number: u8,
    /// The exchange with the other parts; `None` without any.
    pub(crate) exchange: Option<PartExchange>,
}

/// The task that moves datagrams.
pub(crate) struct HopDriver {
    hop: Hop,
    /// Number of the part that it drives, and its exchange with the other parts.
    part: u8,
    exchange: Option<PartExchange>,
    sockets: HopSockets,
    timer: Timer,
    events: UnboundedSender<HopEvent>,
    counters: Arc<GatewayCounters>,
    /// Destination of received IP packets.
    tunnel: Option<Arc<dyn PacketSink>>,
    reception: ReceiveMemory,
    batch: DatagramBatch,
    /// A datagram taken from the endpoint that did not fit into the last batch.
    unsent: Option<(DatagramLabel, Vec<u8>)>,
    sources: SourceAddresses,
    faults: FaultLog,
    /// TCP connections that carry datagrams, and their events.
    links: TcpLinks,
    tcp_events: Option<Receiver<TcpEvent>>,
}

impl HopDriver {
    /// Creates the driver of a part over `sockets`. Events go to `events`.
    ///
    /// # Errors
    /// If the process has no descriptor left for the timer.
    pub(crate) fn new(
        driven: DrivenPart,
        sockets: HopSockets,
        sources: SourceAddresses,
        events: UnboundedSender<HopEvent>,
        counters: Arc<GatewayCounters>,
        tunnel: Option<Arc<dyn PacketSink>>,
    ) -> io::Result<Self> {
        let DrivenPart { hop, number, exchange } = driven;
        let links = hop.links().clone();
        Ok(Self {
            tcp_events: links.take_events(),
            links,
            hop,
            part: number,
            exchange,
            sockets,
            timer: Timer::new()?,
            events,
            counters,
            tunnel,
            reception: ReceiveMemory::new(),
            batch: DatagramBatch::default(),
            unsent: None,
            sources,
            faults: FaultLog::default(),
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
        // Events before packets: the main loop must know a session before its first packet is routed.
        self.deliver_events().await;
        self.deliver_packets();
        self.forward_handshakes();
        let flowing = self.transmit(now);
        // Sending has made room in streams: their writers are told without waiting for a turn.
        self.deliver_events().await;
        self.hop.publish_demand(now, self.counters.traffic.datagrams_sent.get());
        let deadline = self.deadline(now, flowing);
        let wants_turn = self.hop.part(self.part).wants_turn();
        if wants_turn || deadline.is_some_and(|at| at <= now) {
            // The relays that this turn has woken run before the next one.
            tokio::task::yield_now().await;
            self.handle_tcp(None);
            self.handle_mail(None);
            return self.receive();
        }
        self.wait(deadline, flowing).await
    }

    /// Waits for the next input and handles it, or for the deadline. `flowing`: the kernel has room for
    /// datagrams.
    async fn wait(&mut self, deadline: Option<Instant>, flowing: bool) -> io::Result<()> {
        // The end of the thread's pause wakes the driver, which saves setting a timerfd for each pause.
        let pauses = deadline.is_some_and(runtime::pauses_until);
        match deadline {
            Some(at) if pauses => self.timer.set_between(at, at + PAUSE_SLACK)?,
            _ => self.timer.set(deadline)?,
        }
        tokio::select! {
            readable = self.sockets.readable() => {
                readable?;
                self.receive()
            }
            expired = self.timer.expired() => expired,
            () = runtime::pause(), if pauses => Ok(()),
            Some(event) = next_tcp_event(&mut self.tcp_events) => {
                self.handle_tcp(Some(event));
                Ok(())
            }
            Some(mail) = next_message(&mut self.exchange) => {
                self.handle_mail(Some(mail));
                Ok(())
            }
            () = self.hop.work_notified(self.part) => Ok(()),
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
    async fn deliver_events(&mut self) {
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
    fn deliver_packets(&self) {
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
            // The batch is kept: the driver waits until the kernel has room again.
            if !self.flush(now) {
                return false;
            }
        }
    }

    /// Exchanges the use of the common link with the other parts of the hub.
    fn share_link(&mut self, now: Instant) {
        let Some(exchange) = &mut self.exchange else { return };
        let endpoint = &mut self.hop.part(self.part).endpoint;
        let (free_at, others) = exchange.account_link_use(now, endpoint.link_use());
        exchange.publish(endpoint.share_link(now, free_at, others));
    }

    /// Fills the batch with datagrams that can be sent in one call.
    fn fill(&mut self, now: Instant) {
        let most = self.sockets.max_segments();
        let mut state = self.hop.part(self.part);
        let mut run = state.endpoint.run(now);
        while !self.batch.is_closed(most) {
            if let Some((label, datagram)) = &self.unsent {
                if !self.batch.join(*label, datagram, most) {
                    return;
                }
                self.unsent = None;
                continue;
            }
            let built = self.batch.build(most, |buffer| {
                let to = run.transmit(buffer)?;
                let endpoint = run.endpoint();
                Some(DatagramLabel {
                    to,
                    traffic_class: TrafficClass {
                        dscp: endpoint.transmit_dscp(),
                        ecn: endpoint.transmit_ecn(),
                    },
                    link: endpoint.transmit_link(),
                    session: endpoint.transmit_session(),
                })
            });
            match built {
                BuildOutcome::Joined => {
                    self.batch.add(most, |buffer, room| run.transmit_more(buffer, room));
                }
                BuildOutcome::Nothing => return,
                BuildOutcome::NeedsNewBatch(label, datagram) => {
                    self.unsent = Some((label, datagram));
                    return;
                }
            }
        }
    }

    /// Handles `event` and further events of TCP connections, up to the limit of a turn.
    fn handle_tcp(&mut self, mut event: Option<TcpEvent>) {
        let now = clock::now();
        for _ in 0..TCP_EVENTS_PER_TURN {
            let next = || self.tcp_events.as_mut().and_then(|happened| happened.try_recv().ok());
            match event.take().or_else(next) {
                Some(TcpEvent::Datagram(over, datagram)) => {
                    self.handle_tcp_datagram(now, over, datagram);
                }
                Some(TcpEvent::Room(carried)) => self.hold_back(now, carried, false),
                Some(TcpEvent::Ended(id)) => {
                    let _ = self.events.send(HopEvent::TcpEnded(id));
                }
                None => return,
            }
        }
    }

    /// Handles a datagram received over TCP.
    fn handle_tcp_datagram(&mut self, now: Instant, over: ConnectionId, datagram: Vec<u8>) {
        self.counters.traffic.datagrams_received.increment();
        // The connection has been closed since: the datagram is dropped.
        let Some(from) = self.links.source(over) else { return };
        let over = Some(over);
        self.dispatch(
            now,
            ReceivedDatagram { from, ours: None, ecn: Ecn::NotEct, over, bytes: datagram },
        );
    }

    /// Handles a datagram, or forwards it to the part of the hub that it belongs to.
    fn dispatch(&mut self, now: Instant, received: ReceivedDatagram) {
        let exchange = self.exchange.as_ref();
        if let Some(exchange) = exchange
            && let Some(part) = exchange.other_part_of(&received.bytes)
        {
            return exchange.send(part, PartMessage::Datagram(received));
        }
        self.handle_datagram(now, received);
    }

    fn handle_datagram(&mut self, now: Instant, received: ReceivedDatagram) {
        let ReceivedDatagram { from, ours, ecn, over, mut bytes } = received;
        let mut state = self.hop.part(self.part);
        let session = state.endpoint.handle_datagram_with_ecn(now, from, ecn, &mut bytes);
        let Some(over) = over else { return self.sources.remember(from, ours, session) };
        let carried = session.map(|session| (session, state.endpoint.link_of(&bytes)));
        drop(state);
        carried.into_iter().for_each(|carried| self.links.authenticate(over, carried));
    }

    /// Handles `first` and further messages from other parts of the hub, up to the limit of a turn.
    fn handle_mail(&mut self, mut first: Option<PartMessage>) {
        let now = clock::now();
        for _ in 0..MAIL_PER_TURN {
            let next = || self.exchange.as_mut().and_then(PartExchange::try_receive);
            match first.take().or_else(next) {
                Some(PartMessage::Datagram(received)) => self.handle_datagram(now, received),
                Some(PartMessage::Handover(handover)) => {
                    self.hop.part(self.part).endpoint.handle_handover(now, &handover);
                }
                None => return,
            }
        }
    }

    /// Forwards handshakes to the parts of the hub that their terminals belong to.
    fn forward_handshakes(&self) {
        let Some(exchange) = &self.exchange else { return };
        let mut state = self.hop.part(self.part);
        while let Some(handover) = state.endpoint.poll_handover() {
            exchange.send(handover.part, PartMessage::Handover(handover));
        }
    }

    /// Stops or resumes the sending of a session's data over a link, while a TCP connection is full.
    fn hold_back(&self, now: Instant, carried: SessionLink, held: bool) {
        let (session, link) = carried;
        // Fails only for a session that has ended.
        let _ = self.hop.lock(session).endpoint.hold_back(now, session, link, held);
        self.hop.notify_driver(session);
    }

    /// Sends the batch over TCP, if a connection carries its session or destination. Returns false if it
    /// must go over UDP (also).
    fn flush_over_tcp(&mut self, now: Instant) -> bool {
        let Some(to) = self.batch.destination() else { return false };
        let link = self.batch.link();
        let session = self.batch.session();
        if !self.links.carries(link, to, session) {
            // The session may have left a full connection for UDP while it was held back.
            session.into_iter().for_each(|session| self.links.release((session, link)));
            return false;
        }
        for datagram in self.batch.datagrams() {
            if let SendOutcome::Full(carried) = self.links.send(link, to, session, datagram) {
                self.hold_back(now, carried, true);
            }
        }
        if session.is_none() && self.links.accepts() {
            // An answer outside sessions. Its receiver may be the TCP connection or, behind address
            // translation, a UDP socket with the same address and port, so both get it.
            return false;
        }
        self.counters.traffic.datagrams_sent.add(self.batch.count() as u64);
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
            Ok(true) => self.counters.traffic.datagrams_sent.add(self.batch.count() as u64),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // EMSGSIZE: the network device takes less than the configured MTU. The path MTU search
            // learns that from the loss.
            Err(error) if quinn_udp::is_msg_size_err(&error) => {
                self.counters.traffic.datagrams_too_large.add(self.batch.count() as u64);
            }
            // The datagrams are lost, which the protocol repairs.
            Err(error) => {
                self.counters.traffic.socket_errors.increment();
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
            let sources = &mut self.sources;
            let counters = &self.counters;
            let exchange = self.exchange.as_ref();
            let taken = self.sockets.receive(&mut self.reception, |from, ours, ecn, datagram| {
                counters.traffic.datagrams_received.increment();
                if let Some(exchange) = exchange
                    && let Some(part) = exchange.other_part_of(datagram)
                {
                    let bytes = datagram.to_vec();
                    let received = ReceivedDatagram { from, ours, ecn, over: None, bytes };
                    return exchange.send(part, PartMessage::Datagram(received));
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
                    self.counters.traffic.socket_errors.increment();
                    self.faults.warn(now, &format!("cannot receive: {error}"));
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Receives the next message from another part; `None` without other parts.
async fn next_message(exchange: &mut Option<PartExchange>) -> Option<PartMessage> {
    exchange.as_mut()?.receive().await
}

/// Receives the next event of TCP connections; `None` if another part's driver takes them.
async fn next_tcp_event(events: &mut Option<Receiver<TcpEvent>>) -> Option<TcpEvent> {
    events.as_mut()?.recv().await
}

/// Logs a notice of the endpoint, and counts those of shared keys.
fn log_notice(notice: &EndpointNotice, counters: &GatewayCounters) {
    if matches!(notice, EndpointNotice::SharedKey { .. }) {
        counters.traffic.shared_keys.increment();
    }
    match notice {
        // With the key in the format of `[[terminal]]`, so that it can be permitted by copying it.
        EndpointNotice::Stranger { address, key: Some(key) } => tracing::warn!(
            "refused a terminal at {address}: its key {} is not permitted here",
            format_public_key(key)
        ),
        EndpointNotice::Stranger { address, key: None } => tracing::warn!(
            "refused a terminal at {address}: it asks for a hub with another key than this one's"
        ),
        notice => tracing::warn!("{notice}"),
    }
}

/// Logs a lasting fault of a socket at most every 10 s.
#[derive(Default)]
struct FaultLog {
    last: Option<Instant>,
}

impl FaultLog {
    fn warn(&mut self, now: Instant, what: &str) {
        if self.last.is_none_or(|last| now.saturating_since(last) >= FAULT_INTERVAL) {
            tracing::warn!("UDP socket: {what}");
            self.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use slacp::{Config, Endpoint, KeyPair, PublicKey};
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;
    use units::BitRate;

    use super::*;
    use crate::hop::udp::UdpLink;

    /// Time limit of everything that happens at once.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn key(number: u8) -> KeyPair {
        KeyPair::from_private([number; 32])
    }

    /// A hub in two parts that permits nobody, without a kernel that steers datagrams: each part has a port.
    struct UnsteeredHub {
        hop: Hop,
        drivers: Vec<HopDriver>,
        ports: Vec<SocketAddr>,
        counters: Arc<GatewayCounters>,
    }

    impl UnsteeredHub {
        fn new() -> Self {
            let config = Config::new(BitRate::from_mbit(10));
            let hop =
                Hop::new(Endpoint::hub_in_parts(&config, &key(1), &[], [9; 32], 2), Arc::default());
            let counters = Arc::<GatewayCounters>::default();
            let (events, _) = unbounded_channel();
            let (mut drivers, mut ports) = (Vec::new(), Vec::new());
            for (number, exchange) in (0..).zip(PartExchange::among(2)) {
                let link = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
                ports.push(link.local_addr().unwrap());
                let driven = DrivenPart { hop: hop.clone(), number, exchange: Some(exchange) };
                let (sockets, sources) = (HopSockets::from(link), SourceAddresses::as_addressed());
                let (events, counters) = (events.clone(), counters.clone());
                drivers.push(
                    HopDriver::new(driven, sockets, sources, events, counters, None).unwrap(),
                );
            }
            Self { hop, drivers, ports, counters }
        }

        /// Turns of a part's driver, until something is so.
        async fn turn(&mut self, part: usize, is_so: impl Fn(&Self) -> bool) {
            while !is_so(self) {
                timeout(PATIENCE, self.drivers[part].turn()).await.expect("it has work").unwrap();
            }
        }

        /// Keys of the unknown terminals, and how often each was heard.
        fn strangers(&self) -> Vec<(Option<PublicKey>, u64)> {
            let strangers = self.hop.strangers(clock::now());
            strangers.iter().map(|stranger| (stranger.key, stranger.attempts)).collect()
        }

        /// Of each part: datagrams that it ignored, and notices that it has for the log.
        fn told(&self) -> [(u64, usize); 2] {
            [0, 1].map(|part| {
                let endpoint = &mut self.hop.part(part).endpoint;
                let notices = std::iter::from_fn(|| endpoint.poll_notice()).count();
                (endpoint.ignored(), notices)
            })
        }
    }

    /// The first message of a terminal to the hub.
    fn initiation(terminal: &KeyPair, hub: SocketAddr) -> Vec<u8> {
        let config = Config::new(BitRate::from_mbit(10));
        let hub_key = key(1).public();
        let mut terminal =
            Endpoint::terminal(config, terminal.clone(), hub_key, vec![hub], [8; 32]);
        let (now, mut datagram) = (clock::now(), Vec::new());
        terminal.handle_timeout(now);
        terminal.poll_transmit(now, &mut datagram).unwrap();
        datagram
    }

    #[tokio::test]
    async fn an_unknown_terminal_is_counted_once_whichever_worker_hears_it() {
        let (mut hub, unknown) = (UnsteeredHub::new(), key(3));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (first, second) = (hub.ports[0], hub.ports[1]);
        let message = initiation(&unknown, first);
        let heard = |attempts| vec![(Some(unknown.public()), attempts)];

        // The second worker hands it over.
        socket.send_to(&message, second).unwrap();
        hub.turn(1, |hub| hub.counters.traffic.datagrams_received.get() == 1).await;
        assert_eq!(hub.strangers(), []);
        hub.turn(0, |hub| !hub.strangers().is_empty()).await;
        assert_eq!((hub.strangers(), hub.told()), (heard(1), [(1, 1), (0, 0)]));

        // The first one hears it itself, and the log has it already.
        socket.send_to(&message, first).unwrap();
        hub.turn(0, |hub| hub.strangers() == heard(2)).await;
        assert_eq!(hub.told(), [(2, 0), (0, 0)]);
        assert_eq!(hub.counters.traffic.datagrams_received.get(), 2);
    }

    #[test]
    fn a_lasting_fault_is_logged_once_in_a_while() {
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let mut faults = FaultLog::default();
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
    fn two_terminals_with_one_key_are_counted() {
        let (counters, at) =
            (GatewayCounters::default(), |port| SocketAddr::from(([192, 0, 2, 1], port)));
        let shared =
            EndpointNotice::SharedKey { key: PublicKey([1; 32]), served: at(1), refused: at(2) };
        for notice in [&shared, &EndpointNotice::Refused { parameter: 7 }, &shared] {
            log_notice(notice, &counters);
        }
        assert_eq!(counters.traffic.shared_keys.get(), 2);
        // They may be two processes of one machine.
        assert!(shared.to_string().starts_with("two terminals use the key"), "{shared}");
    }
}
