//! A circuit breaker for rates that are configured (RFC 8084; RFC 8085 §3.1.10).
//!
//! A configured rate ignores losses, because satellite links lose packets for reasons other than
//! congestion. If it is several times too high, it floods the path for ever. The breaker ends that:
//! it *trips* if most of what is sent is lost for half a minute, and the session then sends no faster
//! than its packets arrived.
//!
//! ```text
//!          30 s of intervals with               the pause
//!          more than 75 % lost                  is over
//! ┌────────┐          ┌─────────┐              ┌────────┐
//! │ closed ├─────────►│ tripped ├─────────────►│ trying │ one interval at the configured rate
//! └───▲────┘          └────▲────┘              └───┬────┘
//!     │                    │ more lost, or unknown │
//!     │   at most 60 %     │                  ┌────▼────┐
//!     └────────────────────┴──────────────────┤ waiting │ until the fate of that is known
//!                                             └─────────┘
//! ```
//!
//! - *Interval*: three round trips, at least 1 s, at most 18 s. RFC 8084 §4 wants several round
//!   trips, so that flows with congestion control on the same path have had time to yield.
//! - *75 %*: a session must survive, without tripping, a rate 1.5 times too high, on a link
//!   that rain has slowed down to a half, and that loses a quarter of the packets besides: 1.5⁻¹ ·
//!   ½ · ¾ = ¼ arrives. Each by itself loses half at most. A rate that is four times too high, or
//!   more, trips.
//! - *30 s*, and three intervals: longer than a modem takes to change its MODCOD, or a satellite to
//!   be handed over; short beside the time for which a wrong configuration lasts. A better interval
//!   in between starts the count anew. One that says nothing (an outage, little traffic) does not,
//!   but after five minutes without a bad one the earlier ones are forgotten.
//! - *Outages* are left out of all intervals ([`Interval`]).
//! - *Safe rate*: 90 % of the delivered rate, so that the queue drains. Not below 32 kbit/s, half
//!   of the slowest link this protocol is made for: the session must live, and a trial needs
//!   packets. If 30 s at that rate are as bad, it is lowered again.
//! - *Pause*: 60 s, twice as long after each trial that fails, up to 15 min, and after a trip within
//!   15 min of a successful trial. It is longer than the 30 s that led to it (RFC 8084 §4), and
//!   trials take at most 3 % of the time, later 0.2 %.
//! - *Trial*: one interval. Its first third fills the queue and is not judged. It passes with at most
//!   60 % lost: less than what trips, so that no borderline case goes back and forth, and more than
//!   a link at half its rate loses. If an outage hides the result, the same pause follows. A failed
//!   trial shows the rate that the path carries now, from which the new safe rate follows.
//!
//! A path that delivers nothing at all needs no breaker: the session counts as faded, and only
//! probes (`docs/slacp.md`, Fades).
//!
//! How it follows RFC 8084 §4, and where it deviates:
//!
//! - *Measurement*: followed. Both meters are the sender's own packets and their acknowledgements,
//!   which are authenticated.
//! - *Interval*: followed. It is longer than congestion control takes to react.
//! - *Threshold*: deviates in height. RFC 8084 has a few percent in its examples; here 75 % must be
//!   lost. A satellite link loses packets without congestion, and rain halves its rate: a breaker that
//!   trips in every fade would be turned off.
//! - *Persistence*: followed. Three intervals and 30 s.
//! - *Missing feedback*: deviates. It is to count as congestion; here an outage is left out of the
//!   intervals. The session stops by itself when nothing is acknowledged, as demanded, but goes on at
//!   the configured rate when the link is back, without a pause: fades are ordinary, and say nothing
//!   of congestion.
//! - *Reaction*: deviates. Traffic is to be disabled or reduced severely; here it is reduced to 90 % of
//!   what arrived. This is all traffic of a site, mostly alone on its link; what overloaded the link
//!   ends all the same.
//! - *Recovery*: followed, in its automatic form: not before twice the time that led to the trip, with
//!   growing pauses, so that it does not oscillate.
//! - *Report*: followed. Event, log and metrics tell the operator.
//!
//! A rate reported by a modem is treated likewise, because a modem may be wrong. But its word is
//! live: a rate that differs by more than a quarter closes the breaker. While the rate is measured
//! because no report holds, the breaker rests and keeps its opinion.
//!
//! The breaker believes the peer. One that acknowledges too little slows down its own downloads;
//! one that acknowledges lost packets, to hide an overload, soon hits a skipped number.
//!
//! Its memory is constant: sums, and no packets.
//!
//! Not modelled: who causes the congestion. A session that is a small part of an overload trips
//! too, as RFC 8084 wants, at what it got of the link.

mod interval;
mod overload;

use core::time::Duration;

use units::{BitRate, Instant};

use self::interval::{Interval, Measured};
use self::overload::Detector;
use crate::Overload;
use crate::recovery::path::loss::PacketFate;

