//! What sessions may do between two turns of the driver ([`pep::work`]).

use pep::work::{CALL, OPENING};
use slacp::SessionId;

use super::{Hop, HopEvent, Key, State, wake};
use crate::hop::Stream;

/// Streams of a session that are woken per turn: more than may work in one, as some find nothing to do.
const WOKEN_PER_TURN: usize = 128;

impl Hop {
    /// Begins a turn of a part's driver: what has waited for it goes on.
    pub(crate) fn begin_turn(&self, part: u8) {
        self.part(part).begin_turn();
    }

    /// The next stream that a peer has opened, if its session may work.
    pub(super) fn next_opened(&self, state: &mut State) -> Option<HopEvent> {
        let State { opened, work, .. } = state;
        let (session, waiting) = opened.iter_mut().find(|(session, _)| work.permits(**session))?;
        let (session, (stream, open)) = (*session, waiting.pop_front()?);
        if waiting.is_empty() {
            opened.remove(&session);
        }
        work.charge(session, OPENING);
        Some(HopEvent::Opened(Stream::new(self.clone(), (session, stream)), open))
    }
}

impl State {
    /// Forgets the streams that the peer of an ended session has opened and that nobody knows of yet.
    pub(super) fn forget_opened(&mut self, session: SessionId) {
        for (stream, _) in self.opened.remove(&session).into_iter().flatten() {
            self.streams.remove(&(session, stream));
        }
    }

    fn begin_turn(&mut self) {
        self.opened.keys().for_each(|session| self.work.wait(*session));
        self.work.begin_turn();
        let Self { resting, streams, .. } = self;
        resting.retain(|session, waiting| {
            let count = waiting.len().min(WOKEN_PER_TURN);
            for stream in waiting.drain(..count) {
                let Some(entry) = streams.get_mut(&(*session, stream)) else { continue };
                entry.rests = false;
                wake(&mut entry.reader);
                wake(&mut entry.writer);
            }
            !waiting.is_empty()
        });
    }

    /// Whether something waits for the driver's next turn.
    pub(crate) fn wants_turn(&self) -> bool {
        !self.resting.is_empty() || !self.opened.is_empty()
    }

    /// Whether a session may work before the driver's next turn.
    pub(in crate::hop) fn may_work(&self, session: SessionId) -> bool {
        self.work.permits(session)
    }

    /// Notes that data of a stream was moved.
    pub(in crate::hop) fn charge(&mut self, session: SessionId, bytes: usize) {
        self.work.charge(session, CALL + bytes as u64);
    }

    /// Wakes those who wait for a stream in the driver's next turn.
    pub(in crate::hop) fn rest(&mut self, key: Key) {
        self.work.wait(key.0);
        let (_, entry) = self.entry(key);
        if !std::mem::replace(&mut entry.rests, true) {
            self.resting.entry(key.0).or_default().push_back(key.1);
        }
    }
}
