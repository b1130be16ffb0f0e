//! Metrics of a run: of flows, their senders, and links.

use core::slice;
use core::time::Duration;
use std::borrow::Cow;

use link::{PacketCounters, Rate};
use scenario::{LinkSpec, ScenarioCase};
use stats::{jain_index, mean, median, percentile};
use units::ByteCount;

use crate::app::{AppStats, WorkUnit};
use crate::probe::{SenderRecording, SenderSample};

/// A metric of a run. Its name includes the unit, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricValue {
    /// The subject: a flow's name, `forward` or `return`.
    pub of: String,
    /// The name with its unit, such as `goodput-mbit/s` or `time-median-s`.
    pub name: Cow<'static, str>,
    /// The value, in the unit of the name.
    pub value: f64,
}

impl MetricValue {
    /// Creates a metric with a constant name.
    pub fn new(of: &str, name: &'static str, value: f64) -> Self {
        Self { of: of.to_owned(), name: name.into(), value }
    }
}

/// Returns the median of a metric over runs; `None` if no run has it.
pub fn median_of_runs(runs: &[&[MetricValue]], of: &str, name: &str) -> Option<f64> {
    let find = |metrics: &&[MetricValue]| {
        metrics
            .iter()
            .find(|metric| metric.of == of && metric.name == name)
            .map(|metric| metric.value)
    };
    median(&runs.iter().filter_map(find).collect::<Vec<_>>())
}

/// Returns the metrics of a flow, over its applications.
pub fn flow_metrics(name: &str, tallies: &[&AppStats]) -> Vec<MetricValue> {
    let mut metrics = Vec::new();
    let mut put = |metric: &'static str, value: f64| {
        metrics.push(MetricValue::new(name, metric, value));
    };
    let total =
        |of: fn(&AppStats) -> u64| tallies.iter().map(|tally| of(tally)).sum::<u64>() as f64;
    put("bytes", total(|tally| tally.bytes));
    let rates: Vec<f64> = tallies.iter().map(|tally| goodput(tally) / 1e6).collect();
    put("goodput-mbit/s", rates.iter().sum());
    // A single rate has no fairness, and Jain's index is undefined if all rates are zero.
    if let (Some(fairness), 2..) = (jain_index(&rates), rates.len()) {
        put("fairness", fairness);
    }
    let deeds = || tallies.iter().flat_map(|tally| &tally.work_units);
    put("done", deeds().count() as f64);
    let times: Vec<f64> = deeds().map(|deed| deed.time().as_secs_f64()).collect();
    // Without finished units of work there are no times.
    for (name, value) in [
        ("time-mean-s", mean(&times)),
        ("time-median-s", median(&times)),
        ("time-p95-s", percentile(&times, 95.0)),
        ("time-max-s", times.iter().copied().reduce(f64::max)),
    ] {
        if let Some(value) = value {
            put(name, value);
        }
    }
    put("broken", total(|tally| tally.failures));
    let connections = total(|tally| tally.connections);
    if connections > 0.0 {
        put("connections", connections);
    }
    metrics.extend(datagram_metrics(name, tallies));
    metrics
}

/// Returns the metrics of a flow's datagrams; empty if it sent none.
fn datagram_metrics(flow: &str, tallies: &[&AppStats]) -> Vec<MetricValue> {
    let [sent, arrived] = [0, 1].map(|at| {
        let each = tallies.iter().map(|tally| tally.datagrams[at]);
        each.sum::<u64>() as f64
    });
    if sent == 0.0 {
        return Vec::new();
    }
    let delays = tallies.iter().flat_map(|tally| &tally.delays);
    let delays: Vec<f64> = delays.map(Duration::as_secs_f64).collect();
    // Without arrivals there are no delays, and the share of losses is the only metric.
    let metrics = [
        ("lost-share", Some(1.0 - arrived / sent)),
        ("delay-mean-s", mean(&delays)),
        ("delay-p99-s", percentile(&delays, 99.0)),
        ("delay-max-s", delays.iter().copied().reduce(f64::max)),
    ];
    let known = metrics.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.map(|(name, value)| MetricValue::new(flow, name, value)).collect()
}

