//! What was asked for and what was measured.

use serde::Serialize;

/// The tolerance of the delay in milliseconds: 99 % of the probes are within it.
pub(crate) const DELAY_TOLERANCE: f64 = 0.5;
/// The tolerance of the rate, as a share.
pub(crate) const RATE_TOLERANCE: f64 = 0.005;
/// The confidence with which losses are what was asked for.
pub(crate) const LOSS_CONFIDENCE: f64 = 0.99;

/// A measured link beside the one that was asked for.
///
/// In each part `within` is the verdict; a part that is `None` could not be
/// measured on this link.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// The preset's name.
    pub preset: String,
    /// The forward link (to the terminal) and the return link.
    pub directions: [DirectionReport; 2],
    /// Connections from client to server, by IPv4 and IPv6.
    pub reach: Vec<ReachReport>,
    /// The driver's own account.
    pub driver: DriverReport,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DirectionReport {
    /// `forward` or `return`.
    pub direction: &'static str,
    /// One-way delay of small packets on the idle link.
    pub delay: Option<DelayReport>,
    /// The rate of a flow that is never out of packets.
    pub rate: Option<RateReport>,
    /// What that flow lost.
    pub loss: Option<LossReport>,
    /// The order in which all probes arrived.
    pub order: OrderReport,
    /// How much waits in the full queue.
    pub queue: Option<QueueReport>,
}

/// Delays include the time to send the probe at the link's rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DelayReport {
    /// In milliseconds.
    pub asked_ms: f64,
    /// The median in milliseconds.
    pub median_ms: f64,
    /// 99 % of the probes were no further from `asked_ms` than this.
    pub p99_error_ms: f64,
    /// No probe was further from `asked_ms` than this.
    pub worst_error_ms: f64,
    /// Probes that arrived.
    pub samples: u64,
    /// Whether the 99 % are within 0.5 ms.
    pub within: bool,
}

/// In bits of IP packets per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RateReport {
    /// As configured.
    pub asked_bit_s: f64,
    /// As it came.
    pub measured_bit_s: f64,
    /// Whether it is within 0.5 %.
    pub within: bool,
}

/// Losses of packets of one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LossReport {
    /// The probability with which a packet is lost.
    pub asked: f64,
    /// Packets that the link took.
    pub sent: u64,
    /// Packets of these that did not arrive.
    pub lost: u64,
    /// The fewest losses inside the 99 % confidence interval.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// Whether the losses are inside.
    pub within: bool,
}

/// The order of arrival.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OrderReport {
    /// Probes that arrived.
    pub arrived: u64,
    /// Those that came after a later one, or twice.
    pub out_of_order: u64,
    /// Whether there were none.
    pub within: bool,
}

/// Packets in the full queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueReport {
    /// Packets of the MTU that fit.
    pub asked_packets: u64,
    /// How many waited when others were dropped (the median).
    pub measured_packets: u64,
    /// Whether any were dropped; if not, there is room for more.
    pub full: bool,
    /// Whether the two numbers are equal.
    pub within: bool,
}

/// A TCP connection from client to server with an echo.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReachReport {
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// What went wrong.
    pub error: Option<String>,
    /// Whether the echo came back.
    pub within: bool,
}

/// How late the driver was in the delay measurement, and what went past the
/// link in all of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DriverReport {
    /// Half of the packets left the link no later than this, in milliseconds.
    pub late_median_ms: f64,
    /// 99 % of them.
    pub late_p99_ms: f64,
    /// All of them.
    pub late_worst_ms: f64,
    /// Packets that were lost otherwise than on the link.
    pub faults: u64,
    /// Whether there were none.
    pub within: bool,
}

impl CheckReport {
    /// Whether nothing that was measured is outside its tolerance.
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
            order: OrderReport { arrived: 1, out_of_order: 0, within: true },
            queue: None,
        };
        CheckReport {
            preset: "geo".into(),
            directions: [direction("forward"), direction("return")],
            reach: vec![ReachReport { family: "IPv6", error: None, within: true }],
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
                let (asked_bit_s, measured_bit_s) = (1e6, 2e6);
                let rate = RateReport { asked_bit_s, measured_bit_s, within: false };
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
