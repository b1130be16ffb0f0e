//! Decides whether a case has been run often enough.

use scenario::{Statistic, StopRule};
use stats::{ConfidenceInterval, mean, mean_interval, median, median_interval};

/// The decision of a stop rule about the figures of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StopDecision {
    /// This many replications, from the first, are enough.
    Enough(usize),
    /// This many more are worth making before the rule is applied again.
    More(usize),
    /// The maximum is reached, and the interval is still too wide.
    Exhausted,
}

/// Applies `rule` to the metric's values, in the order of the seeds.
///
/// The answer *enough* is the smallest number of replications that satisfies the rule, whatever comes
/// after them. So it does not depend on how many are run at once, and figures are those of the same
/// seeds on any number of cores.
pub(crate) fn need(rule: &StopRule, values: &[f64]) -> StopDecision {
    let least = rule.least as usize;
    let most = rule.most as usize;
    let values = &values[..values.len().min(most)];
    let mut counts = least..=values.len();
    if let Some(count) = counts.find(|count| is_narrow(rule, &values[..*count])) {
        return StopDecision::Enough(count);
    }
    match values.len() {
        count if count >= most => StopDecision::Exhausted,
        count if count < least => StopDecision::More(least - count),
        // At least a quarter more each time, so that there are few rounds.
        count => {
            let more = estimate(rule, values).clamp(count.div_ceil(4), count);
            StopDecision::More(more.min(most - count))
        }
    }
}

/// Returns the greater distance of an end of the interval from the statistic, as a part of the
/// statistic. `None` with too few values for an interval. Values that are all alike are known
/// exactly.
pub(crate) fn relative_width(rule: &StopRule, values: &[f64]) -> Option<f64> {
    // A run without the metric leaves it unknown; neither ranks nor maxima would show it.
    if values.iter().any(|value| value.is_nan()) {
        return Some(f64::NAN);
    }
    let (centre, ConfidenceInterval { low, high }) = match rule.statistic {
        Statistic::Mean => (mean(values)?, mean_interval(values, rule.confidence)?),
        Statistic::Median => (median(values)?, median_interval(values, rule.confidence)?),
    };
    let distance = (high - centre).max(centre - low);
    // Values that are all 0 are known exactly, but 0 / 0 is NaN.
    Some(if distance == 0.0 { 0.0 } else { distance / centre.abs() })
}

fn is_narrow(rule: &StopRule, values: &[f64]) -> bool {
    relative_width(rule, values).is_some_and(|width| width <= rule.within)
}

/// Estimates the number of further values that are needed: an interval's width falls with the root
/// of their number.
fn estimate(rule: &StopRule, values: &[f64]) -> usize {
    let ratio = relative_width(rule, values).map_or(f64::INFINITY, |width| width / rule.within);
    let needed = values.len() as f64 * ratio * ratio;
    // Saturates at infinity; no number becomes zero.
    (needed.ceil() as usize).saturating_sub(values.len())
}

#[cfg(test)]
mod tests {
    use scenario::MetricName;

    use super::*;

    fn rule(statistic: Statistic, within: f64, least: u32, most: u32) -> StopRule {
        let name = MetricName { of: "ftp".to_owned(), metric: "goodput-mbit/s".to_owned() };
        StopRule { name, statistic, confidence: 0.95, within, least, most, first: 1 }
    }

    /// 10 ± 1 in turn.
    fn values(count: u32) -> Vec<f64> {
        (0..count).map(|number| if number % 2 == 0 { 9.0 } else { 11.0 }).collect()
    }

    #[test]
    fn first_the_minimum_is_run() {
        let rule = rule(Statistic::Mean, 0.5, 10, 100);
        assert_eq!(need(&rule, &[]), StopDecision::More(10));
        assert_eq!(need(&rule, &values(4)), StopDecision::More(6));
        assert_eq!(need(&rule, &values(10)), StopDecision::Enough(10));
    }

    #[test]
    fn enough_is_the_same_however_many_more_were_run() {
        let rule = rule(Statistic::Mean, 0.05, 2, 100);
        // Student's t for 17 degrees of freedom is 2.110, and 2.110 · 1.029/√18 = 0.512 of a mean of
        // 10; for 18 it is 2.101, and 2.101 · 1.026/√19 = 0.495 of 9.947.
        let counts = [20, 30, 100].map(|count| need(&rule, &values(count)));
        assert_eq!(counts, [StopDecision::Enough(19); 3]);
        let StopDecision::More(more) = need(&rule, &values(18)) else { panic!() };
        assert!((1..=18).contains(&more), "{more}");
    }

    #[test]
    fn the_maximum_ends_it() {
        let rule = rule(Statistic::Mean, 0.001, 2, 12);
        assert_eq!(need(&rule, &values(8)), StopDecision::More(4));
        assert_eq!(need(&rule, &values(12)), StopDecision::Exhausted);
        assert_eq!(need(&rule, &values(50)), StopDecision::Exhausted);
    }

    #[test]
    fn a_median_needs_six_values_and_asks_for_them_one_round_after_the_other() {
        let rule = rule(Statistic::Median, 0.2, 2, 100);
        assert_eq!(need(&rule, &values(2)), StopDecision::More(2));
        assert_eq!(need(&rule, &values(4)), StopDecision::More(4));
        assert_eq!(need(&rule, &values(8)), StopDecision::Enough(6));
    }

    #[test]
    fn values_without_a_spread_are_known() {
        let rule = rule(Statistic::Mean, 0.01, 3, 10);
        assert_eq!(need(&rule, &[0.0; 3]), StopDecision::Enough(3));
        // Around zero no part of it is wide enough, and not every value is a number.
        assert_eq!(need(&rule, &[-1.0, 1.0, -1.0, 1.0]), StopDecision::More(4));
        assert_eq!(need(&rule, &[f64::NAN; 4]), StopDecision::More(1));
    }
}
