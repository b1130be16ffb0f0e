//! Where labs that stay are remembered: one directory of the user's own, with a
//! directory for each lab.
//!
//! Root's is `/run/skyhop`, another user's `$XDG_RUNTIME_DIR/skyhop`, anybody's
//! else `/tmp/skyhop-UID`; `$SKYHOP_STATE_DIR` takes the place of all of them.
//! Nobody else may write there (mode 0700, owner checked, no symbolic link), so
//! that what is read there is what this user's skyhop wrote.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{Uid, geteuid};
use thiserror::Error;

use super::name::LabName;

/// Names the directory that labs are remembered in, instead of the usual one.
pub const STATE_VARIABLE: &str = "SKYHOP_STATE_DIR";

/// The file by which commands take turns in the directory. It is no lab's name.
const TURNS: &str = ".lock";

/// Why labs that stay cannot be looked after.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// A directory that somebody else could tamper with.
    #[error("cannot keep labs in {}: {why}", path.display())]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refuses something.
    #[error("cannot {what} {}: {cause}", path.display())]
    Refused {
        /// What was tried.
        what: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// There is such a lab.
    #[error("a lab named {name} is up already: skyhop lab down {name}, or choose another --name")]
    Taken {
        /// Its name.
        name: LabName,
    },
    /// There is no such lab.
    #[error("no lab named {name} is up{}", others(known))]
    Unknown {
        /// The name.
        name: LabName,
        /// The labs there are.
        known: Vec<LabName>,
    },
}

fn others(known: &[LabName]) -> String {
    let names: Vec<&str> = known.iter().map(LabName::as_str).collect();
    if names.is_empty() { String::new() } else { format!(": there is {}", names.join(", ")) }
}

/// The directories that labs of a user may be in.
#[derive(Debug, Clone)]
pub(super) struct Places(Vec<PathBuf>);

impl Places {
    /// Of the user whose process this is.
    pub(super) fn of_user() -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        Self::of(geteuid(), variable(STATE_VARIABLE), variable("XDG_RUNTIME_DIR"))
    }

    fn of(user: Uid, chosen: Option<PathBuf>, runtime: Option<PathBuf>) -> Self {
        if let Some(chosen) = chosen {
            return Self(vec![std::path::absolute(&chosen).unwrap_or(chosen)]);
        }
        let first = if user.is_root() {
            Some(PathBuf::from("/run/skyhop"))
        } else {
            runtime.filter(|path| path.is_absolute()).map(|path| path.join("skyhop"))
        };
        let last = PathBuf::from(format!("/tmp/skyhop-{user}"));
        Self(first.into_iter().chain([last]).collect())
    }

    #[cfg(test)]
    pub(super) fn only(path: PathBuf) -> Self {
        Self(vec![path])
    }

    /// The one for a new lab: the first that can be had. It is made if it is not
    /// there.
    pub(super) fn usable(&self) -> Result<Base, StateError> {
        let (last, others) = self.0.split_last().expect("there is always one");
        let found = others.iter().find_map(|path| Base::make(path).ok());
        found.map_or_else(|| Base::make(last), Ok)
    }

    /// Those that are there. What is not the user's own holds none of his labs.
    pub(super) fn present(&self) -> Vec<Base> {
        self.0.iter().filter_map(|path| Base::open(path).ok()).collect()
    }
}

/// A directory that labs are in.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) path: PathBuf,
    pub(super) directory: Arc<OwnedFd>,
}

/// While it lives no other command looks at the labs of a [`Base`] or changes
/// which there are.
pub(super) struct Turn {
    _file: File,
}

impl Base {
    /// Opens the directory, and makes it if it is not there.
    fn make(path: &Path) -> Result<Self, StateError> {
        match mkdirat(nix::fcntl::AT_FDCWD, path, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => Self::open(path),
            Err(errno) => Err(refused("make", path)(errno)),
        }
    }