/// Returns the metrics of a flow's sender, from samples of its state.
pub fn sender_metrics(flow: &str, states: &[SenderSample]) -> Vec<MetricValue> {
    let metric = |name, value| MetricValue::new(flow, name, value);
    let mut all = Vec::new();
    if let Some((mean, most)) = outstanding(states) {
        all.push(metric("outstanding-mean-bytes", mean));
        all.push(metric("outstanding-max-bytes", most as f64));
    }
    let srtt = states.iter().rev().find_map(|state| state.srtt);
    all.extend(srtt.map(|srtt| metric("srtt-s", srtt.as_secs_f64())));
    if let Some(last) = states.last() {
        all.push(metric("timeouts", last.timeouts as f64));
        all.push(metric("undone", last.undone as f64));
    }
    all
}

/// Returns the metrics of a flow's sender, from its segments.
pub(crate) fn segment_metrics(flow: &str, sender: &SenderRecording) -> Vec<MetricValue> {
    let metric = |name, value| MetricValue::new(flow, name, value);
    let mut all = Vec::new();
    if let Some(loss) = sender.first_loss() {
        all.push(metric("first-loss-s", loss.after.as_secs_f64()));
        all.push(metric("first-loss-bytes", loss.sent as f64));
        let recovery = loss.recovery.map(|time| time.as_secs_f64());
        all.extend(recovery.map(|time| metric("first-recovery-s", time)));
    }
    all
}

/// Returns mean and maximum of the outstanding data in bytes, over the samples with outstanding
/// data; `None` if there are none of these.
fn outstanding(states: &[SenderSample]) -> Option<(f64, u64)> {
    let busy = || states.iter().map(|state| state.outstanding).filter(|bytes| *bytes > 0);
    let count = busy().count();
    // NaN without samples; then there is no maximum either.
    let mean = busy().sum::<u64>() as f64 / count as f64;
    busy().max().map(|most| (mean, most))
}

/// Totals of all links of a kind in a run.
#[derive(Debug, Clone, Copy)]
pub struct LinkUse {
    /// Bytes that they could carry during the run, encapsulation included.
    pub capacity: ByteCount,
    /// Bytes that arrived, encapsulation included.
    pub carried: ByteCount,
    /// IP packets that arrived.
    pub delivered: u64,
    /// Number of packets dropped because a queue was full.
    pub dropped: u64,
    /// Number of packets lost on the links.
    pub lost: u64,
    /// Maximum number of packets that waited for one of the links.
    pub peak_queue: u64,
}

impl LinkUse {
    /// Creates the totals of links that have not carried anything yet.
    pub fn new(capacity: ByteCount) -> Self {
        let carried = ByteCount::new(0);
        Self { capacity, carried, delivered: 0, dropped: 0, lost: 0, peak_queue: 0 }
    }

    /// Adds the counters of a link.
    pub fn add(&mut self, counters: &PacketCounters, peak_queue: u64) {
        self.delivered += counters.delivered.packets;
        let carried = counters.delivered_with_encapsulation.get();
        self.carried = ByteCount::new(self.carried.get().saturating_add(carried));
        self.dropped += counters.dropped_queue.packets;
        self.lost += counters.lost.packets;
        self.peak_queue = self.peak_queue.max(peak_queue);
    }
}

/// Returns the metrics of links: `of` is `forward`, `return` or `shaper`.
pub fn link_metrics(of: &str, used: &LinkUse) -> Vec<MetricValue> {
    let metric = |name, value| MetricValue::new(of, name, value);
    // A link without capacity, for instance one in a permanent outage, has no utilisation.
    let capacity = Some(used.capacity.get() as f64).filter(|capacity| *capacity > 0.0);
    let share = capacity.map(|capacity| used.carried.get() as f64 / capacity);
    let utilisation = share.map(|share| metric("utilisation", share));
    let counts = [
        metric("delivered-packets", used.delivered as f64),
        metric("dropped-packets", used.dropped as f64),
        metric("lost-packets", used.lost as f64),
        metric("peak-queue-packets", used.peak_queue as f64),
    ];
    utilisation.into_iter().chain(counts).collect()
}

/// The rates of a case's forward links, return links and shapers, each with the number of links that
/// have it.
#[derive(Debug)]
pub struct LinkCapacities([Vec<(Rate, u64)>; 3]);

