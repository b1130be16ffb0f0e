//! Indices of the sessions that have something to do, by time or turn. They keep the cost of an
//! endpoint proportional to the events, not to the number of sessions.

use std::collections::BTreeSet;

use units::{ByteCount, Instant, earliest};

use super::share::ShareLimits;
use crate::session::{Session, Wake};
use crate::{SessionId, SessionShare};

/// The next actions of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct NextActions {
    wake: Option<(Instant, Wake)>,
    /// The time from which it has something to send.
    send: Option<(Instant, Wake)>,
    /// The time from which the guarantee of a class with data puts it before others.
    claim: Option<Instant>,
    /// It has an event, or a packet, for the owner.
    event: bool,
    packet: bool,
    /// Time of the oldest entry in its event log.
    log: Option<Instant>,
}

impl NextActions {
    pub(super) fn of(session: &Session) -> Self {
        Self {
            wake: session.poll_timeout(),
            send: session.send_time(),
            claim: session.class_claim(),
            event: session.has_event(),
            packet: session.has_packet(),
            log: session.log().oldest(),
        }
    }

    /// Delays sending until `open_at`.
    pub(super) fn not_before(mut self, open_at: Instant) -> Self {
        self.send = self.send.map(|(time, why)| (time.max(open_at), why));
        self
    }
}

/// The set that holds a session with a guarantee that may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuaranteeClaim {
    /// In [`SessionSchedule::claims_to_come`], until this time.
    From(Instant),
    /// In [`SessionSchedule::claims`].
    Now,
}

/// The queue that holds a session that may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum QueuePosition {
    #[default]
    Nowhere,
    /// Waiting in [`SessionSchedule::turns`].
    Turns,
    /// In its turn, which goes on ([`SessionSchedule::run`]).
    Run,
}

/// The index entries of one session, stored beside the session.
#[derive(Debug)]
pub(super) struct ScheduleEntry {
    wants: NextActions,
    place: QueuePosition,
    /// The virtual start time of its next packet, or the earliest one if it has none.
    next: u64,
    /// The same among sessions that claim their guarantee.
    next_claim: u64,
    claim: Option<GuaranteeClaim>,
    limits: ShareLimits,
}

impl ScheduleEntry {
    pub(super) fn new() -> Self {
        Self {
            wants: NextActions::default(),
            place: QueuePosition::Nowhere,
            next: 0,
            next_claim: 0,
            claim: None,
            limits: ShareLimits::new(SessionShare::default()),
        }
    }

    /// Returns whether it is queued or in its turn.
    fn is_queued(&self) -> bool {
        self.place != QueuePosition::Nowhere
    }

    /// Its next actions, as filed in the indices.
    pub(super) fn wants(&self) -> NextActions {
        self.wants
    }

    /// Its share of the link, and the use of that.
    pub(super) fn limits(&self) -> &ShareLimits {
        &self.limits
    }

    /// Sets the sum of its classes' guarantees, in bit/s.
    pub(super) fn set_classes(&mut self, bits: u64) {
        self.limits.set_classes(bits);
    }
}

/// Fixed point: steps of virtual time per byte and unit of weight.
pub(crate) const STEPS: u64 = 256;
/// The same, per byte and bit/s of a guarantee.
const CLAIM_STEPS: u64 = 256_000_000;

/// Ordered sets with at most one entry per session each. Moving an entry costs one removal and one
/// insertion, and the first entry is always the exact minimum.
pub(super) struct SessionSchedule {
    wakes: BTreeSet<(Instant, SessionId)>,
    /// Sessions whose time to send is still to come.
    senders: BTreeSet<(Instant, SessionId)>,
    /// Sessions that may send, by the virtual start times of their packets. This is start-time fair
    /// queueing, as between classes (`scheduler/shares.rs`), but in an ordered set because there
    /// may be thousands of sessions.
    turns: BTreeSet<(u64, SessionId)>,
    /// Virtual time: the start time of the packet that began the last run.
    virtual_now: u64,
    /// The session that sends several packets in its turn, and the bytes left to it.
    run: Option<(SessionId, u64)>,
    /// The virtual start time of its next packet while it is not in `turns`.
    run_next: Option<u64>,
    /// Sessions of `turns` whose guarantee will put them before others, by the time from which it
    /// does.
    claims_to_come: BTreeSet<(Instant, SessionId)>,
    /// Sessions whose guarantee puts them before others now, by separate virtual start times
    /// weighted by the guarantees: if the guarantees exceed the rate, they share it in proportion.
    claims: BTreeSet<(u64, SessionId)>,
    /// Virtual time among the claims.
    claims_now: u64,
    events: BTreeSet<SessionId>,
    packets: BTreeSet<SessionId>,
    logs: BTreeSet<(Instant, SessionId)>,
}

