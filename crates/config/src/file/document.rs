//! A parsed TOML file that keeps the position of every key and value.

mod reader;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::file::error::FilePosition;
use crate::file::folder::BaseFolder;
use crate::file::removed_keys;
use crate::file::{FileError, FileKind};
use reader::ValueReader;

/// A parsed file, or one of its cases.
#[derive(Debug, Clone)]
pub struct TomlDocument<'a> {
    /// Name of the file in errors.
    pub origin: &'a str,
    /// Folder to which paths in the file are relative.
    pub folder: BaseFolder<'a>,
    /// Contents of the file.
    pub text: &'a str,
    /// The top-level table.
    pub root: Spanned<DeValue<'a>>,
    /// Name of the case, if this is one.
    pub case: Option<String>,
    /// A warning for each removed key, with its position.
    pub warnings: Vec<String>,
}

impl<'a> TomlDocument<'a> {
    /// Parses TOML that is expected to be a file of `kind`.
    pub fn parse(
        origin: &'a str,
        folder: BaseFolder<'a>,
        text: &'a str,
        kind: FileKind,
    ) -> Result<Self, FileError> {
        let mut table = table(origin, text)?;
        if let Some(found) = kind.mistaken_for(table.get_ref()) {
            return Err(FileError::Kind { file: origin.to_owned(), found, expected: kind });
        }
        // Taken out before deserialization, which would refuse them as unknown keys.
        let removed = removed_keys::take(table.get_mut(), kind);
        let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        let mut document = Self { origin, folder, text, root, case: None, warnings: Vec::new() };
        let warn = |key: removed_keys::RemovedKey| {
            format!("{}: {}", document.at_start(Some(key.start)), key.warning)
        };
        document.warnings = removed.into_iter().map(warn).collect();
        Ok(document)
    }

    /// Deserializes the whole document as `T`.
    pub fn read<'d, T: Deserialize<'d>>(&'d self) -> Result<T, FileError> {
        let reader = ValueReader::new(self);
        T::deserialize(reader.clone()).map_err(|fault| reader.locate(fault))
    }

    /// Returns the position of the value at `path`, or of the innermost table or list that exists.
    pub fn at(&self, path: &str) -> FilePosition {
        self.at_start(self.find(path))
    }

    /// Returns the position of the value that starts at this byte.
    fn at_start(&self, start: Option<usize>) -> FilePosition {
        let line = start.map(|start| line_at(self.text, start));
        FilePosition { file: self.origin.into(), line, case: self.case.as_deref().map(Into::into) }
    }

    /// Returns the offset in bytes at which the value at `path` starts; 0 if there is none.
    pub fn start(&self, path: &str) -> usize {
        self.find(path).unwrap_or(0)
    }

    /// Returns the value at `path`, such as `flow.0.bytes`.
    pub fn value(&self, path: &str) -> Option<&DeValue<'a>> {
        path.split('.').try_fold(&self.root, inner).map(Spanned::get_ref)
    }

    /// Returns the offset at which the value at `path` starts, or of the innermost table or list that
    /// exists.
    fn find(&self, path: &str) -> Option<usize> {
        let steps = path.split('.').scan(&self.root, |value, key| {
            *value = inner(value, key)?;
            Some(value.span().start)
        });
        steps.last()
    }
}

/// Parses TOML of any kind.
pub fn table<'a>(origin: &str, text: &'a str) -> Result<Spanned<DeTable<'a>>, FileError> {
    DeTable::parse(text).map_err(|error| syntax(origin, text, &error))
}

/// Returns the value of a table under `key`, or of a list at that index.
fn inner<'d, 'a>(value: &'d Spanned<DeValue<'a>>, key: &str) -> Option<&'d Spanned<DeValue<'a>>> {
    match value.get_ref() {
        DeValue::Table(table) => table.get(key),
        DeValue::Array(list) => key.parse().ok().and_then(|at: usize| list.get(at)),
        _ => None,
    }
}

/// Returns the line of a byte, from 1.
fn line_at(text: &str, at: usize) -> u32 {
    let before = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    u32::try_from(before + 1).unwrap_or(u32::MAX)
}

fn syntax(origin: &str, text: &str, error: &toml::de::Error) -> FileError {
    let line = line_at(text, error.span().map_or(0, |span| span.start));
    let quoted = text.lines().nth(line as usize - 1).unwrap_or_default().trim();
    // Errors end up in logs and bug reports, where a private key must not appear.
    let is_secret = quoted.contains("private_key");
    FileError::Syntax {
        at: FilePosition { file: origin.into(), line: Some(line), case: None },
        text: if is_secret { "…".to_owned() } else { quoted.to_owned() },
        message: error.message().replace('\n', ", "),
    }
}
