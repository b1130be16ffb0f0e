//! Congestion control: one trait, a registry of names, a file per controller.

mod additive;
mod bbr;
mod bic;
mod cubic;
mod delay;
mod hybla;
mod hystart;
mod hystart_2011;
mod math;
mod option;
mod registry;
mod reno;
#[cfg(test)]
mod tests;
mod westwood;
mod window;

use core::fmt;
use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

pub use crate::estimate::rate::RateSample;
pub use option::OptionError;
pub use registry::{ControllerSpec, NAMES, SpecError};
pub(crate) use window::{CongestionWindow, WindowController};

/// Decides how much may be in flight, and how fast to send.
///
/// A pure function of the events passed to it: no clock, and no random numbers except from its
/// seed. Windows are in bytes. The connection asks for [`Controller::cwnd`] and
/// [`Controller::pacing`] after every event.
///
/// Loss repair is not its concern: the connection detects losses, retransmits, and limits the
/// window meanwhile (RFC 6675, 6937). Undoing needs no support either: the connection restores a
/// copy from before the loss, then calls [`Controller::on_undo`].
pub trait Controller: fmt::Debug + Send {
    /// New data was acknowledged, cumulatively or selectively.
    fn on_ack(&mut self, ack: &AckEvent);

    /// Loss was detected without a time-out, or congestion was signalled: once per window of data.
    fn on_congestion(&mut self, event: &CongestionEvent);

    /// A retransmission time-out.
    fn on_timeout(&mut self, event: &TimeoutEvent);

    /// The state from before a loss or time-out was restored, because it was spurious.
    fn on_undo(&mut self, _now: Instant) {}

    /// Nothing was sent for longer than a retransmission time-out; sending resumes with at most
    /// `restart` bytes (RFC 5681 §4.1).
    fn on_idle(&mut self, now: Instant, restart: ByteCount);

    /// Loss recovery has ended; `in_flight` bytes are outstanding.
    fn on_recovered(&mut self, _now: Instant, _in_flight: ByteCount) {}

    /// The path is estimated to hold no more than this, so the slow-start threshold is lowered to
    /// it. Controllers that probe for the rate themselves ignore it.
    fn limit_slow_start(&mut self, _ssthresh: ByteCount) {}

    /// Maximum number of bytes in flight.
    fn cwnd(&self) -> ByteCount;

    /// The slow-start threshold, which is also the target of proportional rate reduction.
    fn ssthresh(&self) -> ByteCount;

    /// The sending rate; `None` leaves it to the window.
    fn pacing(&self) -> Option<BitRate> {
        None
    }

    /// The reaction to duplicate acknowledgements, unless the configuration overrides it.
    fn recovery(&self) -> FastRecovery {
        FastRecovery::NewReno
    }

    /// Returns true if the controller sets the window during recovery itself, so that proportional
    /// rate reduction is not applied.
    fn rules_recovery(&self) -> bool {
        false
    }

    /// Values for probes and plots: always the same names in the same order.
    fn metrics(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Clones the controller, for the copy that an undo restores.
    fn boxed_clone(&self) -> Box<dyn Controller>;
}

impl Clone for Box<dyn Controller> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// The initial parameters of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerParameters {
    /// Maximum payload of a segment, in bytes.
    pub mss: u64,
    /// The initial window in bytes.
    pub window: u64,
    /// The initial slow-start threshold in bytes; `u64::MAX` for "arbitrarily high" (RFC 5681
    /// §3.1).
    pub ssthresh: u64,
    /// Seed for controllers that use random numbers.
    pub seed: u64,
}

/// The current phase of loss repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairPhase {
    /// No loss is known that is not repaired.
    Open,
    /// Fast recovery: windows must not grow.
    Recovery,
    /// After a time-out, until everything sent before it is acknowledged.
    Loss,
}

/// An acknowledgement of new data.
#[derive(Debug, Clone, Copy)]
pub struct AckEvent {
    /// Time at which it arrived.
    pub now: Instant,
    /// Bytes newly acknowledged cumulatively.
    pub acked: u64,
    /// Bytes newly delivered, cumulatively or selectively.
    pub delivered: u64,
    /// Bytes delivered since the connection began.
    pub total_delivered: u64,
    /// Bytes that may count for window growth (appropriate byte counting, RFC 3465).
    pub credit: Credit,
    /// RTT that it measured; `None` if it is ambiguous (Karn's rule).
    pub rtt: Option<Duration>,
    /// Smoothed RTT including this sample.
    pub smoothed_rtt: Duration,
    /// Minimum RTT of the connection so far.
    pub min_rtt: Duration,
    /// Delivery rate that it measured; `None` without a valid sample.
    pub rate: Option<RateSample>,
    /// Bytes in flight just before it was processed.
    pub prior_in_flight: u64,
    /// Bytes in flight once it was processed.
    pub in_flight: u64,
    /// True if the congestion window, rather than the application or the receiver, was the limit
    /// when this data was sent. An unused window does not grow.
    pub is_cwnd_limited: bool,
    /// The phase of loss repair after it.
    pub phase: RepairPhase,
    /// The position up to which everything is acknowledged.
    pub una: u64,
    /// The position of the next byte never sent. Acknowledgements from here on belong to the next
    /// round trip.
    pub nxt: u64,
}

/// The bytes of an acknowledgement that count for window growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit {
    /// Bytes that count in slow start, within the limit L of RFC 3465.
    pub slow_start: u64,
    /// Bytes that count in congestion avoidance.
    pub avoidance: u64,
}

/// The reason to reduce the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionSignal {
    /// Segments were declared lost.
    Loss,
    /// A queue marked a packet (RFC 3168).
    Ecn,
}

/// Congestion detected without a time-out.
#[derive(Debug, Clone, Copy)]
pub struct CongestionEvent {
    /// Time at which the congestion was detected.
    pub now: Instant,
    /// The sign of congestion: a loss or a mark.
    pub signal: CongestionSignal,
    /// Bytes sent and not cumulatively acknowledged, but at most the window: the `FlightSize` of
    /// RFC 5681.
    pub flight_size: u64,
    /// Bytes still in flight, without those declared lost.
    pub in_flight: u64,
}

/// A retransmission time-out.
#[derive(Debug, Clone, Copy)]
pub struct TimeoutEvent {
    /// Time at which the timer expired.
    pub now: Instant,
    /// The `FlightSize` of RFC 5681, as in [`CongestionEvent::flight_size`].
    pub flight_size: u64,
    /// True if nothing was acknowledged since the last time-out. The threshold then stays (RFC 5681
    /// §3.1).
    pub is_repeated: bool,
}

/// The reaction to three duplicate acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastRecovery {
    /// Resend everything unacknowledged in slow start (Tahoe; Fall and Floyd, "Simulation-based
    /// Comparisons of Tahoe, Reno, and SACK TCP", 1996).
    GoBackN,
    /// Resend one segment; the first new acknowledgement ends recovery (RFC 2581 §3.2).
    Reno,
    /// Recovery lasts until everything that was outstanding is acknowledged; each partial
    /// acknowledgement resends the next segment (RFC 6582).
    NewReno,
}
