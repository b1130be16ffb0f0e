//! `skyhop study` as typed by a user.

#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn study(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhop"));
    command.arg("study").args(args).current_dir(folder).output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn error(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Names and contents of the results in a store.
fn results(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(store.join("cells")).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

/// Cases of scenario `enac-table2`.
const CASES: usize = 11;
/// Cells of a [`campaign`].
const CELLS: usize = 2 * CASES;

/// The plan of a campaign of short cells, two seeds of each case, in `plan.json`, and the store of its run.
fn campaign() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let plan = printed(&study(folder.path(), &["plan", "enac-table2", "--seeds", "2", "--json"]));
    fs::write(folder.path().join("plan.json"), plan).unwrap();
    let run = study(folder.path(), &["run", "enac-table2", "--seeds", "2", "--threads", "1"]);
    let wanted = format!(
        "{CELLS} cells: {CELLS} run, 0 kept from before, 0 failed; results in skyhop-study\n"
    );
    assert_eq!(printed(&run), wanted);
    folder
}

#[test]
fn scenarios_are_found_by_name_without_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    let list = printed(&study(folder.path(), &["list"]));
    assert!(list.contains("\nenac-table2 "), "{list}");
    let list: Value =
        serde_json::from_str(&printed(&study(folder.path(), &["list", "--json"]))).unwrap();
    let enac = list.as_array().unwrap().iter().find(|it| it["name"] == "enac-table2").unwrap();
    assert_eq!(
        (enac["published"].as_bool(), enac["cases"].as_array().unwrap().len()),
        (Some(true), CASES)
    );
    let unknown = error(&study(folder.path(), &["plan", "enac-table3"]), 2);
    assert!(unknown.contains("no scenario \"enac-table3\": expected caini-dtn, "), "{unknown}");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/enac-table2.toml");
    let twice = error(&study(folder.path(), &["run", "enac-table2", file]), 2);
    assert!(twice.contains("two scenarios are called \"enac-table2\""), "{twice}");
}

#[test]
fn a_campaign_resumes_and_reports_what_sim_prints() {
    let folder = campaign();
    let run = |seeds| printed(&study(folder.path(), &["run", "enac-table2", "--seeds", seeds]));
    let all = CELLS + CASES;
    let wanted = format!("{all} cells: {CASES} run, {CELLS} kept from before, 0 failed");
    assert!(run("3").starts_with(&wanted));
    let plan = printed(&study(folder.path(), &["plan", "enac-table2", "--seeds", "3"]));
    assert_eq!(plan.lines().filter(|line| line.contains("  done  ")).count(), all, "{plan}");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/enac-table2.toml");
    for flag in [None, Some("--published"), Some("--csv")] {
        let report: Vec<_> = ["report", "enac-table2"].into_iter().chain(flag).collect();
        let report = printed(&study(folder.path(), &report));
        let mut sim = Command::new(env!("CARGO_BIN_EXE_skyhop"));
        let sim = printed(&sim.args(["sim", file, "--seeds", "3"]).args(flag).output().unwrap());
        assert_eq!(report, sim.replace(file, "enac-table2"));
    }
    let none = error(&study(folder.path(), &["report", "opnet-figs4-7"]), 2);
    assert!(none.contains("skyhop-study has no result of these scenarios"), "{none}");
}

/// Runs a script that fills the store `other` of a [`campaign`].
fn assert_makes_the_same_store(folder: &TempDir, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).env("SKYHOP", env!("CARGO_BIN_EXE_skyhop"));
    printed(&command.current_dir(folder.path()).output().unwrap());
    let [one, other] = ["skyhop-study", "other"].map(|store| results(&folder.path().join(store)));
    assert!(one.len() == CELLS && one == other);
}

/// The recipe of docs/study.md for one machine: processes that share nothing but the store.
#[test]
fn cells_run_by_separate_processes_give_the_same_store() {
    let folder = campaign();
    let script = "$SKYHOP study plan enac-table2 --seeds 2 --store other --todo |
        xargs -P 4 -n 1 $SKYHOP study cell --plan plan.json --store other";
    assert_makes_the_same_store(&folder, script);
}

