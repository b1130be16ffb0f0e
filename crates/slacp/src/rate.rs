//! The sending rate of a session (`docs/slacp.md`, Rate).

mod aggregate;
mod allowance;
mod arrivals;
mod auto;
mod breaker;
mod capacity_watch;
mod configured;
mod constants;
pub(crate) mod ecn;
mod law;
mod memory;
mod modem_or_auto;
mod train;
mod trust;

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

pub use aggregate::AggregateId;
pub(crate) use aggregate::{Aggregate, Grant, SharedLink};
pub(crate) use allowance::{Allowance, Ledger, Spent};
pub(crate) use auto::{Acknowledged, Auto, Newest};
pub(crate) use breaker::Change;
pub(crate) use capacity_watch::CapacityWatch;
use configured::ConfiguredRate;
pub use law::Law;
pub(crate) use memory::Memories;
pub use memory::{PathKey, PathMemory};
use modem_or_auto::ModemOrAuto;
pub(crate) use modem_or_auto::Switch;

use crate::recovery::path::loss::PacketFate;
use crate::{Overload, RateError, RateState};

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
    /// Reported by the modem per session, as with [`Self::Modem`]; while no report is known, measured
    /// as with [`Self::Auto`]. When a report ends, the session remembers its rate as that of its
    /// path, and confirms it before it uses all of it.
    ModemOrAuto {
        /// Upper limit of a measured rate. The owner limits what it reports.
        ceiling: Option<BitRate>,
        /// A session measures with padding, at its beginning and when a report ends.
        probe: bool,
    },
    /// Measured and tracked per session. No configuration is needed.
    Auto {
        /// Upper limit, even if the path has more capacity.
        ceiling: Option<BitRate>,
        /// A session measures its path with padding as soon as it is set up or moves: half a
        /// megabyte at most on most links, so that the first user finds the rate known. If `false`,
        /// data alone measures the path.
        probe: bool,
    },
}

impl Rate {
    /// The rate before anything is reported or measured.
    pub(crate) fn initial(&self) -> BitRate {
        match self {
            Self::Fixed(rate) | Self::Modem { initial: rate } => *rate,
            Self::ModemOrAuto { .. } | Self::Auto { .. } => BitRate::from_bits_per_second(0),
        }
    }

    /// A measured rate without a ceiling.
    pub fn auto() -> Self {
        Self::Auto { ceiling: None, probe: true }
    }

    /// Returns `true` if a session may measure its path with padding.
    pub fn probes(&self) -> bool {
        matches!(self, Self::Auto { probe: true, .. } | Self::ModemOrAuto { probe: true, .. })
    }

    /// Returns `true` if the rate is measured, if only while none is reported.
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self, Self::Auto { .. } | Self::ModemOrAuto { .. })
    }
}

impl From<BitRate> for Rate {
    fn from(rate: BitRate) -> Self {
        Self::Fixed(rate)
    }
}

/// The rate control of a session.
#[derive(Debug)]
pub(crate) enum Control {
    Configured(Box<ConfiguredRate>),
    Auto(Box<Auto>),
    ModemOrAuto(Box<ModemOrAuto>),
}

impl Control {
    pub(crate) fn new(rate: &Rate, law: Law) -> Self {
        match rate {
            Rate::Fixed(rate) => Self::Configured(Box::new(ConfiguredRate::fixed(*rate))),
            Rate::Modem { initial } => Self::Configured(Box::new(ConfiguredRate::modem(*initial))),
            Rate::Auto { ceiling, probe } => Self::Auto(Box::new(Auto::new(*ceiling, *probe, law))),
            Rate::ModemOrAuto { ceiling, probe } => {
                Self::ModemOrAuto(Box::new(ModemOrAuto::new(*ceiling, *probe, law)))
            }
        }
    }

    /// Limits what leaves at once where the session paces itself, before anything is sent.
    pub(crate) fn limit_bursts(&mut self, burst: Option<ByteCount>) {
        match self {
            // The endpoint paces it with others.
            Self::Configured(_) => {}
            Self::Auto(auto) => auto.limit_bursts(burst),
            Self::ModemOrAuto(own) => own.auto_mut().limit_bursts(burst),
        }
    }

    /// The law of a configured or reported rate, if that is the one in use.
    fn configured(&self) -> Option<&ConfiguredRate> {
        match self {
            Self::Configured(own) => Some(own),
            Self::Auto(_) => None,
            Self::ModemOrAuto(own) => own.configured(),
        }
    }

    fn configured_mut(&mut self) -> Option<&mut ConfiguredRate> {
        match self {
            Self::Configured(own) => Some(own),
            Self::Auto(_) => None,
            Self::ModemOrAuto(own) => own.configured_mut(),
        }
    }

    /// The measuring rate control, if that is the one in use.
    pub(crate) fn auto(&self) -> Option<&Auto> {
        self.measuring().filter(|_| self.configured().is_none())
    }

    pub(crate) fn auto_mut(&mut self) -> Option<&mut Auto> {
        match self {
            Self::Configured(_) => None,
            Self::Auto(own) => Some(own),
            Self::ModemOrAuto(own) => own.configured().is_none().then(|| own.auto_mut()),
        }
    }

