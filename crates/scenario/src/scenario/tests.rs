use std::fs;

use link::{Delay, DisciplineChoice, LossModel, QueueLimit, QueueSize, Rate};
use proptest::prelude::*;
use units::{BitRate, ByteCount};

use super::*;

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

fn error(text: &str) -> String {
    Scenario::parse("x.toml", text).unwrap_err().to_string()
}

fn parse(text: &str) -> ScenarioCase {
    let scenario = Scenario::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"));
    scenario.cases.into_iter().next().unwrap()
}

fn with_hop(hop: &str) -> String {
    let (before, after) = GOOD.split_once("[hop.forward]").unwrap();
    let (_, rest) = after.split_once("[tcp.old]").unwrap();
    format!("{hop}\n{before}[tcp.old]{rest}")
}

#[test]
fn every_key_reaches_its_value() {
    let text = GOOD.replace("time = \"20 s\"", "time = \"20 s\"\nsample = \"1 s\"")
        + "count = 3\nspacing = \"1 s\"\ndirection = \"up\"\nserver-tcp = \"default\"\n\
           [network]\nterminals = 4\nreturn-channels = 2\n\
           [server-side]\nrate = \"1 Gbit/s\"\ndelay = \"10 ms\"\nqueue = \"9 packets\"\n\
           [client-side]\nrate = \"1 Gbit/s\"\ndelay = \"1 ms\"\nqueue = \"9 packets\"\n\
           [gateways]\nsplit = \"three\"\nhop = \"slacp\"\nlan-tcp = \"old\"\n\
           forward-rate = \"9 Mbit/s\"\n";
    let case = parse(&text);
    assert_eq!((case.name.as_str(), case.description.as_str()), ("", "a test"));
    assert_eq!([case.time, case.sample], [20, 1].map(Duration::from_secs));
    assert_eq!((case.network.terminals, case.network.return_channels), (4, 2));
    assert_eq!(case.hop.ret, case.hop.forward);
    assert_eq!(case.round_trip(), Duration::from_millis(522));
    assert_eq!(case.tcp["old"].receive_buffer.get(), 32 << 10);
    let gateways = case.gateways.unwrap();
    assert_eq!((gateways.split, &gateways.tcp[..]), (SplitMode::ThreeSlacp, "default"));
    assert_eq!(gateways.lan_tcp, "old");
    assert_eq!((gateways.forward_rate, gateways.return_rate), (Some(BitRate::from_mbit(9)), None));
    let [flow] = &case.flows[..] else { panic!() };
    assert_eq!((&flow.name[..], flow.count, flow.watch), ("ftp", 3, true));
    assert_eq!(flow.tcp, ["old", "default"]);
    let amount = FlowSize::Bytes(ByteCount::new(500_000));
    assert!(
        matches!(&flow.traffic, FlowTraffic::Bulk { direction: Direction::Up, amount: it } if *it == amount)
    );
}

#[test]
fn a_bdp_is_of_the_rate_that_packets_get() {
    let queue = |text: &str| parse(text).links().forward.queue;
    // 10 Mbit/s × 500 ms, and of 32 cells of 53 bytes a packet of 1500.
    assert_eq!(queue(GOOD), QueueLimit::Bytes(ByteCount::new(625_000)));
    let aal5 = GOOD.replace("queue =", "encapsulation = \"aal5\"\nqueue =");
    assert_eq!(queue(&aal5), QueueLimit::Bytes(ByteCount::new(552_771)));
    // 9180 bytes in 192 cells.
    let jumbo = aal5.replace("[hop.forward]", "[hop]\nmtu = 9180\n[hop.forward]");
    assert_eq!(queue(&jumbo), QueueLimit::Bytes(ByteCount::new(563_826)));
}

