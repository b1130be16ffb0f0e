//! Gateways that join two segments by a SLACP session: the real protocol with real data and keys.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;
use std::sync::Arc;

use link::Dice;
use slacp::{
    CloseReason, Config, Endpoint, Event, KeyPair, Open, Read, ResetReason, SessionId, StreamId,
};
use tcp::{ByteRange, Payload as _};
use units::Machine;

use super::{Due, World};
use crate::agenda::{Alarm, Ticket};
use crate::packet::{Body, NodeId, Packet};
use crate::path::Path;
use crate::relay::{Carry, LegEnd};
use crate::slab::Key;

/// The UDP port of every gateway.
const PORT: u16 = 5258;
/// Maximum number of bytes written or read at once.
const CHUNK: usize = 16_384;
/// Period of the data on streams. Wrong, missing or duplicate bytes are detected.
const PERIOD: u64 = 251;

pub(crate) struct Gateway {
    pub(super) endpoint: Endpoint,
    alarm: Alarm,
    /// The session with each peer, once it is up.
    pub(super) sessions: BTreeMap<NodeId, SessionId>,
    peers: BTreeMap<SessionId, NodeId>,
    streams: BTreeMap<(SessionId, StreamId), Key>,
    /// Relays that wait for a session.
    waiting: Vec<Key>,
    buffer: Vec<u8>,
}

fn address(node: NodeId) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0a00_0000 | node.0), PORT))
}

fn node_at(address: SocketAddr) -> Option<NodeId> {
    let SocketAddr::V4(address) = address else { return None };
    Some(NodeId(u32::from(*address.ip()) & 0x00ff_ffff))
}

/// The key pair of a node.
fn identity(node: NodeId) -> KeyPair {
    // Not the number itself, because the curve ignores the lowest bits.
    let mut private = [0; 32];
    Dice::new(node.0.into()).fill(&mut private);
    KeyPair::from_private(private)
}

impl World {
    /// Makes `node` the hub of the gateways at `terminals`.
    pub fn add_hub(&mut self, node: NodeId, config: Config, terminals: &[NodeId]) {
        let allow = terminals.iter().map(|terminal| identity(*terminal).public()).collect();
        let seed = self.draw_key();
        self.add_gateway(node, Endpoint::hub(config, identity(node), allow, seed));
    }

    /// Makes `node` a terminal of the gateway at `hub`. It sets up its session when the clock
    /// starts.
    pub fn add_terminal(&mut self, node: NodeId, config: Config, hub: NodeId) {
        let seed = self.draw_key();
        let (key, to) = (identity(hub).public(), vec![address(hub)]);
        self.add_gateway(node, Endpoint::terminal(config, identity(node), key, to, seed));
    }

    fn draw_key(&mut self) -> [u8; 32] {
        let mut key = [0; 32];
        self.seeds.fill(&mut key);
        key
    }

    fn add_gateway(&mut self, node: NodeId, endpoint: Endpoint) {
        self.nodes[node.index()].gateway = Some(self.gateways.len() as u32);
        self.gateways.push(Gateway {
            endpoint,
            alarm: Alarm::default(),
            sessions: BTreeMap::new(),
            peers: BTreeMap::new(),
            streams: BTreeMap::new(),
            waiting: Vec::new(),
            buffer: Vec::new(),
        });
        self.restless.push_back(node);
        self.settle();
    }

    pub(super) fn gateway(&mut self, node: NodeId) -> Option<&mut Gateway> {
        let place = self.nodes[node.index()].gateway?;
        self.gateways.get_mut(place as usize)
    }

    /// Statistics of a gateway's session with a peer.
    pub fn session_stats(&self, node: NodeId, peer: NodeId) -> Option<slacp::Stats> {
        let gateway = &self.gateways[self.nodes[node.index()].gateway? as usize];
        gateway.endpoint.stats(*gateway.sessions.get(&peer)?)
    }

    pub(super) fn deliver_slacp(&mut self, from: NodeId, to: NodeId, mut bytes: Vec<u8>) {
        let now = self.now;
        let Some(gateway) = self.gateway(to) else {
            self.strays += 1;
            return;
        };
        gateway.endpoint.handle_datagram(now, address(from), &mut bytes);
        self.drive_gateway(to);
    }

    pub(super) fn wake_gateway(&mut self, node: NodeId, ticket: Ticket) {
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
        let now = self.now;
        while let Some(gateway) = self.gateway(node) {
            let mut bytes = Vec::with_capacity(1500);
            let Some(to) = gateway.endpoint.poll_transmit(now, &mut bytes) else { break };
            let Some(to) = node_at(to) else { break };
            self.send(Box::new(Packet { from: node, to, body: Body::Slacp(bytes) }));
        }
        let Some(place) = self.nodes[node.index()].gateway else { return };
        let gateway = &mut self.gateways[place as usize];
        let next = gateway.endpoint.poll_timeout().map(|(at, _)| at.max(now));
        gateway.alarm.set(&mut self.agenda, next, Due::Gateway(node));
    }

