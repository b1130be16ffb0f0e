//! Indices of which sessions have something to do, and when. They keep the cost of an endpoint
//! proportional to what happens, not to the number of sessions.

use std::collections::BTreeSet;

use units::{ByteCount, Instant, earliest};

use super::share::Limits;
use crate::session::{Session, Wake};
use crate::{SessionId, SessionShare};

/// What a session wants to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wants {
    wake: Option<(Instant, Wake)>,
    /// When it has something to send.
    send: Option<(Instant, Wake)>,
    /// From when on the guarantee of a class with data lets it go before others.
    claim: Option<Instant>,
    /// It has an event or a packet for the owner.
    event: bool,
    packet: bool,
    /// Time of the oldest entry in its log.
    log: Option<Instant>,
}

impl Wants {
    pub(super) fn of(session: &Session) -> Self {
        Self {
            wake: session.poll_timeout(),
            send: session.send_time(),
            claim: session.class_claim(),
            event: session.has_event(),
            packet: session.has_packet(),
            log: session.log.oldest(),
        }
    }

    /// The same, but it may send nothing before this time.
    pub(super) fn not_before(mut self, open_at: Instant) -> Self {
        self.send = self.send.map(|(time, why)| (time.max(open_at), why));
        self
    }
}

/// Where a session is that has a guarantee and may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// In [`Schedule::claims_to_come`], until this time.
    From(Instant),
    /// In [`Schedule::claims`].
    Now,
}

/// Where a session is that may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Nowhere,
    /// In [`Schedule::turns`].
    Turns,
    /// In its turn, which goes on: [`Schedule::run`].
    Run,
}

/// The index entries of one session, stored beside the session.
#[derive(Debug)]
pub(super) struct ScheduleEntry {
    wants: Wants,
    place: Place,
    /// The virtual start time of its next packet, or the earliest one if it has none.
    next: u64,
    /// The same among sessions that claim their guarantee.
    next_claim: u64,
    claim: Option<Claim>,
    limits: Limits,
}

impl ScheduleEntry {
    pub(super) fn new() -> Self {
        Self {
            wants: Wants::default(),
            place: Place::Nowhere,
            next: 0,
            next_claim: 0,
            claim: None,
            limits: Limits::new(SessionShare::default()),
        }
    }

    /// Whether it may send.
    fn is_queued(&self) -> bool {
        self.place != Place::Nowhere
    }

    /// What the indices say it wants.
    pub(super) fn wants(&self) -> Wants {
        self.wants
    }

    /// What it gets of the link, and how far it has used it.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets what is guaranteed to the classes of the session together, in bit/s.
    pub(super) fn set_classes(&mut self, bits: u64) {
        self.limits.set_classes(bits);
    }
}

/// Fixed point: steps of virtual time per byte and unit of weight.
pub(crate) const STEPS: u64 = 256;
/// The same, per byte and bit/s of a guarantee.
const CLAIM_STEPS: u64 = 256_000_000;

/// Ordered sets with at most one entry per session. Moving an entry costs one removal and one
/// insertion, and the first entry is always the exact minimum.
pub(super) struct Schedule {
    wakes: BTreeSet<(Instant, SessionId)>,
    /// Sessions whose time to send has not come.
    senders: BTreeSet<(Instant, SessionId)>,
    /// Sessions that may send, by the virtual start times of their packets. This is start-time fair
    /// queueing, as between classes (`scheduler/shares.rs`), but in an ordered set because there
    /// may be thousands of sessions.
    turns: BTreeSet<(u64, SessionId)>,
    /// The virtual start time of the packet that began the last run.
    virtual_now: u64,
    /// The session that sends several packets in its turn, and how many more bytes they may have.
    run: Option<(SessionId, u64)>,
    /// The virtual start time of its next packet, while it is not in `turns`.
    run_next: Option<u64>,
    /// Those of `turns` whose guarantee lets them go before others later on, by that time.
    claims_to_come: BTreeSet<(Instant, SessionId)>,
    /// Those whose guarantee does so now, by virtual start times of their own, weighted by the
    /// guarantees: if these exceed the rate, they share it in proportion.
    claims: BTreeSet<(u64, SessionId)>,
    /// The virtual start time of the last packet sent by a guarantee.
    claims_now: u64,
    events: BTreeSet<SessionId>,
    packets: BTreeSet<SessionId>,
    logs: BTreeSet<(Instant, SessionId)>,
}

impl Schedule {
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

