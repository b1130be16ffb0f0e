//! Figures of a run.

use core::time::Duration;

use crate::app::{Deed, Tally};

/// One figure, with a unit in its name where it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Of what: a flow's name, `forward` or `return`.
    pub of: String,
    /// Which: `goodput-mbit/s`, `time-median-s`.
    pub name: &'static str,
    /// How much.
    pub value: f64,
}

/// The middle of them, interpolated; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which a `share` of them lies, interpolated between the two
/// nearest (Hyndman and Fan 1996, type 7).
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[place as usize], sorted[place.ceil() as usize]);
    Some(low + (high - low) * (place - place.floor()))
}

/// Jain, Chiu and Hawe 1984: 1 if all get the same, 1/n if one gets all.
fn fairness(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// The figures of the applications of one flow.
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
        put("fairness", fairness(&rates).unwrap_or(0.0));
    }
    let deeds = || tallies.iter().flat_map(|tally| &tally.deeds);
    put("done", deeds().count() as f64);
    let times: Vec<f64> = deeds().map(|deed| deed.time().as_secs_f64()).collect();
    if !times.is_empty() {
        put("time-mean-s", times.iter().sum::<f64>() / times.len() as f64);
        put("time-median-s", median(&times).unwrap_or(0.0));
        put("time-p95-s", quantile(&times, 0.95).unwrap_or(0.0));
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

/// Bits per second of an application: of what it did, if it did one thing only;
/// else from its beginning to its last byte.
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
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), Some(4.8));
    }

    #[test]
    fn fairness_is_one_for_equals_and_a_share_for_one() {
        assert_eq!(fairness(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(fairness(&[3.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(fairness(&[0.0]), None);
    }
}
