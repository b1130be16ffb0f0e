//! A call beside uploads on a return link with capacity on demand.

use super::*;

const VOICE: &str = include_str!("../../../../../scenarios/voice-dama.toml");

/// Loss and delay of the call in a case: share, 99th percentile and maximum in seconds.
fn call(name: &str, seed: u64) -> [f64; 3] {
    let cases = Scenario::parse("voice-dama.toml", VOICE).unwrap().cases;
    let case = cases.into_iter().find(|case| case.name == name).unwrap();
    let metrics = run(&case, seed);
    // The uploads fill the link: cells leave 0.87 of the IP packets' 512 kbit/s.
    assert!(value(&metrics, "uploads", "goodput-mbit/s") > 0.31, "{metrics:?}");
    ["lost-share", "delay-p99-s", "delay-max-s"].map(|figure| value(&metrics, "voice", figure))
}

/// Propagation over the hop and on both sides; a frame; a full packet of 32 cells; 5 ms. The
/// constant rate needs no allocation.
const BOUND: f64 = 0.250 + 2.0 * 0.001 + 0.053 + 32.0 * 53.0 * 8.0 / 512e3 + 0.005;

#[test]
fn a_call_with_a_constant_rate_waits_for_a_frame_and_a_packet_at_most() {
    for seed in 1..=5 {
        let [lost, p99, longest] = call("EF, CRA", seed);
        assert_eq!(lost, 0.0);
        assert!(p99 <= BOUND, "99 % within {p99} s, not {BOUND} s");
        assert!(longest <= BOUND, "all within {longest} s, not {BOUND} s");
    }
}

/// What the mapping is for: neither marks nor rates on demand alone keep the bound.
#[test]
fn a_call_without_its_constant_rate_waits_longer() {
    let [lost, p99, _] = call("not marked", 1);
    assert!(lost > 0.0 && p99 > 2.0, "{lost} lost, 99 % within {p99} s");
    let [_, p99, _] = call("EF, on demand", 1);
    assert!(p99 > 2.0 * BOUND, "99 % within {p99} s");
    let [_, _, longest] = call("EF, CRA and RBDC", 1);
    assert!(longest > BOUND, "all within {longest} s");
}
