//! Names that have to be resolved before a page can be asked for.

use super::*;

/// A page of a document and 17 objects over a split hop of 250 ms each way, with a millisecond and ten on
/// either side. The connection through the hop is there when the first request leaves.
const PAGE: &str = r#"
description = "a page by name"
time = "60 s"

[hop.forward]
rate = "50 Mbit/s"
delay = "250 ms"
queue = "1 BDP"

[server-side]
rate = "1 Gbit/s"
delay = "10 ms"
queue = "1000 packets"

[client-side]
rate = "1 Gbit/s"
delay = "1 ms"
queue = "1000 packets"

[gateways]
split = "three"
hop = "slacp"

[[flow]]
name = "page"
kind = "page"
method = "http/1.0"
connections = 18
request = "300 B"
objects = ["5 kB", "17 x 1 kB"]
start = "2 s"
"#;

/// How long the page takes, in milliseconds.
fn time(keys: &str, names: u32) -> f64 {
    let flow = match keys {
        "" => String::new(),
        _ => format!("names = {names}\n"),
    };
    let metrics =
        run(&Scenario::parse("x.toml", &format!("{PAGE}{flow}{keys}")).unwrap().cases[0], 1);
    assert_eq!((value(&metrics, "page", "done"), value(&metrics, "page", "broken")), (1.0, 0.0));
    assert!(metrics.iter().all(|metric| metric.name != "lost-share"), "{metrics:?}");
    value(&metrics, "page", "time-median-s") * 1000.0
}

fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 0.5, "{value} {expected}");
}

/// A name that the terminal's resolver does not have costs a round trip over the hop, and one to the
/// terminal; one that it has only that. The other names of a page are asked for together when the
/// document is there.
#[test]
fn a_name_costs_a_round_trip_of_the_hop_unless_it_is_had_or_invented() {
    let without = time("", 1);
    let (hop, lan) = (500.0, 2.0);
    assert_near(time("[names]\n", 1), without + hop + lan);
    assert_near(time("[names]\n", 18), without + 2.0 * (hop + lan));
    for keys in ["[names]\nhit-ratio = \"100 %\"\n", "[names]\nanswer = \"instant\"\n"] {
        assert_near(time(keys, 1), without + lan);
        assert_near(time(keys, 18), without + 2.0 * lan);
    }
}

/// Each name is drawn for itself: of a page with many names some are nearly always missing.
#[test]
fn the_share_of_names_that_a_resolver_has_is_as_given() {
    let users = PAGE
        .replace("kind = \"page\"\nmethod = \"http/1.0\"\nconnections = 18\n", "kind = \"users\"\n")
        .replace("objects = [\"5 kB\", \"17 x 1 kB\"]", "every = \"50 ms\"\nsizes = \"1 kB\"");
    let mean = |keys: &str| {
        let metrics =
            run(&Scenario::parse("x.toml", &format!("{users}{keys}")).unwrap().cases[0], 1);
        assert!(value(&metrics, "page", "done") > 1000.0);
        value(&metrics, "page", "time-mean-s") * 1000.0
    };
    let [none, most, all] =
        ["0 %", "75 %", "100 %"].map(|ratio| mean(&format!("[names]\nhit-ratio = \"{ratio}\"\n")));
    // 1160 draws: a standard deviation of 1.3 %.
    assert!(((none - most) / (none - all) - 0.75).abs() < 0.05, "{none} {most} {all}");
}

/// Questions and answers are datagrams. One in ten is lost each way (`[hop.return]` is as forward), so
/// 19 % of questions fail, and 3.6 % twice.
#[test]
fn a_lost_question_is_asked_again_after_five_seconds() {
    let request = PAGE
        .replace(
            "kind = \"page\"\nmethod = \"http/1.0\"\nconnections = 18\n",
            "kind = \"request\"\n",
        )
        .replace("objects = [\"5 kB\", \"17 x 1 kB\"]", "reply = \"1 kB\"\ncount = 200\n")
        .replacen("queue = \"1 BDP\"", "queue = \"1 BDP\"\nper = \"10 %\"", 1)
        .replace("start = \"2 s\"", "start = \"20 s\"");
    let metrics =
        run(&Scenario::parse("x.toml", &format!("{request}[names]\n")).unwrap().cases[0], 1);
    let [median, p95] =
        ["time-median-s", "time-p95-s"].map(|figure| value(&metrics, "page", figure));
    assert!(median < 2.0 && p95 > 5.5, "{median} {p95}");
    let broken = value(&metrics, "page", "broken");
    assert!((1.0..20.0).contains(&broken), "{broken}");
    assert_eq!(value(&metrics, "page", "done"), 200.0 - broken);
}
