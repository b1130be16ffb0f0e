use scenario::{Published, Scenario};

use super::*;

const SCENARIO: &str = include_str!("../../../../scenarios/wadekar-tables1-3.toml");

fn file() -> ScenarioFile {
    let cases = Scenario::parse("iw", SCENARIO).unwrap().cases;
    let (path, replications) = ("a,b/iw.toml".into(), Replications::default());
    ScenarioFile { path, cases, replications, results: Vec::new() }
}

fn metric(value: f64) -> MetricValue {
    MetricValue::new("ftp", "goodput-mbit/s", value)
}

#[test]
fn several_runs_show_the_median_and_the_range() {
    let files = [file()];
    let case = &files[0].cases[0];
    let figures = [[metric(1.0)], [metric(2.5)], [metric(9.123_45)]];
    let run = |(seed, metrics)| ScenarioRun { file: 0, case, seed, metrics };
    let runs: Vec<ScenarioRun<'_>> =
        (1..).zip(&figures).map(|(seed, it)| run((seed, &it[..]))).collect();
    let shown = text(&files, &runs);
    let line = shown.lines().nth(1).unwrap();
    assert_eq!(line, "  ftp             goodput-mbit/s                     2.500   1 … 9.123");
    let one = text(&files, &runs[..1]);
    assert!(
        one.lines().nth(1).unwrap().ends_with("goodput-mbit/s                         1"),
        "{one}"
    );
    let lines = csv(&files, &runs);
    assert!(lines.starts_with("file,case,seed,of,metric,value\n\"a,b/iw.toml\","), "{lines}");
    assert!(lines.ends_with(",3,ftp,goodput-mbit/s,9.12345\n"), "{lines}");
}

#[test]
fn a_metric_that_not_all_runs_have_is_shown_with_their_number() {
    let mut files = [file()];
    let time = |value| MetricValue::new("ftp", "time-median-s", value);
    let figures = [vec![metric(1.0)], vec![metric(2.0), time(4.0)], vec![metric(3.0), time(6.0)]];
    let show = |files: &[ScenarioFile]| {
        let run =
            |(seed, metrics)| ScenarioRun { file: 0, case: &files[0].cases[0], seed, metrics };
        let runs: Vec<_> = (1..).zip(&figures).map(|(seed, it)| run((seed, &it[..]))).collect();
        (text(files, &runs), json(files, &runs))
    };
    let (shown, all) = show(&files);
    let line = |n| shown.lines().nth(n).unwrap();
    assert!(line(1).ends_with("2   1 … 3"), "{shown}");
    assert!(
        line(2).contains("time-median-s") && line(2).ends_with("5   4 … 6 (2 of 3 runs)"),
        "{shown}"
    );
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all[0]["figures"][1]["values"], json!([null, 4.0, 6.0]));
    // The file may ask for some only.
    let (of, metric) = ("ftp".to_owned(), "time-median-s".to_owned());
    files[0].results = vec![MetricName { of, metric }];
    assert!(!show(&files).0.contains("goodput"));
}

