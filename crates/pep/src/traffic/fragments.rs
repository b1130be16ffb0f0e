//! Channels of fragmented packets. Only the first fragment has ports, and a class may depend on ports:
//! later fragments follow the first.
//!
//! Not modelled: fragments that overtake the first one, which are classified by their own fields.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use slacp::ChannelId;
use units::Instant;

use super::Packet;

/// Maximum number of packets whose fragments are awaited; the oldest gives way.
const MOST: usize = 64;
/// Time for which fragments are awaited. Identifications repeat: 2^16 small packets at 100 Mbit/s take this
/// long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Fields that all fragments of a packet have in common (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FragmentKey {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
}

/// Channels of packets whose first fragment has passed.
#[derive(Debug, Default)]
pub struct FragmentChannels {
    /// In order of arrival.
    firsts: VecDeque<(FragmentKey, ChannelId, Instant)>,
}

impl FragmentChannels {
    /// Returns the channel for a packet that by itself belongs to `own`; a later fragment gets that of the
    /// first.
    pub fn channel(&mut self, now: Instant, packet: &Packet, own: ChannelId) -> ChannelId {
        let Some(fragment) = packet.fragment else { return own };
        let Packet { source, destination, protocol, .. } = *packet;
        let whole = FragmentKey { source, destination, protocol, id: fragment.id };
        if fragment.is_first {
            // The identification may have been used before.
            self.firsts.retain(|(other, ..)| *other != whole);
            if self.firsts.len() == MOST {
                self.firsts.pop_front();
            }
            self.firsts.push_back((whole, own, now));
            return own;
        }
        let mut recent =
            self.firsts.iter().filter(|(.., at)| now.saturating_since(*at) <= PATIENCE);
        recent.find(|(other, ..)| *other == whole).map_or(own, |(_, channel, _)| *channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{DEFAULT_CHANNEL, PacketFragment, UDP};

    const VOICE: ChannelId = ChannelId::new(7).unwrap();

    fn packet(id: u32, is_first: bool) -> Packet {
        Packet {
            source: [10, 1, 0, 2].into(),
            destination: [192, 0, 2, 7].into(),
            dscp: 0,
            protocol: UDP,
            ports: is_first.then_some([5060, 5060]),
            fragment: Some(PacketFragment { id, is_first }),
        }
    }

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn later_fragments_follow_the_first_of_their_packet() {
        let mut fragments = FragmentChannels::default();
        assert_eq!(fragments.channel(at(0), &packet(1, true), VOICE), VOICE);
        for (id, seconds, channel) in
            [(1, 0, VOICE), (1, 5, VOICE), (2, 0, DEFAULT_CHANNEL), (1, 6, DEFAULT_CHANNEL)]
        {
            let later = fragments.channel(at(seconds), &packet(id, false), DEFAULT_CHANNEL);
            assert_eq!(later, channel, "{id} after {seconds} s");
        }
        let whole = Packet { fragment: None, ..packet(1, true) };
        assert_eq!(fragments.channel(at(0), &whole, DEFAULT_CHANNEL), DEFAULT_CHANNEL);
    }

    #[test]
    fn an_identification_that_is_used_again_belongs_to_the_latest_packet() {
        let mut fragments = FragmentChannels::default();
        fragments.channel(at(0), &packet(1, true), VOICE);
        fragments.channel(at(1), &packet(1, true), DEFAULT_CHANNEL);
        let other = ChannelId::new(9).unwrap();
        assert_eq!(fragments.channel(at(1), &packet(1, false), other), DEFAULT_CHANNEL);
    }

    #[test]
    fn only_so_many_packets_are_remembered() {
        let mut fragments = FragmentChannels::default();
        for id in 0..=MOST as u32 {
            fragments.channel(at(0), &packet(id, true), VOICE);
        }
        assert_eq!(fragments.firsts.len(), MOST);
        assert_eq!(fragments.channel(at(0), &packet(0, false), DEFAULT_CHANNEL), DEFAULT_CHANNEL);
        assert_eq!(fragments.channel(at(0), &packet(1, false), DEFAULT_CHANNEL), VOICE);
    }
}
