//! The report: configured and measured values.

use serde::Serialize;

use crate::LinkName;

/// Tolerance of the delay in milliseconds, for 99 % of the probes.
pub(crate) const DELAY_TOLERANCE: f64 = 0.5;
/// Tolerance of the rate, as a fraction.
pub(crate) const RATE_TOLERANCE: f64 = 0.005;
/// Confidence level of the loss interval.
pub(crate) const LOSS_CONFIDENCE: f64 = 0.99;

/// The measured link compared with its configuration.
///
/// In each part `within` is the verdict. A part is `None` if it could not be measured on this link.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Name of the measured preset.
    pub preset: String,
    /// The forward link (to the terminal) and the return link, then those of the terrestrial part,
    /// if there is one.
    pub directions: Vec<DirectionReport>,
    /// Connections from client to server over IPv4 and IPv6.
    pub reach: Vec<ReachReport>,
    /// Figures of the driver during the measurements.
    pub driver: DriverReport,
}

/// The report on one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DirectionReport {
    /// The link of this direction.
    pub direction: LinkName,
    /// One-way delay of small packets on the idle link.
    pub delay: Option<DelayReport>,
    /// Rate of a flow that always has packets waiting.
    pub rate: Option<RateReport>,
    /// Losses of the same flow.
    pub loss: Option<LossReport>,
    /// Order of arrival of all probes.
    pub order: OrderReport,
    /// Length of the full queue.
    pub queue: Option<QueueReport>,
    /// Drops by the queue discipline when a flow is too fast.
    pub discipline: Option<DisciplineReport>,
}

/// One-way delay, including the time to send the probe at the link's rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DelayReport {
    /// Expected delay without jitter, in milliseconds; the median over the probes if the delay or
    /// the rate changes.
    pub asked_ms: f64,
    /// Maximum configured jitter, in milliseconds.
    pub jitter_ms: f64,
    /// Median of the measured delays, in milliseconds.
    pub median_ms: f64,
    /// 99th percentile of the deviation from the expectation, in milliseconds.
    pub p99_error_ms: f64,
    /// Maximum deviation from the expectation, in milliseconds.
    pub worst_error_ms: f64,
    /// Maximum delay beyond the one without jitter, in milliseconds.
    pub greatest_extra_ms: f64,
    /// Number of probes that arrived.
    pub samples: u64,
    /// Set if the 99th percentile is within 0.5 ms, and configured jitter is present.
    pub within: bool,
}

/// Rate in bits of IP packets per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RateReport {
    /// Configured rate less encapsulation; the mean over time if it changes.
    pub asked_bit_s: f64,
    /// Measured rate of the same packets.
    pub measured_bit_s: f64,
    /// Tolerance as a fraction: 0.5 %, plus the effect of jitter on the measurement.
    pub tolerance: f64,
    /// Set if the rate is within the tolerance.
    pub within: bool,
}

/// Losses of packets of one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LossReport {
    /// Fraction lost in the long run; for a link without one, among these packets.
    pub asked: f64,
    /// Packets handed to the link.
    pub sent: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Lower bound of the 99 % confidence interval.
    pub least: u64,
    /// Upper bound of that interval.
    pub most: u64,
    /// Set if the losses are inside the interval.
    pub within: bool,
}

/// Order of arrival of all probes of a direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OrderReport {
    /// Number of probes that arrived.
    pub arrived: u64,
    /// Number of probes that arrived after a later one, or twice.
    pub out_of_order: u64,
    /// Set if jitter lets packets overtake each other.
    pub reordering: bool,
    /// Set if there was no reordering, or it is configured.
    pub within: bool,
}

/// Drops by RED or CoDel, measured with packets that cannot be marked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DisciplineReport {
    /// The discipline as named in the preset.
    pub asked: String,
    /// Packets sent, one and a half times what the link can carry.
    pub sent: u64,
    /// Packets that the discipline dropped.
    pub dropped: u64,
    /// Lower bound of the 99 % interval of the model.
    pub least: u64,
    /// Upper bound of that interval.
    pub most: u64,
    /// Set if the drops are inside the interval.
    pub within: bool,
}

/// Number of packets in the full queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueReport {
    /// Number of MTU-sized packets that should fit.
    pub asked_packets: u64,
    /// Median number that waited when others were dropped.
    pub measured_packets: u64,
    /// Set if any packets were dropped. If not, there is room for more.
    pub full: bool,
    /// Set if the two numbers are equal, and the queue was full.
    pub within: bool,
}

/// A TCP connection from a client to the server's echo service.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReachReport {
    /// Host name of the client, such as `client2`.
    pub client: String,
    /// Address family, `IPv4` or `IPv6`.
    pub family: &'static str,
    /// The error, if the echo did not come back.
    pub error: Option<String>,
    /// Set if the echo came back.
    pub within: bool,
}

/// Lateness of the driver in the delay measurement, and packets that bypassed the link in all
/// measurements.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct DriverReport {
    /// Median lateness of delivered packets, in milliseconds.
    pub late_median_ms: f64,
    /// 99th percentile of the lateness in milliseconds.
    pub late_p99_ms: f64,
    /// Maximum lateness of a packet, in milliseconds.
    pub late_worst_ms: f64,
    /// Packets lost other than on the link.
    pub faults: u64,
    /// Set if no packets were lost other than on the link.
    pub within: bool,
}

impl CheckReport {
    /// Returns true if everything measured is within its tolerance.
    pub fn is_within(&self) -> bool {
        self.directions.iter().all(DirectionReport::is_within)
            && self.reach.iter().all(|reach| reach.within)
            && self.driver.within
    }
}

impl DirectionReport {
    fn is_within(&self) -> bool {
        self.delay.as_ref().is_none_or(|delay| delay.within)
            && self.rate.as_ref().is_none_or(|rate| rate.within)
            && self.loss.as_ref().is_none_or(|loss| loss.within)
            && self.order.within
            && self.queue.as_ref().is_none_or(|queue| queue.within)
            && self.discipline.as_ref().is_none_or(|discipline| discipline.within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> CheckReport {
        let direction = |direction| DirectionReport {
            direction,
            delay: None,
            rate: None,
            loss: None,
            order: OrderReport { arrived: 1, out_of_order: 0, reordering: false, within: true },
            queue: None,
            discipline: None,
        };
        CheckReport {
            preset: "geo".into(),
            directions: vec![
                direction(LinkName::Forward),
                direction(LinkName::Return(crate::Site::FIRST)),
            ],
            reach: vec![ReachReport {
                client: "client".into(),
                family: "IPv6",
                error: None,
                within: true,
            }],
            driver: DriverReport {
                late_median_ms: 0.0,
                late_p99_ms: 0.0,
                late_worst_ms: 0.0,
                faults: 0,
                within: true,
            },
        }
    }

    #[test]
    fn what_could_not_be_measured_is_not_outside() {
        assert!(report().is_within());
    }

    #[test]
    fn one_part_outside_is_enough() {
        let spoilers: [fn(&mut CheckReport); 4] = [
            |report| report.directions[1].order.within = false,
            |report| report.reach[0].within = false,
            |report| report.driver.within = false,
            |report| {
                let asked_bit_s = 1e6;
                let measured_bit_s = 2e6;
                let rate =
                    RateReport { asked_bit_s, measured_bit_s, tolerance: 0.005, within: false };
                report.directions[0].rate = Some(rate);
            },
        ];
        for spoil in spoilers {
            let mut report = report();
            spoil(&mut report);
            assert!(!report.is_within(), "{report:?}");
        }
    }
}
