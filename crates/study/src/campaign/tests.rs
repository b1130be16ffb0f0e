use core::result::Result;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use os::testkit::durable_steps;
use proptest::prelude::*;
use scenario::{Scenario, ScenarioCase};
use sim::MetricValue;
use tempfile::TempDir;

use super::*;

const SMALL: &str = r#"
description = "small" # a comment
time = "60 s"
[hop.forward]
rate = "1 Mbit/s"
delay = "250 ms"
queue = "1 BDP"
per = "1 %"
[[flow]]
name = "file"
kind = "bulk"
bytes = "50 kB"
[[factor]]
name = "size"
levels = [{ name = "large", set = { "flow.0.bytes" = "150 kB" } }, { name = "small" }]
"#;

fn cases(text: &str) -> Vec<ScenarioCase> {
    Scenario::parse("test", text).unwrap().cases
}

fn content(text: &str) -> CaseHash {
    CaseHash::of(&cases(text)[0])
}

fn source() -> ScenarioSource {
    let origin = ScenarioOrigin::File { path: "no/such/small.toml".into(), text: SMALL.to_owned() };
    ScenarioSource::from_origin("small", origin).unwrap()
}

fn plan(seeds: u32, store: &ResultStore) -> (CampaignPlan, Vec<StoreError>) {
    let wanted = WantedCells { seeds: Some(seeds), on: BackEndName::Sim };
    CampaignPlan::new(vec![source()], wanted, ProgramId::this().unwrap(), store).unwrap()
}

fn folder() -> (TempDir, ResultStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = ResultStore::at(folder.path().join("store"));
    (folder, store)
}

fn run_into(
    plan: &CampaignPlan,
    back_end: &dyn BackEnd,
    threads: usize,
    store: &ResultStore,
) -> CampaignReport {
    let keep = |record: &CellRecord| store.put(record).map_err(|error| error.to_string());
    run(plan, back_end, threads, Some(store), keep, |_, _| {}).unwrap()
}

/// Names and contents of the files in the store's `cells`.
fn files(store: &ResultStore) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(store.root().join("cells")).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

/// Counts runs; fails or panics for some seeds.
#[derive(Default)]
struct Fake {
    runs: AtomicUsize,
    started: Mutex<Vec<String>>,
    most: Option<usize>,
}

impl BackEnd for Fake {
    fn most_at_once(&self) -> Option<usize> {
        self.most
    }

    fn run(
        &self,
        cell: &Cell,
        _: &ScenarioCase,
        _: &dyn Fn(u64),
    ) -> Result<Vec<MetricValue>, CellFailure> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.started.lock().unwrap().push(format!("{} {}", cell.case, cell.seed));
        match cell.seed {
            13 => panic!("unlucky"),
            14 => Err(CellFailure("no root".to_owned())),
            seed => Ok(vec![
                MetricValue::new("f", "seed", seed as f64),
                MetricValue::new("f", "x", f64::NAN),
            ]),
        }
    }
}

#[test]
fn how_a_file_is_written_does_not_change_its_content() {
    let same = SMALL.replace(" # a comment", "").replace(
        "rate = \"1 Mbit/s\"\ndelay = \"250 ms\"",
        "\n# other order\ndelay = \"250 ms\"\n\nrate = \"1000 kbit/s\"",
    );
    assert_ne!(same, SMALL);
    assert_eq!(content(&same), content(SMALL));
    // A default.
    let plain = SMALL.replacen("[[factor]]", "start = \"0 s\"\n[[factor]]", 1);
    assert_eq!(content(&plain), content(SMALL));
}

/// Each number that can be changed in a shipped scenario changes the content of a case, but for
/// those that cases replace.
#[test]
fn every_number_of_every_shipped_scenario_counts() {
    let mut count = 0;
    for source in ScenarioSource::all_shipped().unwrap() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/");
        let text = fs::read_to_string(format!("{path}{}.toml", source.name)).unwrap();
        let before: Vec<_> = source.cases.iter().map(CaseHash::of).collect();
        for at in numbers(&text) {
            let digit = if text[at..].starts_with('1') { "2" } else { "1" };
            let changed = format!("{}{digit}{}", &text[..at], &text[at + 1..]);
            let Ok(scenario) = Scenario::parse("changed", &changed) else { continue };
            let after: Vec<_> = scenario.cases.iter().map(CaseHash::of).collect();
            let line = text.lines().nth(text[..at].lines().count() - 1).unwrap();
            let key = line.split_once('=').unwrap().0.trim();
            let replaced = text.contains(&format!(".{key}\" ="));
            // How often a case is run does not change it.
            let counts = !replaced && key != "seeds";
            assert!(before != after || !counts, "{}: {line}", source.name);
            count += 1;
        }
    }
    assert!(count > 300, "{count} numbers were changed");
}

