//! Generates `docs/commands.md` from the command line: every command and option, exit codes, and
//! environment variables.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory};

use crate::Cli;

const HEAD: &str = "\
# Commands

Every command, with its options in short; `skyhop COMMAND --help` has the rest. This page is made from the command line
itself: `SKYHOP_COMMANDS=write cargo test -p skyhop --bin skyhop commands_page`.

Results go to standard output; progress, warnings and logs go to standard error. Progress is shown only if standard error
is a terminal (and `TERM` is not `dumb`). Where a command prints a table, `--json` prints the same as JSON.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 2 | invalid input, a missing privilege, or a file that cannot be read or written: one line on standard error |

A closed standard output (`| head`) is no failure: what still comes is dropped, and a command that prints until it is
interrupted ends. Any other failure to write there ends with 2. What standard error does not take is lost and changes
nothing; a gateway also loses the lines of its log that nobody reads, counts them, and carries on. If its terminal hangs
up, a gateway reloads its configuration (SIGHUP) and carries on; every other command ends.
";

/// Further exit codes of commands.
const EXIT_CODES: [(&str, &str); 19] = [
    ("demo", "1: a measurement failed"),
    ("check", "1: a file is invalid"),
    ("doctor", "1: a check failed; warnings leave it 0"),
    ("hub", "1: it failed while running; 2: it never ran"),
    ("terminal", "1: it failed while running; 2: it never ran"),
    ("solo", "1: it failed while running; 2: it never ran"),
    ("bundle receive", "1: no bundle is there"),
    ("lab run", COMMANDS_OWN),
    ("lab shell", COMMANDS_OWN),
    ("lab exec", COMMANDS_OWN),
    ("lab check", "1: a value is out of tolerance"),
    ("meter bulk", "1: a flow did not complete, or a byte was wrong"),
    ("meter rr", "1: a request was not answered"),
    ("meter page", "1: an object did not arrive"),
    ("meter udp", "1: the test did not complete"),
    ("study run", "1: a cell failed; the others are kept"),
    ("study cell", "1: a cell failed"),
    ("tcp get", "1: the transfer failed, or a byte was wrong"),
    ("init", "130 in a shell: Ctrl-C at a question; nothing was written"),
];
const COMMANDS_OWN: &str =
    "the command's own; 128 + N: signal N ended it; 126: it cannot be run; 127: there is none";

/// Every environment variable that the program reads or sets.
const ENVIRONMENT: [(&str, &str); 15] = [
    ("SKYHOP_LOG", "the log's filter, as `log` in a configuration, which it overrides"),
    (
        "SKYHOP_RUN_DIR",
        "the directory of gateways' control sockets; a lab sets it for its commands",
    ),
    ("SKYHOP_STATE_DIR", "the directory in which `skyhop lab up` keeps its labs"),
    ("SKYHOP_LAB", "set in a lab: the name of its preset"),
    ("SKYHOP_LAB_NETNS", "set in a lab: its hosts' network namespaces, for `skyhop lab exec`"),
    ("NO_COLOR", "not empty: no colours"),
    ("CLICOLOR", "0: no colours"),
    ("CLICOLOR_FORCE", "neither empty nor 0: colours even if standard error is no terminal"),
    ("TERM", "`dumb`: no colours, no progress, and `--watch` does not clear the screen"),
    ("SHELL", "the shell of `skyhop lab shell` and `skyhop lab exec`"),
    ("XDG_RUNTIME_DIR", "a user's control sockets and labs are in its `skyhop`"),
    ("HOME", "without it, they are in `.local/state/skyhop` there"),
    ("NOTIFY_SOCKET", "systemd: where `READY=1`, `RELOADING=1`, `STOPPING=1` go"),
    ("WATCHDOG_USEC", "systemd: the interval within which the gateway reports that it lives"),
    ("WATCHDOG_PID", "systemd: the process that this is meant for"),
];

fn page() -> String {
    let mut text = HEAD.to_owned();
    text += "\nBeyond these:\n\n| command | exit code |\n|---|---|\n";
    for (command, code) in EXIT_CODES {
        let _ = writeln!(text, "| `skyhop {command}` | {code} |");
    }
    text += "\n## Environment\n\n| variable | meaning |\n|---|---|\n";
    for (variable, meaning) in ENVIRONMENT {
        let _ = writeln!(text, "| `{variable}` | {meaning} |");
    }
    text += "\n## The commands\n";
    for command in leaves() {
        describe(&mut text, &command);
    }
    text
}