    fn gateway_event(&mut self, node: NodeId, session: SessionId, event: &Event) {
        let Some(gateway) = self.gateway(node) else { return };
        match *event {
            Event::Up { address, .. } => {
                let Some(peer) = node_at(address) else { return };
                gateway.sessions.insert(peer, session);
                gateway.peers.insert(session, peer);
                for relay in core::mem::take(&mut gateway.waiting) {
                    self.serve_relay(relay);
                }
            }
            Event::Down(_) => {
                if let Some(peer) = gateway.peers.remove(&session) {
                    gateway.sessions.remove(&peer);
                }
                self.lose_streams(node, session);
            }
            Event::Opened { stream, ref open } => {
                self.accept_stream(node, session, stream, open.source);
            }
            Event::Accepted(stream) | Event::Readable(stream) | Event::Writable(stream) => {
                if let Some(relay) = gateway.streams.get(&(session, stream)).copied() {
                    self.serve_relay(relay);
                }
            }
            Event::Closed(stream) => {
                let Some(relay) = gateway.streams.remove(&(session, stream)) else { return };
                self.end_stream(relay, LegEnd::Stream(session, stream));
            }
            Event::Reset { stream, .. } => {
                let relay = gateway.streams.remove(&(session, stream));
                relay.into_iter().for_each(|relay| self.cut_relay(relay));
            }
            _ => {}
        }
    }

    fn end_stream(&mut self, key: Key, end: LegEnd) {
        let Some(relay) = self.relays.get_mut(key) else { return };
        for side in 0..2 {
            relay.over[side] |= relay.legs[side] == Some(end);
        }
        self.serve_relay(key);
    }

    fn lose_streams(&mut self, node: NodeId, session: SessionId) {
        let Some(gateway) = self.gateway(node) else { return };
        let lost: Vec<_> =
            gateway.streams.keys().filter(|(of, _)| *of == session).copied().collect();
        let relays: Vec<_> = lost.iter().filter_map(|key| gateway.streams.remove(key)).collect();
        relays.into_iter().for_each(|relay| self.cut_relay(relay));
    }

    /// Opens the stream between `nodes[at]` and the next gateway for `relay`; `None` while there is
    /// no session.
    pub(super) fn open_stream(
        &mut self,
        path: &Arc<Path>,
        at: usize,
        talk: Key,
        relay: Key,
    ) -> Option<LegEnd> {
        let (now, peer) = (self.now, path.nodes[at + 1]);
        let name = self.opens.len() as u32;
        let gateway = self.gateway(path.nodes[at])?;
        let Some(session) = gateway.sessions.get(&peer).copied() else {
            if !gateway.waiting.contains(&relay) {
                gateway.waiting.push(relay);
            }
            return None;
        };
        // The source address carries the number of the far relay.
        let source = SocketAddr::from((Ipv4Addr::from(name), 1));
        let open = Open { destination: address(peer), source, dscp: None };
        let stream = gateway.endpoint.open(now, session, open).ok()?;
        gateway.streams.insert((session, stream), relay);
        let far = self.add_relay(path, at + 1, talk);
        self.opens.push(Some(far));
        Some(LegEnd::Stream(session, stream))
    }

    fn accept_stream(
        &mut self,
        node: NodeId,
        session: SessionId,
        stream: StreamId,
        source: SocketAddr,
    ) {
        let SocketAddr::V4(source) = source else { return };
        let name = u32::from(*source.ip()) as usize;
        let relay = self.opens.get_mut(name).and_then(Option::take);
        let Some(gateway) = self.gateway(node) else { return };
        let Some(relay) = relay else {
            let _ = gateway.endpoint.reset(session, stream, ResetReason::Refused);
            return;
        };
        gateway.streams.insert((session, stream), relay);
        let _ = gateway.endpoint.accept(session, stream);
        if let Some(relay) = self.relays.get_mut(relay) {
            relay.legs[0] = Some(LegEnd::Stream(session, stream));
            relay.ready = true;
        }
        self.serve_relay(relay);
    }

    pub(super) fn reset_stream(&mut self, node: NodeId, session: SessionId, stream: StreamId) {
        if let Some(gateway) = self.gateway(node) {
            gateway.streams.remove(&(session, stream));
            // It may already be gone.
            let _ = gateway.endpoint.reset(session, stream, ResetReason::Reset);
        }
    }

    /// Ends a gateway's session with a peer.
    pub fn close_session(&mut self, node: NodeId, peer: NodeId) {
        let now = self.now;
        let Some(gateway) = self.gateway(node) else { return };
        if let Some(session) = gateway.sessions.get(&peer).copied() {
            let _ = gateway.endpoint.close(now, session, CloseReason::Shutdown);
            self.drive_gateway(node);
        }
    }
}

impl Gateway {
    /// Reads the next bytes and checks them against the pattern.
    pub(super) fn read(&mut self, session: SessionId, stream: StreamId, carry: &mut Carry) {
        self.buffer.resize(CHUNK, 0);
        match self.endpoint.read(session, stream, &mut self.buffer) {
            Ok(Read::Data(len)) => {
                let start = carry.position;
                let good =
                    (start..).zip(&self.buffer[..len]).all(|(at, byte)| *byte == pattern(at));
                assert!(good, "a byte is not where it was written");
                carry.position += len as u64;
                carry.held = ByteRange::new(start..carry.position);
            }
            Ok(Read::End) => carry.ended = true,
            Ok(Read::Blocked) | Err(_) => {}
        }
    }

    pub(super) fn write(&mut self, session: SessionId, stream: StreamId, data: ByteRange) -> usize {
        let range = data.range();
        let len = data.len().min(CHUNK);
        self.buffer.clear();
        self.buffer.extend((range.start..).take(len).map(pattern));
        self.endpoint.write(session, stream, &self.buffer).unwrap_or(0)
    }

    pub(super) fn finish(&mut self, session: SessionId, stream: StreamId) -> bool {
        // An error means that it is over anyway.
        let _ = self.endpoint.finish(session, stream);
        true
    }
}

fn pattern(position: u64) -> u8 {
    (position % PERIOD) as u8
}
