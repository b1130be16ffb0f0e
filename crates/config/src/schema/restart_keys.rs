//! Keys that take effect only when a gateway restarts, not when it reloads its file.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use crate::file::FileKind;
use crate::schema::keys::{KeyRow, RestartRule, rows};

/// The keys of a file that take effect only at a restart, with their values as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestartKeys(BTreeMap<String, String>);

impl RestartKeys {
    /// Finds the restart keys in the text of a gateway's file; empty if it is not TOML.
    pub fn of(text: &str, kind: FileKind) -> Self {
        let Ok(file) = DeTable::parse(text) else { return Self::default() };
        let written = file.into_inner();
        let mut found = BTreeMap::new();
        for KeyRow { path, restart, .. } in rows(kind) {
            // Only these are copied: the text may contain a private key.
            let text = match restart {
                RestartRule::Reload => continue,
                RestartRule::PresenceOnly => find(&written, &path).map(|_| String::new()),
                RestartRule::Restart => find(&written, &path)
                    .and_then(|value| Some(self::value(value.clone())?.to_string())),
            };
            found.extend(text.map(|text| (path.join("."), text)));
        }
        Self(found)
    }

    /// Returns the keys whose values differ.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        keys.into_iter().filter(|key| self.0.get(*key) != other.0.get(*key)).cloned().collect()
    }
}

/// Returns the value at `path`, unless it is missing or within a list.
fn find<'d, 't>(table: &'d DeTable<'t>, path: &[String]) -> Option<&'d Spanned<DeValue<'t>>> {
    let (key, rest) = path.split_first()?;
    let value = table.get(key.as_str())?;
    match value.get_ref() {
        _ if rest.is_empty() => Some(value),
        DeValue::Table(section) => find(section, rest),
        _ => None,
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

    fn unlike(kind: FileKind, before: &str, after: &str) -> Vec<String> {
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
        let (before, after) = ("transparent = false", "transparent = true\ncontrol = \"/x\"");
        assert_eq!(unlike(FileKind::Hub, before, after), ["control", "transparent"]);
        assert_eq!(unlike(FileKind::Solo, before, after), ["control"]);
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
