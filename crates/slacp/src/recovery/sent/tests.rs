//! What was sent, what of it came, and what is lost.

use super::*;
use crate::ResetReason;
use crate::wire::frame::{self, AckReport};

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

impl SentPacket {
    /// A full packet without cargo.
    pub(crate) fn bare(time: Instant) -> Self {
        Self {
            size: 1500,
            ect: false,
            sent_bytes: 0,
            link_bytes: 0,
            time,
            contents: SmallVec::new(),
            fec_source: None,
            is_control: false,
            repaired_by: 0,
        }
    }
}

fn sent(count: u64) -> SentPackets {
    let mut book = SentPackets::default();
    for number in 0..count {
        book.push(Some(SentPacket::bare(at(number))));
    }
    book
}

fn acknowledge(book: &mut SentPackets, ranges: &[(u64, u64)]) -> Result<AckedPackets, AckError> {
    acknowledge_restored(book, ranges, &[])
}

fn acknowledge_restored(
    book: &mut SentPackets,
    ranges: &[(u64, u64)],
    restored: &[(u64, u64)],
) -> Result<AckedPackets, AckError> {
    let mut bytes = Vec::new();
    let [ranges, restored] = [ranges, restored].map(|list| list.iter().map(|r| r.0..r.1));
    frame::write_ack(&mut bytes, ranges, restored, &AckReport::default(), 1000);
    let Ok(Some(Frame::Ack(ack))) = frame::read(&mut &bytes[..]) else { panic!() };
    book.acknowledge(at(10), &ack)
}

#[test]
fn passed_by_three_is_lost_and_earlier_only_by_time() {
    let mut book = sent(10);
    let acked = acknowledge(&mut book, &[(5, 6), (0, 1)]).unwrap();
    assert_eq!((acked.packets.len(), acked.largest_sent_at), (2, Some(at(5))));
    let lost = book.take_lost(at(10), Duration::from_millis(100));
    assert_eq!(lost.iter().map(|(_, p)| p.time).collect::<Vec<_>>(), [at(1), at(2)]);
    assert_eq!(book.loss_time(Duration::from_millis(100)), Some(at(103)));
    let lost = book.take_lost(at(104), Duration::from_millis(100));
    assert_eq!(lost.len(), 2);
    assert_eq!(book.settled(), 6);
    assert_eq!(book.loss_time(Duration::from_millis(100)), None);
}

#[test]
fn where_packets_overtake_each_other_the_late_ones_are_awaited() {
    let delay = Duration::from_millis(100);
    let mut book = sent(40);
    acknowledge(&mut book, &[(3, 10), (0, 1)]).unwrap();
    assert_eq!(book.take_lost(at(10), delay).len(), 2);
    // 1 arrives when 13 is known to have arrived: 12 ms late. 2 was restored.
    acknowledge_restored(&mut book, &[(0, 14)], &[(2, 3)]).unwrap();
    assert!(book.take_lost(at(10), delay).is_empty());
    acknowledge(&mut book, &[(20, 30), (0, 14)]).unwrap();
    // 14 was overtaken by 29 by 15 ms, 18 only by 11 ms.
    let lost = book.take_lost(at(10), delay);
    assert_eq!(lost.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [14, 15, 16, 17]);
    assert_eq!(book.loss_time(delay), Some(at(11)));
    // 18 arrives before it was declared lost.
    let acked = acknowledge(&mut book, &[(20, 34), (18, 19)]).unwrap();
    assert_eq!((acked.packets.len(), acked.late_packets), (5, 0));
    assert_eq!(book.reordering.window(), Duration::from_millis(15));
}

#[test]
fn packets_without_cargo_hide_no_newer_ones() {
    let mut book = sent(20);
    acknowledge(&mut book, &[(2, 10), (0, 1)]).unwrap();
    // 1 arrives 8 ms after 9.
    acknowledge(&mut book, &[(0, 10)]).unwrap();
    book.push(None);
    acknowledge(&mut book, &[(18, 21), (0, 16)]).unwrap();
    // 16 was overtaken by 3 ms by 19, the newest with cargo, which was acknowledged at 10.
    assert_eq!(book.loss_time(Duration::from_millis(100)), Some(at(15)));
}

#[test]
fn what_an_acknowledgement_did_not_tell_is_not_late() {
    let mut book = sent(20);
    acknowledge(&mut book, &[(6, 10)]).unwrap();
    acknowledge(&mut book, &[(2, 12)]).unwrap();
    assert_eq!(book.reordering.window(), Duration::ZERO);
}