#[test]
fn ours_stands_beside_the_published_value_with_its_ratio() {
    let files = [file()];
    let case = &files[0].cases[0];
    let metrics = [metric(1.5)];
    let runs = [ScenarioRun { file: 0, case, seed: 1, metrics: &metrics }];
    let about = |metric: &str, unit: &str| {
        let name = &case.name;
        let text = format!(
            "document = \"A paper\"\ntitle = \"x\"\n[[output]]\nwhere = \"Fig. 1\"\nof = \"ftp\"\n\
             metric = \"{metric}\"\nunit = \"{unit}\"\ntolerance = 0.1\ntolerance-because = \"x\"\n\
             points = [{{ case = {name:?}, value = 2000, line = 1 }}]\n"
        );
        [Published::parse("p", &text).unwrap()]
    };
    let text = beside_published(&files, &about("goodput-mbit/s", "kbit/s"), &runs).unwrap();
    let line = text.lines().find(|line| line.contains("Fig. 1")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let expected = ["2", "1.500", "-", "0.75", "±10", "%", "differs"];
    assert_eq!(words[words.len() - 7..], expected, "{text}");
    assert!(text.contains("  0 of 1 reproduced: "), "{text}");
    assert!(text.starts_with("a,b/iw.toml\n  A paper\n  where "), "{text}");
    let error = beside_published(&files, &about("colour", "1"), &runs).unwrap_err().to_string();
    assert!(error.ends_with("has no metric ftp.colour"), "{error}");
}

#[test]
fn names_of_graphs_are_names_of_files() {
    let mut case = file().cases.remove(0);
    case.name = "SLACP, 1/2".to_owned();
    assert_eq!(file_name("x/iw.toml".as_ref(), &case, "a/window"), "iw-SLACP--1-2-a-window.svg");
    case.name = String::new();
    assert_eq!(file_name("iw.toml".as_ref(), &case, "queue"), "iw-queue.svg");
}

const NOISY: &str = "description = \"noise\"\ntime = \"20 s\"\n[hop.forward]\nrate = \"1 Mbit/s\"\n\
    delay = \"10 ms\"\nqueue = \"20 packets\"\nper = \"2 %\"\n[[flow]]\nname = \"ftp\"\nkind = \"bulk\"\n\
    bytes = \"100 kB\"\n[[case]]\nname = \"calm\"\nset = { \"hop.forward.per\" = \"0 %\" }\n[[case]]\nname = \"noisy\"\n";

fn noisy(replications: &str) -> ScenarioFile {
    let text = format!("{NOISY}[replications]\n{replications}");
    let scenario = Scenario::parse("noisy.toml", &text).unwrap();
    let Scenario { cases, replications, results, .. } = scenario;
    ScenarioFile { path: "noisy.toml".into(), cases, replications, results }
}

fn seeds(files: &[ScenarioFile], threads: usize) -> (Vec<(String, u64)>, Vec<String>, usize) {
    let planned = core::cell::Cell::new(0);
    let add = |runs: usize| planned.set(planned.get() + runs);
    let progress = RoundProgress { planned: &add, step: &|_| {} };
    let done = replicate_as_declared(files, threads, Extras::default(), &progress).unwrap();
    let runs = done.runs.iter().map(|(job, _)| (job.case.name.clone(), job.seed)).collect();
    (runs, done.notes, planned.get())
}

#[test]
fn each_case_is_run_with_the_seeds_of_its_file() {
    let (runs, notes, planned) = seeds(&[noisy("seeds = [7, 3]\n")], 2);
    let expected = [("calm", 7), ("calm", 3), ("noisy", 7), ("noisy", 3)];
    assert_eq!(runs, expected.map(|(case, seed)| (case.to_owned(), seed)));
    assert_eq!((notes.len(), planned), (0, 4));
}

#[test]
fn a_case_is_run_until_its_metric_is_known_on_any_number_of_threads() {
    let rule = "first = 5\nuntil = { of = \"ftp\", metric = \"goodput-mbit/s\", within = \"2 %\", \
                least = 3, most = 60 }\n";
    let files = [noisy(rule)];
    let (runs, notes, planned) = seeds(&files, 1);
    assert_eq!(seeds(&files, 3).0, runs);
    let of =
        |name: &str| runs.iter().filter(|run| run.0 == name).map(|run| run.1).collect::<Vec<_>>();
    // Without losses all runs are alike.
    assert_eq!(of("calm"), [5, 6, 7]);
    let count = of("noisy").len();
    assert!((4..60).contains(&count) && planned >= count + 3, "{count} of {planned}");
    assert!(of("noisy").into_iter().eq((5..).take(count)));
    assert_eq!(notes[0], "noisy.toml: calm: 3 seeds, ±0.0 %");
    assert!(notes[1].starts_with(&format!("noisy.toml: noisy: {count} seeds, ±")), "{}", notes[1]);
    let none = [noisy(&rule.replace("goodput-mbit/s", "delay-mean-s"))];
    let progress = RoundProgress { planned: &|_| {}, step: &|_| {} };
    let error = replicate_as_declared(&none, 1, Extras::default(), &progress).unwrap_err();
    assert!(error.to_string().ends_with("has no metric ftp.delay-mean-s"), "{error}");
}
