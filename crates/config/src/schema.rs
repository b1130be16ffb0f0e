//! JSON schemas of gateways' files, which follow from their tables of keys; and what follows from
//! the schemas.

pub(crate) mod keys;
pub(crate) mod restart_keys;

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, schema_for};
use serde_json::Value;

use crate::FileKind;
use crate::file;
use crate::hub::HubKeys;
use crate::hub::terminal_section::PermittedTerminalSection;
use crate::solo::SoloKeys;
use crate::terminal::TerminalKeys;

/// Returns the JSON schema of a gateway's file; `None` for files of other kinds.
pub(crate) fn schema(kind: FileKind) -> Option<Schema> {
    Some(match kind {
        FileKind::Terminal => schema_for!(TerminalKeys),
        FileKind::Hub => schema_for!(HubKeys),
        FileKind::Solo => schema_for!(SoloKeys),
        FileKind::Permit => schema_for!(PermittedTerminalSection),
        _ => return None,
    })
}

/// Returns the JSON schema of a gateway's file as text; `None` for files of other kinds.
pub fn schema_text(kind: FileKind) -> Option<String> {
    let mut schema = schema(kind)?;
    RecursiveTransform(remove_links).transform(&mut schema);
    Some(file::schema_text(&schema))
}

/// Replaces links of a description, which are relative to `docs`, by their texts: editors show them as they are.
fn remove_links(schema: &mut Schema) {
    let Some(Value::String(text)) = schema.get_mut("description") else { return };
    while let Some(middle) = text.find("](") {
        let start = text[..middle].rfind('[');
        let end = text[middle..].find(')');
        let Some((start, end)) = start.zip(end.map(|end| middle + end)) else { return };
        *text = [&text[..start], &text[start + 1..middle], &text[end + 1..]].concat();
    }
}
