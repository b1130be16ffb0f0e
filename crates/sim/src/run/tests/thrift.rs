//! What compression saves on the hop.

use compression::{ContextSlots, Encoder};
use scenario::FlowContents;

use super::*;

const HOP: &str = r#"
description = "a test"
time = "100 s"

[hop.forward]
rate = "10 Mbit/s"
delay = "250 ms"
queue = "1 BDP"

[server-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"

[client-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
"#;

/// Lines of a log, whose numbers do not recur.
fn log() -> String {
    let line = |number: u64| {
        let (second, user) = (number % 60, number * 7919 % 10_007);
        format!(
            "2026-11-26T18:00:{second:02} hub relay: connection {number} of user-{user} closed\n"
        )
    };
    (0..2000).map(line).collect()
}

/// The metrics of a download of a megabyte, and how long it took in seconds.
fn download(contents: Option<FlowContents>) -> (Vec<MetricValue>, f64) {
    let keys = if contents.is_some() { "compress = true\n" } else { "" };
    let text = format!(
        "{HOP}[gateways]\nsplit = \"three\"\nhop = \"slacp\"\n{keys}[[flow]]\nname = \"get\"\n\
         kind = \"bulk\"\nbytes = \"1 MB\"\nstart = \"2 s\"\n"
    );
    let mut case = Scenario::parse("x.toml", &text).unwrap().cases.remove(0);
    if let Some(contents) = contents {
        case.flows[0].contents = contents;
    }
    let metrics = run(&case, 1);
    assert_eq!(value(&metrics, "get", "bytes"), 1e6);
    let time = value(&metrics, "get", "time-median-s");
    (metrics, time)
}

/// What a text of a megabyte takes when it is compressed at once.
fn compressed(text: &str) -> f64 {
    let all: Vec<u8> = text.bytes().cycle().take(1_000_000).collect();
    let (mut encoder, mut out) = (Encoder::new(ContextSlots::new(1)), Vec::new());
    let mut rest = &all[..];
    while !rest.is_empty() {
        let taken = encoder.encode(rest, &mut out);
        rest = &rest[taken..];
    }
    encoder.finish(&mut out);
    out.len() as f64
}

/// The hop carries what the gateways' own encoder makes of the text; it is flushed more often, because
/// the text comes in pieces.
#[test]
fn a_log_crosses_the_hop_as_short_as_it_is_compressed_and_noise_as_it_is() {
    let bytes = |metrics: &[MetricValue]| value(metrics, "slacp", "tunnel-bytes");
    let (plain, whole) = download(None);
    let (log, text) = (log(), 1e6);
    let coded = compressed(&log);
    assert!(coded < text / 4.0, "{coded}");
    let (short, soon) = download(Some(FlowContents::Sample(log.into())));
    let saved = bytes(&plain) - bytes(&short);
    let expected = text - coded;
    assert!((0.95 * expected..1.15 * expected).contains(&saved), "{saved} {expected}");
    // A megabyte takes 0.8 s of the link.
    assert!(whole - soon > 0.5, "{whole} {soon}");
    let (noise, time) = download(Some(FlowContents::Noise));
    assert!(bytes(&noise) < 1.001 * bytes(&plain) && time < 1.001 * whole, "{noise:?} {plain:?}");
}

/// The metrics of 3000 datagrams of 20 bytes, 50 a second, with SLACP as a link layer under IP.
fn voice(keys: &str) -> Vec<MetricValue> {
    let text = format!(
        "{HOP}[gateways]\nsplit = \"packets\"\nhop = \"slacp\"\noverhead = \"link-layer\"\n{keys}\n\
         [[flow]]\nname = \"voice\"\nkind = \"udp\"\nrate = \"8 kbit/s\"\nsize = 20\nstart = \"2 s\"\n\
         time = \"60 s\"\n"
    );
    let metrics = run(&Scenario::parse("x.toml", &text).unwrap().cases[0], 1);
    assert_eq!(value(&metrics, "voice", "lost-share"), 0.0);
    metrics
}

/// `docs/slacp.md`, Header compression: of 28 bytes of IPv4 and UDP nothing is left, and the frame is
/// as long or up to 3 bytes shorter.
#[test]
fn a_compressed_header_saves_its_own_length() {
    let link = |metrics: &[MetricValue]| value(metrics, "slacp", "link-bytes") / 3000.0;
    let saved = link(&voice("")) - link(&voice("compress-headers = true"));
    assert!((27.0..31.5).contains(&saved), "{saved}");
}

#[test]
fn packets_that_wait_for_others_share_packets_of_the_hop() {
    let (alone, gathered) = (voice(""), voice("gather = \"25 ms\""));
    let count = |metrics: &[MetricValue]| value(metrics, "slacp", "datagrams");
    assert!(alone.len() == gathered.len() && count(&gathered) < 0.7 * count(&alone));
    let delay = |figure| value(&gathered, "voice", figure) - value(&alone, "voice", figure);
    let (mean, most) = (delay("delay-mean-s"), delay("delay-max-s"));
    assert!((0.008..0.015).contains(&mean) && most < 0.026, "{mean} {most}");
}

/// Streams compress, packets' headers do, and not the other way round.
#[test]
fn what_cannot_be_compressed_is_refused() {
    for (split, keys, told) in [
        ("packets", "compress = true", "gateways.compress = true: expected false without streams"),
        ("three", "compress-headers = true", "expected false unless packets are carried whole"),
        ("three", "gather = \"20 ms\"", "gateways.gather = 20 ms: expected 0 s or, with split"),
        ("packets", "gather = \"201 ms\"", "up to 200 ms"),
    ] {
        let text = format!(
            "{HOP}[gateways]\nsplit = \"{split}\"\nhop = \"slacp\"\n{keys}\n[[flow]]\nname = \"get\"\n\
             kind = \"bulk\"\nbytes = \"1 MB\"\n"
        );
        let error = Scenario::parse("x.toml", &text).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
