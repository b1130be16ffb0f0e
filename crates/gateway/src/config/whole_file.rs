//! Files that are read and replaced as a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use os::sync_directory;

/// Permissions of a file that only its owner may read, and of one that everybody may.
pub(crate) const PRIVATE: u32 = 0o600;
pub(crate) const PUBLIC: u32 = 0o644;

/// Reads a file of at most `longest` bytes. A missing file counts as empty.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        // Before reading, so that a huge file takes no memory.
        Ok(metadata) if metadata.len() > longest => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"))
        }
        _ => fs::read(path),
    }
}

/// Replaces a file atomically: a reader gets either the old or the new contents. `mode`: its permissions.
pub(crate) fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // A file of that name may be another user's link, which must not be written through.
    let _ = fs::remove_file(&temporary);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(contents)?;
    // Before the rename, or a power cut may leave the new name with half of the contents.
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_directory(path)
}

#[cfg(test)]
mod tests {
    use os::testkit::durable_steps;

    use super::*;

    #[test]
    fn a_replaced_file_is_on_the_disk_before_it_has_its_name_and_its_directory_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        replace(&path, b"old", PRIVATE).unwrap();
        let steps = durable_steps(directory.path(), || replace(&path, b"new", PRIVATE).unwrap());
        let Some(steps) = steps else { return };
        assert_eq!(steps, ["sync state.new", "rename", "sync ."]);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
