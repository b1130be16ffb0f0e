//! `meter::trace` against tshark, on captures that the lab made
//! (`tests/captures`; tshark is not needed here, its words are in `tshark.txt`).
//!
//! The captures: 250 kB from `http://server` in `skyhop lab run geo --delay 50ms
//! --rate 5Mbit/s --return-rate 2Mbit/s`, with `--per 4% --seed 3` on IPv4, seen
//! at the hub (`loss-sender`, snap length 96), and with `--per 5% --seed 7` on
//! IPv6, seen at the terminal (`loss-receiver`, 128); a `meter bulk --limit
//! 400ms`, which ends in a reset (`reset`); and `wrap`, which is `loss-sender`
//! with a number added to all sequence numbers so that they pass 2^32.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use meter::trace::{ConnectionEnding, ConnectionReport, TraceOptions, TraceReport, analyse};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name)
}

fn report(name: &str) -> TraceReport {
    let trace = analyse(File::open(path(name)).unwrap(), TraceOptions::default()).unwrap();
    assert_eq!(trace.report.warnings, Vec::<String>::new(), "{name}");
    trace.report
}

fn connection(name: &str) -> ConnectionReport {
    let mut connections = report(name).connections;
    assert_eq!(connections.len(), 1, "{name}");
    connections.remove(0)
}

/// tshark's figures of a file: quantity → numbers.
fn tshark(name: &str) -> BTreeMap<String, Vec<f64>> {
    let text = fs::read_to_string(path("tshark.txt")).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let numbers = lines.map(|line| {
        let mut words = line.split_whitespace();
        let quantity = words.next().unwrap().to_owned();
        (quantity, words.map(|word| word.parse().unwrap()).collect())
    });
    numbers.collect()
}

const FILES: [&str; 4] = ["loss-sender.pcapng", "loss-receiver.pcap", "reset.pcap", "wrap.pcap"];

#[test]
fn counts_are_those_of_tshark() {
    for name in FILES {
        let (it, theirs) = (connection(name), tshark(name));
        let (to, from) = (&it.b_to_a, &it.a_to_b);
        for (quantity, ours) in [
            ("packets_a_to_b", from.packets),
            ("packets_b_to_a", to.packets),
            ("data_packets", to.data_packets),
            ("payload_bytes", to.payload_bytes),
            ("resets", from.resets),
            ("duplicate_acks", from.duplicate_acks),
            ("sack_packets", from.sack_packets),
            ("sack_blocks", from.sack_blocks),
            ("window_max", from.advertised_window.unwrap().max),
        ] {
            assert_eq!(vec![ours as f64], theirs[quantity], "{name}: {quantity}");
        }
        // tshark distinguishes retransmissions from reordered packets by the time since the highest
        // packet. In a busy connection it takes repairs for reordered packets, even those it has
        // seen before. We remember what was seen and when each hole opened. The sums are the same,
        // and the lab's link does not reorder.
        let again = to.retransmitted_packets + to.repair_packets.unwrap();
        let told = theirs["retransmissions"][0] + theirs["out_of_order"][0];
        assert_eq!((again as f64, to.reordered_packets), (told, Some(0)), "{name}");
    }
}

#[test]
fn bytes_are_those_acknowledged() {
    for name in FILES {
        let (it, theirs) = (connection(name), tshark(name));
        let to = &it.b_to_a;
        assert_eq!(to.retransmitted_bytes, to.payload_bytes - to.unique_bytes);
        // The last relative acknowledgement counts SYN and FIN too.
        let acked = theirs["unique_bytes"][0] - 1.0 - theirs["fins"][0];
        if it.ending == ConnectionEnding::Closed {
            assert_eq!(to.unique_bytes as f64, acked, "{name}");
        } else {
            assert!(to.unique_bytes as f64 > acked, "{name}: some was still on its way");
        }
    }
}

#[test]
fn outstanding_data_is_that_of_tshark_where_nothing_is_selectively_acknowledged() {
    for name in FILES {
        let (it, theirs) = (connection(name), tshark(name));
        let (ours, theirs) =
            (it.b_to_a.outstanding_max_bytes.unwrap() as f64, theirs["in_flight_max"][0]);
        // At the receiver, most of what is outstanding behind a hole has arrived and is SACKed.
        // tshark subtracts that; we and tcptrace do not.
        if name.starts_with("loss-receiver") {
            assert!(ours > theirs, "{name}");
        } else {
            assert_eq!(ours, theirs, "{name}");
        }
        assert!(it.b_to_a.outstanding_mean_bytes.unwrap() < ours);
    }
}

