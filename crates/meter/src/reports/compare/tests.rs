use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A complete download of 1 MB that took `seconds`.
fn run(seconds: f64) -> Value {
    let flow = json!({
        "flow": 0, "direction": "download", "client": null, "outcome": {"state": "complete"},
        "asked_bytes": 1_000_000, "moved_bytes": 1_000_000, "start_seconds": 0.0,
        "connect_seconds": 0.1, "first_byte_seconds": 0.2, "total_seconds": seconds,
        "receive_seconds": 0.3, "goodput_bits_per_second": null, "sender": null,
    });
    json!({
        "meter": "bulk", "server": "192.0.2.1:5259", "directions": "download",
        "amount": {"bytes": 1_000_000}, "congestion_control": null, "flows": [flow], "sums": [],
        "moved_bytes": 1_000_000, "total_seconds": seconds,
        "goodput_bits_per_second": (8e6 / seconds) as u64, "jain_index": 1.0,
    })
}

fn text(runs: &[Value]) -> String {
    runs.iter().map(|run| run.to_string() + "\n").collect()
}

fn runs(file: &str, seconds: &[f64]) -> RunFile {
    let all: Vec<Value> = seconds.iter().map(|&seconds| run(seconds)).collect();
    RunFile::read(file, &text(&all)).expect("reports")
}

fn metric(comparison: &RunComparison, metric: RunMetric) -> &[MetricFigures] {
    &comparison.metrics.iter().find(|found| found.metric == metric).expect("has it").files
}

#[test]
fn twice_as_fast_is_a_gain_of_two() {
    let files = [runs("a", &[4.0, 5.0, 6.0]), runs("b", &[2.0, 2.5, 3.0])];
    let comparison = compare(&files, 1).unwrap();
    assert_eq!(comparison.workload, "1 downloads of 1 MB each");
    let times = metric(&comparison, RunMetric::CompletionSeconds);
    assert_eq!((times[0].summary.mean, times[0].summary.median, times[0].gain), (5.0, 5.0, None));
    let gain = times[1].gain.unwrap();
    assert!((gain.ratio - 2.0).abs() < 1e-12, "{gain:?}");
    let interval = gain.bootstrap.unwrap().ci95;
    assert!(interval.low < 2.0 && interval.high > 2.0 && interval.low > 1.3, "{interval:?}");
    let goodput = metric(&comparison, RunMetric::GoodputBitsPerSecond)[1].gain.unwrap();
    assert!(goodput.ratio > 1.9 && goodput.ratio < 2.1, "{goodput:?}");
    // 4, 5, 6: deviation 1, t(0.975, 2) = 4.302653.
    let t = times[0].student_t.unwrap().ci95;
    assert!((t.high - 5.0 - 4.302_653 / 3f64.sqrt()).abs() < 1e-5, "{t:?}");
}

#[test]
fn one_run_has_no_intervals() {
    let comparison = compare(&[runs("a", &[4.0])], 1).unwrap();
    let times = metric(&comparison, RunMetric::CompletionSeconds);
    assert_eq!((times[0].summary.count, times[0].student_t, times[0].bootstrap), (1, None, None));
}

#[test]
fn incomplete_runs_are_left_out_and_reported() {
    let mut bad = run(100.0);
    bad["flows"][0]["outcome"]["state"] = "unfinished".into();
    let mixed = RunFile::read("a", &text(&[run(1.0), bad.clone(), run(3.0)])).unwrap();
    let comparison = compare(&[mixed], 1).unwrap();
    let times = metric(&comparison, RunMetric::CompletionSeconds);
    assert_eq!((times[0].summary.mean, times[0].incomplete), (2.0, 1));
    let none = RunFile::read("a", &text(&[bad])).unwrap();
    let error = compare(&[none], 1).unwrap_err();
    assert_eq!(error.to_string(), "none of the 1 runs of a is complete");
}

#[test]
fn foreign_files_are_named() {
    for foreign in ["hello", "{\"a\": 1}", "[1, 2]", "{\"meter\": \"x\"}", "{\"meter\": \"bulk\"}"]
    {
        let error = RunFile::read("x.json", foreign).unwrap_err().to_string();
        assert!(error.starts_with("x.json is not the output of `skyhop meter"), "{error}");
    }
    let error = RunFile::read("x.json", " \n").unwrap_err().to_string();
    assert_eq!(error, "x.json holds no report");
}

#[test]
fn other_traffic_is_not_compared() {
    let mut other = run(1.0);
    other["amount"]["bytes"] = 2_000_000.into();
    let error = RunFile::read("a", &text(&[run(1.0), other.clone()])).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot compare: a has 1 downloads of 1 MB each, a has 1 downloads of 2 MB each"
    );
    let files = [runs("a", &[1.0]), RunFile::read("b", &text(&[other])).unwrap()];
    assert!(matches!(compare(&files, 1), Err(CompareError::Mixed { .. })));
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic(noise: String, seconds in any::<f64>(), at: prop::sample::Index) {
        let _ = RunFile::read("x", &noise);
        let mut cut = text(&[run(1.0)]);
        cut.truncate(at.index(cut.len()));
        let _ = RunFile::read("x", &cut);
        let mut odd = run(1.0);
        odd["total_seconds"] = json!(seconds);
        if let Ok(runs) = RunFile::read("x", &text(&[odd.clone(), odd])) {
            let _ = compare(&[runs.clone(), runs], 1);
        }
    }
}
