//! Pages of docs/ whose commands a test runs: every block of `sh`, in order.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Runner, as_each_user, text};

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of a page.
fn commands(page: &str) -> String {
    let text = fs::read_to_string(repository().join("docs").join(page)).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let blocks: Vec<&str> = blocks.collect();
    assert!(!blocks.is_empty(), "{page} has no commands");
    // A page must not hide a command in a block that nobody runs.
    for kind in ["```bash", "```shell", "```console"] {
        assert!(!text.contains(kind), "{page} has a block {kind}");
    }
    blocks.concat()
}

/// A directory in which a user runs scripts, with `skyhop` on the PATH, and labs of its own, which
/// end with it.
pub(crate) struct Workplace<'a> {
    runner: &'a Runner,
    directory: tempfile::TempDir,
}

impl<'a> Workplace<'a> {
    pub(crate) fn new(runner: &'a Runner) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(directory.path(), runner.user, runner.user).unwrap();
        Self { runner, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Adds what every command needs.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let programs = self.runner.skyhop.parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        command.env("PATH", path).env("SKYHOP_STATE_DIR", self.path("labs"));
        command.env("HOME", self.directory.path()).current_dir(self.directory.path());
    }

    /// Runs a script, which ends at its first failure.
    pub(crate) fn run(&self, shell: &[&str], script: &str) -> Output {
        let mut command = self.runner.program(shell[0]);
        command.args(&shell[1..]).arg(script);
        self.prepare(&mut command);
        command.output().unwrap()
    }
}

impl Drop for Workplace<'_> {
    fn drop(&mut self) {
        let mut down = self.runner.lab(&["down", "--all"]);
        self.prepare(&mut down);
        let _ = down.output();
    }
}

/// The number between `before` and ` s` in a program's output.
fn seconds(said: &str, before: &str) -> f64 {
    let rest = said.split(before).nth(1).unwrap_or_else(|| panic!("{before} not in {said}"));
    rest.split(" s").next().unwrap().parse().unwrap()
}

#[test]
fn first_pair() {
    as_each_user(|runner| {
        let place = Workplace::new(runner);
        let script = commands("first-pair.md");
        for part in ["skyhop init", "skyhop hub", "skyhop terminal", "curl", "skyhop keygen"] {
            assert!(script.contains(part), "{part}");
        }
        let output = place.run(&["sh", "-euc"], &script);
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}\n{errors}");
        let (before, after) = (seconds(&said, "without: "), seconds(&said, "through the pair: "));
        assert!(after < before / 2.0, "{after} s, {before} s without");
        for shown in ["pair/ship-1.toml: valid, terminal", "knows this terminal's key", "tproxy"] {
            assert!(said.contains(shown), "{shown} not in {said}");
        }
        let connection = said.lines().find(|line| line.contains("(claimed)"));
        assert!(connection.is_some_and(|line| line.trim_start().starts_with("ship-1")), "{said}");
        assert!(fs::read_to_string(place.path("hub.log")).unwrap().contains("session up"));
    });
}

/// The shell commands of a recipe: the values of `run:`, or the items of `script:`.
fn steps(recipe: &str, under: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join("examples/lab-in-ci").join(recipe)).unwrap();
    let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).unwrap();
    let mut found = Vec::new();
    collect(&yaml, under, &mut found);
    found
}

fn collect(value: &serde_yaml_ng::Value, under: &str, found: &mut Vec<String>) {
    use serde_yaml_ng::Value;
    match value {
        Value::Mapping(mapping) => {
            for (key, value) in mapping {
                match (key.as_str() == Some(under), value) {
                    (true, Value::String(step)) => found.push(step.clone()),
                    (true, Value::Sequence(all)) => {
                        found.extend(all.iter().map(|step| step.as_str().unwrap().to_owned()));
                    }
                    _ => collect(value, under, found),
                }
            }
        }
        Value::Sequence(all) => all.iter().for_each(|value| collect(value, under, found)),
        _ => {}
    }
}

/// Runs the steps of a recipe as its service does: GitHub each in a shell of its own, GitLab all in
/// one.
fn run_recipe(runner: &Runner, recipe: &str, scripts: &[String]) {
    let place = Workplace::new(runner);
    let own = repository().join("examples/lab-in-ci/behind-the-link.sh");
    fs::copy(own, place.path("behind-the-link.sh")).unwrap();
    let mut said = String::new();
    for script in scripts {
        let output = place.run(&["bash", "-euc"], script);
        said += &text(&output.stdout);
        assert!(output.status.success(), "{recipe}: {script}\n{said}\n{}", text(&output.stderr));
    }
    assert!(said.contains(": passed") && !said.contains("SKIPPED"), "{recipe}: {said}");
}

#[test]
fn recipes_for_ci_test_behind_geo_and_leo() {
    as_each_user(|runner| {
        for link in ["geo", "leo"] {
            let github = steps("github.yml", "run");
            assert_eq!(github.len(), 3);
            let github: Vec<String> =
                github.iter().map(|step| step.replace("${{ matrix.link }}", link)).collect();
            assert!(github.iter().all(|step| !step.contains("${{")), "{github:?}");
            run_recipe(runner, "github.yml", &github);
            let gitlab = steps("gitlab.yml", "script");
            assert_eq!(gitlab.len(), 4);
            run_recipe(runner, "gitlab.yml", &[format!("LINK={link}\n{}", gitlab.join("\n"))]);
        }
    });
}
