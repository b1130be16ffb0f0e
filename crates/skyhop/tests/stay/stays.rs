//! Detached labs of one test, recorded in a directory of its own.

use std::fs;
use std::os::unix::fs::chown;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Remains, Runner, text};

/// The labs of one test, which end with it.
pub(crate) struct Stays<'a> {
    pub(crate) runner: &'a Runner,
    directory: tempfile::TempDir,
}

impl<'a> Stays<'a> {
    pub(crate) fn new(runner: &'a Runner) -> Self {
        let directory = tempfile::tempdir().unwrap();
        chown(directory.path(), runner.user, runner.user).unwrap();
        Self { runner, directory }
    }

    /// `skyhop lab` with these arguments.
    pub(crate) fn lab(&self, arguments: &[&str]) -> Command {
        let mut command = self.runner.lab(arguments);
        command.env("SKYHOP_STATE_DIR", self.directory.path().join("labs"));
        command.env("SKYHOP", &self.runner.skyhop).env("TESTS", &self.runner.tests);
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.lab(arguments).output().unwrap()
    }

    /// Stdout of a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?} as {:?}: {output:?}", self.runner.user);
        text(&output.stdout)
    }

    /// Starts a lab.
    pub(crate) fn up(&self, name: &str, options: &[&str]) -> Remains {
        self.ok(&[&["up", "geo", "--name", name], options].concat());
        Remains::of(self.supervisor(name))
    }

    /// The process id of a lab's supervisor.
    pub(crate) fn supervisor(&self, name: &str) -> u32 {
        let file = self.directory.path().join("labs").join(name).join("supervisor");
        let text = fs::read_to_string(file).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// A shell script in a lab.
    pub(crate) fn shell(&self, lab: &str, host: &str, script: &str) -> Command {
        self.lab(&["exec", "--lab", lab, host, "--", "sh", "-c", script])
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        let text = self.ok(&["status", name, "--json"]);
        let all: Value = serde_json::from_str(&text).unwrap();
        all[0].clone()
    }

    /// Counters of a lab's link.
    pub(crate) fn link(&self, name: &str, link: &str) -> Value {
        let status = self.status(name);
        let links = status["links"].as_array().unwrap();
        links.iter().find(|each| each["link"] == link).unwrap().clone()
    }

    /// Names of all recorded labs.
    pub(crate) fn remembered(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path().join("labs")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".lock").collect()
    }
}

impl Drop for Stays<'_> {
    fn drop(&mut self) {
        let _ = self.lab(&["down", "--all"]).output();
    }
}
