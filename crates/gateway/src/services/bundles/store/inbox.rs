//! Files that appear in the inbox, each whole and once.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bundles::{BundleId, FileName};

use super::disk::Store;
use crate::whole_file::sync_directory;

/// Permissions of the files: those who may read the directory may read them.
const MODE: u32 = 0o644;
/// Files of one name, at most.
const MOST: u32 = 100_000;

impl Store {
    /// Puts a file into the inbox. It is there, with its whole contents, when this returns; if it was put
    /// there before, nothing happens, even if somebody has taken it away since.
    ///
    /// The file is written under a hidden name. A mark in the store then says that it is about to get
    /// its own: with the mark and without the hidden file it has had it.
    ///
    /// # Errors
    /// The system's. It may be tried again.
    pub(crate) fn deliver(
        &self,
        inbox: &Path,
        (id, name): (&BundleId, &FileName),
        contents: &[u8],
    ) -> io::Result<()> {
        let (mark, hidden) = (self.mark(id), inbox.join(format!(".skyhop-{id}")));
        if !exists(&mark)? {
            write(&hidden, contents)?;
            write(&mark, &[])?;
        } else if !exists(&hidden)? {
            return Ok(());
        }
        fs::rename(&hidden, free_name(inbox, name)?)?;
        sync_directory(&hidden)
    }
}

/// Whether something has this name, be it a link that leads nowhere.
fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a new file that survives a power cut. Whatever has its name is removed, and not followed.
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

/// A path in the inbox that nothing has. Only the gateway writes there, so none appears meanwhile.
fn free_name(inbox: &Path, name: &FileName) -> io::Result<PathBuf> {
    for number in 1..MOST {
        let path = inbox.join(name.numbered(number));
        if !exists(&path)? {
            return Ok(path);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many files have this name"))
}
