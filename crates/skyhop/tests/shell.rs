//! Completions and manual pages cover the whole command line.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{env, fs};

fn skyhop(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_skyhop")).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = skyhop(arguments);
    assert!(output.status.success(), "skyhop {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that `--help` lists below this one, such as `["lab"]`.
fn listed(command: &[String]) -> Vec<String> {
    let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = stdout(&arguments);
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // Continuation lines are indented further.
    let first = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = first.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command, with those below it: `[]`, `["lab"]`, `["lab", "run"]`, …
fn commands() -> Vec<Vec<String>> {
    let mut all = vec![vec![]];
    let mut at = 0;
    while at < all.len() {
        let command = all[at].clone();
        all.extend(listed(&command).into_iter().map(|name| [&command[..], &[name]].concat()));
        at += 1;
    }
    all
}

#[test]
fn every_command_has_a_page_and_every_page_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man/man1");
    stdout(&["man", pages.to_str().unwrap()]);
    let name = |file: fs::DirEntry| file.file_name().into_string().unwrap();
    let written: BTreeSet<String> =
        fs::read_dir(&pages).unwrap().map(|file| name(file.unwrap())).collect();
    let commands = commands();
    assert!(commands.len() > 30, "help lists only {commands:?}");
    let wanted: BTreeSet<String> = commands
        .iter()
        .map(|command| [&["skyhop".to_owned()], &command[..]].concat().join("-") + ".1")
        .collect();
    assert_eq!(written, wanted);
    for command in &commands {
        let file = [&["skyhop".to_owned()], &command[..]].concat().join("-") + ".1";
        let page = fs::read_to_string(pages.join(file)).unwrap();
        assert!(page.contains("\n.SH SYNOPSIS\n"), "{command:?}: {page}");
        assert!(page.contains("\n.SH DESCRIPTION\n"), "{command:?}: {page}");
    }
    assert_eq!(stdout(&["man"]), fs::read_to_string(pages.join("skyhop.1")).unwrap());
    let run = fs::read_to_string(pages.join("skyhop-lab-run.1")).unwrap();
    assert!(run.contains("\\-\\-gateways"), "options are described: {run}");
}

#[test]
fn pages_that_cannot_be_written_are_an_error() {
    let output = skyhop(&["man", "/dev/null/pages"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot write pages to /dev/null/pages"), "{said}");
}

/// Runs a script through a shell's parser; `false` if the shell is not installed.
fn parses(shell: &str, arguments: &[&str], script: &str) -> bool {
    let mut command = Command::new(shell);
    let piped = command.args(arguments).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut process) = piped.spawn() else { return false };
    process.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{shell}: {output:?}");
    true
}

#[test]
fn completions_parse_in_their_shells() {
    for (shell, arguments) in [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])] {
        let script = stdout(&["completions", shell]);
        for command in listed(&[]) {
            assert!(script.contains(&command), "{shell} does not know {command}");
        }
        if !parses(shell, &arguments, &script) {
            println!("SKIPPED: {shell} is not installed");
        }
    }
    let output = skyhop(&["completions", "csh"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("bash, zsh, fish"));
}

/// What bash offers after these words.
fn bash_offers(words: &str) -> Vec<String> {
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join("completions.bash");
    fs::write(&script, stdout(&["completions", "bash"])).unwrap();
    let ask = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
               _skyhop \"$1\" \"${@: -1}\" \"${@: -2:1}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", ask, "bash"]).arg(&script).args(words.split(' '));
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(bash_offers("skyhop dra"), ["drain"]);
    assert_eq!(bash_offers("skyhop lab she"), ["shell"]);
    assert_eq!(bash_offers("skyhop drain --wi"), ["--within"]);
    assert_eq!(bash_offers("skyhop completions b"), ["bash"]);
}
