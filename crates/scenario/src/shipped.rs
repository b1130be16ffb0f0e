//! The scenarios that come with skyhop (directory `scenarios`), compiled in.

use crate::{FileError, Published, Scenario};

/// A scenario that is part of the program, found by its name.
#[derive(Debug)]
pub struct Shipped {
    /// The name of its file without `.toml`.
    pub name: &'static str,
    text: &'static str,
    published: Option<&'static str>,
}

macro_rules! shipped {
    ($name:literal) => {
        Shipped { published: None, ..shipped!($name, text) }
    };
    ($name:literal, published) => {
        Shipped {
            published: Some(include_str!(concat!("../../../scenarios/", $name, ".published.toml"))),
            ..shipped!($name, text)
        }
    };
    ($name:literal, text) => {
        Shipped {
            name: $name,
            text: include_str!(concat!("../../../scenarios/", $name, ".toml")),
            published: None,
        }
    };
}

/// In alphabetical order.
static ALL: [Shipped; 17] = [
    shipped!("dumbbell"),
    shipped!("enac-table1", published),
    shipped!("enac-table2", published),
    shipped!("itu-buffer", published),
    shipped!("itu-network", published),
    shipped!("itu-single", published),
    shipped!("itu-star"),
    shipped!("opnet", published),
    shipped!("slacp-dama"),
    shipped!("slacp-fig5", published),
    shipped!("slacp-fig8"),
    shipped!("slacp-fig9"),
    shipped!("slacp-under-ip", published),
    shipped!("voice-dama"),
    shipped!("vsat-vbdc", published),
    shipped!("wadekar-buffer", published),
    shipped!("wadekar-iw", published),
];

impl Shipped {
    /// All of them, in alphabetical order.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The one of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|shipped| shipped.name == name)
    }

    /// The scenario. It names only presets and traces that are built in.
    ///
    /// # Errors
    /// None: a test parses every one.
    pub fn scenario(&self) -> Result<Scenario, FileError> {
        Scenario::parse(&format!("{}.toml", self.name), self.text)
    }

    /// The published values to compare with, if there are any.
    ///
    /// # Errors
    /// None: a test parses every one.
    pub fn published(&self) -> Result<Option<Published>, FileError> {
        let origin = format!("{}.published.toml", self.name);
        self.published.map(|text| Published::parse(&origin, text)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A file that is added to the directory must be added here.
    #[test]
    fn every_file_of_the_directory_is_compiled_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let on_disk: BTreeSet<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".toml"))
            .collect();
        let compiled_in = ALL.iter().flat_map(|shipped| {
            let published = shipped.published.map(|_| format!("{}.published.toml", shipped.name));
            [Some(format!("{}.toml", shipped.name)), published].into_iter().flatten()
        });
        assert_eq!(compiled_in.collect::<BTreeSet<_>>(), on_disk);
        assert!(ALL.is_sorted_by_key(|shipped| shipped.name));
    }

    #[test]
    fn every_one_is_valid_and_found_by_its_name() {
        for shipped in Shipped::all() {
            assert!(!shipped.scenario().unwrap().cases.is_empty(), "{}", shipped.name);
            shipped.published().unwrap();
            assert_eq!(Shipped::find(shipped.name).unwrap().name, shipped.name);
        }
        assert!(Shipped::find("enac-table3").is_none());
    }
}
