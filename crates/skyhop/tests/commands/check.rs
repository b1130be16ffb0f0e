//! `skyhop check` and `skyhop schema`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use config::FileKind;
use scenario::ShippedScenario;
use serde_json::Value;

use crate::common::{Runner, assert_refused, text};

fn skyhop(arguments: &[&str]) -> Output {
    Runner::myself().skyhop().args(arguments).output().unwrap()
}

fn check(arguments: &[&str]) -> Command {
    let mut command = Runner::myself().skyhop();
    command.arg("check").args(arguments);
    command
}

/// The result for each file.
fn results(files: &[&Path], options: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = check(&["--json"]).args(options).args(files).output().unwrap();
    let list = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), list)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn toml_files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect()
}

#[test]
fn every_shipped_scenario_preset_and_list_is_valid_and_recognised() {
    let mut files = [toml_files("scenarios"), toml_files("crates/scenario/presets")].concat();
    files.push(repository().join("crates/scenario/documents.toml"));
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let (code, results) = results(&paths, &[]);
    let wrong: Vec<_> = results.iter().filter(|file| file["valid"] != true).collect();
    assert!(code == Some(0) && wrong.is_empty(), "{wrong:#?}");
    assert_eq!(results.len(), files.len());
    let count = |kind: &str| results.iter().filter(|file| file["kind"] == kind).count();
    assert_eq!(count("scenario"), ShippedScenario::all().len());
    assert_eq!(count("preset"), scenario::Preset::built_in().count());
    assert_eq!(count("documents"), 1);
    assert!(count("published") > 30);
}

#[test]
fn an_invalid_file_is_named_with_line_and_key_and_the_others_are_checked_too() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let geo = text(&skyhop(&["lab", "show", "geo"]).stdout);
    let good = write("own.toml", &geo);
    let bad = write("bad.toml", &geo.replacen("\nrate = ", "\nrat = ", 1));
    let broken = write("broken.toml", "forward = [\n");
    let nothing = write("nothing.toml", "colour = \"red\"\n");
    let missing = directory.path().join("missing.toml");
    let files = [&*good, &*bad, &*broken, &*nothing, &*missing];
    let (code, results) = results(&files, &[]);
    assert_eq!(code, Some(1));
    let line = geo.lines().position(|line| line.starts_with("rate = ")).unwrap() + 1;
    assert_eq!(results[0]["valid"], true);
    assert_eq!((&results[0]["kind"], &results[0]["line"]), (&"preset".into(), &Value::Null));
    assert_eq!(results[1]["line"], line);
    assert_eq!(results[1]["key"], "forward.rat");
    assert_eq!((&results[2]["kind"], &results[2]["valid"]), (&Value::Null, &false.into()));
    for (result, said) in results[2..].iter().zip(["broken.toml:", "#:schema", "missing.toml"]) {
        assert!(result["error"].as_str().unwrap().contains(said), "{result}");
    }

    let output = check(&[]).args(files).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(said.lines().count(), files.len(), "{said}");
    assert!(said.contains("own.toml: valid, preset"), "{said}");
    assert!(said.contains(&format!("bad.toml:{line}: unknown key `rat` in forward")), "{said}");
}

#[test]
fn a_published_value_of_a_case_that_the_scenario_does_not_have_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let copy = |name: &str, change: (&str, &str)| {
        let text = fs::read_to_string(repository().join("scenarios").join(name)).unwrap();
        assert!(change.0.is_empty() || text.contains(change.0));
        let path = directory.path().join(name);
        fs::write(&path, text.replacen(change.0, change.1, 1)).unwrap();
        path
    };
    let published = copy("enac-table2.published.toml", ("case = \"", "case = \"no-such-"));
    // Alone, nothing shows that the case is wrong.
    assert_eq!(results(&[&published], &[]).0, Some(0));
    copy("enac-table2.toml", ("", ""));
    let (code, results) = results(&[&published], &[]);
    assert_eq!((code, &results[0]["key"]), (Some(1), &"output.0.points.0.case".into()));
    assert!(results[0]["line"].as_u64().is_some(), "{results:?}");
}

#[test]
fn a_configuration_is_checked_as_at_a_start_and_without_its_key_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let key = text(&skyhop(&["keygen"]).stdout);
    let public = key.rsplit(' ').next().unwrap();
    let path = directory.path().join("ship.toml");
    let terminal = format!(
        "private_key_file = \"ship.key\"\nhub = \"hub.example.net:5900\"\nhub_key = \"{public}\"\n\
         rate = \"auto\"\n[intercept]\ninterfaces = [\"lan0\"]\n"
    );
    fs::write(&path, &terminal).unwrap();
    let (code, found) = results(&[&path], &[]);
    assert_eq!((code, &found[0]["key"]), (Some(1), &"private_key_file".into()));
    assert_eq!((&found[0]["kind"], &found[0]["line"]), (&"terminal".into(), &1.into()));
    assert_eq!(results(&[&path], &["--without-keys"]).0, Some(0));
    let (code, found) = results(&[&path], &["--without-keys", "--kind", "hub"]);
    assert_eq!(code, Some(1));
    assert!(found[0]["error"].as_str().unwrap().contains("configuration of a terminal, not"));
}

#[test]
fn a_key_that_has_no_effect_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("solo.toml");
    fs::write(&path, "[intercept]\ninterfaces = [\"lan0\"]\n[wan]\ninitial_window = 20\n").unwrap();
    let (code, found) = results(&[&path], &[]);
    assert_eq!((code, &found[0]["valid"]), (Some(0), &true.into()));
    let warning = found[0]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("solo.toml:4: wan.initial_window has no effect"), "{warning}");
    let said = text(&check(&[]).arg(&path).output().unwrap().stdout);
    assert_eq!(said.lines().next(), Some(warning));
}

#[test]
fn schemas_are_printed_and_written_as_they_are_in_the_repository() {
    let directory = tempfile::tempdir().unwrap();
    let written = directory.path().join("schemas");
    let done = skyhop(&["schema", "--write", written.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for kind in FileKind::ALL {
        let committed = repository().join("schemas").join(kind.schema_file());
        let committed = fs::read_to_string(committed).unwrap();
        let printed = skyhop(&["schema", kind.name()]).stdout;
        assert_eq!(String::from_utf8(printed).unwrap(), committed, "{kind}");
        assert_eq!(fs::read_to_string(written.join(kind.schema_file())).unwrap(), committed);
    }
    assert_refused(&skyhop(&["schema", "router"]), &["router", "terminal"]);
    assert_refused(&skyhop(&["schema"]), &["KIND"]);
}

#[test]
fn a_pipe_is_checked_if_its_kind_is_given() {
    let preset = repository().join("crates/scenario/presets/geo.toml");
    let piped = |options: &[&str]| {
        let mut cat = Command::new("cat").arg(&preset).stdout(Stdio::piped()).spawn().unwrap();
        let read = cat.stdout.take().unwrap();
        let done = check(options).arg("/dev/stdin").stdin(read).output().unwrap();
        cat.wait().unwrap();
        (done.status.code(), text(&done.stdout))
    };
    let (code, said) = piped(&[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot read /dev/stdin") && said.contains("--kind"), "{said}");
    let valid = "/dev/stdin: valid, preset".to_owned();
    assert_eq!(piped(&["--kind", "preset"]), (Some(0), valid));
}
