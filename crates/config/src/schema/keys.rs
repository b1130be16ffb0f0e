//! The table of all keys of gateways' files, read from the schemas of their structs. It is the source of the
//! restart rule and of docs/configuration.md.

use serde_json::Value;

use crate::FileKind;
use crate::schema::schema;

/// The extension of a schema that marks a key whose change takes a restart: `true`, or [`PRESENCE`].
const RESTART: &str = "x-restart";
/// Mark of a section that can be reloaded, but neither added nor removed without a restart.
const PRESENCE: &str = "presence";

/// A key of a file, or a section with keys of its own.
#[derive(Debug, Clone)]
pub(crate) struct KeyRow {
    /// The tables around the key, and the key: `["dns", "cache"]`.
    pub(crate) path: Vec<String>,
    pub(crate) restart: RestartRule,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the reference page, which a test writes")
    )]
    pub(crate) is_required: bool,
    /// The schema of the value: sentence, default, bounds.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the reference page, which a test writes")
    )]
    pub(crate) schema: Value,
}

/// Effect of a changed key while the gateway runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartRule {
    /// A reload applies it.
    Reload,
    /// A reload applies changes within the section, but it can be neither added nor removed.
    PresenceOnly,
    /// It takes effect at a restart.
    Restart,
}

/// Returns all keys of files of this kind, a section before its keys; none for files that are not a gateway's.
pub(crate) fn rows(kind: FileKind) -> Vec<KeyRow> {
    let Some(schema) = schema(kind) else { return Vec::new() };
    let root = schema.to_value();
    let mut rows = Vec::new();
    collect(&root, &root, &[], &mut rows);
    rows
}

fn collect(root: &Value, table: &Value, within: &[String], rows: &mut Vec<KeyRow>) {
    let properties = table["properties"].as_object().into_iter().flatten();
    for (key, schema) in properties {
        let path = [within, std::slice::from_ref(key)].concat();
        let restart = match &schema[RESTART] {
            Value::Bool(true) => RestartRule::Restart,
            Value::String(mark) if mark == PRESENCE => RestartRule::PresenceOnly,
            _ => RestartRule::Reload,
        };
        let mut required = table["required"].as_array().into_iter().flatten();
        let is_required = required.any(|name| name == key);
        rows.push(KeyRow { path: path.clone(), restart, is_required, schema: schema.clone() });
        if let Some(section) = section(root, schema) {
            collect(root, section, &path, rows);
        }
    }
}

/// Returns the table of keys that a value or each of its elements has, if it is a section.
fn section<'s>(root: &'s Value, schema: &'s Value) -> Option<&'s Value> {
    let optional = schema["anyOf"].as_array().into_iter().flatten();
    let mut candidates = [schema, &schema["items"]].into_iter().chain(optional);
    candidates.find_map(|candidate| {
        let name = candidate["$ref"].as_str()?.strip_prefix("#/$defs/")?;
        Some(&root["$defs"][name])
    })
}