/// A packet of the control channel is number 5 of eight.
fn ordered() -> SentPackets {
    let mut book = SentPackets::new(LossDetection::Ordered);
    for number in 0..8 {
        book.push(Some(SentPacket { is_control: number == 5, ..SentPacket::bare(at(number)) }));
    }
    book
}

fn numbers_lost(book: &mut SentPackets) -> Vec<u64> {
    let lost = book.take_lost(at(10), Duration::from_secs(1));
    lost.into_iter().map(|(number, _)| number).collect()
}

#[test]
fn on_a_link_that_keeps_order_one_later_packet_tells_of_a_loss() {
    let mut book = ordered();
    acknowledge(&mut book, &[(2, 3), (0, 1)]).unwrap();
    assert_eq!((numbers_lost(&mut book), book.loss_time(Duration::ZERO)), (vec![1], None));
    // Control has overtaken 3 and 4: they are on their way.
    acknowledge(&mut book, &[(5, 6), (2, 3)]).unwrap();
    assert!(numbers_lost(&mut book).is_empty());
    acknowledge(&mut book, &[(4, 6), (2, 3)]).unwrap();
    assert_eq!(numbers_lost(&mut book), [3]);
}

#[test]
fn control_is_never_overtaken_and_waits_for_its_repairs() {
    let mut book = ordered();
    acknowledge(&mut book, &[(6, 7), (0, 5)]).unwrap();
    assert_eq!(numbers_lost(&mut book), [5]);
    let mut book = ordered();
    book.record_repair([5].into_iter(), 7);
    acknowledge(&mut book, &[(6, 7), (0, 5)]).unwrap();
    assert!(numbers_lost(&mut book).is_empty());
    // The last repair has come, and did not suffice.
    acknowledge(&mut book, &[(6, 8), (0, 5)]).unwrap();
    assert_eq!(numbers_lost(&mut book), [5]);
}

#[test]
fn an_acknowledgement_counts_once() {
    let mut book = sent(3);
    assert_eq!(acknowledge(&mut book, &[(0, 3)]).unwrap().packets.len(), 3);
    assert!(book.is_empty());
    let again = acknowledge(&mut book, &[(0, 3)]).unwrap();
    assert!(again.packets.is_empty() && again.largest_sent_at.is_none());
}

#[test]
fn an_acknowledgement_of_a_packet_never_sent_breaks_the_protocol() {
    let mut book = sent(3);
    for ranges in [&[(3, 4)][..], &[(2, 4)], &[(1 << 61, (1 << 61) + 1), (0, 3)]] {
        let error = acknowledge(&mut book, ranges).unwrap_err();
        assert_eq!(error, AckError::NotSentYet { largest: ranges[0].1 - 1, next: 3 });
    }
    assert!(!book.is_empty());
}

#[test]
fn a_number_left_out_is_no_loss_and_is_never_acknowledged() {
    let mut book = sent(3);
    book.skip_number();
    for number in 4..9 {
        book.push(Some(SentPacket::bare(at(number))));
    }
    let error = acknowledge(&mut book, &[(0, 9)]).unwrap_err();
    assert_eq!(error, AckError::Skipped { number: 3 });
    let mut book = sent(3);
    book.skip_number();
    acknowledge(&mut book, &[(0, 3)]).unwrap();
    assert_eq!((book.settled(), book.is_empty()), (4, true));
    assert!(book.take_lost(at(10_000), Duration::from_millis(50)).is_empty());
    assert_eq!(lost(&mut book), [false; 3]);
}

/// On a fast and long link: 100,000 packets are under way, and forty numbers were skipped.
#[test]
fn a_lost_packet_and_the_number_skipped_beside_it_are_told_apart_in_a_long_flight() {
    let packet = || Some(SentPacket::bare(at(1)));
    let mut book = SentPackets::default();
    for _ in 0..40 {
        (0..2499).for_each(|_| book.push(packet()));
        book.skip_number();
    }
    acknowledge(&mut book, &[(2500, 4999), (0, 2499)]).unwrap();
    let error = acknowledge(&mut book, &[(7000, 7600), (0, 4999)]).unwrap_err();
    assert_eq!(error, AckError::Skipped { number: 7499 });
}

#[test]
fn skipped_numbers_are_forgotten_once_nothing_before_them_is_awaited() {
    let mut book = SentPackets::default();
    (0..1000).for_each(|_| book.skip_number());
    assert_eq!(book.skipped.len(), MIN_SKIPPED);
}

