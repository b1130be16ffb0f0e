//! TOML files of skyhop: documents that keep the position of every value, the values that are written alike in
//! all of them, and errors that name file, line, key, value and what would be accepted.

pub mod document;
mod error;
pub mod folder;
pub mod item;
mod kind;
pub mod place;
mod removed_keys;
pub mod tcp_options;
pub mod text;

pub use error::{FileError, FilePosition};
pub use kind::FileKind;

/// Returns a schema as the text of its file.
pub fn schema_text(schema: &schemars::Schema) -> String {
    serde_json::to_string_pretty(schema).expect("a schema is JSON") + "\n"
}
