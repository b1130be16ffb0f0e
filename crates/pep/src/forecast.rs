//! Capacity to ask for ahead: the next message of a connection on which messages alternate.
//!
//! On a link with capacity on demand a request waits for its grant, about a second and more. Whoever
//! sends request after request on one connection sends the next one soon after the reply. So when a
//! message leaves on a connection on which the two sides have taken turns, its next one is foreseen
//! and counted into what waits, before the reply is there: a grant takes longer than a reply. What is
//! foreseen includes the acknowledgement of that reply.
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
    counts: Forecasts,
}

/// A connection on which we have sent something.
#[derive(Debug, Clone, Copy)]
struct Connection {
    /// When the last message of ours began.
    began: Instant,
    /// Its bytes so far.
    bytes: u64,
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
            None if has_room => drop(self.connections.insert(key, new)),
            None => {}
            Some(known) if !known.answered => {
                known.bytes = known.bytes.saturating_add(bytes);
                // A longer message than it was taken for: the next one may be, too.
                self.resize(key);
            }
            Some(known) => {
                let gap = now.saturating_since(known.began);
                let (next, failed) = (known.next.take(), known.failed);
                *known = Connection { gap: Some(gap), failed: failed && next.is_none(), ..new };
                next.into_iter().for_each(|next| self.succeed(key, next));
                self.foresee(now, key);
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

    /// Foresees the next message of a connection.
    fn foresee(&mut self, now: Instant, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let Some(gap) = known.gap.filter(|gap| *gap <= FURTHEST) else { return };
        let begin = now + gap.saturating_sub(ROUND);
        let ask = (!known.failed).then_some(begin);
        let next = Next { until: now + gap + ROUND, ask, bytes: known.size(), asked: 0 };
        known.next = Some(next);
        self.dues.insert((next.due(), key));
        self.handle_timeout(now);
    }

    /// Asks for a foreseen message, the first or the second time.
    fn ask(&mut self, now: Instant, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let Some(next) = known.next.as_mut() else { return };
        self.dues.remove(&(next.due(), key));
        next.ask = (next.asked == 0).then_some(now + SECOND);
        if next.bytes <= self.budget {
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
        known.failed = true;
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
        Self { began, bytes, answered: false, gap: None, next: None, failed: false }
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
