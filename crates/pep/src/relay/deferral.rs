//! Deferred answers: a SYN is answered only after the far end has connected.
//!
//! While the far side connects, a withheld SYN is a [`PendingSyn`]. Then it is let in and accepted here, or
//! the client gets the reason of the failure. A retransmitted SYN is the same [`PendingSyn`].

use core::net::SocketAddr;
use std::collections::BTreeMap;

/// Maximum number of pending SYNs and of connections that resulted from them: the number of streams of a
/// session.
const MAX_FLOWS: usize = 65_536;

/// Source and destination of a connection.
type Ends = (SocketAddr, SocketAddr);

/// A withheld SYN. A SYN between the same ends after this one was forgotten is another [`PendingSyn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingSyn {
    ends: Ends,
    number: u64,
}

/// Action for a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynAction {
    /// Ask the far side to connect. Call [`PendingSyns::end`] when the connection is over.
    New(PendingSyn),
    /// Let it in. The first SYN or its answer was lost, or the SYN is an old one, or the client has
    /// forgotten a connection that still exists here.
    LetIn,
    /// Drop it: it is already pending, or too many others are.
    Drop,
}

/// Pending SYNs, and the connections that resulted from them.
#[derive(Debug, Default)]
pub struct PendingSyns {
    flows: BTreeMap<Ends, SynEntry>,
    next: u64,
}

#[derive(Debug)]
struct SynEntry {
    number: u64,
    /// `true` once the far end has answered: the kernel handles further SYNs.
    is_answered: bool,
    /// `true` once its connection was accepted here.
    is_accepted: bool,
}

impl PendingSyns {
    /// Handles a SYN from `source` to `destination`.
    pub fn handle_syn(&mut self, source: SocketAddr, destination: SocketAddr) -> SynAction {
        let ends = (source, destination);
        match self.flows.get(&ends) {
            Some(flow) if flow.is_answered => return SynAction::LetIn,
            // A retransmission: the first SYN is answered when the far side has connected.
            Some(_) => return SynAction::Drop,
            None if self.flows.len() >= MAX_FLOWS => return SynAction::Drop,
            None => {}
        }
        let number = self.next;
        self.next += 1;
        self.flows.insert(ends, SynEntry { number, is_answered: false, is_accepted: false });
        SynAction::New(PendingSyn { ends, number })
    }

    /// Handles the far side's success. Returns `true` if the SYN must be let in, `false` if it was
    /// forgotten.
    pub fn answer(&mut self, pending: PendingSyn) -> bool {
        let flow = self.flow(pending);
        flow.map(|flow| flow.is_answered = true).is_some()
    }

    /// Returns `true` while the SYN is pending, so that its client can be told of a failure.
    pub fn contains(&mut self, pending: PendingSyn) -> bool {
        self.flow(pending).is_some()
    }

    /// Handles a connection that was accepted. Returns its SYN, once.
    pub fn accept(&mut self, source: SocketAddr, destination: SocketAddr) -> Option<PendingSyn> {
        let ends = (source, destination);
        // A second connection between the same ends is not the one that was asked for.
        let flow = self.flows.get_mut(&ends).filter(|flow| !flow.is_accepted)?;
        flow.is_accepted = true;
        Some(PendingSyn { ends, number: flow.number })
    }

    /// Handles the end of the connection, or a connection that was not established.
    pub fn end(&mut self, pending: PendingSyn) {
        if self.flow(pending).is_some() {
            self.flows.remove(&pending.ends);
        }
    }

    /// Forgets the pending SYNs. From now on SYNs pass unaccelerated, and a client that connects that way
    /// must not be answered a second time.
    pub fn forget(&mut self) {
        self.flows.retain(|_, flow| flow.is_answered);
    }

    fn flow(&mut self, pending: PendingSyn) -> Option<&mut SynEntry> {
        self.flows.get_mut(&pending.ends).filter(|flow| flow.number == pending.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        (([192, 0, 2, 1], port).into(), ([198, 51, 100, 1], 80).into())
    }

    fn ask(syns: &mut PendingSyns, port: u16) -> SynAction {
        let (source, destination) = ends(port);
        syns.handle_syn(source, destination)
    }

    fn asked(syns: &mut PendingSyns, port: u16) -> PendingSyn {
        match ask(syns, port) {
            SynAction::New(pending) => pending,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_repeated_syn_is_one_question_until_its_connection_is_over() {
        let mut syns = PendingSyns::default();
        let pending = asked(&mut syns, 1);
        assert_eq!(ask(&mut syns, 1), SynAction::Drop, "while the far end is asked");
        assert!(syns.answer(pending));
        assert_eq!(ask(&mut syns, 1), SynAction::LetIn, "while the connection exists");
        syns.end(pending);
        assert_ne!(asked(&mut syns, 1), pending);
    }

    #[test]
    fn a_forgotten_question_is_not_answered_and_may_be_asked_again() {
        let mut syns = PendingSyns::default();
        let [answered, pending] = [1, 2].map(|port| asked(&mut syns, port));
        assert!(syns.answer(answered));
        syns.forget();
        assert!(!syns.answer(pending) && !syns.contains(pending));
        let again = asked(&mut syns, 2);
        syns.end(pending);
        assert!(syns.contains(again), "the end of the old one does not end the new one");
        assert_eq!(ask(&mut syns, 1), SynAction::LetIn, "an answered one is not forgotten");
    }

    #[test]
    fn an_accepted_connection_goes_to_its_question_once() {
        let mut syns = PendingSyns::default();
        let pending = asked(&mut syns, 1);
        let (source, destination) = ends(1);
        assert_eq!(syns.accept(source, destination), Some(pending));
        assert_eq!(syns.accept(source, destination), None);
        assert_eq!(syns.accept(destination, source), None, "nobody asked for it");
    }

    #[test]
    fn pending_syns_are_bounded() {
        let mut syns = PendingSyns::default();
        for number in 0..MAX_FLOWS {
            let source = ([10, 0, (number >> 16) as u8, 0], number as u16).into();
            assert!(matches!(syns.handle_syn(source, ends(0).1), SynAction::New(_)));
        }
        assert_eq!(ask(&mut syns, 1), SynAction::Drop);
    }
}