#[test]
fn a_preset_is_a_hop() {
    let geo = Preset::load("geo").unwrap();
    let SatelliteHop { forward, ret, mtu, dama } = parse(&with_hop("hop = \"geo\"")).hop;
    assert_eq!((forward, ret, mtu, dama), (geo.forward, geo.ret, geo.mtu, None));
    assert_eq!(parse(&with_hop("hop = \"atm-155m\"")).hop.mtu, 9180);
    let cases = with_hop("hop = \"geo\"")
        + "[[case]]\nname = \"geo\"\n[[case]]\nname = \"leo\"\nset = { hop = \"leo\" }\n";
    let cases = Scenario::parse("x.toml", &cases).unwrap().cases;
    let names = ["geo", "leo"].map(|name| Preset::load(name).unwrap().forward);
    assert!(cases.iter().map(|case| &case.hop.forward).eq(&names));
    let told = error(&with_hop("hop = \"mars\""));
    assert!(told.starts_with("x.toml:1: hop: no preset \"mars\": expected geo, "), "{told}");
    let told = error(&with_hop("hop = 5"));
    assert!(
        told.contains("x.toml:1: hop = 5: expected the name of a preset, or a table"),
        "{told}"
    );
}

#[test]
fn presets_and_traces_are_found_beside_the_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("fade.rate", "0s 10 Mbit/s\n9s 1 Mbit/s\n");
    write("pass.delay", "0s 20 ms\n9s 30 ms\nloop 18s\n");
    write("rain.loss", "0s 0\n9s 1 %\n");
    write("mahimahi", "1\n5\n");
    let links = "[hop.forward]\nrate-trace = \"fade.rate\"\ndelay-trace = \"pass.delay\"\n\
                 loss-trace = \"rain.loss\"\nqueue = \"1 BDP\"\n[hop.return]\n\
                 rate-trace = \"mahimahi\"\ndelay = \"20 ms\"\nqueue = \"9 packets\"\n";
    let traced = GOOD.split_once("[hop.forward]").unwrap().0.to_owned()
        + links
        + "[[flow]]\nname = \"ftp\"\nkind = \"bulk\"\nbytes = \"1 kB\"\n";
    write("traced.toml", &traced);
    let load = |name: &str| Scenario::load(&folder.path().join(name));
    let SatelliteHop { forward, ret, .. } = load("traced.toml").unwrap().cases.remove(0).hop;
    assert_eq!([forward.rate.least(), forward.rate.greatest()], [1, 10].map(BitRate::from_mbit));
    assert!(
        matches!(forward.delay, Delay::Trace(_)) && matches!(forward.loss, LossModel::Trace(_))
    );
    assert!(matches!(ret.rate.over_time(), Rate::Opportunities(_)));
    write("own.toml", &Preset::load("geo").unwrap().to_string());
    write("named.toml", &with_hop("hop = \"own.toml\""));
    assert_eq!(load("named.toml").unwrap().cases[0].hop.mtu, 1500);
    write("own.toml", "description = 5");
    let told = load("named.toml").unwrap_err().to_string();
    assert!(told.contains("own.toml:1: description = 5: expected a text in quotes"), "{told}");
    fs::remove_file(folder.path().join("rain.loss")).unwrap();
    let told = load("traced.toml").unwrap_err().to_string();
    assert!(told.contains("traced.toml:8: hop.forward.loss-trace = \"rain.loss\": cannot read it"));
    assert!(load("none.toml").unwrap_err().to_string().contains("none.toml: "));
}

#[test]
fn a_text_cannot_name_files() {
    let text = with_hop("hop = \"/etc/passwd.toml\"");
    assert!(
        error(&text).starts_with("x.toml:1: hop: cannot read /etc/passwd.toml"),
        "{}",
        error(&text)
    );
}

#[test]
fn disciplines_and_queues_are_those_of_a_preset() {
    let text =
        GOOD.replace("queue = \"1 BDP\"", "queue = \"0.5 BDP\"\ndiscipline = \"red\"\necn = true");
    let SatelliteHop { forward, .. } = parse(&text).hop;
    assert_eq!(forward.queue, QueueSize::Bdp(0.5));
    assert!(forward.ecn && matches!(forward.discipline, DisciplineChoice::Red { .. }));
    let text = GOOD.replace("queue =", "per = \"1 %\"\nloss-period = 100\nqueue =");
    let told = "x.toml:9: hop.forward.per, loss-period = 0.01, 100: expected only one of them";
    assert!(error(&text).contains(told), "{}", error(&text));
    let text = GOOD.replace("queue =", "loss-period = 0\nqueue =");
    let told = "x.toml:8: hop.forward.loss-period = 0: expected a whole number above 0";
    assert!(error(&text).contains(told), "{}", error(&text));
}

