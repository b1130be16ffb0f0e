//! Which shipped cases the lab can run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use scenario::Scenario;

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// The shipped scenarios by name.
fn shipped() -> Vec<(String, Scenario)> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml") && !name.ends_with(".published.toml"))
        .collect();
    names.sort();
    let load = |name: String| {
        let scenario = Scenario::load(&folder().join(&name)).unwrap();
        (name.trim_end_matches(".toml").to_owned(), scenario)
    };
    names.into_iter().map(load).collect()
}

/// A table for the documentation: cases that run, and why others do not.
fn table() -> String {
    let mut text = String::from("| scenario | in the lab | not in the lab |\n|---|---|---|\n");
    for (name, scenario) in shipped() {
        let (mut good, mut bad) = (0, BTreeMap::<String, usize>::new());
        for case in &scenario.cases {
            match can_run(case) {
                Ok(()) => good += 1,
                Err(why) => *bad.entry(why.to_string()).or_default() += 1,
            }
        }
        let bad: Vec<_> = bad.iter().map(|(why, count)| format!("{count}: {why}")).collect();
        writeln!(text, "| `{name}` | {good} | {} |", bad.join("<br>")).unwrap();
    }
    text
}

/// `SKYHOP_DOCS=write cargo test -p skyhop-study --lib lab_run` rewrites the table.
#[test]
fn the_documented_table_says_what_runs_in_the_lab() {
    let path = folder().join("../docs/sim-and-lab.md");
    let page = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- table: in the lab -->\n", "<!-- end -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (documented, after) = rest.split_once(end).unwrap();
    let made = table();
    if std::env::var("SKYHOP_DOCS").is_ok_and(|wish| wish == "write") {
        fs::write(&path, format!("{before}{begin}{made}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(documented, made, "run this test with SKYHOP_DOCS=write");
}