/// Share of the bytes, in percent, beyond which an interval's losses are excessive.
const EXCESS: u64 = 75;
/// Share in percent up to which a trial passes.
const PASSES: u64 = 60;
/// Losses must be excessive for this time, and in this many intervals.
const PERSISTENT: Duration = Duration::from_secs(30);
const INTERVALS: u32 = 3;
/// Limits of an interval; in between it takes three round trips.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(18);
/// After this long without another, excessive intervals are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// Pause before the first trial, and the longest pause.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_MOST: Duration = Duration::from_secs(900);
/// Share of the delivered rate that is safe, in percent.
const SAFE: u64 = 90;
/// Lowest safe rate: the session must live, and a trial needs packets.
pub(super) const FLOOR: BitRate = BitRate::from_bits_per_second(32_000);
/// Packets in the judged part of a trial that make it one.
const TRIAL: u32 = 64;
/// A modem's report is news if it differs from the rate judged so far by more than one part in this
/// many. Smaller changes are noise, which must not save a wrong modem from the breaker.
const NEWS: u64 = 4;

/// A change of the breaker's state, for the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Too much was lost for too long. It sends at the safe rate from now on.
    Tripped,
    /// The safe rate has changed, or a trial has failed.
    Again,
    /// It tries the configured rate, or waits for the result.
    Trial,
    /// The configured rate holds again.
    Closed,
}

/// The circuit breaker of a session. Its inputs are the limit, the packets sent, and their fates in
/// the order of sending; its output is [`Self::rate`].
#[derive(Debug)]
pub(crate) struct Breaker {
    /// The configured or reported rate.
    limit: BitRate,
    /// The limit that the losses so far are held against.
    judged: BitRate,
    state: State,
    interval: Interval,
    /// Duration of an interval: three round trips, within [`SHORTEST`] and [`LONGEST`].
    length: Duration,
    excess: Excess,
    /// The pause after the next trip.
    pause: Duration,
    /// Time at which the last trial passed; `None` if none has.
    passed: Option<Instant>,
    /// Detects that the limit exceeds the link, though not so far that the breaker trips.
    overload: Detector,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Tripped {
        safe: BitRate,
        until: Instant,
    },
    /// Sending at the limit, from the first packet `until` the end of the trial.
    Trying {
        safe: BitRate,
        until: Option<Instant>,
        packets: u32,
    },
    /// The trial ended at that time.
    Waiting {
        safe: BitRate,
        end: Instant,
    },
}

/// Consecutive intervals with excessive losses.
#[derive(Debug, Default)]
struct Excess {
    intervals: u32,
    time: Duration,
    sum: Measured,
    last: Instant,
}

impl Breaker {
    pub(crate) fn new(limit: BitRate) -> Self {
        Self {
            limit,
            judged: limit,
            state: State::Closed,
            interval: Interval::new(Instant::ZERO),
            length: SHORTEST,
            excess: Excess::default(),
            pause: PAUSE,
            passed: None,
            overload: Detector::default(),
        }
    }

    /// The verdict that the limit exceeds the link; `None` if it does not, or if it is not known, or
    /// once the breaker has tripped.
    pub(crate) fn overload(&self) -> Option<&Overload> {
        self.overload.overload().filter(|_| !self.is_tripped())
    }

    /// The rate at which the session may send: the limit, or less.
    pub(crate) fn rate(&self) -> BitRate {
        match self.state {
            State::Closed | State::Trying { .. } => self.limit,
            State::Tripped { safe, .. } | State::Waiting { safe, .. } => safe.min(self.limit),
        }
    }

    /// Returns `true` if the limit does not hold, or only on trial.
    pub(crate) fn is_tripped(&self) -> bool {
        self.state != State::Closed
    }

    /// Follows a modem's report, which closes the breaker if it is news.
    pub(crate) fn follow(&mut self, now: Instant, limit: BitRate) -> Option<Change> {
        let old = self.judged.bits_per_second();
        let new = limit.bits_per_second();
        // Compared with the limit that was judged, not with the last one: many small steps are
        // news, too.
        if old.abs_diff(new) > old / NEWS {
            return self.reset(now, limit);
        }
        self.limit = limit;
        None
    }

