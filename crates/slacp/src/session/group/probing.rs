//! Turns of sessions at measuring their paths with padding. A thousand terminals that come up
//! together share a link, and would otherwise fill it with padding.

use std::collections::VecDeque;

use super::table::SessionTable;
use crate::SessionId;
use crate::session::Session;

/// Maximum number of sessions that measure their paths at the same time without having data. Each
/// sends trains of 50 ms, one per round trip: on a GEO link they take at most a third of it.
const MAX_PROBING: usize = 4;

/// Sessions that have yet to measure their paths. A session that has data does not wait.
#[derive(Debug, Default)]
pub(super) struct ProbingQueue {
    waiting: VecDeque<SessionId>,
    measuring: Vec<SessionId>,
}

impl ProbingQueue {
    /// Adds a session that has just been set up.
    pub(super) fn enqueue(&mut self, id: SessionId) {
        self.waiting.push_back(id);
    }

    /// Gives turns to waiting sessions while fewer than the maximum are measuring. Costs nothing
    /// once all have measured.
    pub(super) fn grant_turns(&mut self, sessions: &mut SessionTable) {
        self.measuring.retain(|id| sessions.get(*id).is_some_and(Session::is_probing));
        while self.measuring.len() < MAX_PROBING {
            let Some(id) = self.waiting.pop_front() else { return };
            if let Some(session) = sessions.get_mut(id) {
                session.grant_padding();
                self.measuring.push(id);
            }
        }
    }
}
