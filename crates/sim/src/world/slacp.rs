//! Gateways that connect two segments by a SLACP session: the real protocol with real data and keys.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;
use std::sync::Arc;

use compression::{
    CodedStream, ContextSlots, Decoder, DecoderPool, Encoder, MalformedStream, StreamRead,
};
use link::Dice;
use slacp::{
    CloseReason, Config, Endpoint, Event, KeyPair, PublicKey, ReadOutcome, ResetReason, SessionId,
    StreamError, StreamId, StreamOpening,
};
use tcp::{ByteRange, SegmentPayload as _};
use units::Machine;

use super::below::LowerLink;
use super::{DueEvent, World};
use crate::agenda::{EventAlarm, EventNumber};
use crate::connection::contents::StreamContents;
use crate::connection::path::ConnectionPath;
use crate::connection::socket::ConnectionHosts;
use crate::connection::split::LegEnd;
use crate::ids::NodeId;
use crate::network::packet::{PacketBody, SimulatedPacket, SlacpDatagram};
use crate::slab::SlabKey;

/// The UDP port of every gateway.
const PORT: u16 = 5258;
/// Maximum number of bytes written or read at once; the same as in the gateway.
const CHUNK: usize = 65_536;

pub(crate) struct SlacpGateway {
    pub(super) endpoint: Endpoint,
    config: Config,
    role: GatewayRole,
    /// Maximum number of simultaneous connections; further streams are reset.
    most_connections: Option<usize>,
    /// True while it cannot open sockets (EMFILE).
    has_no_descriptor: bool,
    alarm: EventAlarm,
    /// The link below, with its flow control.
    pub(super) below: LowerLink,
    /// The session with each peer, once it is up.
    pub(super) sessions: BTreeMap<NodeId, SessionId>,
    peers: BTreeMap<SessionId, NodeId>,
    streams: BTreeMap<(SessionId, StreamId), SlabKey>,
    /// Slots for compressed streams, by session.
    encoders: BTreeMap<SessionId, ContextSlots>,
    /// Split connections that wait for a session.
    waiting: Vec<SlabKey>,
    buffer: Vec<u8>,
}

/// The side of the hop, with its peers.
#[derive(Debug, Clone)]
enum GatewayRole {
    Hub(Vec<PublicKey>),
    Terminal(NodeId),
}

/// A stream on its way to the next gateway.
#[derive(Debug)]
pub(super) struct PendingStream {
    path: Arc<ConnectionPath>,
    /// The index of the gateway that will answer.
    at: usize,
    hosts: ConnectionHosts,
}

pub(super) fn address(node: NodeId) -> SocketAddr {
    // 10.0.0.0/8 leaves 24 bits for the node, which `node_at` reads back.
    SocketAddr::from((Ipv4Addr::from(0x0a00_0000 | node.0), PORT))
}

fn node_at(address: SocketAddr) -> Option<NodeId> {
    let SocketAddr::V4(address) = address else { return None };
    Some(NodeId(u32::from(*address.ip()) & 0x00ff_ffff))
}

/// Returns the key pair of a node.
fn identity(node: NodeId) -> KeyPair {
    // Not the number itself: X25519 ignores the three lowest bits of a private key.
    let mut private = [0; 32];
    Dice::new(node.0.into()).fill(&mut private);
    KeyPair::from_private(private)
}

impl World {
    /// Makes `node` the hub of the gateways at `terminals`.
    pub fn add_hub(&mut self, node: NodeId, config: Config, terminals: &[NodeId]) {
        let allow = terminals.iter().map(|terminal| identity(*terminal).public()).collect();
        self.add_gateway(node, config, GatewayRole::Hub(allow));
    }

    /// Makes `node` a terminal of the gateway at `hub`. It sets up its session when the clock
    /// starts.
    pub fn add_terminal(&mut self, node: NodeId, config: Config, hub: NodeId) {
        self.add_gateway(node, config, GatewayRole::Terminal(hub));
    }

