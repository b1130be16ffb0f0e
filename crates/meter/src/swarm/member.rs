//! One terminal of a swarm: drives its endpoint with a socket and the clock.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use os::socket::datagrams::{ArrivedDatagram, DatagramSocket, ReceiveMemory};
use os::socket::{BufferKind, overflows, set_buffer};
use slacp::{Endpoint, Event, SessionId};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use units::{ByteCount, Machine};

use super::hop::{HopStream, StreamWaiters};
use super::{SwarmOptions, SwarmTraffic};
use crate::flow::download;
use crate::protocol::payload::flow_key;
use crate::protocol::request::{MeterRequest, RequestedWork};
use crate::sockets::SocketOptions;

/// An event that a terminal reports to the swarm.
#[derive(Debug)]
pub(super) enum MemberEvent {
    /// The hub has answered on the session, this long after the terminal's start.
    Up(Duration),
    /// The session has ended, for the given reason.
    Lost(String),
    /// The terminal cannot go on, because of the given error.
    Failed(String),
    /// The download has ended, completely or with an error.
    Flow { moved: u64, total: Duration, error: Option<String> },
}

/// The phases of a swarm, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SwarmStage {
    /// Terminals set up their sessions.
    Setup,
    /// The first terminals download, as many as the options say.
    Traffic,
    /// Terminals end their sessions.
    End,
}

/// Maximum number of receiving calls before timers and other terminals get their turn.
const TURN: usize = 4;
/// Receive buffer of a socket, as large as a gateway's: datagrams wait there while other terminals
/// have their turn.
const KERNEL_BUFFER: ByteCount = ByteCount::new(8 << 20);

/// A terminal, shared by its driver and its traffic, which run on one thread.
pub(super) struct SwarmMember {
    number: u32,
    start: Instant,
    socket: DatagramSocket,
    /// Memory for received datagrams, shared by all terminals.
    memory: Rc<RefCell<ReceiveMemory>>,
    news: UnboundedSender<MemberEvent>,
    pub(super) state: RefCell<MemberState>,
    /// Notified when a command has given the endpoint something to send.
    pub(super) work: Notify,
}

pub(super) struct MemberState {
    pub(super) endpoint: Endpoint,
    pub(super) session: Option<SessionId>,
    pub(super) stream: Option<StreamWaiters>,
    /// Set once the hub's first answer was reported.
    answered: bool,
    leaving: bool,
}

