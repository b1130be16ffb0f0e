//! Files that are read and replaced as a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a file of at most `longest` bytes. A missing one is empty.
pub(crate) fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Ok(metadata) if metadata.len() > longest => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it is far too long"))
        }
        _ => fs::read(path),
    }
}

/// Replaces the contents of a file atomically: whoever reads it finds the old ones or the new ones.
/// Only its owner may read it.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
