//! JSON schemas of the files, for editors.

use config::FileKind;
use schemars::schema_for;

use crate::preset::RawPreset;
use crate::scenario::RawScenario;
use crate::{Documents, Published};

/// Returns the JSON schema of files of this kind, as text. The directory `schemas` has it under the name
/// [`FileKind::schema_file`].
pub fn schema(kind: FileKind) -> String {
    let schema = match kind {
        FileKind::Preset => schema_for!(RawPreset),
        FileKind::Scenario => schema_for!(RawScenario),
        FileKind::Published => schema_for!(Published),
        FileKind::Documents => schema_for!(Documents),
        kind => return config::schema_text(kind).expect("all others are files of gateways"),
    };
    config::file::schema_text(&schema)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use serde_json::Value;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
    }

    /// `SKYHOP_SCHEMAS=write cargo test -p skyhop-scenario --lib schema` rewrites the files.
    #[test]
    fn the_committed_schemas_are_those_of_the_types() {
        for kind in FileKind::ALL {
            let (name, made) = (kind.schema_file(), schema(kind));
            let path = folder("schemas").join(&name);
            if std::env::var("SKYHOP_SCHEMAS").is_ok_and(|wish| wish == "write") {
                fs::write(path, made).unwrap();
                continue;
            }
            let committed = fs::read_to_string(path).unwrap();
            assert!(committed == made, "{name} has changed: run this with SKYHOP_SCHEMAS=write");
        }
    }

    fn validator(kind: FileKind) -> jsonschema::Validator {
        let schema: Value = serde_json::from_str(&schema(kind)).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    }

    fn json(text: &str) -> Value {
        serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
    }

    /// All TOML of the repository that is a file of skyhop.
    fn shipped() -> Vec<PathBuf> {
        let mut open = vec![folder("scenarios"), folder("crates/scenario"), folder("examples")];
        let mut found = Vec::new();
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy();
                match name.ends_with(".toml") {
                    _ if path.is_dir() && name != "src" => open.push(path),
                    true if !["Cargo.toml", "clippy.toml"].contains(&&*name) => found.push(path),
                    _ => {}
                }
            }
        }
        found
    }

    #[test]
    fn every_shipped_file_begins_with_the_path_of_its_schema_and_fits_it() {
        let mut count = std::collections::BTreeMap::new();
        for path in shipped() {
            let text = fs::read_to_string(&path).unwrap();
            let name = path.display();
            let line = text.lines().next().unwrap();
            let schema = line.strip_prefix("#:schema ").unwrap_or_else(|| panic!("{name}: {line}"));
            let schema = path.parent().unwrap().join(schema).canonicalize().unwrap();
            let kind = FileKind::find("", &text).unwrap();
            let expected = folder("schemas").join(kind.schema_file());
            assert_eq!(schema, expected.canonicalize().unwrap(), "{name}");
            // The line must not hide that the keys show another kind.
            let keys = text.split_once('\n').unwrap().1;
            assert_eq!(FileKind::find("", keys).unwrap(), kind, "{name}");
            let value = json(&text);
            let validator = validator(kind);
            let errors = validator
                .iter_errors(&value)
                .map(|error| format!("{name}: {}: {error}", error.instance_path()));
            assert_eq!(errors.collect::<Vec<_>>(), [""; 0]);
            *count.entry(kind.name()).or_insert(0) += 1;
        }
        assert!(count["preset"] >= 17 && count["scenario"] >= 35, "{count:?}");
        assert!(count["published"] >= 8 && count["documents"] == 1, "{count:?}");
    }

    #[test]
    fn the_schemas_refuse_what_the_parser_refuses() {
        let scenario = "description = 'x'\ntime = '1 s'\nhop = 'geo'\n";
        let flow = "[[flow]]\nname = 'x'\nkind = 'bulk'\nbytes = '1 kB'\n";
        let good = format!("{scenario}{flow}");
        let validator = validator(FileKind::Scenario);
        assert!(validator.is_valid(&json(&good)));
        for (from, to) in [
            ("hop = 'geo'", ""),
            ("'1 s'", "1"),
            ("hop = 'geo'", "hop = { forward = { dealy = '1 ms' } }"),
            ("'bulk'", "'gopher'"),
            ("bytes", "byte"),
            ("name = 'x'", "name = 'a flow'"),
            ("name = 'x'", "name = 'x'\ncount = 0"),
        ] {
            let wrong = good.replace(from, to);
            assert!(!validator.is_valid(&json(&wrong)), "{wrong}");
            assert!(crate::Scenario::parse("x.toml", &wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_schemas_of_gateways_accept_their_files_and_name_their_keys() {
        const HOP: &str = "private_key = 'x'\nrate = 'auto'\nmtu = 1400\nlog = 'warn'\n";
        const TUNNEL: &str = "[tunnel]\ndevice = 'tun'\n[[policy]]\nports = [22, 'udp/443']\n\
                              action = 'bypass'\n[intercept]\ninterfaces = ['lan0']\n";
        let terminal = format!("hub = 'h:5900'\nhub_key = 'x'\n{HOP}{TUNNEL}");
        let hub = format!("{HOP}{TUNNEL}[[terminal]]\nname = 'ship'\nkey = 'x'\nweight = 3\n");
        let solo = "[proxy]\nlisten = '[::1]:1080'\nanswer = 'early'\n[wan]\nquick_ack = true\n";
        for (kind, text, wrong) in [
            (
                FileKind::Terminal,
                &*terminal,
                [("hub = ", "hubb = "), ("'tun'", "'tap'"), ("1400", "100")],
            ),
            (
                FileKind::Hub,
                &hub,
                [("key = 'x'\nw", "w"), ("weight = 3", "weight = 0"), ("22", "true")],
            ),
            (FileKind::Solo, solo, [("listen", "listn"), ("'early'", "'late'"), ("true", "1")]),
        ] {
            let validator = validator(kind);
            assert!(validator.is_valid(&json(text)), "{text}");
            for (from, to) in wrong {
                assert!(text.contains(from), "{from}");
                assert!(!validator.is_valid(&json(&text.replace(from, to))), "{kind}: {to}");
            }
        }
    }
}
