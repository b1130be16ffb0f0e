use core::time::Duration;

use proptest::prelude::*;
use units::BitRate;

use crate::{Scenario, ScenarioCase};

const BASE: &str = r#"
description = "a test"
time = "20 s"

[hop.forward]
rate = "10 Mbit/s"
delay = "250 ms"
queue = "9 packets"

[[flow]]
name = "ftp"
kind = "bulk"
bytes = "500 kB"
"#;

fn cases(more: &str) -> Vec<ScenarioCase> {
    let text = format!("{BASE}{more}");
    Scenario::parse("x.toml", &text).unwrap_or_else(|error| panic!("{error}")).cases
}

fn names(more: &str) -> Vec<String> {
    cases(more).into_iter().map(|case| case.name).collect()
}

fn error(more: &str) -> String {
    Scenario::parse("x.toml", &format!("{BASE}{more}")).unwrap_err().to_string()
}

const RATES: &str = "[[factor]]\nname = \"rate\"\nkey = \"hop.forward.rate\"\n\
                     values = [\"1 Mbit/s\", \"2 Mbit/s\", \"4 Mbit/s\"]\n";
const COUNTS: &str = "[[factor]]\nname = \"count\"\nkey = \"flow.0.count\"\nvalues = [1, 3]\n";

#[test]
fn values_of_a_key_are_levels_named_after_them() {
    let all = cases(&format!("{RATES}{COUNTS}"));
    let names: Vec<_> = all.iter().map(|case| &case.name[..]).collect();
    let expected = [
        "1 Mbit/s, count 1",
        "1 Mbit/s, count 3",
        "2 Mbit/s, count 1",
        "2 Mbit/s, count 3",
        "4 Mbit/s, count 1",
        "4 Mbit/s, count 3",
    ];
    assert_eq!(names, expected);
    let got: Vec<_> =
        all.iter().map(|case| (case.hop.forward.rate.greatest(), case.flows[0].count)).collect();
    let mbit = BitRate::from_mbit;
    let set = [1, 2, 4].map(|rate| [(mbit(rate), 1), (mbit(rate), 3)]);
    assert_eq!(got, set.concat());
    let level = &all[5].levels[1];
    assert_eq!((&level.factor[..], &level.name[..]), ("count", "count 3"));
    assert_eq!(level.value.as_deref(), Some("3"));
}

#[test]
fn several_keys_get_the_same_value_and_a_label_names_it() {
    let all = cases(
        "[[factor]]\nname = \"delay\"\nkeys = [\"hop.forward.delay\", \"hop.return.delay\"]\n\
         values = [\"10 ms\", \"20 ms\"]\nlabel = \"after {} each\"\n\
         [hop.return]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"9 packets\"\n",
    );
    let got: Vec<_> = all.iter().map(|case| (&case.name[..], case.round_trip())).collect();
    let ms = Duration::from_millis;
    assert_eq!(got, [("after 10 ms each", ms(20)), ("after 20 ms each", ms(40))]);
    let switch = "[[factor]]\nname = \"SACK\"\nkey = \"tcp.x.sack\"\nvalues = [true, false]\n";
    assert_eq!(names(switch), ["SACK on", "SACK off"]);
    assert!(cases(switch)[0].tcp["x"].sack && !cases(switch)[1].tcp["x"].sack);
}

#[test]
fn a_range_has_its_values_with_their_unit() {
    let range = |range: &str| {
        names(&format!(
            "[[factor]]\nname = \"x\"\nkey = \"hop.forward.per\"\nlabel = \"{{}}\"\nrange = {range}\n"
        ))
    };
    let percent = ["0 %", "0.1 %", "0.2 %", "0.3 %"];
    assert_eq!(range("{ from = \"0%\", to = \"0.3 %\", step = \"0.1 %\" }"), percent);
    assert_eq!(range("{ from = \"0 %\", to = \"0.3 %\", count = 4 }"), percent);
    let log = ["1e-6", "0.0001", "0.01"];
    let logged = range("{ from = \"1e-6\", to = \"1e-2\", count = 3, scale = \"log\" }");
    assert_eq!(logged, ["0.000001", log[1], log[2]]);
    // A step that does not divide the range stays below its end.
    let uneven = "{ from = \"1 %\", to = \"8 %\", step = \"3 %\" }";
    assert_eq!(range(uneven), ["1 %", "4 %", "7 %"]);
    let rates = names(
        "[[factor]]\nname = \"x\"\nkey = \"hop.forward.rate\"\n\
         range = { from = \"1 Mbit/s\", to = \"100 Mbit/s\", count = 5, scale = \"log\" }\n",
    );
    assert_eq!(rates, ["1 Mbit/s", "3.162 Mbit/s", "10 Mbit/s", "31.62 Mbit/s", "100 Mbit/s"]);
}