    fn add_gateway(&mut self, node: NodeId, config: Config, role: GatewayRole) {
        self.nodes[node.index()].gateway = Some(self.gateways.len() as u32);
        let endpoint = self.new_endpoint(node, config.clone(), &role);
        self.gateways.push(SlacpGateway::new(endpoint, config, role));
        self.gateways_to_drive.push_back(node);
        self.settle();
    }

    fn new_endpoint(&mut self, node: NodeId, config: Config, role: &GatewayRole) -> Endpoint {
        let mut seed = [0; 32];
        self.seeds.fill(&mut seed);
        match role {
            GatewayRole::Hub(allow) => Endpoint::hub(config, identity(node), allow.clone(), seed),
            GatewayRole::Terminal(hub) => {
                let key = identity(*hub).public();
                let to = vec![address(*hub)];
                Endpoint::terminal(config, identity(node), key, to, seed)
            }
        }
    }

    /// Kills a gateway's process and starts it again at once. The kernel resets its connections; its
    /// SLACP peers have to detect the restart.
    pub fn restart_gateway(&mut self, node: NodeId) {
        let now = self.now;
        let Some(place) = self.nodes[node.index()].gateway else { return };
        let SlacpGateway { config, role, most_connections, below, .. } =
            &self.gateways[place as usize];
        let config = config.clone();
        let role = role.clone();
        let most_connections = *most_connections;
        let below = below.after_restart();
        let endpoint = self.new_endpoint(node, config.clone(), &role);
        let gateway = SlacpGateway::new(endpoint, config, role);
        self.gateways[place as usize] = SlacpGateway { most_connections, below, ..gateway };
        let lost: Vec<SlabKey> = self.splits_at(node).collect();
        for split in
            lost.into_iter().filter_map(|split| self.splits.remove(split)).collect::<Vec<_>>()
        {
            for end in split.ends().into_iter().flatten() {
                let LegEnd::Tcp(socket) = end else { continue };
                if let Some(socket) = self.sockets.get_mut(socket) {
                    socket.tcp.abort(now);
                }
                self.flush(socket);
            }
        }
        self.gateways_to_drive.push_back(node);
        self.settle();
    }

    /// Sets the maximum number of simultaneous connections of a gateway.
    pub fn set_most_connections(&mut self, node: NodeId, most: Option<usize>) {
        if let Some(gateway) = self.gateway(node) {
            gateway.most_connections = most;
        }
    }

    /// Makes a gateway run out of file descriptors, or ends that; without descriptors it cannot open
    /// connections.
    pub fn set_descriptors(&mut self, node: NodeId, are_there: bool) {
        if let Some(gateway) = self.gateway(node) {
            gateway.has_no_descriptor = !are_there;
        }
    }

    /// Returns the number of split connections at a gateway.
    pub fn connections(&self, node: NodeId) -> usize {
        self.splits_at(node).count()
    }

    /// Returns the number of streams that a gateway has not closed.
    pub fn streams(&self, node: NodeId) -> usize {
        let place = self.nodes[node.index()].gateway;
        place.map_or(0, |place| self.gateways[place as usize].streams.len())
    }

    fn splits_at(&self, node: NodeId) -> impl Iterator<Item = SlabKey> {
        let here = self.splits.iter().filter(move |(_, split)| split.path.nodes[split.at] == node);
        here.map(|(key, _)| key)
    }

    fn is_full(&mut self, node: NodeId) -> bool {
        let most = self.gateway(node).and_then(|gateway| gateway.most_connections);
        // Counted only if there is a limit, because it visits every connection.
        most.is_some_and(|most| self.connections(node) >= most)
    }

    pub(super) fn has_no_descriptor(&mut self, node: NodeId) -> bool {
        self.gateway(node).is_some_and(|gateway| gateway.has_no_descriptor)
    }

