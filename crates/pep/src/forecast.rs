//! Capacity to ask for ahead: the next message of a connection on which messages alternate.
//!
//! On a link with capacity on demand a request waits for its grant, about a second and more. Whoever
//! sends request after request on one connection sends the next one soon after the reply. So when a
//! message leaves on a connection on which the two sides have taken turns, its next one is foreseen
//! and counted into what waits, before the reply is there: a grant takes longer than a reply. What is
//! foreseen includes the acknowledgement of that reply.
//!
//! The second message of a connection follows no pair to go by. It is expected when that of the last
//! connection with two came, or after `FIRST_GAP`. Such forecasts leave half of the initial budget to
//! the others. Of the first messages of connections is also learned how many follow (`Habits`): where
//! connections end after two, no third one is asked for. The first message has waited for its grant and
//! the second has not, so that the third comes sooner after it.
//!
//! The message is expected after as much time as lay between the two before. It is asked for from a
//! round of request and grant before that on. A forecast comes true when the message comes, and fails
//! when it is late by such a round, or when the connection ends. The budget bounds what failed forecasts cost: asking takes
//! what is asked for from it, a forecast that comes true gives it back and the size of the message, one
//! that fails nothing. So the bytes foreseen in vain are at most [`INITIAL_BUDGET`] more than those that came
//! true. While the budget is spent, or the last forecast of the connection has failed, forecasts are
//! made without asking, and one that comes true counts.
//!
//! A forecast holds until it comes true or fails, and the modem asks again when the grant has passed
//! unused: about once in a round trip of request and grant. So that a message meets a grant sooner, its
//! size is asked for twice, half such a round trip apart.
//!
//! Not modelled: what the messages say; connections that one application opens one after the other.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use units::{ByteCount, Instant, Machine};

/// The budget at the beginning, in bytes.
pub const INITIAL_BUDGET: u64 = 8_192;
/// The greatest budget, in bytes.
const MOST_BUDGET: u64 = 16_384;
/// Bytes of a message that are foreseen at most, one packet: the rest is there when it has left.
const MOST_MESSAGE: u64 = 1_280;
/// Bytes on the hop beyond the message: the headers of its packet, a packet that acknowledges the
/// reply before it, and the last cell of each. A few cells less, and the end of the message waits for
/// another grant.
const OVERHEAD: u64 = 300;
/// A round of request and grant on a geostationary link, with everything that may delay it.
const ROUND: Duration = Duration::from_millis(1_300);
/// The time from the first message of a connection to its second, as long as none had two: the wait for
/// the first grant, a round trip, and no more for the server.
const FIRST_GAP: Duration = Duration::from_millis(1_800);
/// How much longer the first message of a connection takes, whose grant was not foreseen, than the
/// second, whose grant was: the third follows the second so much sooner than that followed the first.
const FIRST_WAIT: Duration = Duration::from_millis(800);
/// Of the budget, what second messages leave to later ones.
const RESERVE: u64 = INITIAL_BUDGET / 2;
/// A first message of more bytes than this is an upload, after which no second one is foreseen.
const LONG_FIRST: u64 = 4_096;
/// How many connections decide whether a message is foreseen.
const REMEMBERED: i8 = 3;
/// The messages of a connection of which is learned whether another one follows: the first ones.
const LEARNED: usize = 3;
/// When a message is asked for a second time: half of the time that a round takes at least, so that
/// the grants of both come in turn.
const SECOND: Duration = Duration::from_millis(300);
/// A message is not foreseen further ahead than this.
const FURTHEST: Duration = Duration::from_secs(10);
/// While more than this waits, nothing is asked for ahead: what waits gets the grants.
const LOADED: ByteCount = ByteCount::new(3_000);
/// Connections that are followed at most; further ones get no forecast.
const MOST_CONNECTIONS: usize = 1_024;

/// Why a forecast wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A foreseen message has not come, or is to be asked for a second time.
    Forecast,
}

/// Forecasts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Forecasts {
    /// How often capacity was asked for, and the message came.
    pub used: u64,
    /// How often capacity was asked for, and the message did not come in time.
    pub unused: u64,
    /// Bytes of the messages that came as foreseen, asked for or not.
    pub true_bytes: ByteCount,
    /// Bytes of the messages that were asked for and did not come.
    pub unused_bytes: ByteCount,
}

impl Forecasts {
    /// The sums of two parts of a hub.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let add = |one: ByteCount, other: ByteCount| ByteCount::new(one.get() + other.get());
        Self {
            used: self.used + other.used,
            unused: self.unused + other.unused,
            true_bytes: add(self.true_bytes, other.true_bytes),
            unused_bytes: add(self.unused_bytes, other.unused_bytes),
        }
    }
}

