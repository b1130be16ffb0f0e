//! Driver of the stack: moves packets between it and its device, and wakes the tasks of its connections.
//!
//! One task reads the device and the timer. The tasks of connections call the stack directly, like
//! those of the hop, and notify the driver when it may have something to send. Everything runs on one
//! thread, so the lock is uncontended; it is never held across an await.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use control::Counter;
use os::Timer;
use slacp::StreamOpening;
use tcp::wire::packet::{self, IncomingPacket};
use tcp::{Config, FlowId, SeqNr, Stack, StackError, StackEvent, wire};
use tokio::sync::{Notify, mpsc};
use units::{Instant, Machine};

use super::flow::StackFlow;
use super::mtu::PathMtus;
use crate::figures::counters::GatewayCounters;
use crate::network::tun::LONGEST_PACKET;
use crate::network::tun::port::DevicePort;
use crate::process::clock;

/// Maximum packets per turn from the device.
const PACKETS_PER_TURN: usize = 64;
/// Maximum SYNs that wait for the gateway's main loop, the same limit as the stack's own.
pub(super) const INCOMING: usize = 1024;
/// Length of the IP and TCP headers without options, in bytes.
const HEADERS_V4: u16 = 40;
const HEADERS_V6: u16 = 60;
/// Range of local ports, which is Linux' default.
const FIRST_PORT: u16 = 32_768;
const LAST_PORT: u16 = 60_999;
/// Ports tried before a destination counts as exhausted.
const TRIES: usize = 128;

/// State shared by the driver and the connections' tasks.
pub(super) struct StackShared {
    state: Mutex<StackState>,
    port: Arc<DevicePort>,
    /// Notified by anything that may make the stack send.
    work: Notify,
    counters: Arc<GatewayCounters>,
    /// Packets of the stack that the device has refused.
    pub(super) unsent: Counter,
}

/// The stack, and the tasks that wait for its connections.
pub(super) struct StackState {
    pub(super) stack: Stack<Bytes>,
    pub(super) config: Arc<Config>,
    mtus: PathMtus,
    wakers: BTreeMap<FlowId, Wakers>,
}

#[derive(Default)]
struct Wakers {
    reader: Option<Waker>,
    writer: Option<Waker>,
    watcher: Option<Waker>,
}

/// A connection request from a host on the WAN side.
pub(crate) struct IncomingFlow {
    pub(crate) flow: StackFlow,
    pub(crate) open: StreamOpening,
}

/// The task that moves packets.
pub(super) struct StackDriver {
    server: StackServer,
    timer: Timer,
    buffer: Vec<u8>,
}

/// Handles packets and events.
struct StackServer {
    shared: Arc<StackShared>,
    incoming: mpsc::Sender<IncomingFlow>,
    /// A packet to send.
    out: Vec<u8>,
}

