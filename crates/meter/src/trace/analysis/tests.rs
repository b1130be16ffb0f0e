use std::net::SocketAddr;

use proptest::prelude::*;

use super::super::report::{ConnectionEnding, DirectionReport};
use super::*;
use crate::trace::capture::segment::{SegmentFlags, SegmentOptions, Sighting};

const MSS: u32 = 100;
const A_ISN: u32 = u32::MAX - 500;
const B_ISN: u32 = 7;

/// A connection from a port of A to B, written by hand; times in milliseconds.
struct Script {
    analysis: CaptureAnalysis,
    a: SocketAddr,
    b: SocketAddr,
}

impl Script {
    fn new() -> Self {
        let a = "10.0.0.1:4000".parse().unwrap();
        let b = "10.0.0.2:80".parse().unwrap();
        Self {
            analysis: CaptureAnalysis::new(TraceOptions { plots: true, connection: None }),
            a,
            b,
        }
    }

    fn opened() -> Self {
        let mut script = Self::new();
        script.syn(0, A_ISN);
        script.syn_ack(100);
        script.a(200, 0, 0, |_| ());
        script
    }

    fn syn(&mut self, millis: u64, isn: u32) {
        self.a(millis, 0, 0, |segment| {
            (segment.sequence, segment.ack, segment.flags.syn) = (isn, None, true);
            segment.options.window_scale = Some(2);
        });
    }

    fn syn_ack(&mut self, millis: u64) {
        self.b(millis, 0, |segment| {
            (segment.sequence, segment.flags.syn) = (B_ISN, true);
            segment.options.window_scale = Some(3);
        });
    }

    /// A sends `length` bytes at `offset`.
    fn a(
        &mut self,
        millis: u64,
        offset: u32,
        length: u32,
        edit: impl FnOnce(&mut CapturedSegment),
    ) {
        let mut segment = CapturedSegment {
            time: Instant::from_nanos(millis * 1_000_000),
            timed: true,
            sighting: Sighting::default(),
            from: self.a,
            to: self.b,
            sequence: A_ISN.wrapping_add(1).wrapping_add(offset),
            ack: Some(B_ISN + 1),
            window: 1000,
            flags: SegmentFlags::default(),
            length,
            options: SegmentOptions::default(),
        };
        edit(&mut segment);
        self.analysis.add_segment(0, &segment);
    }

    /// B acknowledges everything before `offset`.
    fn b(&mut self, millis: u64, offset: u32, edit: impl FnOnce(&mut CapturedSegment)) {
        let mut segment = CapturedSegment {
            time: Instant::from_nanos(millis * 1_000_000),
            timed: true,
            sighting: Sighting::default(),
            from: self.b,
            to: self.a,
            sequence: B_ISN + 1,
            ack: Some(A_ISN.wrapping_add(1).wrapping_add(offset)),
            window: 100,
            flags: SegmentFlags::default(),
            length: 0,
            options: SegmentOptions::default(),
        };
        edit(&mut segment);
        self.analysis.add_segment(0, &segment);
    }

    fn connections(self) -> Vec<ConnectionReport> {
        self.analysis.finish(Ok(())).report.connections
    }

    fn connection(self) -> ConnectionReport {
        self.connections().remove(0)
    }

    fn a_to_b(self) -> DirectionReport {
        self.connection().a_to_b
    }
}

fn sequence(offset: u32) -> u32 {
    A_ISN.wrapping_add(1).wrapping_add(offset)
}

