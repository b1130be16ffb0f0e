use proptest::prelude::*;

use super::*;

fn counts(ect0: u64, ce: u64) -> EcnCounts {
    EcnCounts { ect0, ce }
}

/// A sender that has sent all packets below a number, and the packets with ECT(0) among them.
struct Sender {
    marking: Marking,
    next: u64,
    ect: Vec<u64>,
    /// The peer's packets.
    heard: u64,
}

impl Sender {
    fn new() -> Self {
        Self { marking: Marking::new(true), next: 0, ect: Vec::new(), heard: 0 }
    }

    /// Sends packets; returns the numbers of those with ECT(0).
    fn send(&mut self, packets: u64) -> Vec<u64> {
        let end = self.next + packets;
        let mut sent = Vec::new();
        for number in self.next..end {
            if self.marking.codepoint(number) == Ecn::Ect0 {
                self.marking.sent_ect();
                sent.push(number);
            }
        }
        self.next = end;
        self.ect.extend(&sent);
        sent
    }

    /// An acknowledgement of these packets, with counts if any.
    fn ack(&mut self, packets: &[u64], counts: Option<EcnCounts>) -> u64 {
        counts.into_iter().for_each(|counts| self.marking.heard(self.heard, counts));
        self.heard += 1;
        self.marking.acknowledged(packets.iter().map(|number| (*number, true)))
    }

    /// A sender on a path found capable: ten packets arrived, none marked.
    fn capable() -> Self {
        let mut sender = Self::new();
        let sent = sender.send(20);
        assert_eq!((sent.len(), sender.ack(&sent, Some(counts(10, 0)))), (10, 0));
        assert_eq!(sender.marking.state(), EcnState::Capable);
        sender
    }
}

#[test]
fn a_change_is_reported_twice_and_then_no_more() {
    let mut tally = Tally::default();
    assert_eq!(tally.report(), None);
    [Ecn::Ect0, Ecn::Ce, Ecn::Ect0].into_iter().for_each(|ecn| tally.arrived(ecn));
    assert_eq!(tally.report(), Some(counts(2, 1)));
    tally.arrived(Ecn::Ce);
    assert_eq!([tally.report(), tally.report()], [Some(counts(2, 2)); 2]);
    assert_eq!(tally.report(), None);
    [Ecn::NotEct, Ecn::Ect1].into_iter().for_each(|ecn| tally.arrived(ecn));
    assert_eq!(tally.report(), None, "what is not counted changes nothing");
}

#[test]
fn a_path_is_tested_with_every_second_of_its_first_twenty_packets() {
    let mut sender = Sender::new();
    assert_eq!(sender.send(100), (0..20).filter(|number| number % 2 == 1).collect::<Vec<_>>());
    assert_eq!(sender.marking.state(), EcnState::Testing);
}

#[test]
fn one_counted_test_is_enough() {
    let mut sender = Sender::new();
    let sent = sender.send(3);
    assert_eq!((sender.ack(&sent, Some(counts(1, 0))), sent), (0, vec![1]));
    assert_eq!(sender.marking.state(), EcnState::Capable);
    assert_eq!(sender.send(3), [3, 4, 5]);
}

#[test]
fn disabled_it_sets_nothing_and_believes_nothing() {
    let mut marking = Marking::new(false);
    assert!((0..50).all(|number| marking.codepoint(number) == Ecn::NotEct));
    marking.heard(0, counts(1 << 60, 1 << 60));
    assert_eq!(marking.acknowledged([(1, true)].into_iter()), 0);
    assert_eq!(marking.state(), EcnState::Off);
}

#[test]
fn marks_are_returned_once_each() {
    let mut sender = Sender::capable();
    let sent = sender.send(20);
    assert_eq!(sender.ack(&sent[..8], Some(counts(15, 3))), 3);
    assert_eq!(sender.ack(&[], Some(counts(15, 3))), 0, "the second report");
    // An acknowledgement is lost; the next brings all.
    assert_eq!(sender.ack(&sent[8..], Some(counts(20, 10))), 7);
    assert_eq!(sender.marking.state(), EcnState::Capable);
}

#[test]
fn counts_before_their_acknowledgement_wait_for_it() {
    let mut sender = Sender::capable();
    let sent = sender.send(2);
    sender.marking.heard(7, counts(10, 1));
    sender.marking.heard(8, counts(10, 2));
    assert_eq!(sender.marking.acknowledged(sent.iter().map(|number| (*number, true))), 2);
}

#[test]
fn older_counts_that_come_late_are_ignored() {
    let mut sender = Sender::capable();
    let sent = sender.send(10);
    sender.heard = 50;
    assert_eq!(sender.ack(&sent, Some(counts(15, 5))), 5);
    sender.marking.heard(49, counts(12, 2));
    assert_eq!(sender.marking.acknowledged(core::iter::empty()), 0);
    assert_eq!(sender.marking.state(), EcnState::Capable);
}

#[test]
fn a_path_that_clears_all_codepoints_fails_its_test() {
    let mut sender = Sender::new();
    let sent = sender.send(100);
    sender.ack(&sent[..9], None);
    assert_eq!(sender.marking.state(), EcnState::Testing);
    sender.ack(&sent[9..], None);
    assert_eq!((sender.marking.state(), sender.send(100)), (EcnState::Failed, vec![]));
}

#[test]
fn a_path_that_loses_all_packets_with_ect_fails_its_test() {
    let mut sender = Sender::new();
    let sent = sender.send(100);
    sent[1..].iter().for_each(|number| sender.marking.lost(*number));
    assert_eq!(sender.marking.state(), EcnState::Testing);
    sender.marking.lost(sent[0]);
    assert_eq!((sender.marking.state(), sender.send(100)), (EcnState::Failed, vec![]));
}

