//! The sending rate of a session (`docs/slacp.md`, Rate).

mod aggregate;
mod arrivals;
mod auto;
mod breaker;
mod configured;
pub(crate) mod ecn;
mod law;
mod memory;
mod train;
mod trust;

use core::time::Duration;

use thiserror::Error;
use units::{BitRate, ByteCount, Instant};

pub use aggregate::AggregateId;
pub(crate) use aggregate::{Aggregate, Grant, SharedLink};
pub(crate) use auto::{Acknowledged, Auto, Newest};
pub(crate) use breaker::Change;
use configured::ConfiguredRate;
pub use ecn::EcnState;
pub use law::Law;
pub(crate) use memory::Memories;
pub use memory::{PathKey, PathMemory};

use crate::recovery::sent::Fate;

/// Where the rate of one direction comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rate {
    /// A known, constant link rate, in bits of IP packets per second. All sessions of an endpoint
    /// take turns on it. Losses do not change it, unless it is several times too high
    /// ([`RateState::Tripped`]).
    Fixed(BitRate),
    /// Reported by the modem ([`crate::Endpoint::set_rate`]) per session. Sessions share the link's
    /// time: a packet occupies the link for as long as its session's rate says.
    Modem {
        /// The rate while the modem reports none.
        initial: BitRate,
    },
    /// Measured and tracked per session. No configuration is needed.
    Auto {
        /// Upper limit, even if the path has more capacity.
        ceiling: Option<BitRate>,
        /// Whether a session measures its path with padding as soon as it is set up or moves: half
        /// a megabyte at most on most links, so that the first user finds the rate known. Without,
        /// data alone measures the path.
        probe: bool,
    },
}

/// How much a session knows of its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RateState {
    /// The rate is configured or reported by the modem.
    #[default]
    Configured,
    /// Nothing is known yet.
    Blind,
    /// A rate was observed and is being confirmed.
    Confirming,
    /// A remembered rate is being confirmed.
    Resuming,
    /// The rate is known and tracked.
    Cruising,
    /// The rate is lowered to empty a queue.
    Draining,
    /// The configured or reported rate has lost more than three quarters of the packets for half a
    /// minute. The rate is lowered to what was delivered; the higher one is tried now and then.
    Tripped,
}

impl Rate {
    /// The rate before anything is reported or measured.
    pub(crate) fn initial(&self) -> BitRate {
        match self {
            Self::Fixed(rate) | Self::Modem { initial: rate } => *rate,
            Self::Auto { .. } => BitRate::from_bits_per_second(0),
        }
    }
}

impl Rate {
    /// A measured rate without a ceiling.
    pub fn auto() -> Self {
        Self::Auto { ceiling: None, probe: true }
    }

    /// Whether a session may measure its path with padding.
    pub(crate) fn probes(&self) -> bool {
        matches!(self, Self::Auto { probe: true, .. })
    }

    /// Whether the rate is measured.
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self, Self::Auto { .. })
    }
}

impl From<BitRate> for Rate {
    fn from(rate: BitRate) -> Self {
        Self::Fixed(rate)
    }
}

/// Why a reported rate was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateError {
    /// The session does not exist or is over.
    #[error("no such session")]
    NoSession,
    /// The configuration sets the rate in another way.
    #[error("the rate is not set by a modem")]
    NotFromModem,
}

/// The rate control of a session.
#[derive(Debug)]
pub(crate) enum Control {
    Configured(Box<ConfiguredRate>),
    Auto(Box<Auto>),
}

impl Control {
    pub(crate) fn new(rate: &Rate, law: Law) -> Self {
        match rate {
            Rate::Fixed(rate) => Self::Configured(Box::new(ConfiguredRate::fixed(*rate))),
            Rate::Modem { initial } => Self::Configured(Box::new(ConfiguredRate::modem(*initial))),
            Rate::Auto { ceiling, probe } => Self::Auto(Box::new(Auto::new(*ceiling, *probe, law))),
        }
    }

    /// The current rate.
    pub(crate) fn rate(&self) -> BitRate {
        match self {
            Self::Configured(rate) => rate.rate(),
            Self::Auto(auto) => auto.rate(),
        }
    }

    /// The rate for the endpoint's shared pacer; `None` if the session paces itself.
    pub(crate) fn shared(&self) -> Option<BitRate> {
        match self {
            Self::Configured(rate) => Some(rate.told()),
            Self::Auto(_) => None,
        }
    }

    pub(crate) fn state(&self) -> RateState {
        match self {
            Self::Configured(rate) if rate.is_tripped() => RateState::Tripped,
            Self::Configured(_) => RateState::Configured,
            Self::Auto(auto) => auto.state(),
        }
    }

    /// Applies a new configuration; `false` if it needs a new session.
    pub(crate) fn configure(&mut self, now: Instant, rate: &Rate) -> bool {
        match (self, rate) {
            (Self::Configured(own), Rate::Fixed(rate)) => own.configure(now, *rate, false),
            (Self::Configured(own), Rate::Modem { initial }) => own.configure(now, *initial, true),
            _ => false,
        }
    }

    /// When the session itself allows payload to leave; `None` until something is received or
    /// reported.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        match self {
            Self::Configured(rate) => rate.ready_at(),
            Self::Auto(auto) => auto.ready_at(),
        }
    }

    /// The measuring rate control, if that is the one in use.
    pub(crate) fn auto(&self) -> Option<&Auto> {
        match self {
            Self::Configured(_) => None,
            Self::Auto(auto) => Some(auto),
        }
    }

    pub(crate) fn auto_mut(&mut self) -> Option<&mut Auto> {
        match self {
            Self::Configured(_) => None,
            Self::Auto(auto) => Some(auto),
        }
    }

    /// Applies a rate reported by the modem.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        match self {
            Self::Configured(own) => own.report(now, rate, valid_for),
            Self::Auto(_) => Err(RateError::NotFromModem),
        }
    }

    /// A packet that the peer must acknowledge is sent.
    pub(crate) fn sent(&mut self, now: Instant, size: ByteCount) {
        if let Self::Configured(own) = self {
            own.sent(now, size);
        }
    }

    /// The fate of the next packet, in the order of sending, is known. Returns whether that changes
    /// the rate.
    pub(crate) fn saw(&mut self, now: Instant, rtt: Duration, fate: &Fate) -> bool {
        match self {
            Self::Configured(own) => own.saw(now, rtt, fate),
            Self::Auto(_) => false,
        }
    }

    /// What the circuit breaker has done since the last call.
    pub(crate) fn take_change(&mut self) -> Option<Change> {
        match self {
            Self::Configured(own) => own.take_change(),
            Self::Auto(_) => None,
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Configured(rate) => rate.poll_timeout(),
            Self::Auto(_) => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Self::Configured(rate) = self {
            rate.handle_timeout(now);
        }
    }
}