#[test]
fn what_the_book_holds_is_counted_and_goes_with_the_packets() {
    let mut book = SentPackets::default();
    for number in 0..100 {
        let (time, source) = (at(number), Some(vec![1; 1000].into()));
        book.push(Some(SentPacket { size: 1040, fec_source: source, ..SentPacket::bare(time) }));
    }
    assert_eq!(book.held(), 100 * (size_of::<PacketSlot>() + size_of::<SentPacket>() + 1000));
    acknowledge(&mut book, &[(50, 100)]).unwrap();
    book.take_lost(at(200), Duration::from_millis(50));
    assert!((1..100 * 1000).contains(&book.held()), "{}", book.held());
    book.take_lost(at(1000), Duration::from_millis(50));
    assert_eq!(book.held(), 0);
}

#[test]
fn a_packet_of_many_small_frames_counts_for_all_of_them() {
    let mut book = SentPackets::default();
    let reset = |n| Frame::Reset { stream: StreamId(n), reason: ResetReason::Reset, sent: 0 };
    let cargo: SentContents = (0..100).map(|n| SentContent::Control(Box::new(reset(n)))).collect();
    book.push(Some(SentPacket { size: 1040, contents: cargo, ..SentPacket::bare(at(0)) }));
    assert!(
        book.held() >= 100 * (size_of::<SentContent>() + size_of::<Frame>()),
        "{}",
        book.held()
    );
    acknowledge(&mut book, &[(0, 1)]).unwrap();
    book.take_lost(at(1000), Duration::from_millis(50));
    assert_eq!(book.held(), 0);
}

fn lost(book: &mut SentPackets) -> Vec<bool> {
    book.take_fates().iter().map(|fate| fate.lost).collect()
}

#[test]
fn restored_packets_were_lost() {
    let mut book = sent(4);
    acknowledge_restored(&mut book, &[(0, 4)], &[(1, 3)]).unwrap();
    assert_eq!(lost(&mut book), [false, true, true, false]);
}

#[test]
fn a_packet_that_comes_after_all_was_late_or_restored() {
    let delay = Duration::from_millis(100);
    let mut book = sent(9);
    acknowledge(&mut book, &[(2, 9)]).unwrap();
    assert_eq!(book.take_lost(at(10), delay).len(), 2);
    assert_eq!(lost(&mut book)[..3], [true, true, false]);
    let acked = acknowledge_restored(&mut book, &[(0, 9)], &[(1, 2)]).unwrap();
    assert_eq!((acked.packets.len(), acked.late_packets), (0, 1));
    assert!(lost(&mut book).is_empty());
}

#[test]
fn acknowledgements_of_the_same_packets_look_at_each_once() {
    const SENT: u64 = 10_000;
    let mut book = sent(SENT);
    for end in 2..=SENT {
        // The first one is never acknowledged, and not lost for a while.
        let acked = acknowledge(&mut book, &[(1, end)]).unwrap();
        assert_eq!(acked.packets.len(), 1);
        book.newest = None;
        assert!(book.take_lost(at(10), Duration::from_secs(100)).is_empty());
    }
    assert!(book.looks as u64 <= 2 * SENT, "{}", book.looks);
    assert_eq!((book.outstanding(), book.covered.count()), (1, 1));
}

#[test]
fn packets_that_are_awaited_are_looked_at_when_the_first_is_lost() {
    const SENT: u64 = 10_000;
    let (mut book, delay) = (sent(SENT), Duration::from_secs(100));
    for end in 2..=SENT {
        acknowledge(&mut book, &[(end - 1, end)]).unwrap();
        // As if nothing showed that later ones overtook it.
        book.newest = None;
        assert!(book.take_lost(at(10), delay).is_empty());
    }
    assert!(book.looks as u64 <= 2 * SENT, "{}", book.looks);
}

#[test]
fn lost_packets_are_forgotten_after_a_while() {
    let (mut book, delay) = (SentPackets::default(), Duration::from_millis(100));
    (0..100).for_each(|_| book.push(Some(SentPacket::bare(at(0)))));
    acknowledge(&mut book, &[(99, 100)]).unwrap();
    assert_eq!(book.take_lost(at(10), delay).len(), 97);
    acknowledge(&mut book, &[(0, 10)]).unwrap();
    assert_eq!(book.declared_lost.len(), 87);
    // The rest is lost by now.
    assert_eq!(book.take_lost(at(111), delay).len(), 2);
    assert_eq!((book.declared_lost.len(), book.loss_times.len()), (2, 2));
}
