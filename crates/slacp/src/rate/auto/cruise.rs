//! The steady state: uses all of the path's capacity with a small queue.
//!
//! The queue that packets sent now will meet is predicted from what the last ones met and what has
//! been sent since (a Smith predictor, so that the round trip does not make the loop oscillate).
//! The rate is the capacity, corrected so that this queue becomes [`target`]. The target is larger
//! at smaller rates: all sessions see the same queue, so their rates converge.

mod forecast;
mod overflow;
mod probe;

use core::time::Duration;

use units::Instant;

use super::{PACKET, Plan};
use crate::rate::RateState;
use crate::rate::arrivals::{LONGEST, Window};
use crate::rate::train::Measured;
use forecast::{Forecast, Outcome};
use overflow::{Lost, OverflowTest};
use probe::{Found, Probe};

/// Queue that a session of [`TARGET_RATE`] keeps when alone, in seconds; it scales with the inverse
/// square root of the rate.
const TARGET: f64 = 0.009;
const TARGET_RATE: f64 = 50e6;
const TARGET_LEAST: f64 = 0.004;
const TARGET_MOST: f64 = 0.05;
/// … plus this multiple of the delay variation without a queue …
const NOISE: f64 = 4.0;
/// … and at least this many packets.
const TARGET_PACKETS: f64 = 2.5;
/// Time constant of the correction, in seconds.
const SETTLE: f64 = 0.2;
/// Bounds of the correction, relative to the capacity.
const CORRECTION: (f64, f64) = (-0.97, 0.25);
/// Maximum factor on the target while there is no queue.
const MOST_BOOST: f64 = 8.0;
/// A drop below this fraction of the known capacity is accepted at once.
const DROP: f64 = 0.75;
/// Weight of one sample otherwise.
const GAIN: f64 = 0.25;
/// Maximum growth of the capacity in a round, relative to the best capacity and times the boost,
/// unless a train confirms more: others that yield for a moment are no free capacity. A smaller
/// session grows by a larger share of its own, so that sessions become equal.
const GROWTH: f64 = 0.03;
/// How much others on the link may change the queue unforeseen, relative to the round trip.
const OTHERS: f64 = 0.15;
/// Decay of the best capacity per round.
const FADING: f64 = 0.998;
/// Share of the link that is held beside others …
const HELD: f64 = 0.25;
/// … when a train shows that the link has more than this multiple of our rate, or that a queue
/// persists whatever we do …
const SHARED: f64 = 2.0;
/// A link is busy if this fraction of its rate arrives.
const BUSY: f64 = 0.9;
/// How long to wait for a train to show the link, in round trips.
const PATIENCE: u32 = 3;
/// … for this many rounds after others were noticed.
const HELD_ROUNDS: u32 = 16;
/// Maximum random loss.
const MOST_CHANCE: f64 = 0.5;
/// A queue below this fraction of the target counts as empty.
const EMPTY: f64 = 0.25;
/// While a queue stands, losses beyond the random ones by this many standard deviations plus this
/// share count as its overflow …
const SURPRISE: (f64, f64) = (4.0, 0.005);
/// While a queue stands, losses below the random ones by this many standard deviations show that
/// random loss is overestimated.
const UNLIKELY: f64 = 2.0;
/// … and then the target becomes this fraction of what the queue held. It grows by this factor each
/// round.
const OVERFLOW: f64 = 0.33;
const RECOVERY: f64 = 1.5;

/// A fall of the rate is accepted within this time if delays rise by this fraction of the time, and
/// by this multiple of the noise.
const GLANCE: Duration = Duration::from_millis(50);
const STEEP: f64 = 0.25;
const STEEP_NOISE: f64 = 6.0;

/// A sender that exceeds the capacity by this factor overloads the link.
const OVERLOAD: f64 = 1.3;

