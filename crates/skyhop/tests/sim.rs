//! `skyhop sim` as typed by a user.

#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

fn sim(file: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skyhop"));
    command.arg("sim").arg(file).args(args).output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The same file and seeds produce the same bytes, with any number of threads.
#[test]
fn csv_is_the_same_whoever_runs_it() {
    let file = scenario("enac-table2.toml");
    let run = |threads| printed(&sim(&file, &["--csv", "--seeds", "3", "--threads", threads]));
    let first = run("1");
    // Ten cases, three seeds, about twenty figures.
    assert!(first.lines().count() > 200, "{first}");
    assert!(first.starts_with("file,case,seed,of,metric,value\n"), "{first}");
    for threads in ["1", "2", "5"] {
        assert!(run(threads) == first, "{threads} threads gave another CSV");
    }
}

#[test]
fn a_capture_of_a_run_is_read_by_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (pcap, svg) = (folder.path().join("run.pcapng"), folder.path().join("svg"));
    let [pcap_text, svg_text] = [&pcap, &svg].map(|path| path.to_str().unwrap());
    let args = ["--case", "satellite 1.5 Mbit/s", "--pcap", pcap_text, "--svg", svg_text];
    let table = printed(&sim(&scenario("itu-single.toml"), &args));
    assert!(table.contains("goodput-mbit/s"), "{table}");
    let mut trace = Command::new(env!("CARGO_BIN_EXE_skyhop"));
    let trace = printed(&trace.args(["meter", "trace", pcap_text, "--json"]).output().unwrap());
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    let connections = trace["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 1, "{trace}");
    assert_eq!(connections[0]["ending"], "closed", "{trace}");
    // Of each packet the headers and a little more is written, on both links.
    let payload = ["a_to_b", "b_to_a"].map(|way| connections[0][way]["payload_bytes"].as_u64());
    let payload: u64 = payload.into_iter().flatten().sum();
    let written = std::fs::metadata(&pcap).unwrap().len();
    assert!(payload > 0 && written < payload * 2 / 3, "{written} bytes for a payload of {payload}");
    // Two links, and the sequence and window of the sender.
    let graphs = std::fs::read_dir(&svg).unwrap().map(|file| {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(text.starts_with("<svg"), "{text}");
    });
    assert_eq!(graphs.count(), 4);
}

#[test]
fn published_values_stand_beside_ours() {
    let text = printed(&sim(&scenario("itu-single.toml"), &["--published"]));
    assert!(text.contains("Recommendation ITU-R S.1711-1"), "{text}");
    assert_eq!(text.matches("ftp goodput-mbit/s").count(), 4, "{text}");
}

#[test]
fn mistakes_are_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.toml");
    std::fs::write(&wrong, "description = \"x\"\ntime = \"soon\"\n").unwrap();
    let preset = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenario/presets/geo.toml");
    for (file, args, expected) in [
        (wrong.clone(), &[][..], "wrong.toml:2: time: \"soon\" is not a duration: expected"),
        (preset, &[], "geo.toml: this is a link preset, not a scenario"),
        (folder.path().join("none.toml"), &[], "cannot read"),
        (
            scenario("opnet-figs4-7.toml"),
            &["--case", "lunar"],
            "has no case \"lunar\": it has \"terrestrial\"",
        ),
        (scenario("itu-star.toml"), &["--published"], "cannot read"),
    ] {
        let output = sim(&file, args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected) && error.trim_end().lines().count() == 1, "{error}");
    }
}