    /// Judges only packets that are sent from now on, because the rate was another one meanwhile.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.interval = Interval::new(now);
    }

    /// Sets the limit, closes the breaker and forgets everything.
    pub(crate) fn reset(&mut self, now: Instant, limit: BitRate) -> Option<Change> {
        let was_tripped = self.is_tripped();
        let mut overload = core::mem::take(&mut self.overload);
        overload.reset();
        *self = Self {
            interval: Interval::new(now),
            length: self.length,
            overload,
            ..Self::new(limit)
        };
        was_tripped.then_some(Change::Closed)
    }

    /// Records that a packet is sent which the peer must acknowledge.
    pub(crate) fn sent(&mut self, now: Instant) {
        if let State::Trying { until, packets, .. } = &mut self.state {
            if until.is_none() {
                *until = Some(now + self.length);
                // The first third fills the queue.
                self.interval = Interval::new(now + self.length / 3);
            }
            if now >= self.interval.begin() {
                *packets = packets.saturating_add(1);
            }
        }
    }

    /// Processes the fate of the next packet, in the order of sending. `rtt`: the smoothed
    /// round-trip time.
    pub(crate) fn saw(&mut self, now: Instant, rtt: Duration, fate: &PacketFate) -> Option<Change> {
        self.overload.saw(rtt);
        match self.state {
            State::Closed | State::Tripped { .. } => {
                let end = self.interval.begin() + self.length;
                let change =
                    if fate.time >= end { self.end_interval(now, rtt, fate.time) } else { None };
                self.length = (rtt * 3).clamp(SHORTEST, LONGEST);
                self.interval.saw(fate);
                change
            }
            State::Waiting { safe, end } if fate.time >= end => {
                let interval = core::mem::replace(&mut self.interval, Interval::new(now));
                Some(self.end_trial(now, safe, &interval.end(end)))
            }
            State::Trying { .. } | State::Waiting { .. } => {
                self.interval.saw(fate);
                None
            }
        }
    }

    /// Time at which [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Tripped { until, .. } => Some(until),
            State::Trying { until, .. } => until,
            State::Closed | State::Waiting { .. } => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Change> {
        if self.poll_timeout().is_none_or(|time| time > now) {
            return None;
        }
        match self.state {
            // The trial begins with the first packet.
            State::Tripped { safe, .. } => {
                self.state = State::Trying { safe, until: None, packets: 0 };
                Some(Change::Trial)
            }
            // A few packets prove nothing, and harm no other traffic.
            State::Trying { safe, packets, .. } if packets < TRIAL => {
                self.state = State::Trying { safe, until: None, packets: 0 };
                None
            }
            State::Trying { safe, .. } => {
                self.state = State::Waiting { safe, end: now };
                Some(Change::Trial)
            }
            State::Closed | State::Waiting { .. } => None,
        }
    }

    /// Judges the interval that ends at a sending time.
    fn end_interval(&mut self, now: Instant, rtt: Duration, at: Instant) -> Option<Change> {
        let interval = core::mem::replace(&mut self.interval, Interval::new(at));
        let begin = interval.begin();
        let measured = interval.end(at);
        if !measured.is_enough() {
            return None;
        }
        self.overload.judge(begin, at, self.rate(), rtt, &measured);
        if !measured.lost_more_than(EXCESS) {
            self.excess = Excess::default();
            return None;
        }
        self.excess.add(at, self.length, &measured);
        if !self.excess.is_persistent() {
            return None;
        }
        let excess = core::mem::take(&mut self.excess);
        self.interval = Interval::new(now);
        Some(self.trip(now, safe_rate(&excess.sum)))
    }

    fn trip(&mut self, now: Instant, safe: BitRate) -> Change {
        // Losses at the safe rate lower it further, but the next trial comes as planned.
        if let State::Tripped { safe: old, until } = self.state {
            self.state = State::Tripped { safe: safe.min(old), until };
            return Change::Again;
        }
        // Growing pauses keep it from oscillating between trips and trials that pass (RFC 8084 §4).
        let soon = self.passed.is_some_and(|passed| now.saturating_since(passed) < PAUSE_MOST);
        self.pause = if soon { (self.pause * 2).min(PAUSE_MOST) } else { PAUSE };
        self.state = State::Tripped { safe, until: now + self.pause };
        Change::Tripped
    }

    fn end_trial(&mut self, now: Instant, safe: BitRate, measured: &Measured) -> Change {
        self.excess = Excess::default();
        // An outage hides the result: the same pause follows.
        if !measured.is_enough() {
            self.state = State::Tripped { safe, until: now + self.pause };
            return Change::Again;
        }
        if measured.lost_more_than(PASSES) {
            self.pause = (self.pause * 2).min(PAUSE_MOST);
            let safe = safe_rate(measured);
            self.state = State::Tripped { safe, until: now + self.pause };
            return Change::Again;
        }
        self.state = State::Closed;
        self.passed = Some(now);
        Change::Closed
    }
}

impl Excess {
    fn add(&mut self, at: Instant, length: Duration, measured: &Measured) {
        if at.saturating_since(self.last) > FORGOTTEN {
            *self = Self::default();
        }
        self.intervals += 1;
        self.time += length;
        self.sum.add(measured);
        self.last = at;
    }

    fn is_persistent(&self) -> bool {
        self.intervals >= INTERVALS && self.time >= PERSISTENT
    }
}

/// The rate that is safe on a path with these deliveries: a tenth less, so that the queue drains.
fn safe_rate(measured: &Measured) -> BitRate {
    let delivered = measured.delivered().unwrap_or_default().bits_per_second();
    BitRate::from_bits_per_second(delivered / 100 * SAFE).max(FLOOR)
}

#[cfg(test)]
mod tests;
