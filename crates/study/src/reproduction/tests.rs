use sim::MetricValue;

use super::*;
use crate::verdict::CaseRunMetrics;

const FILE: &str = "
document = 'wadekar'
title = 'a <file>'
[[assumption]]
about = 'MSS'
taken = '1000 bytes'
because = 'of Table 1'
[[output]]
where = 'Table 1'
of = 'ftp'
metric = 'time-median-s'
unit = 's'
tolerance = 0.1
tolerance-because = 'x'
points = [
    { case = 'IW 1', value = 4, line = 1 },
    { case = 'IW 2', value = 3, line = 1 },
    { case = 'IW 4', value = 2, line = 1 },
]
[[trend]]
where = 'Fig. 1'
says = 'larger windows are faster'
line = 1
words = 'x'
of = 'ftp'
metric = 'time-median-s'
rising = ['IW 2', 'IW 1']
[[input]]
where = '2'
what = 'rate'
unit = 'Mbit/s'
points = [{ value = 10, line = 1 }]
[[lost]]
where = 'Fig. 2'
what = 'times'
values = 24
line = 1
words = 'x'
";

fn metrics(value: f64) -> [MetricValue; 1] {
    [MetricValue::new("ftp", "time-median-s", value)]
}

#[test]
fn every_result_is_counted_once_and_none_is_left_out() {
    let published = Published::parse("own.toml", FILE).unwrap();
    let documents = Documents::shipped().unwrap();
    let [one, two] = [4.1, 5.0].map(metrics);
    let runs = CaseRunMetrics(vec![("IW 1", &one[..]), ("IW 2", &two[..])]);
    let entries = [ReproductionEntry::new("own".into(), &published, &runs).unwrap()];
    assert_eq!(entries[0].seeds, 1);

    let all = summary(&entries, &documents).to_string();
    let last: Vec<&str> = all.lines().last().unwrap().split_whitespace().collect();
    // One of three values, IW 4 was not run, and the statement does not hold.
    assert_eq!(last[1..], ["1", "0", "4", "25", "%", "0", "2", "1", "0", "1", "24", "0"], "{all}");

    let text = markdown(&entries, &documents, "make it");
    for part in [
        "`make it`",
        "### own: a <file>",
        "| Table 1 | IW 4 |",
        "| not run |",
        "this pair does not hold",
        "Assumption: MSS",
        "| 2 | rate | 10 Mbit/s |",
        "| Fig. 2 | times | 24 |",
        "29 of 61 ms",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let lines = csv(&entries);
    assert_eq!(lines.lines().count(), 1 + 3 + 1, "{lines}");
    assert!(
        lines.contains("wadekar,own,Table 1,IW 2,,ftp,time-median-s,3,,5,,,1,0.1,differs\n"),
        "{lines}"
    );

    let html = page(&entries[0], &documents, "make it");
    assert!(
        html.contains("a &lt;file&gt;")
            && html.contains("<svg")
            && html.contains("<code>make it</code>")
    );
}

#[test]
fn a_graph_of_cases_that_differ_in_words_has_their_names() {
    let file = FILE.replace("IW 1", "reno").replace("IW 2", "cubic");
    let published = Published::parse("own.toml", &file).unwrap();
    let [one, two] = [4.1, 5.0].map(metrics);
    let runs = CaseRunMetrics(vec![("reno", &one[..]), ("cubic", &two[..])]);
    let comparison = verdict::compare(&published, &runs).unwrap();
    let values: Vec<&ValueBeside<'_>> = comparison.values.iter().collect();
    let drawn = plot::picture(&published.output[0], &values).unwrap().inline();
    for name in ["reno", "cubic"] {
        assert!(drawn.contains(name), "{name} is not in {drawn}");
    }
}
