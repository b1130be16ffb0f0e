use super::*;

const FILE: &str = "
document = 'own'
title = 'a file'
[[output]]
where = 'Table 1'
of = 'ftp'
metric = 'time-median-s'
unit = 'ms'
tolerance = 0.1
tolerance-because = 'x'
points = [
    { case = 'a', value = 1000, line = 1 },
    { case = 'b', value = 1000, to = 2000, line = 1 },
    { case = 'c', value = 1000, line = 1, differs = { because = 'the queue', case = 'd' } },
    { case = 'd', value = 3000, line = 1, impossible = 'faster than light' },
    { case = 'e', value = 1000, line = 1 },
]
[[output]]
where = 'Table 1'
of = 'ftp'
metric = 'time-median-s'
unit = '%'
compare = 'reduction'
tolerance = 0.1
tolerance-because = 'x'
points = [{ case = 'a', by = 'b', value = 50, line = 1 }]
[[trend]]
where = 'Table 1'
says = 'b is the slowest'
line = 1
words = 'slowest'
of = 'ftp'
metric = 'time-median-s'
rising = ['a', 'b']
[[trend]]
where = 'Table 1'
says = 'c takes a third of the time of b'
line = 1
words = 'third'
of = 'ftp'
metric = 'time-median-s'
pairs = [['c', 'b']]
least = 0.3
most = 0.4
differs = { because = 'the queue', case = 'a' }
";

fn run(value: f64) -> [MetricValue; 1] {
    [MetricValue { of: "ftp".into(), name: "time-median-s".into(), value }]
}

fn compared_with(runs: &[(&str, f64)]) -> (Published, Vec<(String, [MetricValue; 1])>) {
    let runs = runs.iter().map(|(case, value)| ((*case).to_owned(), run(*value))).collect();
    (Published::parse("own.toml", FILE).unwrap(), runs)
}

fn borrowed(runs: &[(String, [MetricValue; 1])]) -> CaseRunMetrics<'_> {
    CaseRunMetrics(runs.iter().map(|(case, metrics)| (&case[..], &metrics[..])).collect())
}

#[test]
fn a_value_is_reproduced_within_its_tolerance_and_no_further() {
    for (ours, reproduced) in [(0.89, false), (0.91, true), (1.09, true), (1.11, false)] {
        let (published, runs) = compared_with(&[("a", ours)]);
        let comparison = compare(&published, &borrowed(&runs)).unwrap();
        // The other cases were not run; one value is impossible in any case.
        let score = comparison.score();
        assert_eq!((score.scored(), score.impossible, score.not_run), (1, 1, 6));
        assert_eq!(comparison.values[0].published, [1.0, 1.0]);
        assert_eq!(comparison.values[0].verdict == Verdict::Reproduced, reproduced, "{ours}");
    }
}

#[test]
fn a_range_is_widened_by_the_tolerance() {
    for (ours, reproduced) in [(0.89, false), (0.91, true), (2.19, true), (2.21, false)] {
        let (published, runs) = compared_with(&[("b", ours)]);
        let comparison = compare(&published, &borrowed(&runs)).unwrap();
        assert_eq!(comparison.values[1].verdict == Verdict::Reproduced, reproduced, "{ours}");
    }
}

#[test]
fn a_cause_counts_if_the_case_that_should_show_it_does() {
    for (with, shown) in [(1.05, true), (2.0, false)] {
        let (published, runs) = compared_with(&[("c", 5.0), ("d", with)]);
        let comparison = compare(&published, &borrowed(&runs)).unwrap();
        let [because, shown_in] = ["the queue", "case \"d\""].map(str::to_owned);
        let cause = Cause::Tested { because, shown_in, value: Some(with), shown };
        assert_eq!(comparison.values[2].verdict, Verdict::Differs(cause));
        let score = comparison.score();
        assert_eq!(
            (score.explained, score.unexplained, score.impossible),
            if shown { (1, 0, 1) } else { (0, 1, 1) }
        );
        assert_eq!(score.scored(), 1);
    }
}

#[test]
fn a_published_single_run_is_explained_if_a_run_of_its_case_agrees() {
    let text = FILE.replace("case = 'd' } }", "case = 'd', single-runs = true } }");
    let published = Published::parse("own.toml", &text).unwrap();
    for (last, agree) in [(1.05, 1), (1.2, 0)] {
        let (_, runs) = compared_with(&[("c", 5.0), ("d", 3.0), ("d", 2.0), ("d", last)]);
        let comparison = compare(&published, &borrowed(&runs)).unwrap();
        let shown_in = format!("{agree} of 3 runs of case \"d\"");
        let because = "the queue".to_owned();
        let cause = Cause::Tested { because, shown_in, value: None, shown: agree > 0 };
        assert_eq!(comparison.values[2].verdict, Verdict::Differs(cause));
    }
}

#[test]
fn cases_are_compared_by_the_figures_of_all_their_runs() {
    let runs = [("a", 0.9), ("a", 1.0), ("a", 4.0), ("b", 2.0), ("b", 2.0), ("b", 2.0)];
    let (published, runs) = compared_with(&runs);
    let comparison = compare(&published, &borrowed(&runs)).unwrap();
    let gain = comparison.values.last().unwrap();
    let ours = gain.ours.unwrap();
    assert_eq!((ours.value, ours.runs), (0.5, 3));
    let interval = ours.interval.unwrap();
    assert!(interval.low < 0.5 && interval.high > 0.5, "{interval:?}");
    assert_eq!(gain.verdict, Verdict::Reproduced);
}

