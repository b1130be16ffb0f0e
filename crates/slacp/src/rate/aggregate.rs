//! The sessions of a hub that share a forward link: its rate, and its division among them.
//!
//! Everything that the hub sends over the link goes through one queue. All data sent between two
//! packets of a session, for whichever session, therefore leaves the link between them, and the
//! arrival of those two packets shows the rate of the whole link (`docs/rate.md`, Sessions of one
//! hub). So each member measures all of the link, and paces its part of it. This file keeps the
//! rate on which the members agree, and divides it by their weights and needs.
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

/// Period with which the members are compared, and the shorter one after a member has begun to send
/// or has ended. Both are short against a round trip; the cost is a visit to each member that
/// sends.
const USUAL: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_millis(10);
/// The link's rate counts as known for this time after a member has used it.
const FRESH: Duration = Duration::from_secs(60);
/// Bounds of the change of the rate by one comparison, as factors: one member's train proves
/// little.
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
/// Time constant of [`Membership::pull`], in seconds.
const MEMORY: f64 = 3.0;
/// A member that has pulled the rate down by this much (in logarithms) while the others pulled it
/// up again by half of that has a bottleneck of its own, or does not tell the truth.
const DISPUTED: f64 = 0.1;
/// A shorter queue than this, in seconds, explains nothing: round trips vary by as much.
const HIDDEN: f64 = 0.02;
/// Time for which such a member measures for itself, and the number of times that this doubles.
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

/// Counters of one link for all its sessions: bytes sent, and the turn to measure.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedLink(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    /// Time at which the next train may start, in ns.
    train_at: AtomicU64,
    /// The number of the member that measures a link of unknown rate, plus one; 0 without one.
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

    /// Returns `true` if a member that knows the link may start a train: one member's is enough for
    /// all.
    pub(crate) fn may_start_train(&self, now: Instant) -> bool {
        now.as_nanos() >= self.0.train_at.load(Ordering::Relaxed)
    }

    /// Records the start of a train. The next may follow after the pause.
    pub(crate) fn train_started(&self, now: Instant, pause: Duration) {
        self.0.train_at.store((now + pause).as_nanos(), Ordering::Relaxed);
    }

    /// Returns `true` if a member may measure a link of unknown rate: one does so at a time.
    pub(crate) fn may_measure(&self, member: SessionId) -> bool {
        [0, member.0 + 1].contains(&self.0.measurer.load(Ordering::Relaxed))
    }

    pub(crate) fn set_measurer(&self, member: SessionId) {
        self.0.measurer.store(member.0 + 1, Ordering::Relaxed);
    }

    /// Lets another member measure the link, if the one that does so has not gone on for some time.
    fn pass_on(&self, now: Instant) {
        if self.may_start_train(now) {
            self.0.measurer.store(0, Ordering::Relaxed);
        }
    }
}

/// A member's knowledge of the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Known {
    /// Nothing: the member is still in the start.
    Nothing,
    /// The capacity of its own path, in bit/s.
    Own(f64),
    /// The rate of the whole link, in bit/s.
    Link(f64),
}

/// A member's use and measurements since the last comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Report {
    pub(crate) known: Known,
    /// Bits that it has sent.
    pub(crate) bits: f64,
    /// It always had something to send.
    pub(crate) backlogged: bool,
    /// It has sent nothing and has nothing to send.
    pub(crate) idle: bool,
    /// Upper limit of its rate, in bit/s.
    pub(crate) most: f64,
    /// Sum of the guarantees of its classes in use, in bit/s.
    pub(crate) guaranteed: f64,
    /// Its peer's times are not believed.
    pub(crate) doubted: bool,
    /// The queue that its packets have met by the peer's clock, and how much later than the least
    /// round trip its acknowledgements come by ours; in seconds.
    pub(crate) queue: f64,
    pub(crate) late: f64,
}

impl Report {
    /// Returns `true` if its acknowledgements are late as if its packets had met this queue, of
    /// which its peer's times show nothing. A peer can report false times, but cannot acknowledge a
    /// packet before it has arrived, and the queue of a link delays the packets of all.
    fn hides(&self, queue: f64) -> bool {
        queue > HIDDEN && self.late - self.queue > queue / 2.0
    }
}

/// A member's part of the link until the next comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Grant {
    /// It measures the whole link, of this rate, and uses this share of it.
    Share { rate: f64, share: f64 },
    /// It measures its own path, and uses no more than this of the link, in bit/s.
    Apart { most: f64 },
    /// It has nothing to send, and is left out of comparisons until it has.
    Asleep,
}

