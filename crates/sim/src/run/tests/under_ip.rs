//! SLACP as a link layer under IP: the network of the SLACP paper.

use std::sync::{Arc, Mutex};

use units::Instant;

use super::*;
use crate::network::packet::{PacketBody, SimulatedPacket, SlacpDatagram};
use crate::world::PacketTap;

const UNDER_IP: &str = include_str!("../../../../../scenarios/slacp-fig5.toml");
const OVERSHOOT: &str = include_str!("../../../../../scenarios/slacp-fig8.toml");

fn case(text: &str, name: &str) -> ScenarioCase {
    let cases = Scenario::parse("x.toml", text).unwrap().cases;
    cases.into_iter().find(|case| case.name == name).unwrap()
}

/// The median transfer time over three seeds.
fn time(text: &str, name: &str) -> f64 {
    let case = case(text, name);
    let times: Vec<f64> =
        (1..=3).map(|seed| value(&run(&case, seed), "bulk", "time-median-s")).collect();
    stats::median(&times).unwrap()
}

/// Sizes on the link of SLACP's packets with new data, and of the others.
#[derive(Debug, Default)]
struct Sizes([Vec<usize>; 2]);

struct Seen(Arc<Mutex<Sizes>>);

impl PacketTap for Seen {
    fn packet(&mut self, _: Instant, _: NodeId, outgoing: bool, packet: &SimulatedPacket) {
        if let (true, PacketBody::Slacp(sealed @ SlacpDatagram { is_control, .. })) =
            (outgoing, &packet.body)
        {
            self.0.lock().unwrap().0[usize::from(*is_control)].push(sealed.wire_len());
        }
    }
}

/// 1,450 bytes of IP and 30 of headers fill 31 cells (31 · 48 − 8). A repair is as long.
#[test]
fn headers_take_at_most_thirty_bytes() {
    let sizes = Arc::new(Mutex::new(Sizes::default()));
    let mut run = SimulationRun::new(&case(UNDER_IP, "huge, satellite, SLACP"), 1);
    run.world.set_tap(Box::new(Seen(Arc::clone(&sizes))));
    run.finish();
    let Sizes([data, control]) = &*sizes.lock().unwrap();
    let longest = |sizes: &[usize]| sizes.iter().copied().max().unwrap_or(0);
    assert!((1451..=1480).contains(&longest(data)), "{}", longest(data));
    assert!((1451..=1480).contains(&longest(control)), "{}", longest(control));
    let metrics = run.metrics();
    let of = |name| value(&metrics, "slacp", name);
    // IP and UDP headers, tag and index.
    assert_eq!(of("tunnel-bytes") - of("link-bytes"), of("datagrams") * 48.0);
}

/// A packet waits for the link whenever there is data, and hardly more than one.
#[test]
fn flow_control_keeps_the_link_busy_and_its_queue_short() {
    let metrics = run(&case(UNDER_IP, "none, satellite, SLACP"), 1);
    assert!(value(&metrics, "return", "peak-queue-packets") <= 2.0, "{metrics:?}");
    assert_eq!(value(&metrics, "return", "dropped-packets"), 0.0);
    // 710 packets of 31 cells, after two round trips, and slow start.
    let (time, busy) = (value(&metrics, "bulk", "time-median-s"), 710.0 * 31.0 * 424.0 / 128e3);
    assert!((busy..busy + 2.5).contains(&time), "{time} s, busy for {busy} s");
}

/// The paper's conclusion, §4.2.
#[test]
fn under_heavy_errors_every_tcp_is_faster_with_slacp_than_any_without() {
    for errors in ["high", "huge"] {
        let of = |tcp: &str| time(UNDER_IP, &format!("{errors}, {tcp}"));
        let [reference, enhanced] = ["reference", "enhanced"].map(of);
        assert!(reference > enhanced, "{errors}: {reference} {enhanced}");
        for tcp in ["reference", "satellite", "enhanced"] {
            let with = of(&format!("{tcp}, SLACP"));
            assert!(with < 0.8 * enhanced, "{errors}, {tcp}: {with} against {enhanced} s");
        }
    }
}

/// Enhanced TCP overshoots, which costs it needless time-outs if the RTT is sampled once in each round trip only.
#[test]
fn without_errors_slacp_costs_nothing_but_enhanced_tcp_overshoots() {
    for tcp in ["reference", "satellite"] {
        let [without, with] =
            ["", ", SLACP"].map(|how| time(UNDER_IP, &format!("none, {tcp}{how}")));
        assert!(with < without * 1.001, "{tcp}: {with} against {without} s");
    }
    let [plain, cbi, no_daass] =
        ["enhanced", "cbi", "no-daass"].map(|tcp| time(OVERSHOOT, &format!("none, {tcp}, once")));
    assert!(cbi < 0.96 * plain && no_daass < 0.96 * plain, "{plain} {cbi} {no_daass}");
    let every_ack = time(OVERSHOOT, "none, enhanced");
    assert!(every_ack < 0.96 * plain, "{every_ack} {plain}");
    assert!(cbi < 1.001 * time(UNDER_IP, "none, enhanced"), "{cbi}");
}
