//! Recognises packets that were captured more than once: at both sides of a router, on two VLANs of
//! a trunk, or by a mirror port. Without that, each would look like a retransmission.
//!
//! A copy has the TCP header of an earlier packet, but so may a retransmission. One of these must
//! show that it is the same packet:
//!
//! 1. *The IP identification* (RFC 6864): a host gives each transmission its own. It does not count
//!    where it is zero, or where different segments share it.
//! 2. *The place* ([`CapturePlace`](super::capture::layers::CapturePlace), TTL or hop limit): all transmissions of a host
//!    pass the same places, so a packet seen at another place was forwarded. This holds only within
//!    [`FORWARDED_WITHIN`], because a host may choose another path after a time-out.
//! 3. *The time*: a host cannot know of a loss, and so retransmit, before half a round trip has
//!    passed. Acknowledgements may be repeated at once (RFC 5681 §2), so for them this rule applies
//!    only if SYNs or data of the connection were captured twice.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use units::Instant;

use super::capture::segment::{CapturedSegment, Sighting};

/// Maximum number of packets that are remembered, of all connections together.
const REMEMBERED_MAX: usize = 65_536;
/// Maximum number of packets with the same header that are compared.
const LOOKED_AT_MAX: usize = 32;
/// Maximum number of sightings of a packet that are remembered.
const SIGHTINGS_MAX: usize = 6;
/// Maximum time between two sightings of an identified packet, because identifications are reused.
const IDENTIFIED_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time between two places: below the shortest retransmission time-out in use, 200 ms
/// (Linux; RFC 6298 asks for one second).
const FORWARDED_WITHIN: Duration = Duration::from_millis(150);
/// Maximum time between two captures at the same place.
const MIRRORED_WITHIN: Duration = Duration::from_millis(1);

/// The last packets of all connections, by their headers.
#[derive(Debug, Default)]
pub(super) struct CopyDetector {
    /// The packets by digest of their header and by number.
    packets: BTreeMap<(u64, u64), SeenPacket>,
    /// Keys of `packets`, the oldest first.
    order: VecDeque<(u64, u64)>,
    number: u64,
}

/// A packet, and the places where it was captured.
#[derive(Debug)]
struct SeenPacket {
    time: Instant,
    sightings: Vec<Sighting>,
    /// Set if it was captured twice at the same place.
    mirrored: bool,
}

/// Evidence from the packets of one direction of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SenderEvidence {
    /// The header and the sighting of the last packet.
    last: Option<(u64, Sighting)>,
    /// Set if different segments had the same identification.
    shares_ids: bool,
    /// Set if SYNs or data were captured twice at the same place.
    mirrored: bool,
}

impl CopyDetector {
    /// Returns true if the packet was captured before; remembers it otherwise. `interface` and
    /// `sender` are its own, `rtt` is the connection's shortest round-trip time so far.
    pub(super) fn is_copy(
        &mut self,
        segment: &CapturedSegment,
        interface: u32,
        sender: &mut SenderEvidence,
        rtt: Option<Duration>,
    ) -> bool {
        let digest = digest(segment, interface);
        sender.learn(digest, segment.sighting);
        let same_header = self.packets.range_mut((digest, 0)..=(digest, u64::MAX));
        // The oldest first: packets stay in order between two places.
        let mut recent: Vec<&mut SeenPacket> =
            same_header.rev().take(LOOKED_AT_MAX).map(|entry| entry.1).collect();
        for sent in recent.iter_mut().rev() {
            if sent.is_seen_again(segment, sender, rtt) {
                return true;
            }
        }
        self.remember(digest, segment);
        false
    }

    fn remember(&mut self, digest: u64, segment: &CapturedSegment) {
        if self.order.len() == REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.packets.remove(&oldest);
        }
        // The number keeps packets with equal headers apart, in their order.
        let key = (digest, self.number);
        self.number += 1;
        self.order.push_back(key);
        let sightings = vec![segment.sighting];
        self.packets.insert(key, SeenPacket { time: segment.time, sightings, mirrored: false });
    }
}

impl SenderEvidence {
    fn learn(&mut self, digest: u64, sighting: Sighting) {
        if let Some((last, before)) = self.last {
            self.shares_ids |= last != digest && sighting.id.is_some() && before.id == sighting.id;
        }
        self.last = Some((digest, sighting));
    }
}

impl SeenPacket {
    /// Returns true if `segment` is this packet captured again; remembers the place.
    fn is_seen_again(
        &mut self,
        segment: &CapturedSegment,
        sender: &mut SenderEvidence,
        rtt: Option<Duration>,
    ) -> bool {
        let late = segment.time.saturating_since(self.time);
        let sighting = segment.sighting;
        // A sender that gives several packets one identification makes it useless.
        let id = |sighting: Sighting| sighting.id.filter(|_| !sender.shares_ids);
        // Captured at another place, or behind a router, which lowers the hop limit.
        let elsewhere = self
            .sightings
            .iter()
            .all(|known| (known.place, known.hop_limit) != (sighting.place, sighting.hop_limit));
        let same = match (id(self.sightings[0]), id(sighting)) {
            (Some(before), Some(now)) => before == now && late < IDENTIFIED_WITHIN,
            (None, None) if elsewhere => late < FORWARDED_WITHIN,
            (None, None) => self.is_mirrored(segment, sender, late, rtt),
            _ => false,
        };
        if same && elsewhere && self.sightings.len() < SIGHTINGS_MAX {
            self.sightings.push(sighting);
        }
        same
    }

