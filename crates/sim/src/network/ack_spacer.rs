//! A gateway that spaces acknowledgements: the ones it holds and the schedule by which they pass.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tcp::{ByteRange, HeaderFlags, Segment, SegmentPayload as _, SeqNr};
use units::{BitRate, ByteCount, Instant};

use super::packet::SimulatedPacket;
use crate::agenda::EventAlarm;
use crate::ids::NodeId;
use crate::slab::SlabKey;

/// Longest time for which an acknowledgement is held. One that releases more data than the link
/// carries in this time delays later ones no further.
const MAX_HOLD: Duration = Duration::from_millis(500);

/// A gateway that spaces the acknowledgements that it passes on to servers.
#[derive(Debug)]
pub(crate) struct AckSpacer {
    pub(crate) pace: AckSchedule,
    pub(crate) servers: BTreeSet<NodeId>,
    /// Held acknowledgements and the times at which they are due, in order.
    pub(crate) held: VecDeque<(Instant, Box<SimulatedPacket>)>,
    pub(crate) alarm: EventAlarm,
}

/// The schedule by which acknowledgements pass.
#[derive(Debug)]
pub(crate) struct AckSchedule {
    /// Rate at which they may release data.
    pub(crate) rate: BitRate,
    /// The last acknowledgement to each sender.
    pub(crate) acked: BTreeMap<SlabKey, SeqNr>,
    /// When the link will have carried the data released so far.
    pub(crate) free: Instant,
}

impl AckSchedule {
    /// Schedules the next acknowledgement to this sender and returns the time at which it may pass.
    pub(crate) fn due(&mut self, now: Instant, sender: SlabKey, ack: SeqNr) -> Instant {
        let before = self.acked.insert(sender, ack);
        // The first one of a sender releases nothing that could be measured, an old one nothing new.
        let released = before.map_or(0, |before| ack.since(before).max(0));
        let due = self.free.clamp(now, now + MAX_HOLD);
        self.free = due + self.rate.time_to_send(ByteCount::new(released as u64));
        due
    }
}

/// Returns true for a segment that carries only an acknowledgement.
pub(crate) fn is_bare(segment: &Segment<ByteRange>) -> bool {
    let HeaderFlags { syn, fin, rst, .. } = segment.flags;
    segment.payload.is_empty() && segment.ack.is_some() && !syn && !fin && !rst
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;
    use crate::testkit::at_ms;

    /// 1 Mbit/s: an acknowledgement of 2500 bytes keeps the next one 20 ms.
    #[test]
    fn acknowledgements_pass_as_the_link_carries_what_they_release() {
        let mut pace = AckSchedule {
            rate: BitRate::from_mbit(1),
            acked: BTreeMap::new(),
            free: Instant::ZERO,
        };
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
