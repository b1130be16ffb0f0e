//! The scenarios that come with skyhop (directory `scenarios`), compiled in.

use crate::{Published, Scenario};
use config::FileError;

/// A scenario that is compiled into the program.
#[derive(Debug)]
pub struct ShippedScenario {
    /// Name of its file without `.toml`.
    pub name: &'static str,
    text: &'static str,
    published: Option<&'static str>,
}

macro_rules! shipped {
    ($name:literal) => {
        ShippedScenario { published: None, ..shipped!($name, text) }
    };
    ($name:literal, published) => {
        ShippedScenario {
            published: Some(include_str!(concat!("../../../scenarios/", $name, ".published.toml"))),
            ..shipped!($name, text)
        }
    };
    ($name:literal, text) => {
        ShippedScenario {
            name: $name,
            text: include_str!(concat!("../../../scenarios/", $name, ".toml")),
            published: None,
        }
    };
}

/// All scenarios, in alphabetical order.
static ALL: [ShippedScenario; 41] = [
    shipped!("caini-dtn", published),
    shipped!("dumbbell"),
    shipped!("enac-multi", published),
    shipped!("enac-table1", published),
    shipped!("enac-table2", published),
    shipped!("geo"),
    shipped!("itu-buffer", published),
    shipped!("itu-fig19", published),
    shipped!("itu-fig27", published),
    shipped!("itu-fig40", published),
    shipped!("itu-fig45", published),
    shipped!("itu-figs13-14", published),
    shipped!("itu-figs15-18", published),
    shipped!("itu-figs28-34", published),
    shipped!("itu-figs7-10", published),
    shipped!("itu-hops"),
    shipped!("itu-network", published),
    shipped!("itu-single", published),
    shipped!("itu-star"),
    shipped!("itu-table10", published),
    shipped!("itu-table14", published),
    shipped!("itu-table14-today"),
    shipped!("itu-table23", published),
    shipped!("itu-tables2-4", published),
    shipped!("itu-tables5-7", published),
    shipped!("itu-tables8-9", published),
    shipped!("opnet-figs4-7", published),
    shipped!("opnet-mixed"),
    shipped!("slacp-fig5", published),
    shipped!("slacp-fig6", published),
    shipped!("slacp-fig7", published),
    shipped!("slacp-fig8", published),
    shipped!("slacp-fig9", published),
    shipped!("slacp-section4-2", published),
    shipped!("slacp-section4-3", published),
    shipped!("slacp-split"),
    shipped!("slacp-tunnel"),
    shipped!("voice-dama"),
    shipped!("wadekar-figs3-4", published),
    shipped!("wadekar-tables1-3", published),
    shipped!("wadekar-tables4-6", published),
];

macro_rules! alone {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../scenarios/", $name, ".published.toml")))
    };
}

/// Names and texts of published results without a scenario, in alphabetical order.
static ALONE: [(&str, &str); 3] =
    [alone!("itu-table1"), alone!("itu-table17"), alone!("itu-tables11-13")];

impl ShippedScenario {
    /// Returns all scenarios, in alphabetical order.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// Returns the scenario of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|shipped| shipped.name == name)
    }

    /// Returns names and contents of published results without a scenario, such as conditions only.
    ///
    /// # Errors
    /// None: a test parses every one.
    pub fn published_alone() -> impl Iterator<Item = (&'static str, Result<Published, FileError>)> {
        ALONE
            .iter()
            .map(|(name, text)| (*name, Published::parse(&format!("{name}.published.toml"), text)))
    }

    /// Parses the scenario. It names only built-in presets and traces.
    ///
    /// # Errors
    /// None: a test parses every one.
    pub fn scenario(&self) -> Result<Scenario, FileError> {
        Scenario::parse(&format!("{}.toml", self.name), self.text)
    }

    /// Parses the published values to compare with, if there are any.
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
        let alone = ALONE.iter().map(|(name, _)| format!("{name}.published.toml"));
        assert_eq!(compiled_in.chain(alone).collect::<BTreeSet<_>>(), on_disk);
        assert!(ALL.is_sorted_by_key(|shipped| shipped.name));
    }

    #[test]
    fn every_one_is_valid_and_found_by_its_name() {
        for shipped in ShippedScenario::all() {
            let scenario = shipped.scenario().unwrap();
            assert!(!scenario.cases.is_empty(), "{}", shipped.name);
            if let Some(text) = shipped.published {
                Published::parse_for(shipped.name, text, Some(&scenario)).unwrap();
            }
            assert_eq!(ShippedScenario::find(shipped.name).unwrap().name, shipped.name);
        }
        assert!(ShippedScenario::find("enac-table3").is_none());
        for (name, published) in ShippedScenario::published_alone() {
            assert!(published.unwrap().output.is_empty(), "{name}");
        }
    }
}
