//! Keys of features that were removed. For one version such a key is accepted and ignored, with a warning.
//!
//! To remove a key, delete it from its section's struct and list it here; delete the entry after one release.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::file::FileKind;

const PUSH: &str = "a hub no longer pushes the objects that pages name";
const WINDOWS: &str =
    "set the windows of a route instead: `ip route change … initcwnd N initrwnd N`";

/// Removed keys: kind of the file, path of the key, and explanation for the user.
const REMOVED: &[(FileKind, &str, &str)] = &[
    (FileKind::Hub, "http.push", PUSH),
    (FileKind::Hub, "http.page", PUSH),
    (FileKind::Hub, "http.objects", PUSH),
    (FileKind::Hub, "http.hour", PUSH),
    (FileKind::Solo, "lan.initial_window", WINDOWS),
    (FileKind::Solo, "lan.initial_receive_window", WINDOWS),
    (FileKind::Solo, "wan.initial_window", WINDOWS),
    (FileKind::Solo, "wan.initial_receive_window", WINDOWS),
];

/// A removed key that a file still has.
pub(super) struct RemovedKey {
    /// Offset of the key in the file, in bytes.
    pub(super) start: usize,
    /// The warning, without its position.
    pub(super) warning: String,
}

/// Takes the removed keys out of a file of this kind; returns them in the file's order.
pub(super) fn take(file: &mut DeTable<'_>, kind: FileKind) -> Vec<RemovedKey> {
    let listed = REMOVED.iter().filter(|(of, ..)| *of == kind);
    let mut found: Vec<RemovedKey> = listed
        .filter_map(|(_, path, why)| {
            let start = remove(file, path)?;
            Some(RemovedKey { start, warning: format!("{path} has no effect: {why}") })
        })
        .collect();
    found.sort_by_key(|key| key.start);
    found
}

/// Removes the key at `path`, and returns the offset at which it started.
fn remove(table: &mut DeTable<'_>, path: &str) -> Option<usize> {
    match path.split_once('.') {
        None => table.remove_entry(path).map(|(key, _)| key.span().start),
        Some((section, rest)) => match table.get_mut(section).map(Spanned::get_mut)? {
            DeValue::Table(section) => remove(section, rest),
            _ => None,
        },
    }
}
