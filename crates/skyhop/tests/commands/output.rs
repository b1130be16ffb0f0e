//! What commands print on a terminal and elsewhere: progress, colours, JSON.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::terminal::{await_text, on_a_terminal, stderr_on_a_terminal};
use crate::common::{Runner, as_myself, text};

/// What a program does to rewrite a line or to colour it.
const ESCAPE: char = '\x1b';

fn skyhop(arguments: &[&str]) -> Command {
    let mut command = Runner::myself().skyhop();
    command.args(arguments).env("TERM", "xterm-256color");
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "SKYHOP_LOG"] {
        command.env_remove(variable);
    }
    command
}

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

/// Runs it with stderr on a terminal, on a dumb one, and on none: only the first shows progress,
/// which is returned. `code` is what it may end with besides 0.
fn progress(code: i32, command: impl Fn() -> Command) -> String {
    let good = |status: ExitStatus| [Some(0), Some(code)].contains(&status.code());
    let (status, output, shown) = stderr_on_a_terminal(command());
    assert!(good(status) && !output.is_empty(), "{status}: {shown}");
    let mut dumb = command();
    dumb.env("TERM", "dumb");
    let (_, _, on_dumb) = stderr_on_a_terminal(dumb);
    let piped = command().output().unwrap();
    assert!(good(piped.status) && !piped.stdout.is_empty());
    for said in [on_dumb, text(&piped.stderr)] {
        assert!(!said.contains(ESCAPE) && !said.contains("left"), "{said:?}");
        assert!(!said.contains("measuring"), "{said:?}");
    }
    shown
}

#[test]
fn simulations_show_progress_only_on_a_terminal() {
    let file = scenario("enac-table2.toml");
    let shown = progress(0, || {
        let mut command = skyhop(&["sim", "--seeds", "4", "--csv"]);
        command.arg(&file);
        command
    });
    assert!(shown.contains(ESCAPE) && shown.contains("left"), "{shown:?}");
}

#[test]
fn a_check_of_a_link_shows_progress_only_on_a_terminal() {
    as_myself(|_| {
        // A busy machine is out of tolerance.
        let shown = progress(1, || skyhop(&["lab", "check", "t1", "--delay", "5ms"]));
        assert!(shown.contains("measuring"), "{shown:?}");
    });
}

/// What a hub shows on a terminal of its own, from its start to its end.
fn hub_on_a_terminal(variable: (&str, &str)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let keygen = || text(&skyhop(&["keygen"]).output().unwrap().stdout);
    let (key, other) = (keygen(), keygen());
    let public = other.rsplit(' ').next().unwrap();
    let path = directory.path().join("hub.toml");
    let hub = format!(
        "{key}\nrate = \"auto\"\nlisten = \"127.0.0.1:0\"\ncontrol = \"none\"\n[[terminal]]\n\
         name = \"x\"\nkey = \"{public}\"\n"
    );
    fs::write(&path, hub).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let mut command = skyhop(&["hub"]);
    command.arg(&path).env(variable.0, variable.1);
    let (mut child, mut terminal) = on_a_terminal(command);
    let mut shown = await_text(&mut terminal, "ready");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    // The log's last lines; the closed terminal ends the text.
    let mut rest = [0; 4096];
    while let Ok(length @ 1..) = terminal.read(&mut rest) {
        shown += &String::from_utf8_lossy(&rest[..length]);
    }
    assert!(shown.contains("INFO"), "{shown:?}");
    shown
}

#[test]
fn logs_have_colours_only_where_they_are_wanted() {
    assert!(hub_on_a_terminal(("LANG", "C")).contains(ESCAPE));
    for variable in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        let shown = hub_on_a_terminal(variable);
        assert!(!shown.contains(ESCAPE), "{variable:?}: {shown:?}");
    }
}

#[test]
fn tables_are_json_on_request() {
    let file = scenario("enac-table2.toml");
    let file = file.to_str().unwrap();
    let json = |arguments: &[&str]| -> Value {
        let output = skyhop(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let presets = json(&["lab", "presets", "--json"]);
    let geo = presets.as_array().unwrap().iter().find(|preset| preset["name"] == "geo").unwrap();
    assert_eq!(geo["forward_bit_s"], serde_json::json!([50_000_000, 50_000_000]));
    assert_eq!(geo["rtt_s"], 0.6);

    let runs = json(&["sim", file, "--seeds", "2", "--json"]);
    let case = &runs[0];
    assert_eq!(case["seeds"], serde_json::json!([1, 2]));
    let figure = &case["figures"][0];
    assert_eq!(figure["values"].as_array().unwrap().len(), 2, "{figure}");
    assert!(figure["metric"].is_string() && figure["values"][0].is_number(), "{figure}");

    let beside = json(&["sim", file, "--seeds", "2", "--published", "--json"]);
    let first = &beside[0];
    assert!(first["published"].is_number() && first["verdict"].is_string(), "{first}");
    assert_eq!(first["seeds"], 2.0);

    let link = ["--rate", "2Mbit/s", "--rtt", "600ms", "--per", "0.1%", "--seeds", "1"];
    let answer = json(&[&["study", "design", "--json"], &link[..]].concat());
    let best = &answer["ranking"][0];
    assert!(best["download_mbit_s"]["median"].as_f64().unwrap() > 1.0, "{best}");
    assert_eq!(best["slower_than_best"].as_f64().map(|it| it >= 1.0), Some(true), "{best}");
}
