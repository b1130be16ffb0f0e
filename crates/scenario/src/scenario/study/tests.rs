use crate::{BackEnd, Replications, Scenario, Statistic};

const BASE: &str = r#"
description = "a test"
time = "20 s"
hop = "geo"
#TOP
[[flow]]
name = "ftp"
kind = "bulk"
bytes = "500 kB"
"#;

fn parse(top: &str) -> Result<Scenario, String> {
    let text = BASE.replace("#TOP", top);
    Scenario::parse("x.toml", &text).map_err(|error| error.to_string())
}

fn replications(section: &str) -> Replications {
    parse(&format!("[replications]\n{section}")).unwrap().replications
}

#[test]
fn without_more_a_file_is_run_once_in_the_simulator() {
    let scenario = parse("").unwrap();
    assert_eq!(scenario.back_ends, [BackEnd::Sim, BackEnd::Lab]);
    assert_eq!(scenario.replications.seeds(), [1]);
    assert_eq!(scenario.results, []);
    assert_eq!(replications("").seeds(), [1]);
}

#[test]
fn seeds_are_counted_or_listed() {
    assert_eq!(replications("seeds = 3").seeds(), [1, 2, 3]);
    assert_eq!(replications("seeds = 3\nfirst = 7").seeds(), [7, 8, 9]);
    let listed = replications("seeds = [9, 2]");
    assert_eq!((listed.seeds(), listed.least()), (vec![9, 2], 2));
}

#[test]
fn a_stop_rule_has_defaults_that_fit_each_other() {
    let until = |more: &str| {
        let metric = "of = \"ftp\", metric = \"goodput-mbit/s\"";
        let section = format!("until = {{ {metric}, within = \"5 %\"{more} }}");
        let Replications::Until(rule) = replications(&section) else { panic!("{section}") };
        rule
    };
    let rule = until("");
    assert_eq!((&rule.name.of[..], rule.name.unit()), ("ftp", "Mbit/s"));
    assert_eq!((rule.statistic, rule.within, rule.confidence), (Statistic::Mean, 0.05, 0.95));
    assert_eq!((rule.least, rule.most, rule.first), (10, 200, 1));
    let rule = until(", statistic = \"median\", confidence = \"98 %\", least = 300");
    assert_eq!((rule.statistic, rule.confidence), (Statistic::Median, 0.98));
    assert_eq!((rule.least, rule.most), (300, 300));
    assert_eq!((until(", most = 4").least, until(", most = 4").most), (4, 4));
    assert_eq!(Replications::Until(until(", most = 4")).seeds(), [1, 2, 3, 4]);
}

#[test]
fn results_and_back_ends_are_lists_of_different_ones() {
    let scenario = parse(
        "back-ends = [\"sim\", \"lab\"]\n[[result]]\nof = \"ftp\"\nmetric = \"time-median-s\"\n\
         [[result]]\nof = \"forward\"\nmetric = \"utilisation\"\n",
    );
    let scenario = scenario.unwrap();
    assert_eq!(scenario.back_ends, [BackEnd::Sim, BackEnd::Lab]);
    let results = scenario.results.iter().map(|name| (&name.of[..], &name.metric[..], name.unit()));
    let expected = [("ftp", "time-median-s", "s"), ("forward", "utilisation", "")];
    assert_eq!(results.collect::<Vec<_>>(), expected);
}

#[test]
fn errors_name_line_key_value_and_what_would_be_accepted() {
    let until =
        |rest: &str| format!("[replications.until]\nof = \"ftp\"\n{rest}\nwithin = \"5 %\"");
    let goodput = "metric = \"goodput-mbit/s\"";
    for (top, told) in [
        ("back-ends = []", "x.toml:5: back-ends = a list of 0: expected \"sim\", \"lab\" or both"),
        ("back-ends = [\"sim\", \"sim\"]", "back-ends = a list of 2: expected \"sim\", \"lab\" or"),
        (
            "back-ends = [\"ns2\"]",
            "x.toml:5: back-ends.0 = \"ns2\": expected one of \"sim\", \"lab\"",
        ),
        (
            "[replications]\nseeds = 0",
            "x.toml:6: replications.seeds = 0: expected 1 to 10,000 seeds",
        ),
        (
            "[replications]\nseeds = [1, 1]",
            "replications.seeds = a list of 2: expected 1 to 10,000",
        ),
        ("[replications]\nseeds = []", "replications.seeds = a list of 0: expected 1 to 10,000"),
        ("[replications]\nseeds = \"2\"", "seeds = \"2\": expected a number of seeds, or a list"),
        ("[replications]\nseeds = [1]\nfirst = 2", "first = 2: expected a number of seeds with it"),
        ("[replications]\nfirst = 9223372036854775807", "first = 9223372036854775807: expected a"),
        ("[replications]\nseed = 2", "x.toml:6: unknown key `seed` in replications, did you mean"),
        (&until("metric = \"goodput\""), "until.metric = \"goodput\": expected one of bytes, good"),
        (
            &until(goodput).replace("ftp", "http"),
            "x.toml:6: replications.until.of = \"http\": expected the name of a flow, or one of forward",
        ),
        (&until(goodput).replace("5 %", "0 %"), "until.within = 0: expected above 0"),
        (&until(&format!("{goodput}\nleast = 1")), "until.least = 1: expected 2 to 10,000"),
        (&until(&format!("{goodput}\nleast = 9\nmost = 8")), "most = 8: expected 9, as least, to"),
        (&until(&format!("{goodput}\nconfidence = \"50 %\"")), "confidence = 0.5: expected above"),
        (
            &format!("[replications]\nseeds = 3\n{}", until(goodput)),
            "either seeds or until, not both",
        ),
        ("[[result]]\nof = \"ftp\"\nmetric = \"speed\"", "x.toml:7: result.0.metric = \"speed\": "),
    ] {
        let error = parse(top).map(drop).unwrap_err();
        assert!(error.contains(told), "{error}\n  instead of\n{told}");
        assert!(!error.contains('\n'), "{error}");
    }
}
