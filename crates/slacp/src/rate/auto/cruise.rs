//! The steady state: uses all of the path's capacity with a small queue (`docs/rate.md`).
//!
//! The queue that packets sent now will meet is predicted from the queue that the last ones met and
//! the data sent since (a Smith predictor, so that the round trip does not make the loop
//! oscillate). The rate is the capacity, corrected so that this queue becomes the target. On a link
//! that others use, too, the target is the queue which has stood for some time: it is the price
//! from which each session reads its fair share, and moves there.

mod competition;
mod cubic;
mod dip;
mod forecast;
mod learn;
mod loss;
mod overflow;
mod policing;
mod price;
mod probe;
mod surplus;
mod trains;
mod unforeseen;

use core::time::Duration;

use units::Instant;

use super::PACKET;
use crate::rate::RateState;
use crate::rate::arrivals::{LONGEST, Window};
use crate::rate::law::Law;
use crate::rate::train::Bucket;
use competition::{Competition, Sight};
use cubic::Times;
use dip::Dip;
use forecast::{Forecast, Outcome, Tolerance};
use loss::{OwnLoss, deviation};
use overflow::{Lost, OverflowTest};
use policing::Policing;
use price::{Price, Seen};
pub(super) use probe::Passed;
use probe::Probe;
use surplus::Surplus;
use unforeseen::{Unforeseen, Whose};

/// Delay variation hides a queue of up to this multiple of its mean deviation.
const NOISE: f64 = 4.0;
/// Maximum target queue of a session alone, in seconds, unless it is a few packets: jitter of 30 ms
/// is held with it.
const TARGET_MOST: f64 = 0.05;
/// Bounds of the correction of the rate, relative to the capacity: alone, and beside others. Alone,
/// all but a trickle may be held back, because no other sender fills the link meanwhile; the
/// trickle of 3 % keeps feedback going, and delays the draining of a queue by as much.
const CORRECTION: (f64, f64) = (-0.97, 0.25);
const CORRECTION_SHARED: (f64, f64) = (-0.5, 0.25);
/// A session shares a link if the start has shown the link to be this many times its own capacity.
const SHARED: f64 = 1.5;
/// Maximum factor on the target while there is no queue.
const MOST_BOOST: f64 = 8.0;
/// A drop below this fraction of the known capacity is accepted at once.
const DROP: f64 = 0.75;
/// Maximum growth of the capacity in a round, relative to the best capacity (on a shared link to
/// [`Price::growth_reference`]) and times the boost, unless a train confirms more: others that yield for a
/// moment are no free capacity. Not derived: four rounds to a third more. Growth by as much as the law
/// asks for gives two sessions better shares, but crowds of eight a queue of 39 instead of 28 ms (bench
/// `rate -- crowds 4`).
const GROWTH: f64 = 0.03;
/// Decay of the best capacity per round.
const FADING: f64 = 0.998;
/// Unforeseen growth of the queue that others on the link may cause, relative to the round trip.
const OTHERS: f64 = 0.15;
/// A queue above this multiple of [`Cruise::dearest`] is too long for sessions that keep to the
/// law.
const DEAR: f64 = 1.5;
/// Least feedback time with which a session follows price and inflow: that of a GEO hop. With times
/// of their own, nearby sessions move the price several times before distant ones know of it, and
/// the queue oscillates (`docs/rate.md`, Stability).
const FARTHEST: Duration = Duration::from_millis(900);
/// A window sent at this fraction of the capacity used all of it.
const FULL: f64 = 0.95;
/// A queue below this fraction of the target counts as empty.
const EMPTY: f64 = 0.25;
/// The target after an overflow, relative to the longest delay in the queue, and its growth per
/// round: the depth is tried again after some twenty rounds.
const OVERFLOW: f64 = 0.33;
const RECOVERY: f64 = 1.05;
/// Factor on the capacity after a round with packets marked by the path (RFC 8511 §3: a queue that
/// marks is shorter than one that overflows).
const MARKED: f64 = 0.85;

/// A fall of the rate is accepted within this time (two acknowledgements) if delays rise by this
/// fraction of the time plus this multiple of the noise. A fall to a tenth shows as 450 ms.
const GLANCE: Duration = Duration::from_millis(50);
const STEEP: f64 = 0.25;
const STEEP_NOISE: f64 = 6.0;

