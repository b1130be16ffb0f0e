//! Windows of acknowledgements.

use proptest::prelude::*;
use tcp::{ByteRange, HeaderFlags};

use super::*;

const ROOM: ByteCount = ByteCount::new(10_000);
const EMPTY: ByteCount = ByteCount::new(0);

fn seq(number: u64) -> SeqNr {
    SeqNr::new(u32::MAX - 50_000).advance(number)
}

fn data(from: u64, len: u64) -> Segment<ByteRange> {
    let payload = ByteRange::new(from..from + len);
    Segment { seq: seq(from), payload, ..Segment::default() }
}

fn ack(to: u64, window: u16) -> Segment<ByteRange> {
    Segment { ack: Some(seq(to)), window, ..Segment::default() }
}

fn syn(shift: Option<u8>) -> Segment<ByteRange> {
    let mut segment = Segment { seq: seq(0), ..Segment::default() };
    segment.flags.syn = true;
    segment.options.window_scale = shift;
    segment
}

/// Connections that have sent 1 to 1,000, with windows of this shift.
fn connected(count: u32, shift: u8) -> WindowLimits<u32> {
    let mut windows = WindowLimits::new(ROOM);
    for key in 0..count {
        windows.handle_sent(key, &syn(Some(0)));
        windows.handle_received(key, &mut syn(Some(shift)), EMPTY);
        windows.handle_sent(key, &data(1, 1_000));
    }
    windows
}

/// The window with which an acknowledgement is passed on.
fn passed(windows: &mut WindowLimits<u32>, key: u32, to: u64, window: u16, waiting: u64) -> u16 {
    let mut segment = ack(to, window);
    windows.handle_received(key, &mut segment, ByteCount::new(waiting));
    segment.window
}

#[test]
fn a_sender_may_fill_the_room_that_is_left() {
    let mut windows = connected(1, 0);
    assert_eq!(passed(&mut windows, 0, 501, 60_000, 4_000), 500 + 6_000);
    windows.handle_sent(0, &data(1_001, 6_000));
    // Full: the edge stays where it is.
    assert_eq!(passed(&mut windows, 0, 1_001, 60_000, 10_000), 6_000);
    assert_eq!(passed(&mut windows, 0, 6_001, 60_000, 12_000), 2_920, "two segments");
    assert_eq!(passed(&mut windows, 0, 6_501, 1_000, 0), 1_000, "the receiver's is smaller");
}

#[test]
fn connections_share_the_room() {
    let mut windows = connected(4, 0);
    assert_eq!(passed(&mut windows, 0, 501, 60_000, 0), 3_000, "500 and a quarter");
    // One of them has nothing more to send.
    assert_eq!(passed(&mut windows, 1, 1_001, 60_000, 0), 10_000 / 3);
}

#[test]
fn duplicates_have_the_same_window() {
    let mut windows = connected(1, 0);
    let first = passed(&mut windows, 0, 501, 60_000, 9_000);
    assert_eq!(passed(&mut windows, 0, 501, 60_000, 0), first);
    assert!(passed(&mut windows, 0, 501, 60_001, 0) > first, "an update of the window");
}

#[test]
fn windows_are_scaled_if_both_sides_do() {
    let mut windows = connected(1, 7);
    assert_eq!(passed(&mut windows, 0, 1_001, 500, 0), 79, "10,112 bytes");
    let mut windows = WindowLimits::new(ROOM);
    windows.handle_sent(0, &syn(None));
    windows.handle_received(0, &mut syn(Some(7)), EMPTY);
    windows.handle_sent(0, &data(1, 1_000));
    assert_eq!(passed(&mut windows, 0, 1_001, 50_000, 0), 10_000);
}

#[test]
fn other_segments_pass_unchanged() {
    let mut windows = connected(1, 0);
    assert_eq!(passed(&mut windows, 7, 1_001, 50_000, 0), 50_000, "its SYN was not seen");
    assert_eq!(passed(&mut windows, 0, 5_001, 50_000, 0), 50_000, "nothing was sent there");
    assert_eq!(passed(&mut windows, 0, 1_001, 0, 0), 0);
}

#[test]
fn what_has_ended_is_forgotten() {
    let mut windows = connected(3, 0);
    let reset =
        Segment { flags: HeaderFlags { rst: true, ..HeaderFlags::default() }, ..data(1_001, 0) };
    windows.handle_sent(0, &reset);
    windows.handle_received(1, &mut reset.clone(), EMPTY);
    let mut last = data(1_001, 10);
    last.flags.fin = true;
    windows.handle_sent(2, &last);
    assert_eq!((windows.flows.len(), windows.busy), (1, 1));
    passed(&mut windows, 2, 1_012, 50_000, 0);
    assert_eq!((windows.flows.len(), windows.busy), (0, 0));
}

#[test]
fn only_so_many_connections_are_kept() {
    let windows = connected(MOST as u32 + 10, 0);
    assert_eq!((windows.flows.len(), windows.busy), (MOST, MOST as u64));
}

proptest! {
    /// Whatever is sent, acknowledged and waits: windows are never raised, what a sender was allowed
    /// stays allowed as long as the receiver allows it, and the count of busy connections is right.
    #[test]
    fn windows_are_never_raised_nor_taken_back(
        shift in 0u8..=14,
        steps in proptest::collection::vec((0u8..3, 0u64..20_000, 0u16.., 0u64..40_000), 1..200),
    ) {
        let mut windows = connected(1, shift);
        let (mut sent, mut acked, mut allowed) = (1_001, 1, 0);
        for (kind, amount, window, waiting) in steps {
            match kind {
                0 => {
                    windows.handle_sent(0, &data(sent, amount));
                    sent += amount;
                }
                1 => acked = sent.min(acked + amount),
                _ => {}
            }
            let given = passed(&mut windows, 0, acked, window, waiting);
            let edge = |field: u16| acked + (u64::from(field) << shift);
            prop_assert!(given <= window);
            prop_assert!(edge(given) >= edge(window).min(allowed));
            allowed = allowed.max(edge(given));
            let busy = windows.flows.values().filter(|flow| flow.sent != flow.acked).count();
            prop_assert_eq!(windows.busy, busy as u64);
        }
    }
}
