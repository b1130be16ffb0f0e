use std::time::Duration;

use units::{BitRate, Probability};

use super::*;
use crate::experiment::figures::LinkLimit;
use crate::experiment::machine::Machine;
use crate::experiment::on_demand::OnDemandUpload;
use crate::experiment::results::RunConditions;
use crate::plan::DemoPlan;

fn limit() -> LinkLimit {
    let (rate, per) = (BitRate::from_mbit(50), Probability::new(0.01).unwrap());
    LinkLimit { rate, per, rtt: Duration::from_millis(600) }
}

fn record(task: Task, way: &TrafficPath, done: u64, seconds: f64) -> MeasurementRecord {
    let figures = Some(TaskFigures::new(task, done, seconds, &limit()));
    let entry = MeasurementEntry { round: 0, task, way: way.clone(), figures, failure: None };
    let trail = vec![(0.0, 0), (seconds, done)];
    let response_seconds = vec![0.9, 0.6];
    MeasurementRecord {
        entry,
        seed: 1,
        trail,
        response_seconds,
        lateness_seconds: Some(0.0002),
        report: None,
    }
}

fn results(simulated: Option<&str>) -> Results {
    let ways = TrafficPath::all(None);
    let [cubic, bbr, pair] = [&ways[0], &ways[1], &ways[2]];
    let records = vec![
        record(Task::Download, pair, 20_000_000, 4.0),
        record(Task::Download, bbr, 20_000_000, 14.0),
        record(Task::Download, cubic, 1_500_000, 12.0),
        record(Task::Requests, pair, 100, 3.1),
    ];
    Results {
        plan: DemoPlan::new(1, &[Task::Download, Task::Requests], ways.clone()),
        ways,
        unavailable: Vec::new(),
        limits: [limit(), limit()],
        records,
        on_demand: Vec::new(),
        setting: RunConditions {
            link: "Satellite <link>".to_owned(),
            simulated: simulated.map(str::to_owned),
            seed: 1,
            rounds: 1,
            machine: Machine::this(),
            version: "1",
            command: "skyhop demo".to_owned(),
        },
    }
}

#[test]
fn the_page_says_what_happened() {
    let page = html(&results(None));
    for part in [
        "Download of 20 MB: 4.0 s with skyhop, 14.0 s with plain BBR, \
         plain CUBIC not finished (1.50 MB in 12.0 s).",
        "plain BBR failed",
        "Satellite &lt;link&gt;",
        "99 % of packets at most 0.20 ms late",
        "<code>skyhop demo</code>",
    ] {
        assert!(page.contains(part), "{part} not in {page}");
    }
    assert!(!page.contains("Simulated"));
}

#[test]
fn the_page_needs_nothing_else() {
    let page = html(&results(None));
    for part in ["http:", "https:", "src=", "href=", "@import", "url(", "<script"] {
        assert!(!page.contains(part), "{part} in {page}");
    }
    for element in ["svg", "figure", "table", "section", "dl", "ul", "main", "style"] {
        let count = |text: &str| page.matches(text).count();
        let opened = count(&format!("<{element}>")) + count(&format!("<{element} "));
        assert_eq!(opened, count(&format!("</{element}>")), "{element}");
    }
}

#[test]
fn simulated_results_say_so() {
    let page = html(&results(Some("no user namespaces here")));
    assert!(
        page.contains("<strong>Simulated.</strong>") && page.contains("no user namespaces here")
    );
}

#[test]
fn a_picture_of_its_own_has_its_style() {
    let picture = results(None).picture();
    assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" "));
    assert!(picture.contains("prefers-color-scheme: dark") && picture.ends_with("</svg>\n"));
}

#[test]
fn stairs_end_at_the_share_that_was_answered() {
    assert_eq!(
        steps(&[0.9, 0.6]),
        [(0.0, 0.0), (600.0, 0.0), (600.0, 1.0), (900.0, 1.0), (900.0, 2.0)]
    );
}

#[test]
fn uploads_with_capacity_on_demand_have_a_section() {
    let (ways, allocation) = (TrafficPath::all(None), bars("granted", &[]));
    let crossing = |way: &TrafficPath, seconds: Option<f64>| {
        let failure = seconds.is_none().then(|| "broke".to_owned());
        OnDemandUpload { way: way.clone(), seconds, failure, allocation: allocation.clone() }
    };
    let mut results = results(None);
    assert!(!html(&results).contains("Capacity on demand"), "none ran");
    results.on_demand = vec![crossing(&ways[2], Some(8.0)), crossing(&ways[0], None)];
    let page = html(&results);
    let short =
        "with capacity on demand (vsat-dama-vbdc): 8.0 s with skyhop, plain CUBIC failed (broke).";
    for part in [short, "Granted slots: 8.0 s with skyhop", "Granted slots: plain CUBIC failed"] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(results.text().contains(short));
    assert!(results.any_failed());
}
