//! A directory for one test.

use std::path::Path;

use tempfile::TempDir;

use os::PrivateDirectories;

use super::base::{LabsDirectory, STATE_VARIABLE};

/// A directory that is removed when dropped.
pub(super) struct Scratch(TempDir);

impl Scratch {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn base(&self) -> LabsDirectory {
        LabsDirectory(
            PrivateDirectories::only(self.path().join("labs"), STATE_VARIABLE)
                .open_usable()
                .unwrap(),
        )
    }
}
