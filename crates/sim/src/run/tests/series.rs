//! Satellite hops in series, each with its own gateways.

use super::*;

const TWO_HOPS: &str = r#"
description = "a download over two satellite hops"
time = "600 s"

[hop.forward]
rate = "10 Mbit/s"
delay = "250 ms"
queue = "1 BDP"
per = "0.5 %"

[[next-hop]]
[next-hop.forward]
rate = "20 Mbit/s"
delay = "250 ms"
queue = "1 BDP"
per = "0.5 %"
[next-hop.return]
rate = "5 Mbit/s"
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

[gateways]
split = "none"
hop = "slacp"

[[flow]]
name = "ftp"
kind = "bulk"
bytes = "5 MB"
[[flow]]
name = "ping"
kind = "request"
request = "100 B"
reply = "100 B"
start = "300 s"
think = "1 s"
repeat = 5

[[case]]
name = "none"
[[case]]
name = "two"
set = { "gateways.split" = "two", "gateways.hop" = "tcp" }
[[case]]
name = "three"
set = { "gateways.split" = "three", "gateways.hop" = "tcp" }
[[case]]
name = "slacp"
set = { "gateways.split" = "three" }
[[case]]
name = "packets"
set = { "gateways.split" = "packets" }
"#;

/// A request takes a second and 4 ms over both hops and back. Every split carries the download whole;
/// SLACP on each hop repairs its losses, at the rate of the slower one.
#[test]
fn hops_in_series_have_gateways_of_their_own() {
    let cases = Scenario::parse("x.toml", TWO_HOPS).unwrap().cases;
    let mut times = Vec::new();
    for case in &cases {
        let metrics = run(case, 1);
        let name = &case.name;
        assert_eq!(value(&metrics, "ftp", "bytes"), 5e6, "{name}");
        let ping = value(&metrics, "ping", "time-median-s");
        assert!((1.004..1.05).contains(&ping), "{name}: {ping} s");
        times.push(value(&metrics, "ftp", "time-median-s"));
    }
    let [none, two, three, slacp, packets] = times[..] else { panic!("{times:?}") };
    // 5 MB at 10 Mbit/s take 4 s.
    assert!(slacp > 4.0 && slacp < 8.0, "{times:?}");
    assert!([none, two, three].iter().all(|time| *time > 2.0 * slacp), "{times:?}");
    assert!(packets < 0.6 * none, "{times:?}");
}

/// A chain ends at servers, which need links of their own.
#[test]
fn a_further_hop_needs_servers_behind_it() {
    let text = GOOD.replace(
        "[tcp.old]",
        "[[next-hop]]\nforward = { rate = \"1 Mbit/s\", delay = \"1 ms\", queue = \"9 kB\" }\n[tcp.old]",
    );
    let error = Scenario::parse("x.toml", &text).unwrap_err().to_string();
    assert!(error.contains("next-hop") && error.contains("[server-side]"), "{error}");
}
