//! SECURITY.md names the test of each promise.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::pages::repository;

/// The names of the tests in all Rust sources below a directory.
fn tests_below(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let names = entries.map(|path| match path.extension() {
        Some(kind) if kind == "rs" => tests_in(&fs::read_to_string(path).unwrap()),
        _ if path.is_dir() => tests_below(&path),
        _ => BTreeSet::new(),
    });
    names.flatten().collect()
}

/// The names of the tests in a source, without those that are ignored.
fn tests_in(source: &str) -> BTreeSet<String> {
    let (mut names, mut attributes) = (BTreeSet::new(), Vec::new());
    for line in source.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let has = |start: &str| attributes.iter().any(|it| it.starts_with(start));
        let is_test = (has("#[test]") || has("#[tokio::test")) && !has("#[ignore");
        let function = line.trim_start_matches("async ").strip_prefix("fn ");
        let name = function.and_then(|rest| rest.split_once('(')).filter(|_| is_test);
        names.extend(name.map(|(name, _)| name.to_owned()));
        attributes.clear();
    }
    names
}

#[test]
fn every_test_that_security_names_is_there() {
    let page = fs::read_to_string(repository().join("SECURITY.md")).unwrap();
    let (_, table) = page.split_once("| promise | test |").unwrap();
    // Sections of the configuration are in brackets.
    let code = table.split('`').skip(1).step_by(2);
    let named: Vec<&str> = code.filter(|name| !name.starts_with('[')).collect();
    assert!(named.len() > 30, "{named:?}");
    let tests = tests_below(&repository().join("crates"));
    for name in named {
        assert!(tests.contains(name), "there is no test {name} that runs");
    }
}

#[test]
fn a_helper_a_comment_and_an_ignored_test_are_no_tests() {
    let source = "#[test]\n/// Why.\nfn one() {}\nfn helper() {}\n#[test]\n#[ignore]\nfn ignored() {}\n\
                  // #[test]\n// fn comment() {}\n#[tokio::test(start_paused = true)]\nasync fn two() {}";
    let names: Vec<String> = tests_in(source).into_iter().collect();
    assert_eq!(names, ["one", "two"]);
}
