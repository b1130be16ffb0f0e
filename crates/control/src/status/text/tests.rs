use super::super::*;
use super::*;

fn status() -> GatewayStatus {
    let tunnel = TunnelStatus { from_hop: 9, prohibited: 7, ..Default::default() };
    let dlep = DlepStatus {
        state: "up".to_owned(),
        peer_type: Some("modem 7".to_owned()),
        modem: Some("192.0.2.1:854".to_owned()),
        rate_bit_s: Some(20_000_000),
        since_s: 61.0,
        ..Default::default()
    };
    GatewayStatus {
        version: "1.2.3".to_owned(),
        uptime_s: 61.2,
        traffic: TrafficStatus { to_hop_bytes: 1_234_567, ..Default::default() },
        sessions: vec![session()],
        dlep: Some(dlep),
        demand: Some(DemandStatus {
            waiting_bytes: 1_200,
            foreseen_bytes: 2_600,
            forecasts_used: 7,
            forecasts_unused: 2,
            unused_bytes: 3_900,
        }),
        tunnel: Some(tunnel),
        stack: Some(StackStatus {
            controller: "hybla:rtt0=50ms".to_owned(),
            connections: 2,
            held_bytes: 4_000,
            opened: 5,
            accepted: 1,
            snack: 4,
            sack: 6,
            retransmissions: 17,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn session() -> SessionStatus {
    let class = ClassStatus {
        name: "voice".to_owned(),
        maximum_bit_s: Some(2_000_000),
        sent_bytes: 1_000,
        ..Default::default()
    };
    let channel = ChannelStatus {
        channel: 3,
        class: Some("voice".to_owned()),
        packets_sent: 2,
        expired: 1,
        missing: 4,
        ..Default::default()
    };
    let link = LinkStatus {
        name: "leo".to_owned(),
        address: "192.0.2.7:5900".to_owned(),
        rate_bit_s: 20_000_000,
        rtt_ms: 40.0,
        sent_bytes: 2_000,
        ..Default::default()
    };
    SessionStatus {
        peer: "ship-1".to_owned(),
        rate_bit_s: 49_876_543,
        rate_source: "auto".to_owned(),
        rate_state: Some("cruising".to_owned()),
        loss: 0.0123,
        weight: 3,
        guaranteed_bit_s: Some(1_000_000),
        exhausted: Some("256 kbit/s".to_owned()),
        rtt_ms: 602.4,
        classes: vec![class, ClassStatus::default()],
        channels: vec![channel, ChannelStatus::default()],
        links: vec![link],
        ..Default::default()
    }
}

fn connection() -> ConnectionStatus {
    ConnectionStatus { client: "10.1.2.3:40000".to_owned(), ..Default::default() }
}

#[test]
fn the_status_shows_what_is_known() {
    let text = status().text(None);
    for part in [
        "terminal 1.2.3",
        "1.23 MB onto the hop",
        "ship-1",
        "UNREACHABLE",
        "49.9 Mbit/s (auto, cruising)",
        "RTT 602 ms",
        "tunnel   0 packets onto the hop, 9 from it; 7 prohibited, 0 foreign, 0 dropped",
        "stack    skyhop, hybla:rtt0=50ms: 2 connections hold 4 kB; 5 opened, 1 accepted, 4 with \
         SNACK (SCPS-TP), 6 with SACK; 17 segments resent, 0 SYNs ignored",
        "modem    up with \"modem 7\" at 192.0.2.1:854, for",
        "20 Mbit/s, 0 of 0 destinations up",
        "demand   1.2 kB waiting, 2.6 kB foreseen; 7 forecasts came true, 2 failed (3.9 kB)",
        "loss 1.23 %",
        "link     leo at 192.0.2.7:5900: 20 Mbit/s, RTT 40 ms, loss 0.00 %; 2 kB sent, 0 B received, SILENT",
        "weight 3, guaranteed 1 Mbit/s\n",
        "quota used up: 256 kbit/s\n",
        "voice: weight 0, at most 2 Mbit/s; 1 kB sent, 0 B waiting",
        "3 (voice): 0 B sent in 2 packets",
        "1 expired",
        "4 missing",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!((text.matches("  class").count(), text.matches("  channel").count()), (1, 1));
    assert!(!text.contains("now "), "{text}");
}

#[test]
fn the_status_says_what_stands_in_for_a_modem_s_rate() {
    for (state, told, expected) in [
        (Some("cruising"), None, "(measured while no rate is reported, cruising)"),
        (None, None, "(initial_rate while no rate is reported)"),
        (Some("tripped"), None, "(initial_rate while no rate is reported, tripped)"),
        (None, Some(30.0), "(modem, reported by DLEP, valid for 30 s)"),
    ] {
        let session = SessionStatus {
            rate_source: "modem".to_owned(),
            rate_state: state.map(str::to_owned),
            told_for_s: told,
            told_by_modem: true,
            ..Default::default()
        };
        assert!(sessions::path(&session).contains(expected), "{}", sessions::path(&session));
    }
}

#[test]
fn names_are_shown_where_they_are_resolved() {
    let dns = DnsStatus {
        questions: 9,
        hits: 4,
        instant: 2,
        prefetched: 1,
        failed: 3,
        saved_round_trips: 6,
        ..DnsStatus::default()
    };
    let text = |role| GatewayStatus { role, dns: Some(dns), ..status() }.text(None);
    let line = "names    9 questions: 4 from the cache, 0 stale, 2 instant; 1 prefetched; \
                6 round trips saved; 3 without an answer\n";
    assert!(text(Role::Terminal).contains(line), "{}", text(Role::Terminal));
    assert!(text(Role::Hub).contains("names    9 questions, 3 without an answer\n"));
    assert!(!status().text(None).contains("names"));
}

#[test]
fn bundles_are_shown_where_there_is_a_node_for_them() {
    let bundles = BundlesStatus {
        waiting: 2,
        waiting_bytes: 3_000_000,
        oldest_s: 90.0,
        forwarded: 5,
        expired: 1,
        ..BundlesStatus::default()
    };
    let text = |bundles| GatewayStatus { bundles: Some(bundles), ..status() }.text(None);
    let line = "bundles  2 in the store (3 MB), the oldest for 90 s; 5 forwarded, \
                0 delivered, 1 expired\n";
    assert!(text(bundles).contains(line), "{}", text(bundles));
    let none = text(BundlesStatus::default());
    assert!(none.contains("bundles  none in the store; 0 forwarded, 0 delivered\n"), "{none}");
    assert!(!status().text(None).contains("bundles"));
}

#[test]
fn http_says_what_it_saved() {
    let http = HttpStatus {
        requests: 24,
        hits: 12,
        confirmed: 1,
        saved_bytes: 2_100_000,
        entries: 9,
        reused: 7,
        disk_errors: 2,
        ..HttpStatus::default()
    };
    let text = |role| GatewayStatus { role, http: Some(http), ..status() }.text(None);
    let line = "http     24 requests: 12 from the cache, 1 confirmed; 2.1 MB saved; 9 stored; \
                2 errors of the disk\n";
    assert!(text(Role::Terminal).contains(line), "{}", text(Role::Terminal));
    let line = "http     24 requests, 7 over connections that were there; 12 from the cache, \
                1 confirmed, 2.1 MB saved\n";
    assert!(text(Role::Hub).contains(line), "{}", text(Role::Hub));
}

#[test]
fn marks_are_shown_where_there_is_ecn() {
    let text = |session| {
        let mut text = String::new();
        sessions::rows(&mut text, &session);
        text
    };
    assert!(!text(session()).contains("ECN"));
    let capable = SessionStatus {
        ecn: Some("capable".to_owned()),
        ect_sent: 1_000,
        ce_reported: 7,
        ..session()
    };
    let line = "ECN capable: 7 of 1000 packets sent and 0 of 0 received marked by the path";
    assert!(text(capable).contains(line));
    let hears = SessionStatus { ect_received: 90, ce_received: 10, ..session() };
    let line = "ECN not sent: 0 of 0 packets sent and 10 of 100 received marked by the path";
    assert!(text(hears).contains(line));
}

#[test]
fn a_second_look_tells_the_pace() {
    let before = status();
    let mut now = status();
    now.uptime_s += 2.0;
    now.traffic.to_hop_bytes += 2_500_000;
    let text = now.text(Some(&before));
    assert!(text.contains("(now 10 Mbit/s and 0 bit/s)"), "{text}");
}

#[test]
fn connections_are_a_table() {
    let (lan_rtt_ms, from_hop_bytes) = (Some(0.25), 3 << 32);
    let connection = ConnectionStatus { lan_rtt_ms, from_hop_bytes, ..connection() };
    let now = GatewayStatus { connections: Some(vec![connection]), ..status() };
    // As received over the control socket.
    let now: GatewayStatus = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
    let text = now.text(None);
    let lines: Vec<&str> = text.lines().rev().take(2).collect();
    assert_eq!(lines[1].find("client"), lines[0].find("10.1.2.3:40000"), "{text}");
    for part in ["0.2", "idle", "12.9 GB"] {
        assert!(lines[0].contains(part), "{part}: {text}");
    }
}

#[test]
fn a_gateway_alone_has_no_hop_to_tell_of() {
    let traffic = TrafficStatus { up_bytes: 1_000, down_bytes: 2_000_000, ..Default::default() };
    let connection = ConnectionStatus { wan_rtt_ms: Some(601.5), ..connection() };
    let connections = Some(vec![connection]);
    let now = GatewayStatus { role: Role::Solo, traffic, connections, ..Default::default() };
    let text = now.text(None);
    assert!(text.contains("1 kB straight up, 2 MB down"), "{text}");
    assert!(text.contains("601.5") && !text.contains("hop"), "{text}");
    assert!(!text.contains("session"), "{text}");
}

#[test]
fn three_digits_are_enough() {
    for (value, rounded) in
        [(0, 0), (7, 7), (999, 999), (1234, 1230), (1235, 1240), (99_950, 100_000)]
    {
        assert_eq!(three_digits(value), rounded);
    }
}

#[test]
fn workers_and_the_next_key_have_rows_where_there_are_any() {
    let plain = status().text(None);
    assert!(!plain.contains("worker") && !plain.contains("next key"), "{plain}");
    let next_key = NextKeyStatus {
        key: "abc=".to_owned(),
        until: Some("2027-01-31T00:00:00Z".to_owned()),
        known: 2,
        unaware: (1..=10).map(|number| format!("ship-{number}")).collect(),
        ..NextKeyStatus::default()
    };
    let workers = vec![WorkerStatus { sessions: 4, held_bytes: 0 }; 2];
    let text = GatewayStatus { next_key: Some(next_key.clone()), workers, ..status() }.text(None);
    assert!(text.contains("  worker   2: 4 sessions, 0 B held\n"), "{text}");
    assert!(
        text.contains(
            "  next key abc=, alone from 2027-01-31T00:00:00Z; known to 2 terminals, not to ship-1, "
        ) && text.contains("ship-8 and 2 more\n"),
        "{text}"
    );
    let next_key = NextKeyStatus { in_force: true, unaware: Vec::new(), ..next_key };
    let text = GatewayStatus { next_key: Some(next_key), ..status() }.text(None);
    assert!(text.contains("abc=, in force; known to 2 terminals\n"), "{text}");
}
