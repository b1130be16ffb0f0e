use core::time::Duration;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::{Host, HostName};

fn address() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<([u8; 4], u16)>().prop_map(|(ip, port)| SocketAddr::from((ip, port)));
    let v6 = any::<([u8; 16], u16)>().prop_map(|(ip, port)| SocketAddr::from((ip, port)));
    prop_oneof![v4, v6]
}

fn open() -> impl Strategy<Value = StreamOpening<Destination>> {
    let name = ("[a-zA-Z0-9._-]{1,253}", any::<u16>())
        .prop_map(|(name, port)| Destination::Name(HostName::new(&name).unwrap(), port));
    let address_of = address().prop_map(Destination::Address);
    let with = address().prop_map(|address| Destination::Exchange(Host::Address(address)));
    let with_name = Just(Destination::Exchange(Host::Name(HostName::new("a.b").unwrap(), 80)));
    let resolver = Just(Destination::Resolver);
    let agent = Just(Destination::Bundles);
    let destination = prop_oneof![3 => address_of, 1 => name, 1 => resolver, 1 => agent, 1 => with,
        1 => with_name];
    let parts = (destination, address(), prop::option::of(0u8..64));
    parts.prop_map(|(destination, source, dscp)| StreamOpening { destination, source, dscp })
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..100, 0..=varint::MAX]
}

fn reason() -> impl Strategy<Value = ResetReason> {
    prop::sample::select(REASONS.to_vec())
}

/// Any frame except acknowledgements and those that carry bytes.
fn small_frame() -> impl Strategy<Value = Frame<'static>> {
    let stream = || number().prop_map(StreamId);
    prop_oneof![
        Just(Frame::Ping),
        Just(Frame::Mark),
        (number(), number()).prop_map(|(ect0, ce)| Frame::Ecn(EcnCounts { ect0, ce })),
        number().prop_map(Frame::Settled),
        (stream(), number(), number(), any::<bool>(), open()).prop_map(
            |(stream, window, credit, compressed, open)| {
                Frame::Open { stream, window, credit, compressed, open: Box::new(open) }
            }
        ),
        stream().prop_map(Frame::Accept),
        (stream(), reason(), number()).prop_map(|(stream, reason, sent)| Frame::Reset {
            stream,
            reason,
            sent
        }),
        number().prop_map(Frame::SessionCredit),
        (stream(), number(), number()).prop_map(|(stream, returns, limit)| {
            Frame::StreamCredit { stream, returns, limit }
        }),
        (stream(), number(), number()).prop_map(|(stream, returns, limit)| Frame::Return {
            stream,
            returns,
            limit
        }),
        prop::sample::select(CLOSE_REASONS.to_vec()).prop_map(Frame::Close),
        Just(Frame::Leaving),
        Just(Frame::Successor),
        number().prop_map(Frame::LinkAsks),
        any::<u64>().prop_map(Frame::PathChallenge),
        any::<u64>().prop_map(Frame::PathAnswer),
        (number(), any::<[u8; 32]>())
            .prop_map(|(generation, key)| Frame::Rekey { generation, key }),
    ]
}

/// `docs/slacp.md`, Reserved.
#[test]
fn reserved_frame_types_are_malformed_and_reserved_reasons_are_the_first() {
    let reserved = [0x14..=0x17, 0x1c..=0x1f, 0x26..=0x26, 0x2e..=0x2f, 0x31..=0x3f, 0x40..=0x7f];
    for kind in reserved.into_iter().flatten() {
        let bytes = [vec![kind], vec![1; 80]].concat();
        assert_eq!(read(&mut &bytes[..]), Err(MalformedFrame { kind }), "{kind:#04x}");
    }
    let (stream, sent) = (StreamId(1), 2);
    for code in 7..=255 {
        let reset = Frame::Reset { stream, sent, reason: ResetReason::Reset };
        assert_eq!(read(&mut &[RESET, 1, 2, code][..]), Ok(Some(reset)));
        let close = Frame::Close(CloseReason::Shutdown);
        assert_eq!(read(&mut &[CLOSE, code][..]), Ok(Some(close)));
    }
}