#[test]
fn terminals_are_divided_among_platforms() {
    let network = |text: &str| parse(&GOOD.replace("[tcp.old]", text)).network;
    let of = |text: &str| network(&format!("[network]\n{text}\n[tcp.old]")).platforms;
    assert_eq!(of(""), [1]);
    assert_eq!(of("terminals = 10\nplatforms = 4"), [3, 3, 2, 2]);
    assert_eq!(of("platforms = [4, 1]"), [4, 1]);
    assert_eq!(network("[network]\nplatforms = [4, 1]\n[tcp.old]").terminals, 5);
    for (network, told) in [
        ("terminals = 2\nplatforms = 3", "network.platforms = 3: expected 1 or more, at most the"),
        ("terminals = 2\nplatforms = 0", "network.platforms = 0: expected 1 or more, at most the"),
        (
            "terminals = 4000000000\nplatforms = 4000000000",
            "expected 1 or more, at most the terminals",
        ),
        ("terminals = 2\nplatforms = [1, 2]", "\"[1, 2]\": expected 2 terminals together"),
        ("platforms = [1, 0]", "\"[1, 0]\": expected 1 terminal or more on each platform"),
        ("platforms = []", "expected 1 terminal or more on each platform"),
        ("platforms = [90000, 20000]", "expected 100,000 terminals at most"),
        ("platforms = \"2\"", "expected a number, or a list of numbers of terminals"),
        ("platforms = [2, 2]\nmesh = true", "network.platforms = 2: expected 1 in a mesh"),
        ("platforms = [3, 1]\nreturn-channels = 2", "at most the terminals of a platform"),
    ] {
        let error = error(&GOOD.replace("[tcp.old]", &format!("[network]\n{network}\n[tcp.old]")));
        assert!(error.contains(told), "{error}\n  instead of\n{told}");
    }
}

#[test]
fn a_flow_may_be_one_for_each_platform() {
    let text = GOOD.to_owned() + "per-platform = true\n[network]\nplatforms = [2, 2]\n";
    let of = |case: ScenarioCase| {
        case.flows.into_iter().map(|flow| (flow.name, flow.platform)).collect::<Vec<_>>()
    };
    let each = [("ftp-1".to_owned(), Some(0)), ("ftp-2".to_owned(), Some(1))];
    assert_eq!(of(parse(&text)), each);
    assert_eq!(of(parse(GOOD)), [("ftp".to_owned(), None)]);
    let twice = text + "[[flow]]\nname = \"ftp-2\"\nkind = \"bulk\"\nbytes = \"1 kB\"\n";
    assert!(error(&twice).contains("flow.1.name = \"ftp-2\": expected a name that no earlier"));
}

#[test]
fn a_shaper_has_a_rate_and_a_queue() {
    let text =
        GOOD.replace("[tcp.old]", "[shaper]\nrate = \"320 kbit/s\"\nqueue = \"1 BDP\"\n[tcp.old]");
    let shaper = parse(&text).links().shaper.unwrap();
    assert_eq!(shaper.delay, Delay::Constant(Duration::ZERO));
    // 320 kbit/s × 500 ms.
    assert_eq!(shaper.queue, QueueLimit::Bytes(ByteCount::new(20_000)));
}

#[test]
fn a_preset_s_capacity_on_demand_is_checked_for_the_scenario_s_terminals() {
    let text = with_hop("hop = \"vsat-dama-cra\"") + "[network]\nterminals = 100\n";
    let told = error(&text);
    assert!(told.contains("x.toml:1: hop.dama.terminal.cra = "), "{told}");
    assert!(told.contains("for all 100 terminals"), "{told}");
}

