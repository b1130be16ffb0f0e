//! Which sessions have something to do, and when: kept in order, so that what an
//! endpoint does costs by what happens and not by how many sessions exist.

use std::collections::BTreeSet;

use units::{Instant, earliest};

use crate::SessionId;
use crate::session::{Session, Wake};

/// What a session wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wants {
    wake: Option<(Instant, Wake)>,
    /// From when on it has something to send.
    send: Option<(Instant, Wake)>,
    /// It has an event for the owner, or a packet.
    event: bool,
    packet: bool,
    /// The oldest entry of its log.
    log: Option<Instant>,
}

impl Wants {
    pub(super) fn of(session: &Session) -> Self {
        Self {
            wake: session.poll_timeout(),
            send: session.send_time(),
            event: session.has_event(),
            packet: session.inbound.has_packet(),
            log: session.log.oldest(),
        }
    }
}

/// What the books say of one session. Its owner keeps it beside the session.
#[derive(Debug)]
pub(super) struct Filing {
    wants: Wants,
    /// Whether it is in [`Books::turns`].
    queued: bool,
    /// The virtual time at which its next packet starts, or may start if it has one.
    next: u64,
    weight: u32,
}

impl Filing {
    pub(super) fn new() -> Self {
        Self { wants: Wants::default(), queued: false, next: 0, weight: 1 }
    }

    /// What the books say it wants.
    pub(super) fn wants(&self) -> Wants {
        self.wants
    }

    /// Sets how many bytes it sends where one of weight 1 sends one.
    pub(super) fn set_weight(&mut self, weight: u32) {
        self.weight = weight;
    }
}

/// Fixed point: virtual time counts so many steps per byte and unit of weight.
const STEPS: u64 = 256;

/// Ordered sets with at most one entry per session each. An entry that moves costs
/// a removal and an insertion, and the first is the exact minimum at any time.
pub(super) struct Books {
    wakes: BTreeSet<(Instant, SessionId)>,
    /// Sessions whose time to send has not come.
    senders: BTreeSet<(Instant, SessionId)>,
    /// Sessions that may send, by the virtual times at which their packets start:
    /// start-time fair queueing, as between classes (`scheduler/shares.rs`), but in
    /// order, since there may be thousands.
    turns: BTreeSet<(u64, SessionId)>,
    /// When the packet sent last started.
    virtual_now: u64,
    events: BTreeSet<SessionId>,
    packets: BTreeSet<SessionId>,
    logs: BTreeSet<(Instant, SessionId)>,
}

impl Books {
    pub(super) fn new() -> Self {
        Self {
            wakes: BTreeSet::new(),
            senders: BTreeSet::new(),
            turns: BTreeSet::new(),
            virtual_now: 0,
            events: BTreeSet::new(),
            packets: BTreeSet::new(),
            logs: BTreeSet::new(),
        }
    }

    /// Enters what a session wants at `now`, in place of what it wanted.
    pub(super) fn enter(&mut self, now: Instant, id: SessionId, file: &mut Filing, wants: Wants) {
        let old = core::mem::replace(&mut file.wants, wants);
        let time = |wish: Option<(Instant, Wake)>| wish.map(|(time, _)| time);
        move_entry(&mut self.wakes, id, time(old.wake), time(wants.wake));
        move_entry(&mut self.logs, id, old.log, wants.log);
        set_entry(&mut self.events, id, old.event, wants.event);
        set_entry(&mut self.packets, id, old.packet, wants.packet);
        let before = time(old.send).filter(|_| !file.queued);
        let after = time(wants.send).filter(|time| !file.queued || *time > now);
        if after.is_some() || wants.send.is_none() {
            self.dequeue(id, file);
        }
        move_entry(&mut self.senders, id, before, after);
    }

    /// The next session whose time to send has come by `now`: it is to be given a
    /// turn.
    pub(super) fn take_sender(&mut self, now: Instant) -> Option<SessionId> {
        let (_, id) = self.senders.first().copied().filter(|(time, _)| *time <= now)?;
        self.senders.pop_first();
        Some(id)
    }

    /// Gives a session turns. It has saved nothing up while it had nothing to send.
    pub(super) fn queue(&mut self, id: SessionId, file: &mut Filing) {
        file.next = file.next.max(self.virtual_now);
        file.queued = self.turns.insert((file.next, id));
    }

    /// Gives a session no further turns.
    pub(super) fn dequeue(&mut self, id: SessionId, file: &mut Filing) {
        if core::mem::take(&mut file.queued) {
            self.turns.remove(&(file.next, id));
        }
    }

    /// Whose turn it is.
    pub(super) fn turn(&self) -> Option<SessionId> {
        self.turns.first().map(|(_, id)| *id)
    }

    /// A session has sent so many bytes in its turn.
    pub(super) fn spend(&mut self, id: SessionId, file: &mut Filing, bytes: u64) {
        self.dequeue(id, file);
        self.virtual_now = file.next;
        file.next += bytes * STEPS / u64::from(file.weight);
        self.queue(id, file);
    }

    /// The first time at which a session wants anything while the link is busy until
    /// `link_free`. `file` finds what is known of a session.
    pub(super) fn soonest<'a>(
        &self,
        link_free: Instant,
        file: impl Fn(SessionId) -> Option<&'a Filing>,
    ) -> Option<(Instant, Wake)> {
        let wake = self.wakes.first().and_then(|(_, id)| file(*id)?.wants.wake);
        let waiting = self.senders.first().map(|(_, id)| *id);
        let send = |id| file(id)?.wants.send.map(|(time, why)| (time.max(link_free), why));
        let senders = earliest(self.turn().and_then(send), waiting.and_then(send));
        earliest(wake, senders)
    }

    /// The sessions that want to be woken by `now`.
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

    /// The session with the oldest entry in its log.
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