/// Where the numbers of values begin.
fn numbers(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let value = line.split_once('=').filter(|_| !line.starts_with('#'));
        let after = value.map_or(line.len(), |(key, _)| key.len());
        let mut before = '=';
        for (at, digit) in line.char_indices().skip(after) {
            if digit.is_ascii_digit() && " \"=[".contains(before) {
                found.push(start + at);
            }
            before = digit;
        }
        start += line.len();
    }
    found
}

#[test]
fn presets_and_traces_count() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let link = "rate-trace = \"r.rate\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n";
    write(
        "site.toml",
        &format!(
            "description = \"x\"\nmtu = 1500\nterminals = 1\n[forward]\n{link}[return]\n{link}"
        ),
    );
    write(
        "s.toml",
        "description = \"x\"\ntime = \"9 s\"\nhop = \"site.toml\"\n[[flow]]\nname = \"f\"\nkind = \"bulk\"\nbytes = \"1 kB\"\n",
    );
    let path = folder.path().join("s.toml");
    let content = || CaseHash::of(&ScenarioSource::named(path.to_str().unwrap()).unwrap().cases[0]);
    write("r.rate", "0s 1 Mbit/s\n5s 2 Mbit/s\n");
    let before = content();
    assert_eq!(before, content());
    write("r.rate", "0s 1 Mbit/s\n5s 3 Mbit/s\n");
    assert_ne!(before, content());
}

#[test]
fn a_name_depends_on_everything() {
    let binary = ProgramId::this().unwrap();
    let other = ProgramId::of(Path::new("/bin/sh")).unwrap();
    let of = |seed, on, scenario: &str, text, binary| {
        let cell = Cell { scenario: scenario.into(), case: "c".into(), seed, on };
        cell.name(&content(text), binary)
    };
    let changed = SMALL.replace("150 kB", "151 kB");
    let names = [
        of(1, BackEndName::Sim, "s", SMALL, &binary),
        of(2, BackEndName::Sim, "s", SMALL, &binary),
        of(1, BackEndName::Lab, "s", SMALL, &binary),
        of(1, BackEndName::Sim, "t", SMALL, &binary),
        of(1, BackEndName::Sim, "s", &changed, &binary),
        of(1, BackEndName::Sim, "s", SMALL, &other),
    ];
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    assert_eq!(names[0], of(1, BackEndName::Sim, "s", SMALL, &binary));
    assert_eq!(names[0].to_string().parse::<CellName>().unwrap(), names[0]);
    for wrong in ["", "../../etc/passwd", "0123456789abcdef0123456G", &"a".repeat(25)] {
        assert!(wrong.parse::<CellName>().is_err(), "{wrong}");
    }
}

#[test]
fn results_are_the_same_with_any_number_of_threads_and_are_kept() {
    let stores = [1, 4].map(|threads| {
        let (folder, store) = folder();
        let report = run_into(&plan(3, &store).0, &Simulator, threads, &store);
        assert_eq!((report.run, report.kept, report.failed.len()), (6, 0, 0));
        (folder, store)
    });
    assert_eq!(files(&stores[0].1), files(&stores[1].1));
    let store = &stores[0].1;
    let (again, damaged) = plan(4, store);
    assert!(damaged.is_empty());
    assert_eq!(again.cells.iter().filter(|planned| planned.done).count(), 6);
    let report = run_into(&again, &Simulator, 2, store);
    assert_eq!((report.run, report.kept), (2, 6));
}

/// A stop rule about a metric of the flow.
fn rule(metric: &str) -> String {
    format!(
        "[replications.until]\nof = \"file\"\nmetric = \"{metric}\"\nwithin = \"10 %\"\nleast = 4\nmost = 40\n"
    )
}

