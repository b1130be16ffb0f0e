//! Bundles through a gateway that stores them.

use super::*;

const DTN: &str = r#"
description = "a file in bundles"
time = "600 s"

[hop.forward]
rate = "10 Mbit/s"
delay = "250 ms"
queue = "1 BDP"

[server-side]
rate = "100 Mbit/s"
delay = "10 ms"
queue = "100 packets"

[gateways]
split = "two"

[[flow]]
name = "file"
kind = "bundles"
bytes = "2 MB"
bundle = "100 kB"
"#;

fn metrics(text: &str, seed: u64) -> Vec<MetricValue> {
    run(&Scenario::parse("x.toml", text).unwrap().cases[0], seed)
}

/// Each way, through one gateway or two, as one bundle or as many.
#[test]
fn a_file_arrives_whole_and_in_both_directions() {
    let three = DTN.replace("\"two\"", "\"three\"")
        + "[client-side]\nrate = \"100 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"100 packets\"\n";
    let none = DTN.replace("\"two\"", "\"none\"");
    for text in [DTN, &three, &none] {
        for (from, to) in [("", ""), ("bundle = \"100 kB\"", "direction = \"up\"\nip = \"ipv6\"")] {
            let metrics = metrics(&text.replace(from, to), 1);
            let figure = |name| value(&metrics, "file", name);
            assert_eq!((figure("done"), figure("broken")), (1.0, 0.0), "{metrics:?}");
            let rate = 16.0 / figure("time-median-s");
            assert!((figure("goodput-mbit/s") - rate).abs() < 1e-6, "{metrics:?}");
        }
    }
}

/// After 60 s of silence the session is over; one that is opened when the link is back goes on with
/// what the next node does not have. TCP alone has doubled its time-out until then.
#[test]
fn bundles_go_on_sooner_after_an_outage_than_a_connection() {
    let outage = "queue = \"1 BDP\"\noutages = [\"3s+90s\"]\n";
    let text = DTN.replacen("queue = \"1 BDP\"\n", outage, 1).replace("2 MB", "5 MB");
    let file = metrics(&text, 1);
    assert_eq!(value(&file, "file", "done"), 1.0);
    assert!(value(&file, "file", "broken") >= 1.0);
    let after = value(&file, "file", "time-median-s") - 93.0;
    // 5 MB take 4 s; the session, its slow start and a pause until the next attempt.
    assert!((2.0..15.0).contains(&after), "{after}");
    let bulk = text.replace("\"bundles\"", "\"bulk\"").replace("bundle = \"100 kB\"", "");
    let bulk = value(&metrics(&bulk, 1), "file", "time-median-s") - 93.0;
    assert!(bulk > after + 10.0, "{bulk} {after}");
}

#[test]
fn a_lossy_link_costs_time_only() {
    let text = DTN.replacen("queue = \"1 BDP\"\n", "queue = \"1 BDP\"\nper = \"2 %\"\n", 1);
    for seed in 1..=5 {
        let metrics = metrics(&text.replace("kind", "count = 3\nkind"), seed);
        assert_eq!(value(&metrics, "file", "done"), 3.0, "seed {seed}");
    }
}