/// Bounds of the observation window: longer than the pauses of links with time slots, short against
/// a GEO round trip. It also spans at least this many packets.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(300));
const LOOK_PACKETS: f64 = 8.0;
/// How long pauses in the arrivals may last before they count as slowness: a path that becomes
/// longer pauses once.
const PAUSE: Duration = Duration::from_secs(1);
/// A window with pauses that was sent at less than this fraction of the capacity is one without
/// enough to send.
const IDLE: f64 = 0.5;
/// After this time with a queue it is emptied once, to measure the path's own delay again.
const DIP: Duration = Duration::from_secs(5);

/// What has been sent since the newest packet with known arrival, and when that packet was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) bits: f64,
    /// Bits sent in all.
    pub(super) total: f64,
    /// Minimum round-trip time.
    pub(super) min_rtt: Duration,
    pub(super) sent: Instant,
}

#[derive(Debug)]
pub(super) struct Cruise {
    /// The path's capacity available to this session, in bit/s.
    capacity: f64,
    /// Upper limit set by the owner, in bit/s.
    most: f64,
    rate: f64,
    state: RateState,
    forecast: Forecast,
    /// Since when arrivals pause, and when the queue was last empty.
    torn_since: Option<Instant>,
    empty_at: Instant,
    /// Until when an empty queue is caused by this session itself.
    dipped_until: Instant,
    /// Factor on the target while the queue stays empty.
    boost: f64,
    round_end: Instant,
    /// Whether the queue was empty, and all of the rate used, throughout the round.
    empty: bool,
    limited: bool,
    /// Whether a queue stood in the last round.
    queued: bool,
    /// The share lost without a queue: random loss.
    chance: Option<f64>,
    /// The share lost beyond that.
    excess: f64,
    /// Upper bound of the target, in seconds, because the queue is short.
    room: f64,
    /// Delay variation without a queue, in seconds.
    noise: f64,
    /// The best capacity so far, decaying.
    best: f64,
    /// For how many more rounds others are expected to fill the queue, and what trains have shown
    /// of the whole link since they were noticed.
    foreign: u32,
    link: Option<f64>,
    /// What a train has shown of the whole link since the queue exceeded its forecast.
    shown: Option<f64>,
    /// Bits sent in all until the rate was last well above the capacity.
    over: f64,
    /// Upper bound of the capacity within the round.
    ceiling: f64,
    probe: Probe,
    overflow_test: OverflowTest,
    /// The fraction of the capacity that this session uses of a link that it shares.
    part: f64,
}

impl Cruise {
    /// A path with this capacity, limited to `most`, both in bit/s.
    pub(super) fn new(now: Instant, capacity: f64, most: f64) -> Self {
        let capacity = capacity.min(most);
        Self {
            capacity,
            most,
            rate: capacity,
            state: RateState::Cruising,
            forecast: Forecast::default(),
            torn_since: None,
            empty_at: now,
            dipped_until: now,
            boost: 1.0,
            round_end: now,
            empty: true,
            limited: true,
            queued: false,
            chance: None,
            excess: 0.0,
            room: f64::INFINITY,
            noise: 0.0,
            best: capacity,
            foreign: 0,
            link: None,
            shown: None,
            over: 0.0,
            ceiling: capacity,
            probe: Probe::new(),
            overflow_test: OverflowTest::new(),
            part: 1.0,
        }
    }

