//! Window limits in place of splits: a gateway lowers the windows in acknowledgements of connections that
//! it does not split, so that their senders let little wait for its link (the cross-layer proxy of Giambene
//! and Hadzic 2008, after the survey of ENAC).
//!
//! The link reports its backlog. Each acknowledgement of new data lets the sender send its connection's
//! part of the room that is left, beyond what it has sent already. Data under way needs no room, so neither
//! the rate nor the round-trip time has to be known. A window is only ever lowered, its right edge never
//! moves back (RFC 9293 §3.8.6), duplicate acknowledgements stay duplicates (RFC 5681 §2), and a sender may
//! always send two segments, so that the receiver acknowledges at once.
//!
//! Not modelled: connections whose SYN was not seen, which pass unchanged.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use tcp::{Segment, SegmentPayload, SeqNr};
use units::ByteCount;

/// Most connections that are limited; further ones pass unchanged.
const MOST: usize = 4_096;
/// Bytes that a sender may always send: two full segments.
const LEAST: u64 = 2 * 1_460;
/// Largest shift of scaled windows (RFC 7323 §2.3).
const MOST_SHIFT: u8 = 14;

/// Limits the backlog that senders behind a gateway cause at its link, by connection `K`.
#[derive(Debug)]
pub struct WindowLimits<K> {
    flows: BTreeMap<K, LimitedFlow>,
    room: ByteCount,
    /// Number of connections with unacknowledged data.
    busy: u64,
}

/// State of a connection.
#[derive(Debug, Clone, Copy)]
struct LimitedFlow {
    /// End of the data that the sender has sent.
    sent: SeqNr,
    /// End of the acknowledged data.
    acked: SeqNr,
    /// Right edge of the window known to the sender.
    edge: SeqNr,
    /// The receiver's own window field in the last acknowledgement.
    offered: u16,
    /// `true` if the sender offers window scaling.
    scales: bool,
    /// Shift of the receiver's windows.
    shift: u8,
    /// `true` if the sent data includes the FIN.
    ends: bool,
}

impl<K: Copy + Ord> WindowLimits<K> {
    /// Limits the backlog of the link to about `room` bytes.
    pub fn new(room: ByteCount) -> Self {
        Self { flows: BTreeMap::new(), room, busy: 0 }
    }

    /// Handles a segment of the sender on its way to the link.
    pub fn handle_sent<P: SegmentPayload>(&mut self, key: K, segment: &Segment<P>) {
        let end = segment.seq.advance(segment.payload.len() as u64 + u64::from(segment.flags.fin));
        if segment.flags.rst {
            self.remove(key);
        } else if segment.flags.syn {
            self.remove(key);
            if self.flows.len() < MOST {
                let scales = segment.options.window_scale.is_some();
                self.flows.insert(key, LimitedFlow::new(segment.seq.advance(1), scales));
            }
        } else if let Some(flow) = self.flows.get_mut(&key)
            && end.is_after(flow.sent)
        {
            // All was acknowledged, so the connection had no part of the room until now.
            self.busy += u64::from(flow.sent == flow.acked);
            flow.sent = end;
            flow.ends |= segment.flags.fin;
        }
    }

    /// Handles a segment to the sender while `waiting` bytes wait for the link, and lowers its window.
    pub fn handle_received<P: SegmentPayload>(
        &mut self,
        key: K,
        segment: &mut Segment<P>,
        waiting: ByteCount,
    ) {
        if segment.flags.rst {
            return self.remove(key);
        }
        let Some(flow) = self.flows.get_mut(&key) else { return };
        if segment.flags.syn {
            // Windows are scaled only if both sides offer it (RFC 7323 §2.2).
            let shift = segment.options.window_scale.filter(|_| flow.scales);
            flow.shift = shift.unwrap_or(0).min(MOST_SHIFT);
            return;
        }
        let Some(ack) = segment.ack.filter(|ack| flow.can_acknowledge(*ack)) else { return };
        if ack != flow.acked && ack == flow.sent {
            self.busy -= 1;
        }
        let room = self.room.get().saturating_sub(waiting.get());
        let part = room / self.busy.max(1);
        segment.window = flow.limit(ack, segment.window, part);
        // The sender has nothing more to send, so its windows no longer matter.
        if flow.ends && flow.acked == flow.sent {
            self.flows.remove(&key);
        }
    }

    fn remove(&mut self, key: K) {
        if let Some(flow) = self.flows.remove(&key) {
            self.busy -= u64::from(flow.sent != flow.acked);
        }
    }
}

impl LimitedFlow {
    fn new(start: SeqNr, scales: bool) -> Self {
        Self { sent: start, acked: start, edge: start, offered: 0, scales, shift: 0, ends: false }
    }

    /// Returns `true` if `ack` lies between the last acknowledgement and the end of the sent data.
    fn can_acknowledge(&self, ack: SeqNr) -> bool {
        !self.acked.is_after(ack) && !ack.is_after(self.sent)
    }

    /// The window field for an acknowledgement with which the receiver offers `window`, if the sender may
    /// send `part` bytes more than it has.
    fn limit(&mut self, ack: SeqNr, window: u16, part: u64) -> u16 {
        let is_duplicate = ack == self.acked && window == self.offered;
        let unit = 1 << self.shift;
        let most = u64::from(window) * unit;
        let distance = |to: SeqNr| u64::try_from(to.since(ack)).unwrap_or(0);
        let least = distance(self.edge).max(LEAST);
        let wanted = if is_duplicate { distance(self.edge) } else { distance(self.sent) + part };
        let size = if is_duplicate { wanted } else { wanted.max(least) }.min(most);
        // Rounded up, so that the right edge never moves back.
        let field = u16::try_from(size.div_ceil(unit)).unwrap_or(u16::MAX).min(window);
        let edge = ack.advance(u64::from(field) * unit);
        if edge.is_after(self.edge) {
            self.edge = edge;
        }
        (self.acked, self.offered) = (ack, window);
        field
    }
}