impl LinkCapacities {
    /// Returns the bytes that all links of each kind can carry between two times since the start.
    pub fn offered(&self, from: Duration, until: Duration) -> [ByteCount; 3] {
        self.0.each_ref().map(|rates| {
            let bytes = |(rate, count): &(Rate, u64)| {
                rate.capacity(from, until).get().saturating_mul(*count)
            };
            ByteCount::new(rates.iter().map(bytes).fold(0, u64::saturating_add))
        })
    }
}

/// Returns the rates of the links of a case.
pub fn capacities(case: &ScenarioCase) -> LinkCapacities {
    // `count` links take the rates of `links` in turn.
    let together = |links: &[LinkSpec], count: usize| {
        let each = |(index, link): (usize, &LinkSpec)| {
            let more = usize::from(index < count % links.len());
            (link.rate.over_time().clone(), (count / links.len() + more) as u64)
        };
        links.iter().enumerate().map(each).collect()
    };
    let platforms = &case.network.platforms;
    let channels = |terminals: &u32| match case.network.return_channels {
        0 => *terminals as usize,
        channels => channels as usize,
    };
    // A shared return link counts once for each carrier, however many terminals use it.
    let returns = match &case.hop.dama {
        Some(dama) => platforms.len() * dama.carriers as usize,
        None => platforms.iter().map(channels).sum(),
    };
    let shapers = case.shaper.as_slice();
    let terminals = case.network.terminals as usize;
    LinkCapacities([
        together(slice::from_ref(&case.hop.forward), platforms.len()),
        together(&case.returns(), returns),
        together(shapers, terminals),
    ])
}