/// A sender that exceeds the capacity by this factor overloads the link.
const OVERLOAD: f64 = 1.3;

/// Bounds of the observation window: longer than the pauses of links with time slots (superframes
/// last 26 to 100 ms), short against a GEO round trip. It also spans at least this many packets.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(300));
const LOOK_PACKETS: f64 = 8.0;
/// The inflow is learned in this many feedback times: behind a delay of one, a gain of 0.67, below
/// π/2.
const OBSERVED: f64 = 1.5;

/// Data in flight: sent after the newest packet with known arrival, and when that packet was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) bits: f64,
    /// Bits sent so far over the path, or by all members over a shared link.
    pub(super) total: f64,
    /// Minimum round-trip time so far, or the present one while there is none.
    pub(super) min_rtt: Duration,
    pub(super) sent: Instant,
}

/// Result of the start (or of a shared link's history), from which the steady state begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Initial {
    /// The capacity for this session, and the rate of the whole link, in bit/s.
    pub(super) capacity: f64,
    pub(super) link: f64,
    /// Upper limit set by the owner, in bit/s.
    pub(super) most: f64,
    /// The token bucket that polices the path, if one does.
    pub(super) bucket: Option<Bucket>,
    /// The train that has shown the capacity, if it came whole.
    pub(super) passed: Option<Passed>,
}

impl Initial {
    /// A link of which this session has all.
    pub(super) fn alone(capacity: f64, most: f64) -> Self {
        Self { capacity, link: capacity, most, bucket: None, passed: None }
    }

    /// A path behind a token bucket, whose rate is the capacity.
    pub(super) fn policed(bucket: Bucket, most: f64) -> Self {
        Self { bucket: Some(bucket), ..Self::alone(bucket.rate, most) }
    }
}

#[derive(Debug)]
pub(super) struct Cruise {
    law: Law,
    /// The path's capacity available to this session, in bit/s.
    capacity: f64,
    /// Upper limits: set by the owner, and within the round; in bit/s.
    most: f64,
    ceiling: f64,
    /// The best capacity so far, decaying.
    best: f64,
    rate: f64,
    state: RateState,
    /// Trains have shown that others use the link, too.
    shared: bool,
    /// The queue is too long for sessions that keep to the law, and the number of common feedback
    /// times for which it has been.
    crowded: bool,
    crowded_for: f64,
    price: Price,
    dip: Dip,
    loss: OwnLoss,
    overflow_test: OverflowTest,
    competition: Competition,
    probe: Probe,
    forecast: Forecast,
    unforeseen: Unforeseen,
    surplus: Surplus,
    sending: Sending,
    round: Round,
    /// When acknowledgements were last processed.
    seen_at: Instant,
    /// The queue has overflowed since the last look for competition.
    overflowing: bool,
    /// Time of the first of the latest windows in a row with long pauses between arrivals.
    torn_since: Option<Instant>,
    /// Factor on the target while the queue stays empty.
    boost: f64,
    /// Upper bound of the target, in seconds, because the queue is short.
    room: f64,
    /// Delay variation without a queue, in seconds.
    noise: f64,
    /// The fraction of the capacity that this session uses of a link that it shares with others of
    /// its hub.
    part: f64,
    /// The token bucket that polices the path, if one does.
    policing: Option<Policing>,
    /// Further marks until then belong to the congestion that was answered last.
    marked_until: Instant,
}

/// The rate set last, relative to the share, and the data sent until then.
#[derive(Debug)]
struct Sending {
    /// When the rate was last set, and the bits sent in all by then.
    at: Instant,
    total: f64,
    /// Fraction by which the rate exceeds the share; negative below it.
    surplus: f64,
    /// Bits sent in all until the rate was last well above the capacity.
    over: f64,
}

/// Observations of the current round.
#[derive(Debug)]
struct Round {
    end: Instant,
    /// The queue was empty throughout.
    empty: bool,
    /// At some time there was nothing to send.
    limited: bool,
}