#[test]
fn times_are_those_of_tshark() {
    for name in FILES {
        let (it, theirs) = (connection(name), tshark(name));
        let near = |ours: f64, theirs: f64, what: &str| {
            assert!((ours - theirs).abs() < 2e-6, "{name}: {what}: {ours}, tshark {theirs}");
        };
        near(it.handshake.unwrap().as_secs_f64(), theirs["handshake"][0], "handshake");
        near(it.b_to_a.idle.unwrap().as_secs_f64(), theirs["idle"][0], "idle");
        let (rtt, theirs) = (it.b_to_a.rtt.unwrap(), &theirs["rtt"]);
        if name == "reset.pcap" {
            assert_eq!(rtt.samples as f64, theirs[0]);
            near(rtt.min_seconds, theirs[1], "least RTT");
            near(rtt.mean_seconds, theirs[2], "mean RTT");
            near(rtt.max_seconds, theirs[3], "largest RTT");
        } else {
            // tshark also times acknowledgements that waited for a repair, up to 0.78 s where the
            // path has 0.1 s and 0.025 s of queue, and the FIN's.
            assert!((rtt.samples as f64) < theirs[0], "{name}");
            assert!(rtt.min_seconds >= theirs[1] && rtt.max_seconds < theirs[3] / 2.0, "{name}");
        }
    }
}

#[test]
fn a_wrap_around_changes_nothing() {
    // The copy has the same times and, being pcap, the same interface.
    assert_eq!(connection("wrap.pcap"), connection("loss-sender.pcapng"));
}

#[test]
fn endings_are_reported() {
    let endings = FILES.map(|name| connection(name).ending);
    assert_eq!(
        endings,
        [
            ConnectionEnding::Closed,
            ConnectionEnding::Closed,
            ConnectionEnding::ResetByA,
            ConnectionEnding::Closed
        ]
    );
}

#[test]
fn a_damaged_file_gives_what_was_read_and_a_warning() {
    for name in ["loss-sender.pcapng", "reset.pcap"] {
        let whole = fs::read(path(name)).unwrap();
        let all = report(name).packets;
        let cut = |bytes: &[u8]| analyse(bytes, TraceOptions::default()).unwrap().report;
        let half = cut(&whole[..whole.len() / 2]);
        assert!(half.packets > all / 3 && half.packets < all);
        assert_eq!(half.connections.len(), 1);
        let warning = &half.warnings[0];
        assert!(warning.starts_with("the file ends in the middle of a record"), "{warning}");
    }
    let mut damaged = fs::read(path("loss-sender.pcapng")).unwrap();
    let length = damaged.len();
    damaged[length / 2..length / 2 + 300].fill(0xff);
    let report = analyse(&damaged[..], TraceOptions::default()).unwrap().report;
    assert!(report.packets > 100, "{}", report.packets);
    assert!(report.warnings.iter().any(|it| it.contains("damaged") || it.contains("ends in")));
    let error = analyse(&b"GET / HTTP/1.1"[..], TraceOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("not a capture"), "{error}");
    assert!(analyse(&b""[..], TraceOptions::default()).is_err());
}

/// Captures of one clean transfer of 20 kB (174 kB where packets come twice) by other tools, each
/// with an oddity that is legal.
fn odd(name: &str) -> (TraceReport, ConnectionReport) {
    let trace = analyse(File::open(path(name)).unwrap(), TraceOptions::default()).unwrap();
    let mut report = trace.report;
    assert_eq!(report.connections.len(), 1, "{name}");
    let connection = report.connections.remove(0);
    (report, connection)
}

fn assert_clean(name: &str, it: &ConnectionReport) {
    for direction in [&it.a_to_b, &it.b_to_a] {
        let losses = [
            direction.retransmitted_packets,
            direction.retransmitted_bytes,
            direction.repair_packets.unwrap_or_default(),
            direction.reordered_packets.unwrap_or_default(),
            direction.duplicate_acks,
            direction.syn_retransmissions,
            direction.fin_retransmissions,
            direction.missed_bytes,
        ];
        assert_eq!(losses, [0; 8], "{name}: {direction:#?}");
    }
    assert_eq!((it.a_to_b.unique_bytes, it.b_to_a.unique_bytes), (100, 20_000), "{name}");
}

