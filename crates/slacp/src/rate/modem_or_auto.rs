//! The modem's rate while it reports one, and a measured one while it does not.
//!
//! ```text
//!                     the modem reports a rate
//!  ┌──────────────┐                               ┌────────────┐
//!  │ measured     ├──────────────────────────────►│ reported   │
//!  │ (like `auto`)│                               │ (configured│
//!  └──────▲───────┘                               │  and paced)│
//!         │                                       └─────┬──────┘
//!         └─────────────────────────────────────────────┘
//!            the report expires, or the owner withdraws it
//! ```
//!
//! One law is in use at any time; the other one rests. A report is used at once. When it ends, the
//! rate is a *memory* of the path that is seconds old: it is used in part until a train has
//! confirmed it (Careful Resume, RFC 9959), so that a link that has fallen meanwhile is not
//! flooded. Packets that were sent at the reported rate and are still under way measure nothing,
//! because other sessions of the hub took turns with them.
//!
//! A hub reports the whole link to each session. One that always had something to send therefore
//! remembers the rate that it had itself, not that of all sessions together.
//!
//! Does not model a modem whose last report was wrong beyond what the circuit breaker has found: the
//! first train shows it.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use super::auto::Auto;
use super::configured::ConfiguredRate;
use super::constants::SLOWEST;
use super::{Law, PathMemory};

/// Time over which the use of a session is averaged: several times the packets of the slowest link.
const USE: Duration = Duration::from_secs(1);

/// Which law a session has begun to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    /// The modem's report. What the session has measured before is worth remembering.
    Reported { measured: Option<PathMemory> },
    /// Its own measurement. `link` is the rate that the modem reported for the whole link.
    Measured { link: Option<PathMemory> },
}

/// A rate that is reported or measured, by turns.
#[derive(Debug)]
pub(crate) struct ModemOrAuto {
    auto: Auto,
    /// Made by the first report. It rests while the rate is measured, so that a modem that repeats a
    /// wrong rate after a pause does not get past the circuit breaker.
    configured: Option<ConfiguredRate>,
    /// When the report expires; `None` while the rate is measured.
    until: Option<Instant>,
    used: Used,
    switched: Option<Switch>,
}

impl ModemOrAuto {
    /// Nothing is reported yet. `ceiling` and `probe` are as in [`super::Rate::Auto`].
    pub(crate) fn new(ceiling: Option<BitRate>, probe: bool, law: Law) -> Self {
        let auto = Auto::new(ceiling, probe, law);
        Self { auto, configured: None, until: None, used: Used::default(), switched: None }
    }

    /// The law of a reported rate, while there is one.
    pub(crate) fn configured(&self) -> Option<&ConfiguredRate> {
        self.configured.as_ref().filter(|_| self.until.is_some())
    }

    pub(crate) fn configured_mut(&mut self) -> Option<&mut ConfiguredRate> {
        self.configured.as_mut().filter(|_| self.until.is_some())
    }

    /// The law of a measured rate, which rests while one is reported.
    pub(crate) fn auto(&self) -> &Auto {
        &self.auto
    }

    pub(crate) fn auto_mut(&mut self) -> &mut Auto {
        &mut self.auto
    }

    /// Follows a reported rate from now on, until it expires.
    pub(crate) fn report(&mut self, now: Instant, rate: BitRate, valid_for: Duration) {
        let measured = self.until.replace(now + valid_for).is_none();
        // Kept between reports: a modem that repeats a wrong rate must not get past the breaker.
        let configured = self.configured.get_or_insert_with(|| ConfiguredRate::modem(rate));
        configured.follow(now, rate);
        if measured {
            configured.resume(now, self.auto.queued());
            self.switched = Some(Switch::Reported { measured: self.auto.memory(now) });
            self.used = Used::new(now);
        }
    }

    /// Measures from now on, with packets from number `next`, if a report was followed so far. `rtt`
    /// is the present round-trip time.
    pub(crate) fn expire(&mut self, now: Instant, next: u64, rtt: Duration) {
        let Some(configured) = self.configured() else { return };
        let link = configured.rate();
        let own = self.used.rate(now).map_or(link, |used| used.min(link));
        self.auto.begin_again(next, memory(own, rtt), (own < link).then_some(link));
        self.until = None;
        self.switched = Some(Switch::Measured { link: memory(link, rtt) });
    }

    /// Records that a packet which the peer must acknowledge left, if a reported rate is in use.
    pub(crate) fn sent(&mut self, now: Instant, size: ByteCount) {
        if let Some(configured) = self.configured_mut() {
            configured.sent(now, size);
            self.used.sent(now, size);
            self.auto.sent_otherwise(size);
        }
    }

    /// Records that there is nothing to send for now, while a reported rate is in use.
    pub(crate) fn app_limited(&mut self) {
        self.used.backlogged = false;
    }

    /// The law that has come into use since the last call, if another one has.
    pub(crate) fn take_switch(&mut self) -> Option<Switch> {
        self.switched.take()
    }

    /// Time at which the report expires, or its law has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let law = self.configured().and_then(ConfiguredRate::poll_timeout);
        self.until.into_iter().chain(law).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, next: u64, rtt: Duration) {
        if let Some(configured) = self.configured_mut() {
            configured.handle_timeout(now);
        }
        if self.until.is_some_and(|until| until <= now) {
            self.expire(now, next, rtt);
        }
    }
}

/// A path of this rate, as of now; `None` if it carries nothing.
fn memory(capacity: BitRate, rtt: Duration) -> Option<PathMemory> {
    let carries = capacity.bits_per_second() >= SLOWEST as u64;
    carries.then_some(PathMemory { capacity, min_rtt: rtt, age: Duration::ZERO })
}

/// A session's use of a reported rate.
#[derive(Debug, Default)]
struct Used {
    /// The present period: its start, the bytes sent in it, and `true` if there was always
    /// something to send.
    since: Instant,
    bytes: u64,
    backlogged: bool,
    /// The mean rate of the last complete period, if there was always something to send in it.
    last: Option<BitRate>,
}

impl Used {
    fn new(now: Instant) -> Self {
        Self { since: now, ..Self::default() }
    }

    fn sent(&mut self, now: Instant, size: ByteCount) {
        let passed = now.saturating_since(self.since);
        if passed >= USE {
            let full = self.backlogged && passed < USE * 2;
            self.last = BitRate::average(ByteCount::new(self.bytes), passed).filter(|_| full);
            (self.since, self.bytes, self.backlogged) = (now, 0, true);
        }
        self.bytes += size.get();
    }

    /// The share of the link that the session has had; `None` if it had nothing to send meanwhile.
    fn rate(&self, now: Instant) -> Option<BitRate> {
        let recent = self.backlogged && now.saturating_since(self.since) < USE * 2;
        self.last.filter(|_| recent)
    }
}
