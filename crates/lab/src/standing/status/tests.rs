//! The status as people and programs read it.

use link::PacketCounters;
use units::ByteCount;

use super::*;
use crate::testkit::preset;
use crate::{LinkName, Site};

/// Different numbers in all counters, so that none can be taken for another.
fn gauge(link: LinkName) -> LinkGauge {
    let tally = |packets| Tally { packets, bytes: ByteCount::new(packets * 1000) };
    let counters = PacketCounters {
        offered: tally(1115),
        dropped_queue: tally(3),
        lost: tally(12),
        delivered: tally(1000),
        inside: tally(100),
        ..PacketCounters::default()
    };
    LinkGauge { link, counters, queued: tally(40), peak_queue: 0, shared: None }
}

fn status() -> LabStatus {
    let preset = preset("per = \"1 %\"");
    let host = |name: &str| HostStatus {
        name: name.to_owned(),
        ipv4: "10.1.0.2".to_owned(),
        ipv6: "fd00:1::2".to_owned(),
    };
    let links = [LinkName::Forward, LinkName::Return(Site::FIRST)];
    LabStatus {
        name: "mine".to_owned(),
        preset: preset.name.clone(),
        description: preset.description.clone(),
        seed: 7,
        uptime_s: 61.7,
        gateways: true,
        mtu: preset.mtu,
        hosts: ["client", "server"].map(host).into(),
        links: links.map(|link| link_status(&preset, &gauge(link))).into(),
        faults: FaultsStatus { missed: 1, oversized: 20, refused: 300, astray: 4000 },
        lateness: LatenessStatus { packets: 9, median_ms: 0.1, p99_ms: 0.25, worst_ms: 3.5 },
    }
}

#[test]
fn the_text_names_each_figure_once() {
    let expected = "\
mine: own (a test), seed 7, gateway pair, up 62 s
  hosts   client 10.1.0.2, server 10.1.0.2
  forward              12 Mbit/s, 300 ms, loss PER 0.01, queue 100 packets
                       1000 packets delivered, 12 lost, 3 dropped, 40 waiting
  return               2 Mbit/s, 300 ms, loss none, queue 1 BDP
                       1000 packets delivered, 12 lost, 3 dropped, 40 waiting
  driver  0.25 ms late (p99), 3.50 ms at worst; 4321 packets lost outside the links
";
    assert_eq!(status().to_string(), expected);
    let alone = LabStatus { gateways: false, ..status() }.to_string();
    assert!(alone.starts_with("mine: own (a test), seed 7, up 62 s\n"), "{alone}");
}

#[test]
fn each_counter_has_its_own_name_in_json() {
    let json = serde_json::to_value(link_status(&preset(""), &gauge(LinkName::Forward)));
    let json = json.unwrap();
    for (name, packets) in [
        ("offered", 1115),
        ("dropped", 3),
        ("lost", 12),
        ("delivered", 1000),
        ("inside", 100),
        ("queued", 40),
    ] {
        let expected = serde_json::json!({ "packets": packets, "bytes": packets * 1000 });
        assert_eq!(json[name], expected, "{name}");
    }
}

#[test]
fn the_command_reads_what_the_lab_wrote() {
    let status = status();
    let text = serde_json::to_string(&status).unwrap();
    assert_eq!(serde_json::from_str::<LabStatus>(&text).unwrap(), status);
}

#[test]
fn settings_that_change_are_described_by_their_limits() {
    let preset = preset(
        "rate-trace = [\"0s 8 Mbit/s\", \"1s 2 Mbit/s\", \"2s 30 Mbit/s\"]\n\
         delay-trace = [\"0s 20 ms\", \"1s 35 ms\", \"2s 25 ms\"]\nqueue = \"64 kB\"",
    );
    let link = link_status(&preset, &gauge(LinkName::Forward));
    let expected = ["2 Mbit/s to 30 Mbit/s", "at most 35 ms", "64 kB"];
    assert_eq!([&link.rate, &link.delay, &link.queue], expected);
}

#[test]
fn each_loss_model_is_named() {
    for (line, expected) in [
        ("", "none"),
        ("per = \"0.5 %\"", "PER 0.005"),
        ("ber = \"1e-6\"", "BER 1e-6"),
        ("burst = \"medium\"", "bursts: medium"),
        (
            "gilbert-elliott = \"good-to-bad=1% bad-to-good=20%\"",
            "Gilbert–Elliott: good-to-bad=0.01 bad-to-good=0.2",
        ),
        ("loss-period = 1000", "one packet in 1000"),
        ("loss-trace = [\"0s 1 %\"]", "trace"),
    ] {
        let loss = describe_loss(&preset(line).forward.loss);
        assert!(loss.starts_with(expected), "{line}: {loss}");
    }
}

#[test]
fn a_return_link_of_any_terminal_has_the_settings_of_the_return_link() {
    let preset = preset("");
    let second = LinkName::Return(Site::new(2).unwrap());
    let link = link_status(&preset, &gauge(second));
    assert_eq!((link.link.as_str(), link.rate.as_str()), ("return 2", "2 Mbit/s"));
}

#[test]
fn lateness_is_in_milliseconds() {
    let mut lateness = Lateness::default();
    (0..98).for_each(|_| lateness.add(Duration::from_micros(95)));
    lateness.add(Duration::from_micros(995));
    lateness.add(Duration::from_millis(5));
    let expected = LatenessStatus { packets: 100, median_ms: 0.1, p99_ms: 1.0, worst_ms: 5.0 };
    assert_eq!(lateness_status(&lateness), expected);
}
