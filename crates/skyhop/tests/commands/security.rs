//! SECURITY.md names the test of each promise.

use std::fs;
use std::path::Path;

use crate::pages::repository;

/// All Rust sources below a directory.
fn sources(directory: &Path) -> String {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.map(|path| match path.extension() {
        Some(kind) if kind == "rs" => fs::read_to_string(path).unwrap(),
        _ if path.is_dir() => sources(&path),
        _ => String::new(),
    });
    texts.collect()
}

#[test]
fn every_test_that_security_names_is_there() {
    let page = fs::read_to_string(repository().join("SECURITY.md")).unwrap();
    let (_, table) = page.split_once("| promise | test |").unwrap();
    // Sections of the configuration are in brackets.
    let code = table.split('`').skip(1).step_by(2);
    let named: Vec<&str> = code.filter(|name| !name.starts_with('[')).collect();
    assert!(named.len() > 30, "{named:?}");
    let all = sources(&repository().join("crates"));
    for name in named {
        assert!(all.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}