#[test]
fn a_plain_exchange_is_counted() {
    let mut script = Script::opened();
    script.a(200, 0, 100, |_| ());
    script.a(201, 100, 100, |_| ());
    script.b(300, 200, |_| ());
    script.a(500, 200, 50, |segment| segment.flags.fin = true);
    script.b(600, 251, |segment| segment.flags.fin = true);
    script.a(700, 251, 0, |segment| segment.ack = Some(B_ISN + 2));
    let it = script.connection();
    assert_eq!((it.ending, it.begins_in_capture), (ConnectionEnding::Closed, true));
    assert_eq!(it.handshake.unwrap().as_millis(), 200);
    let to = it.a_to_b;
    assert_eq!((to.packets, to.data_packets, to.pure_acks), (6, 3, 2));
    assert_eq!((to.payload_bytes, to.unique_bytes, to.retransmitted_bytes), (250, 250, 0));
    assert_eq!((to.initial_window_bytes, to.outstanding_max_bytes), (Some(200), Some(200)));
    let rtt = to.rtt.unwrap();
    assert_eq!((rtt.samples, rtt.min_seconds, rtt.max_seconds), (2, 0.099, 0.1));
    assert_eq!((to.idle.unwrap().as_millis(), to.idle_start.unwrap().as_millis()), (299, 201));
    assert_eq!((to.missed_bytes, to.fin_retransmissions), (0, 0));
    // 250 bytes in 0.3 s, and in 0.5 s from the SYN on.
    assert_eq!(to.throughput.unwrap().bits_per_second(), 6666);
    assert_eq!(to.goodput.unwrap().bits_per_second(), 4000);
    assert_eq!(it.b_to_a.advertised_window.unwrap().first, 800);
}

#[test]
fn outstanding_data_is_averaged_over_time() {
    let mut script = Script::opened();
    script.a(1000, 0, 100, |_| ());
    script.a(2000, 100, 100, |_| ());
    script.b(3000, 200, |_| ());
    script.a(9000, 200, 100, |_| ());
    script.b(10_000, 300, |_| ());
    let it = script.a_to_b();
    // 100 for 1 s, 200 for 1 s, 0 for 6 s, 100 for 1 s.
    assert_eq!(it.outstanding_mean_bytes, Some(400.0 / 9.0));
}

#[test]
fn windows_limit_and_close() {
    let mut script = Script::opened();
    script.a(200, 0, 100, |_| ());
    // The window is 800 bytes, which leaves room for a segment until the ninth.
    script.b(300, 100, |segment| segment.window = 25);
    script.a(300, 100, 100, |_| ());
    script.a(400, 200, 100, |_| ());
    script.b(700, 300, |segment| segment.window = 0);
    script.b(1700, 300, |_| ());
    let it = script.connection();
    let to = it.a_to_b;
    let from = it.b_to_a;
    // Full from 400 ms to 700 ms; closed, but nothing outstanding, until 1700.
    assert_eq!(to.window_limited.unwrap().as_millis(), 300);
    assert_eq!(to.zero_window.unwrap().as_millis(), 1000);
    let window = from.advertised_window.unwrap();
    assert_eq!((window.first, window.min, window.max, window.zero), (200, 0, 800, 1));
}

#[test]
fn without_both_scales_nothing_is_said_of_windows() {
    let mut script = Script::new();
    script.a(200, 1000, 100, |_| ());
    script.b(300, 1100, |_| ());
    let it = script.connection();
    assert!(!it.begins_in_capture);
    assert_eq!((it.b_to_a.advertised_window, it.a_to_b.window_limited), (None, None));
    assert_eq!((it.a_to_b.unique_bytes, it.ending), (100, ConnectionEnding::Open));
}

#[test]
fn selective_and_duplicate_acknowledgements_are_counted() {
    let mut script = Script::opened();
    for offset in [0, 100, 200, 300] {
        script.a(200, offset, 100, |_| ());
    }
    script.b(300, 100, |_| ());
    let block = |from, to| Some((sequence(from), sequence(to)));
    script.b(301, 100, |segment| segment.options.sack[0] = block(200, 300));
    script.b(302, 100, |segment| segment.options.sack[0] = block(200, 400));
    script.a(400, 100, 100, |_| ());
    script.b(500, 400, |_| ());
    // The original arrives after all: RFC 2883 §4.1.
    script.b(510, 400, |segment| segment.options.sack[0] = block(100, 200));
    script.a(600, 200, 100, |_| ());
    let it = script.connection();
    assert_eq!((it.b_to_a.duplicate_acks, it.b_to_a.dsacks), (2, 1));
    assert_eq!((it.b_to_a.sack_packets, it.b_to_a.sack_blocks), (2, 2));
    assert_eq!((it.a_to_b.retransmitted_packets, it.a_to_b.needless_packets), (2, 1));
    assert_eq!(it.a_to_b.rtt.unwrap().samples, 1);
}

