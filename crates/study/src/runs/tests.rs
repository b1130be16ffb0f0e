use scenario::{Published, Scenario};

use super::*;

const SCENARIO: &str = include_str!("../../../../scenarios/wadekar-iw.toml");

fn file() -> File {
    let cases = Scenario::parse("iw", SCENARIO).unwrap().cases;
    File { path: "a,b/iw.toml".into(), cases }
}

fn metric(value: f64) -> Metric {
    Metric::new("ftp", "goodput-mbit/s", value)
}

#[test]
fn several_runs_show_the_median_and_the_range() {
    let files = [file()];
    let case = &files[0].cases[0];
    let figures = [[metric(1.0)], [metric(2.5)], [metric(9.123_45)]];
    let run = |(seed, metrics)| Run { file: 0, case, seed, metrics };
    let runs: Vec<Run<'_>> = (1..).zip(&figures).map(|(seed, it)| run((seed, &it[..]))).collect();
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
fn ours_stands_beside_the_published_value_with_its_ratio() {
    let files = [file()];
    let case = &files[0].cases[0];
    let metrics = [metric(1.5)];
    let runs = [Run { file: 0, case, seed: 1, metrics: &metrics }];
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