/// Returns all commands without subcommands, with their full names.
fn leaves() -> Vec<(String, Command)> {
    fn walk(prefix: &str, command: &Command, found: &mut Vec<(String, Command)>) {
        let own: Vec<_> = command
            .get_subcommands()
            .filter(|command| command.get_name() != "help" && !command.is_hide_set())
            .collect();
        if own.is_empty() && !prefix.is_empty() {
            found.push((prefix.to_owned(), command.clone()));
        }
        for sub in own {
            walk(format!("{prefix} {}", sub.get_name()).trim(), sub, found);
        }
    }
    let mut found = Vec::new();
    walk("", &Cli::command(), &mut found);
    found
}

fn describe(text: &mut String, (name, command): &(String, Command)) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "\n### skyhop {name}\n\n{}.\n", cell(&about));
    let shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
    let args: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if args.is_empty() {
        return;
    }
    text.push_str("\n| option | meaning |\n|---|---|\n");
    for arg in args {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "| `{}` | {} |", synopsis(arg), cell(&help));
    }
}

fn synopsis(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let values = format!(
        "{values}{}",
        if arg.get_num_args().is_some_and(|n| n.max_values() > 1) { "…" } else { "" }
    );
    match (arg.get_long(), arg.get_short()) {
        (None, None) => values,
        (Some(long), _) if takes_value => format!("--{long} {values}"),
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
    }
}

/// Puts a text on one line and escapes it for a table.
fn cell(help: &str) -> String {
    help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_is_that_of_the_command_line() {
    let path = repository().join("docs/commands.md");
    if std::env::var("SKYHOP_COMMANDS").is_ok_and(|wish| wish == "write") {
        fs::write(path, page()).unwrap();
        return;
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(committed == page(), "docs/commands.md has changed: SKYHOP_COMMANDS=write writes it");
}

#[test]
fn every_command_with_an_exit_code_exists_and_every_table_has_json() {
    let all = leaves();
    for (name, _) in EXIT_CODES {
        assert!(all.iter().any(|(each, _)| each == name), "there is no command {name}");
    }
    for name in [
        "check",
        "doctor",
        "status",
        "lab check",
        "lab presets",
        "lab status",
        "meter bulk",
        "meter compare",
        "meter page",
        "meter rr",
        "meter trace",
        "meter udp",
        "sim",
        "study design",
        "study list",
        "study plan",
        "study report",
        "tcp compare",
        "tcp get",
        "tcp serve",
        "demo",
    ] {
        let (_, command) = all.iter().find(|(each, _)| each == name).expect(name);
        let has_json = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
        assert!(has_json, "skyhop {name} has no --json");
    }
}

/// Texts in capital letters that `env::var` or a constant names, in the sources of all crates.
#[test]
fn every_variable_that_the_sources_name_is_on_the_page() {
    let mut open = vec![repository().join("crates")];
    let mut count = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "benches", "examples", "testkit"].contains(&&*name) {
                open.push(path);
            } else if name.ends_with(".rs") && !name.contains("test") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                for variable in variables(code) {
                    count += 1;
                    let own =
                        ["SKYHOP_SCHEMAS", "SKYHOP_VECTORS", "SKYHOP_COMMANDS", "SKYHOP_WATCHDOG"];
                    let known = ENVIRONMENT.iter().any(|(name, _)| *name == variable);
                    assert!(known || own.contains(&variable), "{variable} in {}", path.display());
                }
            }
        }
    }
    assert!(count > 8, "only {count} were found");
}

fn variables(text: &str) -> impl Iterator<Item = &str> {
    let after = ["env::var(\"", "env::var_os(\"", "variable(\"", "path(\"", "VARIABLE: &str = \""];
    let found = after.into_iter().flat_map(|mark| text.split(mark).skip(1));
    let names = found.filter_map(|rest| rest.split('"').next());
    let is_name =
        |name: &&str| name.len() > 3 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    names.filter(is_name)
}
