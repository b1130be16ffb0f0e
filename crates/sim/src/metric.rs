//! Metrics of a run.

use core::time::Duration;

use stats::{jain_index, mean, median, percentile};

use crate::app::{Deed, Tally};

/// A metric. Its name includes the unit, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The subject: a flow's name, `forward` or `return`.
    pub of: String,
    /// The name: `goodput-mbit/s`, `time-median-s`.
    pub name: &'static str,
    /// The value, in the unit of the name.
    pub value: f64,
}

/// The median of a metric over runs; `None` if no run has it.
pub fn figure(runs: &[&[Metric]], of: &str, name: &str) -> Option<f64> {
    let find = |metrics: &&[Metric]| {
        metrics.iter().find(|metric| metric.of == of && metric.name == name).map(|it| it.value)
    };
    median(&runs.iter().filter_map(find).collect::<Vec<_>>())
}

/// The metrics of a flow, over its applications.
pub(crate) fn of_flow(name: &str, tallies: &[&Tally]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut put = |name_of: &'static str, value: f64| {
        metrics.push(Metric { of: name.to_owned(), name: name_of, value });
    };
    let total = |of: fn(&Tally) -> u64| tallies.iter().map(|tally| of(tally)).sum::<u64>() as f64;
    put("bytes", total(|tally| tally.bytes));
    let rates: Vec<f64> = tallies.iter().map(|tally| goodput(tally) / 1e6).collect();
    put("goodput-mbit/s", rates.iter().sum());
    if rates.len() > 1 {
        put("fairness", jain_index(&rates).unwrap_or(0.0));
    }
    let deeds = || tallies.iter().flat_map(|tally| &tally.deeds);
    put("done", deeds().count() as f64);
    let times: Vec<f64> = deeds().map(|deed| deed.time().as_secs_f64()).collect();
    if !times.is_empty() {
        put("time-mean-s", mean(&times).unwrap_or(0.0));
        put("time-median-s", median(&times).unwrap_or(0.0));
        put("time-p95-s", percentile(&times, 95.0).unwrap_or(0.0));
        put("time-max-s", times.iter().copied().fold(0.0, f64::max));
    }
    put("broken", total(|tally| tally.broken));
    let sent = total(|tally| tally.datagrams[0]);
    if sent > 0.0 {
        let arrived = total(|tally| tally.datagrams[1]);
        let delay: Duration = tallies.iter().map(|tally| tally.delay).sum();
        put("lost-share", 1.0 - arrived / sent);
        put("delay-mean-s", delay.as_secs_f64() / arrived.max(1.0));
    }
    metrics
}

/// An application's rate in bits per second: over its only unit of work if it has one, otherwise
/// from its start to its last byte.
fn goodput(tally: &Tally) -> f64 {
    let of_deed = |deed: &Deed| {
        let time = deed.time().as_secs_f64();
        if time > 0.0 { deed.bytes as f64 * 8.0 / time } else { 0.0 }
    };
    match &tally.deeds[..] {
        [only] => of_deed(only),
        _ => tally.goodput().unwrap_or(0.0),
    }
}
