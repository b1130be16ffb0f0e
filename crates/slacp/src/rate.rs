//! How fast a session sends (`docs/slacp.md`, Rate).

mod arrivals;
mod auto;
mod memory;
mod told;
mod train;

use core::time::Duration;

use thiserror::Error;
use units::{BitRate, Instant};

pub(crate) use auto::{Acknowledged, Auto};
pub(crate) use memory::Memories;
pub use memory::{PathKey, PathMemory};
use told::Told;

/// Where the rate of one direction comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rate {
    /// Known and constant: that of the link, in bits of IP packets per second.
    /// All sessions of an endpoint share it in turn.
    Fixed(BitRate),
    /// Told by the modem ([`crate::Endpoint::set_rate`]), per session. Sessions
    /// share the link's time: a packet takes as long as its session's rate
    /// says.
    Modem {
        /// What holds while nothing is told.
        initial: BitRate,
    },
    /// Found out, per session, and followed: nobody needs to know it.
    Auto {
        /// No more than this, even if the path has more.
        ceiling: Option<BitRate>,
    },
}

/// What a session knows of its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RateState {
    /// It is told.
    #[default]
    Told,
    /// Nothing is known yet.
    Blind,
    /// A rate has been seen and is being confirmed.
    Confirming,
    /// A remembered rate is being confirmed.
    Resuming,
    /// It is known and followed.
    Cruising,
    /// A queue is being emptied.
    Draining,
}

impl Rate {
    /// What holds before anything is told or measured.
    pub(crate) fn initial(&self) -> BitRate {
        match self {
            Self::Fixed(rate) | Self::Modem { initial: rate } => *rate,
            Self::Auto { .. } => BitRate::from_bits_per_second(0),
        }
    }
}

impl Rate {
    /// A rate to be found out, whatever it is.
    pub fn auto() -> Self {
        Self::Auto { ceiling: None }
    }

    /// Whether the rate is found out by measuring.
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self, Self::Auto { .. })
    }
}

impl From<BitRate> for Rate {
    fn from(rate: BitRate) -> Self {
        Self::Fixed(rate)
    }
}

/// Why a told rate is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateError {
    /// There is no such session, or it is over.
    #[error("no such session")]
    NoSession,
    /// The configuration sets the rate otherwise.
    #[error("the rate is not one that the modem tells")]
    NotTold,
}

/// The rate of a session, by whatever sets it.
#[derive(Debug)]
pub(crate) enum Control {
    Told(Told),
    Auto(Box<Auto>),
}

impl Control {
    pub(crate) fn new(rate: &Rate) -> Self {
        match rate {
            Rate::Fixed(rate) => Self::Told(Told::fixed(*rate)),
            Rate::Modem { initial } => Self::Told(Told::modem(*initial)),
            Rate::Auto { ceiling } => Self::Auto(Box::new(Auto::new(*ceiling))),
        }
    }

    /// The present rate.
    pub(crate) fn rate(&self) -> BitRate {
        match self {
            Self::Told(told) => told.rate(),
            Self::Auto(auto) => auto.rate(),
        }
    }

    /// The rate that the endpoint's pacer is to keep; `None` if the session
    /// paces itself.
    pub(crate) fn shared(&self) -> Option<BitRate> {
        match self {
            Self::Told(told) => Some(told.rate()),
            Self::Auto(_) => None,
        }
    }

    /// Takes what the configuration says now; `false` if that needs another
    /// session.
    pub(crate) fn configure(&mut self, rate: &Rate) -> bool {
        match (self, rate) {
            (Self::Told(told), Rate::Fixed(rate)) => told.configure(*rate, false),
            (Self::Told(told), Rate::Modem { initial }) => told.configure(*initial, true),
            _ => false,
        }
    }

    /// When payload may leave, as far as the session alone is concerned; `None`
    /// for not until something is heard or told.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        match self {
            Self::Told(told) => (told.rate().bits_per_second() > 0).then_some(Instant::ZERO),
            Self::Auto(auto) => auto.ready_at(),
        }
    }

    /// What is measured, if anything is.
    pub(crate) fn auto(&self) -> Option<&Auto> {
        match self {
            Self::Told(_) => None,
            Self::Auto(auto) => Some(auto),
        }
    }

    pub(crate) fn auto_mut(&mut self) -> Option<&mut Auto> {
        match self {
            Self::Told(_) => None,
            Self::Auto(auto) => Some(auto),
        }
    }

    /// Takes a rate told by the modem.
    pub(crate) fn tell(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        match self {
            Self::Told(told) => told.tell(now, rate, valid_for),
            Self::Auto(_) => Err(RateError::NotTold),
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Told(told) => told.poll_timeout(),
            Self::Auto(_) => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Self::Told(told) = self {
            told.handle_timeout(now);
        }
    }
}
