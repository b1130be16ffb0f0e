//! Output files of the demo.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// An output file. It is opened for writing at the start, so that a wrong path fails before two minutes of
/// measurements, and written at the end. If the demo is interrupted, the file keeps its old contents.
pub(crate) struct OutputFile(PathBuf);

impl OutputFile {
    /// Checks that the file can be written.
    ///
    /// # Errors
    /// If it cannot be opened for writing.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.with_context(|| cannot_write(path))?;
        // The check must not leave an empty file behind.
        if is_new {
            fs::remove_file(path).with_context(|| cannot_write(path))?;
        }
        Ok(Self(path.to_owned()))
    }

    /// Returns the path as given.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Replaces the file's contents.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        fs::write(&self.0, text).with_context(|| cannot_write(&self.0))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_by_something_new() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.html");
        let output = OutputFile::new(&path).unwrap();
        assert!(!path.exists(), "nothing before there is something");
        output.write("something longer").unwrap();
        let output = OutputFile::new(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "something longer");
        output.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let nowhere = OutputFile::new(&directory.path().join("no/page.html")).err().unwrap();
        assert!(format!("{nowhere:#}").contains("no/page.html"), "{nowhere:#}");
    }
}