#[test]
fn probes_are_no_retransmissions() {
    let mut script = Script::opened();
    script.a(200, 0, 100, |_| ());
    script.b(300, 100, |_| ());
    script.a(900, 99, 0, |_| ());
    script.a(1900, 99, 1, |_| ());
    let it = script.a_to_b();
    assert_eq!((it.probes, it.retransmitted_packets, it.retransmitted_bytes), (2, 0, 0));
    assert_eq!((it.data_packets, it.payload_bytes, it.idle), (1, 100, None));
    assert_eq!(it.last_data.unwrap().as_millis(), 200);
}

#[test]
fn a_probe_that_a_closed_window_takes_is_payload() {
    let mut script = Script::opened();
    script.a(200, 0, 100, |_| ());
    script.b(300, 100, |segment| segment.window = 0);
    script.a(600, 100, 1, |_| ());
    script.b(700, 100, |segment| segment.window = 0);
    script.a(1200, 100, 1, |_| ());
    // A small segment into an open window is none.
    script.b(1300, 101, |_| ());
    script.a(1300, 101, 1, |_| ());
    script.b(1400, 102, |_| ());
    let it = script.a_to_b();
    assert_eq!((it.probes, it.retransmitted_packets, it.missed_bytes), (2, 0, 0));
    assert_eq!((it.unique_bytes, it.data_packets), (102, 3));
}

#[test]
fn without_an_acknowledgement_nothing_is_said_of_outstanding_data() {
    let mut script = Script::new();
    script.syn(0, A_ISN);
    script.a(200, 0, 100, |_| ());
    let it = script.a_to_b();
    assert_eq!((it.initial_window_bytes, it.outstanding_max_bytes), (None, None));
    let mut script = Script::opened();
    script.syn_ack(201);
    script.a(200, 0, 100, |_| ());
    // Only the SYN is acknowledged.
    let it = script.a_to_b();
    assert_eq!((it.initial_window_bytes, it.outstanding_max_bytes), (None, Some(100)));
}

#[test]
fn what_was_acknowledged_unseen_is_missed() {
    let mut script = Script::opened();
    script.a(200, 0, 100, |_| ());
    script.a(200, 250, 50, |_| ());
    script.b(300, 300, |_| ());
    assert_eq!(script.a_to_b().missed_bytes, 150);
}

fn packet(link: LinkType, bytes: &[u8]) -> CaptureRecord<'_> {
    let time = Some(Instant::from_nanos(1));
    let length = 60;
    CaptureRecord::Packet(CapturedPacket { time, interface: 0, link, bytes, length })
}

#[test]
fn what_is_left_out_is_counted_by_name() {
    const UDP: [u8; 28] = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0, 53, 0, 8,
        0, 0,
    ];
    const ARP: [u8; 16] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6, 0, 0];
    let mut analysis = CaptureAnalysis::new(TraceOptions::default());
    for record in [
        packet(LinkType::Raw, &UDP),
        packet(LinkType::Raw, &UDP),
        packet(LinkType::Ethernet, &ARP),
        packet(LinkType::Unknown(147), &[1, 2]),
        CaptureRecord::Unknown { kind: 0x77 },
        CaptureRecord::Unknown { kind: 0x77 },
        // Counts since the start of the capture.
        CaptureRecord::Lost { interface: 0, packets: 2 },
        CaptureRecord::Lost { interface: 0, packets: 5 },
        CaptureRecord::Lost { interface: 1, packets: 1 },
    ] {
        analysis.record(&record);
    }
    let report = analysis.finish(Ok(())).report;
    let named = [("ARP", 1), ("UDP", 2)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(report.other_packets, BTreeMap::from(named));
    assert_eq!(
        report.warnings,
        [
            "6 packets were dropped by the capturing machine: what they held counts as lost",
            "1 packets have a link-layer header of the unknown type 147",
            "2 blocks of the unknown type 0x00000077 are skipped",
        ]
    );
}

