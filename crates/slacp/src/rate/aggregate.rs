//! The sessions of a hub that share a forward link: what the link carries, and how it is divided.
//!
//! Everything that the hub sends over the link goes through one queue. What it has sent between two
//! packets of a session therefore leaves the link between them, whoever it was for, and the arrival
//! of those two packets shows the rate of the whole link (`docs/rate.md`, Sessions of one hub).
//! So each member measures all of the link, and paces its part of it. This file keeps what
//! the members agree on, and divides it by their weights and needs.
//!
//! Does not model links whose capacity depends on whose packets they carry (a MODCOD per terminal):
//! the members then measure a mean.

mod level;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{BitRate, Instant};

use crate::{SessionId, SessionShare};
use level::{Division, Wish};

/// How often the members are compared, and how soon after one begins to send or ends. Short against
/// a round trip; the cost is a visit to each member that sends.
const USUAL: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_millis(10);
/// How long the link's rate counts as known after somebody has used it.
const FRESH: Duration = Duration::from_secs(60);
/// Bounds of what one comparison may change, as factors: one member's train proves little.
const FALL: f64 = 4.0;
const RISE: f64 = 1.5;
/// A rise by this much (a logarithm) at once was found by a train.
const FOUND: f64 = 0.1;
/// Shares of the link in use are taken to be this much at least, together.
const LEAST_SHARE: f64 = 0.01;
/// Weight of one comparison in the mean use of a member that sends less than it may, and the
/// headroom it has above that.
const USE_GAIN: f64 = 0.25;
const HEADROOM: f64 = 1.25;
/// Time constant of [`Standing::pull`], in seconds.
const MEMORY: f64 = 3.0;
/// A member that has pulled the rate down by this much (in logarithms) while the others pulled it
/// up again by half of that has a bottleneck of its own, or does not tell the truth.
const DISPUTED: f64 = 0.1;
/// A shorter queue than this, in seconds, explains nothing: round trips vary by as much.
const HIDDEN: f64 = 0.02;
/// How long it measures for itself then, and how often that doubles.
const APART: Duration = Duration::from_secs(10);
const DOUBLINGS: u32 = 6;
/// A member whose own path carries less than this fraction of its part is held up by that path.
const SLOWER: f64 = 0.75;

/// Names sessions of a hub that share a forward link ([`crate::Endpoint::set_aggregates`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AggregateId(Arc<str>);

impl From<&str> for AggregateId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

/// What all sessions send over one link, counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedLink(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    /// When the next train may start, in ns.
    train_at: AtomicU64,
    /// The number of the member that measures a link that nobody knows yet, plus one; 0 for none.
    measurer: AtomicU64,
}

impl SharedLink {
    /// Counts a packet; returns all bytes sent up to and including it.
    pub(crate) fn sent(&self, bytes: u64) -> u64 {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Whether a member that knows the link may start a train: one member's is enough for all.
    pub(crate) fn may_start_train(&self, now: Instant) -> bool {
        now.as_nanos() >= self.0.train_at.load(Ordering::Relaxed)
    }

    /// Records the start of a train. The next may follow after the pause.
    pub(crate) fn train_started(&self, now: Instant, pause: Duration) {
        self.0.train_at.store((now + pause).as_nanos(), Ordering::Relaxed);
    }

    /// Whether a member may measure a link that nobody knows yet: one does so at a time.
    pub(crate) fn may_measure(&self, member: SessionId) -> bool {
        [0, member.0 + 1].contains(&self.0.measurer.load(Ordering::Relaxed))
    }

    pub(crate) fn set_measurer(&self, member: SessionId) {
        self.0.measurer.store(member.0 + 1, Ordering::Relaxed);
    }

    /// Lets another measure the link, if the one that does so has not gone on for long.
    fn pass_on(&self, now: Instant) {
        if self.may_start_train(now) {
            self.0.measurer.store(0, Ordering::Relaxed);
        }
    }
}

/// What a member knows of the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Known {
    /// Nothing yet.
    Nothing,
    /// The capacity of its own path, in bit/s.
    Own(f64),
    /// The rate of the whole link, in bit/s.
    Link(f64),
}