#[test]
fn between_whole_numbers_are_whole_numbers() {
    let counts = |range: &str| {
        let text = format!("[[factor]]\nname = \"n\"\nkey = \"flow.0.count\"\nrange = {range}\n");
        cases(&text).iter().map(|case| case.flows[0].count).collect::<Vec<_>>()
    };
    assert_eq!(counts("{ from = 1, to = 4, step = 1 }"), [1, 2, 3, 4]);
    assert_eq!(counts("{ from = 1, to = 10, count = 4 }"), [1, 4, 7, 10]);
    assert_eq!(counts("{ from = 1, to = 100, count = 5, scale = \"log\" }"), [1, 3, 10, 32, 100]);
}

#[test]
fn factors_can_vary_together() {
    let queues = "[[factor]]\nname = \"queue\"\nwith = \"rate\"\nkey = \"hop.forward.queue\"\n\
                  values = [\"10 packets\", \"20 packets\", \"20 packets\"]\n";
    let together = ["1 Mbit/s, 10 packets", "2 Mbit/s, 20 packets", "4 Mbit/s, 20 packets"];
    assert_eq!(names(&format!("{RATES}{queues}")), together);
    // With a factor between them, and without a part of the name.
    let silent = format!("{RATES}{COUNTS}{queues}label = \"\"\n");
    assert_eq!(names(&silent), names(&format!("{RATES}{COUNTS}")));
    let longer = queues.replace("[\"10 packets\", ", "[\"8 packets\", \"10 packets\", ");
    assert_eq!(
        error(&format!("{RATES}{longer}")),
        "x.toml:20: factor.1.with = \"rate\", which has 3 levels and this factor 4: expected as \
         many levels of both"
    );
    let first = error(&queues.replace("\"rate\"", "\"speed\""));
    assert!(first.ends_with("expected an earlier factor, and this is the first"), "{first}");
}

#[test]
fn combinations_can_be_excluded() {
    let exclude = "[[exclude]]\nrate = [\"1 Mbit/s\", \"4 Mbit/s\"]\ncount = \"count 3\"\n";
    let left = ["1 Mbit/s, count 1", "2 Mbit/s, count 1", "2 Mbit/s, count 3", "4 Mbit/s, count 1"];
    assert_eq!(names(&format!("{RATES}{COUNTS}{exclude}")), left);
    for (from, to, told) in [
        (
            "rate = [",
            "speed = [",
            "x.toml:23: exclude.0.speed = …: expected a factor of this file: ",
        ),
        (
            "\"count 3\"",
            "\"3\"",
            "x.toml:24: exclude.0.count = \"3\": expected one of \"count 1\", \"count 3\"",
        ),
        ("\"count 3\"", "5", "x.toml:24: exclude.0.count = 5: expected the name of a level, or a"),
        ("rate = [\"1 Mbit/s\", \"4 Mbit/s\"]", "rate = []", "expected factors with levels that"),
        (
            "count = \"count 3\"",
            "[[exclude]]\n",
            "expected some combinations that are not excluded",
        ),
    ] {
        let error = error(&format!("{RATES}{COUNTS}{}", exclude.replace(from, to)));
        assert!(error.contains(told), "{error}\n  instead of\n{told}");
    }
    let alone = error("[[exclude]]\nrate = \"1 Mbit/s\"\n");
    assert!(alone.contains("x.toml:14: exclude = …: expected factors with it"), "{alone}");
}