    fn open(path: &Path) -> Result<Self, StateError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = match open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::ELOOP | Errno::ENOTDIR) => {
                let why = "it is not a directory (or a symbolic link to one)".to_owned();
                return Err(StateError::Unsafe { path: path.to_owned(), why });
            }
            Err(errno) => return Err(refused("open", path)(errno)),
        };
        expect_own(&directory, path)?;
        Ok(Self { path: path.to_owned(), directory: Arc::new(directory) })
    }

    /// Waits until no other command is at work in this directory.
    pub(super) fn turn(&self) -> Result<Turn, StateError> {
        let path = self.path.join(TURNS);
        let file = file_in(&self.directory, TURNS, OFlag::O_RDWR | OFlag::O_CREAT);
        let file = file.map_err(refused("open", &path))?;
        file.lock().map_err(|cause| StateError::Refused { what: "lock", path, cause })?;
        Ok(Turn { _file: file })
    }

    /// The names that have a directory here, in order.
    pub(super) fn names(&self) -> Vec<LabName> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut names: Vec<LabName> = names.collect();
        names.sort();
        names
    }

    /// Whether the directory is still to be found where it was.
    pub(super) fn is_in_place(&self) -> bool {
        let identity = |stat: nix::sys::stat::FileStat| (stat.st_dev, stat.st_ino);
        let now = nix::sys::stat::lstat(&self.path).map(identity);
        now.is_ok() && now == fstat(&self.directory).map(identity)
    }
}

/// Sees that nobody but this user may do anything in a directory.
pub(super) fn expect_own(directory: impl AsFd, path: &Path) -> Result<(), StateError> {
    let unsafe_as = |why| StateError::Unsafe { path: path.to_owned(), why };
    let stat = fstat(directory.as_fd()).map_err(refused("look at", path))?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(unsafe_as(format!("it belongs to the user {}, not to you", stat.st_uid)));
    }
    let others = stat.st_mode & 0o077;
    if others != 0 {
        let mode = stat.st_mode & 0o777;
        return Err(unsafe_as(format!("others have access (mode {mode:o}, expected 700)")));
    }
    Ok(())
}

/// Opens a file in a directory; not through a symbolic link, and not one that
/// commands in the lab inherit.
pub(super) fn file_in(directory: &OwnedFd, name: &str, flags: OFlag) -> nix::Result<File> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map(File::from)
}

/// A path to a file in a directory that stays short and leads there whatever
/// happens to the directory's name.
pub(super) fn short_path(directory: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

pub(super) fn refused(what: &'static str, path: &Path) -> impl Fn(Errno) -> StateError {
    let path = path.to_owned();
    move |errno| StateError::Refused { what, path: path.clone(), cause: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::testkit::Scratch;
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn everybody_has_a_place() {
        let of = |user, chosen: Option<&str>, runtime: Option<&str>| {
            let places =
                Places::of(Uid::from_raw(user), chosen.map(Into::into), runtime.map(Into::into));
            places.0.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(0, None, None), ["/run/skyhop", "/tmp/skyhop-0"]);
        assert_eq!(of(0, None, Some("/run/user/0")), ["/run/skyhop", "/tmp/skyhop-0"]);
        assert_eq!(of(7, None, Some("/run/user/7")), ["/run/user/7/skyhop", "/tmp/skyhop-7"]);
        assert_eq!(of(7, None, Some("user")), ["/tmp/skyhop-7"]);
        assert_eq!(of(7, Some("/x"), Some("/run/user/7")), ["/x"]);
    }

    #[test]
    fn a_new_directory_is_the_user_s_alone() {
        let scratch = Scratch::new();
        let path = scratch.path().join("skyhop");
        let base = Places(vec!["/proc/no".into(), path.clone()]).usable().unwrap();
        assert_eq!((base.path.as_path(), mode(&path)), (path.as_path(), 0o700));
        assert!(base.is_in_place());
        fs::remove_dir_all(&path).unwrap();
        assert!(!base.is_in_place());
        fs::create_dir(&path).unwrap();
        assert!(!base.is_in_place(), "another directory of that name");
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.path().join("skyhop");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
        let error = Base::make(&path).unwrap_err().to_string();
        assert!(error.contains("mode 770"), "{error}");
        assert!(Places(vec![path]).present().is_empty());
    }

    #[test]
    fn a_symbolic_link_is_refused_and_not_followed() {
        let scratch = Scratch::new();
        let (target, link) = (scratch.path().join("elsewhere"), scratch.path().join("skyhop"));
        fs::create_dir(&target).unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o700)).unwrap();
        symlink(&target, &link).unwrap();
        assert!(matches!(Base::make(&link), Err(StateError::Unsafe { .. })));
        fs::write(scratch.path().join("file"), "").unwrap();
        assert!(matches!(Base::make(&scratch.path().join("file")), Err(StateError::Unsafe { .. })));
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }

    #[test]
    fn another_user_s_directory_is_refused() {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can give a directory away");
            return;
        }
        let scratch = Scratch::new();
        let path = scratch.path().join("skyhop");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let error = Base::make(&path).unwrap_err().to_string();
        assert!(error.contains("65534"), "{error}");
    }
}