/// What a member has done since the last comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Report {
    pub(crate) known: Known,
    /// Bits that it has sent.
    pub(crate) bits: f64,
    /// Whether it always had something to send.
    pub(crate) backlogged: bool,
    /// Whether it has sent nothing and has nothing to send.
    pub(crate) idle: bool,
    /// Upper limit of its rate, in bit/s.
    pub(crate) most: f64,
    /// What is guaranteed to its classes in use, in bit/s.
    pub(crate) guaranteed: f64,
    /// Whether its peer's times are not believed.
    pub(crate) doubted: bool,
    /// The queue that its packets have met by the peer's clock, and how much later than the least
    /// round trip its acknowledgements come by ours; in seconds.
    pub(crate) queue: f64,
    pub(crate) late: f64,
}

impl Report {
    /// Whether its acknowledgements are late as if its packets had met this queue, of which its peer's
    /// times show nothing. A peer can report false times, but can acknowledge nothing before it has
    /// arrived, and the queue of a link holds up the packets of all.
    fn hides(&self, queue: f64) -> bool {
        queue > HIDDEN && self.late - self.queue > queue / 2.0
    }
}

/// What becomes of a member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Grant {
    /// It measures the whole link, of this rate, and uses this share of it.
    Share { rate: f64, share: f64 },
    /// It measures its own path, and uses no more than this of the link, in bit/s.
    Apart { most: f64 },
    /// It has nothing to send, and is not asked until it has.
    Asleep,
}

/// A member.
#[derive(Debug)]
struct Standing {
    weight: f64,
    /// Its own guarantee and maximum, in bit/s.
    guaranteed: f64,
    maximum: f64,
    active: bool,
    /// Mean use, in bit/s.
    usage: f64,
    share: f64,
    /// By how much it has lately changed the rate that all agree on (a logarithm).
    pull: f64,
    /// Until when it measures for itself, and how often that has happened.
    apart: Option<Instant>,
    times_apart: u32,
}

impl Standing {
    fn new(share: SessionShare) -> Self {
        let mut standing = Self {
            weight: 1.0,
            guaranteed: 0.0,
            maximum: f64::INFINITY,
            active: false,
            usage: 0.0,
            share: 0.0,
            pull: 0.0,
            apart: None,
            times_apart: 0,
        };
        standing.set_share(share);
        standing
    }

    fn set_share(&mut self, share: SessionShare) {
        let bits = |rate: BitRate| rate.bits_per_second() as f64;
        self.weight = f64::from(share.weight.max(1));
        self.guaranteed = share.guaranteed.map_or(0.0, bits);
        self.maximum = share.maximum.map_or(f64::INFINITY, bits);
    }

    fn wish(&self, report: &Report) -> Wish {
        let guaranteed = self.guaranteed.max(report.guaranteed);
        Wish { weight: self.weight, demand: self.demand(report), guaranteed }
    }

    /// How much it wants, in bit/s; no limit if it always has something to send.
    fn demand(&self, report: &Report) -> f64 {
        let wanted = if report.backlogged { f64::INFINITY } else { HEADROOM * self.usage };
        match report.known {
            Known::Own(capacity) if self.apart.is_some() => wanted.min(capacity),
            _ => wanted,
        }
        .min(report.most)
        .min(self.maximum)
    }

    fn set_apart(&mut self, now: Instant) {
        self.apart = Some(now + APART * (1 << self.times_apart.min(DOUBLINGS)));
        self.times_apart += 1;
        self.pull = 0.0;
    }
}

/// One shared link and its members. Handed the time; costs nothing while nobody sends.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    members: BTreeMap<SessionId, Standing>,
    /// The link's rate in bit/s, and when somebody last used it.
    rate: Option<(f64, Instant)>,
    /// The members that send.
    active: Vec<SessionId>,
    compared: Instant,
    /// Somebody has begun to send, or a weight has changed.
    changed: bool,
}

impl Aggregate {
    pub(crate) fn add(&mut self, id: SessionId, share: SessionShare) {
        self.members.insert(id, Standing::new(share));
    }

    pub(crate) fn remove(&mut self, id: SessionId) {
        self.members.remove(&id);
        self.active.retain(|active| *active != id);
        self.changed = true;
    }

