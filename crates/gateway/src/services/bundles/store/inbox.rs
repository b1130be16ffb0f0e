//! Delivery of files into the inbox, each complete and exactly once.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bundles::{BundleId, FileName};
use os::sync_directory;

use super::disk::BundleStore;

/// Mode of delivered files: access is governed by the directory.
const MODE: u32 = 0o644;
/// Limit of files with the same name.
const MAX_NUMBER: u32 = 100_000;

impl BundleStore {
    /// Puts a file into the inbox. When this returns, it is there with all its contents. A file
    /// that was delivered before is not delivered again, even if a program has taken it away since.
    ///
    /// The file is written under a hidden name. A mark in the store then records that it is about
    /// to get its own name: a mark without a hidden file means that it has had it.
    ///
    /// # Errors
    /// The system's error. The call may be repeated.
    pub(crate) fn deliver(
        &self,
        inbox: &Path,
        id: &BundleId,
        name: &FileName,
        contents: &[u8],
    ) -> io::Result<()> {
        let mark = self.mark(id);
        let hidden = inbox.join(format!(".skyhop-{id}"));
        if !exists(&mark)? {
            write(&hidden, contents)?;
            write(&mark, &[])?;
        } else if !exists(&hidden)? {
            return Ok(());
        }
        fs::rename(&hidden, free_name(inbox, name)?)?;
        // Without this, a power cut may undo the rename.
        sync_directory(&hidden)
    }
}

/// Returns `true` if the path exists, even as a dangling link.
fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes and syncs a new file. Anything of that name is removed first, so no link is followed.
fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(contents)?;
    file.sync_all()?;
    sync_directory(path)
}

/// Finds an unused path in the inbox. Only the gateway writes there, so it stays unused.
fn free_name(inbox: &Path, name: &FileName) -> io::Result<PathBuf> {
    for number in 1..MAX_NUMBER {
        let path = inbox.join(name.numbered(number));
        if !exists(&path)? {
            return Ok(path);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files have this name"))
}