/// Plans and runs until nothing is left. Returns how many cells each round ran.
fn run_to_the_end(
    text: &str,
    store: &ResultStore,
) -> Result<(CampaignPlan, Vec<usize>), PlanError> {
    let mut rounds = Vec::new();
    loop {
        let origin =
            ScenarioOrigin::File { path: "no/such/small.toml".into(), text: text.to_owned() };
        let source = ScenarioSource::from_origin("small", origin).unwrap();
        let wanted = WantedCells { seeds: None, on: BackEndName::Sim };
        let (plan, _) = CampaignPlan::new(vec![source], wanted, ProgramId::this().unwrap(), store)?;
        match plan.todo().count() {
            0 => return Ok((plan, rounds)),
            count => rounds.push(count),
        }
        run_into(&plan, &Simulator, 2, store);
    }
}

#[test]
fn a_scenario_runs_only_where_it_is_meant_to() {
    let (_folder, store) = folder();
    let plan = |on| {
        let text = format!("back-ends = [\"lab\"]\n{SMALL}");
        let origin = ScenarioOrigin::File { path: "no/such/small.toml".into(), text };
        let sources = vec![ScenarioSource::from_origin("small", origin).unwrap()];
        let wanted = WantedCells { seeds: Some(1), on };
        CampaignPlan::new(sources, wanted, ProgramId::this().unwrap(), &store)
            .map(|(plan, _)| plan.cells.len())
    };
    assert!(plan(BackEndName::Lab).is_ok_and(|cells| cells > 0));
    let error = plan(BackEndName::Sim).unwrap_err().to_string();
    assert_eq!(error, "scenario small does not run on sim: its `back-ends` leave it out");
}

#[test]
fn a_stop_rule_is_followed_to_its_end_and_as_skyhop_sim_does() {
    let text = format!("{SMALL}{}", rule("time-median-s"));
    let (_folder, store) = folder();
    let (plan, rounds) = run_to_the_end(&text, &store).unwrap();
    assert!(rounds.len() > 2 && rounds[0] == 2 * 4, "{rounds:?}");
    let scenario = Scenario::parse("small", &text).unwrap();
    let Scenario { cases, replications, .. } = scenario;
    let files = [crate::runs::ScenarioFile {
        path: "small".into(),
        cases,
        replications,
        results: Vec::new(),
    }];
    let progress = crate::runs::RoundProgress { planned: &|_| (), step: &|_| () };
    let extras = crate::runs::Extras::default();
    let runs = crate::runs::replicate_as_declared(&files, 2, extras, &progress).unwrap().runs;
    let theirs: Vec<_> = runs.iter().map(|(job, _)| (&job.case.name, job.seed)).collect();
    let ours: Vec<_> = plan.cells.iter().map(|it| (&it.cell.case, it.cell.seed)).collect();
    assert_eq!(ours, theirs);
    assert!(plan.cells.iter().all(|planned| planned.done));
}

#[test]
fn a_stop_rule_about_a_metric_that_no_run_has_is_an_error() {
    let (_folder, store) = folder();
    let error = run_to_the_end(&format!("{SMALL}{}", rule("utilisation")), &store).unwrap_err();
    let wanted = "scenario small, case \"large\": its stop rule is about file.utilisation";
    assert!(error.to_string().starts_with(wanted), "{error}");
}

#[test]
fn a_failure_is_named_and_the_others_go_on() {
    let (_folder, store) = folder();
    let (plan, _) = plan(15, &store);
    let report = run_into(&plan, &Fake::default(), 3, &store);
    assert_eq!(report.run, 26);
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|failed| {
            format!("{} {}: {}", failed.planned.cell.case, failed.planned.cell.seed, failed.why)
        })
        .collect();
    let wanted = ["large 13: it panicked: unlucky", "large 14: no root"];
    assert_eq!(failed[..2], wanted);
    assert_eq!(failed.len(), 4);
    assert_eq!(files(&store).len(), 26);
}

#[test]
fn the_longest_cells_start_first_and_at_most_as_many_as_the_back_end_allows() {
    let (_folder, store) = folder();
    let fake = Fake { most: Some(1), ..Fake::default() };
    run_into(&plan(2, &store).0, &fake, 8, &store);
    let started = fake.started.into_inner().unwrap();
    assert_eq!(started, ["large 1", "large 2", "small 1", "small 2"]);
}

#[test]
fn a_cell_that_another_process_finished_is_not_run() {
    let (_folder, store) = folder();
    let (plan, _) = plan(2, &store);
    let fake = Fake::default();
    run_into(&plan, &fake, 2, &store);
    let report = run_into(&plan, &fake, 2, &store);
    assert_eq!((report.run, report.kept, fake.runs.into_inner()), (0, 4, 4));
}

