//! Sharing of state between connections over the same path: TCB interdependence (RFC 9040, RFC
//! 2140; "TCP control block sharing" in the satellite literature).

use core::time::Duration;

use units::ByteCount;

/// A connection's knowledge of its path, for use by others. A field that is `None` is not shared.
/// With `ssthresh` alone this is the least risky form of sharing in RFC 9040.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlBlock {
    /// SRTT and RTTVAR of RFC 6298.
    pub rtt: Option<(Duration, Duration)>,
    /// The slow-start threshold, if a loss has set it.
    pub ssthresh: Option<ByteCount>,
    /// The congestion window, used in place of the initial one. Without pacing it leaves in one
    /// burst.
    pub cwnd: Option<ByteCount>,
}

impl ControlBlock {
    /// Keeps only the threshold.
    #[must_use]
    pub fn ssthresh_only(self) -> Self {
        Self { rtt: None, cwnd: None, ..self }
    }

    /// Combines the blocks of open connections for a new one (ensemble sharing, RFC 9040 §7): the
    /// means of RTT and threshold, and an equal share of the sum of windows. For temporal sharing
    /// (§6), use the block of the last connection as it is. `None` if there are no connections.
    pub fn ensemble(open: &[Self]) -> Option<Self> {
        if open.is_empty() {
            return None;
        }
        let rtts: Vec<_> = open.iter().filter_map(|block| block.rtt).collect();
        let mean = |times: Duration| times.checked_div(rtts.len() as u32);
        let sum = |part: fn(&(Duration, Duration)) -> Duration| rtts.iter().map(part).sum();
        let bytes = |part: fn(&Self) -> Option<ByteCount>| -> Vec<u64> {
            open.iter().filter_map(part).map(ByteCount::get).collect()
        };
        let thresholds = bytes(|block| block.ssthresh);
        let windows = bytes(|block| block.cwnd);
        let share = |all: &[u64], among: usize| {
            let share = all.iter().sum::<u64>().checked_div(among as u64)?;
            (!all.is_empty()).then_some(ByteCount::new(share))
        };
        Some(Self {
            rtt: mean(sum(|rtt| rtt.0)).zip(mean(sum(|rtt| rtt.1))),
            ssthresh: share(&thresholds, thresholds.len()),
            // The new connection takes a share, too.
            cwnd: share(&windows, windows.len() + 1),
        })
    }
}

/// The part of a connection's knowledge that is kept for the next one with the same peer (temporal
/// sharing, RFC 9040 §6). The owner of the connections keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TcbSharing {
    /// Nothing is kept.
    #[default]
    None,
    /// The slow-start threshold: the "TCP control block interdependence" of the satellite
    /// literature.
    Threshold,
    /// Everything in [`ControlBlock`] is kept.
    All,
}

impl TcbSharing {
    /// Returns the block to keep, given that of a connection and the one kept before. A connection
    /// without losses has set no threshold, and leaves that of an earlier one.
    #[must_use]
    pub fn keep(self, block: ControlBlock, before: ControlBlock) -> ControlBlock {
        let ssthresh = block.ssthresh.or(before.ssthresh);
        match self {
            Self::None => before,
            Self::Threshold => ControlBlock { ssthresh, ..before },
            Self::All => ControlBlock { ssthresh, ..block },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_what_is_shared_and_the_last_threshold() {
        let block = |ssthresh: Option<u64>| ControlBlock {
            rtt: Some((Duration::from_millis(600), Duration::from_millis(9))),
            ssthresh: ssthresh.map(ByteCount::new),
            cwnd: Some(ByteCount::new(30_000)),
        };
        let none = ControlBlock::default();
        let kept = TcbSharing::Threshold.keep(block(Some(20_000)), none);
        assert_eq!(kept, block(Some(20_000)).ssthresh_only());
        assert_eq!(TcbSharing::Threshold.keep(block(None), kept), kept);
        assert_eq!(TcbSharing::All.keep(block(None), kept), block(Some(20_000)));
        assert_eq!(TcbSharing::None.keep(block(Some(1)), none), none);
    }

    #[test]
    fn an_ensemble_shares_alike() {
        let ms = Duration::from_millis;
        let block = |rtt, ssthresh, cwnd| ControlBlock {
            rtt: Some((ms(rtt), ms(rtt / 10))),
            ssthresh,
            cwnd: Some(ByteCount::new(cwnd)),
        };
        let open = [block(600, None, 90_000), block(500, Some(ByteCount::new(40_000)), 30_000)];
        let shared = ControlBlock::ensemble(&open).unwrap();
        assert_eq!(shared, block(550, Some(ByteCount::new(40_000)), 40_000));
        assert_eq!(ControlBlock::ensemble(&[]), None);
        assert_eq!(
            ControlBlock::ensemble(&[ControlBlock::default()]),
            Some(ControlBlock::default())
        );
        let alone = ControlBlock { ssthresh: shared.ssthresh, ..ControlBlock::default() };
        assert_eq!(shared.ssthresh_only(), alone);
    }
}