    fn is_mirrored(
        &mut self,
        segment: &CapturedSegment,
        sender: &mut SenderEvidence,
        late: Duration,
        rtt: Option<Duration>,
    ) -> bool {
        let within = rtt.map_or(MIRRORED_WITHIN, |rtt| MIRRORED_WITHIN.min(rtt / 2));
        // Senders repeat pure acknowledgements themselves, unless a mirror was seen to do it.
        let repeatable = segment.is_pure_ack() && !sender.mirrored;
        if self.mirrored || repeatable || !segment.timed || late >= within {
            return false;
        }
        self.mirrored = true;
        sender.mirrored = true;
        true
    }
}

/// A digest of everything in the TCP header but the checksum, which offloading leaves out.
fn digest(segment: &CapturedSegment, interface: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (interface, segment.from, segment.to, segment.sequence, segment.ack).hash(&mut hasher);
    (segment.window, segment.flags, segment.length, segment.options).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::super::capture::layers::CapturePlace;
    use super::super::capture::segment::{SegmentFlags, SegmentOptions};
    use super::*;

    const RTT: Option<Duration> = Some(Duration::from_millis(50));

    /// A packet of a sender at 64 hops and its capture, times in microseconds.
    #[derive(Clone, Copy)]
    struct Seen {
        micros: u64,
        sequence: u32,
        length: u32,
        id: u16,
        hop_limit: u8,
        vlan: u8,
    }

    const DATA: Seen = Seen { micros: 0, sequence: 1, length: 1000, id: 0, hop_limit: 64, vlan: 1 };

    impl Seen {
        fn segment(self) -> CapturedSegment {
            let mut place = CapturePlace::default();
            place.add(&[self.vlan]);
            let id = NonZeroU16::new(self.id);
            CapturedSegment {
                time: Instant::from_nanos(self.micros * 1000),
                timed: true,
                from: "10.0.0.1:4000".parse().unwrap(),
                to: "10.0.0.2:80".parse().unwrap(),
                sequence: self.sequence,
                ack: Some(1),
                window: 1000,
                flags: SegmentFlags::default(),
                length: self.length,
                options: SegmentOptions::default(),
                sighting: Sighting { place, hop_limit: self.hop_limit, id },
            }
        }
    }

    /// Which of these are copies.
    fn copies<const N: usize>(seen: [Seen; N]) -> [bool; N] {
        let mut copies = CopyDetector::default();
        let mut sender = SenderEvidence::default();
        seen.map(|packet| copies.is_copy(&packet.segment(), 0, &mut sender, RTT))
    }

    #[test]
    fn an_identification_tells_transmissions_apart() {
        let forwarded = Seen { micros: 30, hop_limit: 63, id: 7, ..DATA };
        let again = Seen { micros: 60, id: 8, ..DATA };
        let forwarded_again = Seen { micros: 400_000, hop_limit: 63, id: 8, ..DATA };
        let seen = [Seen { id: 7, ..DATA }, forwarded, again, forwarded_again];
        assert_eq!(copies(seen), [false, true, false, true]);
    }

    #[test]
    fn an_identification_that_segments_share_tells_nothing() {
        let next = Seen { sequence: 1001, id: 7, ..DATA };
        let again = Seen { micros: 60_000, id: 7, ..DATA };
        assert_eq!(copies([Seen { id: 7, ..DATA }, next, again]), [false; 3]);
    }

    #[test]
    fn without_one_another_place_tells_a_forwarded_packet_and_only_soon() {
        let elsewhere = [Seen { vlan: 2, ..DATA }, Seen { hop_limit: 63, ..DATA }];
        for forwarded in elsewhere {
            let at = |micros| Seen { micros, ..forwarded };
            assert_eq!(copies([DATA, at(30)]), [false, true]);
            // Packets that wait behind others in the router, a retransmission among them.
            let again = Seen { micros: 60_000, ..DATA };
            let seen = [DATA, again, at(70_000), at(70_001)];
            assert_eq!(copies(seen), [false, false, true, true]);
            // The second place knows each packet once.
            assert_eq!(copies([DATA, at(30), at(60_030)]), [false, true, false]);
            assert_eq!(copies([DATA, at(200_000)]), [false, false]);
        }
    }

    #[test]
    fn at_the_same_place_time_tells_a_mirror() {
        let at = |micros| Seen { micros, ..DATA };
        assert_eq!(copies([DATA, at(2)]), [false, true]);
        assert_eq!(copies([DATA, at(60_000), at(60_002)]), [false, false, true]);
    }

    #[test]
    fn acknowledgements_may_be_repeated_unless_all_is_mirrored() {
        let ack = |micros| Seen { micros, length: 0, ..DATA };
        assert_eq!(copies([ack(0), ack(2)]), [false, false]);
        let data = |micros| Seen { micros, sequence: 5, ..DATA };
        let seen = [data(0), data(2), ack(100), ack(102), ack(104), ack(106)];
        assert_eq!(copies(seen), [false, true, false, true, false, true]);
    }

    #[test]
    fn memory_and_work_are_bounded() {
        let mut copies = CopyDetector::default();
        let mut sender = SenderEvidence::default();
        let mut is_copy = |id: u16| {
            let segment = Seen { micros: u64::from(id), id, ..DATA }.segment();
            copies.is_copy(&segment, 0, &mut sender, RTT)
        };
        for id in 1..=LOOKED_AT_MAX as u16 + 1 {
            assert!(!is_copy(id), "{id}");
        }
        assert!(is_copy(2), "the oldest that is compared");
        assert!(!is_copy(1), "one too many is compared");
        for micros in 0..REMEMBERED_MAX as u64 + 10 {
            let segment = Seen { micros, length: 0, ..DATA }.segment();
            assert!(!copies.is_copy(&segment, 0, &mut sender, RTT));
        }
        assert_eq!((copies.packets.len(), copies.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }
}