    /// The measuring rate control, even if it rests.
    pub(crate) fn measuring(&self) -> Option<&Auto> {
        match self {
            Self::Configured(_) => None,
            Self::Auto(own) => Some(own),
            Self::ModemOrAuto(own) => Some(own.auto()),
        }
    }

    /// The same, to be changed.
    pub(crate) fn measuring_mut(&mut self) -> Option<&mut Auto> {
        match self {
            Self::Configured(_) => None,
            Self::Auto(own) => Some(own),
            Self::ModemOrAuto(own) => Some(own.auto_mut()),
        }
    }

    /// The rate at which the session may send now; 0 before anything is known.
    pub(crate) fn rate(&self) -> BitRate {
        let configured = self.configured().map(ConfiguredRate::rate);
        configured.or_else(|| self.auto().map(Auto::rate)).unwrap_or_default()
    }

    /// The rate for the endpoint's shared pacer; `None` if the session paces itself.
    pub(crate) fn shared(&self) -> Option<BitRate> {
        self.configured().map(ConfiguredRate::told)
    }

    pub(crate) fn state(&self) -> RateState {
        match (self.configured(), self.auto()) {
            (Some(own), _) if own.is_tripped() => RateState::Tripped,
            (None, Some(auto)) => auto.state(),
            _ => RateState::Configured,
        }
    }

    /// Applies a new configuration; returns `false` if it needs a new session.
    pub(crate) fn configure(&mut self, now: Instant, rate: &Rate) -> bool {
        match (self, rate) {
            (Self::Configured(own), Rate::Fixed(rate)) => own.configure(now, *rate, false),
            (Self::Configured(own), Rate::Modem { initial }) => own.configure(now, *initial, true),
            (Self::Auto(own), Rate::Auto { ceiling, probe }) => own.has(*ceiling, *probe),
            (Self::ModemOrAuto(own), Rate::ModemOrAuto { ceiling, probe }) => {
                own.auto().has(*ceiling, *probe)
            }
            _ => false,
        }
    }

    /// Time from which the session itself allows payload to leave; `None` until something is
    /// received or reported.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        match self.configured() {
            Some(own) => own.ready_at(),
            None => self.auto()?.ready_at(),
        }
    }

    /// Applies a rate reported by the modem. A session that has measured until now follows it
    /// instead.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        match self {
            Self::Configured(own) => own.report(now, rate, valid_for),
            Self::Auto(_) => Err(RateError::NotFromModem),
            Self::ModemOrAuto(own) => {
                own.report(now, rate, valid_for);
                Ok(())
            }
        }
    }

    /// Ends the report at once, if there is one: the configured rate applies again, or the session
    /// measures with packets from number `next` on. `rtt` is the present round-trip time.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        next: u64,
        rtt: Duration,
    ) -> Result<(), RateError> {
        match self {
            Self::Configured(own) => own.expire(now),
            Self::Auto(_) => Err(RateError::NotFromModem),
            Self::ModemOrAuto(own) => {
                own.expire(now, next, rtt);
                Ok(())
            }
        }
    }

    /// The law that has come into use since the last call, if they take turns.
    pub(crate) fn take_switch(&mut self) -> Option<Switch> {
        match self {
            Self::Configured(_) | Self::Auto(_) => None,
            Self::ModemOrAuto(own) => own.take_switch(),
        }
    }

    /// Records that a packet is sent which the peer must acknowledge.
    pub(crate) fn sent(&mut self, now: Instant, size: ByteCount) {
        match self {
            Self::Configured(own) => own.sent(now, size),
            Self::Auto(_) => {}
            Self::ModemOrAuto(own) => own.sent(now, size),
        }
    }

    /// Returns `true` if [`Self::app_limited`] is to be called.
    pub(crate) fn follows_demand(&self) -> bool {
        !matches!(self, Self::Configured(_))
    }

    /// Records that there is nothing to send for now.
    pub(crate) fn app_limited(&mut self) {
        if let Some(auto) = self.auto_mut() {
            auto.app_limited();
        } else if let Self::ModemOrAuto(own) = self {
            own.app_limited();
        }
    }

    /// Processes the fate of the next packet, in the order of sending. Returns `true` if it changes
    /// the rate.
    pub(crate) fn saw(&mut self, now: Instant, rtt: Duration, fate: &PacketFate) -> bool {
        self.configured_mut().is_some_and(|own| own.saw(now, rtt, fate))
    }

    /// The verdict that the configured or reported rate exceeds the link.
    pub(crate) fn overload(&self) -> Option<&Overload> {
        self.configured()?.overload()
    }

    /// The circuit breaker's last change since the last call, if it is in use.
    pub(crate) fn take_change(&mut self) -> Option<Change> {
        self.configured_mut()?.take_change()
    }

    /// Time at which [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Configured(own) => own.poll_timeout(),
            Self::Auto(_) => None,
            Self::ModemOrAuto(own) => own.poll_timeout(),
        }
    }

    /// `next` and `rtt` are as for [`Self::expire`].
    pub(crate) fn handle_timeout(&mut self, now: Instant, next: u64, rtt: Duration) {
        match self {
            Self::Configured(own) => own.handle_timeout(now),
            Self::Auto(_) => {}
            Self::ModemOrAuto(own) => own.handle_timeout(now, next, rtt),
        }
    }
}
