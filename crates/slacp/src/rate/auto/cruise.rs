//! The steady state: as much as the path takes, with a small queue.
//!
//! The queue that the packets of a moment will meet follows from what the last
//! ones met and from what has been sent since (a Smith predictor, so that the
//! round trip does not make the loop oscillate). The rate is the capacity,
//! corrected so that this queue becomes [`target`]. The target is larger for
//! smaller rates: all sessions see the same queue, so they come to the same
//! rate.

mod doubt;
mod forecast;
mod probe;

use core::time::Duration;

use units::Instant;

use super::{PACKET, Plan};
use crate::rate::RateState;
use crate::rate::arrivals::Window;
use crate::rate::train::Measured;
use doubt::{Doubt, Lost};
use forecast::{Forecast, Outcome};
use probe::{Found, Probe};

/// The queue that a session of [`TARGET_RATE`] keeps when it is alone; at other
/// rates it goes with the inverse root.
const TARGET: f64 = 0.009;
const TARGET_RATE: f64 = 50e6;
const TARGET_LEAST: f64 = 0.004;
const TARGET_MOST: f64 = 0.05;
/// … and more by so many times what delays vary by without a queue …
const NOISE: f64 = 4.0;
/// … and at least so many packets.
const TARGET_PACKETS: f64 = 2.5;
/// In which time, in seconds, the queue is brought to its target.
const SETTLE: f64 = 0.2;
/// The bounds of the correction.
const CORRECTION: (f64, f64) = (-0.97, 0.25);
/// How much more queue than the target may be aimed at while there is none.
const MOST_BOOST: f64 = 8.0;
/// A rate so much below what was measured before is believed at once.
const DROP: f64 = 0.75;
/// What one sample changes otherwise.
const GAIN: f64 = 0.25;
/// By what share of the best that there was the capacity may grow in a round,
/// times the boost, unless a train confirms more: others that give way for a
/// moment are no free capacity. Who has less grows by a larger share of it, so
/// that sessions become equal.
const GROWTH: f64 = 0.03;
/// By what share of a round trip others who share the link may change the queue
/// unforeseen.
const OTHERS: f64 = 0.15;
/// What remains of the memory of the best capacity from round to round.
const FADING: f64 = 0.998;
/// Beside others this share of the link is held …
const HELD: f64 = 0.25;
/// … when a train shows that the link has more than this multiple of what we
/// get, or that a queue stays whatever we do …
const SHARED: f64 = 2.0;
/// A link is busy if so much of its rate comes.
const BUSY: f64 = 0.9;
/// So many round trips a train has to show it.
const PATIENCE: u32 = 3;
/// … for so many rounds after they were noticed.
const HELD_ROUNDS: u32 = 16;
/// No link loses more by chance.
const MOST_CHANCE: f64 = 0.5;
/// A queue below this share of the target counts as none.
const EMPTY: f64 = 0.25;
/// Losses beyond what chance explains, by so many standard deviations and this
/// share, while a queue stands, are taken for its overflow …
const SURPRISE: (f64, f64) = (4.0, 0.005);
/// Fewer, by so many standard deviations, while a queue stands, show that the
/// share lost by chance is taken too high.
const UNLIKELY: f64 = 2.0;
/// … and then the target is this share of what the queue held. It grows again
/// by this factor each round.
const OVERFLOW: f64 = 0.33;
const RECOVERY: f64 = 1.5;

/// A fall of the rate is believed at the first sight of it, in so short a time,
/// if delays rise in it by this share of it, and by so many times the noise.
const GLANCE: Duration = Duration::from_millis(50);
const STEEP: f64 = 0.25;
const STEEP_NOISE: f64 = 6.0;

/// A sender that exceeds the capacity by this factor overloads the link.
const OVERLOAD: f64 = 1.3;

/// For how long a path is looked at: longer than the pauses of links with time
/// slots, short against a GEO round trip, and so many packets at least.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(300));
const LOOK_PACKETS: f64 = 8.0;
/// How long pauses in the arrivals may last before they count as slowness: a
/// path that becomes longer pauses once.
const PAUSE: Duration = Duration::from_secs(1);
/// After so long with a queue it is emptied once, so that the path's own delay
/// is not forgotten.
const DIP: Duration = Duration::from_secs(5);

/// What was sent after the newest packet that we have heard of, and when that
/// one was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) bits: f64,
    /// All bits sent.
    pub(super) total: f64,
    /// The least round-trip time.
    pub(super) min_rtt: Duration,
    pub(super) sent: Instant,
}