/// Returns an application's rate in bits per second: over its unit of work if it has exactly one,
/// otherwise from its start to its last byte.
fn goodput(tally: &AppStats) -> f64 {
    let of_deed = |deed: &WorkUnit| {
        let time = deed.time().as_secs_f64();
        if time > 0.0 { deed.bytes as f64 * 8.0 / time } else { 0.0 }
    };
    match &tally.work_units[..] {
        [only] => of_deed(only),
        _ => tally.goodput().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use units::Instant;

    use super::*;
    use crate::testkit::{at, at_ms};

    fn deed(begin: u64, end: u64, bytes: u64) -> WorkUnit {
        WorkUnit { begin: at(begin), end: at(end), bytes }
    }

    fn value(metrics: &[MetricValue], name: &str) -> Option<f64> {
        metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    #[test]
    fn a_single_transfer_s_rate_is_over_its_own_time() {
        let deeds = vec![deed(2, 4, 1_000_000)];
        let tally = AppStats {
            bytes: 9,
            began: at(0),
            last: Some(at(9)),
            work_units: deeds,
            ..AppStats::default()
        };
        let metrics = flow_metrics("ftp", &[&tally]);
        assert_eq!(value(&metrics, "goodput-mbit/s"), Some(4.0));
        assert_eq!(value(&metrics, "fairness"), None);
        assert!(metrics.iter().all(|metric| metric.of == "ftp"));
    }

    #[test]
    fn rates_of_several_applications_add_up_and_share_fairly_or_not() {
        let tally = |bytes| AppStats { bytes, last: Some(at(8)), ..AppStats::default() };
        let [one, three] = [tally(1_000_000), tally(3_000_000)];
        let metrics = flow_metrics("web", &[&one, &three]);
        assert_eq!(value(&metrics, "goodput-mbit/s"), Some(4.0));
        // Jain: (1 + 3)² / (2·(1 + 9)).
        assert!((value(&metrics, "fairness").unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(value(&metrics, "bytes"), Some(4_000_000.0));
        assert_eq!(value(&metrics, "done"), Some(0.0));
        assert_eq!(value(&metrics, "time-median-s"), None);
        assert_eq!(value(&metrics, "lost-share"), None);
    }

    #[test]
    fn times_are_over_the_work_of_all_applications() {
        let tally = |deeds| AppStats { work_units: deeds, ..AppStats::default() };
        let [one, two] = [tally(vec![deed(0, 1, 1), deed(1, 3, 1)]), tally(vec![deed(0, 9, 1)])];
        let metrics = flow_metrics("page", &[&one, &two]);
        let names = ["done", "time-mean-s", "time-median-s", "time-max-s"];
        assert_eq!(names.map(|name| value(&metrics, name)), [3.0, 4.0, 2.0, 9.0].map(Some));
    }

    #[test]
    fn datagrams_that_did_not_arrive_do_not_count_in_the_delay() {
        let mut delays = vec![Duration::from_millis(100); 30];
        delays[7] = Duration::from_millis(400);
        let tally = AppStats { datagrams: [40, 30], delays, ..AppStats::default() };
        let metrics = flow_metrics("udp", &[&tally, &AppStats::default()]);
        assert_eq!(value(&metrics, "lost-share"), Some(0.25));
        let delays = ["delay-mean-s", "delay-p99-s", "delay-max-s"].map(|it| value(&metrics, it));
        let near = |got: Option<f64>, want: f64| (got.unwrap() - want).abs() < 1e-9;
        // The quantile lies 0.29 of 29 intervals before the greatest value.
        assert!(
            near(delays[0], 0.11) && near(delays[1], 0.313) && near(delays[2], 0.4),
            "{delays:?}"
        );
        let nothing = AppStats { datagrams: [40, 0], ..AppStats::default() };
        let metrics = flow_metrics("udp", &[&nothing]);
        assert_eq!(value(&metrics, "delay-mean-s"), None);
        assert_eq!(value(&metrics, "lost-share"), Some(1.0));
    }

    #[test]
    fn work_that_took_no_time_has_no_rate() {
        let mut tally = AppStats { work_units: vec![deed(2, 2, 1000)], ..AppStats::default() };
        assert_eq!(goodput(&tally), 0.0);
        tally.work_units.clear();
        assert_eq!((tally.goodput(), goodput(&tally)), (None, 0.0));
    }

    #[test]
    fn a_tally_runs_from_its_start_to_the_last_byte() {
        let mut tally = AppStats { began: at(1), ..AppStats::default() };
        tally.delivered(at_ms(1500), 1000);
        tally.delivered(at(3), 1000);
        assert_eq!((tally.first, tally.last), (Some(at_ms(1500)), Some(at(3))));
        assert_eq!(tally.goodput(), Some(8000.0));
        // Bytes at the very start cannot be divided by no time.
        let mut tally = AppStats::default();
        tally.delivered(Instant::ZERO, 1);
        assert_eq!(tally.goodput(), None);
    }

    #[test]
    fn outstanding_data_is_averaged_over_the_time_in_which_there_is_some() {
        let state = |outstanding| SenderSample {
            at: Instant::ZERO,
            cwnd: 0,
            ssthresh: 0,
            outstanding,
            srtt: None,
            timeouts: 0,
            undone: 0,
        };
        assert_eq!((outstanding(&[]), outstanding(&[state(0)])), (None, None));
        assert_eq!(outstanding(&[0, 1000, 0, 0, 3000].map(state)), Some((2000.0, 3000)));
    }

    #[test]
    fn utilisation_is_of_what_there_was_with_encapsulation() {
        let mut used = LinkUse::new(ByteCount::new(2_000));
        let delivered = link::Tally { packets: 3, bytes: ByteCount::new(900) };
        let delivered_with_encapsulation = ByteCount::new(1_000);
        let counters =
            PacketCounters { delivered, delivered_with_encapsulation, ..PacketCounters::default() };
        used.add(&counters, 7);
        assert_eq!(value(&link_metrics("forward", &used), "utilisation"), Some(0.5));
        let nothing = LinkUse::new(ByteCount::new(0));
        assert_eq!(value(&link_metrics("forward", &nothing), "utilisation"), None);
    }

    #[test]
    fn a_figure_is_the_median_of_the_runs_that_have_it() {
        let run = |of: &str, value| vec![MetricValue::new(of, "bytes", value)];
        let runs = [run("a", 1.0), run("a", 9.0), run("b", 100.0), run("a", 5.0)];
        let runs = runs.each_ref().map(Vec::as_slice);
        assert_eq!(median_of_runs(&runs, "a", "bytes"), Some(5.0));
        assert_eq!(median_of_runs(&runs, "a", "done"), None);
        assert_eq!(median_of_runs(&[], "a", "bytes"), None);
    }
}
