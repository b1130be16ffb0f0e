//! Keys that take effect only when a gateway restarts, not when it reloads its file.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use crate::file::FileKind;

/// Restart keys of every role.
const COMMON: &[&str] = &["control", "metrics", "proxy", "state"];
/// Restart keys of hub and terminal.
const OF_A_PAIR: &[&str] = &[
    "bundles",
    "burst",
    "dlep",
    "dns",
    "http",
    "link",
    "listen",
    "memory",
    "mtu",
    "probe_share",
    "stream_window",
    "transparent",
    "tunnel",
];
const OF_A_HUB: &[&str] =
    &["listen_tcp", "listen_tcp_certificate", "listen_tcp_key", "shared_address", "workers"];
const OF_A_TERMINAL: &[&str] =
    &["connect_timeout", "hub", "hub_key", "hub_order", "hub_tcp", "other_hub", "private_key_file"];
/// Restart keys of section `[intercept]`; its other keys can be reloaded.
const OF_INTERCEPT: [(&str, &str); 2] =
    [("answer", "intercept.answer"), ("own_traffic", "intercept.own_traffic")];

/// Restart keys of section `[wan]` of a solo gateway; its other keys can be reloaded.
const OF_WAN: [(&str, &str); 4] =
    [("device", "wan.device"), ("mtu", "wan.mtu"), ("name", "wan.name"), ("stack", "wan.stack")];

/// The keys of a file that take effect only at a restart, with their values as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestartKeys(BTreeMap<&'static str, String>);

impl RestartKeys {
    /// Finds the restart keys in the text of a gateway's file; empty if it is not TOML.
    pub fn of(text: &str, kind: FileKind) -> Self {
        let Ok(file) = DeTable::parse(text) else { return Self::default() };
        // Only these are copied: the text may contain a private key.
        let mut written = file.into_inner();
        let of_kind: [&[&str]; 2] = match kind {
            FileKind::Hub => [OF_A_PAIR, OF_A_HUB],
            FileKind::Terminal => [OF_A_PAIR, OF_A_TERMINAL],
            _ => [&[], &[]],
        };
        let keys = COMMON.iter().chain(of_kind.into_iter().flatten());
        let mut found: BTreeMap<_, _> = keys
            .filter_map(|key| Some((*key, value(written.remove(*key)?)?.to_string())))
            .collect();
        let intercept = written.remove("intercept").and_then(value);
        if let Some(section) = intercept.as_ref().and_then(Value::as_table) {
            // To add or remove the section takes a restart, too.
            found.insert("intercept", String::new());
            let inside = OF_INTERCEPT.iter();
            found.extend(
                inside.filter_map(|(key, name)| Some((*name, section.get(*key)?.to_string()))),
            );
        }
        let wan = written.remove("wan").filter(|_| kind == FileKind::Solo).and_then(value);
        if let Some(section) = wan.as_ref().and_then(Value::as_table) {
            found.extend(
                OF_WAN
                    .iter()
                    .filter_map(|(key, name)| Some((*name, section.get(*key)?.to_string()))),
            );
        }
        Self(found)
    }

    /// Returns the keys whose values differ.
    pub fn differing(&self, other: &Self) -> Vec<&'static str> {
        let keys: BTreeSet<&'static str> = self.0.keys().chain(other.0.keys()).copied().collect();
        keys.into_iter().filter(|key| self.0.get(key) != other.0.get(key)).collect()
    }
}

/// The keys of a gateway's file with hashes of their values, to detect changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenKeys(BTreeMap<String, u64>);

impl WrittenKeys {
    /// Collects the keys of a file; empty if it is not TOML. Only hashes of the values are kept, because
    /// one may be a private key.
    pub fn of(text: &str) -> Self {
        let Ok(file) = DeTable::parse(text) else { return Self::default() };
        let mut found = BTreeMap::new();
        for (key, written) in file.into_inner() {
            let key = key.into_inner().into_owned();
            if let DeValue::String(secret) = written.get_ref() {
                found.insert(key, hash_of(secret));
                continue;
            }
            match value(written) {
                Some(Value::Table(section)) => {
                    let inner = section.into_iter();
                    found.extend(inner.map(|(inner, value)| {
                        (format!("{key}.{inner}"), hash_of(&value.to_string()))
                    }));
                }
                Some(value) => drop(found.insert(key, hash_of(&value.to_string()))),
                None => {}
            }
        }
        Self(found)
    }

    /// Returns the keys whose values differ.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        keys.into_iter().filter(|key| self.0.get(*key) != other.0.get(*key)).cloned().collect()
    }
}

fn hash_of(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn value(written: Spanned<DeValue<'_>>) -> Option<Value> {
    Value::deserialize(ValueDeserializer::from(written)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: &str = "private_key = \"k\"\nhub = \"h:1\"\nrate = \"1 Mbit/s\"\nmtu = 1400\n\
                            [intercept]\ninterfaces = [\"lan0\"]\n[tunnel]\nname = \"t\"\n";

    fn unlike(kind: FileKind, before: &str, after: &str) -> Vec<&'static str> {
        RestartKeys::of(before, kind).differing(&RestartKeys::of(after, kind))
    }

    #[test]
    fn changed_keys_are_named_by_section() {
        let unlike = |after: &str| WrittenKeys::of(TERMINAL).differing(&WrittenKeys::of(after));
        assert_eq!(unlike(&format!("# a comment\n{TERMINAL}")), [""; 0]);
        let after = TERMINAL.replace("1 Mbit/s", "2 Mbit/s").replace("lan0", "lan1");
        assert_eq!(unlike(&after), ["intercept.interfaces", "rate"]);
        assert_eq!(unlike(&TERMINAL.replace("\"k\"", "\"l\"")), ["private_key"]);
        assert!(!format!("{:?}", WrittenKeys::of(TERMINAL)).contains("h:1"), "values are not kept");
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
            assert_eq!(unlike(FileKind::Terminal, TERMINAL, &TERMINAL.replace(from, to)), named);
        }
    }

    #[test]
    fn a_gateway_alone_changes_what_a_pair_cannot() {
        let (before, after) = ("transparent = false", "transparent = true\nstate = \"/x\"");
        assert_eq!(unlike(FileKind::Hub, before, after), ["state", "transparent"]);
        assert_eq!(unlike(FileKind::Solo, before, after), ["state"]);
        let wan = |keys: &str| format!("[wan]\nstack = \"skyhop\"\n{keys}");
        let (before, after) = (wan("mtu = 1500\ntcp.cc = \"bbr\""), wan("mtu = 1400"));
        assert_eq!(unlike(FileKind::Solo, &before, &after), ["wan.mtu"]);
    }

    #[test]
    fn a_private_key_is_not_kept() {
        let keys = RestartKeys::of(TERMINAL, FileKind::Terminal);
        assert!(!format!("{keys:?}").contains("private"), "{keys:?}");
    }
}
