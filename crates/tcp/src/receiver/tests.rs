#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of length one")]

use proptest::prelude::*;

use super::*;
use crate::ByteRange;

/// Data of the stream: position p holds byte p − 1.
fn data(range: Range<u64>) -> ByteRange {
    ByteRange::new(range.start - 1..range.end - 1)
}

fn insert(receiver: &mut StreamReceiver<ByteRange>, range: Range<u64>) -> DataArrival {
    receiver.insert(range.start, &data(range))
}

fn receiver() -> StreamReceiver<ByteRange> {
    let mut receiver = StreamReceiver::new(1000);
    receiver.advertise(0, 100);
    receiver
}

/// RFC 2018 §5, case 2 and the case after it: every other segment is lost.
#[test]
fn the_latest_arrival_is_reported_first() {
    let mut it = receiver();
    assert_eq!(insert(&mut it, 1..11), DataArrival::InOrder);
    for (start, expected) in [
        (21, vec![21..31]),
        (41, vec![41..51, 21..31]),
        (61, vec![61..71, 41..51, 21..31]),
        (81, vec![81..91, 61..71, 41..51, 21..31]),
        (101, vec![101..111, 81..91, 61..71, 41..51]),
    ] {
        assert_eq!(insert(&mut it, start..start + 10), DataArrival::OutOfOrder);
        assert_eq!(it.sack_blocks(true).to_vec(), expected);
    }
    // The fourth hole is filled, then the first.
    assert_eq!(insert(&mut it, 71..81), DataArrival::OutOfOrder);
    assert_eq!(it.sack_blocks(true).to_vec(), [61..91, 101..111, 41..51, 21..31]);
    assert_eq!(insert(&mut it, 11..21), DataArrival::FilledHole);
    assert_eq!(it.next(), 31);
    assert_eq!(it.sack_blocks(true).to_vec(), [61..91, 101..111, 41..51]);
}

/// RFC 2018 §4: the block reported last is repeated, however much data joins the first block
/// meanwhile.
#[test]
fn a_growing_island_drives_no_other_out_of_the_report() {
    let mut it = receiver();
    for start in [31, 11, 51] {
        insert(&mut it, start..start + 10);
    }
    for start in (71..171).step_by(10) {
        insert(&mut it, start..start + 10);
    }
    assert_eq!(it.sack_blocks(true).to_vec(), [71..171, 51..61, 11..21, 31..41]);
    // A fifth is reported when one of the four has been filled.
    insert(&mut it, 201..211);
    assert_eq!(it.sack_blocks(true).to_vec(), [201..211, 71..171, 51..61, 11..21]);
    insert(&mut it, 1..11);
    assert_eq!(it.sack_blocks(true).to_vec(), [201..211, 71..171, 51..61, 31..41]);
}

/// RFC 2883 §4.1: a duplicate is reported once, below the ACK.
#[test]
fn duplicates_are_reported_once() {
    let mut it = receiver();
    insert(&mut it, 1..21);
    assert_eq!(insert(&mut it, 11..21), DataArrival::Duplicate);
    assert_eq!(it.sack_blocks(true).to_vec(), [11..21]);
    assert_eq!(it.sack_blocks(true).to_vec(), []);
    insert(&mut it, 31..41);
    assert_eq!(insert(&mut it, 31..41), DataArrival::Duplicate);
    // RFC 2883 §4.2: followed by the block that contains it.
    assert_eq!(it.sack_blocks(true).to_vec(), [31..41, 31..41]);
}

#[test]
fn the_window_never_shrinks_and_opens_by_segments() {
    let mut it = StreamReceiver::<ByteRange>::new(1000);
    assert_eq!(it.advertise(0, 100), 1000);
    insert(&mut it, 1..951);
    assert_eq!(it.advertise(0, 100), 50);
    it.read(60);
    // Room for 110 now, 60 more than promised: less than a segment.
    assert_eq!(it.advertise(0, 100), 50);
    assert!(!it.owes_update(100));
    it.read(150);
    assert!(it.owes_update(100));
    assert_eq!(it.advertise(0, 100), 260);
}

#[test]
fn a_scaled_window_keeps_its_promise() {
    let mut it = StreamReceiver::<ByteRange>::new(100_000);
    assert_eq!(it.advertise(7, 1000), 781);
    insert(&mut it, 1..2);
    // 781 · 128 bytes were promised up to the edge; one has come.
    let window = u64::from(it.advertise(7, 1000)) << 7;
    assert!(it.next() + window > 781 << 7);
}

#[test]
fn a_second_end_is_not_believed() {
    let mut it = receiver();
    insert(&mut it, 11..21);
    it.finish(15);
    it.finish(21);
    it.finish(30);
    assert!(!it.is_complete());
    insert(&mut it, 1..11);
    assert!(it.is_complete());
    assert_eq!(it.next(), 22);
}

proptest! {
    #[test]
    fn any_order_and_overlap_gives_the_stream_back(
        pieces in prop::collection::vec((1u64..250, 1u64..60, 0usize..40), 1..80)
    ) {
        let mut it = receiver();
        let mut have = std::collections::BTreeSet::new();
        let mut read = Vec::new();
        for (start, len, take) in pieces {
            let fresh = (start..start + len).any(|p| !have.contains(&p));
            have.extend(start..start + len);
            let arrival = insert(&mut it, start..start + len);
            prop_assert_eq!(arrival == DataArrival::Duplicate, !fresh);
            let next = (1..).find(|p| !have.contains(p)).unwrap();
            prop_assert_eq!(it.next(), next);
            // The blocks are exactly islands of received data.
            for block in it.sack_blocks(false) {
                prop_assert!(block.start > next && !have.contains(&(block.start - 1)));
                prop_assert!(!have.contains(&block.end) && block.clone().all(|p| have.contains(&p)));
            }
            read.extend(it.read(take).map(|data| data.range()));
        }
        insert(&mut it, 1..400);
        it.finish(400);
        prop_assert!(it.is_complete() && !it.has_holes());
        while let Some(data) = it.read(1000) {
            read.push(data.range());
        }
        let all: Vec<u64> = read.into_iter().flatten().collect();
        prop_assert_eq!(all, (0..399).collect::<Vec<_>>());
    }
}