#[test]
fn a_path_that_loses_many_packets_does_not_fail() {
    let mut sender = Sender::new();
    let sent = sender.send(100);
    sent[1..].iter().for_each(|number| sender.marking.lost(*number));
    sender.ack(&sent[..1], Some(counts(1, 0)));
    assert_eq!(sender.marking.state(), EcnState::Capable);
    let sent = sender.send(1000);
    sent.iter().for_each(|number| sender.marking.lost(*number));
    assert_eq!(sender.marking.state(), EcnState::Capable);
}

#[test]
fn a_path_that_clears_codepoints_later_fails() {
    // Some of them: fewer are counted than acknowledged.
    let mut sender = Sender::capable();
    let sent = sender.send(10);
    assert_eq!(sender.ack(&sent, Some(counts(16, 3))), 0);
    assert_eq!((sender.marking.state(), sender.send(9)), (EcnState::Failed, vec![]));
    // All of them: nothing is counted any more.
    let mut sender = Sender::capable();
    let sent = sender.send(30);
    sender.ack(&sent[..10], None);
    sender.ack(&sent[10..20], None);
    assert_eq!(sender.marking.state(), EcnState::Capable, "two acknowledgements may be lost");
    sender.ack(&sent[20..], None);
    assert_eq!(sender.marking.state(), EcnState::Failed);
}

#[test]
fn lost_counts_are_made_up_for_by_the_next() {
    let mut sender = Sender::capable();
    let sent = sender.send(30);
    sender.ack(&sent[..10], None);
    sender.ack(&sent[10..20], None);
    assert_eq!(sender.ack(&sent[20..], Some(counts(38, 2))), 2);
    let sent = sender.send(30);
    sender.ack(&sent[..10], None);
    sender.ack(&sent[10..20], None);
    assert_eq!(sender.marking.state(), EcnState::Capable);
}

#[test]
fn packets_that_repairs_restored_need_not_be_counted() {
    let mut sender = Sender::capable();
    let sent = sender.send(10);
    sender.marking.heard(99, counts(16, 0));
    let packets = sent.iter().map(|number| (*number, *number % 5 > 1));
    assert_eq!(sender.marking.acknowledged(packets), 0);
    assert_eq!(sender.marking.state(), EcnState::Capable);
}

#[test]
fn counts_that_cannot_be_true_end_it_for_the_session() {
    for wrong in
        [counts(11, 0), counts(10, 1), counts(9, 1), counts(0, 0), counts(1 << 61, 1 << 61)]
    {
        let mut sender = Sender::capable();
        assert_eq!(sender.ack(&[], Some(wrong)), 0, "{wrong:?}");
        assert_eq!(sender.marking.state(), EcnState::Failed, "{wrong:?}");
        assert_eq!(sender.send(100), []);
        // Not even the truth, or another path, brings it back.
        assert_eq!(sender.ack(&[], Some(counts(10, 0))), 0);
        sender.marking.restart(200);
        assert_eq!((sender.marking.state(), sender.send(100)), (EcnState::Failed, vec![]));
    }
}

#[test]
fn another_path_is_tested_anew() {
    let mut sender = Sender::capable();
    let old = sender.send(50);
    sender.marking.restart(sender.next);
    assert_eq!(sender.marking.state(), EcnState::Testing);
    let new = sender.send(100);
    assert_eq!(new.len(), 10);
    // What took the old path says nothing about the new one.
    assert_eq!(sender.ack(&old, Some(counts(59, 1))), 1);
    assert_eq!(sender.marking.state(), EcnState::Testing);
    new.iter().for_each(|number| sender.marking.lost(*number));
    assert_eq!(sender.marking.state(), EcnState::Failed);
}

proptest! {
    /// On an honest path every mark is reported exactly once, whatever is lost on the way there and
    /// back.
    #[test]
    fn every_mark_is_reported_once(
        flights in prop::collection::vec((1u64..30, any::<u32>(), any::<u32>(), any::<bool>()), 1..60)
    ) {
        let (mut sender, mut tally) = (Sender::capable(), Tally::default());
        (0..10).for_each(|_| tally.arrived(Ecn::Ect0));
        let (mut waiting, mut total) = (Vec::new(), 0);
        for (packets, lost, marked, returns) in flights {
            let bit = |bits: u32, number: u64| bits >> (number % 32) & 1 == 1;
            for number in sender.send(packets).into_iter().filter(|number| !bit(lost, *number)) {
                tally.arrived(if bit(marked, number) { Ecn::Ce } else { Ecn::Ect0 });
                waiting.push(number);
            }
            let report = tally.report();
            if returns {
                total += sender.ack(&core::mem::take(&mut waiting), report);
            }
        }
        // A last packet brings the rest.
        waiting.extend(sender.send(1));
        tally.arrived(Ecn::Ect0);
        total += sender.ack(&waiting, tally.report());
        prop_assert_eq!((sender.marking.state(), total), (EcnState::Capable, tally.counts().ce));
    }

    /// No peer makes it panic, report more marks than there were packets, or mark again after it
    /// has failed.
    #[test]
    fn any_counts_are_harmless(
        steps in prop::collection::vec((0u64..40, 0u64..100, 0u64..100, 0usize..40), 0..60)
    ) {
        let (mut sender, mut total) = (Sender::new(), 0);
        for (packets, ect0, ce, acked) in steps {
            let failed = sender.marking.state() == EcnState::Failed;
            let sent = sender.send(packets);
            prop_assert!(!failed || sent.is_empty());
            total += sender.ack(&sent[..acked.min(sent.len())], Some(counts(ect0, ce)));
            prop_assert!(total <= sender.marking.sent());
        }
    }
}
