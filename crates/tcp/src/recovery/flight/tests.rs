use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MSS: u64 = 100;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Ten segments, one per millisecond.
fn ten() -> SegmentScoreboard {
    let mut flight = SegmentScoreboard::default();
    for n in 0..10 {
        flight.push(n * MSS..n * MSS + MSS, at(n), DeliverySnapshot::default());
    }
    flight
}

fn sacked(flight: &mut SegmentScoreboard, range: Range<u64>) -> Vec<u64> {
    let mut starts = Vec::new();
    flight.sack(range, |sent| starts.push(sent.start));
    starts
}

#[test]
fn a_block_is_news_once_and_only_for_whole_segments() {
    let mut flight = ten();
    assert_eq!(sacked(&mut flight, 150..350), [200]);
    assert_eq!(flight.in_flight(), 900);
    assert_eq!(sacked(&mut flight, 200..500), [300, 400]);
    assert_eq!(sacked(&mut flight, 200..500), []);
    assert_eq!((flight.in_flight(), flight.highest_sacked()), (700, Some(500)));
}

/// RFC 6675 §4: segments are lost if three runs, or more than two full segments, are selectively
/// acknowledged above them.
#[test]
fn is_lost() {
    let mut flight = ten();
    sacked(&mut flight, 100..200);
    sacked(&mut flight, 300..400);
    assert_eq!(flight.lost_below(3, MSS), None);
    sacked(&mut flight, 500..600);
    assert_eq!(flight.lost_below(3, MSS), Some(100));
    sacked(&mut flight, 600..800);
    assert_eq!(flight.lost_below(3, MSS), Some(500));
    assert!(flight.mark_lost_below(500));
    assert!(!flight.mark_lost_below(500));
    assert_eq!(flight.lost.iter().copied().collect::<Vec<_>>(), [0, 2, 4]);
    assert_eq!(flight.in_flight(), 200);
}

#[test]
fn what_was_sent_again_is_not_judged_again() {
    let mut flight = ten();
    flight.mark_lost(0);
    flight.resend(0, at(20), DeliverySnapshot::default());
    sacked(&mut flight, 300..900);
    flight.mark_lost_below(300);
    assert_eq!(flight.lost.iter().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_partial_acknowledgement_leaves_the_rest() {
    let mut flight = ten();
    let mut whole = 0;
    flight.acknowledge(250, |_| whole += 1);
    assert_eq!((whole, flight.in_flight(), flight.front().unwrap().start), (2, 750, 250));
}

/// RFC 8985: in the order of transmission, with retransmissions last.
#[test]
fn expiry_follows_the_order_of_transmission() {
    let mut flight = ten();
    flight.mark_lost(1);
    flight.resend(1, at(20), DeliverySnapshot::default());
    let (any, next) = flight.expire(u64::MAX, |sent| sent.sent_at <= at(3));
    assert!(any);
    assert_eq!(next.unwrap().start, 400);
    assert_eq!(flight.lost.iter().copied().collect::<Vec<_>>(), [0, 2, 3]);
    let (_, next) = flight.expire(u64::MAX, |sent| sent.sent_at <= at(15));
    assert_eq!(next.unwrap().start, 100);
    // Nothing was sent after the last segment to arrive.
    assert!(matches!(flight.expire(5, |_| true), (false, None)));
    // Back in flight, all of them are watched again, in the same order.
    flight.unmark_lost();
    let (_, next) = flight.expire(u64::MAX, |sent| sent.sent_at <= at(4));
    assert_eq!(next.unwrap().start, 500);
}

#[test]
fn a_receiver_may_throw_away_what_it_had() {
    let mut flight = ten();
    sacked(&mut flight, 0..1000);
    assert_eq!(flight.in_flight(), 0);
    flight.forget_sacks();
    assert_eq!((flight.in_flight(), flight.sacked_count()), (1000, 0));
    flight.mark_all_lost();
    assert_eq!((flight.in_flight(), flight.first_lost()), (0, Some(0)));
}

#[test]
fn holes_are_below_sacked_data() {
    let mut flight = ten();
    sacked(&mut flight, 200..300);
    sacked(&mut flight, 400..500);
    assert_eq!(flight.hole(0), Some(0));
    assert_eq!(flight.hole(2), Some(3));
    assert_eq!(flight.hole(4), None);
}

proptest! {
    /// The counters always agree with a plain model.
    #[test]
    fn counters_follow_a_plain_model(
        steps in prop::collection::vec((0..5u8, 0..40u64, 1..8u64), 1..80)
    ) {
        let mut flight = SegmentScoreboard::default();
        let mut una = 0;
        let mut nxt = 0;
        for (step, a, b) in steps {
            match step {
                0 => {
                    flight.push(nxt..nxt + b, at(nxt), DeliverySnapshot::default());
                    nxt += b;
                }
                1 => flight.sack(una + a..(una + a + 3 * b).min(nxt), |_| {}),
                2 => {
                    una = (una + b).min(nxt);
                    flight.acknowledge(una, |_| {});
                }
                3 => { flight.mark_lost_below(una + a); }
                _ => if let Some(id) = flight.first_lost() {
                    flight.resend(id, at(1000), DeliverySnapshot::default());
                },
            }
            let by = |fate| flight.segments.iter().filter(move |sent| sent.state == fate);
            prop_assert_eq!(flight.in_flight(), by(SegmentState::InFlight).map(SentSegment::len).sum::<u64>());
            let lost: BTreeSet<u64> = (flight.first..).zip(&flight.segments)
                .filter(|(_, sent)| sent.state == SegmentState::Lost).map(|(id, _)| id).collect();
            prop_assert_eq!(&lost, &flight.lost);
            prop_assert_eq!(flight.sacked_count(), by(SegmentState::Sacked).count());
            let top = by(SegmentState::Sacked).map(|sent| sent.end).max();
            prop_assert_eq!(flight.highest_sacked(), top);
            prop_assert!(flight.segments.front().is_none_or(|sent| sent.start >= una));
        }
    }
}
