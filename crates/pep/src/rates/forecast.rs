//! Forecasts the next message of a connection on which messages alternate, to request capacity for it
//! ahead.
//!
//! On a link with capacity on demand a request waits for its grant, about a second and more. A client that
//! sends one request after another on a connection sends the next one soon after the reply. So when a
//! message leaves on a connection on which the two sides have taken turns, the next one is foreseen, and
//! counted into the backlog before the reply arrives: a grant takes longer than a reply. The foreseen bytes
//! include the acknowledgement of that reply.
//!
//! The second message of a connection has no earlier pair to go by. It is expected after the time that it
//! took on the last connection with two messages, or after `FIRST_GAP`. Its forecast leaves half of the
//! initial budget to others. `ConnectionHabits` also learns from the first messages of connections whether more
//! follow: where connections end after two, no third one is requested. The first message had to wait for
//! its grant and the second did not, so the third follows the second sooner.
//!
//! A message is expected after as much time as passed between the two before it, and requested one round of
//! request and grant earlier. A forecast comes true when the message leaves, and fails when it is late by
//! such a round, or when the connection ends. The budget bounds the cost of failed forecasts: a request
//! takes its bytes from the budget; a forecast that comes true returns them together with the size of the
//! message, and one that fails returns nothing. So the bytes requested in vain exceed those that came true
//! by at most [`INITIAL_BUDGET`]. While the budget is spent, or after the last forecast of a connection has
//! failed, forecasts are made without a request, and count if they come true.
//!
//! A forecast holds until it comes true or fails, and the modem requests again when the grant has passed
//! unused: about once in a round of request and grant. So that a message meets a grant sooner, its size is
//! requested twice, half such a round apart.
//!
//! Not modelled: contents of messages; connections that an application opens one after the other.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use units::{ByteCount, Instant, Machine};

/// Initial budget in bytes: the most that is requested in vain beyond what came true.
pub const INITIAL_BUDGET: u64 = 8_192;
/// Upper bound of the budget, in bytes.
const MOST_BUDGET: u64 = 16_384;
/// Most bytes of a message that are foreseen: one packet. The rest waits by itself once it has left.
const MOST_MESSAGE: u64 = 1_280;
/// Bytes on the hop beyond the message: the headers of its packet, a packet that acknowledges the reply
/// before it, and the rest of the last cell of each. With a few cells less, the end of the message waits
/// for another grant.
const OVERHEAD: u64 = 300;
/// A round of request and grant on a geostationary link, with all delays that may add to it.
const ROUND: Duration = Duration::from_millis(1_300);
/// Assumed time from the first message of a connection to its second while none is known: the wait for the
/// first grant and a round trip, with no time for the server.
const FIRST_GAP: Duration = Duration::from_millis(1_800);
/// Additional time of the first message of a connection, whose grant was not foreseen: the third follows
/// the second sooner than that followed the first by this much.
const FIRST_WAIT: Duration = Duration::from_millis(800);
/// Part of the budget that second messages leave to later ones.
const RESERVE: u64 = INITIAL_BUDGET / 2;
/// A longer first message, in bytes, is an upload: no second one is foreseen.
const LONG_FIRST: u64 = 4_096;
/// Number of connections that decide whether a message is foreseen.
const REMEMBERED: i8 = 3;
/// Number of first messages for which `ConnectionHabits` learns whether another one follows.
const LEARNED: usize = 3;
/// Delay of the second request: half of the shortest round, so that the grants of both alternate.
const SECOND: Duration = Duration::from_millis(300);
/// Messages further ahead than this are not foreseen.
const FURTHEST: Duration = Duration::from_secs(10);
/// Backlog above which nothing is requested ahead: the backlog gets the grants.
const LOADED: ByteCount = ByteCount::new(3_000);
/// Most connections that are tracked; further ones get no forecast.
const MOST_CONNECTIONS: usize = 1_024;

/// Why a forecast asks to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A foreseen message is late, or a request for it is due.
    Forecast,
}

/// Counters of forecasts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForecastCounts {
    /// Forecasts with a request that came true.
    pub used: u64,
    /// Forecasts with a request that failed.
    pub unused: u64,
    /// Bytes of foreseen messages that came true, requested or not.
    pub true_bytes: ByteCount,
    /// Bytes that were requested for messages that did not come.
    pub unused_bytes: ByteCount,
}

