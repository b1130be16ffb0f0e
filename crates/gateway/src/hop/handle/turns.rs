//! Fair sharing of the thread: the work of sessions between two turns of the driver ([`pep::work`]).

use pep::work::{CALL, OPENING};
use slacp::SessionId;

use super::{Hop, HopEvent, PartState, StreamKey, wake};
use crate::hop::SessionStream;

/// Maximum streams of a session woken per turn. More than can work in one turn, since some find nothing to
/// do.
const WOKEN_PER_TURN: usize = 128;

impl Hop {
    /// Begins a turn of a part's driver, and wakes the streams that have waited for it.
    pub(crate) fn begin_turn(&self, part: u8) {
        self.part(part).begin_turn();
    }

    /// Takes the next stream opened by a peer whose session may work in this turn.
    pub(super) fn next_opened(&self, state: &mut PartState) -> Option<HopEvent> {
        let PartState { opened, work, .. } = state;
        let (session, waiting) = opened.iter_mut().find(|(session, _)| work.permits(**session))?;
        let session = *session;
        let (stream, open) = waiting.pop_front()?;
        if waiting.is_empty() {
            opened.remove(&session);
        }
        work.charge(session, OPENING);
        Some(HopEvent::Opened(SessionStream::new(self.clone(), (session, stream)), open))
    }
}

impl PartState {
    /// Removes the streams opened by the peer of an ended session that the main loop has not taken yet.
    pub(super) fn drop_opened(&mut self, session: SessionId) {
        for (stream, _) in self.opened.remove(&session).into_iter().flatten() {
            self.streams.remove(&(session, stream));
        }
    }

    fn begin_turn(&mut self) {
        // Sessions with waiting openings count when the turn is divided.
        self.opened.keys().for_each(|session| self.work.wait(*session));
        self.work.begin_turn();
        let Self { resting, streams, .. } = self;
        resting.retain(|session, waiting| {
            let count = waiting.len().min(WOKEN_PER_TURN);
            for stream in waiting.drain(..count) {
                let Some(entry) = streams.get_mut(&(*session, stream)) else { continue };
                entry.is_resting = false;
                wake(&mut entry.reader);
                wake(&mut entry.writer);
            }
            !waiting.is_empty()
        });
    }

    /// Returns whether a stream or an opening waits for the driver's next turn.
    pub(crate) fn wants_turn(&self) -> bool {
        !self.resting.is_empty() || !self.opened.is_empty()
    }

    /// Returns whether a session has any of its share left in this turn.
    pub(in crate::hop) fn may_work(&self, session: SessionId) -> bool {
        self.work.permits(session)
    }

    /// Charges a session for a call that has moved `bytes` of a stream.
    pub(in crate::hop) fn charge(&mut self, session: SessionId, bytes: usize) {
        // Counted instead of timed, since deciding code reads no clock.
        self.work.charge(session, CALL + bytes as u64);
    }

    /// Queues a stream whose tasks are to be woken in the driver's next turn.
    pub(in crate::hop) fn queue_for_turn(&mut self, key: StreamKey) {
        self.work.wait(key.0);
        let (_, entry) = self.entry(key);
        if !std::mem::replace(&mut entry.is_resting, true) {
            self.resting.entry(key.0).or_default().push_back(key.1);
        }
    }
}
