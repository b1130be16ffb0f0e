//! The sessions of an endpoint, with the indices of their next actions.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::BTreeMap;

use units::{BitRate, Instant};

use super::link::LinkPacer;
use super::schedule::{NextActions, ScheduleEntry, SessionSchedule};
use crate::session::{PacketEnvelope, Session, Wake};
use crate::wire::packet::Index;
use crate::{SessionId, SessionShare};

/// Length of a session's turn: the pause of a gateway between two wake-ups. Packets for one
/// destination then leave in one system call, which costs far less than one call each.
const RUN: Duration = Duration::from_micros(500);
/// Minimum and maximum bytes of a turn: eight full packets, and what one call can send. Links slower
/// than 192 Mbit/s alternate packet by packet.
const RUN_BYTES: RangeInclusive<u64> = 12_000..=60_000;

/// Bytes that a session may send in its turn at this rate; 0 for a single packet.
fn quantum(rate: BitRate) -> u64 {
    let bytes = rate.bytes_in(RUN).get().min(*RUN_BYTES.end());
    // On slow links, longer turns would make rates be measured wrongly (`docs/decisions.md`).
    if RUN_BYTES.contains(&bytes) { bytes } else { 0 }
}

/// All sessions of an endpoint.
///
/// A caller of [`Self::get_mut`] may change a session's next actions, so the session counts as
/// touched until [`Self::reschedule`] has read them and updated the indices.
/// [`super::EndpointCore::settle`] does that after every input and command; queries in between rely on the
/// indices alone.
pub(crate) struct SessionTable {
    /// Boxed because entries are large, and a node of the map has room for eleven.
    all: BTreeMap<SessionId, Box<SessionEntry>>,
    schedule: SessionSchedule,
    touched: Vec<SessionId>,
    /// Number of sessions that were polled for their next actions, or visited by an iteration.
    #[cfg(test)]
    looks: core::cell::Cell<u64>,
}

struct SessionEntry {
    session: Session,
    /// The receiver index of its packets.
    index: Index,
    touched: bool,
    scheduled: ScheduleEntry,
}

/// A packet that a session has built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DepartedPacket {
    pub(crate) session: SessionId,
    pub(super) envelope: PacketEnvelope,
    /// The session's [`Session::shared_rate`].
    pub(super) rate: Option<BitRate>,
    /// The next packet may be built before [`SessionTable::reschedule`]. False with limits, guarantees
    /// or several links, whose state in the indices is then stale.
    pub(super) may_repeat: bool,
}

