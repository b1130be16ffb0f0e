//! Probe packets and their sender.

use core::time::Duration;
use std::net::UdpSocket;
use std::thread;

use nix::sys::prctl;
use os::clock;
use units::Instant;

/// The UDP port on `terminal` and `hub` that probes are sent to: discard (RFC 863).
pub(crate) const PORT: u16 = 9;
/// Size of the IPv4 and UDP headers in bytes.
pub(crate) const HEADERS: usize = 28;
/// The first bytes of every probe's payload.
const MAGIC: [u8; 8] = *b"skyhop?!";
/// Shorter waits are not slept: the probe is sent a little early.
const NAP: Duration = Duration::from_micros(300);

/// The probes of one direction, with sequence numbers from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeFlow {
    /// Size of each probe as an IP packet, in bytes.
    pub(crate) len: usize,
    /// Sending time of each probe, from the start of the flow.
    pub(crate) times: Vec<Duration>,
}

impl ProbeFlow {
    /// Creates a flow of `count` probes at intervals of `gap`.
    pub(crate) fn even(len: usize, count: u32, gap: Duration) -> Self {
        Self { len, times: (0..count).map(|seq| gap * seq).collect() }
    }

    /// Sends all probes, as punctually as the machine allows.
    pub(crate) fn send(&self, socket: &UdpSocket) {
        // By default, the kernel may wake a thread 50 µs late.
        let _ = prctl::set_timerslack(1);
        let mut payload = vec![0; self.len - HEADERS];
        payload[..MAGIC.len()].copy_from_slice(&MAGIC);
        let start = clock::now();
        for (seq, after) in (0u32..).zip(&self.times) {
            wait_until(start + *after);
            payload[MAGIC.len()..][..4].copy_from_slice(&seq.to_be_bytes());
            // A send error shows up as a probe that never left.
            let _ = socket.send(&payload);
        }
    }
}

fn wait_until(at: Instant) {
    let left = clock::until(at);
    if left > NAP {
        thread::sleep(left);
    }
}

/// Returns the sequence number of an IPv4 packet, if it is a probe.
pub(crate) fn parse(packet: &[u8]) -> Option<u32> {
    // Our probes have no options, so their IPv4 header has 20 bytes.
    let is_udp4 = packet.first() == Some(&0x45) && packet.get(9) == Some(&17);
    let (magic, rest) = packet.get(HEADERS..)?.split_first_chunk::<8>()?;
    let seq = rest.first_chunk::<4>()?;
    (is_udp4 && *magic == MAGIC).then(|| u32::from_be_bytes(*seq))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_probe_is_known_by_its_mark() {
        let mut packet = vec![0; HEADERS + 12];
        (packet[0], packet[9]) = (0x45, 17);
        assert_eq!(parse(&packet), None);
        packet[HEADERS..][..8].copy_from_slice(&MAGIC);
        packet[HEADERS + 8..].copy_from_slice(&70_000u32.to_be_bytes());
        assert_eq!(parse(&packet), Some(70_000));
        assert_eq!(parse(&packet[..HEADERS + 11]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(packet in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&packet);
        }
    }
}