#[test]
fn a_damaged_file_is_named_and_run_again() {
    let (_folder, store) = folder();
    run_into(&plan(1, &store).0, &Fake::default(), 1, &store);
    let (name, whole) = files(&store).pop_first().unwrap();
    let path = store.root().join("cells").join(&name);
    let text = String::from_utf8(whole.clone()).unwrap();
    let damages = [
        text[..text.len() / 2].to_owned(),
        String::new(),
        text.replace("\"seed\": 1", "\"seed\": 2"),
        text.replace("NaN", "many"),
        "[".repeat(100_000),
    ];
    for damage in damages {
        fs::write(&path, &damage).unwrap();
        let (plan, damaged) = plan(1, &store);
        assert_eq!(plan.cells.iter().filter(|planned| !planned.done).count(), 1);
        let [error] = &damaged[..] else { panic!("{damaged:?}") };
        assert!(error.to_string().contains(&name), "{error}");
        let report = run_into(&plan, &Fake::default(), 1, &store);
        assert_eq!((report.run, report.kept), (1, 1));
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    // Files of others are left alone.
    fs::write(store.root().join("cells/README"), "mine").unwrap();
    assert!(plan(1, &store).1.is_empty());
}

#[test]
fn a_result_and_its_name_are_on_the_disk_behind_its_timing() {
    let (folder, store) = folder();
    run_into(&plan(1, &store).0, &Fake::default(), 1, &store);
    let (result, timing) = (store.results().unwrap().0.remove(0), store.timings().remove(0));
    let record = CellRecord { result, timing };
    let put = || {
        let steps = durable_steps(folder.path(), || store.put(&record).unwrap())?;
        // An unfinished file has a random end of its name.
        let unfinished = format!("{}.", record.result.cell);
        let named = |step: &String| step.split(&unfinished).next().unwrap().to_owned();
        Some(steps.iter().map(named).collect::<Vec<_>>())
    };
    let Some(steps) = put() else { return };
    let unfinished = "sync store/unfinished/";
    let timing = [unfinished, "rename", "sync store/timings"];
    let result = [unfinished, "rename", "sync store/cells"];
    assert_eq!(steps, [timing, result].concat());

    // In a new store, also its directories.
    fs::remove_dir_all(store.root()).unwrap();
    let first = &["sync .", "sync store", "sync store"][..];
    let second = &["sync store"];
    assert_eq!(put().unwrap(), [first, &timing, second, &result].concat());
}

#[test]
fn two_runners_on_one_store_do_no_harm() {
    let (_folder, store) = folder();
    let (plan, _) = plan(20, &store);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let report = run_into(&plan, &Simulator, 2, &store);
                assert_eq!(report.run + report.kept, 40);
            });
        }
    });
    assert_eq!(files(&store).len(), 40);
    assert_eq!(fs::read_dir(store.root().join("unfinished")).unwrap().count(), 0);
}

#[test]
fn what_an_ended_process_left_is_removed_after_an_hour() {
    let (_folder, store) = folder();
    run_into(&plan(1, &store).0, &Fake::default(), 1, &store);
    let [old, new] = ["old", "new"].map(|name| store.root().join("unfinished").join(name));
    for path in [&old, &new] {
        fs::write(path, "half").unwrap();
    }
    let hours = SystemTime::now() - Duration::from_secs(7200);
    fs::File::options().write(true).open(&old).unwrap().set_modified(hours).unwrap();
    store.tidy();
    assert!(!old.exists() && new.exists());
}

/// The process is ended in the middle of a campaign; the next one goes on.
#[test]
fn a_killed_campaign_goes_on() {
    const VARIABLE: &str = "SKYHOP_TEST_KILLED_STORE";
    if let Ok(root) = std::env::var(VARIABLE) {
        let store = ResultStore::at(root);
        run_into(&plan(2000, &store).0, &Simulator, 2, &store);
        return;
    }
    let (_folder, store) = folder();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "campaign::tests::a_killed_campaign_goes_on"]);
    let mut child = command.env(VARIABLE, store.root()).spawn().unwrap();
    while store.results().unwrap().0.len() < 5 {
        std::thread::yield_now();
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (results, damaged) = store.results().unwrap();
    assert!(damaged.is_empty() && results.len() < 4000, "{damaged:?}");
    let (plan, _) = plan(10, &store);
    let report = run_into(&plan, &Simulator, 2, &store);
    assert!(report.kept >= 5 && report.run + report.kept == 20, "{report:?}");
}