impl SessionTable {
    pub(super) fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            schedule: SessionSchedule::new(),
            touched: Vec::new(),
            #[cfg(test)]
            looks: core::cell::Cell::new(0),
        }
    }

    pub(super) fn insert(&mut self, id: SessionId, index: Index, session: Session) {
        let entry = SessionEntry { session, index, touched: true, scheduled: ScheduleEntry::new() };
        self.all.insert(id, Box::new(entry));
        self.touched.push(id);
    }

    /// Removes a session, also from the indices. Returns it with the receiver index of its packets.
    pub(super) fn remove(&mut self, now: Instant, id: SessionId) -> Option<(Index, Session)> {
        let mut entry = self.all.remove(&id)?;
        self.schedule.enter(now, id, &mut entry.scheduled, NextActions::default());
        Some((entry.index, entry.session))
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        Some(&self.all.get(&id)?.session)
    }

    /// Mutable access to a session; marks it as touched.
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let entry = self.all.get_mut(&id)?;
        if !core::mem::replace(&mut entry.touched, true) {
            self.touched.push(id);
        }
        Some(&mut entry.session)
    }

    /// All sessions. Costs time in their number, so only reports and commands use it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        #[cfg(test)]
        self.looks.update(|looks| looks + self.all.len() as u64);
        self.all.iter().map(|(id, entry)| (*id, &entry.session))
    }

    /// All sessions with the receiver indices of their packets.
    pub(crate) fn with_indices(&self) -> impl Iterator<Item = (Index, &Session)> {
        self.all.values().map(|entry| (entry.index, &entry.session))
    }

    /// All sessions, for commands that concern each. Marks them as touched.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        #[cfg(test)]
        self.looks.update(|looks| looks + self.all.len() as u64);
        let untouched = self.all.iter_mut().filter(|(_, entry)| !entry.touched);
        self.touched.extend(untouched.map(|(id, entry)| {
            entry.touched = true;
            *id
        }));
        self.all.values_mut().map(|entry| &mut entry.session)
    }

    /// Sets a session's share of the link; `false` if there is no such session.
    pub(crate) fn set_share(&mut self, now: Instant, id: SessionId, share: SessionShare) -> bool {
        let Some(entry) = self.all.get_mut(&id) else { return false };
        self.schedule.set_share(now, id, &mut entry.scheduled, share);
        self.get_mut(id).is_some()
    }

    /// A session's share of the link.
    pub(crate) fn share(&self, id: SessionId) -> Option<SessionShare> {
        self.all.get(&id).map(|entry| entry.scheduled.limits().share())
    }

    /// The touched session at a position. More may be touched meanwhile.
    pub(super) fn touched(&self, index: usize) -> Option<SessionId> {
        self.touched.get(index).copied()
    }

    /// Takes the sessions whose index entries may be stale. The caller reschedules each.
    pub(super) fn take_touched(&mut self) -> Vec<SessionId> {
        core::mem::take(&mut self.touched)
    }

    /// Returns the allocation of [`Self::take_touched`] for reuse.
    pub(super) fn give_back(&mut self, mut touched: Vec<SessionId>) {
        debug_assert!(self.touched.is_empty(), "dealing with sessions touches no other");
        touched.clear();
        self.touched = touched;
    }

    /// Reads the next actions of a session and updates the indices.
    pub(super) fn reschedule(&mut self, now: Instant, id: SessionId) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        #[cfg(test)]
        self.looks.update(|looks| looks + 1);
        entry.touched = false;
        entry.session.update_links(now);
        entry.scheduled.set_classes(entry.session.class_guarantees());
        let open_at = entry.scheduled.limits().open_at();
        let wants = NextActions::of(&entry.session).not_before(open_at);
        if wants != entry.scheduled.wants() {
            self.schedule.enter(now, id, &mut entry.scheduled, wants);
        }
    }

    /// The earliest time at which a session has something to do, while the link is busy until
    /// `link_free`.
    pub(super) fn poll_timeout(&self, link_free: Instant) -> Option<(Instant, Wake)> {
        debug_assert!(self.touched.is_empty(), "the schedule is settled");
        self.schedule.soonest(link_free, |id| self.all.get(&id).map(|entry| &entry.scheduled))
    }

    /// Sessions with a timer due by `now`.
    pub(super) fn due(&self, now: Instant) -> Vec<SessionId> {
        self.schedule.due(now)
    }

    /// The first session with an event.
    pub(crate) fn with_event(&self) -> Option<SessionId> {
        self.schedule.event()
    }

    /// The first session with a packet for the owner.
    pub(crate) fn with_packet(&self) -> Option<SessionId> {
        self.schedule.packet()
    }

    /// The session with the oldest log entry.
    pub(crate) fn with_log(&self) -> Option<SessionId> {
        self.schedule.log()
    }

    /// The virtual start time of the next packet in fair queueing.
    pub(crate) fn next_turn(&self) -> Option<u64> {
        self.schedule.next_turn()
    }

    /// Queues the sessions whose time to send has come. After a pause, virtual time first advances
    /// to `others`, the least of the other parts of the hub: a part that had nothing to send saves
    /// nothing up.
    pub(crate) fn catch_up(&mut self, now: Instant, others: Option<u64>) {
        self.schedule.catch_up(others);
        self.admit(now);
    }

    /// Queues each session whose time to send, or to claim its guarantee, has come.
    fn admit(&mut self, now: Instant) {
        while let Some(id) = self.schedule.take_sender(now) {
            if let Some(entry) = self.all.get_mut(&id) {
                self.schedule.queue(id, &mut entry.scheduled);
            }
        }
        while let Some(id) = self.schedule.take_claim(now) {
            if let Some(entry) = self.all.get_mut(&id) {
                self.schedule.claim(id, &mut entry.scheduled);
            }
        }
    }

    /// Appends a packet of the next session in turn to `buf`.
    ///
    /// A session that has sent keeps its turn until it is rescheduled. If it has no further packet,
    /// it is polled once in vain.
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<DepartedPacket> {
        self.admit(now);
        let mut in_vain = Vec::new();
        let departure = self.transmit_next(now, buf, &mut in_vain);
        // They are touched, so `reschedule` files them anew; until then they stay in the queue.
        for id in in_vain {
            let entry = self.all.get_mut(&id)?;
            self.schedule.queue(id, &mut entry.scheduled);
        }
        departure
    }

    /// Polls the next session for a packet. One that has none is added to `in_vain`, and the next
    /// session is polled.
    fn transmit_next(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
        in_vain: &mut Vec<SessionId>,
    ) -> Option<DepartedPacket> {
        loop {
            let id = self.schedule.turn(|id| self.all.get(&id).map(|entry| &entry.scheduled))?;
            let SessionEntry { session, scheduled, touched, .. } = &mut **self.all.get_mut(&id)?;
            if !core::mem::replace(touched, true) {
                self.touched.push(id);
            }
            let quantum = quantum(session.rate());
            if let Some(envelope) = session.transmit(now, buf) {
                self.schedule.spend(now, id, scheduled, (envelope.size.get(), quantum));
                let is_plain = scheduled.limits().is_plain() && !session.has_links();
                let may_go_on = is_plain && session.is_usable() && in_vain.is_empty();
                let rate = session.shared_rate();
                return Some(DepartedPacket { session: id, envelope, rate, may_repeat: may_go_on });
            }
            self.schedule.dequeue(id, scheduled);
            in_vain.push(id);
        }
    }

    /// Appends at most `most` more packets like `last`, the packet that left last, while the turn
    /// of their session lasts and `link` is free. Returns their number.
    pub(super) fn transmit_more(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
        last: &DepartedPacket,
        (link, most): (&mut LinkPacer, usize),
    ) -> usize {
        let (id, size) = (last.session, last.envelope.size);
        let left = self.schedule.left_in_run(id);
        let Some(entry) = self.all.get_mut(&id).filter(|_| last.may_repeat) else { return 0 };
        let SessionEntry { session, scheduled, .. } = &mut **entry;
        let quantum = quantum(session.rate());
        let Some(mut stretch) = session.stretch(now, last.envelope) else { return 0 };
        let (mut count, mut bytes) = (0, 0);
        while count < most && bytes < left && link.ready_at() <= now && stretch.transmit(buf) {
            link.sent(now, size);
            (count, bytes) = (count + 1, bytes + size.get());
        }
        if count > 0 {
            self.schedule.spend(now, id, scheduled, (bytes, quantum));
        }
        count
    }

    /// The earliest time at which a session's maximum lets it send.
    #[cfg(test)]
    pub(super) fn open_at(&self, id: SessionId) -> Instant {
        self.all.get(&id).map_or(Instant::ZERO, |entry| entry.scheduled.limits().open_at())
    }

    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// Each session's next actions by the indices, and by polling the session.
    #[cfg(test)]
    pub(super) fn audit(&self) -> impl Iterator<Item = (SessionId, NextActions, NextActions)> {
        let asked = |it: &SessionEntry| {
            NextActions::of(&it.session).not_before(it.scheduled.limits().open_at())
        };
        self.all.iter().map(move |(id, it)| (*id, it.scheduled.wants(), asked(it)))
    }
}

#[cfg(test)]
mod tests;
