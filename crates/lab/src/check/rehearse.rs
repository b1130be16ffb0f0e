//! Predicts in virtual time when probes arrive and how many are lost. This is the reference where
//! rates, delays and losses change and there is no short formula.
//!
//! Times are in nanoseconds since the link started.

use core::ops::RangeInclusive;
use core::time::Duration;

use link::{CarriedPacket, Discipline, Jitter, Link, LinkConfig, LossModel, QueueLimit};
use units::{Instant, Machine};

/// A probe: its index among those sent, and its length.
struct RehearsedProbe(usize, usize);

impl CarriedPacket for RehearsedProbe {
    fn wire_len(&self) -> usize {
        self.1
    }
}

/// Probes of one length in sending order: sequence number and time.
pub(crate) struct SentProbes<'a> {
    pub(crate) len: usize,
    pub(crate) probes: &'a [(u32, u64)],
}

/// Departure of each probe from the link, and arrival at the far end; `None` if the queue drops it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExpectedTimes {
    pub(crate) left: Vec<Option<u64>>,
    pub(crate) arrived: Vec<Option<u64>>,
}

/// Total number of probes to rehearse if the result is random.
const PACKETS: usize = 4_000_000;
/// Minimum and maximum number of runs.
const RUNS: RangeInclusive<usize> = 400..=2000;
/// Number of runs if the result is not random and only the shift varies.
const SHIFTS: usize = 41;

/// Computes the expected times without losses and jitter.
pub(crate) fn expect(config: &LinkConfig, sent: &SentProbes<'_>) -> ExpectedTimes {
    let clean = LinkConfig {
        loss: LossModel::None,
        outages: Vec::new(),
        jitter: Jitter::None,
        ..config.clone()
    };
    // Without the delay, a probe arrives when it leaves the link.
    let near = LinkConfig { delay: Duration::ZERO.into(), ..clean.clone() };
    ExpectedTimes { left: arrivals(near, sent), arrived: arrivals(clean, sent) }
}

fn arrivals(config: LinkConfig, sent: &SentProbes<'_>) -> Vec<Option<u64>> {
    let mut link = Link::new(config, 0);
    let mut arrived = vec![None; sent.probes.len()];
    let mut take = |link: &mut Link<RehearsedProbe>, now| {
        while let Some((at, probe)) = link.poll_arrival(now) {
            arrived[probe.0] = Some(at.as_nanos());
        }
    };
    let mut now = Instant::ZERO;
    for (index, (_, at)) in sent.probes.iter().enumerate() {
        now = now.max(Instant::from_nanos(*at));
        link.handle_packet(now, RehearsedProbe(index, sent.len));
        take(&mut link, now);
    }
    link.handle_timeout(Instant::MAX);
    take(&mut link, Instant::MAX);
    arrived
}

/// Returns the times at which packets of `len` bytes leave that all arrive at `begin`, relative to
/// it.
pub(crate) fn departures(config: &LinkConfig, begin: u64, len: usize, count: u32) -> Vec<Duration> {
    let probes: Vec<_> = (0..count).map(|seq| (seq, begin)).collect();
    // A backlog of any length must fit: drops would leave gaps.
    let endless = LinkConfig {
        queue: QueueLimit::Packets(usize::MAX),
        discipline: Discipline::DropTail,
        ..config.clone()
    };
    let left = expect(&endless, &SentProbes { len, probes: &probes }).left;
    let since = |at: u64| Duration::from_nanos(at.saturating_sub(begin));
    left.into_iter().map_while(|at| at.filter(|at| *at < u64::MAX).map(since)).collect()
}

/// Distribution of the losses of the last of several flows that cross a link in succession.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LossPrediction {
    /// Number of packets lost or dropped in all but the most extreme 1 % of runs, half of these at
    /// each end.
    pub(crate) interval: RangeInclusive<u64>,
    pub(crate) mean: f64,
}