    pub(crate) fn set_share(&mut self, id: SessionId, share: SessionShare) {
        if let Some(member) = self.members.get_mut(&id) {
            member.set_share(share);
            self.changed = true;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The link's rate in bit/s, if it was in use lately.
    pub(crate) fn rate(&self, now: Instant) -> Option<f64> {
        self.rate.filter(|(_, used)| now.saturating_since(*used) <= FRESH).map(|(rate, _)| rate)
    }

    /// What a new member may use when it begins to send; `None` if it has to measure its path.
    pub(crate) fn join(&self, now: Instant, id: SessionId) -> Option<Grant> {
        let (rate, member) = (self.rate(now)?, self.members.get(&id)?);
        let share = self.share_beside(rate, member, self.active.iter());
        Some(Grant::Share { rate, share })
    }

    /// The share of a member beside others that always have something to send.
    fn share_beside<'a>(
        &self,
        rate: f64,
        member: &Standing,
        others: impl Iterator<Item = &'a SessionId>,
    ) -> f64 {
        let others = others.filter_map(|id| self.members.get(id));
        let own = (member.weight, member.guaranteed);
        let (weights, guaranteed) =
            others.fold(own, |sum, it| (sum.0 + it.weight, sum.1 + it.guaranteed));
        let kept = (rate / guaranteed).min(1.0);
        let rest = (rate - guaranteed).max(0.0);
        (kept * member.guaranteed + rest * member.weight / weights) / rate
    }

    /// A member has begun to send. Returns what it may use until the members are compared, which
    /// happens soon; `None` if it goes on as it did.
    pub(crate) fn wake(&mut self, now: Instant, id: SessionId) -> Option<Grant> {
        let rate = self.rate(now);
        let member = self.members.get_mut(&id)?;
        if core::mem::replace(&mut member.active, true) {
            return None;
        }
        let together = member.apart.is_none();
        self.active.push(id);
        self.changed = true;
        let rate = rate?;
        let others = self.active.iter().filter(|other| **other != id);
        let share = self.share_beside(rate, self.members.get(&id)?, others);
        let most = rate * share;
        Some(if together { Grant::Share { rate, share } } else { Grant::Apart { most } })
    }

    /// Whether the members should be compared.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let passed = now.saturating_since(self.compared);
        !self.active.is_empty() && (passed >= USUAL || self.changed && passed >= SOON)
    }

    /// The members that send.
    pub(crate) fn active(&self) -> &[SessionId] {
        &self.active
    }

    /// Compares the members that send, given the report of each in the order of
    /// [`Self::active`], and divides the link anew.
    pub(crate) fn compare(
        &mut self,
        now: Instant,
        link: &SharedLink,
        reports: &[Report],
    ) -> Vec<(SessionId, Grant)> {
        link.pass_on(now);
        debug_assert_eq!(self.active.len(), reports.len(), "a report of each");
        let passed = now.saturating_since(self.compared).min(FRESH);
        (self.compared, self.changed) = (now, false);
        self.measure_use(passed, reports);
        self.agree(now, passed, reports);
        self.admit(now, reports);
        let grants = self.divide(reports);
        let members = &mut self.members;
        self.active.retain(|id| members.get(id).is_some_and(|member| member.active));
        grants
    }

    fn measure_use(&mut self, passed: Duration, reports: &[Report]) {
        let seconds = passed.as_secs_f64().max(1e-3);
        for (id, report) in self.active.iter().zip(reports) {
            let Some(member) = self.members.get_mut(id) else { continue };
            member.usage += (report.bits / seconds - member.usage) * USE_GAIN;
            member.active = !report.idle;
        }
    }