impl SessionSchedule {
    pub(super) fn new() -> Self {
        Self {
            wakes: BTreeSet::new(),
            senders: BTreeSet::new(),
            turns: BTreeSet::new(),
            virtual_now: 0,
            run: None,
            run_next: None,
            claims_to_come: BTreeSet::new(),
            claims: BTreeSet::new(),
            claims_now: 0,
            events: BTreeSet::new(),
            packets: BTreeSet::new(),
            logs: BTreeSet::new(),
        }
    }

    /// Files the next actions of a session, in place of its previous entry.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        id: SessionId,
        entry: &mut ScheduleEntry,
        wants: NextActions,
    ) {
        let old = core::mem::replace(&mut entry.wants, wants);
        if old.send.is_none() && wants.send.is_some() {
            entry.limits.start_backlog(now);
        }
        let time = |at: Option<(Instant, Wake)>| at.map(|(time, _)| time);
        move_entry(&mut self.wakes, id, time(old.wake), time(wants.wake));
        move_entry(&mut self.logs, id, old.log, wants.log);
        set_entry(&mut self.events, id, old.event, wants.event);
        set_entry(&mut self.packets, id, old.packet, wants.packet);
        let before = time(old.send).filter(|_| !entry.is_queued());
        let after = time(wants.send).filter(|time| !entry.is_queued() || *time > now);
        if after.is_some() || wants.send.is_none() {
            self.dequeue(id, entry);
        } else if entry.is_queued() && old.claim != wants.claim {
            self.withdraw_claim(id, entry);
            self.file_claim(id, entry);
        }
        move_entry(&mut self.senders, id, before, after);
    }

    /// Removes and returns the next session whose time to send has come. The caller queues it.
    pub(super) fn take_sender(&mut self, now: Instant) -> Option<SessionId> {
        let (_, id) = self.senders.first().copied().filter(|(time, _)| *time <= now)?;
        self.senders.pop_first();
        Some(id)
    }

    /// Queues a session for its turn. It starts at the current virtual time at the earliest, so
    /// that an idle session saves nothing up.
    pub(super) fn queue(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        debug_assert!(entry.claim.is_none(), "queued once");
        entry.next = entry.next.max(self.virtual_now);
        entry.place = QueuePosition::Turns;
        self.turns.insert((entry.next, id));
        self.file_claim(id, entry);
    }

    fn file_claim(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        if let Some(at) = entry.limits.claims_at(entry.wants.claim) {
            entry.claim = Some(GuaranteeClaim::From(at));
            self.claims_to_come.insert((at, id));
        }
    }

    fn withdraw_claim(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        match entry.claim.take() {
            Some(GuaranteeClaim::From(at)) => _ = self.claims_to_come.remove(&(at, id)),
            Some(GuaranteeClaim::Now) => _ = self.claims.remove(&(entry.next_claim, id)),
            None => {}
        }
    }

    /// The virtual start time of the next packet; 0 if a guarantee puts it before others.
    pub(super) fn next_turn(&self) -> Option<u64> {
        let first = self.turns.first().map(|(next, _)| *next);
        if self.claims.is_empty() { first.into_iter().chain(self.run_next).min() } else { Some(0) }
    }

    /// Advances virtual time to that of other parts of the hub, while nothing waits here.
    pub(super) fn catch_up(&mut self, others: Option<u64>) {
        let nothing_waits = self.turns.is_empty() && self.run_next.is_none();
        if let Some(others) = others.filter(|_| nothing_waits) {
            self.virtual_now = self.virtual_now.max(others);
        }
    }

    /// Removes a session from the turns.
    pub(super) fn dequeue(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        match core::mem::take(&mut entry.place) {
            QueuePosition::Nowhere => {}
            QueuePosition::Turns => _ = self.turns.remove(&(entry.next, id)),
            QueuePosition::Run => self.run_next = None,
        }
        self.withdraw_claim(id, entry);
    }

    /// Removes and returns the next session whose guarantee puts it before others by `now`. The
    /// caller files its claim.
    pub(super) fn take_claim(&mut self, now: Instant) -> Option<SessionId> {
        let (_, id) = self.claims_to_come.first().copied().filter(|(time, _)| *time <= now)?;
        self.claims_to_come.pop_first();
        Some(id)
    }

    /// Puts a session before those without a claim.
    pub(super) fn claim(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        entry.next_claim = entry.next_claim.max(self.claims_now);
        entry.claim = Some(GuaranteeClaim::Now);
        self.claims.insert((entry.next_claim, id));
    }

    /// The session that sends next: one with a claim if there is any. A run continues while its
    /// session has packets; it is short enough not to delay others.
    pub(super) fn turn<'a>(
        &self,
        entry: impl Fn(SessionId) -> Option<&'a ScheduleEntry>,
    ) -> Option<SessionId> {
        let goes_on = |id: &SessionId| entry(*id).is_some_and(ScheduleEntry::is_queued);
        let run = self.run.filter(|(_, left)| *left > 0).map(|(id, _)| id).filter(goes_on);
        run.or_else(|| self.claims.first().or_else(|| self.turns.first()).map(|(_, id)| *id))
    }

    /// Bytes left in the session's turn; 0 if it is not running.
    pub(super) fn left_in_run(&self, id: SessionId) -> u64 {
        self.run.filter(|(runs, _)| *runs == id).map_or(0, |(_, left)| left)
    }

    /// Charges a session for the bytes that it sent in its turn of `quantum` bytes.
    pub(super) fn spend(
        &mut self,
        now: Instant,
        id: SessionId,
        entry: &mut ScheduleEntry,
        (bytes, quantum): (u64, u64),
    ) {
        let run = self.run.filter(|(runs, left)| *runs == id && *left > 0);
        let left = run.map_or(quantum, |(_, left)| left).saturating_sub(bytes);
        self.run = Some((id, left));
        let claimed = entry.claim == Some(GuaranteeClaim::Now);
        self.dequeue(id, entry);
        if claimed {
            // A run counts as one packet: virtual time is the start time of its first.
            if run.is_none() {
                self.claims_now = entry.next_claim;
            }
            entry.next_claim += bytes * CLAIM_STEPS / entry.limits.guaranteed().max(1);
        } else {
            if run.is_none() {
                self.virtual_now = entry.next;
            }
            entry.next += bytes * STEPS / u64::from(entry.limits.weight());
        }
        entry.limits.sent(now, ByteCount::new(bytes), claimed);
        // Its claim may change with each packet, so a session with a guarantee or maximum is queued
        // anew.
        if left > 0 && entry.limits.is_plain() {
            entry.place = QueuePosition::Run;
            self.run_next = Some(entry.next);
        } else {
            self.queue(id, entry);
        }
    }

    /// Changes the share of a session. Its entry is empty until the next [`Self::enter`].
    pub(super) fn set_share(
        &mut self,
        now: Instant,
        id: SessionId,
        entry: &mut ScheduleEntry,
        share: SessionShare,
    ) {
        self.enter(now, id, entry, NextActions::default());
        let classes = entry.limits.class_bits();
        entry.limits = ShareLimits::new(share);
        entry.limits.set_classes(classes);
    }

    /// The earliest time at which any session wants something, while the link is busy until
    /// `link_free`. `entry` returns the entry of a session.
    pub(super) fn soonest<'a>(
        &self,
        link_free: Instant,
        entry: impl Fn(SessionId) -> Option<&'a ScheduleEntry>,
    ) -> Option<(Instant, Wake)> {
        let wake = self.wakes.first().and_then(|(_, id)| entry(*id)?.wants.wake);
        let waiting = self.senders.first().map(|(_, id)| *id);
        let send = |id| entry(id)?.wants.send.map(|(time, why)| (time.max(link_free), why));
        let senders = earliest(self.turn(&entry).and_then(send), waiting.and_then(send));
        earliest(wake, senders)
    }

    /// Sessions with a timer due by `now`.
    pub(super) fn due(&self, now: Instant) -> Vec<SessionId> {
        self.wakes.iter().take_while(|(time, _)| *time <= now).map(|(_, id)| *id).collect()
    }

    /// The first session with an event.
    pub(super) fn event(&self) -> Option<SessionId> {
        self.events.first().copied()
    }

    /// The first session with a packet for the owner.
    pub(super) fn packet(&self) -> Option<SessionId> {
        self.packets.first().copied()
    }

    /// The session with the oldest log entry.
    pub(super) fn log(&self) -> Option<SessionId> {
        self.logs.first().map(|(_, id)| *id)
    }
}

fn move_entry(
    set: &mut BTreeSet<(Instant, SessionId)>,
    id: SessionId,
    old: Option<Instant>,
    new: Option<Instant>,
) {
    if old == new {
        return;
    }
    if let Some(old) = old {
        set.remove(&(old, id));
    }
    set.extend(new.map(|new| (new, id)));
}

fn set_entry(set: &mut BTreeSet<SessionId>, id: SessionId, old: bool, new: bool) {
    match (old, new) {
        (false, true) => _ = set.insert(id),
        (true, false) => _ = set.remove(&id),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
