//! Drives relays.
//!
//! A gateway accepts a connection at once and opens the next segment when the handshake is
//! complete, like a transparent proxy. Half-close is passed on, and so is back-pressure, because at
//! most one chunk is held.

use std::sync::Arc;

use tcp::{ByteRange, Event, Payload as _};

use super::World;
use super::slacp::Gateway;
use crate::path::{Leg, Path};
use crate::relay::{Carry, LegEnd, Relay};
use crate::slab::{Key, Slab};
use crate::socket::{Owner, Socket};

/// Maximum number of bytes read at once.
const CHUNK: usize = 65_536;

impl World {
    pub(super) fn add_relay(&mut self, path: &Arc<Path>, at: usize, talk: Key) -> Key {
        self.relays.insert(|_| Relay::new(path, at, talk))
    }

    /// Sets a relay's socket towards the client.
    pub(super) fn join_relay(&mut self, relay: Key, socket: Key) {
        if let Some(relay) = self.relays.get_mut(relay) {
            relay.legs[0] = Some(LegEnd::Tcp(socket));
        }
    }

    /// Does whatever a relay can do after a change.
    pub(super) fn serve_relay(&mut self, key: Key) {
        self.note_relay_events(key);
        self.open_next_leg(key);
        let Some(relay) = self.relays.get_mut(key) else { return };
        let node = relay.path.nodes[relay.at];
        let gateway = self.nodes[node.index()].gateway;
        let gateway = gateway.map(|place| &mut self.gateways[place as usize]);
        let mut legs = Legs { sockets: &mut self.sockets, gateway };
        for from in 0..2 {
            if let [Some(source), sink] = [relay.legs[from], relay.legs[1 - from]] {
                legs.carry(source, sink, &mut relay.carries[from]);
            }
        }
        let (ends, done) = (relay.legs, relay.is_done());
        if done {
            self.relays.remove(key);
        }
        for end in ends.into_iter().flatten() {
            match end {
                LegEnd::Tcp(socket) => self.flush(socket),
                LegEnd::Stream(..) if self.restless.back() == Some(&node) => {}
                LegEnd::Stream(..) => self.restless.push_back(node),
            }
        }
    }

    fn note_relay_events(&mut self, key: Key) {
        let Some(relay) = self.relays.get_mut(key) else { return };
        let mut cut = false;
        for side in 0..2 {
            let Some(LegEnd::Tcp(socket)) = relay.legs[side] else { continue };
            let Some(socket) = self.sockets.get_mut(socket) else { continue };
            while let Some(event) = socket.tcp.poll_event() {
                match event {
                    Event::Connected => relay.ready |= side == 0,
                    Event::Finished => relay.carries[side].ended = true,
                    Event::Closed => relay.over[side] = true,
                    Event::Aborted(_) => cut = true,
                    _ => {}
                }
            }
        }
        if cut {
            self.cut_relay(key);
        }
    }

    /// Breaks the other segment after one has broken.
    pub(super) fn cut_relay(&mut self, key: Key) {
        let Some(relay) = self.relays.remove(key) else { return };
        let node = relay.path.nodes[relay.at];
        for end in relay.legs.into_iter().flatten() {
            match end {
                LegEnd::Tcp(socket) => {
                    if let Some(socket) = self.sockets.get_mut(socket) {
                        socket.tcp.abort(self.now);
                    }
                    self.service(socket);
                }
                LegEnd::Stream(session, stream) => self.reset_stream(node, session, stream),
            }
        }
    }

    fn open_next_leg(&mut self, key: Key) {
        let Some(relay) = self.relays.get(key) else { return };
        if !relay.ready || relay.legs[1].is_some() {
            return;
        }
        let (path, at, talk) = (Arc::clone(&relay.path), relay.at, relay.talk);
        let leg = match path.legs[at] {
            Leg::Tcp(..) => self.open_leg(&path, at, talk, Owner::Relay(key)).map(LegEnd::Tcp),
            Leg::Slacp => self.open_stream(&path, at, talk, key),
        };
        if let Some(relay) = self.relays.get_mut(key) {
            relay.legs[1] = leg;
        }
    }

    /// Starts recording the connection's segment between `nodes[at]` and the next node.
    pub(super) fn watch_leg(&mut self, talk: Key, at: usize, ends: [Key; 2]) {
        let Some(name) = self.talks.get(talk).and_then(|talk| talk.watch.clone()) else { return };
        for (place, end) in ends.into_iter().enumerate() {
            let label = format!("{name}.{}{}", at + 1, ["client", "server"][place]);
            if let Some(socket) = self.sockets.get_mut(end) {
                socket.watched = Some(self.probe.watch(label, end));
            }
        }
    }
}

/// The sockets and streams of relays.
struct Legs<'a> {
    sockets: &'a mut Slab<Socket>,
    gateway: Option<&'a mut Gateway>,
}

impl Legs<'_> {
    /// Moves as much as possible. Without a sink, a chunk is read and kept.
    fn carry(&mut self, source: LegEnd, sink: Option<LegEnd>, carry: &mut Carry) {
        loop {
            if carry.held.is_empty() {
                self.read(source, carry);
            }
            let Some(sink) = sink else { return };
            let written = self.write(sink, carry.held);
            carry.held = carry.held.slice(written..carry.held.len());
            if written == 0 {
                break;
            }
        }
        if let (Some(sink), true) = (sink, carry.ended && carry.held.is_empty() && !carry.passed) {
            carry.passed = self.finish(sink);
        }
    }

    fn read(&mut self, source: LegEnd, carry: &mut Carry) {
        match source {
            LegEnd::Tcp(socket) => {
                let Some(socket) = self.sockets.get_mut(socket) else { return };
                if let Some(data) = socket.tcp.read(CHUNK) {
                    carry.position += data.len() as u64;
                    carry.held = data;
                }
            }
            LegEnd::Stream(session, stream) => {
                let Some(gateway) = &mut self.gateway else { return };
                gateway.read(session, stream, carry);
            }
        }
    }

    fn write(&mut self, sink: LegEnd, data: ByteRange) -> usize {
        if data.is_empty() {
            return 0;
        }
        match sink {
            LegEnd::Tcp(socket) => {
                let Some(socket) = self.sockets.get_mut(socket) else { return 0 };
                socket.tcp.write(&data).unwrap_or(0)
            }
            LegEnd::Stream(session, stream) => {
                let Some(gateway) = &mut self.gateway else { return 0 };
                gateway.write(session, stream, data)
            }
        }
    }

    /// Ends a segment's stream, if that is already possible.
    fn finish(&mut self, sink: LegEnd) -> bool {
        match sink {
            LegEnd::Tcp(socket) => {
                let Some(socket) = self.sockets.get_mut(socket) else { return true };
                // A CLOSE in SYN-SENT would abort the connection.
                let open = socket.tcp.state() != tcp::State::SynSent;
                if open {
                    socket.tcp.close();
                }
                open
            }
            LegEnd::Stream(session, stream) => {
                let Some(gateway) = &mut self.gateway else { return true };
                gateway.finish(session, stream)
            }
        }
    }
}
