//! Counts per class what sessions carry, until the ledger takes it.

use std::collections::BTreeMap;

use slacp::{ClassId, PublicKey};

use super::Usage;

/// Direction of traffic, seen from the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the terminal.
    To,
    /// From the terminal.
    From,
}

/// Usage of a terminal in a class since the last [`Tally::take`].
pub type Taken = (PublicKey, ClassId, Usage);

/// Usage of sessions identified by `S`.
#[derive(Debug)]
pub struct Tally<S> {
    sessions: BTreeMap<S, Counts>,
    /// Usage of sessions that have ended.
    over: Vec<Taken>,
}

#[derive(Debug)]
struct Counts {
    peer: PublicKey,
    classes: BTreeMap<ClassId, Usage>,
}

impl<S> Default for Tally<S> {
    fn default() -> Self {
        Self { sessions: BTreeMap::new(), over: Vec::new() }
    }
}

impl<S: Copy + Ord> Tally<S> {
    /// Starts counting a session with this peer.
    pub fn begin(&mut self, session: S, peer: PublicKey) {
        self.end(session);
        self.sessions.insert(session, Counts { peer, classes: BTreeMap::new() });
    }

    /// Ends a session. Its usage is kept for the next [`Self::take`].
    pub fn end(&mut self, session: S) {
        let counts = self.sessions.remove(&session);
        self.over.extend(counts.into_iter().flat_map(Counts::take));
    }

    /// Counts bytes of a connection.
    pub fn moved(&mut self, session: S, class: ClassId, direction: Direction, bytes: usize) {
        let Some(usage) = self.usage(session, class) else { return };
        match direction {
            Direction::To => usage.bytes_to += bytes as u64,
            Direction::From => usage.bytes_from += bytes as u64,
        }
    }

    /// Counts a packet carried whole.
    pub fn packet(&mut self, session: S, class: ClassId, direction: Direction, bytes: usize) {
        self.moved(session, class, direction, bytes);
        let Some(usage) = self.usage(session, class) else { return };
        match direction {
            Direction::To => usage.packets_to += 1,
            Direction::From => usage.packets_from += 1,
        }
    }

    /// Counts a connection that was opened.
    pub fn opened(&mut self, session: S, class: ClassId) {
        if let Some(usage) = self.usage(session, class) {
            usage.connections += 1;
        }
    }

    /// Takes the usage counted since the last call.
    pub fn take(&mut self) -> Vec<Taken> {
        let mut taken = core::mem::take(&mut self.over);
        taken.extend(self.sessions.values_mut().flat_map(|counts| {
            let classes = core::mem::take(&mut counts.classes);
            Counts { peer: counts.peer, classes }.take()
        }));
        taken
    }

    fn usage(&mut self, session: S, class: ClassId) -> Option<&mut Usage> {
        Some(self.sessions.get_mut(&session)?.classes.entry(class).or_default())
    }
}

impl Counts {
    fn take(self) -> impl Iterator<Item = Taken> {
        let Self { peer, classes } = self;
        classes.into_iter().map(move |(class, usage)| (peer, class, usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIP: PublicKey = PublicKey([1; 32]);
    const CLASS: ClassId = ClassId::DEFAULT;

    #[test]
    fn everything_is_taken_once_also_of_sessions_that_are_over() {
        let mut tally = Tally::default();
        tally.begin(1, SHIP);
        tally.opened(1, CLASS);
        tally.moved(1, CLASS, Direction::To, 100);
        tally.packet(1, CLASS, Direction::From, 40);
        tally.moved(2, CLASS, Direction::To, 7);
        tally.end(1);
        tally.begin(3, SHIP);
        tally.moved(3, CLASS, Direction::From, 5);
        let (mut all, taken) = (Usage::default(), tally.take());
        for (peer, class, usage) in &taken {
            assert_eq!((*peer, *class), (SHIP, CLASS));
            all.add(usage);
        }
        let (bytes_to, bytes_from) = (100, 45);
        let expected =
            Usage { bytes_to, bytes_from, packets_to: 0, packets_from: 1, connections: 1 };
        assert_eq!((taken.len(), all), (2, expected));
        assert_eq!(tally.take(), []);
        tally.moved(3, CLASS, Direction::From, 6);
        assert_eq!(tally.take(), [(SHIP, CLASS, Usage { bytes_from: 6, ..Usage::default() })]);
    }
}
