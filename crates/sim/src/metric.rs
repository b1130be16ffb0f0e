//! Metrics of a run.

use core::time::Duration;
use std::borrow::Cow;

use stats::{jain_index, mean, median, percentile};

use crate::app::{Deed, Tally};

/// A metric. Its name includes the unit, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The subject: a flow's name, `forward` or `return`.
    pub of: String,
    /// The name: `goodput-mbit/s`, `time-median-s`.
    pub name: Cow<'static, str>,
    /// The value, in the unit of the name.
    pub value: f64,
}

impl Metric {
    /// A metric whose name is known when the program is built.
    pub fn new(of: &str, name: &'static str, value: f64) -> Self {
        Self { of: of.to_owned(), name: name.into(), value }
    }
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
    let mut put = |metric: &'static str, value: f64| {
        metrics.push(Metric::new(name, metric, value));
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
        put("lost-share", 1.0 - arrived / sent);
        let delays = tallies.iter().flat_map(|tally| &tally.delays);
        let delays: Vec<f64> = delays.map(Duration::as_secs_f64).collect();
        put("delay-mean-s", mean(&delays).unwrap_or(0.0));
        put("delay-p99-s", percentile(&delays, 99.0).unwrap_or(0.0));
        put("delay-max-s", delays.iter().copied().fold(0.0, f64::max));
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

#[cfg(test)]
mod tests {
    use units::Instant;

    use super::*;
    use crate::testkit::{at, at_ms};

    fn deed(begin: u64, end: u64, bytes: u64) -> Deed {
        Deed { begin: at(begin), end: at(end), bytes }
    }

    fn value(metrics: &[Metric], name: &str) -> Option<f64> {
        metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    #[test]
    fn a_single_transfer_s_rate_is_over_its_own_time() {
        let deeds = vec![deed(2, 4, 1_000_000)];
        let tally = Tally { bytes: 9, began: at(0), last: Some(at(9)), deeds, ..Tally::default() };
        let metrics = of_flow("ftp", &[&tally]);
        assert_eq!(value(&metrics, "goodput-mbit/s"), Some(4.0));
        assert_eq!(value(&metrics, "fairness"), None);
        assert!(metrics.iter().all(|metric| metric.of == "ftp"));
    }

    #[test]
    fn rates_of_several_applications_add_up_and_share_fairly_or_not() {
        let tally = |bytes| Tally { bytes, last: Some(at(8)), ..Tally::default() };
        let [one, three] = [tally(1_000_000), tally(3_000_000)];
        let metrics = of_flow("web", &[&one, &three]);
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
        let tally = |deeds| Tally { deeds, ..Tally::default() };
        let [one, two] = [tally(vec![deed(0, 1, 1), deed(1, 3, 1)]), tally(vec![deed(0, 9, 1)])];
        let metrics = of_flow("page", &[&one, &two]);
        let names = ["done", "time-mean-s", "time-median-s", "time-max-s"];
        assert_eq!(names.map(|name| value(&metrics, name)), [3.0, 4.0, 2.0, 9.0].map(Some));
    }

    #[test]
    fn datagrams_that_did_not_arrive_do_not_count_in_the_delay() {
        let mut delays = vec![Duration::from_millis(100); 30];
        delays[7] = Duration::from_millis(400);
        let tally = Tally { datagrams: [40, 30], delays, ..Tally::default() };
        let metrics = of_flow("udp", &[&tally, &Tally::default()]);
        assert_eq!(value(&metrics, "lost-share"), Some(0.25));
        let delays = ["delay-mean-s", "delay-p99-s", "delay-max-s"].map(|it| value(&metrics, it));
        let near = |got: Option<f64>, want: f64| (got.unwrap() - want).abs() < 1e-9;
        // The quantile lies 0.29 of 29 intervals before the greatest value.
        assert!(
            near(delays[0], 0.11) && near(delays[1], 0.313) && near(delays[2], 0.4),
            "{delays:?}"
        );
        let nothing = Tally { datagrams: [40, 0], ..Tally::default() };
        let metrics = of_flow("udp", &[&nothing]);
        assert_eq!(value(&metrics, "delay-mean-s"), Some(0.0));
        assert_eq!(value(&metrics, "lost-share"), Some(1.0));
    }

    #[test]
    fn work_that_took_no_time_has_no_rate() {
        let mut tally = Tally { deeds: vec![deed(2, 2, 1000)], ..Tally::default() };
        assert_eq!(goodput(&tally), 0.0);
        tally.deeds.clear();
        assert_eq!((tally.goodput(), goodput(&tally)), (None, 0.0));
    }

    #[test]
    fn a_tally_runs_from_its_start_to_the_last_byte() {
        let mut tally = Tally { began: at(1), ..Tally::default() };
        tally.delivered(at_ms(1500), 1000);
        tally.delivered(at(3), 1000);
        assert_eq!((tally.first, tally.last), (Some(at_ms(1500)), Some(at(3))));
        assert_eq!(tally.goodput(), Some(8000.0));
        // Bytes at the very start cannot be divided by no time.
        let mut tally = Tally::default();
        tally.delivered(Instant::ZERO, 1);
        assert_eq!(tally.goodput(), None);
    }

    #[test]
    fn a_figure_is_the_median_of_the_runs_that_have_it() {
        let run = |of: &str, value| vec![Metric::new(of, "bytes", value)];
        let runs = [run("a", 1.0), run("a", 9.0), run("b", 100.0), run("a", 5.0)];
        let runs = runs.each_ref().map(Vec::as_slice);
        assert_eq!(figure(&runs, "a", "bytes"), Some(5.0));
        assert_eq!(figure(&runs, "a", "done"), None);
        assert_eq!(figure(&[], "a", "bytes"), None);
    }
}