impl ForecastCounts {
    /// Adds the counters of two parts of a hub.
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

/// Forecasts of what the connections of a gateway, identified by `K`, will send next.
///
/// After each input, read [`Self::foreseen`]; call [`Machine::handle_timeout`] when
/// [`Machine::poll_timeout`] says so.
#[derive(Debug)]
pub struct MessageForecast<K> {
    connections: BTreeMap<K, TrackedConnection>,
    /// Times at which forecasts are due ([`ForeseenMessage::due`]).
    dues: BTreeSet<(Instant, K)>,
    budget: u64,
    /// Bytes requested ahead at present.
    asked: u64,
    habits: ConnectionHabits,
    counts: ForecastCounts,
}

/// Learnt behaviour of connections after their first messages.
#[derive(Debug, Clone, Copy, Default)]
struct ConnectionHabits {
    /// For each of the first messages: connections on which another one followed, minus those on which an
    /// expected one did not. Limited to ±`REMEMBERED`, so that the last few connections count.
    scores: [i8; LEARNED],
    /// Time between the first two messages of the last connection that had two.
    first_gap: Option<Duration>,
}

impl ConnectionHabits {
    fn score(&mut self, messages: u32) -> Option<&mut i8> {
        self.scores.get_mut((messages as usize).wrapping_sub(1))
    }

    /// Records that another message followed after this many.
    fn came(&mut self, messages: u32, gap: Duration) {
        if messages == 1 {
            self.first_gap = Some(gap);
        }
        self.score(messages).into_iter().for_each(|score| *score = (*score + 1).min(REMEMBERED));
    }

    /// Records that an expected message did not follow.
    fn failed(&mut self, messages: u32) {
        self.score(messages).into_iter().for_each(|score| *score = (*score - 1).max(-REMEMBERED));
    }

    /// Returns `true` if another message is expected after this many.
    fn follows(&self, messages: u32) -> bool {
        self.scores.get((messages as usize).wrapping_sub(1)).is_none_or(|score| *score >= 0)
    }
}

/// A connection on which this side has sent something.
#[derive(Debug, Clone, Copy)]
struct TrackedConnection {
    /// Time at which this side's last message began.
    began: Instant,
    /// Bytes of that message so far.
    bytes: u64,
    /// Messages of this side, including the last one.
    messages: u32,
    /// `true` if the other side has sent something since.
    answered: bool,
    /// Time between this side's last two messages with one of the other side between them.
    gap: Option<Duration>,
    next: Option<ForeseenMessage>,
    /// `true` if the last forecast has failed.
    failed: bool,
}

/// A foreseen message.
#[derive(Debug, Clone, Copy)]
struct ForeseenMessage {
    /// Time at which the forecast fails.
    until: Instant,
    /// Time of the next request for it, the first or the second.
    ask: Option<Instant>,
    /// Bytes to request, with the overhead on the hop.
    bytes: u64,
    /// Number of requests made for it.
    asked: u64,
}

impl ForeseenMessage {
    /// Time at which it must be handled next.
    fn due(&self) -> Instant {
        self.ask.map_or(self.until, |ask| ask.min(self.until))
    }