    /// Records what a session wants at `now`, replacing its previous entry.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        id: SessionId,
        entry: &mut ScheduleEntry,
        wants: Wants,
    ) {
        let old = core::mem::replace(&mut entry.wants, wants);
        if old.send.is_none() && wants.send.is_some() {
            entry.limits.begin(now);
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

    /// The next session whose time to send has come by `now`. The caller queues it for a turn.
    pub(super) fn take_sender(&mut self, now: Instant) -> Option<SessionId> {
        let (_, id) = self.senders.first().copied().filter(|(time, _)| *time <= now)?;
        self.senders.pop_first();
        Some(id)
    }

    /// Queues a session for turns. It saves up nothing while it has nothing to send.
    pub(super) fn queue(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        debug_assert!(entry.claim.is_none(), "queued once");
        entry.next = entry.next.max(self.virtual_now);
        entry.place = Place::Turns;
        self.turns.insert((entry.next, id));
        self.file_claim(id, entry);
    }

    fn file_claim(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        if let Some(at) = entry.limits.claims_at(entry.wants.claim) {
            entry.claim = Some(Claim::From(at));
            self.claims_to_come.insert((at, id));
        }
    }

    fn withdraw_claim(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        match entry.claim.take() {
            Some(Claim::From(at)) => _ = self.claims_to_come.remove(&(at, id)),
            Some(Claim::Now) => _ = self.claims.remove(&(entry.next_claim, id)),
            None => {}
        }
    }

    /// The virtual start time of the next packet; 0 if a guarantee lets it go before others.
    pub(super) fn next_turn(&self) -> Option<u64> {
        let first = self.turns.first().map(|(next, _)| *next);
        if self.claims.is_empty() { first.into_iter().chain(self.run_next).min() } else { Some(0) }
    }

    /// Moves virtual time on to that of others who share the link, while nothing waits here.
    pub(super) fn catch_up(&mut self, others: Option<u64>) {
        let nothing_waits = self.turns.is_empty() && self.run_next.is_none();
        if let Some(others) = others.filter(|_| nothing_waits) {
            self.virtual_now = self.virtual_now.max(others);
        }
    }

    /// Removes a session from the turns.
    pub(super) fn dequeue(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        match core::mem::take(&mut entry.place) {
            Place::Nowhere => {}
            Place::Turns => _ = self.turns.remove(&(entry.next, id)),
            Place::Run => self.run_next = None,
        }
        self.withdraw_claim(id, entry);
    }

    /// The next session whose guarantee lets it go before others by `now`. The caller has it claim.
    pub(super) fn take_claim(&mut self, now: Instant) -> Option<SessionId> {
        let (_, id) = self.claims_to_come.first().copied().filter(|(time, _)| *time <= now)?;
        self.claims_to_come.pop_first();
        Some(id)
    }

    /// Lets a session claim its guarantee.
    pub(super) fn claim(&mut self, id: SessionId, entry: &mut ScheduleEntry) {
        entry.next_claim = entry.next_claim.max(self.claims_now);
        entry.claim = Some(Claim::Now);
        self.claims.insert((entry.next_claim, id));
    }

    /// The session whose turn it is: those that claim their guarantee go first. A run goes on while
    /// its session has packets; it is so short that nobody waits long for its end.
    pub(super) fn turn<'a>(
        &self,
        entry: impl Fn(SessionId) -> Option<&'a ScheduleEntry>,
    ) -> Option<SessionId> {
        let goes_on = |id: &SessionId| entry(*id).is_some_and(ScheduleEntry::is_queued);
        let run = self.run.filter(|(_, left)| *left > 0).map(|(id, _)| id).filter(goes_on);
        run.or_else(|| self.claims.first().or(self.turns.first()).map(|(_, id)| *id))
    }

    /// How many more bytes the session may send in its turn, if it has begun.
    pub(super) fn left_in_run(&self, id: SessionId) -> u64 {
        self.run.filter(|(runs, _)| *runs == id).map_or(0, |(_, left)| left)
    }

    /// Charges a session for the bytes it sent in its turn, in which it may send `quantum`.
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
        let claimed = entry.claim == Some(Claim::Now);
        self.dequeue(id, entry);
        if claimed {
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
        if left > 0 && entry.limits.is_plain() {
            entry.place = Place::Run;
            self.run_next = Some(entry.next);
        } else {
            self.queue(id, entry);
        }
    }

    /// Changes what a session gets. It counts as wanting nothing until its next entry.
    pub(super) fn set_share(
        &mut self,
        now: Instant,
        id: SessionId,
        entry: &mut ScheduleEntry,
        share: SessionShare,
    ) {
        self.enter(now, id, entry, Wants::default());
        let classes = entry.limits.class_bits();
        entry.limits = Limits::new(share);
        entry.limits.set_classes(classes);
    }

    /// The first time at which any session wants something, while the link is busy until
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

    /// Sessions that want to be woken by `now`.
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
