//! Directories: changes of their files (inotify(7)), their way to the disk, and private ones.

pub(crate) mod places;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::WatchedDescriptor;

/// Syncs the directory of `path`. Without it, a power cut may undo that the file was made, renamed or removed.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Creates a directory with this mode, and its missing parents, for durable files: a power cut does not undo it
/// once this returns. A directory that exists stays as it is.
///
/// # Errors
/// Those of mkdir(2), open(2) and fsync(2).
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    let is_missing = |at: &&Path| !at.as_os_str().is_empty() && !at.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    // Not the parents of what existed: this user may be unable to read them.
    missing.iter().rev().try_for_each(|created| sync_directory(created))
}

/// Reports when files of a directory may have changed on this machine. A network file system does
/// not report the changes of other machines.
pub struct DirectoryWatch {
    inotify: Inotify,
    readable: WatchedDescriptor,
}

impl DirectoryWatch {
    /// Watches a directory.
    ///
    /// # Errors
    /// If the directory does not exist or cannot be read, or the user has no inotify instance left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // Files are complete when they have been closed, renamed to their names, or linked.
        let complete = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
        let gone = AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE;
        let other = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(directory, complete | gone | other)?;
        let readable = WatchedDescriptor::new(duplicate(&inotify)?)?;
        Ok(Self { inotify, readable })
    }

    /// Waits until something may have changed. Cancel-safe.
    ///
    /// # Errors
    /// The system's.
    pub async fn changed(&self) -> io::Result<()> {
        loop {
            let mut guard = self.readable.readable().await?;
            match self.inotify.read_events() {
                Ok(_) => return Ok(()),
                Err(Errno::EAGAIN) => guard.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn duplicate(inotify: &Inotify) -> io::Result<OwnedFd> {
    use std::os::fd::AsFd as _;
    inotify.as_fd().try_clone_to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testkit::durable_steps;

    #[test]
    fn every_new_directory_is_in_its_parent_on_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let create = || create_directory(&path, 0o700).unwrap();
        let Some(steps) = durable_steps(directory.path(), create) else { return };
        assert_eq!(steps, ["sync .", "sync a"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(durable_steps(directory.path(), create).unwrap(), [] as [&str; 0]);
        fs::write(path.join("file"), "").unwrap();
        assert!(create_directory(&path.join("file/c"), 0o700).is_err());
    }

    #[tokio::test]
    async fn changes_of_files_are_told_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let watch = DirectoryWatch::new(directory.path()).unwrap();
        let file = directory.path().join("a");
        fs::write(&file, "1").unwrap();
        watch.changed().await.unwrap();
        fs::rename(&file, directory.path().join("b")).unwrap();
        watch.changed().await.unwrap();
        fs::remove_file(directory.path().join("b")).unwrap();
        watch.changed().await.unwrap();
        // All that has happened has been read.
        let more = tokio::time::timeout(std::time::Duration::ZERO, watch.changed()).await;
        assert!(more.is_err());
        assert!(DirectoryWatch::new(&directory.path().join("missing")).is_err());
    }
}
