use proptest::prelude::*;

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

fn run(case: &Case, seed: u64) -> Vec<crate::Metric> {
    let mut run = case.build(seed);
    run.finish();
    run.metrics()
}

fn value(metrics: &[crate::Metric], of: &str, name: &str) -> f64 {
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
    let both = text.replace("loss-period", "per = \"1 %\"\nloss-period");
    assert!(error(&both).contains("loss-period, loss-trace = several: expected only one of them"));
    assert!(error(&text.replace("= 100", "= 0")).contains("loss-period = 0"));
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
    let bytes = scenario.cases.iter().map(|case| value(&run(case, 1), "ftp", "bytes"));
    assert_eq!(bytes.collect::<Vec<_>>(), [5e5, 1e6]);
    let wrong = text.replace("flow.0.bytes", "flow.7.bytes");
    assert!(
        error(&wrong).contains(
            "case.1.set = \"flow.7.bytes\": expected a number from 0 to 0 after \"flow\""
        ),
        "{}",
        error(&wrong)
    );
    let wrong = text.replace("flow.0.bytes", "flow.0.bytes.few");
    let told = "expected nothing after \"flow.0.bytes\", which is a single value";
    assert!(error(&wrong).contains(told), "{}", error(&wrong));
    let wrong = text.replace("\"64 KiB\"", "\"64 apples\"");
    assert!(error(&wrong).starts_with("x.toml (case \"large\"): tcp.old.receive-buffer = "));
}

#[test]
fn errors_name_key_value_and_what_would_be_accepted() {
    for (from, to, expected) in [
        ("\"20 s\"", "\"soon\"", "x.toml: time: \"soon\" is not a duration: expected "),
        ("10 Mbit/s", "0 Mbit/s", "x.toml: hop.forward.rate = 0 bit/s: expected above 0"),
        (
            "\"reference\"",
            "\"ref\"",
            "x.toml: tcp.old.profile: no TCP profile \"ref\": expected one of",
        ),
        ("kind = \"bulk\"", "kind = \"ftp\"", "flow.0.kind = \"ftp\": expected one of \"bulk\", "),
        (
            "tcp = \"old\"",
            "tcp = \"new\"",
            "flow.0.tcp = \"new\": expected one of the [tcp.NAME]: default, old",
        ),
        ("bytes = \"500 kB\"", "", "flow.0.bytes is missing: expected either bytes or time"),
        (
            "bytes =",
            "time = \"3 s\"\nbytes =",
            "flow.0.time = \"3 s\": expected either bytes or time, not both",
        ),
        (
            "kind = \"bulk\"\nbytes = \"500 kB\"",
            "kind = \"udp\"\nrate = \"1 Mbit/s\"\nsize = \"2 kB\"",
            "flow.0.size = \"2 kB\": expected \"1 B\" to \"1472 B\" of payload",
        ),
        ("queue = \"1 BDP\"", "", "hop.forward.queue is missing"),
        (
            "bytes =",
            "reply = \"1 B\"\nbytes =",
            "flow.0.reply = a value: expected for kind \"bulk\" only",
        ),
        ("delay =", "dealy = 1\ndelay =", "x.toml:7: \"dealy = 1\": unknown field"),
        (
            "[tcp.old]",
            "[network]\nservers = 2\n[tcp.old]",
            "network.servers = 2: expected 1, or links",
        ),
        (
            "[tcp.old]",
            "[gateways]\nsplit = \"two\"\n[tcp.old]",
            "gateways.split = a split: expected a network behind",
        ),
    ] {
        let error = error(&GOOD.replace(from, to));
        assert!(error.contains(expected), "{error}\n  instead of\n{expected}");
        assert!(!error.contains('\n'), "{error}");
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
    for text in [star, &plain, &two, &mesh, &packets] {
        let case = &Scenario::parse("x.toml", text).unwrap().cases[0];
        let metrics = run(case, 1);
        for (flow, done) in [("bulk", 6.0), ("rr", 3.0), ("page", 1.0)] {
            assert_eq!(value(&metrics, flow, "done"), done, "{flow} {metrics:?}");
        }
        assert!(value(&metrics, "web", "done") > 10.0);
        assert_eq!(value(&metrics, "udp", "lost-share"), 0.0);
        for metric in &metrics {
            assert!(metric.name != "broken" || metric.value == 0.0, "{metric:?}");
        }
        assert_eq!(metrics, run(case, 1));
        assert_ne!(metrics, run(case, 2));
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