    /// Bytes requested for it.
    fn all(&self) -> u64 {
        self.bytes * self.asked
    }
}

impl<K> Default for MessageForecast<K> {
    fn default() -> Self {
        Self {
            connections: BTreeMap::new(),
            dues: BTreeSet::new(),
            budget: INITIAL_BUDGET,
            asked: 0,
            habits: ConnectionHabits::default(),
            counts: ForecastCounts::default(),
        }
    }
}

impl<K: Copy + Ord> MessageForecast<K> {
    /// Handles `bytes` sent by this side on a connection.
    pub fn handle_sent(&mut self, now: Instant, key: K, bytes: usize) {
        // Late forecasts fail before this message can make them true.
        self.handle_timeout(now);
        let bytes = bytes as u64;
        let new = TrackedConnection::new(now, bytes);
        // Asked first, since an entry that is found borrows the map.
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
                // The message is longer than it seemed, so the next one may be longer too.
                self.resize(key);
            }
            Some(known) => {
                let gap = now.saturating_since(known.began);
                let next = known.next.take();
                let failed = known.failed;
                self.habits.came(known.messages, gap);
                let messages = known.messages.saturating_add(1);
                let failed = failed && next.is_none();
                // The second message did not wait for a grant if one had been requested for it.
                let is_sooner = messages == 2 && next.is_some_and(|next| next.asked > 0);
                let ahead = if is_sooner { ROUND + FIRST_WAIT } else { ROUND };
                *known = TrackedConnection { gap: Some(gap), failed, messages, ..new };
                next.into_iter().for_each(|next| self.succeed(key, next));
                self.foresee(now, key, Some(gap), ahead);
            }
        }
    }

    /// Handles data from the other side of a connection.
    pub fn handle_received(&mut self, now: Instant, key: K) {
        self.handle_timeout(now);
        let Some(known) = self.connections.get_mut(&key).filter(|known| !known.answered) else {
            return;
        };
        known.answered = true;
        if let Some(next) = &mut known.next {
            self.dues.remove(&(next.due(), key));
            // The next message follows this reply, however late the reply is.
            next.until = next.until.max(now + ROUND);
            self.dues.insert((next.due(), key));
        }
    }

    /// Handles the end of a connection.
    pub fn remove(&mut self, key: K) {
        self.fail(key);
        self.connections.remove(&key);
    }

    /// Bytes to request ahead while `waiting` bytes wait.
    pub fn foreseen(&self, waiting: ByteCount) -> ByteCount {
        ByteCount::new(if waiting > LOADED { 0 } else { self.asked })
    }

    /// Counters since the start.
    pub fn counts(&self) -> ForecastCounts {
        self.counts
    }

    /// Foresees the next message of a connection `gap` from now; it is requested `ahead` of that time.
    fn foresee(&mut self, now: Instant, key: K, gap: Option<Duration>, ahead: Duration) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let Some(gap) = gap.filter(|gap| *gap <= FURTHEST) else { return };
        let begin = now + gap.saturating_sub(ahead);
        let ask = (!known.failed && self.habits.follows(known.messages)).then_some(begin);
        let next = ForeseenMessage { until: now + gap + ROUND, ask, bytes: known.size(), asked: 0 };
        known.next = Some(next);
        self.dues.insert((next.due(), key));
        // The first request may be due at once.
        self.handle_timeout(now);
    }

    /// Requests capacity for a foreseen message, for the first or the second time.
    fn ask(&mut self, now: Instant, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        // Without a gap this is the forecast of a second message, for which nothing is known yet.
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

    /// Adapts a forecast to the size of the message before it.
    fn resize(&mut self, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let size = known.size();
        let Some(next) = known.next.as_mut().filter(|next| next.bytes < size) else { return };
        let more = (size - next.bytes) * next.asked;
        // Without budget the forecast stays at its old size.
        if more <= self.budget {
            next.bytes = size;
            self.budget -= more;
            self.asked += more;
        }
    }

    /// Handles a foreseen message that was sent.
    fn succeed(&mut self, key: K, next: ForeseenMessage) {
        self.dues.remove(&(next.due(), key));
        self.counts.true_bytes = sum(self.counts.true_bytes, next.bytes);
        self.counts.used += next.asked.min(1);
        self.asked -= next.all();
        // What came true is returned with the size of the message, so that good forecasts earn more of them.
        self.budget = (self.budget + next.all() + next.bytes).min(MOST_BUDGET);
    }

    /// Handles a foreseen message that did not come, if there is one.
    fn fail(&mut self, key: K) {
        let Some(known) = self.connections.get_mut(&key) else { return };
        let Some(next) = known.next.take() else { return };
        // A missing second message says nothing about a third.
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

impl TrackedConnection {
    fn new(began: Instant, bytes: u64) -> Self {
        Self { began, bytes, messages: 1, answered: false, gap: None, next: None, failed: false }
    }

    /// Bytes to request for a message like the last one.
    fn size(&self) -> u64 {
        self.bytes.min(MOST_MESSAGE) + OVERHEAD
    }
}

impl<K: Copy + Ord> Machine for MessageForecast<K> {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        self.dues.first().map(|(at, _)| (*at, Wake::Forecast))
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, key)) = self.dues.first().copied().filter(|(at, _)| *at <= now) {
            let next = self.connections.get(&key).and_then(|known| known.next);
            match next {
                Some(ForeseenMessage { until, .. }) if at < until => self.ask(at, key),
                _ => self.fail(key),
            }
        }
    }
}