/// The recipe for GNU parallel, with this machine as the only one.
#[test]
fn parallel_hands_results_over_as_text() {
    if Command::new("parallel").arg("--version").output().is_err() {
        return os::testkit::skip("GNU parallel is not installed");
    }
    let folder = campaign();
    let script = "$SKYHOP study plan enac-table2 --seeds 2 --store other --todo |
        parallel --jobs 3 --sshlogin : --retries 3 $SKYHOP study cell {} --plan plan.json --print |
        $SKYHOP study add --store other";
    assert_makes_the_same_store(&folder, script);
}

/// Results that cross as text give the same store; what was tampered with is refused.
#[test]
fn printed_results_are_added() {
    let folder = campaign();
    let todo = printed(&study(
        folder.path(),
        &["plan", "enac-table2", "--seeds", "2", "--store", "x", "--todo"],
    ));
    let cells: Vec<_> = todo.lines().collect();
    let args = [&["cell", "--plan", "plan.json", "--print"][..], &cells].concat();
    let lines = printed(&study(folder.path(), &args));
    assert_eq!(lines.lines().count(), CELLS);
    let add = |text: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skyhop"));
        command.args(["study", "add", "--store", "other"]).current_dir(folder.path());
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    printed(&add(&lines));
    let [one, other] = ["skyhop-study", "other"].map(|store| results(&folder.path().join(store)));
    assert!(one == other);
    let wrong = error(&add(&lines.replace("\"seed\":1", "\"seed\":7")), 2);
    assert!(wrong.contains("its name does not follow from its contents"), "{wrong}");
    assert!(error(&add("{}\n"), 2).contains("line 1: not a result"));
}

#[test]
fn published_results_are_reported_in_every_form() {
    let folder = campaign();
    let report = |flags: &[&str]| {
        printed(&study(folder.path(), &[&["report", "enac-table2"], flags].concat()))
    };
    let text = report(&["--markdown"]);
    assert!(
        text.starts_with("# What is reproduced\n\n`skyhop study report enac-table2 --markdown`")
    );
    assert!(text.contains("| ENAC | ") && text.contains("### enac-table2: "), "{text}");
    let lines = report(&["--published", "--csv"]);
    assert!(lines.contains("\nenac,enac-table2,Table 2,e2e NewReno,"), "{lines}");
    report(&["--html", "pages"]);
    let page = fs::read_to_string(folder.path().join("pages/enac-table2.html")).unwrap();
    assert!(page.contains("skyhop study report enac-table2 --html DIR"), "{page}");
}

/// `skyhop study run all && skyhop study report all --markdown > docs/reproduction.md` makes the page again.
#[test]
fn the_page_of_results_has_every_published_file() {
    let page = fs::read_to_string(repository().join("docs/reproduction.md")).unwrap();
    for entry in fs::read_dir(repository().join("scenarios")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".published.toml") else { continue };
        assert!(page.contains(&format!("### {stem}: ")), "{stem}");
    }
}

#[test]
fn a_link_of_one_s_own_gets_ranked_enhancements() {
    let folder = tempfile::tempdir().unwrap();
    let link = ["design", "--rate", "1Mbit/s", "--rtt", "500ms", "--per", "1%"];
    let more = ["--seeds", "1", "--terminals", "2", "--html", "own.html", "--write", "own"];
    let text = printed(&study(folder.path(), &[&link[..], &more[..]].concat()));
    let first = text.lines().nth(2).unwrap();
    assert!(first.starts_with("skyhop pair ") && first.ends_with("1.00"), "{text}");
    assert!(
        text.contains("Recommends 3 (a bit error rate below 1e-7): the link does not"),
        "{text}"
    );
    let page = fs::read_to_string(folder.path().join("own.html")).unwrap();
    assert!(page.contains("<code>skyhop study design --rate 1Mbit/s"), "{page}");
    let plan = printed(&study(folder.path(), &["plan", "own/download.toml"]));
    assert_eq!(plan.lines().count(), 7, "{plan}");
    assert!(error(&study(folder.path(), &["design", "--rate", "1Mbit/s"]), 2).contains("--rtt"));
}

