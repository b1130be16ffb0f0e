//! Recognition of files by their keys and schema lines.

use std::path::Path;

use crate::{Preset, Published, Scenario};
use config::{ConfigFile, FileKind};

const TERMINAL: &str = "hub = \"hub.example.net:5900\"\nhub_key = \"x\"\n[intercept]\n";
const HUB: &str = "private_key_file = \"x\"\n[[terminal]]\nname = \"ship\"\n";
const SOLO: &str = "[intercept]\ninterfaces = [\"lan0\"]\n[wan]\n";
const SCENARIO: &str = "description = \"x\"\ntime = \"1 s\"\nhop = \"geo\"\n";
const PUBLISHED: &str = "document = \"x\"\n[[output]]\n";

#[test]
fn a_file_of_another_kind_is_named_as_what_it_is() {
    let geo = Preset::load("geo").unwrap().to_string();
    let others = [
        (TERMINAL, "the configuration of a terminal"),
        (HUB, "the configuration of a hub"),
        (SOLO, "the configuration of a single gateway"),
    ];
    let files = [
        (&geo[..], "a link preset"),
        (SCENARIO, "a scenario"),
        (PUBLISHED, "a list of published results"),
    ];
    for (text, found) in files.into_iter().chain(others) {
        for (told, expected) in [
            (Preset::from_text(text).map(drop), "a link preset"),
            (Scenario::parse("own.toml", text).map(drop), "a scenario"),
            (Published::parse("own.toml", text).map(drop), "a list of published results"),
        ] {
            let told = told.map_err(|error| error.to_string());
            let confused = format!("own.toml: this is {found}, not {expected}");
            assert_eq!(told == Err(confused), found != expected, "{found} {expected} {told:?}");
        }
    }
}

#[test]
fn roles_are_recognised_by_the_keys_that_only_they_have() {
    let path = Path::new("own.toml");
    let key = |_| Ok::<_, &str>(slacp::KeyPair::from_private([7; 32]));
    let error = |expected, text| {
        let file = ConfigFile { path, text, regular: true };
        let told = match expected {
            FileKind::Hub => file.hub(key).map(drop),
            FileKind::Terminal => file.terminal(key).map(drop),
            _ => file.solo().map(drop),
        };
        told.unwrap_err().to_string()
    };
    for (found, text) in
        [(FileKind::Terminal, TERMINAL), (FileKind::Hub, HUB), (FileKind::Solo, SOLO)]
    {
        assert_eq!(FileKind::find("own.toml", text).unwrap(), found);
        for expected in [FileKind::Terminal, FileKind::Hub, FileKind::Solo] {
            let confused = format!("own.toml: this is {found}, not {expected}");
            let fits = expected == found;
            assert!(fits || error(expected, text) == confused, "{found} {expected}");
        }
    }
    // Nothing in these shows which side of a pair they are.
    let text = "rate = \"auto\"\nprivate_key = \"x\"\n[intercept]\ninterfaces = [\"lan0\"]\n";
    let told = FileKind::find("own.toml", text).unwrap_err().to_string();
    assert!(told.starts_with("own.toml: nothing shows what kind of file this is"), "{told}");
    assert!(error(FileKind::Terminal, text).starts_with("own.toml: hub is missing"));
    assert!(error(FileKind::Hub, text).starts_with("own.toml: terminal is missing"));
    assert!(error(FileKind::Solo, text).starts_with("own.toml:2: unknown key `private_key`"));
}

#[test]
fn a_file_with_a_key_of_the_wanted_kind_is_one_with_an_unknown_key() {
    let both = format!("{SCENARIO}[forward]\n");
    let told = Scenario::parse("own.toml", &both).unwrap_err().to_string();
    assert!(told.starts_with("own.toml:4: unknown key `forward`, expected one of "), "{told}");
}

#[test]
fn the_schema_line_says_what_a_file_is_before_its_keys() {
    for kind in FileKind::ALL {
        let text = format!("# Mine.\n{}broken =\n", kind.schema_line("../schemas/"));
        assert_eq!(FileKind::find("own.toml", &text).unwrap(), kind);
    }
    let told = |text: &str| FileKind::find("own.toml", text).unwrap_err().to_string();
    assert!(told("broken =\n").starts_with("own.toml:1: "), "{}", told("broken =\n"));
    assert!(told("#:schema ../other.schema.json\n").contains("nothing shows"));
    // It counts only above the keys, where editors look for it.
    assert!(told("x = 1\n#:schema hub.schema.json\n").contains("nothing shows"));
}