/// Opens a socket that exchanges datagrams with the hub only.
pub(super) fn bind(hub: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let any = match hub {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    set_buffer(&socket, BufferKind::Receive, KERNEL_BUFFER)?;
    socket.connect(hub)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl SwarmMember {
    pub(super) fn new(
        options: &SwarmOptions,
        number: u32,
        socket: std::net::UdpSocket,
        start: Instant,
        memory: Rc<RefCell<ReceiveMemory>>,
        news: UnboundedSender<MemberEvent>,
    ) -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let link = options.link();
        let key = options.key(number);
        let endpoint = Endpoint::terminal(link, key, options.hub_key, vec![options.hub], seed);
        let state =
            MemberState { endpoint, session: None, stream: None, answered: false, leaving: false };
        let socket = DatagramSocket::new(socket)?;
        let state = state.into();
        let work = Notify::new();
        Ok(Self { number, start, socket, memory, news, state, work })
    }

    /// Runs the terminal until it has left the hub.
    pub(super) async fn run(
        self: Rc<Self>,
        traffic: Option<SwarmTraffic>,
        stages: watch::Receiver<SwarmStage>,
    ) {
        sleep_until(self.start).await;
        tokio::select! {
            error = self.drive() => self.report(MemberEvent::Failed(error.to_string())),
            () = self.run_stages(traffic, stages) => {}
        }
    }

    fn report(&self, news: MemberEvent) {
        // Sending fails only after the end of the swarm.
        let _ = self.news.send(news);
    }

    /// Follows the stages of the swarm: downloads, then leaves.
    async fn run_stages(
        &self,
        traffic: Option<SwarmTraffic>,
        mut stages: watch::Receiver<SwarmStage>,
    ) {
        // The stages end with the swarm.
        let _ = stages.wait_for(|stage| *stage >= SwarmStage::Traffic).await.map(drop);
        if let Some(traffic) = traffic.filter(|traffic| self.number < traffic.terminals) {
            self.report(self.download(&traffic, &mut stages).await);
        }
        let _ = stages.wait_for(|stage| *stage == SwarmStage::End).await.map(drop);
        self.leave().await;
    }

    /// Downloads until all has arrived, or the swarm ends.
    async fn download(
        &self,
        traffic: &SwarmTraffic,
        stages: &mut watch::Receiver<SwarmStage>,
    ) -> MemberEvent {
        let start = Instant::now();
        let mut moved = 0;
        let key = flow_key(traffic.key, self.number.into());
        let work = RequestedWork::Download { amount: traffic.amount, cap: None };
        let request = MeterRequest { key, sockets: SocketOptions::default(), work };
        let error = match self.open(traffic.server) {
            Ok(mut stream) => tokio::select! {
                whole = download::run(&mut stream, &request, &mut moved) => {
                    whole.err().map(|error| error.to_string())
                }
                _ = stages.wait_for(|stage| *stage == SwarmStage::End) => {
                    Some("a download was cut off by the end".to_owned())
                }
            },
            Err(error) => return self.no_flow(&error.to_string()),
        };
        MemberEvent::Flow { moved, total: start.elapsed(), error }
    }

    fn no_flow(&self, error: &str) -> MemberEvent {
        MemberEvent::Flow { moved: 0, total: Duration::ZERO, error: Some(error.to_owned()) }
    }

    /// Opens a stream to `server`.
    fn open(&self, server: SocketAddr) -> io::Result<HopStream<'_>> {
        // The hub verifies source addresses only if it shows them to servers.
        let source = self.socket.socket().local_addr()?;
        HopStream::open(
            self,
            self.now(),
            slacp::StreamOpening { destination: server, source, dscp: None },
        )
    }

    /// Tells the hub that the session ends, and gives the driver the time to repeat it.
    async fn leave(&self) {
        {
            // Released before the pause, in which the driver borrows it.
            let mut state = self.state.borrow_mut();
            state.leaving = true;
            state.endpoint.shut_down(self.now());
        }
        self.work.notify_one();
        sleep(Duration::from_millis(200)).await;
    }

    /// Returns the number of datagrams for which the socket had no room.
    pub(super) fn overflows(&self) -> u64 {
        overflows(self.socket.socket()).unwrap_or(0).into()
    }

    pub(super) fn now(&self) -> units::Instant {
        // Not zero, which is reserved for the time before everything.
        units::Instant::from_nanos(1) + self.start.elapsed()
    }

    /// Drives the endpoint until its socket fails.
    async fn drive(&self) -> io::Error {
        loop {
            let wake = self.turn();
            tokio::select! {
                readable = self.socket.socket().readable() => {
                    if let Err(error) = readable.and_then(|()| self.receive()) {
                        return error;
                    }
                }
                () = until(wake) => {}
                () = self.work.notified() => {}
            }
        }
    }

    /// Handles timers and events, and sends; returns the time of the next timer.
    fn turn(&self) -> Option<Instant> {
        let now = self.now();
        let mut datagram = Vec::new();
        let mut state = self.state.borrow_mut();
        if state.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
            state.endpoint.handle_timeout(now);
        }
        self.follow_events(&mut state);
        // A swarm has no tunnel, so its packets are discarded.
        while state.endpoint.poll_packet().is_some() {}
        while state.endpoint.poll_transmit(now, &mut datagram).is_some() {
            // What does not fit into the socket is lost, and so is what a hub that is down refuses:
            // the protocol sends it again.
            let _ = self.socket.socket().try_send(&datagram);
        }
        let (at, _) = state.endpoint.poll_timeout()?;
        Some(Instant::now() + at.saturating_since(now))
    }

    pub(super) fn follow_events(&self, state: &mut MemberState) {
        while let Some((session, event)) = state.endpoint.poll_event() {
            match event {
                Event::Up { .. } => state.session = Some(session),
                Event::Down(why) => {
                    if state.session == Some(session) {
                        state.session = None;
                    }
                    if state.answered && !state.leaving {
                        self.report(MemberEvent::Lost(why.to_string()));
                    }
                    state.end_stream("the session ended");
                }
                Event::Reset { reason, .. } => state.end_stream(&format!("reset: {reason:?}")),
                Event::Readable(_) | Event::Writable(_) => {
                    state.stream.iter_mut().for_each(StreamWaiters::wake);
                }
                _ => {}
            }
        }
        // A session counts only with the hub's first answer on it.
        let heard = |id| Some(state.endpoint.stats(id)?.packets_received > 0);
        if !state.answered && state.session.and_then(heard) == Some(true) {
            state.answered = true;
            self.report(MemberEvent::Up(self.start.elapsed()));
        }
    }

    fn receive(&self) -> io::Result<()> {
        let mut memory = self.memory.borrow_mut();
        for _ in 0..TURN {
            let now = self.now();
            let endpoint = &mut self.state.borrow_mut().endpoint;
            let take = |arrived: ArrivedDatagram<'_>| {
                _ = endpoint.handle_datagram(now, arrived.from, arrived.bytes);
            };
            match self.socket.receive(&mut memory, take) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // No process listens at the hub's port at the moment.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl MemberState {
    fn end_stream(&mut self, why: &str) {
        self.stream.iter_mut().for_each(|stream| stream.end(why));
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(wake) => sleep_until(wake).await,
        None => std::future::pending().await,
    }
}