    /// Sets the capacity of a link that this session shares with others, and the part of it that it
    /// uses. What it has measured stays relative to the capacity of the whole link.
    pub(super) fn set_capacity(&mut self, capacity: f64, part: f64) {
        self.capacity = capacity.max(super::SLOWEST);
        self.part = part;
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

    /// Maximum in flight, in bits, whatever has been acknowledged.
    pub(super) fn allowed_in_flight(&self, rtt: Duration) -> f64 {
        self.share() * (rtt.as_secs_f64() * 1.5 + 0.3) + 16.0 * PACKET
    }

    pub(super) fn app_limited(&mut self) {
        self.limited = true;
    }

    /// Length of the observation window.
    pub(super) fn look(&self, rtt: Duration) -> Duration {
        let packets = Duration::from_secs_f64(LOOK_PACKETS * PACKET / self.share());
        look(rtt).max(packets).min(LONGEST)
    }

    /// The shortest conclusive time.
    pub(super) fn glance(&self) -> Duration {
        GLANCE.max(Duration::from_secs_f64(LOOK_PACKETS * PACKET / self.share())).min(LONGEST)
    }

    /// Processes the last moment. Returns whether the link has become slower in it, so that earlier
    /// arrivals must be forgotten.
    pub(super) fn glanced(&mut self, window: Window) -> bool {
        let share = window.delivered / (1.0 - self.chance.unwrap_or(0.0)).max(0.1);
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
        let target = TARGET * (TARGET_RATE / self.capacity).sqrt();
        target.clamp(TARGET_LEAST, TARGET_MOST).max(TARGET_PACKETS * PACKET / self.capacity)
    }

    /// The target queue, in seconds.
    fn target(&self) -> f64 {
        let smooth = self.smooth_target();
        (smooth + NOISE * self.noise).min(TARGET_MOST.max(smooth))
    }

    fn is_dipping(&self, now: Instant) -> bool {
        now.saturating_since(self.empty_at) > DIP
    }

    /// The queue to aim at now, in seconds: larger for a while if there has been none, zero for a
    /// moment if there has always been one.
    fn aim(&self, now: Instant) -> f64 {
        if self.is_dipping(now) {
            return 0.0;
        }
        let target = self.target();
        (self.boost * target).min(TARGET_MOST.max(target)).min(self.room)
    }

    /// Processes the last observation window. Returns a time if the base delay must be measured
    /// anew over it, because this session cannot empty the queue.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        rtt: Duration,
        window: Window,
        flight: Flight,
    ) -> Option<Duration> {
        let queue = window.queue.as_secs_f64();
        self.noise = window.noise.as_secs_f64();
        // The minimum of a growing queue is old.
        let newest = queue.max(window.latest.as_secs_f64() - NOISE * self.noise);
        self.look_for_empty(now, rtt, queue);
        self.learn(now, window, flight.sent, queue > self.target().min(self.room) / 2.0);
        self.look_for_overflow(self.look(rtt), window, flight.sent);
        if now >= self.round_end {
            self.end_round(now, rtt, window);
        }
        let stuck = self.compare(now, window, flight);
        self.capacity = self.capacity.max(self.held()).min(self.most);
        let queue = if stuck { 0.0 } else { newest };
        self.steer(now, queue, flight);
        stuck.then(|| self.look(rtt))
    }

    /// Checks for the overflow of a queue too short to see: the arrival rate is then the capacity.
    fn look_for_overflow(&mut self, look: Duration, window: Window, newest: Instant) {
        let chance = self.chance.unwrap_or(0.0);
        let lost = Lost { missing: window.missing, chance, deviation: deviation(chance, window) };
        let Some(came) = self.overflow_test.overflow(look, newest, lost) else { return };
        self.chance = Some(window.missing);
        let share = came / (1.0 - window.missing).max(0.1);
        self.capacity = share.min(self.capacity).max(super::SLOWEST);
        self.best = self.capacity;
        self.boost = 1.0;
        self.overflow_test.overflows_above(self.capacity);
    }

    fn look_for_empty(&mut self, now: Instant, rtt: Duration, queue: f64) {
        self.empty &= queue < self.target() / 2.0;
        if self.is_dipping(now) {
            self.dipped_until = now + rtt * 2;
        }
        let tried = now.saturating_since(self.empty_at) > DIP + rtt * 2;
        if queue < EMPTY * self.smooth_target() || tried {
            self.empty_at = now;
        }
    }

    /// Compares the queue with its forecast; returns whether it is not ours.
    fn compare(&mut self, now: Instant, window: Window, flight: Flight) -> bool {
        let queue = window.latest.as_secs_f64();
        let target = self.target();
        let more = 2.0 * target + OTHERS * flight.min_rtt.as_secs_f64();
        let tolerance = (target / 2.0, more);
        match self.forecast.judge(now, flight.sent, queue, tolerance, self.capacity) {
            Outcome::Met => false,
            // Did the link change, or did flows join?
            Outcome::Void => {
                self.probe.show_link();
                false
            }
            Outcome::Gone => {
                if queue < EMPTY * self.smooth_target() {
                    self.probe.hurry();
                }
                false
            }
            Outcome::Exceeded => {
                self.shown = None;
                self.probe.show_link();
                false
            }
            Outcome::Stuck(since) => self.is_foreign(now, since, window, flight),
        }
    }

