use proptest::prelude::*;
use scenario::Scenario;

use super::*;

mod bundles;
mod cache;
mod ip;
mod names;
mod series;
mod spacing;
mod thrift;
mod under_ip;
mod voice;
mod window;

const GOOD: &str = r#"
description = "a test"
time = "20 s"

[hop.forward]
rate = "10 Mbit/s"
delay = "250 ms"
queue = "1 BDP"

[tcp.old]
profile = "reference"
receive-buffer = "32 KiB"

[[flow]]
name = "ftp"
kind = "bulk"
bytes = "500 kB"
tcp = "old"
"#;

fn run(case: &ScenarioCase, seed: u64) -> Vec<MetricValue> {
    let mut run = SimulationRun::new(case, seed);
    run.finish();
    run.metrics()
}

fn value(metrics: &[MetricValue], of: &str, name: &str) -> f64 {
    let known = metrics.iter().find(|metric| metric.of == of && metric.name == name);
    known.unwrap_or_else(|| panic!("no {of}.{name} in {metrics:?}")).value
}

#[test]
fn a_scenario_runs() {
    let scenario = Scenario::parse("x.toml", GOOD).unwrap();
    let metrics = run(&scenario.cases[0], 1);
    assert_eq!(value(&metrics, "ftp", "bytes"), 500_000.0);
    // A window of 32 KiB per RTT of at least half a second: at least 7.6 s.
    let time = value(&metrics, "ftp", "time-median-s");
    assert!((7.6..14.0).contains(&time), "{time}");
    assert!(value(&metrics, "ftp", "outstanding-max-bytes") <= 32_768.0);
}

#[test]
fn the_time_of_data_leaves_out_the_handshake() {
    // The other flow keeps the run going until the last acknowledgement has arrived.
    let later = "[[flow]]\nname = \"later\"\nkind = \"request\"\nrequest = \"1 B\"\nreply = \"1 B\"\n\
                 start = \"15 s\"\n";
    let metrics = run(&Scenario::parse("x.toml", &format!("{GOOD}{later}")).unwrap().cases[0], 1);
    // The server's data leave after a round trip and a half of 0.5 s, and are acknowledged after half of one.
    let [time, data] = ["time-median-s", "data-time-median-s"].map(|it| value(&metrics, "ftp", it));
    assert!((0.5..0.51).contains(&(time - data)), "{time} {data}");
}

#[test]
fn every_nth_packet_can_be_lost() {
    let text = GOOD.replace("queue = \"1 BDP\"", "queue = \"1 BDP\"\nloss-period = 100");
    let text = text.replace("20 s", "60 s");
    let metrics = run(&Scenario::parse("x.toml", &text).unwrap().cases[0], 1);
    assert_eq!(value(&metrics, "ftp", "bytes"), 500_000.0);
    // Without `[hop.return]` the return link loses acknowledgements at the same rate.
    for link in ["forward", "return"] {
        let packets = |name| value(&metrics, link, name);
        let sent = packets("delivered-packets") + packets("lost-packets");
        assert!(sent > 100.0 && packets("lost-packets") == (sent / 100.0).floor(), "{metrics:?}");
    }
}