/// What the connections of a gateway will send next, by connection `K`.
///
/// After each input, read [`Self::foreseen`]; call [`Machine::handle_timeout`] when
/// [`Machine::poll_timeout`] says so.
#[derive(Debug)]
pub struct Forecast<K> {
    connections: BTreeMap<K, Connection>,
    /// When forecasts are due ([`Next::due`]).
    dues: BTreeSet<(Instant, K)>,
    budget: u64,
    /// Bytes asked for ahead now.
    asked: u64,
    habits: Habits,
    counts: Forecasts,
}

/// What connections do after their first messages.
#[derive(Debug, Clone, Copy, Default)]
struct Habits {
    /// For each of the first messages: connections that sent another one after it, less those that
    /// were expected to and did not; of the last few.
    scores: [i8; LEARNED],
    /// The time between the first two messages of the last connection that had two.
    first_gap: Option<Duration>,
}

impl Habits {
    fn score(&mut self, messages: u32) -> Option<&mut i8> {
        self.scores.get_mut((messages as usize).wrapping_sub(1))
    }

    /// Another one came after so many messages.
    fn came(&mut self, messages: u32, gap: Duration) {
        if messages == 1 {
            self.first_gap = Some(gap);
        }
        self.score(messages).into_iter().for_each(|score| *score = (*score + 1).min(REMEMBERED));
    }

    /// None came in time.
    fn failed(&mut self, messages: u32) {
        self.score(messages).into_iter().for_each(|score| *score = (*score - 1).max(-REMEMBERED));
    }

    /// Whether another one is to be expected after so many.
    fn follows(&self, messages: u32) -> bool {
        self.scores.get((messages as usize).wrapping_sub(1)).is_none_or(|score| *score >= 0)
    }
}

/// A connection on which we have sent something.
#[derive(Debug, Clone, Copy)]
struct Connection {
    /// When the last message of ours began.
    began: Instant,
    /// Its bytes so far.
    bytes: u64,
    /// Messages of ours, this one included.
    messages: u32,
    /// Whether the other side has spoken since.
    answered: bool,
    /// The time between the last two messages of ours that the other side's came between.
    gap: Option<Duration>,
    next: Option<Next>,
    /// The last forecast has failed.
    failed: bool,
}

/// A foreseen message.
#[derive(Debug, Clone, Copy)]
struct Next {
    /// When it fails.
    until: Instant,
    /// When to ask next, the first or the second time.
    ask: Option<Instant>,
    /// Size on the hop.
    bytes: u64,
    /// How often it is asked for.
    asked: u64,
}

impl Next {
    /// When something is to be done about it.
    fn due(&self) -> Instant {
        self.ask.map_or(self.until, |ask| ask.min(self.until))
    }

    /// Bytes that are asked for.
    fn all(&self) -> u64 {
        self.bytes * self.asked
    }
}

impl<K> Default for Forecast<K> {
    fn default() -> Self {
        Self {
            connections: BTreeMap::new(),
            dues: BTreeSet::new(),
            budget: INITIAL_BUDGET,
            asked: 0,
            habits: Habits::default(),
            counts: Forecasts::default(),
        }
    }
}

impl<K: Copy + Ord> Forecast<K> {
    /// We send `bytes` on a connection.
    pub fn handle_sent(&mut self, now: Instant, key: K, bytes: usize) {
        self.handle_timeout(now);
        let bytes = bytes as u64;
        let new = Connection::new(now, bytes);
        let has_room = self.connections.len() < MOST_CONNECTIONS;
        match self.connections.get_mut(&key) {
            None if has_room => {
                self.connections.insert(key, new);
                let gap = self.habits.first_gap.unwrap_or(FIRST_GAP);
                let gap = Some(gap).filter(|_| self.habits.follows(1));
                self.foresee(now, key, gap, ROUND);
            }
            None => {}
            Some(known) if !known.answered => {
                known.bytes = known.bytes.saturating_add(bytes);
                // A longer message than it was taken for: the next one may be, too.
                self.resize(key);
            }
            Some(known) => {
                let gap = now.saturating_since(known.began);
                let (next, failed) = (known.next.take(), known.failed);
                self.habits.came(known.messages, gap);
                let messages = known.messages.saturating_add(1);
                let failed = failed && next.is_none();
                let is_sooner = messages == 2 && next.is_some_and(|next| next.asked > 0);
                let ahead = if is_sooner { ROUND + FIRST_WAIT } else { ROUND };
                *known = Connection { gap: Some(gap), failed, messages, ..new };
                next.into_iter().for_each(|next| self.succeed(key, next));
                self.foresee(now, key, Some(gap), ahead);
            }
        }
    }