proptest! {
    #[test]
    fn small_frames_read_back_with_padding_between(
        frames in prop::collection::vec((small_frame(), 0usize..3), 0..8)
    ) {
        let mut out = Vec::new();
        for (frame, padding) in &frames {
            frame.write(&mut out, false);
            out.resize(out.len() + padding, PADDING);
        }
        let mut input = &out[..];
        for (frame, _) in &frames {
            prop_assert_eq!(read(&mut input), Ok(Some(frame.clone())));
        }
        prop_assert_eq!(read(&mut input), Ok(None));
    }

    #[test]
    fn stream_frames_read_back(
        id in number(), offset in number(), fin: bool, last: bool,
        data in prop::collection::vec(any::<u8>(), 0..40)
    ) {
        let offset = TruncatedOffset::full(offset);
        let frame = Frame::Stream { stream: StreamId(id), offset, fin, data: &data };
        let mut out = Vec::new();
        frame.write(&mut out, last);
        prop_assert!(out.len() - data.len() <= STREAM_OVERHEAD);
        if !last {
            out.push(PING);
        }
        let mut input = &out[..];
        prop_assert_eq!(read(&mut input), Ok(Some(frame)));
        prop_assert_eq!(read(&mut input), Ok((!last).then_some(Frame::Ping)));
    }

    #[test]
    fn compact_stream_frames_read_back(
        id in prop_oneof![0u64..20, 0..varint::MAX / 2], offset in number(), fin: bool,
        data in prop::collection::vec(any::<u8>(), 0..40)
    ) {
        let stream = StreamId(id);
        let frame = Frame::Stream { stream, offset: TruncatedOffset::compact(offset), fin, data: &data };
        let mut out = Vec::new();
        frame.write(&mut out, true);
        prop_assert_eq!(out.len() - data.len(), stream_head(stream, offset, true));
        prop_assert_eq!(read(&mut &out[..]), Ok(Some(frame)));
    }

    #[test]
    fn compact_offsets_survive_truncation(
        near in 0u64..1 << 50, distance in 0..=COMPACT_REACH, back: bool
    ) {
        let offset = if back { near.saturating_sub(distance) } else { near + distance };
        prop_assert_eq!(TruncatedOffset::compact(offset).expand(near), offset);
    }

    #[test]
    fn whole_offsets_survive_everything(offset in number(), near in number()) {
        prop_assert_eq!(TruncatedOffset::full(offset).expand(near), offset);
    }

    #[test]
    fn sequences_survive_truncation(near in 0u64..1 << 50, distance in 0u64..1 << 29, back: bool) {
        let offset = if back { near.saturating_sub(distance) } else { near + distance };
        prop_assert_eq!(TruncatedOffset::new(offset).expand(near), offset);
    }

    #[test]
    fn acknowledgements_read_back(
        runs in prop::collection::vec((1u64..2000, 1u64..2000), 1..50), held in 0u64..1 << 40,
        every in 1usize..20, clock in prop::option::of(any::<u32>()),
        ages in prop::collection::vec(0u64..1 << 40, 0..9)
    ) {
        let mut ranges = Vec::new();
        let mut at = 0;
        for (gap, run) in runs {
            ranges.insert(0, at + gap..at + gap + run);
            at += gap + run;
        }
        let held = Duration::from_micros(held);
        let marks = (0..at).zip(ages).map(|(n, age)| (n, Duration::from_micros(age)));
        let marks: Vec<_> = marks.collect();
        let times = clock.map(|clock| ReportedTimes { clock, marks });
        let report = AckReport { held, times };
        let mut out = Vec::new();
        let restored: Vec<_> = ranges.iter().step_by(every).cloned().collect();
        let write = |out: &mut _, room| {
            write_ack(out, ranges.iter().cloned(), restored.iter().cloned(), &report, room)
        };
        prop_assert!(write(&mut out, 1 << 20));
        let mut input = &out[..];
        let Ok(Some(Frame::Ack(ack))) = read(&mut input) else { panic!("no acknowledgement") };
        prop_assert_eq!(ack.largest, ranges[0].end - 1);
        prop_assert_eq!(ack.report(), report.clone());
        let marked: Vec<_> = ack.restored().collect();
        prop_assert_eq!(&marked[..], &restored[..marked.len()]);
        prop_assert!(marked.len() >= restored.len().min(15));
        prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), ranges.clone());
        prop_assert!(input.is_empty());

        let mut cut = Vec::new();
        if write(&mut cut, 600) {
            prop_assert!(cut.len() <= 600);
            let Ok(Some(Frame::Ack(ack))) = read(&mut &cut[..]) else { panic!("no ack") };
            let kept: Vec<_> = ack.ranges().collect();
            prop_assert_eq!(&kept[..], &ranges[..kept.len()]);
        }
    }

    #[test]
    fn repairs_read_back(
        distance in number(), stride in 1u64..9, count in 1usize..256, repairs in 1usize..256,
        index in 0usize..256, shard in prop::collection::vec(any::<u8>(), 0..40)
    ) {
        let repair = RepairFrame { distance, stride, count, repairs, index, shard: &shard };
        let mut out = Vec::new();
        Frame::Repair(repair).write(&mut out, true);
        prop_assert_eq!(read(&mut &out[..]), Ok(Some(Frame::Repair(repair))));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut input = &bytes[..];
        while let Ok(Some(frame)) = read(&mut input) {
            if let Frame::Ack(ack) = frame {
                prop_assert!(ack.ranges().all(|range| range.start < range.end));
                prop_assert!(ack.restored().all(|range| range.start <= range.end));
            }
        }
    }
}
