//! `skyhop init`, at a terminal and elsewhere.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::terminal::{await_prompt, await_text, enter, on_a_terminal};
use crate::common::{Runner, assert_refused, text};

fn init(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Runner::myself().skyhop();
    command.arg("init").args(arguments).current_dir(directory);
    command
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn check(directory: &Path, files: &[&str]) -> Output {
    let mut command = Runner::myself().skyhop();
    command.arg("check").args(files).current_dir(directory).output().unwrap()
}

#[test]
fn at_a_terminal_it_asks_and_writes_what_was_answered() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, mut terminal) = on_a_terminal(init(&[], directory.path()));
    for (question, answer) in [
        ("What to set up", ""),
        ("Directory", "pair"),
        ("Address where terminals reach the hub", "hub.example.net"),
        ("UDP port", "hub.example.net:5901"),
        ("Name of the terminal", "ship-1"),
        ("interface towards the clients", "lo"),
        ("Rate of the forward link", "50Mbit/s"),
        ("Rate of the return link", ""),
        ("paid for", "yes"),
    ] {
        await_prompt(&mut terminal, question);
        enter(&mut terminal, answer);
    }
    await_text(&mut terminal, "skyhop terminal ship-1.toml");
    assert!(child.wait().unwrap().success());
    let pair = directory.path().join("pair");
    assert_eq!(names(&pair), ["hub.toml", "schemas", "ship-1.toml"]);
    let done = check(&pair, &["hub.toml", "ship-1.toml"]);
    assert!(done.status.success(), "{}", text(&done.stdout));
    let terminal = fs::read_to_string(pair.join("ship-1.toml")).unwrap();
    for line in ["hub = \"hub.example.net:5901\"", "probe = false", "interfaces = [\"lo\"]"] {
        assert!(terminal.contains(line), "{line} not in {terminal}");
    }
    let hub = fs::read_to_string(pair.join("hub.toml")).unwrap();
    assert!(hub.contains("rate = \"50Mbit/s\"") && hub.contains("listen = \"[::]:5901\""), "{hub}");
}

#[test]
fn ctrl_c_and_an_end_of_input_leave_nothing() {
    for (last, code) in [("\x03", None), ("\x04", Some(2))] {
        let directory = tempfile::tempdir().unwrap();
        let (mut child, mut terminal) = on_a_terminal(init(&["pair"], directory.path()));
        await_prompt(&mut terminal, "What to set up");
        enter(&mut terminal, "pair");
        await_prompt(&mut terminal, "5900)");
        std::io::Write::write_all(&mut terminal, last.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), code);
        assert_eq!(names(directory.path()), [""; 0]);
    }
}

#[test]
fn with_options_it_asks_nothing_even_at_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let (mut child, mut terminal) =
        on_a_terminal(init(&["--role", "solo", "--interface", "lo"], directory.path()));
    let shown = await_text(&mut terminal, "skyhop solo");
    assert!(!shown.contains("What to set up"), "{shown}");
    assert!(child.wait().unwrap().success());
    assert_eq!(names(&directory.path().join("skyhop")), ["schemas", "solo.toml"]);
}

#[test]
fn without_a_terminal_it_is_silent_and_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| init(arguments, directory.path()).output().unwrap();
    assert_refused(&run(&[]), &["--hub is missing", "hub.example.net:5900"]);
    assert_refused(&run(&["pair", "--hub", "hub"]), &["--hub", "UDP port"]);
    assert_refused(&run(&["pair", "--hub", "h:1", "--hub-rate", "fast"]), &["50Mbit/s"]);
    assert_eq!(names(directory.path()), [""; 0]);
    let done = run(&["pair", "--hub", "hub:5900"]);
    assert!(done.status.success() && done.stderr.is_empty(), "{}", text(&done.stderr));
}

#[test]
fn a_further_terminal_fits_the_hub_that_exists() {
    let directory = tempfile::tempdir().unwrap();
    let key = Runner::myself().skyhop().arg("keygen").output().unwrap();
    let key = text(&key.stdout);
    let public = key.rsplit(' ').next().unwrap();
    let options = ["more", "--role", "terminal", "--hub", "hub:5900", "--name", "ship-2"];
    let run = |more: &[&str]| init(&options, directory.path()).args(more).output().unwrap();
    assert_refused(&run(&[]), &["--hub-key is missing"]);
    let done = run(&["--hub-key", public]);
    let said = text(&done.stdout);
    assert!(said.contains("[[terminal]]\nname = \"ship-2\"\nkey = "), "{said}");
    let checked = check(directory.path(), &["more/ship-2.toml"]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}
