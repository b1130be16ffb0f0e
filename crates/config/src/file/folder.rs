//! Reads the files that users name. No other module of this crate does I/O.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::file::FileError;

/// Maximum size of a file. A trace of a day of delivery opportunities at 100 Mbit/s would take a few
/// gigabytes of memory.
const MAX_FILE_SIZE: u64 = 64 << 20;

/// The base of the paths in a file.
#[derive(Debug, Clone, Copy)]
pub enum BaseFolder<'a> {
    /// Files that are compiled in: paths and contents.
    BuiltIn(&'static [(&'static str, &'static str)]),
    /// A directory on disk; empty for the working directory.
    Disk(&'a Path),
}

impl<'a> BaseFolder<'a> {
    /// Returns the directory of `file`.
    pub fn of(file: &'a Path) -> Self {
        Self::Disk(file.parent().unwrap_or_else(|| Path::new("")))
    }

    /// Resolves `path` against this folder.
    pub fn locate(self, path: &Path) -> PathBuf {
        match self {
            Self::Disk(folder) => folder.join(path),
            Self::BuiltIn(_) => path.to_owned(),
        }
    }

    /// Reads the file at `path`.
    pub fn read(self, path: &Path) -> io::Result<String> {
        match self {
            Self::Disk(_) => read(&self.locate(path)),
            Self::BuiltIn(files) => {
                let known = files.iter().find(|(name, _)| Path::new(name) == path);
                let missing = || io::ErrorKind::NotFound.into();
                known.map(|(_, text)| (*text).to_owned()).ok_or_else(missing)
            }
        }
    }

    /// Reads the file at `path`; returns its resolved path and its contents.
    pub fn open(self, path: &Path) -> Result<(PathBuf, String), FileError> {
        let whole = self.locate(path);
        match self.read(path) {
            Ok(text) => Ok((whole, text)),
            Err(cause) => Err(FileError::Read { file: whole.display().to_string(), cause }),
        }
    }
}

#[expect(clippy::disallowed_types, reason = "the one place that reads files")]
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than permitted shows that a file is too long.
    fs::File::open(path)?.take(MAX_FILE_SIZE + 1).read_to_string(&mut text)?;
    let long = || format!("it exceeds {} MiB", MAX_FILE_SIZE >> 20);
    if text.len() as u64 > MAX_FILE_SIZE { Err(io::Error::other(long())) } else { Ok(text) }
}