    /// Whether a queue that has stood since then is not ours: the link has more than our rate and
    /// could have emptied it.
    fn is_foreign(&mut self, now: Instant, since: Instant, window: Window, flight: Flight) -> bool {
        let waited = now.saturating_since(since) > flight.min_rtt * PATIENCE;
        let share = window.delivered / (1.0 - self.chance.unwrap_or(0.0)).max(0.1);
        match self.shown {
            None if !waited => return false,
            Some(link) if share > BUSY * link => self.capacity = share.min(self.capacity),
            _ => {
                self.foreign = HELD_ROUNDS;
                self.forecast.reset(self.capacity);
                return true;
            }
        }
        self.forecast.reset(self.capacity);
        false
    }

    /// Sets the rate so that packets sent now will meet the queue aimed at.
    fn steer(&mut self, now: Instant, queue: f64, flight: Flight) {
        let since = now.saturating_since(flight.sent).as_secs_f64();
        // Dropped packets do not take the link's time.
        if self.rate > OVERLOAD * self.capacity {
            self.over = flight.total;
        }
        let over = (self.over - (flight.total - flight.bits)).max(0.0);
        let coming = flight.bits - over * self.excess;
        let expected = (queue + coming / self.capacity - since).max(0.0);
        self.forecast.make(now, expected);
        let error = self.aim(now) - expected;
        let (least, most) = CORRECTION;
        let rate = self.capacity * (1.0 + (error / SETTLE).clamp(least, most));
        self.rate = rate.min(self.overflow_test.most(now)).max(self.held()).min(self.most);
        let draining = error < -2.0 * self.target();
        self.state = if draining { RateState::Draining } else { RateState::Cruising };
    }

    /// The rate that is never given up.
    fn held(&self) -> f64 {
        HELD * self.link.filter(|_| self.foreign > 0).unwrap_or(0.0)
    }

    /// Learns the capacity from a window whose newest packet was sent at `newest`, with or without
    /// a queue.
    fn learn(&mut self, now: Instant, window: Window, newest: Instant, standing: bool) {
        // Pauses of our own say nothing.
        let idle = window.torn && window.sent < IDLE * self.capacity;
        self.torn_since = (window.torn && !idle).then(|| self.torn_since.unwrap_or(now));
        let paused = |since: Instant| now.saturating_since(since) < PAUSE;
        let chance = if self.overflow_test.marks(newest) {
            self.chance.unwrap_or(0.0)
        } else {
            self.learn_loss(window)
        };
        let share = window.delivered / (1.0 - chance).max(0.1);
        if !standing {
            // More arrives than was sent when the path becomes shorter.
            let proven = share.min(window.sent);
            self.approach(proven.max(self.capacity), GAIN);
            return;
        }
        // With a queue the link gives all it has, if we sent that much; and at least what arrives,
        // if that exceeds what was sent.
        let full = window.sent > 0.95 * self.capacity || share < 0.95 * window.sent;
        let more = share > self.capacity.max(1.05 * window.sent);
        if (full || more) && !idle && !self.torn_since.is_some_and(paused) {
            let gain = if share < DROP * self.capacity { 1.0 } else { GAIN };
            self.approach(share, gain);
        }
    }

    fn approach(&mut self, share: f64, gain: f64) {
        let next = self.capacity + (share - self.capacity) * gain;
        self.capacity = next.min(self.ceiling.max(self.capacity)).max(super::SLOWEST);
    }

