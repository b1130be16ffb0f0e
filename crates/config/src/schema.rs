//! JSON schemas of gateways' files, which follow from their tables of keys.

use schemars::{Schema, schema_for};

use crate::FileKind;
use crate::file;
use crate::hub::HubKeys;
use crate::permits::PermittedTerminalSection;
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
    schema(kind).as_ref().map(file::schema_text)
}