#[derive(Debug)]
pub(super) struct Cruise {
    /// Of the path, as far as we get it, bit/s.
    capacity: f64,
    /// The most that the owner wants.
    most: f64,
    rate: f64,
    state: RateState,
    forecast: Forecast,
    /// Since when arrivals pause; when the queue was last empty.
    torn_since: Option<Instant>,
    empty_at: Instant,
    /// Until when an empty queue is our own doing.
    dipped_until: Instant,
    /// The target is multiplied by this while the queue stays empty.
    boost: f64,
    round_end: Instant,
    /// Whether the queue has been empty throughout the round, and all of the
    /// rate was used.
    empty: bool,
    limited: bool,
    /// Whether a queue stood in the last round.
    queued: bool,
    /// The share that the path loses without a queue: by chance.
    chance: Option<f64>,
    /// What it loses beyond that.
    excess: f64,
    /// The most that the target may be, in seconds: the queue is short.
    room: f64,
    /// What delays vary by without a queue, in seconds.
    noise: f64,
    /// The best capacity there was, fading.
    best: f64,
    /// For how many rounds more others are expected to fill the queue, and what
    /// trains have shown of the whole link since they were noticed.
    foreign: u32,
    link: Option<f64>,
    /// What a train has shown of it since the queue was larger than expected.
    shown: Option<f64>,
    /// All bits sent until the rate was last well above the capacity.
    over: f64,
    /// What the capacity may grow to within the round.
    ceiling: f64,
    probe: Probe,
    doubt: Doubt,
}

