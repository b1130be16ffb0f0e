//! The text of a configuration file, and the sources of the private key that it names.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::file::document::TomlDocument;
use crate::file::folder::BaseFolder;
use crate::file::place::KeyContext;
use crate::file::{FileError, FileKind};

/// A gateway's configuration file as it was read.
#[derive(Debug, Clone, Copy)]
pub struct ConfigFile<'a> {
    /// Path of the file, for errors and relative paths.
    pub path: &'a Path,
    /// Contents of the file.
    pub text: &'a str,
    /// True for a regular file, which can be read again and whose paths are relative to its directory.
    /// Paths in other files, such as `/dev/stdin`, are relative to the working directory.
    pub regular: bool,
}

/// The source of a gateway's private key.
pub enum KeySource {
    /// The configuration, as base64 text.
    Inline(String),
    /// A file of its own.
    File(PathBuf),
}

impl ConfigFile<'_> {
    /// Parses a file of this kind, and converts it with `read`.
    pub(crate) fn parse<R: for<'d> Deserialize<'d>, T>(
        &self,
        kind: FileKind,
        read: impl FnOnce(&KeyContext<'_>, R) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let origin = self.path.display().to_string();
        let folder =
            if self.regular { BaseFolder::of(self.path) } else { BaseFolder::Disk(Path::new("")) };
        let document = TomlDocument::parse(&origin, folder, self.text, kind)?;
        let raw = document.read()?;
        read(&KeyContext::file(&document), raw)
    }
}