    pub(super) fn gateway(&mut self, node: NodeId) -> Option<&mut SlacpGateway> {
        let place = self.nodes[node.index()].gateway?;
        self.gateways.get_mut(place as usize)
    }

    /// Returns the statistics of a gateway's session with a peer.
    pub fn session_stats(&self, node: NodeId, peer: NodeId) -> Option<slacp::SessionStats> {
        let gateway = &self.gateways[self.nodes[node.index()].gateway? as usize];
        gateway.endpoint.stats(*gateway.sessions.get(&peer)?)
    }

    /// Enables the event logs of a gateway's sessions, each with room for this many entries.
    pub fn log_sessions(&mut self, node: NodeId, entries: usize) {
        let Some(gateway) = self.gateway(node) else { return };
        let sessions: Vec<SessionId> = gateway.sessions.values().copied().collect();
        for session in sessions {
            // The call fails only for a session that has ended; it has no log.
            let _ = gateway.endpoint.set_event_log(session, entries);
        }
    }

    /// Removes and returns the oldest entry of a gateway's event logs.
    pub fn poll_log(&mut self, node: NodeId) -> Option<slacp::LogEntry> {
        self.gateway(node)?.endpoint.poll_log()
    }

    pub(super) fn deliver_slacp(&mut self, from: NodeId, to: NodeId, mut bytes: Vec<u8>) {
        let now = self.now;
        let Some(gateway) = self.gateway(to) else {
            self.unroutable += 1;
            return;
        };
        gateway.endpoint.handle_datagram(now, address(from), &mut bytes);
        self.drive_gateway(to);
    }

    pub(super) fn wake_gateway(&mut self, node: NodeId, ticket: EventNumber) {
        let now = self.now;
        let Some(gateway) = self.gateway(node) else { return };
        if !gateway.alarm.ring(ticket) {
            return;
        }
        gateway.endpoint.handle_timeout(now);
        self.drive_gateway(node);
    }

    /// Processes a gateway's events, sends its datagrams and sets its alarm.
    pub(super) fn drive_gateway(&mut self, node: NodeId) {
        while let Some((session, event)) =
            self.gateway(node).and_then(|gateway| gateway.endpoint.poll_event())
        {
            self.gateway_event(node, session, &event);
        }
        self.leave_tunnels(node);
        self.update_hold_back(node);
        let now = self.now;
        while let Some(gateway) = self.gateway(node) {
            let mut bytes = Vec::with_capacity(1500);
            let Some(to) = gateway.endpoint.poll_transmit(now, &mut bytes) else { break };
            let Some(to) = node_at(to) else { break };
            let is_control = gateway.endpoint.transmit_is_control();
            let overhead = gateway.below.overhead;
            let sealed = SlacpDatagram { bytes, is_control, overhead };
            gateway.below.charged.add(&sealed);
            self.send(Box::new(SimulatedPacket::v4(node, to, PacketBody::Slacp(sealed))));
            // Every datagram may fill the MAC buffer.
            self.update_hold_back(node);
        }
        let Some(place) = self.nodes[node.index()].gateway else { return };
        let gateway = &mut self.gateways[place as usize];
        // The clock must not go back for a time-out that is overdue.
        let next = gateway.endpoint.poll_timeout().map(|(at, _)| at.max(now));
        let look = gateway.below.next_check(now);
        let next = next.into_iter().chain(look).min();
        gateway.alarm.set(&mut self.agenda, next, DueEvent::Gateway(node));
    }