impl Cruise {
    /// Of a path with this capacity, of which no more than `most` is wanted.
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
            doubt: Doubt::new(),
        }
    }

    pub(super) fn capacity(&self) -> f64 {
        self.capacity
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn state(&self) -> RateState {
        self.state
    }

    /// What may be under way at most, in bits, whatever is heard of it.
    pub(super) fn allowed_in_flight(&self, rtt: Duration) -> f64 {
        self.capacity * (rtt.as_secs_f64() * 1.5 + 0.3) + 16.0 * PACKET
    }

    pub(super) fn app_limited(&mut self) {
        self.limited = true;
    }

    /// Over which time the path is to be looked at.
    pub(super) fn look(&self, rtt: Duration) -> Duration {
        let packets = Duration::from_secs_f64(LOOK_PACKETS * PACKET / self.capacity);
        look(rtt).max(packets)
    }

    /// The least time that says anything.
    pub(super) fn glance(&self) -> Duration {
        GLANCE.max(Duration::from_secs_f64(LOOK_PACKETS * PACKET / self.capacity))
    }

    /// Takes what happened in the last moment. Whether the link has become
    /// slower in it; then what was before is to be forgotten.
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

    /// The queue to be kept on a path without jitter, in seconds.
    fn smooth_target(&self) -> f64 {
        let target = TARGET * (TARGET_RATE / self.capacity).sqrt();
        target.clamp(TARGET_LEAST, TARGET_MOST).max(TARGET_PACKETS * PACKET / self.capacity)
    }

    /// The queue to be kept.
    fn target(&self) -> f64 {
        let smooth = self.smooth_target();
        (smooth + NOISE * self.noise).min(TARGET_MOST.max(smooth))
    }

    fn is_dipping(&self, now: Instant) -> bool {
        now.saturating_since(self.empty_at) > DIP
    }

    /// The queue to aim at now: more for a while if there has been none, none
    /// for a moment if there has always been one.
    fn aim(&self, now: Instant) -> f64 {
        if self.is_dipping(now) {
            return 0.0;
        }
        let target = self.target();
        (self.boost * target).min(TARGET_MOST.max(target)).min(self.room)
    }

    /// Takes what happened lately. Asks for a new base of delays over a time if
    /// what is there is not ours to empty.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        rtt: Duration,
        window: Window,
        flight: Flight,
    ) -> Option<Duration> {
        let queue = window.queue.as_secs_f64();
        self.noise = window.noise.as_secs_f64();
        // Of a queue that grows the least lies back.
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

    /// Whether a queue too short to be seen overflows: then what came is the capacity.
    fn look_for_overflow(&mut self, look: Duration, window: Window, newest: Instant) {
        let chance = self.chance.unwrap_or(0.0);
        let lost = Lost { missing: window.missing, chance, deviation: deviation(chance, window) };
        let Some(came) = self.doubt.overflow(look, newest, lost) else { return };
        self.chance = Some(window.missing);
        let share = came / (1.0 - window.missing).max(0.1);
        self.capacity = share.min(self.capacity).max(super::SLOWEST);
        self.best = self.capacity;
        self.boost = 1.0;
        self.doubt.overflows_above(self.capacity);
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

    /// Compares the queue with what was expected; whether it is not ours.
    fn compare(&mut self, now: Instant, window: Window, flight: Flight) -> bool {
        let queue = window.latest.as_secs_f64();
        let target = self.target();
        let more = 2.0 * target + OTHERS * flight.min_rtt.as_secs_f64();
        let tolerance = (target / 2.0, more);
        match self.forecast.judge(now, flight.sent, queue, tolerance, self.capacity) {
            Outcome::Met => false,
            // Is it the link, or are it others?
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

    /// Whether a queue that has stood since then is not ours: the link has more
    /// than we get, and could have emptied it.
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

    /// Sets the rate so that the queue that packets will meet becomes the one
    /// aimed at.
    fn steer(&mut self, now: Instant, queue: f64, flight: Flight) {
        let since = now.saturating_since(flight.sent).as_secs_f64();
        // What finds no room in the queue does not take the link's time.
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
        self.rate = rate.min(self.doubt.most(now)).max(self.held()).min(self.most);
        let draining = error < -2.0 * self.target();
        self.state = if draining { RateState::Draining } else { RateState::Cruising };
    }

    /// What is not given up.
    fn held(&self) -> f64 {
        HELD * self.link.filter(|_| self.foreign > 0).unwrap_or(0.0)
    }

    /// Learns the capacity from a window whose last packet was sent then, with or
    /// without a queue.
    fn learn(&mut self, now: Instant, window: Window, newest: Instant, standing: bool) {
        self.torn_since = window.torn.then(|| self.torn_since.unwrap_or(now));
        let paused = |since: Instant| now.saturating_since(since) < PAUSE;
        let chance = if self.doubt.marks(newest) {
            self.chance.unwrap_or(0.0)
        } else {
            self.learn_loss(window)
        };
        let share = window.delivered / (1.0 - chance).max(0.1);
        if !standing {
            // More than was sent comes when the path becomes shorter.
            let proven = share.min(window.sent);
            self.approach(proven.max(self.capacity), GAIN);
            return;
        }
        // With a queue the link gives what it has, if we sent as much; and at
        // least what comes, if that is more than what went.
        let full = window.sent > 0.95 * self.capacity || share < 0.95 * window.sent;
        let more = share > self.capacity.max(1.05 * window.sent);
        if (full || more) && !self.torn_since.is_some_and(paused) {
            let gain = if share < DROP * self.capacity { 1.0 } else { GAIN };
            self.approach(share, gain);
        }
    }

    fn approach(&mut self, share: f64, gain: f64) {
        let next = self.capacity + (share - self.capacity) * gain;
        self.capacity = next.min(self.ceiling.max(self.capacity)).max(super::SLOWEST);
    }

    /// Learns what is lost by chance, and whether the queue overflows.
    fn learn_loss(&mut self, window: Window) -> f64 {
        let longest = window.longest.as_secs_f64();
        let chance = match self.chance {
            // The path was away.
            known if window.torn || window.missing > MOST_CHANCE => {
                self.excess = (window.missing - known.unwrap_or(0.0)).max(0.0);
                return known.unwrap_or(0.0);
            }
            Some(chance) if self.doubt.is_above(window.sent) => self.at_most(chance, window),
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

    /// A queue that overflows only adds to what is lost by chance: if less is
    /// missing, less is lost by chance.
    fn at_most(&self, chance: f64, window: Window) -> f64 {
        let less = window.missing + UNLIKELY * deviation(chance, window) < chance;
        if less { chance + (window.missing - chance) * GAIN } else { chance }
    }

    fn end_round(&mut self, now: Instant, rtt: Duration, window: Window) {
        self.room *= RECOVERY;
        let free = self.empty && now >= self.dipped_until;
        let used = !self.limited && window.sent > 0.95 * self.capacity;
        let more = free && used;
        if !self.doubt.marks(now) {
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
            self.doubt.end_round(now, self.look(rtt), chance, window.delivered);
        }
        self.probe.end_round(!self.empty, self.foreign > 0);
        self.queued = !self.empty;
        self.empty = true;
        self.limited = false;
        self.round_end = now + rtt.max(self.look(rtt) * 2);
    }

    /// Whether [`Self::next_train`] need not wait for the one that has left.
    pub(super) fn train_is_urgent(&self) -> bool {
        self.probe.is_urgent()
    }

    /// The train that is due when payload is about to leave.
    pub(super) fn next_train(&mut self) -> Option<Plan> {
        // Who wants no more looks for no more.
        if self.capacity >= self.most {
            return None;
        }
        self.probe.next_train(self.capacity)
    }

    /// Takes what a train has shown.
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

/// Over which time a path is to be looked at whose rate does not matter.
pub(super) fn look(rtt: Duration) -> Duration {
    (rtt / 2).clamp(LOOK.0, LOOK.1)
}

/// How much the share lost of a window's packets varies.
fn deviation(chance: f64, window: Window) -> f64 {
    let packets = (window.bytes as f64 * 8.0 / PACKET).max(1.0);
    (chance * (1.0 - chance) / packets).sqrt() + 1.0 / packets
}
