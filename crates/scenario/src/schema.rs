//! JSON schemas of the files, for editors.

use schemars::{Schema, schema_for};

use crate::gateway::{RawHub, RawSolo, RawTerminal};
use crate::preset::RawPreset;
use crate::scenario::RawScenario;
use crate::{Documents, Published};

/// The schemas by the names of their files in `schemas/`.
pub fn schemas() -> [(&'static str, Schema); 7] {
    [
        ("preset.schema.json", schema_for!(RawPreset)),
        ("scenario.schema.json", schema_for!(RawScenario)),
        ("published.schema.json", schema_for!(Published)),
        ("documents.schema.json", schema_for!(Documents)),
        ("terminal.schema.json", schema_for!(RawTerminal)),
        ("hub.schema.json", schema_for!(RawHub)),
        ("solo.schema.json", schema_for!(RawSolo)),
    ]
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
        for (name, schema) in schemas() {
            let made = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            let path = folder("schemas").join(name);
            if std::env::var("SKYHOP_SCHEMAS").is_ok_and(|wish| wish == "write") {
                fs::write(path, made).unwrap();
                continue;
            }
            let committed = fs::read_to_string(path).unwrap();
            assert!(committed == made, "{name} has changed: run this with SKYHOP_SCHEMAS=write");
        }
    }

    fn validator(name: &str) -> jsonschema::Validator {
        let (_, schema) = schemas().into_iter().find(|(known, _)| *known == name).unwrap();
        jsonschema::validator_for(schema.as_value()).unwrap()
    }

    fn json(text: &str) -> Value {
        serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
    }

    #[test]
    fn every_shipped_file_is_valid() {
        let mut count = [0; 3];
        for directory in ["scenarios", "crates/scenario/presets"] {
            for entry in fs::read_dir(folder(directory)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.to_string_lossy();
                let kind = match directory {
                    _ if !name.ends_with(".toml") => continue,
                    "scenarios" if name.ends_with(".published.toml") => 2,
                    "scenarios" => 1,
                    _ => 0,
                };
                count[kind] += 1;
                let value = json(&fs::read_to_string(&path).unwrap());
                let validator = validator(schemas()[kind].0);
                let errors = validator
                    .iter_errors(&value)
                    .map(|error| format!("{name}: {}: {error}", error.instance_path()));
                assert_eq!(errors.collect::<Vec<_>>(), [""; 0]);
            }
        }
        assert!(count.iter().all(|count| *count >= 8), "{count:?}");
    }

    #[test]
    fn the_list_of_publications_is_valid() {
        let value = json(include_str!("../documents.toml"));
        assert!(validator("documents.schema.json").is_valid(&value));
    }

    #[test]
    fn the_schemas_refuse_what_the_parser_refuses() {
        let scenario = "description = 'x'\ntime = '1 s'\nhop = 'geo'\n";
        let flow = "[[flow]]\nname = 'x'\nkind = 'bulk'\nbytes = '1 kB'\n";
        let good = format!("{scenario}{flow}");
        let validator = validator("scenario.schema.json");
        assert!(validator.is_valid(&json(&good)));
        for (from, to) in [
            ("hop = 'geo'", ""),
            ("'1 s'", "1"),
            ("hop = 'geo'", "hop = { forward = { dealy = '1 ms' } }"),
            ("'bulk'", "'ftp'"),
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
        for (name, text, wrong) in [
            ("terminal", &*terminal, [("hub = ", "hubb = "), ("'tun'", "'tap'"), ("1400", "100")]),
            ("hub", &hub, [("key = 'x'\nw", "w"), ("weight = 3", "weight = 0"), ("22", "true")]),
            ("solo", solo, [("listen", "listn"), ("'early'", "'late'"), ("true", "1")]),
        ] {
            let validator = validator(&format!("{name}.schema.json"));
            assert!(validator.is_valid(&json(text)), "{text}");
            for (from, to) in wrong {
                assert!(text.contains(from), "{from}");
                assert!(!validator.is_valid(&json(&text.replace(from, to))), "{name}: {to}");
            }
        }
    }
}
