//! What connections over the same path share: TCB interdependence (RFC 9040,
//! RFC 2140; the satellite literature's "TCP control block sharing").

use core::time::Duration;

use units::ByteCount;

/// What a connection knows of its path, as far as others may use it. A field
/// that is `None` is not shared: with `ssthresh` alone this is the sharing that
/// RFC 9040 has as the least risky.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlBlock {
    /// SRTT and RTTVAR.
    pub rtt: Option<(Duration, Duration)>,
    /// The slow-start threshold, if there was a loss to set it.
    pub ssthresh: Option<ByteCount>,
    /// The congestion window, to begin with instead of the initial one. Without
    /// pacing it leaves at once.
    pub cwnd: Option<ByteCount>,
}

impl ControlBlock {
    /// The same without anything but the threshold.
    #[must_use]
    pub fn ssthresh_only(self) -> Self {
        Self { rtt: None, cwnd: None, ..self }
    }

    /// What a new connection gets from those that are open (ensemble sharing,
    /// RFC 9040 §7): the means of RTT and threshold, and of all windows together
    /// an equal share with the new one among them. Temporal sharing (§6) is the
    /// block of the last connection, as it is. `None` without connections.
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
        let (thresholds, windows) = (bytes(|block| block.ssthresh), bytes(|block| block.cwnd));
        let share = |all: &[u64], among: usize| {
            let share = all.iter().sum::<u64>().checked_div(among as u64)?;
            (!all.is_empty()).then_some(ByteCount::new(share))
        };
        Some(Self {
            rtt: mean(sum(|rtt| rtt.0)).zip(mean(sum(|rtt| rtt.1))),
            ssthresh: share(&thresholds, thresholds.len()),
            cwnd: share(&windows, windows.len() + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