    /// The other side of a connection has sent something.
    pub fn handle_received(&mut self, now: Instant, key: K) {
        self.handle_timeout(now);
        let Some(known) = self.connections.get_mut(&key).filter(|known| !known.answered) else {
            return;
        };
        known.answered = true;
        if let Some(next) = &mut known.next {
            self.dues.remove(&(next.due(), key));
            next.until = next.until.max(now + ROUND);
            self.dues.insert((next.due(), key));
        }
    }

    /// A connection has ended.
    pub fn remove(&mut self, key: K) {
        self.fail(key);
        self.connections.remove(&key);
    }

    /// What to ask for ahead while so much waits.
    pub fn foreseen(&self, waiting: ByteCount) -> ByteCount {
        ByteCount::new(if waiting > LOADED { 0 } else { self.asked })
    }

    /// Forecasts that were made since the start.
    pub fn counts(&self) -> Forecasts {
        self.counts
    }

    /// Foresees the next message of a connection, a time after the one now, and asks for it so much
    /// before that.
    fn foresee(&mut self, now: Instant, key: K, gap: Option<Duration>, ahead: Duration) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let Some(gap) = gap.filter(|gap| *gap <= FURTHEST) else { return };
        let begin = now + gap.saturating_sub(ahead);
        let ask = (!known.failed && self.habits.follows(known.messages)).then_some(begin);
        let next = Next { until: now + gap + ROUND, ask, bytes: known.size(), asked: 0 };
        known.next = Some(next);
        self.dues.insert((next.due(), key));
        self.handle_timeout(now);
    }

    /// Asks for a foreseen message, the first or the second time.
    fn ask(&mut self, now: Instant, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let is_upload = known.gap.is_none() && known.bytes > LONG_FIRST;
        let reserve = if known.gap.is_none() { RESERVE } else { 0 };
        let Some(next) = known.next.as_mut() else { return };
        self.dues.remove(&(next.due(), key));
        next.ask = (next.asked == 0).then_some(now + SECOND);
        if next.bytes + reserve <= self.budget && !is_upload {
            next.asked += 1;
            self.budget -= next.bytes;
            self.asked += next.bytes;
        } else {
            next.ask = None;
        }
        self.dues.insert((next.due(), key));
    }

    /// Adapts a forecast to the size of the message before.
    fn resize(&mut self, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let size = known.size();
        let Some(next) = known.next.as_mut().filter(|next| next.bytes < size) else { return };
        let more = (size - next.bytes) * next.asked;
        if more <= self.budget {
            next.bytes = size;
            self.budget -= more;
            self.asked += more;
        }
    }

    /// A foreseen message has come.
    fn succeed(&mut self, key: K, next: Next) {
        self.dues.remove(&(next.due(), key));
        self.counts.true_bytes = sum(self.counts.true_bytes, next.bytes);
        self.counts.used += next.asked.min(1);
        self.asked -= next.all();
        self.budget = (self.budget + next.all() + next.bytes).min(MOST_BUDGET);
    }

    /// The foreseen message of a connection, if any, has not come.
    fn fail(&mut self, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let Some(next) = known.next.take() else { return };
        // That there was no second message says nothing about a third.
        known.failed = known.gap.is_some();
        self.habits.failed(known.messages);
        self.dues.remove(&(next.due(), key));
        self.counts.unused += next.asked.min(1);
        self.counts.unused_bytes = sum(self.counts.unused_bytes, next.all());
        self.asked -= next.all();
    }
}

fn sum(bytes: ByteCount, more: u64) -> ByteCount {
    ByteCount::new(bytes.get().saturating_add(more))
}

impl Connection {
    fn new(began: Instant, bytes: u64) -> Self {
        Self { began, bytes, messages: 1, answered: false, gap: None, next: None, failed: false }
    }

    /// Bytes to ask for, for a message like the last one.
    fn size(&self) -> u64 {
        self.bytes.min(MOST_MESSAGE) + OVERHEAD
    }
}

impl<K: Copy + Ord> Machine for Forecast<K> {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        self.dues.first().map(|(at, _)| (*at, Wake::Forecast))
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, key)) = self.dues.first().copied().filter(|(at, _)| *at <= now) {
            let next = self.connections.get(&key).and_then(|known| known.next);
            match next {
                Some(Next { until, .. }) if at < until => self.ask(at, key),
                _ => self.fail(key),
            }
        }
    }
}
