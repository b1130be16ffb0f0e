//! `skyhop demo`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::common::{Runner, as_each_user, skip, text};

#[test]
fn the_demo_ends_in_a_table_a_page_and_figures() {
    let link =
        ["--rate", "100Mbit/s", "--return-rate", "20Mbit/s", "--delay", "25ms", "--per", "0"];
    as_each_user(|runner| {
        let directory = tempfile::tempdir().unwrap();
        let everybody = Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), everybody).unwrap();
        let mut demo = runner.skyhop();
        demo.args(["demo", "--only", "download", "--only", "page", "--json", "figures.json"]);
        let output = demo.args(link).current_dir(directory.path()).output().unwrap();
        let (table, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{table}\n{said}");
        assert_table(&table);
        let page = std::fs::read_to_string(directory.path().join("skyhop-demo.html")).unwrap();
        assert!(page.contains("<svg") && page.contains("Web page of 40 objects"), "{page}");
        let figures = std::fs::read(directory.path().join("figures.json")).unwrap();
        assert_figures(&serde_json::from_slice(&figures).unwrap());
    });
}

/// Needs neither lab nor privileges.
#[test]
fn without_a_lab_the_demo_simulates_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut demo = Runner::myself().skyhop();
        demo.args(["demo", "--only", "download", "--only", "requests"]).args(arguments);
        demo.current_dir(directory.path()).output().unwrap()
    };
    let outputs = [(); 2].map(|()| run(&["--simulate", "--json", "figures.json"]));
    let [first, second] = outputs.each_ref().map(|output| text(&output.stdout));
    assert!(first.starts_with("SIMULATED in virtual time (requested by --simulate)"), "{first}");
    assert_eq!(first, second, "the same seed");
    assert_table(&first);
    let page = std::fs::read_to_string(directory.path().join("skyhop-demo.html")).unwrap();
    assert!(page.contains("<strong>Simulated.</strong>"), "{page}");
    let figures = std::fs::read(directory.path().join("figures.json")).unwrap();
    let figures: Value = serde_json::from_slice(&figures).unwrap();
    assert_eq!(figures["records"].as_array().unwrap().len(), 6, "{figures:#}");
}

/// In a user namespace that permits no nested ones and grants no capabilities for other namespaces.
#[test]
fn where_namespaces_are_forbidden_the_demo_says_so_and_simulates() {
    const FORBID: &str = "echo 0 > /proc/sys/user/max_user_namespaces &&
        exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"";
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-Ur", "sh", "-c"]).args(arguments).output()
    };
    if !unshare(&["exec setpriv true"]).is_ok_and(|output| output.status.success()) {
        return skip("unshare or setpriv is missing, or may not make user namespaces");
    }
    let skyhop = Runner::myself().skyhop;
    let skyhop = skyhop.to_str().unwrap();
    let demo = [FORBID, "sh", skyhop, "demo", "--only", "requests", "--no-html"];
    let output = unshare(&demo).unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let title =
        "SIMULATED in virtual time (no network namespaces here: cannot create a user namespace";
    assert!(shown.starts_with(title), "{shown}");
    assert!(shown.contains("100 requests of 1 kB"), "{shown}");
}

fn assert_table(table: &str) {
    assert!(table.contains("Download of 20 MB"), "{table}");
    let ours = table.lines().find_map(|line| line.trim().strip_prefix("skyhop "));
    let ours: Vec<&str> = ours.expect("a row of ours").split_whitespace().collect();
    // Columns: time, first byte, goodput, of the limit, share, gain.
    let [time, _, goodput, _, "%", share, "%", gain, "×"] = ours[..] else {
        panic!("not what was expected: {ours:?}\n{table}");
    };
    let [time, goodput, share, gain] =
        [time, goodput, share, gain].map(|figure| figure.parse::<f64>().unwrap());
    assert!((goodput - 160.0 / time).abs() < 1.0, "{table}");
    assert!((1.0..=100.0).contains(&share) && gain > 0.0, "{table}");
}

/// Every way has run both tasks, nothing failed, and the download has a progress curve.
fn assert_figures(json: &Value) {
    let records = json["records"].as_array().unwrap();
    assert!(records.len() >= 6 && records.len().is_multiple_of(2), "{json:#}");
    assert!(json["setting"]["simulated"].is_null(), "{json:#}");
    for record in records {
        assert!(record["failure"].is_null(), "{record:#}");
        assert!(record["figures"]["done"].as_u64().unwrap() > 0, "{record:#}");
        assert!(record["trail"].as_array().unwrap().len() > 2, "{record:#}");
    }
    let pages = records.iter().filter(|record| record["task"] == "page");
    assert!(pages.clone().all(|page| page["response_seconds"].as_array().unwrap().len() == 40));
}
