//! Statistics of a connection.

use core::time::Duration;

use units::ByteCount;

use crate::cc::RepairPhase;

/// Counters of a connection, and current values of its sender.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionStats {
    /// Segments sent with data, SYN or FIN, for the first time.
    pub segments: u64,
    /// Segments retransmitted, for whatever reason.
    pub retransmissions: u64,
    /// Bytes retransmitted; a SYN or FIN counts as one.
    pub retransmitted: ByteCount,
    /// Loss recoveries started without a time-out.
    pub recoveries: u64,
    /// Retransmission time-outs, except those of a SYN or a closed window.
    pub timeouts: u64,
    /// Reactions to losses or time-outs that were undone.
    pub undone: u64,
    /// Tail loss probes sent.
    pub tail_probes: u64,
    /// Window reductions because of ECN.
    pub ecn_reductions: u64,
    /// Bytes acknowledged cumulatively; a SYN or FIN counts as one.
    pub acked: ByteCount,
    /// Current congestion window.
    pub cwnd: ByteCount,
    /// Current slow-start threshold; the greatest number if it was never set.
    pub ssthresh: ByteCount,
    /// Bytes sent and not acknowledged.
    pub outstanding: ByteCount,
    /// The part of these neither selectively acknowledged nor declared lost.
    pub in_flight: ByteCount,
    /// The smoothed RTT (SRTT of RFC 6298); `None` before the first sample.
    pub smoothed_rtt: Option<Duration>,
    /// Minimum RTT; `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// The retransmission time-out, with its backoff.
    pub rto: Duration,
    /// The phase of loss repair.
    pub phase: RepairPhase,
    /// The controller's own values ([`crate::cc::Controller::metrics`]).
    pub controller: Vec<(&'static str, f64)>,
}

impl Default for ConnectionStats {
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
            phase: RepairPhase::Open,
            controller: Vec::new(),
        }
    }
}