#[test]
fn options_that_nobody_needs_do_not_matter() {
    for name in ["s02_noend.pcapng", "s03_tzone.pcapng", "s04_latin1.pcapng"] {
        let (report, it) = odd(name);
        assert_eq!((report.packets, report.tcp_packets), (47, 47), "{name}");
        assert_eq!(report.warnings, Vec::<String>::new(), "{name}");
        assert_clean(name, &it);
    }
}

#[test]
fn tunnels_are_read_through() {
    for name in ["s11_pppoe.pcap", "s13_gre.pcap", "s14_mpls.pcap"] {
        let (report, it) = odd(name);
        assert_eq!(report.tcp_packets, report.packets, "{name}");
        assert_eq!(report.warnings, Vec::<String>::new(), "{name}");
        assert_clean(name, &it);
    }
}

#[test]
fn packets_without_time_stamps_have_no_times() {
    let (report, it) = odd("s26_spb.pcapng");
    assert_eq!((report.packets, report.tcp_packets), (47, 47));
    assert!(report.warnings[0].starts_with("47 packets have no time stamp"), "{report:?}");
    assert_clean("s26_spb.pcapng", &it);
    assert_eq!((it.start, it.lasted, it.handshake), (None, None, None));
    let to = it.b_to_a;
    assert_eq!((to.rtt, to.goodput, to.throughput, to.idle), (None, None, None, None));
    // A repair and a packet that was overtaken differ only in time.
    assert_eq!((to.repair_packets, to.reordered_packets), (None, None));
}

#[test]
fn a_packet_that_is_captured_twice_was_sent_once() {
    for name in ["s15_sll1_router.pcap", "s16_trunk.pcap", "s17_mirror.pcap"] {
        let (report, it) = odd(name);
        assert_clean(name, &it);
        let copies = it.a_to_b.copies + it.b_to_a.copies;
        assert_eq!(copies, report.packets / 2, "{name}");
        assert!(
            report.warnings[0].starts_with(&format!("{copies} TCP packets were captured before"))
        );
        assert_eq!(it.b_to_a.rtt.unwrap().samples, 20, "{name}");
    }
}

#[test]
fn probes_are_no_payload() {
    let (_, keepalive) = odd("s19_keepalive1.pcap");
    assert_clean("s19_keepalive1.pcap", &keepalive);
    assert_eq!(keepalive.b_to_a.probes, 10);
    assert_eq!(keepalive.b_to_a.goodput.unwrap().bits_per_second(), 551_343);
    let (_, window) = odd("s20_window_probe.pcap");
    let to = &window.b_to_a;
    assert_eq!((to.probes, to.retransmitted_packets, to.unique_bytes), (6, 0, 20_500));
    assert_eq!((window.a_to_b.duplicate_acks, to.missed_bytes), (0, 0));
}

#[test]
fn an_initial_window_needs_an_acknowledgement() {
    let (_, it) = odd("s25_data_only.pcap");
    let to = it.b_to_a;
    assert_eq!(to.unique_bytes, 20_000);
    assert_eq!((to.initial_window_bytes, to.outstanding_max_bytes, to.rtt), (None, None, None));
}

#[test]
fn a_clock_that_is_set_back_is_reported_and_bends_nothing() {
    // The seconds of a pcap's time stamps: two seconds less from the middle on.
    let mut file = fs::read(path("s14_mpls.pcap")).unwrap();
    let (mut at, mut number) = (24, 0);
    while at < file.len() {
        let field = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let (seconds, length) = (field(at), field(at + 8));
        if number >= 20 {
            file[at..at + 4].copy_from_slice(&(seconds - 2).to_le_bytes());
        }
        at += 16 + length as usize;
        number += 1;
    }
    let report = analyse(&file[..], TraceOptions::default()).unwrap().report;
    assert!(report.warnings[0].starts_with("1 time stamps lie up to 1.9"), "{report:?}");
    let bent = &report.connections[0].b_to_a;
    let (_, clean) = odd("s14_mpls.pcap");
    let straight = clean.b_to_a.rtt.unwrap();
    let rtt = bent.rtt.unwrap();
    assert!(rtt.samples < straight.samples);
    assert!(rtt.min_seconds >= straight.min_seconds && rtt.max_seconds <= straight.max_seconds);
}

#[test]
fn what_cannot_be_read_at_all_is_an_error() {
    let directory = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    assert!(analyse(directory, TraceOptions::default()).is_err());
    let head = fs::read(path("reset.pcap")).unwrap();
    assert!(analyse(&head[..30], TraceOptions::default()).is_err());
}
