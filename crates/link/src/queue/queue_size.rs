//! Queue sizes as written by users.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use thiserror::Error;
use units::{BitRate, ByteCount};

use crate::QueueLimit;

/// The size of a drop-tail queue. Text: `"1 BDP"`, `"100 packets"`, `"64 kB"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueSize {
    /// A multiple of the link's rate × the hop's round-trip time.
    Bdp(f64),
    /// A number of packets of any size.
    Packets(usize),
    /// A number of bytes in whole packets.
    Bytes(ByteCount),
}

/// A text that is not a valid queue size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a queue: expected \"1 BDP\", \"100 packets\" or \"64 kB\", above 0")]
#[non_exhaustive]
pub struct QueueError {
    /// The rejected text, as given.
    pub text: String,
}

/// Minimum size of a queue in BDPs, in packets of the MTU.
const LEAST_PACKETS: u64 = 2;

impl QueueSize {
    /// Returns the limit on a link of `rate` in a hop of round-trip time `rtt`. A queue in BDPs
    /// holds at least two packets of `mtu` bytes.
    pub fn limit(self, rate: BitRate, rtt: Duration, mtu: u16) -> QueueLimit {
        match self {
            Self::Bdp(share) => {
                let bytes = (rate.bytes_in(rtt).get() as f64 * share) as u64;
                QueueLimit::Bytes(ByteCount::new(bytes.max(LEAST_PACKETS * u64::from(mtu))))
            }
            Self::Packets(packets) => QueueLimit::Packets(packets),
            Self::Bytes(bytes) => QueueLimit::Bytes(bytes),
        }
    }
}

impl FromStr for QueueSize {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self, QueueError> {
        let error = || QueueError { text: text.to_owned() };
        let trimmed = text.trim();
        if let Some(share) = trimmed.strip_suffix("BDP") {
            let share: f64 = share.trim().parse().map_err(|_| error())?;
            return (share > 0.0 && share.is_finite())
                .then_some(Self::Bdp(share))
                .ok_or_else(error);
        }
        let packets = trimmed.strip_suffix("packets").or_else(|| trimmed.strip_suffix("packet"));
        if let Some(packets) = packets {
            let packets: usize = packets.trim().parse().map_err(|_| error())?;
            return (packets > 0).then_some(Self::Packets(packets)).ok_or_else(error);
        }
        let bytes: ByteCount = trimmed.parse().map_err(|_| error())?;
        (bytes > ByteCount::ZERO).then_some(Self::Bytes(bytes)).ok_or_else(error)
    }
}

impl fmt::Display for QueueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bdp(share) => write!(f, "{share} BDP"),
            Self::Packets(packets) => write!(f, "{packets} packets"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    #[test]
    fn one_bdp_is_rate_times_round_trip() {
        let limit = QueueSize::Bdp(1.0).limit(BitRate::from_mbit(50), RTT, 1500);
        assert_eq!(limit, QueueLimit::Bytes(ByteCount::new(3_750_000)));
    }

    #[test]
    fn a_tiny_bdp_still_holds_two_packets() {
        let limit = QueueSize::Bdp(1.0).limit(BitRate::from_bits_per_second(100), RTT, 1500);
        assert_eq!(limit, QueueLimit::Bytes(ByteCount::new(3000)));
    }

    #[test]
    fn refuses_text_that_is_no_queue() {
        for text in ["", "0 packets", "-1 BDP", "inf BDP", "0 B", "many", "1.5 packets"] {
            assert!(text.parse::<QueueSize>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_queues_read_back(packets in 1usize.., share in 0.001f64..100.0) {
            for queue in [QueueSize::Packets(packets), QueueSize::Bdp(share)] {
                prop_assert_eq!(queue.to_string().parse(), Ok(queue));
            }
        }
    }
}
