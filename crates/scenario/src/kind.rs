//! The kinds of files that skyhop reads, and how to tell them apart.

use core::fmt;

use toml::de::DeTable;

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A link preset.
    Preset,
    /// A scenario.
    Scenario,
    /// Published values.
    Published,
    /// The configuration of a terminal.
    Terminal,
    /// The configuration of a hub.
    Hub,
    /// The configuration of a single gateway.
    Solo,
}

impl FileKind {
    /// Top-level keys by which each kind is recognised; the first kind that has one is it.
    const SIGNS: [(Self, &[&str]); 6] = [
        (Self::Scenario, &["hop", "flow", "case", "server-side", "client-side", "gateways"]),
        (Self::Preset, &["forward", "return", "terrestrial"]),
        (Self::Published, &["value", "claim"]),
        (Self::Terminal, &["hub", "hub_key", "accept"]),
        (Self::Hub, &["terminal", "egress", "mesh", "limits"]),
        (Self::Solo, &["lan", "wan", "intercept", "proxy"]),
    ];

    /// What `file` appears to be if not `self`.
    pub(crate) fn mistaken_for(self, file: &DeTable<'_>) -> Option<Self> {
        let shows = |(_, signs): &&(Self, &[&str])| signs.iter().any(|key| file.contains_key(*key));
        let shown = || Self::SIGNS.iter().filter(shows).map(|(kind, _)| *kind);
        if shown().any(|kind| kind == self) { None } else { shown().next() }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preset => "a link preset",
            Self::Scenario => "a scenario",
            Self::Published => "a list of published values",
            Self::Terminal => "the configuration of a terminal",
            Self::Hub => "the configuration of a hub",
            Self::Solo => "the configuration of a single gateway",
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Preset, Published, Scenario};

    const TERMINAL: &str = "hub = \"hub.example.net:5900\"\nhub_key = \"x\"\n[intercept]\n";
    const HUB: &str = "private_key_file = \"x\"\n[[terminal]]\nname = \"ship\"\n";
    const SOLO: &str = "[intercept]\ninterfaces = [\"lan0\"]\n[wan]\n";
    const SCENARIO: &str = "description = \"x\"\ntime = \"1 s\"\nhop = \"geo\"\n";
    const PUBLISHED: &str = "source = \"x\"\n[[value]]\n";

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
            (PUBLISHED, "a list of published values"),
        ];
        for (text, found) in files.into_iter().chain(others) {
            for (told, expected) in [
                (Preset::from_text(text).map(drop), "a link preset"),
                (Scenario::parse("own.toml", text).map(drop), "a scenario"),
                (Published::parse("own.toml", text).map(drop), "a list of published values"),
            ] {
                let told = told.map_err(|error| error.to_string());
                let confused = format!("own.toml: this is {found}, not {expected}");
                assert_eq!(told == Err(confused), found != expected, "{found} {expected} {told:?}");
            }
        }
    }

    #[test]
    fn a_file_with_a_key_of_the_wanted_kind_is_one_with_an_unknown_key() {
        let both = format!("{SCENARIO}[forward]\n");
        let told = Scenario::parse("own.toml", &both).unwrap_err().to_string();
        assert!(told.starts_with("own.toml:4: unknown key `forward`, expected one of "), "{told}");
    }
}