impl Cruise {
    pub(super) fn new(now: Instant, initial: Initial, law: Law) -> Self {
        let capacity = initial.capacity.min(initial.most);
        let link = initial.link.max(capacity);
        let mut cruise = Self {
            law,
            capacity,
            most: initial.most,
            ceiling: capacity,
            best: capacity,
            rate: capacity,
            state: RateState::Cruising,
            shared: initial.link > SHARED * capacity && capacity < initial.most,
            crowded: false,
            crowded_for: 0.0,
            price: Price::new(law.queue(link, capacity)),
            dip: Dip::new(now),
            loss: OwnLoss::default(),
            overflow_test: OverflowTest::new(),
            competition: Competition::new(now),
            probe: Probe::new(link, initial.passed),
            forecast: Forecast::default(),
            unforeseen: Unforeseen::new(now),
            surplus: Surplus::default(),
            sending: Sending { at: now, total: 0.0, surplus: 0.0, over: 0.0 },
            // It ends with the first acknowledgement, and as `limited` raises no boost.
            round: Round { end: now, empty: true, limited: true },
            seen_at: now,
            overflowing: false,
            torn_since: None,
            boost: 1.0,
            room: f64::INFINITY,
            noise: 0.0,
            part: 1.0,
            policing: None,
            marked_until: now,
        };
        if let Some(bucket) = initial.bucket {
            cruise.probe.police(bucket);
            cruise.police(now);
        }
        cruise
    }

    /// Sets the capacity of a link that this session shares with others of its hub, and the part of
    /// it that it uses. All measurements stay relative to the capacity of the whole link.
    pub(super) fn set_capacity(&mut self, capacity: f64, part: f64) {
        self.capacity = capacity.max(super::SLOWEST);
        self.part = part;
    }

    /// Frees memory that is not in use.
    pub(super) fn free_spare(&mut self) {
        self.forecast.free_spare();
        self.surplus.free_spare();
    }

    /// This session's part of the capacity, in bit/s.
    pub(super) fn share(&self) -> f64 {
        self.capacity * self.part
    }

    pub(super) fn capacity(&self) -> f64 {
        self.capacity
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate * self.part
    }

    pub(super) fn state(&self) -> RateState {
        self.state
    }

    /// The rate of the whole link, in bit/s.
    pub(super) fn link(&self) -> f64 {
        if self.shared { self.probe.whole() } else { self.capacity }
    }

    /// Maximum in flight, in bits, whatever has been acknowledged.
    pub(super) fn allowed_in_flight(&self, rtt: Duration) -> f64 {
        self.share() * (rtt.as_secs_f64() * 1.5 + 0.3) + 16.0 * PACKET
    }

    pub(super) fn app_limited(&mut self) {
        self.round.limited = true;
    }

    /// Length of the observation window.
    pub(super) fn look(&self, rtt: Duration) -> Duration {
        let packets = Duration::from_secs_f64(LOOK_PACKETS * PACKET / self.share());
        look(rtt).max(packets).min(LONGEST)
    }

    /// Length of the shortest window that shows a fall of the link: 50 ms, or the time of 8
    /// packets.
    pub(super) fn glance(&self) -> Duration {
        GLANCE.max(Duration::from_secs_f64(LOOK_PACKETS * PACKET / self.share())).min(LONGEST)
    }

    /// Feedback time: from setting a rate until its effect is known.
    fn feedback(&self, rtt: Duration) -> Duration {
        rtt + self.look(rtt)
    }

    /// Feedback time with which all sessions on a shared link follow the price: [`FARTHEST`] at
    /// least.
    fn common_feedback(&self, rtt: Duration) -> Duration {
        self.feedback(rtt).max(FARTHEST)
    }

    /// Processes a window of the length of [`Self::glance`]. Returns `true` if the link has become
    /// slower in it, so that earlier arrivals must be forgotten.
    pub(super) fn glanced(&mut self, window: Window) -> bool {
        let share = self.loss.before_loss(window.delivered);
        // A full window would show the fall 300 ms later, while the queue grows.
        let rise = window.latest.saturating_sub(window.queue).as_secs_f64();
        let steep = rise > STEEP * GLANCE.as_secs_f64() + STEEP_NOISE * self.noise;
        let slower = share < DROP * self.capacity.min(window.sent);
        let fallen = steep && slower && !window.torn;
        if fallen {
            self.capacity = share.max(super::SLOWEST);
        }
        fallen
    }

    /// The target queue on a path without jitter, in seconds.
    fn smooth_target(&self) -> f64 {
        self.law.queue(self.link(), self.capacity)
    }

    /// The target queue, in seconds.
    fn target(&self) -> f64 {
        let smooth = self.smooth_target();
        (smooth + NOISE * self.noise).min(TARGET_MOST.max(smooth))
    }

