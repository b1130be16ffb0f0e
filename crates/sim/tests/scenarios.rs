//! Tests the scenario files of the repository.

#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

use scenario::{Output, Point, Published, Scenario, ScenarioCase};
use sim::{MetricValue, SimulationRun, median_of_runs};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(name: &str) -> Scenario {
    Scenario::load(&folder().join(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn published(name: &str) -> Published {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    Published::parse(name, &text).unwrap()
}

fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap();
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    names
}

#[test]
fn every_file_is_read_and_every_published_value_has_its_case() {
    let mut count = 0;
    for name in names() {
        let Some(stem) = name.strip_suffix(".published.toml") else {
            read(&name);
            continue;
        };
        count += 1;
        let published = published(&name);
        let scenario = format!("{stem}.toml");
        if !folder().join(&scenario).exists() {
            assert_eq!(published.cases().count(), 0, "{name}: cases without a scenario");
            continue;
        }
        let scenario = read(&scenario);
        let known = |case: &str| scenario.cases.iter().any(|known| known.name == case);
        for case in published.cases() {
            assert!(known(&case), "{name}: no case {case:?}");
        }
    }
    assert!(count >= 8, "{count} files with published values");
}

fn run(case: &ScenarioCase) -> Vec<MetricValue> {
    let mut run = SimulationRun::new(case, 1);
    run.finish();
    run.metrics()
}

/// Ratios of our values to the published ones in the file.
fn ratios(stem: &str, metric: &str) -> Vec<f64> {
    let scenario = read(&format!("{stem}.toml"));
    let published = published(&format!("{stem}.published.toml"));
    let outputs = published.output.iter().filter(|output| output.metric == metric);
    let ratio = |output: &Output, point: &Point| {
        let case = scenario.cases.iter().find(|case| case.name == point.case).unwrap();
        let ours = median_of_runs(&[&run(case)], &output.of, metric).unwrap();
        ours / output.in_metric_unit(point.value)
    };
    let points = outputs.flat_map(|output| output.points.iter().map(move |point| (output, point)));
    points.map(|(output, point)| ratio(output, point)).collect()
}

/// ITU-R S.1711-1 2.1.3: window over RTT.
#[test]
fn a_small_window_limits_as_published() {
    for ratio in ratios("itu-single", "goodput-mbit/s") {
        assert!((0.9..1.05).contains(&ratio), "{ratio}");
    }
}

/// ITU-R S.1711-1 4.3.1: the queue of their simulation, Fig. 30.
#[test]
fn slow_start_fills_the_router_as_published() {
    let ratios = ratios("itu-buffer", "peak-queue-packets");
    assert!(ratios.iter().any(|ratio| (0.98..1.02).contains(ratio)), "{ratios:?}");
}

/// Downloads over separate terrestrial links share the hop, which is the bottleneck.
#[test]
fn a_dumbbell_shares_its_bottleneck() {
    let metrics = run(&read("dumbbell.toml").cases[0]);
    let [goodput, fairness] = ["goodput-mbit/s", "fairness"]
        .map(|metric| median_of_runs(&[&metrics], "ftp", metric).unwrap());
    assert!((15.0..20.0).contains(&goodput), "{goodput}");
    assert!(fairness > 0.9, "{fairness}");
}

/// The metrics of a fast run must not change unnoticed.
#[test]
fn equal_runs_have_equal_figures() {
    let scenario = read("opnet-figs4-7.toml");
    let case = &scenario.cases[3];
    assert_eq!(run(case), run(case));
}

/// Files name metrics, which all back ends share.
#[test]
fn every_metric_is_one_that_files_can_name() {
    for name in ["slacp-fig5.toml", "voice-dama.toml", "itu-star.toml", "dumbbell.toml"] {
        let scenario = read(name);
        let mut run = SimulationRun::new(scenario.cases.last().unwrap(), 1);
        (0..5).for_each(|_| _ = run.advance());
        for MetricValue { of, name: metric, .. } in run.metrics() {
            let known = scenario::METRICS.iter().any(|(known, _)| *known == metric);
            assert!(known, "{name}: {of}.{metric} is missing from scenario::METRICS");
        }
    }
}