#[test]
fn a_statement_holds_only_if_it_holds_for_every_pair() {
    let (published, runs) = compared_with(&[("a", 1.0), ("b", 3.0), ("c", 1.5)]);
    let comparison = compare(&published, &borrowed(&runs)).unwrap();
    assert_eq!(comparison.trends[0].verdict, Verdict::Reproduced);
    let Verdict::Differs(Cause::Tested { shown, .. }) = &comparison.trends[1].verdict else {
        panic!("{:?}", comparison.trends[1]);
    };
    // 1.5 of 3 is half, but a is a third of b.
    assert!(shown);
    // Equal values are in no order.
    let (published, runs) = compared_with(&[("a", 1.0), ("b", 1.0)]);
    let comparison = compare(&published, &borrowed(&runs)).unwrap();
    assert_eq!(comparison.trends[0].verdict, Verdict::Differs(Cause::Unknown));
}

#[test]
fn a_cause_that_swaps_names_is_about_every_case_of_the_result() {
    let text = FILE
        .replace("pairs = [['c', 'b']]", "pairs = [['c fast', 'b fast'], ['a fast', 'b fast']]");
    let text =
        text.replace("case = 'a' }\n", "swap = [['a fast', 'a slow'], ['fast', 'slow']] }\n");
    let swap = "value = 50, line = 1, differs = { because = 'x', swap = [['fast', 'slow']] } }";
    let text = text.replace("case = 'a', by = 'b'", "case = 'a fast', by = 'b fast'");
    let text = text.replace("value = 50, line = 1 }", swap);
    let published = Published::parse("own.toml", &text).unwrap();
    // Only the first pair fails, as a half. The second must hold with the other cases, too.
    for (c_slow, shown) in [(3.5, true), (9.0, false)] {
        let fast = [("a fast", 1.0), ("b fast", 3.0), ("c fast", 1.5)];
        let slow = [("a slow", 3.2), ("b slow", 10.0), ("c slow", c_slow)];
        let runs: Vec<_> = fast.into_iter().chain(slow).map(|(case, it)| (case, run(it))).collect();
        let runs =
            CaseRunMetrics(runs.iter().map(|(case, metrics)| (*case, &metrics[..])).collect());
        let comparison = compare(&published, &runs).unwrap();
        let Verdict::Differs(Cause::Tested { shown: was, .. }) = &comparison.trends[1].verdict
        else {
            panic!("{:?}", comparison.trends[1]);
        };
        assert_eq!(*was, shown);
        let gain = comparison.values.last().unwrap();
        let Verdict::Differs(Cause::Tested { value: Some(value), shown_in, .. }) = &gain.verdict
        else {
            panic!("{gain:?}");
        };
        assert_eq!(shown_in, "cases \"a slow\" and \"b slow\"");
        // 1 − 3.2 / 10: both cases are other ones.
        assert_eq!((value * 100.0).round(), 68.0);
    }
}

#[test]
fn an_impossible_statement_is_not_scored() {
    let text = FILE.replace("rising = ['a', 'b']", "rising = ['a', 'b']\nimpossible = 'x'");
    let published = Published::parse("own.toml", &text).unwrap();
    let runs = [("a", run(1.0)), ("b", run(1.0))];
    let runs = CaseRunMetrics(runs.iter().map(|(case, metrics)| (*case, &metrics[..])).collect());
    let comparison = compare(&published, &runs).unwrap();
    assert_eq!(comparison.trends[0].verdict, Verdict::Impossible("x".into()));
    assert_eq!(comparison.score().impossible, 2, "and a value of the file");
}

#[test]
fn a_value_of_several_subjects_is_their_sum() {
    let metric = |of: &str, value| MetricValue { of: of.into(), name: "packets".into(), value };
    let both = [metric("forward", 3.0), metric("return", 2.0)];
    assert_eq!(value(&both, "forward+return", "packets"), Some(5.0));
    assert_eq!(value(&both[..1], "forward+return", "packets"), None, "not half of it");
}

#[test]
fn a_metric_that_the_runs_do_not_have_is_an_error() {
    let text = FILE.replace("time-median-s", "time-mean-s");
    let published = Published::parse("own.toml", &text).unwrap();
    let metrics = run(1.0);
    let runs = CaseRunMetrics(vec![("a", &metrics[..])]);
    let error = compare(&published, &runs).unwrap_err().to_string();
    assert_eq!(error, "case \"a\" has no metric ftp.time-mean-s");
}

#[test]
fn a_time_that_a_run_does_not_have_is_longer_than_any() {
    let metrics = run(1.0);
    let runs = CaseRunMetrics(vec![("a", &metrics), ("a", &[]), ("a", &[])]);
    let values = runs.values("a", "ftp", "time-median-s").unwrap().unwrap();
    assert_eq!(values, [1.0, f64::INFINITY, f64::INFINITY]);
    assert!(runs.values("a", "ftp", "goodput-mbit/s").is_err());
    let runs = CaseRunMetrics(vec![("a", &metrics), ("b", &[])]);
    assert_eq!(runs.values("b", "ftp", "time-median-s").unwrap().unwrap(), [f64::INFINITY]);
    assert!(runs.values("b", "ftp", "time-mean-s").is_err());
}