    /// The queue to aim at now, in seconds.
    fn aim(&self, now: Instant) -> f64 {
        if self.dip.is_on(now) {
            return dip::AIM;
        }
        // What exceeds a bucket's rate is dropped and does not wait, so there is no queue to keep.
        if self.policing.is_some() {
            return 0.0;
        }
        let target = self.target();
        let aim = match self.shared {
            // Sessions with different opinions of the target would work against each other.
            true => self.price.queue(),
            false => (self.boost * target).min(TARGET_MOST.max(target)),
        };
        aim.min(self.room)
    }

    /// The queue above which the link is known to be busy, in seconds.
    fn stands_above(&self) -> f64 {
        let target = match self.shared {
            true => EMPTY * self.smooth_target() + self.noise,
            false => self.target() / 2.0,
        };
        // A delay shorter than half a packet takes is no queue.
        target.min(self.room / 2.0).max(PACKET / self.link() / 2.0)
    }

    /// Processes the last observation window. Returns a time if the base delay must be measured
    /// anew over it, because the path has become longer.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        rtt: Duration,
        window: Window,
        flight: Flight,
    ) -> Option<Duration> {
        let passed = now.saturating_since(self.seen_at).as_secs_f64();
        self.seen_at = now;
        self.noise = window.noise.as_secs_f64();
        // While a queue grows, the minimum of the window is its oldest value.
        let least = window.queue.as_secs_f64();
        let queue = least.max(window.latest.as_secs_f64() - NOISE * self.noise);
        self.watch_queue(now, rtt, window, queue, passed);
        let feedback_times = passed / self.common_feedback(rtt).as_secs_f64();
        self.crowded_for = if self.crowded { self.crowded_for + feedback_times } else { 0.0 };
        let part = passed / self.feedback(rtt).as_secs_f64();
        self.learn(now, rtt, window, flight.sent, part);
        if self.shared && self.is_idle(window) {
            self.yield_unheard(part);
        }
        self.look_for_overflow(self.look(rtt), window, flight.sent);
        if now >= self.round.end {
            self.end_round(now, rtt, window);
        }
        // In this order: `compare` drops the forecasts from which the inflow is learned, and
        // `steer` makes the next one with it.
        self.learn_inflow(flight.sent, queue, feedback_times);
        self.look_for_competition(now, flight.min_rtt, window);
        let longer = self.compare(now, window, flight);
        self.capacity = self.capacity.max(self.competition.floor()).min(self.most);
        // On a longer path, what looked like a queue is delay of the path.
        self.steer(now, if longer { 0.0 } else { queue }, flight);
        longer.then(|| self.look(rtt))
    }

    /// Responds to packets that the path has marked: a queue, which others may share, is too long.
    pub(super) fn marked(&mut self, now: Instant, rtt: Duration) {
        // Once per feedback time, as RFC 3168 §6.1.2 asks for: later marks come from packets that
        // were sent before the answer to the first.
        if now < self.marked_until {
            return;
        }
        self.marked_until = now + self.feedback(rtt);
        self.capacity = (self.capacity * MARKED).max(super::SLOWEST);
        self.room = self.room.min(self.price.queue().max(self.target()) * OVERFLOW);
        self.boost = 1.0;
        self.overflowing = true;
    }

    fn watch_queue(
        &mut self,
        now: Instant,
        rtt: Duration,
        window: Window,
        queue: f64,
        passed: f64,
    ) {
        // The queue of a dip is our own doing, and no price.
        if !self.dip.disturbs(now) {
            let seen = Seen {
                queue: if self.shared { window.latest.as_secs_f64() } else { queue },
                noise: self.noise,
                inflow: self.forecast.inflow(),
                most: self.dearest(),
            };
            self.price.follow(&self.law, seen, passed, self.common_feedback(rtt).as_secs_f64());
        }
        let least = window.queue.as_secs_f64();
        self.crowded = least > DEAR * self.dearest();
        self.round.empty &= least < self.target() / 2.0;
        let low = self.state == RateState::Draining || least < EMPTY * self.smooth_target();
        let dips = self.dip.is_on(now);
        self.dip.note(now, rtt, least, passed, low);
        // A queue that empties earlier than forecast shows a faster link, but not in a dip, where
        // it is expected to empty. Without a search after it, the link was full again 0.9 s later
        // (bench `rate -- fades`). Sessions that share a link have dips at the same time, and need
        // no train each.
        let alone = !self.shared && self.part >= 1.0;
        if alone && self.policing.is_none() && dips && !self.dip.is_on(now) {
            self.probe.search_soon();
        }
    }

    /// Learns how fast others let the queue grow; `part` of the common feedback time has passed.
    fn learn_inflow(&mut self, sent: Instant, queue: f64, part: f64) {
        if self.shared {
            self.forecast.learn_inflow(sent, queue, part / OBSERVED);
        } else {
            // A session alone knows all that is in flight: nothing else flows in.
            self.forecast.forget_inflow();
        }
    }

    /// Checks for senders that fill the queue.
    fn look_for_competition(&mut self, now: Instant, min_rtt: Duration, window: Window) {
        let queue = window.queue.as_secs_f64();
        let overflows = core::mem::take(&mut self.overflowing) || self.loss.is_exceeded(window);
        let times = Times {
            queue: window.latest.as_secs_f64(),
            min_rtt: min_rtt.as_secs_f64(),
            feedback: self.common_feedback(min_rtt).as_secs_f64(),
        };
        let sight = Sight {
            long: self.crowded,
            short: queue < self.dearest(),
            overflows,
            shared: self.shared,
            share: self.capacity.min(window.delivered),
            link: self.link(),
            times,
        };
        self.competition.look(now, sight);
    }

    /// Longest queue that counts as a price, in seconds: that of 150 sessions, and the noise.
    fn dearest(&self) -> f64 {
        self.law.dearest() + NOISE * self.noise
    }

    /// Checks for the overflow of a queue too short to see: the capacity is then the rate of
    /// arrival.
    fn look_for_overflow(&mut self, look: Duration, window: Window, newest: Instant) {
        let own = self.loss.share();
        let lost = Lost { missing: window.missing, chance: own, deviation: deviation(own, window) };
        let Some(came) = self.overflow_test.overflow(look, newest, lost) else { return };
        self.loss.set(window.missing);
        self.fall_to(self.loss.before_loss(came));
        self.overflow_test.overflows_above(self.capacity);
    }

    /// Lowers the capacity to `capacity` bit/s, if it is higher.
    fn fall_to(&mut self, capacity: f64) {
        self.capacity = capacity.min(self.capacity).max(super::SLOWEST);
        // Growth is relative to `best`, which the overflow has refuted.
        self.best = self.capacity;
        self.boost = 1.0;
    }

    /// Compares the queue with its forecast; returns `true` if the path has become longer.
    fn compare(&mut self, now: Instant, window: Window, flight: Flight) -> bool {
        let queue = window.latest.as_secs_f64();
        let target = self.target();
        let above = 2.0 * target + OTHERS * flight.min_rtt.as_secs_f64();
        let tolerance = Tolerance { below: target / 2.0, above };
        match self.forecast.judge(now, flight.sent, queue, tolerance, self.capacity) {
            Outcome::Met => {}
            // A train tells a slower link from one that others have joined.
            Outcome::Void => self.show_link(),
            Outcome::Gone => {
                if queue < EMPTY * self.smooth_target() && self.policing.is_none() {
                    self.probe.hurry();
                }
            }
            Outcome::Exceeded => {
                self.unforeseen.begin();
                self.show_link();
            }
            Outcome::Stuck(since) => return self.is_longer(now, since, window, flight),
        }
        false
    }

    /// Finds the cause of a queue that has stood since `since` against the forecast. Returns `true`
    /// if it is no queue: the path has become longer.
    fn is_longer(&mut self, now: Instant, since: Instant, window: Window, flight: Flight) -> bool {
        // Senders that fill the queue are known to be there.
        if self.competition.is_there() {
            return false;
        }
        let ordinary = self.loss.is_ordinary(window);
        let share = self.loss.before_loss(window.delivered);
        let whose = self.unforeseen.judge(now, since, flight.min_rtt, window, ordinary, share);
        match whose {
            Whose::Open => return false,
            // Others are known to be there. A session that took their queue for the path would see
            // no queue from then on, and push out those that do.
            Whose::Unknown if self.shared => return false,
            Whose::Ask(link) => {
                self.unforeseen.ask();
                self.probe.show_others(link);
                return false;
            }
            Whose::Ours => self.capacity = share.min(self.capacity),
            Whose::Others | Whose::Path | Whose::Unknown => {}
        }
        self.forecast.reset(self.capacity);
        matches!(whose, Whose::Path | Whose::Unknown)
    }

    /// Sets the rate so that packets sent now will meet the queue aimed at.
    fn steer(&mut self, now: Instant, queue: f64, flight: Flight) {
        let ahead = now.saturating_since(flight.sent).as_secs_f64();
        let expected = self.expect(now, queue, ahead, flight).max(0.0);
        self.forecast.make(now, expected, ahead);
        // docs/rate.md, The law: the first term brings the queue to its aim, the second one the
        // share to the fair one.
        let error = self.aim(now) - expected;
        let (least, most) = if self.shared { CORRECTION_SHARED } else { CORRECTION };
        let correction = (error / self.law.settle).clamp(least, most);
        let to_fair_share = match self.shared {
            true => self.price.fair_share(&self.law, self.link()) - self.capacity,
            false => 0.0,
        };
        let rate = self.capacity * (1.0 + correction) + self.law.fairness * to_fair_share;
        // Beside senders that fill the queue the floor holds against the law and against tests,
        // both of which yield.
        let most = self.overflow_test.most(now).max(self.competition.floor()).min(self.most);
        self.rate = rate.max(self.competition.floor()).min(most);
        // What moves one session to its fair share moves the others as far the other way.
        let surplus = if self.shared { correction } else { self.rate / self.capacity - 1.0 };
        self.sending.surplus = surplus;
        let draining = error < -2.0 * self.target();
        self.state = if draining { RateState::Draining } else { RateState::Cruising };
    }

    /// The queue that packets sent now will meet, in seconds, if the packet sent `ahead` seconds
    /// ago has met `queue`.
    fn expect(&mut self, now: Instant, queue: f64, ahead: f64, flight: Flight) -> f64 {
        let sent = flight.total - self.sending.total;
        let passed = now.saturating_since(self.sending.at).as_secs_f64();
        (self.sending.total, self.sending.at) = (flight.total, now);
        let meant = self.sending.surplus;
        // A sender without enough data has sent less than it was allowed.
        let fraction = match self.round.limited && passed > 0.0 {
            true => (sent / passed / self.capacity - 1.0).min(meant),
            false => meant,
        };
        self.surplus.sent(now, fraction);
        let surplus = self.surplus.since(flight.sent);
        // What exceeds a bucket's rate is lost, and does not wait.
        if self.policing.is_some() {
            return queue;
        }
        if self.shared {
            return queue + surplus + self.forecast.inflow() * ahead;
        }
        // Packets that an overflow drops do not take the link's time.
        if self.rate > OVERLOAD * self.capacity {
            self.sending.over = flight.total;
        }
        let over = (self.sending.over - (flight.total - flight.bits)).max(0.0);
        let coming = flight.bits - over * self.loss.excess();
        queue + coming / self.capacity - ahead
    }

    fn end_round(&mut self, now: Instant, rtt: Duration, window: Window) {
        let Round { empty, limited, .. } = self.round;
        self.room *= RECOVERY;
        let used = !limited && window.sent > FULL * self.capacity;
        // In a test less is sent on purpose, which says nothing about free capacity.
        if !self.overflow_test.marks(now) {
            let free = empty && used && !self.dip.disturbs(now);
            self.boost = if free { (self.boost * 2.0).min(MOST_BOOST) } else { 1.0 };
        }
        let own = self.loss.share();
        self.policing.iter_mut().for_each(|policing| policing.end_round(used, own));
        self.best = self.capacity.max(self.best * FADING);
        let reference = match self.shared {
            true => self.price.growth_reference(&self.law, self.link(), self.best),
            false => self.best,
        };
        self.ceiling = self.capacity + GROWTH * self.boost * reference;
        if empty && used && self.policing.is_none() {
            let look = self.look(rtt);
            self.overflow_test.end_round(now, look, own, window.delivered);
        }
        let length = rtt.max(self.look(rtt) * 2);
        self.probe.end_round(!empty, self.share() * length.as_secs_f64() / PACKET);
        let end = now + length;
        self.round = Round { end, empty: true, limited: false };
    }
}

/// Length of the observation window at rates that do not lengthen it.
pub(super) fn look(rtt: Duration) -> Duration {
    (rtt / 2).clamp(LOOK.0, LOOK.1)
}
