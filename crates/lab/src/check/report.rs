//! What was asked for and what was measured.

use serde::Serialize;

use crate::LinkName;

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
    /// The forward link (to the terminal) and the return link; then those of the
    /// terrestrial part, if there is one.
    pub directions: Vec<DirectionReport>,
    /// Connections from client to server, by IPv4 and IPv6.
    pub reach: Vec<ReachReport>,
    /// The driver's own account.
    pub driver: DriverReport,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DirectionReport {
    /// Which one.
    pub direction: LinkName,
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
    /// What the queue's discipline drops of a flow that is too fast.
    pub discipline: Option<DisciplineReport>,
}

/// Delays include the time to send the probe at the link's rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DelayReport {
    /// In milliseconds, without jitter; the median of what the probes should
    /// have had if the delay or the rate changes.
    pub asked_ms: f64,
    /// What jitter may add, in milliseconds.
    pub jitter_ms: f64,
    /// The median in milliseconds.
    pub median_ms: f64,
    /// 99 % of the probes were no further from what was asked than this.
    pub p99_error_ms: f64,
    /// No probe was further from what was asked than this.
    pub worst_error_ms: f64,
    /// The most that was added to the delay without jitter, in milliseconds.
    pub greatest_extra_ms: f64,
    /// Probes that arrived.
    pub samples: u64,
    /// Whether the 99 % are within 0.5 ms, and jitter is there if asked.
    pub within: bool,
}

/// In bits of IP packets per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RateReport {
    /// As configured, less encapsulation; the mean of the time if it changes.
    pub asked_bit_s: f64,
    /// As it came.
    pub measured_bit_s: f64,
    /// 0.5 %, and what jitter may do to the measurement, as a share.
    pub tolerance: f64,
    /// Whether it is within that.
    pub within: bool,
}

/// Losses of packets of one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LossReport {
    /// The share of packets lost in the long run; of these packets, if there is
    /// no long run.
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
    /// Whether jitter lets packets overtake each other.
    pub reordering: bool,
    /// Whether there were none, or they are asked for.
    pub within: bool,
}

/// What RED or CoDel drops; packets that can be marked are not sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DisciplineReport {
    /// As the preset names it.
    pub asked: String,
    /// Packets sent, half as many again as the link takes.
    pub sent: u64,
    /// Of these dropped.
    pub dropped: u64,
    /// The fewest drops inside the 99 % interval of the model.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// Whether the drops are inside.
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

/// A TCP connection from a client to the server with an echo.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReachReport {
    /// The client.
    pub client: String,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// What went wrong.
    pub error: Option<String>,
    /// Whether the echo came back.
    pub within: bool,
}

/// How late the driver was in the delay measurement, and what went past the
/// link in all of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
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
                let (asked_bit_s, measured_bit_s) = (1e6, 2e6);
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
