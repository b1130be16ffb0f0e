//! Gateways that space acknowledgements instead of splitting connections.
//!
//! Acknowledgements that arrive in bursts, for instance in the slots of a return link, make their
//! sender send in bursts. A gateway at the hub holds them back so that they release data no faster than
//! the forward link carries it (RFC 3135 §3.1.1; the "TCP ACK spacing" of ENAC, 3.1). All connections
//! share the link, and so the spacing.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tcp::{ByteRange, Flags, Payload as _, Segment, SeqNr};
use units::{BitRate, ByteCount, Instant};

use super::{Due, World};
use crate::agenda::{Alarm, Ticket};
use crate::packet::{Body, NodeId, Packet};
use crate::slab::Key;

/// How long an acknowledgement is held at most: one that releases more than the link carries in this
/// time does not keep later ones for longer.
const MOST: Duration = Duration::from_millis(500);

/// A gateway that spaces the acknowledgements that it passes on to servers.
#[derive(Debug)]
pub(crate) struct Spacer {
    pace: Pace,
    servers: BTreeSet<NodeId>,
    /// With the times at which they are due, in order.
    held: VecDeque<(Instant, Box<Packet>)>,
    alarm: Alarm,
}

/// When acknowledgements may pass.
#[derive(Debug)]
struct Pace {
    /// Of the data that they release.
    rate: BitRate,
    /// The last acknowledgement to each sender.
    acked: BTreeMap<Key, SeqNr>,
    /// When the data that has been released is through.
    free: Instant,
}

impl Pace {
    /// When the next acknowledgement to this sender may pass.
    fn due(&mut self, now: Instant, sender: Key, ack: SeqNr) -> Instant {
        let before = self.acked.insert(sender, ack);
        let released = before.map_or(0, |before| ack.since(before).max(0));
        let due = self.free.clamp(now, now + MOST);
        self.free = due + self.rate.time_to_send(ByteCount::new(released as u64));
        due
    }
}

/// Whether a segment only acknowledges.
fn is_bare(segment: &Segment<ByteRange>) -> bool {
    let Flags { syn, fin, rst, .. } = segment.flags;
    segment.payload.is_empty() && segment.ack.is_some() && !syn && !fin && !rst
}

impl World {
    /// Lets `node` space acknowledgements to `servers`, so that they release data at `rate`.
    pub fn space_acknowledgements(&mut self, node: NodeId, servers: &[NodeId], rate: BitRate) {
        let pace = Pace { rate, acked: BTreeMap::new(), free: Instant::ZERO };
        let servers = servers.iter().copied().collect();
        let spacer = Spacer { pace, servers, held: VecDeque::new(), alarm: Alarm::default() };
        self.nodes[node.index()].spacer = Some(Box::new(spacer));
    }

    /// Holds an acknowledgement until its time; returns what may pass now.
    pub(super) fn pass_spacer(&mut self, node: NodeId, packet: Box<Packet>) -> Option<Box<Packet>> {
        let now = self.now;
        let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() else {
            return Some(packet);
        };
        let Body::Tcp { destination, segment, .. } = &packet.body else { return Some(packet) };
        if !spacer.servers.contains(&packet.to) {
            return Some(packet);
        }
        let sender = *destination;
        let Some(ack) = segment.ack.filter(|_| is_bare(segment)) else {
            if segment.flags.fin || segment.flags.rst {
                spacer.pace.acked.remove(&sender);
            }
            self.release(node, sender);
            return Some(packet);
        };
        let due = spacer.pace.due(now, sender, ack);
        if due <= now && spacer.held.is_empty() {
            return Some(packet);
        }
        spacer.held.push_back((due, packet));
        self.set_spacer_alarm(node);
        None
    }

    /// Lets all pass that are held for a sender, before a segment that has more than an
    /// acknowledgement.
    fn release(&mut self, node: NodeId, sender: Key) {
        let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() else { return };
        let goes = |packet: &Packet| matches!(packet.body, Body::Tcp { destination, .. } if destination == sender);
        if !spacer.held.iter().any(|(_, packet)| goes(packet)) {
            return;
        }
        let (gone, held) = core::mem::take(&mut spacer.held)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(_, packet)| goes(packet));
        spacer.held = held;
        for (_, packet) in gone {
            self.route(node, packet);
        }
        self.set_spacer_alarm(node);
    }

    pub(super) fn wake_spacer(&mut self, node: NodeId, ticket: Ticket) {
        let now = self.now;
        let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() else { return };
        if !spacer.alarm.ring(ticket) {
            return;
        }
        while let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut()
            && let Some((_, packet)) = spacer.held.pop_front_if(|(due, _)| *due <= now)
        {
            self.route(node, packet);
        }
        self.set_spacer_alarm(node);
    }

    fn set_spacer_alarm(&mut self, node: NodeId) {
        if let Some(spacer) = self.nodes[node.index()].spacer.as_deref_mut() {
            let next = spacer.held.front().map(|(due, _)| *due);
            spacer.alarm.set(&mut self.agenda, next, Due::Spacer(node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;
    use crate::testkit::at_ms;

    /// 1 Mbit/s: an acknowledgement of 2500 bytes keeps the next one 20 ms.
    #[test]
    fn acknowledgements_pass_as_the_link_carries_what_they_release() {
        let mut pace =
            Pace { rate: BitRate::from_mbit(1), acked: BTreeMap::new(), free: Instant::ZERO };
        let mut keys = Slab::new();
        let [one, other] = [(); 2].map(|()| keys.insert(|_| ()));
        let mut due = |key, ms, ack| pace.due(at_ms(ms), key, SeqNr::new(ack));
        assert_eq!(due(one, 0, 0), at_ms(0));
        assert_eq!([2500, 5000, 5000].map(|ack| due(one, 10, ack)), [10, 30, 50].map(at_ms));
        assert_eq!(due(other, 12, 7500), at_ms(50));
        // A duplicate releases nothing, and an idle link keeps nobody.
        assert_eq!(due(one, 1000, 5000), at_ms(1000));
        // Nothing waits for longer than half a second.
        assert_eq!(due(one, 1000, 1_000_000), at_ms(1000));
        assert_eq!(due(one, 1100, 1_002_500), at_ms(1600));
    }
}