impl StackShared {
    pub(super) fn new(
        port: Arc<DevicePort>,
        stack: Stack<Bytes>,
        config: Arc<Config>,
        mtu: u16,
        counters: Arc<GatewayCounters>,
    ) -> Self {
        let state = StackState { stack, config, mtus: PathMtus::new(mtu), wakers: BTreeMap::new() };
        Self {
            state: Mutex::new(state),
            port,
            work: Notify::new(),
            counters,
            unsent: Counter::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, StackState> {
        self.state.lock().expect("no thread panics while it holds the stack")
    }

    /// Stops reading a device that was removed.
    fn end_turn(&self, turn: io::Result<bool>) {
        match turn {
            // A veth device that is down; it may come up again (packet(7)).
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {}
            Err(error) if self.port.device().fail() => {
                tracing::warn!("the stack's device is gone: {error}; it is made anew");
            }
            _ => {}
        }
    }

    /// Wakes the driver, since the stack may have something to send.
    pub(super) fn notify_driver(&self) {
        self.work.notify_one();
    }

    /// Opens a connection from a free port of `source`.
    ///
    /// # Errors
    /// EADDRNOTAVAIL without a free port; ENOBUFS at the limit of connections.
    pub(super) fn connect(
        self: &Arc<Self>,
        now: Instant,
        source: IpAddr,
        destination: SocketAddr,
        dscp: Option<u8>,
    ) -> io::Result<StackFlow> {
        let mut state = self.lock();
        let config = state.config_for(now, destination.ip(), &self.counters);
        let path = state.free_path(source, destination)?;
        let code = |code| Err(io::Error::from_raw_os_error(code));
        match state.stack.connect(path, config, SeqNr::new(random()? as u32)) {
            Ok(id) => {
                state.stack.set_dscp(id, dscp.unwrap_or(0));
                drop(state);
                self.notify_driver();
                Ok(StackFlow::new(self.clone(), id))
            }
            Err(StackError::InUse { .. }) => code(libc::EADDRINUSE),
            Err(_) => code(libc::ENOBUFS),
        }
    }

    /// Answers a SYN with a SYN-ACK.
    pub(super) fn accept(&self, now: Instant, id: FlowId) {
        let mut state = self.lock();
        if let (Some(path), Ok(random)) = (state.stack.path(id), random()) {
            let config = state.config_for(now, path.to, &self.counters);
            state.stack.accept(now, id, config, SeqNr::new(random as u32));
        }
        drop(state);
        self.notify_driver();
    }

    /// Answers a SYN with an ICMP error: its destination is unreachable, or prohibited.
    pub(super) fn tell_unreachable(&self, id: FlowId, prohibited: bool) {
        let state = self.lock();
        let syn = state.stack.path(id).zip(state.stack.syn(id));
        drop(state);
        let error =
            syn.and_then(|(path, seq)| packet::unreachable(&path.reversed(), seq, prohibited));
        // A lost error is sent again after the next SYN.
        if error.is_some_and(|error| self.port.device().send(&error).is_err()) {
            self.unsent.increment();
        }
    }

    /// Sends all packets that are due, without the driver.
    pub(super) fn send_now(&self, now: Instant) {
        transmit(self, now, &mut self.lock(), &mut Vec::new());
    }

    /// Releases a connection whose owner has dropped it: closes it if `closes`, else resets it.
    pub(super) fn release(&self, now: Instant, id: FlowId, closes: bool) {
        let mut state = self.lock();
        state.wakers.remove(&id);
        if closes {
            state.stack.release(id);
        } else {
            state.stack.abort(now, id);
        }
        drop(state);
        self.notify_driver();
    }
}

impl StackState {
    /// Chooses a random port of `source` that no connection of the stack to `destination` uses.
    fn free_path(&self, source: IpAddr, destination: SocketAddr) -> io::Result<wire::SegmentPath> {
        const PORTS: u64 = (LAST_PORT - FIRST_PORT + 1) as u64;
        for _ in 0..TRIES {
            let from_port = FIRST_PORT + (random()? % PORTS) as u16;
            let path = wire::SegmentPath {
                from: source,
                from_port,
                to: destination.ip(),
                to_port: destination.port(),
            };
            if !self.stack.has(&path) {
                return Ok(path);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))
    }

    /// Returns the settings of a new connection with `peer`, with the MSS of the path and a random seed.
    fn config_for(&self, now: Instant, peer: IpAddr, counters: &GatewayCounters) -> Arc<Config> {
        // The MSS does not count options (RFC 6691), so only fixed headers are subtracted.
        let headers = if peer.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
        let most = self.mtus.of(now, peer) - headers;
        Arc::new(Config {
            mss: self.config.mss.min(most),
            keepalive: Some(counters.keepalive.of_stack()),
            seed: random().unwrap_or_default(),
            ..Config::clone(&self.config)
        })
    }

    pub(super) fn wait_to_read<T>(&mut self, id: FlowId, context: &Context<'_>) -> Poll<T> {
        wait(&mut self.wakers.entry(id).or_default().reader, context)
    }

    pub(super) fn wait_to_write<T>(&mut self, id: FlowId, context: &Context<'_>) -> Poll<T> {
        wait(&mut self.wakers.entry(id).or_default().writer, context)
    }

    pub(super) fn wait_for_failure<T>(&mut self, id: FlowId, context: &Context<'_>) -> Poll<T> {
        wait(&mut self.wakers.entry(id).or_default().watcher, context)
    }

    fn wake(&mut self, id: FlowId) {
        let Some(Wakers { reader, writer, watcher }) = self.wakers.get_mut(&id) else { return };
        for waker in [reader, writer, watcher] {
            waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

fn wait<T>(waker: &mut Option<Waker>, context: &Context<'_>) -> Poll<T> {
    match waker {
        Some(known) if known.will_wake(context.waker()) => {}
        _ => *waker = Some(context.waker().clone()),
    }
    Poll::Pending
}

impl StackDriver {
    /// Creates a driver that passes connection requests from the WAN side to `incoming`.
    ///
    /// # Errors
    /// If the process has no descriptor left for the timer.
    pub(super) fn new(
        shared: Arc<StackShared>,
        incoming: mpsc::Sender<IncomingFlow>,
    ) -> io::Result<Self> {
        let server = StackServer { shared, incoming, out: Vec::new() };
        Ok(Self { server, timer: Timer::new()?, buffer: vec![0; LONGEST_PACKET] })
    }

    /// Runs until the timer fails. Without its device the stack loses all packets, until there is
    /// another one.
    pub(super) async fn run(mut self) -> io::Error {
        loop {
            if let Err(error) = self.turn().await {
                return error;
            }
        }
    }

    async fn turn(&mut self) -> io::Result<()> {
        let Self { server, timer, buffer } = self;
        let now = clock::now();
        server.handle_timeouts(now);
        server.serve(now, 0);
        let shared = server.shared.clone();
        let next = shared.lock().stack.poll_timeout().map(|(at, _)| at);
        // The clock is read again: serving may have taken long.
        if next.is_some_and(|at| at <= clock::now()) {
            tokio::task::yield_now().await;
            let handle = |packet: &[u8]| server.handle_packet(packet);
            shared.end_turn(shared.port.device().take_turn(buffer, PACKETS_PER_TURN, handle));
            return Ok(());
        }
        timer.set(next)?;
        let handle = |packet: &[u8]| server.handle_packet(packet);
        tokio::select! {
            turn = shared.port.take_turn(buffer, PACKETS_PER_TURN, handle) => {
                shared.end_turn(turn);
                // The tasks that were woken run before the next turn.
                tokio::task::yield_now().await;
                Ok(())
            }
            expired = timer.expired() => expired,
            () = shared.work.notified() => Ok(()),
        }
    }
}

impl StackServer {
    fn handle_timeouts(&self, now: Instant) {
        let mut state = self.shared.lock();
        if state.stack.poll_timeout().is_some_and(|(at, _)| at <= now) {
            state.stack.handle_timeout(now);
        }
    }

    /// Handles a packet of the device, and sends replies, so that acknowledgements do not leave in bursts.
    fn handle_packet(&mut self, packet: &[u8]) {
        let packet = Bytes::copy_from_slice(packet);
        let now = clock::now();
        let mut dscp_of_syn = 0;
        match packet::read(&packet) {
            Some(IncomingPacket::Segment(path, segment, dscp)) => {
                dscp_of_syn = dscp;
                self.shared.lock().stack.handle_segment(now, &path, &segment);
            }
            Some(IncomingPacket::Unreachable(path, seq)) => {
                self.shared.lock().stack.handle_unreachable(&path, seq);
            }
            Some(IncomingPacket::TooBig(path, mtu)) => {
                let mut state = self.shared.lock();
                // A report counts only if it quotes a connection of this stack (RFC 5927 §7).
                if state.stack.has(&path) {
                    state.mtus.lower(now, path.to, mtu);
                }
            }
            None => {}
        }
        self.serve(now, dscp_of_syn);
    }

    /// Handles the stack's events, and sends all packets that are due.
    fn serve(&mut self, now: Instant, dscp_of_syn: u8) {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let mut incoming = Vec::new();
        while let Some(event) = state.stack.poll_event() {
            match event {
                StackEvent::Changed(id) => state.wake(id),
                StackEvent::Incoming(id) => incoming.push(id),
                _ => {}
            }
        }
        // What the stack sends on a connection has the code point of its SYN.
        incoming.iter().for_each(|id| state.stack.set_dscp(*id, dscp_of_syn));
        transmit(&shared, now, &mut state, &mut self.out);
        let opens = incoming.into_iter().map(|id| (id, state.stack.path(id)));
        let opens: Vec<_> = opens.collect();
        drop(state);
        for (id, path) in opens {
            let flow = StackFlow::new(shared.clone(), id);
            let Some(path) = path else { continue };
            let open = StreamOpening {
                destination: SocketAddr::new(path.from, path.from_port),
                source: SocketAddr::new(path.to, path.to_port),
                dscp: (dscp_of_syn != 0).then_some(dscp_of_syn),
            };
            // Without room the SYN is ignored, like one that meets a full backlog.
            let _ = self.incoming.try_send(IncomingFlow { flow, open });
        }
    }
}

/// Sends all packets that are due. `out`: buffer for a packet.
fn transmit(shared: &StackShared, now: Instant, state: &mut StackState, out: &mut Vec<u8>) {
    let device = shared.port.device();
    while let Some((path, segment)) = state.stack.poll_transmit(now) {
        let dscp = state.stack.dscp(&path);
        let mtu = state.mtus.of(now, path.to);
        let send = |packet: &[u8]| device.send(packet);
        if let Err(error) = packet::write(&path, segment, dscp, mtu, out, send) {
            // Lost, as on a full link: TCP retransmits.
            tracing::debug!("cannot write to the stack's device: {error}");
            shared.unsent.increment();
        }
    }
}

/// Draws a random number, for sequence numbers (RFC 6528), ports (RFC 6056) and seeds.
fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u64::from_le_bytes(bytes))
}
