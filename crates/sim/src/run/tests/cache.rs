//! Caching and spoofing, as ITU-R S.1711-1 combines them (3.2.2).

use super::*;

const SITE: &str = r#"
description = "a page through a hub, without and with a cache and split gateways"
time = "600 s"

[hop.forward]
rate = "23.58 Mbit/s"
delay = "250 ms"
queue = "1 BDP"
[hop.return]
rate = "256 kbit/s"
delay = "250 ms"
queue = "50 packets"

[server-side]
rate = "45 Mbit/s"
delay = "50 ms"
queue = "1000 packets"
[client-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"

[[flow]]
name = "site"
kind = "page"
method = "http/1.0"
connections = 4
request = "300 B"
objects = ["20 kB", "20 x 8 kB"]
repeat = 10

[[factor]]
name = "caching"
levels = [{ name = "none" }, { name = "caching", set = { "cache.hit-ratio" = "60 %" } }]
[[factor]]
name = "spoofing"
levels = [
    { name = "none" },
    { name = "spoofing", set = { "gateways.split" = "three", "gateways.hop" = "slacp" } },
    { name = "packets", set = { "gateways.split" = "packets", "gateways.hop" = "slacp" } },
]
"#;

/// Each alone shortens the pages, and both together more.
#[test]
fn caching_and_spoofing_add_up() {
    let cases = Scenario::parse("x.toml", SITE).unwrap().cases;
    let times: Vec<_> = cases
        .iter()
        .map(|case| {
            let metrics = run(case, 1);
            assert_eq!(value(&metrics, "site", "bytes"), 10.0 * (180_000.0 + 21.0 * 300.0));
            value(&metrics, "site", "time-median-s")
        })
        .collect();
    let [none, spoofing, packets, caching, both, cached_packets] = times[..] else {
        panic!("{times:?}")
    };
    assert!(caching < none && spoofing < none, "{times:?}");
    assert!(both < caching && both < spoofing, "{times:?}");
    assert!(cached_packets < packets, "{times:?}");
}

/// A cache is for servers behind the hub.
#[test]
fn a_cache_needs_servers_behind_the_hub() {
    let text = GOOD.replace("[[flow]]", "[cache]\nhit-ratio = \"60 %\"\n[[flow]]");
    let error = Scenario::parse("x.toml", &text).unwrap_err().to_string();
    assert!(error.contains("cache.hit-ratio") && error.contains("[server-side]"), "{error}");
}

/// The cache is beside the gateway at the hub; what passes between them takes as many events as it needs.
#[test]
fn a_large_reply_comes_through_cache_and_gateways() {
    let text = SITE.replace("kind = \"page\"", "kind = \"request\"\nreply = \"20 MB\"");
    let text = text.replace("method = \"http/1.0\"\nconnections = 4\n", "");
    let text = text.replace("objects = [\"20 kB\", \"20 x 8 kB\"]\nrepeat = 10\n", "");
    let cases = Scenario::parse("x.toml", &text).unwrap().cases;
    let case = cases.iter().find(|case| case.name == "caching, spoofing").unwrap();
    for seed in 1..=3 {
        assert_eq!(value(&run(case, seed), "site", "bytes"), 20_000_300.0);
    }
}