#[test]
fn errors_in_factors_name_line_key_value_and_what_would_be_accepted() {
    for (from, to, told) in [
        (
            "key = \"hop.forward.rate\"\n",
            "",
            "x.toml:14: factor.0.key is missing: expected the key",
        ),
        (
            "key",
            "keys = []\nkey",
            "factor.0.key, keys = \"hop.forward.rate\", a list of 0: expected",
        ),
        ("hop.forward.rate", "hop.forward.rat", "x.toml:16 (case \"1 Mbit/s\"): unknown key `rat`"),
        (
            "hop.forward.rate",
            "flow.1.bytes",
            "x.toml:16: factor.0.key = \"flow.1.bytes\": expected",
        ),
        (
            "hop.forward.rate",
            "replications.seeds",
            "a key that cases may differ in, and replications",
        ),
        (
            "hop.forward.rate",
            "case.0.name",
            "a key that cases may differ in, and case holds for all",
        ),
        ("\"2 Mbit/s\"", "\"2 Mbps\"", "x.toml:17 (case \"2 Mbps\"): hop.forward.rate: \"2 Mbps\""),
        (
            "\"2 Mbit/s\"",
            "[]",
            "x.toml:17: factor.0.values.1 = a list of 0: expected a text, a number",
        ),
        ("\"2 Mbit/s\"", "\"1 Mbit/s\"", "factor.0.values = \"1 Mbit/s\": expected a name that no"),
        ("\"2 Mbit/s\"", "\"\"", "factor.0.values.1 = \"\": expected a name"),
        ("values", "value", "x.toml:17: unknown key `value` in factor.0, did you mean `values`?"),
        ("values", "levels = [{}]\nvalues", "factor.0.levels, values = …, …: expected only one of"),
        (
            "values =",
            "label = \"fast\"\nvalues =",
            "x.toml:17: factor.0.label = \"fast\": expected a",
        ),
    ] {
        let error = error(&RATES.replacen(from, to, 1));
        assert!(error.contains(told), "{error}\n  instead of\n{told}");
        assert!(!error.contains('\n'), "{error}");
    }
    let levels = "[[factor]]\nname = \"x\"\nkey = \"time\"\nlevels = [{ name = \"y\" }]\n";
    assert!(error(levels).contains("factor.0.key = a value: expected values or range with it"));
    assert!(error("[[factor]]\nname = \"x\"\n").contains("factor.0.levels is missing: expected"));
}

#[test]
fn impossible_ranges_are_refused() {
    for (range, told) in [
        ("from = 1, to = 9", "count is missing: expected either step or count"),
        ("from = 1, to = 9, step = 1, count = 3", "count = 3: expected either step or count, not"),
        ("from = 9, to = 1, step = 1", "to = 1: expected more than from"),
        ("from = 1, to = 9, step = 0", "step = 0: expected above 0"),
        ("from = 1, to = 9, step = 0.0001", "step = 0.0001: expected a step with at most 10000"),
        ("from = 1, to = 9, count = 1", "count = 1: expected 2 to 10000"),
        ("from = 0, to = 9, count = 2, scale = \"log\"", "from = 0: expected above 0 on a log"),
        ("from = 1, to = 9, step = 1, scale = \"log\"", "scale = \"log\": expected count instead"),
        ("from = 1, to = \"9 s\", step = 1", "to = \"9 s\": expected a number without a unit"),
        (
            "from = \"1 ms\", to = \"9 s\", count = 2",
            "to = \"9 s\": expected the unit of from, \"ms\"",
        ),
        ("from = \"1 ms\", to = \"9 ms\", step = 1", "step = 1: expected the unit of from, \"ms\""),
        ("from = \"slow\", to = 3, count = 2", "from = \"slow\": expected a number up to 1e15"),
        ("from = nan, to = 3, count = 2", "from = NaN: expected a number up to 1e15"),
        ("from = 1, to = inf, count = 2", "to = inf: expected a number up to 1e15"),
        ("from = 1, to = 3, count = 9", "factor.0.values = \"x 1\": expected a name that no"),
    ] {
        let text = format!("[[factor]]\nname = \"x\"\nkey = \"time\"\nrange = {{ {range} }}\n");
        let error = error(&text);
        assert!(error.contains(told), "{error}\n  instead of\n{told}");
        assert!(error.starts_with("x.toml:17: ") || told.starts_with("factor"), "{error}");
    }
}

proptest! {
    #[test]
    fn the_values_of_a_range_rise_from_its_first_to_its_last(
        from in 1..1000u32,
        more in 1..1000u32,
        count in 2..50u32,
        log: bool,
    ) {
        let scale = if log { "log" } else { "linear" };
        let to = 2 * from + more;
        let all = cases(&format!(
            "[[factor]]\nname = \"x\"\nkey = \"hop.forward.delay\"\nrange = {{ from = \"{from} ms\", \
             to = \"{to} ms\", count = {count}, scale = \"{scale}\" }}\n"
        ));
        let delays: Vec<_> = all.iter().map(|case| case.hop.forward.delay.greatest()).collect();
        let ends = [delays[0], delays[delays.len() - 1]];
        prop_assert_eq!(ends, [from, to].map(|end| Duration::from_millis(end.into())));
        prop_assert!(delays.is_sorted() && delays.len() == count as usize, "{:?}", delays);
    }
}