#[test]
fn cases_change_single_keys() {
    let text = format!(
        "{GOOD}\n[[case]]\nname = \"small\"\n[[case]]\nname = \"large\"\n\
         set = {{ \"tcp.old.receive-buffer\" = \"64 KiB\", \"flow.0.bytes\" = \"1 MB\" }}\n"
    );
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    let names: Vec<_> = scenario.cases.iter().map(|case| &case.name[..]).collect();
    assert_eq!(names, ["small", "large"]);
    let buffers = scenario.cases.iter().map(|case| case.tcp["old"].receive_buffer.get());
    assert_eq!(buffers.collect::<Vec<_>>(), [32 << 10, 64 << 10]);
    let large = FlowSize::Bytes(ByteCount::new(1_000_000));
    let of = |case: &ScenarioCase| matches!(case.flows[0].traffic, FlowTraffic::Bulk { amount, .. } if amount == large);
    assert_eq!(scenario.cases.iter().map(of).collect::<Vec<_>>(), [false, true]);
    for (from, to, told) in [
        (
            "flow.0.bytes",
            "flow.7.bytes",
            "x.toml:24: case.1.set = \"flow.7.bytes\": expected a number from 0 to 0 after \"flow\"",
        ),
        (
            "flow.0.bytes",
            "flow.0.bytes.few",
            "expected nothing after \"flow.0.bytes\", which is a single value",
        ),
        // The line is that of the case, or of the file that it changes.
        (
            "64 KiB",
            "64 apples",
            "x.toml:24 (case \"large\"): tcp.old.receive-buffer = \"64 apples\"",
        ),
        ("10 Mbit/s", "0 bit/s", "x.toml:6 (case \"small\"): hop.forward.rate = 0 bit/s"),
        (
            "flow.0.bytes",
            "flow.0.byte",
            "x.toml:24 (case \"large\"): unknown key `byte` in flow.0, did you mean `bytes`?",
        ),
        ("\"small\"", "\"\"", "x.toml:21: case.0.name = \"\": expected a name"),
        (
            "\"small\"",
            "\"large\"",
            "x.toml:23: case.1.name = \"large\": expected a name that no earlier case has",
        ),
        ("set = ", "sets = ", "x.toml:24: unknown key `sets` in case.1, did you mean `set`?"),
    ] {
        let error = error(&text.replacen(from, to, 1));
        assert!(error.contains(told), "{error}\n  instead of\n{told}");
    }
    assert!(error(&format!("case = 5\n{GOOD}")).contains("x.toml:1: case = 5: expected a list"));
}

#[test]
fn each_combination_of_levels_is_a_case() {
    let text = format!(
        "{GOOD}\n[[factor]]\nname = \"buffer\"\nlevels = [\n{{ name = \"small\" }},\n\
         {{ name = \"large\", set = {{ \"tcp.old.receive-buffer\" = \"64 KiB\" }} }},\n]\n\
         [[factor]]\nname = \"length\"\nlevels = [\n{{}},\n\
         {{ name = \"long\", set = {{ \"flow.0.bytes\" = \"1 MB\" }} }},\n]\n\
         [[case]]\nname = \"extra\"\nset = {{ \"flow.0.bytes\" = \"2 MB\" }}\n"
    );
    let cases = Scenario::parse("x.toml", &text).unwrap().cases;
    let names: Vec<_> = cases.iter().map(|case| &case.name[..]).collect();
    assert_eq!(names, ["small", "small, long", "large", "large, long", "extra"]);
    let buffers = cases.iter().map(|case| case.tcp["old"].receive_buffer.get() >> 10);
    assert_eq!(buffers.collect::<Vec<_>>(), [32, 32, 64, 64, 32]);
    let amount = |bytes| FlowSize::Bytes(ByteCount::new(bytes));
    let is = |case: &ScenarioCase, bytes| matches!(case.flows[0].traffic, FlowTraffic::Bulk { amount: it, .. } if it == amount(bytes));
    let long: Vec<_> = cases.iter().map(|case| is(case, 1_000_000)).collect();
    assert_eq!(long, [false, true, false, true, false]);
    assert!(is(&cases[4], 2_000_000));
    for (from, to, told) in [
        (
            "64 KiB",
            "64 apples",
            "x.toml:24 (case \"large\"): tcp.old.receive-buffer = \"64 apples\"",
        ),
        (
            "name = \"length\"",
            "name = \"buffer\"",
            "x.toml:27: factor.1.name = \"buffer\": expected a name",
        ),
        (
            "\"large\"",
            "\"small\"",
            "x.toml:24: factor.0.levels.1.name = \"small\": expected a name",
        ),
        ("{},", "{ name = \"\" }, {},", "factor.1.levels.1"),
        ("\"extra\"", "\"large, long\"", "case.0.name = \"large, long\": expected a name that no"),
        (
            "\"flow.0.bytes\" = \"1",
            "\"flow.0.byte\" = \"1",
            "(case \"small, long\"): unknown key `byte`",
        ),
    ] {
        let error = error(&text.replacen(from, to, 1));
        assert!(error.contains(told), "{error}\n  instead of\n{told}");
    }
}