/// Computes the number of probes of the last flow that do not arrive, over many seeds. The start of
/// the links varies by up to `shift`, because the probes' times are not known more exactly. `None`
/// without flows.
pub(crate) fn predict_losses(
    config: &LinkConfig,
    flows: &[SentProbes<'_>],
    shift: Duration,
) -> Option<LossPrediction> {
    let packets: usize = flows.iter().map(|flow| flow.probes.len()).sum();
    let certain =
        config.loss == LossModel::None && !matches!(config.discipline, Discipline::Red(_));
    let often = (PACKETS / packets.max(1)).clamp(*RUNS.start(), *RUNS.end());
    let runs = if certain { SHIFTS } else { often };
    let (last, before) = flows.split_last()?;
    let mut missing: Vec<u64> = (0..runs)
        .map(|run| {
            // From −1 to 1 in small steps that do not correlate with the seeds.
            let turn = ((run * 7) % SHIFTS) as f64 / (SHIFTS / 2) as f64 - 1.0;
            let shift = (turn * shift.as_nanos() as f64) as i64;
            run_once(config, run as u64, shift, before, last)
        })
        .collect();
    missing.sort_unstable();
    // Half a per cent at each end leaves the 99 % interval.
    let tail = runs / 200;
    let mean = missing.iter().sum::<u64>() as f64 / runs as f64;
    Some(LossPrediction { interval: missing[tail]..=missing[runs - 1 - tail], mean })
}

fn run_once(
    config: &LinkConfig,
    seed: u64,
    shift: i64,
    before: &[SentProbes<'_>],
    last: &SentProbes<'_>,
) -> u64 {
    let mut link = Link::new(config.clone(), seed);
    let mut now = Instant::ZERO;
    let mut send = |link: &mut Link<RehearsedProbe>, flow: &SentProbes<'_>| {
        for (_, at) in flow.probes {
            now = now.max(Instant::from_nanos(at.saturating_add_signed(shift)));
            link.handle_packet(now, RehearsedProbe(0, flow.len));
            while link.poll_delivery(now).is_some() {}
        }
    };
    let missing = |link: &mut Link<RehearsedProbe>| {
        let all = link.counters();
        all.lost.packets + all.dropped_queue.packets
    };
    before.iter().for_each(|flow| send(&mut link, flow));
    // Before the last flow begins, all packets of the others have arrived.
    let first = last.probes.first().map_or(0, |(_, at)| at.saturating_add_signed(shift));
    while link.poll_delivery(Instant::from_nanos(first)).is_some() {}
    let earlier = missing(&mut link);
    send(&mut link, last);
    link.handle_timeout(Instant::MAX);
    while link.poll_delivery(Instant::MAX).is_some() {}
    missing(&mut link) - earlier
}

#[cfg(test)]
mod tests {
    use link::{BurstModel, Trace};
    use units::{BitRate, Probability};

    use super::*;

    const MS: u64 = 1_000_000;

    /// A link on which 1500 bytes take a millisecond.
    fn config(delay: impl Into<link::Delay>, loss: LossModel) -> LinkConfig {
        LinkConfig::new(BitRate::from_mbit(12), delay, loss, QueueLimit::Packets(2))
    }

    fn every(ms: u64, count: u32) -> Vec<(u32, u64)> {
        (0..count).map(|seq| (seq, u64::from(seq) * ms * MS)).collect()
    }

    #[test]
    fn a_constant_link_takes_its_delay_and_the_time_to_send() {
        let probes = every(2, 3);
        let config = config(Duration::from_millis(300), LossModel::Per(Probability::ONE));
        let expected = expect(&config, &SentProbes { len: 1500, probes: &probes });
        assert_eq!(expected.left, [1, 3, 5].map(|ms| Some(ms * MS)));
        assert_eq!(expected.arrived, [301, 303, 305].map(|ms| Some(ms * MS)));
    }

    #[test]
    fn what_the_queue_drops_is_expected_nowhere() {
        let probes = every(0, 5);
        let expected = expect(
            &config(Duration::ZERO, LossModel::None),
            &SentProbes { len: 1500, probes: &probes },
        );
        let left = [Some(MS), Some(2 * MS), Some(3 * MS), None, None];
        assert_eq!((&expected.left[..], &expected.arrived[..]), (&left[..], &left[..]));
    }

    #[test]
    fn a_delay_trace_counts_from_the_links_beginning() {
        let trace = Trace::parse("0s 10 ms\n4ms 30 ms").unwrap();
        let probes = every(2, 3);
        let expected =
            expect(&config(trace, LossModel::None), &SentProbes { len: 1500, probes: &probes });
        assert_eq!(expected.arrived, [11, 13, 35].map(|ms| Some(ms * MS)));
    }

    #[test]
    fn a_saturated_link_sends_one_after_the_other() {
        let config = config(Duration::from_secs(1), LossModel::None);
        let left = departures(&config, 7 * MS, 1500, 4);
        assert_eq!(left, [1, 2, 3, 4].map(Duration::from_millis));
        let dead = LinkConfig { rate: BitRate::from_mbit(0).into(), ..config };
        assert!(departures(&dead, 0, 1500, 4).is_empty());
    }

    #[test]
    fn outages_are_certain_to_the_shift() {
        let outage = "10ms+20ms".parse().unwrap();
        let config =
            LinkConfig { outages: vec![outage], ..config(Duration::ZERO, LossModel::None) };
        let probes = every(1, 100);
        let flow = || [SentProbes { len: 1500, probes: &probes }];
        let exactly = predict_losses(&config, &flow(), Duration::ZERO).unwrap();
        assert_eq!((exactly.interval, exactly.mean), (20..=20, 20.0));
        let about = predict_losses(&config, &flow(), Duration::from_micros(500)).unwrap();
        assert_eq!(about.interval, 20..=21);
        let before = SentProbes { len: 1500, probes: &probes[..50] };
        let last = &probes[50..];
        let after = predict_losses(
            &config,
            &[before, SentProbes { len: 1500, probes: last }],
            Duration::ZERO,
        );
        assert_eq!(after.unwrap().interval, 0..=0);
    }

    /// Bursts of 10 ms every 100 ms on average over a second: 10 % of 1000 packets, but with a much
    /// larger variance than independent losses.
    #[test]
    fn bursts_have_a_wide_interval() {
        let ms = Duration::from_millis;
        let burst = BurstModel::new(ms(0)..=ms(180), ms(10)..=ms(10)).unwrap();
        let config = config(Duration::ZERO, LossModel::Burst(burst));
        let probes = every(1, 1000);
        let got =
            predict_losses(&config, &[SentProbes { len: 150, probes: &probes }], Duration::ZERO)
                .unwrap();
        assert!((95.0..125.0).contains(&got.mean), "{got:?}");
        assert!(*got.interval.start() < 75 && *got.interval.end() > 130, "{got:?}");
    }
}
