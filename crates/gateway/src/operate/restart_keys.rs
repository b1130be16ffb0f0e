//! Settings that a running gateway keeps whatever a reload says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::{Table, Value};
use zeroize::Zeroizing;

use crate::operate::status::Role;

/// Keys of every role.
const COMMON: &[&str] = &["control", "metrics", "proxy", "state"];
/// Keys of hub and terminal.
const OF_A_PAIR: &[&str] = &[
    "dlep",
    "listen",
    "memory",
    "mtu",
    "private_key_file",
    "stream_window",
    "transparent",
    "tunnel",
];
const OF_A_TERMINAL: &[&str] = &["connect_timeout", "hub", "hub_key"];
/// Keys of section `[intercept]`; its other keys can be reloaded.
const OF_INTERCEPT: [(&str, &str); 2] =
    [("answer", "intercept.answer"), ("own_traffic", "intercept.own_traffic")];

/// Keys that take effect only at a restart, with their values as written.
#[derive(Debug, Default)]
pub(super) struct RestartKeys(BTreeMap<&'static str, String>);

impl RestartKeys {
    /// Reads them from a file; empty if it cannot be read.
    pub(super) fn read(file: &Path, role: Role) -> Self {
        let text = Zeroizing::new(fs::read_to_string(file).unwrap_or_default());
        Self::of(&text, role)
    }

    fn of(text: &str, role: Role) -> Self {
        let mut written: Table = text.parse().unwrap_or_default();
        if let Some(Value::String(key)) = written.remove("private_key") {
            drop(Zeroizing::new(key));
        }
        let of_role: [&[&str]; 2] = match role {
            Role::Hub => [OF_A_PAIR, &[]],
            Role::Terminal => [OF_A_PAIR, OF_A_TERMINAL],
            Role::Solo => [&[], &[]],
        };
        let keys = COMMON.iter().chain(of_role.into_iter().flatten());
        let mut fixed: BTreeMap<_, _> =
            keys.filter_map(|key| Some((*key, written.get(*key)?.to_string()))).collect();
        if let Some(Value::Table(section)) = written.get("intercept") {
            fixed.insert("intercept", String::new());
            let inside = OF_INTERCEPT.iter();
            fixed.extend(
                inside.filter_map(|(key, name)| Some((*name, section.get(*key)?.to_string()))),
            );
        }
        Self(fixed)
    }

    /// The keys whose values differ.
    pub(super) fn unlike(&self, other: &Self) -> Vec<&'static str> {
        let keys: BTreeSet<&'static str> = self.0.keys().chain(other.0.keys()).copied().collect();
        keys.into_iter().filter(|key| self.0.get(key) != other.0.get(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: &str = "private_key = \"k\"\nhub = \"h:1\"\nrate = \"1 Mbit/s\"\nmtu = 1400\n\
                            [intercept]\ninterfaces = [\"lan0\"]\n[tunnel]\nname = \"t\"\n";

    fn unlike(role: Role, before: &str, after: &str) -> Vec<&'static str> {
        RestartKeys::of(before, role).unlike(&RestartKeys::of(after, role))
    }

    #[test]
    fn keys_that_hold_are_named_and_others_are_not() {
        for (from, to, named) in [
            ("mtu = 1400", "mtu = 1400", &[][..]),
            ("1 Mbit/s", "2 Mbit/s", &[]),
            ("[\"lan0\"]", "[\"lan1\"]\nbypass = [\"10.0.0.0/8\"]", &[]),
            ("mtu = 1400", "memory = \"1 MB\"", &["memory", "mtu"]),
            ("h:1", "h:2", &["hub"]),
            ("name = \"t\"", "name = \"u\"", &["tunnel"]),
            ("[tunnel]", "own_traffic = true\n[tunnel]", &["intercept.own_traffic"]),
            ("[intercept]\ninterfaces = [\"lan0\"]", "", &["intercept"]),
        ] {
            assert_eq!(unlike(Role::Terminal, TERMINAL, &TERMINAL.replace(from, to)), named);
        }
    }

    #[test]
    fn a_gateway_alone_changes_what_a_pair_cannot() {
        let (before, after) = ("transparent = false", "transparent = true\nstate = \"/x\"");
        assert_eq!(unlike(Role::Hub, before, after), ["state", "transparent"]);
        assert_eq!(unlike(Role::Solo, before, after), ["state"]);
    }

    #[test]
    fn a_private_key_is_not_kept() {
        let fixed = RestartKeys::of(TERMINAL, Role::Terminal);
        assert!(!format!("{fixed:?}").contains("private"), "{fixed:?}");
    }
}