#[test]
fn factors_do_not_multiply_beyond_the_limit() {
    let levels: Vec<_> = (0..101).map(|n| format!("{{ name = \"{n}\" }}")).collect();
    let factor = |n| format!("[[factor]]\nname = \"{n}\"\nlevels = [{}]\n", levels.join(", "));
    let text = |count| GOOD.to_owned() + "\n" + &(0..count).map(factor).collect::<String>();
    assert!(error(&text(2)).contains("factor = 10201 combinations: expected 1 to 10000"));
    assert!(error(&text(40)).contains("factor = too many combinations: expected 1 to 10000"));
    let none = error(&format!("{GOOD}\n[[factor]]\nname = \"x\"\nlevels = []\n"));
    assert!(none.contains("factor.0.levels = 0 of them: expected 1 to 10000"), "{none}");
    let one = "[[factor]]\nname = \"x\"\nlevels = [{}]\n";
    let nameless = error(&format!("{GOOD}\n{one}"));
    assert!(nameless.contains("factor.0.levels.0.name = \"\": expected a name"), "{nameless}");
}

#[test]
fn each_terminal_may_have_a_carrier_of_its_own() {
    let network = "[network]\nterminals = 3\ncarrier-rates = [\"384 kbit/s\", \"2 Mbit/s\"]\n";
    let case = parse(&format!("{GOOD}{network}"));
    let returns = case.returns();
    let rates: Vec<_> = returns.iter().map(|link| link.rate.greatest().to_string()).collect();
    assert_eq!(rates, ["384 kbit/s", "2 Mbit/s"]);
    assert_eq!(returns[1].delay, case.hop.ret.delay);
    // A BDP is one of each carrier.
    let queues: Vec<_> = case.links().returns.iter().map(|link| link.queue).collect();
    let bytes = |bytes| QueueLimit::Bytes(ByteCount::new(bytes));
    assert_eq!(queues, [bytes(24_000), bytes(125_000)]);
    assert_eq!(parse(GOOD).returns(), [parse(GOOD).hop.ret]);
}

#[test]
fn impossible_carriers_are_refused() {
    for (network, expected) in [
        (
            "carrier-rates = [\"1 Mbit/s\", \"2 Mbit/s\"]",
            "network.carrier-rates = a list of 2: expected at",
        ),
        (
            "terminals = 2\ncarrier-rates = [\"1 Mbit/s\", \"0 bit/s\"]",
            "network.carrier-rates.1 = 0 bit/s",
        ),
        ("carrier-rates = [\"1 Mbps\"]", "network.carrier-rates.0: \"1 Mbps\" is not a rate"),
        ("carrier-rates = [\"1 Mbit/s\"]\nreturn-channels = 1", "none with return-channels"),
    ] {
        let error = error(&format!("{GOOD}[network]\n{network}\n"));
        assert!(error.contains(expected), "{error}");
    }
    let dama = with_hop("hop = \"vsat-dama-cra\"");
    let network = "[network]\ncarrier-rates = [\"1 Mbit/s\"]\n";
    let error = error(&format!("{dama}{network}"));
    assert!(
        error.contains("carrier-rates = a list of 1: expected none with [hop.dama]"),
        "{error}"
    );
}