    /// What the members have learnt since the last comparison changes the common rate by the mean,
    /// in which each counts by its share of the link, except what trains have found.
    fn agree(&mut self, now: Instant, passed: Duration, reports: &[Report]) {
        let Some((rate, _)) = self.rate else { return };
        let fading = (-passed.as_secs_f64() / MEMORY).exp();
        let (mut all, mut change, mut found) = (0.0, 0.0, 0.0_f64);
        for (id, report) in self.active.iter().zip(reports) {
            let Some(member) = self.members.get_mut(id) else { continue };
            member.pull *= fading;
            let Known::Link(seen) = report.known else { continue };
            all += member.share;
            if report.doubted {
                continue;
            }
            let step = (seen / rate).clamp(1.0 / FALL, RISE).ln();
            // More than a round's growth is what a train has found, and news for all.
            if step > FOUND {
                found = step.max(found);
                member.pull += step;
            } else {
                member.pull += step * member.share;
                change += step * member.share;
            }
        }
        if all > 0.0 {
            let mean = change / all.max(LEAST_SHARE);
            self.rate = Some((rate * (mean + found).exp(), now));
        }
        self.settle_disputes(now, reports);
    }

    /// Sets apart who pulls the rate down while the others pull it up; or one of these, if it hides
    /// the queue that the first one sees.
    fn settle_disputes(&mut self, now: Instant, reports: &[Report]) {
        let pulls: Vec<(SessionId, f64, &Report)> = self
            .active
            .iter()
            .zip(reports)
            .filter_map(|(id, report)| Some((*id, self.members.get(id)?.pull, report)))
            .collect();
        let up: f64 = pulls.iter().map(|(_, pull, _)| pull.max(0.0)).sum();
        let down = pulls.iter().filter(|(_, pull, _)| *pull < -DISPUTED && up > -pull / 2.0);
        let Some(lowest) = down.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        let hides =
            |(_, pull, report): &&(_, f64, &Report)| *pull > 0.0 && report.hides(lowest.2.queue);
        let hider = pulls.iter().filter(hides).max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some(member) = self.members.get_mut(&hider.unwrap_or(lowest).0) {
            member.set_apart(now);
        }
    }

    /// Lets members join the common measurement, or first learns the rate from one.
    fn admit(&mut self, now: Instant, reports: &[Report]) {
        for (id, report) in self.active.iter().zip(reports) {
            let known = self.rate(now);
            let Some(member) = self.members.get_mut(id) else { continue };
            if report.doubted {
                member.apart = Some(member.apart.map_or(now, |until| until.max(now)));
                continue;
            }
            let (Known::Own(own), Some(rate)) = (report.known, known) else {
                if let Known::Own(own) = report.known {
                    self.rate = Some((own, now));
                }
                continue;
            };
            let slower = own < SLOWER * rate * member.share;
            match member.apart {
                Some(until) if until <= now && slower => member.set_apart(now),
                Some(until) if until <= now => member.apart = None,
                None if slower => member.set_apart(now),
                _ => {}
            }
        }
    }

    /// Gives the members what is guaranteed to them and divides the rest by weights among those who
    /// want more than they get; the others have what they want.
    fn divide(&mut self, reports: &[Report]) -> Vec<(SessionId, Grant)> {
        let Some((rate, _)) = self.rate else { return self.asleep() };
        let wishes: Vec<Option<Wish>> = self
            .active
            .iter()
            .zip(reports)
            .map(|(id, report)| Some(self.members.get(id)?.wish(report)))
            .collect();
        let sends = |id: &SessionId| self.members.get(id).is_some_and(|member| member.active);
        let of_senders = self.active.iter().zip(&wishes).filter(|(id, _)| sends(id));
        let division =
            Division::of(rate, &of_senders.filter_map(|(_, it)| *it).collect::<Vec<_>>());
        let mut grants = Vec::with_capacity(self.active.len());
        for (id, wish) in self.active.iter().zip(wishes) {
            let Some((member, wish)) = self.members.get_mut(id).zip(wish) else { continue };
            member.share = (division.part(wish.weight, wish.guaranteed) / rate).min(1.0);
            let share = member.share;
            let grant = match member.apart {
                _ if !member.active => Grant::Asleep,
                Some(_) => Grant::Apart { most: rate * share },
                None => Grant::Share { rate, share },
            };
            grants.push((*id, grant));
        }
        grants
    }

    /// Before the rate is known, members only fall asleep.
    fn asleep(&self) -> Vec<(SessionId, Grant)> {
        let idle =
            self.active.iter().filter(|id| self.members.get(id).is_some_and(|it| !it.active));
        idle.map(|id| (*id, Grant::Asleep)).collect()
    }
}

#[cfg(test)]
mod tests;