#[test]
fn a_record_crosses_as_text_and_foreign_ones_are_refused() {
    let (_folder, store) = folder();
    let (_other, copy) = folder();
    let (plan, _) = plan(1, &store);
    let lines = Mutex::new(Vec::new());
    let keep = |record: &CellRecord| {
        lines.lock().unwrap().push(serde_json::to_string(record).unwrap());
        store.put(record).map_err(|error| error.to_string())
    };
    run(&plan, &Simulator, 1, None, keep, |_, _| {}).unwrap();
    for line in lines.into_inner().unwrap() {
        let mut record: CellRecord = serde_json::from_str(&line).unwrap();
        copy.put(&record).unwrap();
        record.result.seed += 1;
        assert!(matches!(copy.put(&record), Err(StoreError::Foreign { .. })));
    }
    assert_eq!(files(&store), files(&copy));
}

#[test]
fn a_plan_s_file_gives_its_cells_back() {
    let (folder, store) = folder();
    let (plan, _) = plan(2, &store);
    let path = folder.path().join("plan.json");
    fs::write(&path, plan.json()).unwrap();
    let wanted = [plan.cells[3].name.clone(), plan.cells[0].name.clone()];
    let binary = ProgramId::this().unwrap();
    let part = CampaignPlan::load(&path, &wanted, binary.clone()).unwrap();
    let cells = part.cells.iter().map(|planned| &planned.cell).collect::<Vec<_>>();
    assert_eq!(cells, [&plan.cells[3].cell, &plan.cells[0].cell]);
    assert_eq!(part.case(&part.cells[1]).name, "large");
    let load = |wanted: &[CellName], binary| {
        CampaignPlan::load(&path, wanted, binary).unwrap_err().to_string()
    };
    let none = "0123456789abcdef01234567".parse::<CellName>().unwrap();
    assert!(load(&[none], binary.clone()).contains("has no cell 0123"));
    let other = ProgramId::of(Path::new("/bin/sh")).unwrap();
    assert!(load(&wanted, other).contains("is another one here"));
    // Another content under the old name.
    fs::write(&path, plan.json().replace("150 kB", "151 kB")).unwrap();
    assert!(load(&wanted, binary.clone()).contains("is another one here"));
    fs::write(&path, "{}").unwrap();
    assert!(load(&wanted, binary).contains("not a plan"));
}

#[test]
fn a_report_never_mixes_programs() {
    let (_folder, store) = folder();
    let (this, other) = (ProgramId::this().unwrap(), ProgramId::of(Path::new("/bin/sh")).unwrap());
    let with = |binary: &ProgramId, seeds| {
        let wanted = WantedCells { seeds: Some(seeds), on: BackEndName::Sim };
        let plan = CampaignPlan::new(vec![source()], wanted, binary.clone(), &store).unwrap().0;
        run_into(&plan, &Fake::default(), 1, &store);
    };
    let selected = || select(&[source()], BackEndName::Sim, this.clone(), &store).unwrap();
    assert_eq!(selected().missing.len(), 2);
    with(&other, 3);
    assert_eq!((selected().runs.len(), selected().binary), (6, other.clone()));
    with(&this, 1);
    assert_eq!((selected().runs.len(), selected().binary), (2, this.clone()));
    assert!(selected().missing.is_empty());
}

/// A record as a process hands it over.
fn record() -> CellRecord {
    let (_folder, store) = folder();
    let records = Mutex::new(Vec::new());
    let keep = |record: &CellRecord| {
        records.lock().unwrap().push(record.clone());
        Ok(())
    };
    run(&plan(1, &store).0, &Fake::default(), 1, None, keep, |_, _| {}).unwrap();
    records.into_inner().unwrap().remove(0)
}

proptest! {
    /// A figure that is kept is the one that came out, bit for bit.
    #[test]
    fn figures_are_kept_exactly(bits in any::<u64>()) {
        let mut record = record();
        let value = f64::from_bits(bits);
        record.result.metrics[0].value = value;
        let text = serde_json::to_string(&record).unwrap();
        let back: CellRecord = serde_json::from_str(&text).unwrap();
        let back = back.result.metrics[0].value;
        prop_assert!(back.to_bits() == bits || (back.is_nan() && value.is_nan()));
    }

    /// Foreign bytes are refused, and never panic.
    #[test]
    fn foreign_bytes_are_no_record(text in ".{0,200}") {
        prop_assert!(serde_json::from_str::<CellRecord>(&text).is_err());
    }
}
