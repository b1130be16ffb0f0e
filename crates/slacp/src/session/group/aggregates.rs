//! Sessions of a hub that share a forward link, and the times at which they are compared.
//!
//! A session without data costs nothing: only those that send are compared, and only after an input
//! of one of them.

use std::collections::BTreeMap;

use units::Instant;

use super::table::SessionTable;
use crate::rate::{Aggregate, AggregateId, SharedLink};
use crate::session::Session;
use crate::{PublicKey, SessionId, SessionShare};

/// The aggregates of a hub.
#[derive(Debug, Default)]
pub(crate) struct AggregateTable {
    of_peer: BTreeMap<PublicKey, AggregateId>,
    of_session: BTreeMap<SessionId, AggregateId>,
    links: BTreeMap<AggregateId, (SharedLink, Aggregate)>,
}

impl AggregateTable {
    /// Adds a session to the aggregate of its peer. Returns whether the session must measure its
    /// path by itself: it is in no aggregate, or the first member of one.
    pub(super) fn add(
        &mut self,
        now: Instant,
        id: SessionId,
        session: &mut Session,
        share: SessionShare,
    ) -> bool {
        let Some(aggregate) = self.of_peer.get(&session.peer.key).cloned() else { return true };
        // A configured or reported rate is no member of an aggregate.
        let Some(auto) = session.auto() else { return true };
        let (link, members) = self.links.entry(aggregate.clone()).or_default();
        auto.set_link(now, Some((id, link.clone())));
        let first = members.is_empty();
        members.add(id, share);
        self.of_session.insert(id, aggregate);
        if let Some(grant) = members.join(now, id) {
            session.take_share(now, grant);
            return false;
        }
        first
    }

    pub(super) fn remove(&mut self, id: SessionId) {
        let Some(aggregate) = self.of_session.remove(&id) else { return };
        if let Some((_, members)) = self.links.get_mut(&aggregate) {
            members.remove(id);
        }
    }

    /// Removes a session whose rate is reported from now on. The measurements of the link are
    /// dropped with the last member that measured it: a report may mean that the link has become
    /// slower.
    pub(super) fn leave(&mut self, id: SessionId) {
        let aggregate = self.of_session.get(&id).cloned();
        self.remove(id);
        let left = aggregate.and_then(|aggregate| self.links.get_mut(&aggregate));
        if let Some((_, members)) = left.filter(|(_, members)| members.is_empty()) {
            *members = Aggregate::default();
        }
    }

    /// Sets the peers that share a link, also for existing sessions.
    pub(super) fn set(
        &mut self,
        now: Instant,
        of_peer: BTreeMap<PublicKey, AggregateId>,
        sessions: &mut SessionTable,
    ) {
        self.of_peer = of_peer;
        let ids: Vec<SessionId> = sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.move_session(now, id, sessions);
        }
        let used = |id: &AggregateId| self.of_peer.values().any(|used| used == id);
        self.links.retain(|id, _| used(id));
    }

    /// Moves a session to the aggregate that its peer is in now.
    fn move_session(&mut self, now: Instant, id: SessionId, sessions: &mut SessionTable) {
        let Some(session) = sessions.get_mut(id) else { return };
        let wanted = self.of_peer.get(&session.peer.key);
        if self.of_session.get(&id) == wanted {
            return;
        }
        if let Some(auto) = session.auto() {
            auto.set_link(now, None);
        }
        self.remove(id);
        let share = sessions.share(id).unwrap_or_default();
        if let Some(session) = sessions.get_mut(id) {
            self.add(now, id, session, share);
        }
    }

    /// Returns whether sessions with this peer share a link.
    pub(super) fn has_peer(&self, peer: &PublicKey) -> bool {
        self.of_peer.contains_key(peer)
    }

    pub(crate) fn set_share(&mut self, id: SessionId, share: SessionShare) {
        let Some(aggregate) = self.of_session.get(&id) else { return };
        if let Some((_, members)) = self.links.get_mut(aggregate) {
            members.set_share(id, share);
        }
    }

    /// Compares the members of each aggregate that has a touched session and is due.
    pub(super) fn compare_due(&mut self, now: Instant, sessions: &mut SessionTable) {
        if self.of_session.is_empty() {
            return;
        }
        let mut index = 0;
        // By index, because `get_mut` may append to the list.
        while let Some(id) = sessions.touched(index) {
            index += 1;
            let Some(aggregate) = self.of_session.get(&id) else { continue };
            let Some((link, members)) = self.links.get_mut(aggregate) else { continue };
            let Some(session) = sessions.get_mut(id) else { continue };
            let woken = session.auto().is_some_and(|auto| auto.has_woken());
            if woken && let Some(grant) = members.wake(now, id) {
                session.take_share(now, grant);
            }
            if members.is_due(now) {
                compare(now, link, members, sessions);
            }
        }
    }
}

/// Divides a link among its active members.
fn compare(now: Instant, link: &SharedLink, members: &mut Aggregate, sessions: &mut SessionTable) {
    let report = |id: &SessionId| {
        let session = sessions.get_mut(*id)?;
        let guaranteed = session.class_guarantees_in_use(now);
        session.auto()?.report(guaranteed as f64)
    };
    let reports: Option<Vec<_>> = members.active().iter().map(report).collect();
    debug_assert!(reports.is_some(), "every member measures its rate");
    let Some(reports) = reports else { return };
    for (id, grant) in members.compare(now, link, &reports) {
        if let Some(session) = sessions.get_mut(id) {
            session.take_share(now, grant);
        }
    }
}
