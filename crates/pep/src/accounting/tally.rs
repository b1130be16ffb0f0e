//! Counts per class what sessions carry, until the ledger takes it.

use std::collections::BTreeMap;

use slacp::{ClassId, PublicKey};

use super::TrafficUsage;

/// Direction of traffic, seen from the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficDirection {
    /// To the terminal: what its clients download.
    To,
    /// From the terminal: what its clients upload.
    From,
}

/// Usage of a terminal in a class since the last [`UsageTally::take`].
pub type UsageRecord = (PublicKey, ClassId, TrafficUsage);

/// Usage of sessions identified by `S`.
#[derive(Debug)]
pub struct UsageTally<S> {
    sessions: BTreeMap<S, SessionUsage>,
    /// Usage of sessions that have ended.
    over: Vec<UsageRecord>,
}

#[derive(Debug)]
struct SessionUsage {
    peer: PublicKey,
    classes: BTreeMap<ClassId, TrafficUsage>,
}

impl<S> Default for UsageTally<S> {
    fn default() -> Self {
        Self { sessions: BTreeMap::new(), over: Vec::new() }
    }
}

impl<S: Copy + Ord> UsageTally<S> {
    /// Starts counting a session with this peer.
    pub fn begin(&mut self, session: S, peer: PublicKey) {
        self.end(session);
        self.sessions.insert(session, SessionUsage { peer, classes: BTreeMap::new() });
    }

    /// Ends a session. Its usage is kept for the next [`Self::take`].
    pub fn end(&mut self, session: S) {
        let counts = self.sessions.remove(&session);
        self.over.extend(counts.into_iter().flat_map(SessionUsage::take));
    }

    /// Counts bytes of a connection.
    pub fn moved(&mut self, session: S, class: ClassId, direction: TrafficDirection, bytes: usize) {
        let Some(usage) = self.usage(session, class) else { return };
        match direction {
            TrafficDirection::To => usage.bytes_to += bytes as u64,
            TrafficDirection::From => usage.bytes_from += bytes as u64,
        }
    }

    /// Counts a packet carried whole.
    pub fn packet(
        &mut self,
        session: S,
        class: ClassId,
        direction: TrafficDirection,
        bytes: usize,
    ) {
        self.moved(session, class, direction, bytes);
        let Some(usage) = self.usage(session, class) else { return };
        match direction {
            TrafficDirection::To => usage.packets_to += 1,
            TrafficDirection::From => usage.packets_from += 1,
        }
    }

    /// Counts a connection that was opened.
    pub fn opened(&mut self, session: S, class: ClassId) {
        if let Some(usage) = self.usage(session, class) {
            usage.connections += 1;
        }
    }

    /// Takes the usage counted since the last call.
    pub fn take(&mut self) -> Vec<UsageRecord> {
        let mut taken = core::mem::take(&mut self.over);
        taken.extend(self.sessions.values_mut().flat_map(|counts| {
            let classes = core::mem::take(&mut counts.classes);
            SessionUsage { peer: counts.peer, classes }.take()
        }));
        taken
    }

    fn usage(&mut self, session: S, class: ClassId) -> Option<&mut TrafficUsage> {
        Some(self.sessions.get_mut(&session)?.classes.entry(class).or_default())
    }
}

impl SessionUsage {
    fn take(self) -> impl Iterator<Item = UsageRecord> {
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
        let mut tally = UsageTally::default();
        tally.begin(1, SHIP);
        tally.opened(1, CLASS);
        tally.moved(1, CLASS, TrafficDirection::To, 100);
        tally.packet(1, CLASS, TrafficDirection::From, 40);
        tally.moved(2, CLASS, TrafficDirection::To, 7);
        tally.end(1);
        tally.begin(3, SHIP);
        tally.moved(3, CLASS, TrafficDirection::From, 5);
        let (mut all, taken) = (TrafficUsage::default(), tally.take());
        for (peer, class, usage) in &taken {
            assert_eq!((*peer, *class), (SHIP, CLASS));
            all.add(usage);
        }
        let (bytes_to, bytes_from) = (100, 45);
        let expected =
            TrafficUsage { bytes_to, bytes_from, packets_to: 0, packets_from: 1, connections: 1 };
        assert_eq!((taken.len(), all), (2, expected));
        assert_eq!(tally.take(), []);
        tally.moved(3, CLASS, TrafficDirection::From, 6);
        assert_eq!(
            tally.take(),
            [(SHIP, CLASS, TrafficUsage { bytes_from: 6, ..TrafficUsage::default() })]
        );
    }
}