#[test]
fn a_cell_runs_in_the_lab() {
    const FILE: &str = "description = 'x'\ntime = '20 s'\nhop = 'geo'\n\
                        [[flow]]\nname = 'file'\nkind = 'bulk'\nbytes = '100 kB'\n";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("own.toml"), FILE).unwrap();
    let run = study(folder.path(), &["run", "own.toml", "--on", "lab"]);
    if run.status.code() == Some(2) && std::env::var_os("SKYHOP_REQUIRE_LAB").is_none() {
        println!("SKIPPED: {}", String::from_utf8_lossy(&run.stderr));
        return;
    }
    let wanted = "1 cells: 1 run, 0 kept from before, 0 failed; results in skyhop-study\n";
    assert_eq!(printed(&run), wanted);
    let report = printed(&study(folder.path(), &["report", "own.toml", "--on", "lab", "--csv"]));
    assert!(report.contains(",file,bytes,100000\n"), "{report}");
}

#[test]
fn a_damaged_result_is_named_and_made_again() {
    let folder = campaign();
    let store = folder.path().join("skyhop-study/cells");
    let before = results(&folder.path().join("skyhop-study"));
    let name = before.keys().next().unwrap();
    fs::write(store.join(name), "half a resu").unwrap();
    let run = study(folder.path(), &["run", "enac-table2", "--seeds", "2"]);
    let wanted = format!("{CELLS} cells: 1 run, {} kept", CELLS - 1);
    assert!(printed(&run).starts_with(&wanted));
    let warning = String::from_utf8(run.stderr).unwrap();
    assert!(warning.contains(name) && warning.contains("counts as not run"), "{warning}");
    assert!(results(&folder.path().join("skyhop-study")) == before);
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The script of a Slurm array, run task by task as Slurm does.
#[test]
fn the_tasks_of_a_slurm_array_share_the_cells() {
    let folder = campaign();
    let todo = ["plan", "enac-table2", "--seeds", "2", "--store", "other", "--todo"];
    fs::write(folder.path().join("cells.txt"), printed(&study(folder.path(), &todo))).unwrap();
    let store = folder.path().join("other");
    let task = |number: &str, count: &str| {
        let mut task = Command::new(repository().join("tools/study-slurm.sh"));
        task.args(["plan.json", "cells.txt", "other"]).current_dir(folder.path());
        task.env("SKYHOP", env!("CARGO_BIN_EXE_skyhop")).env("SLURM_ARRAY_TASK_ID", number);
        printed(&task.env("SLURM_ARRAY_TASK_COUNT", count).output().unwrap());
    };
    task("2", "3");
    assert_eq!(results(&store).len(), CELLS / 3);
    task("3", "3");
    task("1", "3");
    assert!(results(&store) == results(&folder.path().join("skyhop-study")));
    // More tasks than cells: nothing to do.
    let beyond = (CELLS + 1).to_string();
    task(&beyond, &beyond);
}

/// Two Ray nodes, one of which is killed: the store is that of a run on one thread.
#[test]
fn a_campaign_outlives_a_ray_node() {
    let ray = Command::new("python3").args(["-c", "import ray"]).output();
    if !ray.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: python3 has no ray (pip install ray)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cells = ["enac-table2", "--seeds", "4"];
    let study = |args: &[&str]| printed(&study(folder.path(), &[args, &cells].concat()));
    study(&["run", "--store", "one", "--threads", "1"]);
    fs::write(folder.path().join("plan.json"), study(&["plan", "--json"])).unwrap();
    let mut nodes = Command::new("python3");
    nodes.arg(repository().join("crates/skyhop/tests/study/ray_nodes.py"));
    nodes.arg(repository().join("tools/study-ray.py")).arg(env!("CARGO_BIN_EXE_skyhop"));
    nodes.args(["plan.json", "other", "10"]).env("RAY_TMPDIR", folder.path());
    let text = printed(&nodes.current_dir(folder.path()).output().unwrap());
    assert!(text.contains("lost a node after 10 results"), "{text}");
    let [one, other] = ["one", "other"].map(|store| results(&folder.path().join(store)));
    assert!(one.len() == 2 * CELLS && one == other, "{} results", other.len());
}
