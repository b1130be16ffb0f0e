//! Measurement by a session that shares its link with others of its hub: it measures the link
//! instead of its own path, and uses a part of it.

use core::time::Duration;

use units::{ByteCount, Instant};

use super::cruise::{Cruise, Initial, look};
use super::{Auto, Member, Phase, SLOWEST};
use crate::SessionId;
use crate::rate::aggregate::{Grant, Known, Report, SharedLink};

/// A member that begins to measure a link of unknown rate, and does not go on, is followed by the
/// next after this and two round trips.
const PATIENCE: Duration = Duration::from_secs(1);

impl Auto {
    /// Makes the session share a link, or measure its own path if that is `None`.
    pub(crate) fn set_link(&mut self, now: Instant, link: Option<(SessionId, SharedLink)>) {
        self.go_apart(now);
        self.member = link.map(|(id, link)| Member::new(id, link));
    }

    /// Returns `true`, once, if the session has begun to send after it fell asleep
    /// ([`Grant::Asleep`]).
    pub(crate) fn has_woken(&mut self) -> bool {
        let Some(member) = &mut self.member else { return false };
        let woken = member.asleep && member.sent > 0;
        member.asleep &= !woken;
        woken
    }

    /// The session's use and measurements since the last report; `None` if it shares no link.
    pub(crate) fn report(&mut self, guaranteed: f64) -> Option<Report> {
        let most = self.ceiling;
        let doubted = self.trust.is_doubted();
        let known = self.known();
        let queue = self.queue().as_secs_f64();
        let late = self.late.as_secs_f64();
        let member = self.member.as_mut()?;
        let bits = core::mem::take(&mut member.sent) as f64 * 8.0;
        let idle = bits == 0.0 && member.resting;
        let backlogged = !member.limited;
        member.limited = member.resting;
        Some(Report { known, bits, backlogged, idle, most, guaranteed, doubted, queue, late })
    }

    fn known(&self) -> Known {
        match &self.phase {
            Phase::Start(_) => Known::Nothing,
            Phase::Cruise(cruise) if self.measures_link() => Known::Link(cruise.capacity()),
            Phase::Cruise(cruise) => Known::Own(cruise.capacity()),
        }
    }

    /// Applies the session's part of the link.
    pub(crate) fn take(&mut self, now: Instant, grant: Grant) {
        match grant {
            Grant::Share { rate, share } => self.set_capacity(now, rate, share),
            Grant::Apart { most } => {
                self.go_apart(now);
                self.member.iter_mut().for_each(|member| member.most = most.max(SLOWEST));
            }
            Grant::Asleep => {
                self.member.iter_mut().for_each(|member| member.asleep = true);
                return;
            }
        }
        self.set_rate(now);
    }

    /// Measures the whole link from now on, if it has not done so yet, and uses this share of it.
    fn set_capacity(&mut self, now: Instant, rate: f64, share: f64) {
        let share = share.max(SLOWEST / rate.max(SLOWEST));
        let Some(member) = self.member.as_mut() else { return };
        member.share = share;
        if member.whole_from.is_none() {
            // Packets so far counted the session's own bytes, and their arrivals show its own
            // share.
            (member.whole_from, member.most) = (Some(self.next), f64::INFINITY);
            self.arrivals.forget();
            self.train = None;
            self.phase = Phase::Cruise(Box::new(Cruise::new(
                now,
                Initial::alone(rate, f64::INFINITY),
                self.law,
            )));
            self.measured_at = Some(now);
        }
        if let Phase::Cruise(cruise) = &mut self.phase {
            cruise.set_capacity(rate, share);
        }
    }

    /// Goes on with its share as the capacity of its own path.
    fn go_apart(&mut self, now: Instant) {
        if !self.measures_link() {
            return;
        }
        self.measure_own_path();
        if let Phase::Cruise(cruise) = &self.phase {
            let own = Cruise::new(now, Initial::alone(cruise.share(), self.ceiling), self.law);
            self.phase = Phase::Cruise(Box::new(own));
        }
    }

    /// Counts from now on only what the session itself sends.
    pub(super) fn measure_own_path(&mut self) {
        let Some(member) = &mut self.member else { return };
        if member.whole_from.take().is_some() {
            member.share = 1.0;
            self.first_own = self.next;
            self.arrivals.forget();
            self.train = None;
        }
    }

    pub(super) fn measures_link(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.whole_from.is_some())
    }

    /// The number from which on packets count the bytes of what is measured now, path or link.
    pub(super) fn comparable_from(&self) -> u64 {
        let whole = self.member.as_ref().and_then(|member| member.whole_from);
        whole.unwrap_or(self.first_own)
    }

    /// Upper limit of its rate, in bit/s, beside others on a shared link.
    pub(super) fn most(&self) -> f64 {
        self.member.as_ref().map_or(f64::INFINITY, |member| member.most)
    }

    /// All bytes sent over what the session measures.
    pub(super) fn total(&self) -> u64 {
        match &self.member {
            Some(member) if self.measures_link() => member.link.total(),
            _ => self.sent,
        }
    }

    /// Counts a packet that leaves; returns [`Self::total`] with it.
    pub(super) fn count(&mut self, bytes: ByteCount) -> u64 {
        self.member.iter_mut().for_each(|member| _ = member.sent(bytes.get()));
        self.total()
    }

    /// The bytes that a packet of a train stands for: on a shared link also those that others have
    /// sent since the packet before.
    pub(super) fn spread(&mut self, size: u16) -> u32 {
        let whole = self.measures_link();
        let Some(train) = self.train.as_ref().filter(|train| train.is_leaving()) else {
            return size.into();
        };
        let first = train.is_empty();
        let member = self.member.as_mut().filter(|_| whole);
        member.map_or_else(|| size.into(), |member| member.spread(first, size))
    }

    /// Returns `true` if a train may start. While one member measures a shared link, the others
    /// need not.
    pub(super) fn may_start_train(&self, now: Instant) -> bool {
        let whole = self.measures_link();
        let member = self.member.as_ref().filter(|_| whole);
        member.is_none_or(|member| member.link.may_start_train(now)) && self.may_measure()
    }

    /// Returns `true` if a session that does not know the link yet may measure it, alone.
    pub(super) fn may_measure(&self) -> bool {
        let starting = matches!(self.phase, Phase::Start(_));
        let member = self.member.as_ref().filter(|_| starting);
        member.is_none_or(|member| member.link.may_measure(member.id))
    }

    /// Records on the link that a train of this session starts, so that others wait for its result.
    pub(super) fn train_started(&self, now: Instant) {
        let Some(member) = &self.member else { return };
        // In the start, trains of one member follow each other until the rate is known.
        if let Phase::Start(_) = self.phase {
            member.link.set_measurer(member.id);
            member.link.train_started(now, self.rtt * 2 + PATIENCE);
        } else if self.measures_link() {
            member.link.train_started(now, self.rtt.max(look(self.rtt) * 2));
        }
    }
}
