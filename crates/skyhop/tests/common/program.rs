//! Programs that run in a lab, on behalf of a test outside it.
//!
//! They are functions of the test binary, so that they are never older than the test: its test
//! `program` runs the one that an environment variable names. In an ordinary run it checks only that
//! names are unique.

use std::collections::BTreeSet;

/// Names the program to run.
const VARIABLE: &str = "SKYHOP_TEST_PROGRAM";

/// A name, and what it stands for. A program fails by panicking.
pub(crate) type Program = (&'static str, fn());

/// A table of functions with their paths as names.
macro_rules! programs {
    ($($path:path),* $(,)?) => {
        &[$((stringify!($path), $path as fn())),*]
    };
}
pub(crate) use programs;

/// The shell command that runs the program `name` in a lab.
pub(crate) fn command(name: &str) -> String {
    format!("env {VARIABLE}={name} \"$TESTS\" --exact program --nocapture")
}

/// Runs the program that [`command`] names, if it has started this process.
///
/// # Panics
/// If the program fails, none has this name, or two have the same.
pub(crate) fn run(programs: &[Program]) {
    let names: BTreeSet<&str> = programs.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), programs.len(), "each program has a name of its own");
    let Ok(name) = std::env::var(VARIABLE) else { return };
    let program = programs.iter().find(|(each, _)| *each == name);
    let (_, program) = program.unwrap_or_else(|| panic!("there is no program {name}"));
    program();
}