    fn gateway_event(&mut self, node: NodeId, session: SessionId, event: &Event) {
        let Some(gateway) = self.gateway(node) else { return };
        match *event {
            Event::Up { address, .. } => self.add_session(node, session, address),
            Event::Down(_) => self.lose_session(node, session),
            Event::Opened { stream, ref open } => {
                self.answer_stream(node, session, stream, open.source);
            }
            Event::Accepted(stream) => {
                if let Some(split) = gateway.streams.get(&(session, stream)).copied() {
                    self.note_accepted(split);
                }
            }
            Event::Readable(stream) | Event::Writable(stream) => {
                if let Some(split) = gateway.streams.get(&(session, stream)).copied() {
                    self.serve_split(split);
                }
            }
            Event::Closed(stream) => {
                gateway.streams.remove(&(session, stream));
            }
            Event::Reset { stream, reason } => {
                if let Some(split) = gateway.streams.remove(&(session, stream)) {
                    self.fail_stream(split, LegEnd::Stream(session, stream), reason);
                }
            }
            _ => {}
        }
    }

    /// Records a session that is up, and opens the streams that waited for one.
    fn add_session(&mut self, node: NodeId, session: SessionId, address: SocketAddr) {
        let Some(gateway) = self.gateway(node) else { return };
        let Some(peer) = node_at(address) else { return };
        gateway.sessions.insert(peer, session);
        // A new session is not held back yet: the next check has to report a full buffer again.
        gateway.below.is_full = false;
        gateway.peers.insert(session, peer);
        for split in core::mem::take(&mut gateway.waiting) {
            self.serve_split(split);
        }
    }

    /// Forgets a session that is down, and fails its streams.
    fn lose_session(&mut self, node: NodeId, session: SessionId) {
        let Some(gateway) = self.gateway(node) else { return };
        // A peer that has restarted may already have another session.
        if let Some(peer) = gateway.peers.remove(&session)
            && gateway.sessions.get(&peer) == Some(&session)
        {
            gateway.sessions.remove(&peer);
        }
        let lost: Vec<_> =
            gateway.streams.keys().filter(|(of, _)| *of == session).copied().collect();
        for (session, stream) in lost {
            let split =
                self.gateway(node).and_then(|gateway| gateway.streams.remove(&(session, stream)));
            let Some(split) = split else { continue };
            self.fail_stream(split, LegEnd::Stream(session, stream), ResetReason::SessionLost);
        }
    }

    /// Opens the stream between `nodes[at]` and the next gateway for `split`; returns `None` while there
    /// is no session.
    ///
    /// # Errors
    /// If there is no room for another stream.
    pub(super) fn open_stream(
        &mut self,
        path: &Arc<ConnectionPath>,
        at: usize,
        hosts: ConnectionHosts,
        split: SlabKey,
    ) -> Result<Option<LegEnd>, ResetReason> {
        let now = self.now;
        let peer = path.nodes[at + 1];
        // Gateways share their memory among clients by source address. The port identifies the opening.
        self.opened = self.opened.wrapping_add(1);
        let source = SocketAddr::new(address(path.nodes[0]).ip(), self.opened);
        let Some(gateway) = self.gateway(path.nodes[at]) else {
            return Err(ResetReason::Unreachable);
        };
        let open = StreamOpening { destination: address(peer), source, dscp: None };
        let opened = match gateway.sessions.get(&peer).copied() {
            Some(session) => {
                // Not compressed unless both sides have decompressors.
                let opened = gateway.endpoint.open_compressed(now, session, open);
                opened.map(|stream| (session, stream))
            }
            None => Err(StreamError::NoSession),
        };
        match opened {
            Ok((session, stream)) => {
                gateway.streams.insert((session, stream), split);
                let opening = PendingStream { path: Arc::clone(path), at: at + 1, hosts };
                self.openings.insert(source, opening);
                Ok(Some(LegEnd::Stream(session, stream)))
            }
            Err(StreamError::NoSession) => {
                if !gateway.waiting.contains(&split) {
                    gateway.waiting.push(split);
                }
                Ok(None)
            }
            Err(_) => Err(ResetReason::Limit),
        }
    }