/// A member's configuration, use and record in comparisons.
#[derive(Debug)]
struct Membership {
    weight: f64,
    /// Its own guarantee and maximum, in bit/s.
    guaranteed: f64,
    maximum: f64,
    active: bool,
    /// Mean use over about four comparisons, in bit/s.
    usage: f64,
    /// Part of the link that it was given last, 0 to 1.
    share: f64,
    /// Its recent effect on the rate that all agree on (a logarithm, fading with [`MEMORY`]).
    pull: f64,
    /// End of the time for which it measures for itself, and the number of such times.
    apart: Option<Instant>,
    times_apart: u32,
}

impl Membership {
    fn new(share: SessionShare) -> Self {
        let mut member = Self {
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
        member.set_share(share);
        member
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

    /// Its demand in bit/s; without a limit if it always has something to send.
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

/// One shared link and its members. Handed the time; costs nothing while no member sends.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    members: BTreeMap<SessionId, Membership>,
    /// The link's rate in bit/s, and when a member last used it.
    rate: Option<(f64, Instant)>,
    /// The members that send, in the order in which they began to.
    active: Vec<SessionId>,
    compared: Instant,
    /// A member has begun to send or has left, or a weight has changed.
    changed: bool,
}

impl Aggregate {
    pub(crate) fn add(&mut self, id: SessionId, share: SessionShare) {
        self.members.insert(id, Membership::new(share));
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

    /// A new member's part when it begins to send; `None` if it has to measure its path.
    pub(crate) fn join(&self, now: Instant, id: SessionId) -> Option<Grant> {
        let rate = self.rate(now)?;
        let member = self.members.get(&id)?;
        let share = self.share_beside(rate, member, self.active.iter());
        Some(Grant::Share { rate, share })
    }

    /// The share of a member beside others that always have something to send.
    fn share_beside<'a>(
        &self,
        rate: f64,
        member: &Membership,
        others: impl Iterator<Item = &'a SessionId>,
    ) -> f64 {
        let others = others.filter_map(|id| self.members.get(id));
        let own = (member.weight, member.guaranteed);
        let (weights, guaranteed) =
            others.fold(own, |sum, other| (sum.0 + other.weight, sum.1 + other.guaranteed));
        let kept = (rate / guaranteed).min(1.0);
        let rest = (rate - guaranteed).max(0.0);
        (kept * member.guaranteed + rest * member.weight / weights) / rate
    }

    /// Records that a member has begun to send. Returns its part until the members are compared,
    /// which happens soon; `None` if it goes on as it did.
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

    /// Returns `true` if the members should be compared.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let passed = now.saturating_since(self.compared);
        !self.active.is_empty() && (passed >= USUAL || self.changed && passed >= SOON)
    }

    /// The members that send; [`Self::compare`] takes their reports in this order.
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
        // The use says who is active, the agreement sets the rate, and the admission says who
        // shares it: the division needs all three.
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

    /// Changes the common rate by the mean of what the members have learnt since the last
    /// comparison, in which each counts by its share of the link. Finds of trains count in full.
    fn agree(&mut self, now: Instant, passed: Duration, reports: &[Report]) {
        let Some((rate, _)) = self.rate else { return };
        let fading = (-passed.as_secs_f64() / MEMORY).exp();
        let mut all = 0.0;
        let mut change = 0.0;
        let mut found = 0.0_f64;
        for (id, report) in self.active.iter().zip(reports) {
            let Some(member) = self.members.get_mut(id) else { continue };
            member.pull *= fading;
            let Known::Link(seen) = report.known else { continue };
            all += member.share;
            if report.doubted {
                continue;
            }
            let step = (seen / rate).clamp(1.0 / FALL, RISE).ln();
            // More than a round's growth is what a train has found, and is news for all.
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

    /// Sets apart the member that pulls the rate down while the others pull it up; or one of these,
    /// if it hides the queue that the first one sees.
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
        // Of two members, one that reported arrival times without the queue had nearly all of the
        // link, and the honest one was set apart, before this was looked at.
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
            let Known::Own(own) = report.known else { continue };
            let Some(rate) = known else {
                self.rate = Some((own, now));
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

    /// Gives the members their guarantees and divides the rest by weights among those whose demand
    /// exceeds their part; the others have what they demand.
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
            Division::of(rate, &of_senders.filter_map(|(_, wish)| *wish).collect::<Vec<_>>());
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
        let rests = |id: &&SessionId| self.members.get(*id).is_some_and(|member| !member.active);
        self.active.iter().filter(rests).map(|id| (*id, Grant::Asleep)).collect()
    }
}

#[cfg(test)]
mod tests;
