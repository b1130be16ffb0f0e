use scenario::PresetOverrides;
use units::Probability;

use super::*;

fn record(task: Task, way: &TrafficPath, per: f64) -> MeasurementRecord {
    let per = Probability::new(per).unwrap();
    let overrides = PresetOverrides { per: Some(per), ..PresetOverrides::default() };
    let preset = &Preset::load("geo").unwrap().with(&overrides).unwrap();
    let limit = crate::experiment::measure::limits(preset, per)[usize::from(task == Task::Upload)];
    Simulation { round: 0, task, way, preset, seed: 1, limit }.run().unwrap()
}

/// Everything arrives, the pair comes close to the limit, and plain TCP never beats it.
#[test]
fn every_task_on_every_way() {
    for task in Task::ALL {
        for way in TrafficPath::all(None) {
            let record = record(task, &way, 0.0);
            let figures = record.entry.figures.unwrap();
            assert!(figures.complete, "{task} {way}: {figures:?}");
            let share = if way == TrafficPath::Pair { 0.85..=1.0 } else { 0.1..=0.9 };
            assert!(share.contains(&figures.share), "{task} {way}: {figures:?}");
            assert_eq!(record.trail.last().map(|(_, done)| *done), Some(task.total()));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    for way in TrafficPath::all(None) {
        let run = || serde_json::to_string(&record(Task::Requests, &way, 0.02)).unwrap();
        assert_eq!(run(), run(), "{way}");
    }
}

#[test]
fn what_does_not_end_in_time_is_not_finished() {
    let cubic = &TrafficPath::all(None)[0];
    let figures = record(Task::Download, cubic, 0.01).entry.figures.unwrap();
    assert!(!figures.complete && figures.seconds == 60.0, "{figures:?}");
    assert!(figures.done > 1_000_000 && figures.done < 20_000_000, "{figures:?}");
}

#[test]
fn requests_are_made_as_the_meter_makes_them() {
    let record = record(Task::Requests, &TrafficPath::Pair, 0.0);
    // One round trip each, five in a row.
    assert_eq!(record.response_seconds.len(), 100);
    assert!(record.response_seconds.iter().all(|time| (0.6..0.75).contains(time)));
    let seconds = record.entry.figures.unwrap().seconds;
    assert!((3.0..3.5).contains(&seconds), "{seconds}");
}