#[test]
fn every_kind_of_network_and_flow_runs() {
    let star = r#"
description = "a star"
time = "60 s"
[network]
terminals = 3
clients = 2
servers = 2
return-channels = 2
[hop.forward]
rate = "10 Mbit/s"
delay = "250 ms"
queue = "100 packets"
[hop.return]
rate = "1 Mbit/s"
delay = "250 ms"
queue = "100 packets"
[server-side]
rate = "100 Mbit/s"
delay = "10 ms"
queue = "100 packets"
[client-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "100 packets"
[gateways]
split = "three"
hop = "slacp"
return-rate = "600 kbit/s"
[[flow]]
name = "bulk"
kind = "bulk"
count = 6
bytes = "100 kB"
direction = "up"
start = "2 s"
[[flow]]
name = "rr"
kind = "request"
request = "100 B"
reply = "1 kB"
repeat = 3
start = "2 s"
[[flow]]
name = "page"
kind = "page"
method = "http/1.0"
connections = 3
request = "300 B"
objects = ["10 kB", "6 x 2 kB"]
start = "2 s"
[[flow]]
name = "web"
kind = "users"
every = "1 s"
request = "300 B"
sizes = "pareto least=2kB most=1MB alpha=1.2"
start = "2 s"
time = "30 s"
[[flow]]
name = "udp"
kind = "udp"
rate = "100 kbit/s"
start = "2 s"
time = "10 s"
"#;
    let mesh = star.replace("return-channels = 2", "mesh = true").replace(
        "[gateways]\nsplit = \"three\"\nhop = \"slacp\"\nreturn-rate = \"600 kbit/s\"\n",
        "",
    );
    let plain = star.replace("hop = \"slacp\"", "hop = \"tcp\"");
    let two = star.replace("split = \"three\"\nhop = \"slacp\"", "split = \"two\"");
    let packets = star.replace("\"three\"", "\"packets\"");
    let platforms = |text: &str| {
        text.replace("return-channels = 2", "return-channels = 1\nplatforms = [2, 1]")
            + "[shaper]\nrate = \"2 Mbit/s\"\nqueue = \"100 packets\"\n"
    };
    let three = [star, &plain, &packets].map(platforms);
    for text in
        [star, &plain, &two, &mesh, &packets].into_iter().chain(three.iter().map(|it| &it[..]))
    {
        let case = &Scenario::parse("x.toml", text).unwrap().cases[0];
        let metrics = run(case, 1);
        for (flow, done) in [("bulk", 6.0), ("rr", 3.0), ("page", 1.0)] {
            assert_eq!(value(&metrics, flow, "done"), done, "{flow} {metrics:?}");
        }
        assert!(value(&metrics, "web", "done") > 10.0);
        assert_eq!(value(&metrics, "page", "connections"), 7.0, "HTTP/1.0: one for each object");
        assert_eq!(value(&metrics, "udp", "lost-share"), 0.0);
        for metric in &metrics {
            assert!(metric.name != "broken" || metric.value == 0.0, "{metric:?}");
        }
        assert_eq!(metrics, run(case, 1));
        assert_ne!(metrics, run(case, 2));
    }
}

/// Two platforms have twice the capacity; a shaper limits each terminal.
#[test]
fn each_platform_has_its_own_links_and_each_terminal_its_rate() {
    let text = GOOD.replace("[hop.forward]", "[network]\nplatforms = [3, 1]\n[hop.forward]")
        + "count = 2\ntime = \"10 s\"\nper-platform = true\n[shaper]\nrate = \"1 Mbit/s\"\n\
           queue = \"1 BDP\"\n";
    let text = text.replace("bytes = \"500 kB\"\ntcp = \"old\"", "");
    let metrics = run(&Scenario::parse("x.toml", &text).unwrap().cases[0], 1);
    // On the first platform the two transfers have a terminal each, on the second they share one.
    let rates = ["ftp-1", "ftp-2"].map(|flow| value(&metrics, flow, "goodput-mbit/s"));
    assert!((1.5..2.0).contains(&rates[0]) && (0.8..1.0).contains(&rates[1]), "{metrics:?}");
    let delivered = ["forward", "shaper"].map(|of| value(&metrics, of, "delivered-packets"));
    assert!(delivered[0] > 1_500.0 && delivered[0] <= delivered[1], "{metrics:?}");
    // 10 Mbit/s each, of which 1 Mbit/s to each of four terminals at most.
    let used = ["forward", "shaper"].map(|of| value(&metrics, of, "utilisation"));
    assert!((0.12..0.13).contains(&used[0]) && (0.64..0.66).contains(&used[1]), "{metrics:?}");
}

/// A network of two platforms whose terminals all want more than there is.
fn overload(platforms: [u32; 2], sharing: &str, size: u32) -> ScenarioCase {
    let text = format!(
        r#"
description = "more is wanted than there is"
time = "60 s"
[network]
platforms = {platforms:?}
[hop.forward]
rate = "1 Mbit/s"
delay = "400 ms"
queue = "1 BDP"
encapsulation = "mpe"
[hop.return]
rate = "76.8 kbit/s"
delay = "400 ms"
queue = "20 packets"
encapsulation = "aal5"
[hop.dama]
carriers = 4
frame = "50 ms"
frames-per-superframe = 2
sharing = "{sharing}"
[hop.dama.terminal]
ceiling = "57 kbit/s"
vbdc = 512
mac-buffer = "256 cells"
flow-control = true
[shaper]
rate = "320 kbit/s"
queue = "20 packets"
[[flow]]
name = "up"
kind = "udp"
per-platform = true
direction = "up"
rate = "50 kbit/s"
size = "{size} B"
[[flow]]
name = "down"
kind = "bulk"
per-platform = true
count = 3
time = "50 s"
"#
    );
    let mut case = Scenario::parse("x.toml", &text).unwrap().cases.remove(0);
    for flow in &mut case.flows {
        if flow.name.starts_with("up") {
            flow.count = platforms[flow.platform.unwrap() as usize];
        }
    }
    case
}

#[test]
fn equal_demands_get_equal_parts_of_what_is_too_little() {
    for sharing in ["proportional", "fair"] {
        let metrics = run(&overload([80, 27], sharing, 400), 1);
        for flow in ["up-1", "up-2"] {
            let jain = value(&metrics, flow, "fairness");
            assert!(jain >= 0.95, "{sharing} {flow}: {jain}");
        }
        // Cells count whole, so that all there is is used but while the first ones ask.
        let used = value(&metrics, "return", "utilisation");
        assert!((0.87..=1.0).contains(&used), "{sharing}: {used}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Capacity is conserved to the byte, on every link of every platform.
    #[test]
    fn a_network_carries_drops_or_holds_every_byte(
        platforms in [1u32..40, 1u32..40], fair: bool, size in 1u32..1400, seed: u64,
    ) {
        let case = overload(platforms, if fair { "fair" } else { "proportional" }, size);
        let mut run = SimulationRun::new(&case, seed);
        run.finish();
        let HopLinks { forward, ret, shapers } = &run.lanes;
        for lane in forward.iter().chain(ret).chain(shapers) {
            let counters = run.world.counters(*lane);
            let parts =
                [counters.delivered, counters.lost, counters.dropped_queue, counters.inside];
            prop_assert_eq!(
                counters.offered.bytes.get(),
                parts.iter().map(|part| part.bytes.get()).sum::<u64>()
            );
        }
        let of = |lane: &LinkId| core::ptr::from_ref(run.world.shared(*lane).unwrap().0);
        for lanes in ret.chunk_by(|one, next| of(one) == of(next)) {
            let shared = lanes.iter().map(|lane| run.world.shared(*lane).unwrap());
            let slots: Vec<_> = shared.map(|(dama, terminal)| dama.slots(terminal)).collect();
            // 36 slots in 50 ms.
            let granted = slots.iter().map(|slots| slots.granted).sum::<u64>();
            prop_assert!(granted <= 36 * 60 * 20, "{granted}");
            let used = slots.iter().map(|slots| slots.used).sum::<u64>();
            let delivered = lanes.iter().map(|lane| run.world.counters(*lane).delivered.bytes.get());
            prop_assert!(used <= granted && delivered.sum::<u64>() <= used * 48);
        }
    }
}

#[test]
fn presets_and_every_kind_of_trace_carry_a_transfer() {
    let (before, rest) = GOOD.split_once("[hop.forward]").unwrap();
    let (_, after) = rest.split_once("[tcp.old]").unwrap();
    // 1500 bytes every 10 ms are 1.2 Mbit/s.
    let opportunities = "[hop.forward]\nrate-trace = [\"10\"]\ndelay = \"20 ms\"\n\
                         queue = \"64 kB\"\n";
    for (hop, at_least) in [("hop = \"leo\"\n", 0.7), ("", 3.33)] {
        let links = if hop.is_empty() { opportunities } else { "" };
        let text = format!("{hop}{before}{links}[tcp.old]{after}");
        let metrics = run(&Scenario::parse("x.toml", &text).unwrap().cases[0], 1);
        assert_eq!(value(&metrics, "ftp", "bytes"), 500_000.0);
        let time = value(&metrics, "ftp", "time-median-s");
        assert!((at_least..4.0 * at_least).contains(&time), "{hop} {time}");
    }
}

#[test]
fn flows_whose_names_begin_alike_are_measured_apart() {
    // The window of the second is a tenth of the first's.
    let slow = "\n[tcp.new]\nprofile = \"reference\"\nreceive-buffer = \"3276 B\"\n\
                [[flow]]\nname = \"ftp-2\"\nkind = \"bulk\"\nbytes = \"50 kB\"\ntcp = \"new\"\n";
    let text = format!("{GOOD}{slow}");
    let metrics = run(&Scenario::parse("x.toml", &text).unwrap().cases[0], 1);
    let [first, second] = ["ftp", "ftp-2"].map(|of| value(&metrics, of, "outstanding-max-bytes"));
    assert!(first > 20_000.0 && second <= 3276.0, "{first} {second}");
}

#[test]
fn a_run_advances_by_hundredths_and_stops_when_all_is_done() {
    let scenario = Scenario::parse("x.toml", GOOD).unwrap();
    let mut run = SimulationRun::new(&scenario.cases[0], 1);
    assert_eq!(run.progress(), 0.0);
    assert!(run.advance());
    assert!((run.progress() - 0.01).abs() < 1e-9);
    run.finish();
    let (progress, time) = (run.progress(), value(&run.metrics(), "ftp", "time-median-s"));
    assert!(time / 20.0 <= progress && progress < (time + 1.0) / 20.0, "{progress} for {time} s");
    assert!(!run.advance());
    assert_eq!(run.progress(), progress);
}

#[test]
fn the_shortest_of_cases_ends_too() {
    let mut scenario = Scenario::parse("x.toml", GOOD).unwrap();
    scenario.cases[0].time = Duration::from_nanos(50);
    let mut run = SimulationRun::new(&scenario.cases[0], 1);
    run.finish();
    assert_eq!(run.progress(), 1.0);
    assert_eq!(value(&run.metrics(), "ftp", "bytes"), 0.0);
}

#[test]
fn utilisation_and_losses_are_of_the_links() {
    let metrics = run(&Scenario::parse("x.toml", GOOD).unwrap().cases[0], 1);
    let packets = |name| value(&metrics, "forward", name);
    // Segments of 1400 to 1460 bytes, and the handshake.
    let [least, most] = [500_000.0 / 1460.0, 500_000.0 / 1400.0 + 3.0];
    assert!((least..most).contains(&packets("delivered-packets")), "{metrics:?}");
    assert_eq!((packets("lost-packets"), packets("dropped-packets")), (0.0, 0.0));
    let utilisation = packets("utilisation");
    let [least, most] = [(0.5e6) * 8.0 / 10e6 / 14.0, 0.6e6 * 8.0 / 10e6 / 7.6];
    assert!((least..most).contains(&utilisation), "{utilisation}");
    assert!(value(&metrics, "ftp", "srtt-s") >= 0.5);
}

#[test]
fn utilisation_is_of_a_rate_that_varies_as_it_was() {
    let fading = "description = \"x\"\ntime = \"20 s\"\n\
                  [hop.forward]\nrate-trace = [\"0s 10 Mbit/s\", \"5s 1 Mbit/s\"]\n\
                  delay = \"250 ms\"\nqueue = \"64 kB\"\n\
                  [[flow]]\nname = \"udp\"\nkind = \"udp\"\nrate = \"20 Mbit/s\"\n\
                  direction = \"down\"\ntime = \"20 s\"\n";
    let metrics = run(&Scenario::parse("x.toml", fading).unwrap().cases[0], 1);
    // Always more than the link carries; the first and the last moments are missing.
    let utilisation = value(&metrics, "forward", "utilisation");
    assert!((0.9..=1.0).contains(&utilisation), "{utilisation}");
}

/// Terminals of a mesh share the carriers of capacity on demand, and hear each other without the hub:
/// one satellite hop, not two. All ask for 100 kbit/s of 128.
#[test]
fn terminals_of_a_mesh_share_capacity_on_demand() {
    let mesh = "description = \"x\"\ntime = \"40 s\"\n\
                [network]\nterminals = 4\nmesh = true\n\
                [hop.forward]\nrate = \"512 kbit/s\"\ndelay = \"250 ms\"\nqueue = \"40 kB\"\n\
                [hop.return]\nrate = \"128 kbit/s\"\ndelay = \"250 ms\"\nqueue = \"40 kB\"\n\
                encapsulation = \"aal5\"\n\
                [hop.dama]\nframe = \"53 ms\"\nframes-per-superframe = 2\nrequest-period = 4\n\
                [hop.dama.terminal]\nvbdc = 512\nmac-buffer = \"600 cells\"\n\
                [[flow]]\nname = \"udp\"\nkind = \"udp\"\ncount = 4\nrate = \"100 kbit/s\"\n\
                direction = \"up\"\ntime = \"30 s\"\n";
    let metrics = run(&Scenario::parse("x.toml", mesh).unwrap().cases[0], 1);
    assert_eq!(value(&metrics, "forward", "delivered-packets"), 0.0, "nobody hears the hub");
    let bytes = value(&metrics, "return", "delivered-packets") * 1028.0;
    // Of 53 bytes 48 are packets'; 1,028 bytes and AAL5's trailer fill 22 cells of 48.
    let capacity = 128e3 / 8.0 * 1028.0 / (22.0 * 53.0);
    let rate = bytes / 40.0;
    assert!((0.8 * capacity..=capacity).contains(&rate), "{rate} of {capacity} bytes a second");
}

/// What Rec. ITU-R S.1711-1, 2.2.1.1 (TEST-A) measures with UDP: each VSAT fills the carrier that it
/// sends on, whatever the one it hears.
#[test]
fn terminals_of_a_mesh_have_carriers_of_their_own() {
    let mesh = "description = \"x\"\ntime = \"30 s\"\n\
                [network]\nterminals = 2\nmesh = true\n\
                carrier-rates = [\"384 kbit/s\", \"2048 kbit/s\"]\n\
                [hop.forward]\nrate = \"9 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"50 packets\"\n\
                [[flow]]\nname = \"udp\"\nkind = \"udp\"\ncount = 2\nrate = \"3 Mbit/s\"\n\
                direction = \"up\"\ntime = \"20 s\"\n";
    let metrics = run(&Scenario::parse("x.toml", mesh).unwrap().cases[0], 1);
    // 1028 bytes each: as many as the carriers send in 20 s, and two queues of 50.
    let bits = 1028.0 * 8.0;
    let sent = value(&metrics, "return", "delivered-packets");
    let expected = (384e3 + 2048e3) * 20.0 / bits + 100.0;
    assert!((sent - expected).abs() <= 2.0, "{sent} {expected}");
    // Nobody hears the hub, whose carrier is the forward link.
    assert_eq!(value(&metrics, "forward", "delivered-packets"), 0.0);
    let utilisation = value(&metrics, "return", "utilisation");
    let expected = sent * bits / (384e3 + 2048e3) / 30.0;
    assert!((utilisation - expected).abs() < 1e-9, "{utilisation} {expected}");
}
