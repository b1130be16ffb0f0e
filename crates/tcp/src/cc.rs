//! Congestion control: one trait, a registry of names, a file per controller.

mod additive;
mod bbr;
mod bic;
mod cubic;
mod hybla;
mod hystart;
mod hystart_2011;
mod illinois;
mod option;
mod registry;
mod reno;
#[cfg(test)]
mod tests;
mod vegas;
mod westwood;
mod window;

use core::fmt;
use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

pub use crate::rate::RateSample;
pub use option::OptionError;
pub use registry::{ControllerSpec, NAMES, SpecError};
pub(crate) use window::{Window, Windowed};

/// Decides how much may be in flight, and how fast.
///
/// A pure function of the events that it is told of: no clock, no random
/// numbers but from its seed. Windows are bytes. The connection asks
/// [`Controller::cwnd`] and [`Controller::pacing`] after every event.
///
/// What repairs losses is not its business: the connection finds them, sends
/// again, and keeps the window down while it does (RFC 6675, 6937). Undoing
/// needs no help either: the connection keeps a copy from before the loss and
/// puts it back, then calls [`Controller::on_undo`].
pub trait Controller: fmt::Debug + Send {
    /// An acknowledgement of data that was not acknowledged before,
    /// cumulatively or selectively.
    fn on_ack(&mut self, ack: &Ack);

    /// Loss was found without a time-out, or congestion was notified: once per
    /// window of data.
    fn on_congestion(&mut self, event: &Congestion);

    /// A retransmission time-out.
    fn on_timeout(&mut self, event: &Timeout);

    /// The state before a loss or time-out has come back, for it was none.
    fn on_undo(&mut self, _now: Instant) {}

    /// Nothing was sent for longer than a retransmission time-out; sending
    /// resumes with at most `restart` bytes (RFC 5681 §4.1).
    fn on_idle(&mut self, now: Instant, restart: ByteCount);

    /// The loss recovery has ended; `in_flight` bytes are outstanding.
    fn on_recovered(&mut self, _now: Instant, _in_flight: ByteCount) {}

    /// The path is estimated to hold no more than this: the threshold of the
    /// slow start comes down to it. Controllers that probe for the rate
    /// themselves need no such word.
    fn limit_slow_start(&mut self, _ssthresh: ByteCount) {}

    /// How much may be in flight.
    fn cwnd(&self) -> ByteCount;

    /// The slow-start threshold: where proportional rate reduction leads to.
    fn ssthresh(&self) -> ByteCount;

    /// The rate to send at; `None` leaves it to the window.
    fn pacing(&self) -> Option<BitRate> {
        None
    }

    /// How duplicate acknowledgements are answered, unless the configuration
    /// says something else.
    fn recovery(&self) -> FastRecovery {
        FastRecovery::NewReno
    }

    /// Whether the window during recovery is this controller's own, so that no
    /// proportional rate reduction is put on top.
    fn rules_recovery(&self) -> bool {
        false
    }

    /// What there is to see, for probes and plots: names and values, always the
    /// same names in the same order.
    fn metrics(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// A copy.
    fn boxed_clone(&self) -> Box<dyn Controller>;
}

impl Clone for Box<dyn Controller> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}

/// What a controller begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The most payload that a segment carries, in bytes.
    pub mss: u64,
    /// The initial window in bytes.
    pub window: u64,
    /// The initial slow-start threshold in bytes; "arbitrarily high"
    /// (RFC 5681 §3.1) is `u64::MAX`.
    pub ssthresh: u64,
    /// For controllers that need random numbers.
    pub seed: u64,
}

/// What repairs losses at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery: windows must not grow.
    Recovery,
    /// After a time-out, until everything sent before it is acknowledged.
    Loss,
}

/// An acknowledgement of new data.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// When it arrived.
    pub now: Instant,
    /// Bytes newly acknowledged cumulatively.
    pub acked: u64,
    /// Bytes newly delivered, cumulatively or selectively.
    pub delivered: u64,
    /// Bytes delivered since the connection began.
    pub total_delivered: u64,
    /// What may count for the growth of the window (RFC 3465).
    pub credit: Credit,
    /// The RTT that it measured.
    pub rtt: Option<Duration>,
    /// The smoothed RTT, with this sample.
    pub smoothed_rtt: Duration,
    /// The smallest RTT so far.
    pub min_rtt: Duration,
    /// The delivery rate that it measured.
    pub rate: Option<RateSample>,
    /// Bytes in flight before it.
    pub prior_in_flight: u64,
    /// Bytes in flight after it.
    pub in_flight: u64,
    /// The congestion window, not the application or the receiver, held back
    /// what was sent when this data was.
    pub is_cwnd_limited: bool,
    /// What repairs losses after it.
    pub phase: Phase,
    /// The position up to which all is acknowledged now.
    pub una: u64,
    /// The position of the next byte never sent: acknowledgements from here on
    /// belong to the next round trip.
    pub nxt: u64,
}

/// The bytes by which an acknowledgement may let the window grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit {
    /// In slow start.
    pub slow_start: u64,
    /// In congestion avoidance.
    pub avoidance: u64,
}

/// Why the window must come down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Segments were lost.
    Loss,
    /// A queue marked a packet (RFC 3168).
    Ecn,
}

/// Congestion without a time-out.
#[derive(Debug, Clone, Copy)]
pub struct Congestion {
    /// When it was noticed.
    pub now: Instant,
    /// How.
    pub signal: Signal,
    /// Bytes sent and not cumulatively acknowledged, at most the window: the
    /// `FlightSize` of RFC 5681.
    pub flight_size: u64,
    /// Bytes still in flight.
    pub in_flight: u64,
}

/// A retransmission time-out.
#[derive(Debug, Clone, Copy)]
pub struct Timeout {
    /// When.
    pub now: Instant,
    /// As in [`Congestion`].
    pub flight_size: u64,
    /// Whether nothing has been acknowledged since the last time-out: the
    /// threshold stays as it is then (RFC 5681 §3.1).
    pub is_repeated: bool,
}

/// What three duplicate acknowledgements lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastRecovery {
    /// Everything not acknowledged is sent again in slow start (Tahoe; Fall and
    /// Floyd, "Simulation-based Comparisons of Tahoe, Reno, and SACK TCP",
    /// 1996).
    GoBackN,
    /// One segment is sent again; the first new acknowledgement ends the
    /// recovery (RFC 2581 §3.2).
    Reno,
    /// The recovery goes on until all that was outstanding is acknowledged; a
    /// partial acknowledgement sends the next segment again (RFC 6582).
    NewReno,
}