#[test]
fn endings_are_distinguished() {
    let ending = |play: fn(&mut Script)| {
        let mut script = Script::new();
        script.syn(0, A_ISN);
        play(&mut script);
        script.connection().ending
    };
    let reset = |segment: &mut CapturedSegment| segment.flags.rst = true;
    assert_eq!(ending(|_| ()), ConnectionEnding::Unanswered);
    assert_eq!(
        ending(|script| script.b(1, 0, |segment| segment.flags.rst = true)),
        ConnectionEnding::Refused
    );
    assert_eq!(ending(|script| script.syn_ack(1)), ConnectionEnding::Open);
    let mut script = Script::opened();
    script.a(300, 0, 0, reset);
    assert_eq!(script.connection().ending, ConnectionEnding::ResetByA);
    let mut script = Script::opened();
    script.b(300, 0, |segment| segment.flags.fin = true);
    assert_eq!(script.connection().ending, ConnectionEnding::HalfClosedByB);
}

#[test]
fn a_syn_again_is_the_same_connection_and_another_syn_is_another() {
    let mut script = Script::new();
    script.syn(0, A_ISN);
    script.syn(1000, A_ISN);
    script.syn_ack(1100);
    script.a(1200, 0, 100, |_| ());
    script.a(1300, 0, 0, |segment| segment.flags.rst = true);
    // The same ports and even the same number, but the old connection has ended.
    script.syn(2000, A_ISN);
    script.syn_ack(2100);
    // Another number, although the second connection has not ended.
    script.syn(3000, A_ISN.wrapping_add(70_000));
    let reports = script.connections();
    assert_eq!(reports.iter().map(|report| report.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(reports[0].a_to_b.syn_retransmissions, 1);
    assert_eq!(reports[0].handshake.unwrap().as_millis(), 1200);
    assert_eq!(reports[2].ending, ConnectionEnding::Unanswered);
}

/// What the path does to a segment.
#[derive(Debug, Clone)]
struct Sent {
    segment: u32,
    length: u32,
}

fn sendings() -> impl Strategy<Value = Vec<Sent>> {
    let one = (0u32..60, 1..3 * MSS).prop_map(|(segment, length)| Sent { segment, length });
    proptest::collection::vec(one, 1..120)
}

proptest! {
    #[test]
    fn unique_bytes_are_those_of_the_stream_and_the_rest_was_sent_again(
        sendings in sendings(), acks in proptest::collection::vec(0u32..6000, 0..20),
    ) {
        let mut script = Script::opened();
        let mut bytes = std::collections::BTreeSet::new();
        let mut sent: u64 = 0;
        let mut acks = acks.into_iter();
        for (index, it) in sendings.iter().enumerate() {
            let offset = it.segment * MSS;
            let millis = 200 + 7 * index as u64;
            script.a(millis, offset, it.length, |_| ());
            sent += u64::from(it.length);
            bytes.extend(offset..offset + it.length);
            if index % 5 == 0 && let Some(ack) = acks.next() {
                script.b(millis + 3, ack, |_| ());
            }
        }
        let it = script.a_to_b();
        // A probe has one byte, which was there before.
        let sent = sent - it.probes;
        prop_assert_eq!(it.payload_bytes, sent);
        prop_assert_eq!(it.unique_bytes, bytes.len() as u64);
        prop_assert_eq!(it.retransmitted_bytes, sent - bytes.len() as u64);
        let late = it.repair_packets.unwrap() + it.reordered_packets.unwrap();
        let fates = it.retransmitted_packets + late;
        prop_assert!(fates <= it.data_packets);
        prop_assert_eq!(it.retransmitted_bytes > 0, it.retransmitted_packets > 0);
    }
}
