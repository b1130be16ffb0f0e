//! TCP sockets: opening, driving and closing connections.

use std::sync::Arc;

use scenario::IpVersion;
use tcp::{ByteRange, Connection, Segment, SeqNr, TcpState, refusal};
use units::Machine;

use super::memory::has_tao_cache;
use super::{DueEvent, World};
use crate::agenda::EventAlarm;
use crate::connection::socket::{SimulatedSocket, SocketOwner};
use crate::connection::talk::ConversationSide;
use crate::ids::NodeId;
use crate::network::packet::{PacketBody, SimulatedPacket};
use crate::slab::SlabKey;

/// One end of a new connection: its node, its settings and its owner.
pub(super) struct SocketSpec {
    pub(super) node: NodeId,
    pub(super) config: Arc<tcp::Config>,
    pub(super) owner: SocketOwner,
}

impl World {
    /// Creates both ends of a connection. The SYN is sent when the first end is serviced.
    pub(super) fn open_sockets(
        &mut self,
        [mut from, mut to]: [SocketSpec; 2],
        ip: IpVersion,
    ) -> [SlabKey; 2] {
        from.config = self.memory.recall(from.config, [from.node, to.node]);
        to.config = self.memory.recall(to.config, [to.node, from.node]);
        let numbers = [self.seeds.bits(), self.seeds.bits()].map(|bits| SeqNr::new(bits as u32));
        let from_node = from.node;
        let to_node = to.node;
        let active = self.sockets.insert(|me| SimulatedSocket {
            tcp: Connection::connect(from.config, numbers[0]),
            node: from_node,
            peer: me,
            peer_node: to_node,
            ip,
            owner: from.owner,
            alarm: EventAlarm::default(),
            watched: None,
        });
        let passive = self.sockets.insert(|_| SimulatedSocket {
            tcp: Connection::listen(to.config, numbers[1]),
            node: to_node,
            peer: active,
            peer_node: from_node,
            ip,
            owner: to.owner,
            alarm: EventAlarm::default(),
            watched: None,
        });
        if let Some(socket) = self.sockets.get_mut(active) {
            socket.peer = passive;
            if has_tao_cache(socket) {
                // An active open changes the cache entry of the last count sent (RFC 1644).
                self.memory.keep_tao_cache(socket);
            }
        }
        [active, passive]
    }

    pub(super) fn deliver_segment(
        &mut self,
        [from, to]: [NodeId; 2],
        ip: IpVersion,
        [source, destination]: [SlabKey; 2],
        segment: &Segment<ByteRange>,
    ) {
        let now = self.now;
        let Some(socket) = self.sockets.get_mut(destination) else {
            self.unroutable += 1;
            if let Some(segment) = refusal(segment) {
                let body = PacketBody::Tcp { source: destination, destination: source, segment };
                self.send(Box::new(SimulatedPacket { from: to, to: from, ip, body }));
            }
            return;
        };
        if matches!(socket.owner, SocketOwner::Unattended) {
            return;
        }
        if let Some(watched) = socket.watched {
            self.probe.note_arrival(watched, now, segment);
        }
        let may_change = self.memory.lend_tao_cache(socket);
        socket.tcp.handle_segment(now, segment);
        if may_change {
            self.memory.keep_tao_cache(socket);
        }
        self.service(destination);
    }

    /// Lets the owner of a socket read and write, sends the segments that are due, and sets the alarm.
    /// Called after every change to a socket.
    pub(super) fn service(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        match socket.owner {
            SocketOwner::Talk(talk, side) => {
                let Some(talk_ref) = self.talks.get_mut(talk) else {
                    // Its application has aborted it.
                    while socket.tcp.poll_event().is_some() {}
                    return self.flush(key);
                };
                let read = talk_ref.serve(side, &mut socket.tcp);
                let app = talk_ref.app;
                let feeds = talk_ref.fetches_for;
                let tidings = !talk_ref.news.is_empty();
                match feeds {
                    None if read > 0 => self.tallies[app.index()].delivered(self.now, read),
                    Some(client) if read > 0 && side == ConversationSide::Client => {
                        self.feed(client, read);
                    }
                    _ => {}
                }
                self.flush(key);
                if tidings {
                    self.deliver_events(talk);
                }
            }
            SocketOwner::Script(connection, side) => self.serve_script(key, connection, side),
            SocketOwner::Unattended => {}
            SocketOwner::Split(split) => {
                self.serve_split(split);
                // A split connection that has ended no longer polls its sockets.
                if let Some(socket) = self.sockets.get_mut(key) {
                    while socket.tcp.poll_event().is_some() {}
                }
                self.flush(key);
            }
        }
    }

    /// Sends a socket's pending segments and sets its alarm. Removes the socket when it is closed.
    pub(super) fn flush(&mut self, key: SlabKey) {
        let now = self.now;
        loop {
            let Some(socket) = self.sockets.get_mut(key) else { return };
            let mut packet = self.boxes.pop().unwrap_or_else(SimulatedPacket::blank);
            let PacketBody::Tcp { source, destination, segment } = &mut packet.body else {
                unreachable!("only boxes of segments are kept")
            };
            if !socket.tcp.poll_transmit_into(now, segment) {
                self.boxes.push(packet);
                let next = socket.tcp.poll_timeout().map(|(at, _)| at);
                socket.alarm.set(&mut self.agenda, next, DueEvent::Socket(key));
                let state = socket.tcp.state();
                let peer = socket.peer;
                self.memory.keep_control_block(socket);
                match state {
                    TcpState::Closed if !self.is_still_read(key) => self.remove_socket(key),
                    // A RST has returned it to LISTEN, and the client that gave up will not connect again.
                    TcpState::Listen if self.sockets.get(peer).is_none() => {
                        self.remove_listener(key);
                    }
                    _ => {}
                }
                return;
            }
            (*source, *destination) = (key, socket.peer);
            if let Some(watched) = socket.watched {
                self.probe.note_departure(watched, now, segment);
            }
            (packet.from, packet.to, packet.ip) = (socket.node, socket.peer_node, socket.ip);
            self.send(packet);
        }
    }

    /// Returns true if the owner of a closed socket may still read from it.
    fn is_still_read(&self, key: SlabKey) -> bool {
        let Some(socket) = self.sockets.get(key) else { return false };
        match socket.owner {
            SocketOwner::Split(split) => self.is_leg(key, split),
            SocketOwner::Script(connection, side) => {
                let host =
                    self.scripted.get(connection).map(|scripted| &scripted.hosts[side as usize]);
                socket.tcp.readable() > 0 && host.is_some_and(|host| !host.has_released_socket())
            }
            SocketOwner::Talk(..) | SocketOwner::Unattended => false,
        }
    }

    /// Removes a closed socket, and its peer if that is still in LISTEN.
    fn remove_socket(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.remove(key) else { return };
        if let Some(watched) = socket.watched {
            self.probe.unwatch(watched);
        }
        let is_deaf = |peer: &SimulatedSocket| peer.tcp.state() == TcpState::Listen;
        if self.sockets.get(socket.peer).is_some_and(is_deaf) {
            self.remove_listener(socket.peer);
        }
    }

    /// Removes a socket that no client will connect to, and the split connection that waits for one.
    fn remove_listener(&mut self, key: SlabKey) {
        if let Some(socket) = self.sockets.remove(key)
            && let SocketOwner::Split(split) = socket.owner
        {
            self.splits.remove(split);
        }
    }
}