    /// Accepts or resets a stream that the peer has opened.
    fn answer_stream(
        &mut self,
        node: NodeId,
        session: SessionId,
        stream: StreamId,
        source: SocketAddr,
    ) {
        let opening = self.openings.remove(&source);
        let is_full = self.is_full(node);
        let Some(gateway) = self.gateway(node) else { return };
        let Some(PendingStream { path, at, hosts }) = opening else {
            return gateway.reset(session, stream, ResetReason::Refused);
        };
        if is_full {
            return gateway.reset(session, stream, ResetReason::Limit);
        }
        let split = self.add_split(&path, at, hosts);
        if let Some(gateway) = self.gateway(node) {
            gateway.streams.insert((session, stream), split);
        }
        self.join_split(split, LegEnd::Stream(session, stream));
        self.serve_split(split);
    }

    /// Ends a gateway's session with a peer.
    pub fn close_session(&mut self, node: NodeId, peer: NodeId) {
        let now = self.now;
        let Some(gateway) = self.gateway(node) else { return };
        if let Some(session) = gateway.sessions.get(&peer).copied() {
            // The call fails only for a session that has ended.
            let _ = gateway.endpoint.close(now, session, CloseReason::Shutdown);
            self.drive_gateway(node);
        }
    }
}

impl SlacpGateway {
    fn new(endpoint: Endpoint, config: Config, role: GatewayRole) -> Self {
        Self {
            endpoint,
            config,
            role,
            most_connections: None,
            has_no_descriptor: false,
            alarm: EventAlarm::default(),
            below: LowerLink::default(),
            sessions: BTreeMap::new(),
            peers: BTreeMap::new(),
            streams: BTreeMap::new(),
            encoders: BTreeMap::new(),
            waiting: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Returns the coder of a stream; `None` if its data is not compressed.
    pub(super) fn coder(
        &mut self,
        session: SessionId,
        stream: StreamId,
    ) -> Option<Box<CodedStream>> {
        if !self.endpoint.is_compressed(session, stream) {
            return None;
        }
        let most = usize::from(self.endpoint.peer_decompressors(session));
        let encoders = self.encoders.entry(session).or_insert_with(|| ContextSlots::new(most));
        // Not limited here: the peer keeps to the number that was announced to it.
        let decoder = Decoder::new(DecoderPool::new(usize::MAX));
        let has_dictionary = self.endpoint.peer_has_dictionary(session);
        let encoder = Encoder::new(encoders.clone()).with_dictionary(has_dictionary);
        Some(Box::new(CodedStream::new(encoder, decoder)))
    }

    /// Reads the next bytes, which begin at `position`, and checks them.
    pub(super) fn read(
        &mut self,
        session: SessionId,
        stream: StreamId,
        position: u64,
        contents: &StreamContents,
        coded: Option<&mut CodedStream>,
    ) -> Result<ReadOutcome, StreamError> {
        self.buffer.resize(CHUNK, 0);
        let Self { endpoint, buffer, .. } = self;
        let read = match coded {
            None => endpoint.read(session, stream, buffer)?,
            Some(coded) => read_coded(endpoint, session, stream, coded, buffer)?,
        };
        if let ReadOutcome::Data(bytes) = read {
            let same = contents.from(position).take(bytes).eq(buffer[..bytes].iter().copied());
            assert!(same, "a byte is not where it was written");
        }
        Ok(read)
    }

    /// Writes as many bytes as there is room for, and returns their number.
    pub(super) fn write(
        &mut self,
        session: SessionId,
        stream: StreamId,
        data: ByteRange,
        contents: &StreamContents,
        coded: Option<&mut CodedStream>,
    ) -> usize {
        let len = data.len().min(CHUNK);
        self.buffer.clear();
        self.buffer.extend(contents.from(data.range().start).take(len));
        let mut write = |bytes: &[u8]| self.endpoint.write(session, stream, bytes);
        let written = match coded {
            None => write(&self.buffer),
            Some(coded) => coded.write(&self.buffer, write),
        };
        written.unwrap_or(0)
    }

    /// Ends this side's direction of a stream; returns false if there was no room for the rest of its
    /// compressed data.
    pub(super) fn finish(
        &mut self,
        session: SessionId,
        stream: StreamId,
        coded: Option<&mut CodedStream>,
    ) -> bool {
        let is_flushed = self.flush(session, stream, coded);
        if is_flushed {
            // The call fails only if the stream has already ended.
            let _ = self.endpoint.finish(session, stream);
        }
        is_flushed
    }

    /// Writes the rest of the compressed data; returns false if there was no room for it.
    fn flush(
        &mut self,
        session: SessionId,
        stream: StreamId,
        coded: Option<&mut CodedStream>,
    ) -> bool {
        let write = |bytes: &[u8]| self.endpoint.write(session, stream, bytes);
        // An error means that the stream was reset; the event follows.
        coded.is_none_or(|coded| coded.finish(write).unwrap_or(true))
    }

    /// Resets a stream after its data; returns false if there was no room for the rest of its compressed
    /// data.
    pub(super) fn reset_after_data(
        &mut self,
        session: SessionId,
        stream: StreamId,
        reason: ResetReason,
        coded: Option<&mut CodedStream>,
    ) -> bool {
        let is_flushed = self.flush(session, stream, coded);
        if is_flushed {
            self.streams.remove(&(session, stream));
            // The call fails only if the stream has already ended.
            let _ = self.endpoint.reset_after_data(session, stream, reason);
        }
        is_flushed
    }

    pub(super) fn reset(&mut self, session: SessionId, stream: StreamId, reason: ResetReason) {
        self.streams.remove(&(session, stream));
        // The call fails only if the stream has already ended.
        let _ = self.endpoint.reset(session, stream, reason);
    }
}

/// Reads from a stream whose data may be compressed.
fn read_coded(
    endpoint: &mut Endpoint,
    session: SessionId,
    stream: StreamId,
    coded: &mut CodedStream,
    buffer: &mut [u8],
) -> Result<ReadOutcome, StreamError> {
    let mut receive = |into: &mut [u8]| match endpoint.read(session, stream, into) {
        Ok(ReadOutcome::Data(bytes)) => Ok(StreamRead::Data(bytes)),
        Ok(ReadOutcome::End) => Ok(StreamRead::End),
        Ok(ReadOutcome::Blocked) => Ok(StreamRead::Nothing),
        Err(error) => Err(ReadFailure::Stream(error)),
    };
    // Decompression takes no virtual time, so there is no reason to let others go first.
    let got = loop {
        match coded.read(buffer, &mut receive) {
            Ok(StreamRead::Later) => {}
            got => break got,
        }
    };
    match got {
        Ok(StreamRead::Data(bytes)) => Ok(ReadOutcome::Data(bytes)),
        Ok(StreamRead::End) => Ok(ReadOutcome::End),
        Ok(StreamRead::Nothing | StreamRead::Later) => Ok(ReadOutcome::Blocked),
        Err(ReadFailure::Stream(error)) => Err(error),
        Err(ReadFailure::Malformed(error)) => panic!("a gateway has compressed wrongly: {error}"),
    }
}

/// The reason why a stream cannot be read.
enum ReadFailure {
    Stream(StreamError),
    Malformed(MalformedStream),
}

impl From<MalformedStream> for ReadFailure {
    fn from(error: MalformedStream) -> Self {
        Self::Malformed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_node_and_nodes_have_keys_of_their_own() {
        for number in [0, 1, 255, 256, 0x00ff_ffff] {
            assert_eq!(node_at(address(NodeId(number))), Some(NodeId(number)));
        }
        assert_eq!(node_at("[::1]:5258".parse().unwrap()), None);
        let keys: Vec<_> = (0..16).map(|number| identity(NodeId(number)).public()).collect();
        let distinct = |at: usize| !keys[..at].contains(&keys[at]);
        assert!((0..keys.len()).all(distinct));
        assert_eq!(identity(NodeId(3)).public(), keys[3]);
    }
}
