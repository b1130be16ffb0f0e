//! Statistics of a connection.

use core::time::Duration;

use units::ByteCount;

use crate::cc::Phase;

/// Counters, and some current values.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// Segments sent with data, SYN or FIN, for the first time.
    pub segments: u64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// Payload bytes retransmitted.
    pub retransmitted: ByteCount,
    /// Fast recoveries started.
    pub recoveries: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Reactions to losses or time-outs that were undone.
    pub undone: u64,
    /// Tail loss probes sent.
    pub tail_probes: u64,
    /// Window reductions because of ECN.
    pub ecn_reductions: u64,
    /// Bytes acknowledged.
    pub acked: ByteCount,
    /// Congestion window.
    pub cwnd: ByteCount,
    /// Slow-start threshold.
    pub ssthresh: ByteCount,
    /// Bytes sent and not acknowledged.
    pub outstanding: ByteCount,
    /// The part of these neither selectively acknowledged nor declared lost.
    pub in_flight: ByteCount,
    /// SRTT.
    pub smoothed_rtt: Option<Duration>,
    /// Minimum RTT.
    pub min_rtt: Option<Duration>,
    /// The retransmission time-out.
    pub rto: Duration,
    /// The phase of loss repair.
    pub phase: Phase,
    /// The controller's own values.
    pub controller: Vec<(&'static str, f64)>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            segments: 0,
            retransmissions: 0,
            retransmitted: ByteCount::ZERO,
            recoveries: 0,
            timeouts: 0,
            undone: 0,
            tail_probes: 0,
            ecn_reductions: 0,
            acked: ByteCount::ZERO,
            cwnd: ByteCount::ZERO,
            ssthresh: ByteCount::ZERO,
            outstanding: ByteCount::ZERO,
            in_flight: ByteCount::ZERO,
            smoothed_rtt: None,
            min_rtt: None,
            rto: Duration::ZERO,
            phase: Phase::Open,
            controller: Vec::new(),
        }
    }
}
