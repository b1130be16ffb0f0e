use sim::MetricValue;

use super::*;
use crate::runs::ScenarioRun;

fn question() -> DesignQuestion {
    DesignQuestion {
        rate: BitRate::from_bits_per_second(2_000_000),
        return_rate: BitRate::from_bits_per_second(512_000),
        rtt: Duration::from_millis(600),
        errors: LinkErrors::Ber(1e-6),
        terminals: 1,
        on_demand: None,
        seeds: 2,
    }
}

#[test]
fn every_question_becomes_valid_scenarios() {
    let all = [None, Some(OnDemand::Rbdc), Some(OnDemand::Vbdc), Some(OnDemand::CraVbdc)];
    for on_demand in all {
        for (terminals, errors) in
            [(1, LinkErrors::Ber(1e-6)), (5, LinkErrors::Per(0.01)), (1, LinkErrors::Ber(0.0))]
        {
            let files =
                DesignQuestion { terminals, errors, on_demand, ..question() }.files().unwrap();
            assert_eq!(files.len(), 3);
            for file in files {
                assert_eq!(file.cases.len(), ENHANCEMENTS.len());
                assert_eq!(file.replications.seeds().len(), 2);
            }
        }
    }
}

#[test]
fn a_ber_loses_packets_and_a_per_has_its_ber() {
    assert!((LinkErrors::Ber(1e-5).packets() - 0.113).abs() < 1e-3);
    assert!((LinkErrors::Per(LinkErrors::Ber(1e-7).packets()).bits() / 1e-7 - 1.0).abs() < 1e-6);
    assert_eq!(LinkErrors::Ber(0.0).packets(), 0.0);
}

/// Metrics in which the pair is twice as fast as all others in every task, but for one that does not finish the page.
#[test]
fn the_fastest_is_the_first_and_who_did_not_finish_the_last() {
    let files = question().files().unwrap();
    let metrics: Vec<Vec<(usize, usize, [MetricValue; 2])>> = (0..3)
        .map(|file| {
            let task = DesignTask::ALL[file];
            let of_case = |case: usize| {
                let name = &files[file].cases[case].name;
                let seconds = match (&name[..], task) {
                    ("none", DesignTask::Page) => 0.0,
                    ("skyhop pair", _) => 1.0,
                    _ => 2.0,
                };
                // Nobody needs more units of work than this.
                let done = if seconds > 0.0 { 100.0 } else { 0.0 };
                let time = MetricValue::new(FLOW, task.metric(), seconds);
                (file, case, [MetricValue::new(FLOW, "done", done), time])
            };
            (0..ENHANCEMENTS.len()).map(of_case).collect()
        })
        .collect();
    let runs = metrics.iter().flatten().map(|(file, case, metrics)| ScenarioRun {
        file: *file,
        case: &files[*file].cases[*case],
        seed: 1,
        metrics,
    });
    let answer = DesignAnswer::new(&question(), &runs.collect::<Vec<_>>());
    let findings = answer.findings();
    assert_eq!((findings[0].name, findings[0].slower), ("skyhop pair", 1.0));
    assert!((findings[1].slower - 2.0).abs() < 1e-9);
    let last = findings.last().unwrap();
    assert_eq!((last.name, last.slower, last.results[1]), ("none", f64::INFINITY, None));
    let text = answer.table().to_string();
    assert!(text.lines().nth(2).unwrap().starts_with("skyhop pair"), "{text}");
    let notes = answer.notes().join("\n");
    for part in [
        "150000 bytes",
        "a window scale of 2",
        "does not meet",
        "skyhop pair is the best",
        "the best split is faster",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn a_link_over_which_nothing_arrives_has_no_best() {
    let notes = DesignAnswer::new(&question(), &[]).notes().join("\n");
    assert!(notes.contains("none finished every task"), "{notes}");
    assert!(!notes.contains("is the best in"), "{notes}");
}