#[test]
fn errors_name_line_key_value_and_what_would_be_accepted() {
    for (from, to, expected) in [
        ("\"20 s\"", "\"soon\"", "x.toml:3: time: \"soon\" is not a duration: expected "),
        ("\"20 s\"", "\"0 s\"", "x.toml:3: time = 0 s: expected above 0"),
        ("\"20 s\"", "20", "x.toml:3: time = 20: expected a text in quotes"),
        ("time = \"20 s\"", "", "x.toml: time is missing"),
        ("10 Mbit/s", "0 Mbit/s", "x.toml:6: hop.forward.rate = 0 bit/s: expected above 0"),
        ("10 Mbit/s", "10 Mbps", "x.toml:6: hop.forward.rate: \"10 Mbps\" is not a rate: "),
        (
            "\"reference\"",
            "\"ref\"",
            "x.toml:11: tcp.old.profile: no TCP profile \"ref\": expected one of",
        ),
        (
            "receive-buffer",
            "recieve-buffer",
            "x.toml:12: unknown key `recieve-buffer` in tcp.old, did you mean `receive-buffer`?",
        ),
        (
            "kind = \"bulk\"",
            "kind = \"gopher\"",
            "x.toml:16: flow.0.kind = \"gopher\": expected one of \"bulk\", ",
        ),
        (
            "tcp = \"old\"",
            "tcp = \"new\"",
            "x.toml:18: flow.0.tcp = \"new\": expected one of the [tcp.NAME]: default, old",
        ),
        (
            "bytes = \"500 kB\"",
            "",
            "x.toml:14: flow.0.bytes is missing: expected either bytes or time",
        ),
        (
            "bytes =",
            "time = \"3 s\"\nbytes =",
            "x.toml:17: flow.0.time = 3 s: expected either bytes or time, not both",
        ),
        (
            "kind = \"bulk\"\nbytes = \"500 kB\"",
            "kind = \"udp\"\nrate = \"1 Mbit/s\"\nsize = \"2 kB\"",
            "x.toml:18: flow.0.size = 2 kB: expected \"1 B\" to \"1472 B\" of payload",
        ),
        ("queue = \"1 BDP\"", "", "x.toml:5: hop.forward.queue is missing: expected \"1 BDP\""),
        (
            "bytes =",
            "reply = \"1 B\"\nbytes =",
            "x.toml:17: flow.0.reply = a value: expected a key that a flow of kind \"bulk\" has: ",
        ),
        (
            "bytes =",
            "count = \"2\"\nbytes =",
            "x.toml:17: flow.0.count = \"2\": expected a whole number",
        ),
        ("bytes =", "count = 0\nbytes =", "x.toml:17: flow.0.count = 0: expected 1 to 100,000"),
        (
            "delay =",
            "dealy = 1\ndelay =",
            "x.toml:7: unknown key `dealy` in hop.forward, did you mean `delay`?",
        ),
        (
            "delay =",
            "speed = 1\ndelay =",
            "x.toml:7: unknown key `speed` in hop.forward, expected one of rate, ",
        ),
        ("delay =", "delay ==", "x.toml:7: \"delay == \\\"250 ms\\\"\": "),
        (
            "[tcp.old]",
            "[network]\nservers = 2\n[tcp.old]",
            "x.toml:11: network.servers = 2: expected 1, or links",
        ),
        (
            "[tcp.old]",
            "[gateways]\nsplit = \"two\"\n[tcp.old]",
            "x.toml:11: gateways.split = \"two\": expected a network behind the gateway: [server-side]",
        ),
        (
            "[tcp.old]",
            "[gateways]\nsplit = \"tow\"\n[tcp.old]",
            "x.toml:11: gateways.split = \"tow\": expected one of \"none\", \"two\", \"three\", \"packets\"",
        ),
    ] {
        let error = error(&GOOD.replace(from, to));
        assert!(error.contains(expected), "{error}\n  instead of\n{expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        let _ = Scenario::parse("x", &text);
    }

    #[test]
    fn a_damaged_scenario_is_read_or_refused(at in any::<prop::sample::Index>(), text in ".{0,8}") {
        let mut chars: Vec<char> = GOOD.chars().collect();
        let at = at.index(chars.len());
        chars.splice(at..(at + 3).min(chars.len()), text.chars());
        let _ = Scenario::parse("x", &chars.into_iter().collect::<String>());
    }
}

#[test]
fn a_file_of_bundles_is_one_bundle_unless_they_are_smaller() {
    let text = |keys: &str| GOOD.replace("\"bulk\"", &format!("\"bundles\"\n{keys}"));
    let read = |keys: &str| match parse(&text(keys)).flows.remove(0).traffic {
        FlowTraffic::Bundles { direction, bytes, bundle, window } => {
            (direction, bytes, bundle, window)
        }
        traffic => panic!("{traffic:?}"),
    };
    assert_eq!(read(""), (Direction::Down, 500_000, 500_000, 16));
    let keys = "direction = \"up\"\nbundle = \"10 kB\"\nwindow = 1";
    assert_eq!(read(keys), (Direction::Up, 500_000, 10_000, 1));
    for (keys, told) in [
        ("window = 0", "flow.0.window = 0: expected 1 to 100,000"),
        ("bundle = \"4 B\"", "flow.0.bundle = 4 B: expected at most 100,000 of them in the file"),
        ("bundle = \"0 B\"", "flow.0.bundle = 0 B: expected 1 B to 2^50 B"),
        ("think = \"1 s\"", "expected a key that a flow of kind \"bundles\" has: direction, bytes"),
    ] {
        assert!(error(&text(keys)).contains(told), "{}", error(&text(keys)));
    }
    let side = "rate = \"1 Gbit/s\"\ndelay = \"1 ms\"\nqueue = \"9 packets\"\n";
    let slacp = text("")
        + &format!("[server-side]\n{side}[client-side]\n{side}")
        + "[gateways]\nsplit = \"three\"\nhop = \"slacp\"\n";
    let told =
        "gateways.hop = \"slacp\": expected \"tcp\", over which the bundles of \"ftp\" cross";
    assert!(error(&slacp).contains(told), "{}", error(&slacp));
}

#[test]
fn contents_are_noise_or_a_text_beside_the_scenario() {
    assert!(matches!(parse(GOOD).flows[0].contents, FlowContents::Noise));
    let folder = tempfile::tempdir().unwrap();
    let load = |length: usize| {
        fs::write(folder.path().join("access.log"), "x".repeat(length)).unwrap();
        let text = GOOD.replace("[[flow]]", "[[flow]]\ncontents = \"access.log\"");
        Scenario::parse_at(&folder.path().join("x.toml"), &text).map(|mut it| it.cases.remove(0))
    };
    let FlowContents::Sample(text) = &load(65_536).unwrap().flows[0].contents else { panic!() };
    assert_eq!(text.len(), 65_536);
    let told = load(65_535).unwrap_err().to_string();
    assert!(told.contains("contents = 65.535 kB: expected a text of 64 KiB or more"), "{told}");
    let told = error(&GOOD.replace("[[flow]]", "[[flow]]\ncontents = \"access.log\""));
    assert!(told.contains("flow.0.contents: cannot read access.log"), "{told}");
}

#[test]
fn names_need_a_resolver_and_instant_ones_a_gateway() {
    let page = GOOD.replace("bytes = \"500 kB\"", "request = \"1 B\"\nobjects = [\"1 kB\"]");
    let page = page.replace("\"bulk\"", "\"page\"\nnames = 18");
    let told = error(&page);
    assert!(told.contains("flow.0.names = 18: expected none without a resolver"), "{told}");
    let names = parse(&format!("{page}[names]\nhit-ratio = \"20 %\"\n")).names.unwrap();
    assert_eq!((names.answer, names.hit_ratio.get()), (NameAnswer::Real, 0.2));
    let told = error(&format!("{page}[names]\nanswer = \"instant\"\n"));
    assert!(told.contains("names.answer = \"instant\": expected \"real\" unless"), "{told}");
    let told = error(&format!("{page}[names]\n").replace("names = 18", "names = 0"));
    assert!(told.contains("flow.0.names = 0: expected 1 to 1000"), "{told}");
}