    /// Updates and returns the random loss, and checks whether the queue overflows.
    fn learn_loss(&mut self, window: Window) -> f64 {
        let longest = window.longest.as_secs_f64();
        let chance = match self.chance {
            // The path was down.
            known if window.torn || window.missing > MOST_CHANCE => {
                self.excess = (window.missing - known.unwrap_or(0.0)).max(0.0);
                return known.unwrap_or(0.0);
            }
            Some(chance) if self.overflow_test.is_above(window.sent) => {
                self.at_most(chance, window)
            }
            _ if longest < EMPTY * self.smooth_target() + self.noise => {
                let chance = self.chance.unwrap_or(window.missing);
                chance + (window.missing - chance) * GAIN
            }
            Some(chance) => self.at_most(chance, window),
            None if window.queue.as_secs_f64() < self.target() / 2.0 => window.missing,
            None => return window.missing,
        };
        self.chance = Some(chance);
        let deviation = deviation(chance, window);
        self.excess = 0.0;
        if window.missing > chance + SURPRISE.0 * deviation + SURPRISE.1 {
            self.excess = window.missing - chance;
            self.room = self.room.min(longest * OVERFLOW);
            self.boost = 1.0;
        }
        chance
    }

    /// An overflowing queue only adds to random loss: if less is missing, random loss is lower.
    fn at_most(&self, chance: f64, window: Window) -> f64 {
        let less = window.missing + UNLIKELY * deviation(chance, window) < chance;
        if less { chance + (window.missing - chance) * GAIN } else { chance }
    }

    fn end_round(&mut self, now: Instant, rtt: Duration, window: Window) {
        self.room *= RECOVERY;
        let free = self.empty && now >= self.dipped_until;
        let used = !self.limited && window.sent > 0.95 * self.capacity;
        let more = free && used;
        if !self.overflow_test.marks(now) {
            self.boost = if more { (self.boost * 2.0).min(MOST_BOOST) } else { 1.0 };
        }
        self.best = self.capacity.max(self.best * FADING);
        self.ceiling = self.capacity + GROWTH * self.boost * self.best;
        self.foreign = self.foreign.saturating_sub(1);
        if self.foreign == 0 {
            self.link = None;
        }
        if self.empty && used {
            let chance = self.chance.unwrap_or(0.0);
            self.overflow_test.end_round(now, self.look(rtt), chance, window.delivered);
        }
        self.probe.end_round(!self.empty, self.foreign > 0);
        self.queued = !self.empty;
        self.empty = true;
        self.limited = false;
        self.round_end = now + rtt.max(self.look(rtt) * 2);
    }

    /// Whether [`Self::next_train`] need not wait for the previous train.
    pub(super) fn train_is_urgent(&self) -> bool {
        self.probe.is_urgent()
    }

    /// Measures the path with the next packets.
    pub(super) fn search_at_once(&mut self) {
        self.probe.hurry();
    }

    /// The train due before the next payload.
    pub(super) fn next_train(&mut self) -> Option<Plan> {
        // At the upper limit there is nothing to search for.
        if self.capacity >= self.most {
            return None;
        }
        self.probe.next_train(self.share())
    }

    /// Processes the result of a train.
    pub(super) fn train_came(&mut self, train: Option<Measured>) {
        match self.probe.train_came(train, self.capacity, self.noise) {
            Found::Nothing => {}
            Found::Capacity(rate) => self.capacity = rate.min(self.most),
            Found::Link(rate) => {
                self.shown = Some(rate);
                if rate.is_infinite() {
                    return;
                }
                let link = rate.min(self.best);
                self.link = Some(link);
                if link > SHARED * self.capacity {
                    self.foreign = HELD_ROUNDS;
                }
            }
        }
    }
}

/// Length of the observation window at rates that do not lengthen it.
pub(super) fn look(rtt: Duration) -> Duration {
    (rtt / 2).clamp(LOOK.0, LOOK.1)
}

/// Standard deviation of the share lost in a window.
fn deviation(chance: f64, window: Window) -> f64 {
    let packets = (window.bytes as f64 * 8.0 / PACKET).max(1.0);
    (chance * (1.0 - chance) / packets).sqrt() + 1.0 / packets
}
