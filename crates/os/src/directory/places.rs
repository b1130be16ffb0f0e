//! Private directories of one user: for control sockets, and for the records of labs.
//!
//! | directory | for |
//! |---|---|
//! | `/run/skyhop` | root, or a service (`RuntimeDirectory=skyhop`); our units set the variable |
//! | `$XDG_RUNTIME_DIR/skyhop`, without the variable `/run/user/UID/skyhop` | a user who has logged in |
//! | `~/.local/state/skyhop` | a user without those, as in a container |
//!
//! An environment variable, which the caller chooses, overrides all of them. None of them has a
//! predictable name in a world-writable directory, so no other user can create one before its owner
//! does. A directory is used only if this user owns it, no other user may write to it, and it is
//! not a symbolic link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, lstat, mkdirat, stat};
use nix::unistd::{AccessFlags, Uid, eaccess, geteuid};
use thiserror::Error;

/// Overrides the directories for control sockets of gateways. A lab sets it for every command in
/// it.
pub const RUN_VARIABLE: &str = "SKYHOP_RUN_DIR";

/// Mode bits for write access by group and others.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bit for write access by others.
const ALL_WRITE: u32 = 0o002;

/// The reason why a private directory is not available.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Another user could tamper with it.
    #[error("{} is not safe: {why}", path.display())]
    Unsafe {
        /// Path of the unsafe directory.
        path: PathBuf,
        /// The reason why it is unsafe.
        why: String,
    },
    /// The operating system refused an operation.
    #[error("cannot {what} {}: {cause}", path.display())]
    Refused {
        /// The refused operation, as a verb.
        what: &'static str,
        /// The directory it applied to.
        path: PathBuf,
        /// The error that the operating system returned.
        cause: io::Error,
    },
    /// None of several directories is available.
    #[error("no private directory ({}): set {variable} to one", list(tried))]
    Nowhere {
        /// The error of each directory.
        tried: Vec<Self>,
        /// The environment variable that overrides them.
        variable: &'static str,
    },
}

fn list(errors: &[DirectoryError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The private directories that this user may use, best first.
#[derive(Debug, Clone)]
pub struct PrivateDirectories {
    all: Vec<DirectoryCandidate>,
    variable: &'static str,
}

#[derive(Debug, Clone)]
struct DirectoryCandidate {
    path: PathBuf,
    /// Missing directories below this one are created; without it only the last component of the
    /// path.
    base: Option<PathBuf>,
}

/// The parts of the environment that determine the directories.
struct Surroundings {
    user: Uid,
    chosen: Option<PathBuf>,
    runtime: Option<PathBuf>,
    home: Option<PathBuf>,
}

impl PrivateDirectories {
    /// The directories of this process's user; `variable` of the environment overrides them.
    pub fn of_user(variable: &'static str) -> Self {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let surroundings = Surroundings {
            user: geteuid(),
            chosen: path(variable),
            runtime: path("XDG_RUNTIME_DIR"),
            home: std::env::home_dir(),
        };
        Self { all: surroundings.places(), variable }
    }

    /// A single directory that the caller chooses.
    pub fn only(path: PathBuf, variable: &'static str) -> Self {
        Self { all: vec![DirectoryCandidate { path, base: None }], variable }
    }

    /// Returns the paths of the directories, whether or not they exist.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(|place| place.path.as_path())
    }

    /// Opens the first available directory. It is created with mode 0700 if necessary.
    ///
    /// # Errors
    /// If none is available, with the reason for each.
    pub fn open_usable(&self) -> Result<PrivateDirectory, DirectoryError> {
        self.first(DirectoryCandidate::make)
    }

    /// Checks that a directory is available, without creating one.
    ///
    /// # Errors
    /// As [`Self::open_usable`].
    pub fn check(&self) -> Result<(), DirectoryError> {
        self.first(DirectoryCandidate::check)
    }

    fn first<T>(
        &self,
        get: impl Fn(&DirectoryCandidate) -> Result<T, DirectoryError>,
    ) -> Result<T, DirectoryError> {
        let mut tried = Vec::new();
        for place in &self.all {
            match get(place) {
                Ok(got) => return Ok(got),
                Err(error) => tried.push(error),
            }
        }
        Err(match tried.pop() {
            Some(only) if tried.is_empty() => only,
            last => {
                tried.extend(last);
                DirectoryError::Nowhere { tried, variable: self.variable }
            }
        })
    }

    /// Opens the directories that exist. Those that others could tamper with are skipped.
    pub fn open_existing(&self) -> Vec<PrivateDirectory> {
        self.paths().filter_map(|path| PrivateDirectory::open(path).ok()).collect()
    }
}

impl Surroundings {
    fn places(self) -> Vec<DirectoryCandidate> {
        if let Some(chosen) = self.chosen {
            let path = std::path::absolute(&chosen).unwrap_or(chosen);
            return vec![DirectoryCandidate { path, base: None }];
        }
        // The XDG Base Directory Specification: relative paths are invalid and to be ignored.
        let runtime = self.runtime.filter(|path| path.is_absolute());
        let runtime = runtime.unwrap_or_else(|| format!("/run/user/{}", self.user).into());
        let home = self.home.filter(|path| path.is_absolute());
        let below =
            |base: PathBuf, path| DirectoryCandidate { path: base.join(path), base: Some(base) };
        let run = [below("/run".into(), "skyhop"), below(runtime, "skyhop")];
        run.into_iter().chain(home.map(|home| below(home, ".local/state/skyhop"))).collect()
    }
}

impl DirectoryCandidate {
    fn make(&self) -> Result<PrivateDirectory, DirectoryError> {
        if let Some(base) = &self.base {
            // Whoever controls the base could replace the directories that are created in it.
            expect_trusted(base)?;
            let mut parents: Vec<&Path> =
                self.path.ancestors().skip(1).take_while(|path| path != base).collect();
            parents.reverse();
            parents.into_iter().try_for_each(make)?;
        }
        make(&self.path)?;
        PrivateDirectory::open(&self.path)
    }

    /// Checks that [`Self::make`] would succeed, without creating anything.
    fn check(&self) -> Result<(), DirectoryError> {
        if lstat(&self.path).is_ok() {
            return PrivateDirectory::open(&self.path).map(drop);
        }
        self.base.as_deref().map_or(Ok(()), expect_trusted)?;
        let parent = self.path.ancestors().skip(1).find(|path| path.exists());
        let parent = parent.unwrap_or_else(|| Path::new("/"));
        eaccess(parent, AccessFlags::W_OK | AccessFlags::X_OK).map_err(refused("make", &self.path))
    }
}

fn make(path: &Path) -> Result<(), DirectoryError> {
    match mkdirat(AT_FDCWD, path, Mode::S_IRWXU) {
        // An existing one will do; `PrivateDirectory::open` checks the last of them.
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(refused("make", path)(errno)),
    }
}

/// Checks that only this user or root controls a directory.
fn expect_trusted(path: &Path) -> Result<(), DirectoryError> {
    let stat = stat(path).map_err(refused("look at", path))?;
    let owned = stat.st_uid == 0 || stat.st_uid == geteuid().as_raw();
    if owned && stat.st_mode & ALL_WRITE == 0 {
        return Ok(());
    }
    let why = "other users can change its contents".to_owned();
    Err(DirectoryError::Unsafe { path: path.to_owned(), why })
}

/// A directory that this user owns, that no other user may write to, and whose last path component
/// is not a symbolic link.
#[derive(Debug, Clone)]
pub struct PrivateDirectory {
    path: PathBuf,
    directory: Arc<OwnedFd>,
}

impl PrivateDirectory {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it does not exist, or others could tamper with it.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        match open_directory(AT_FDCWD, path) {
            Ok(directory) => Self::of(directory, path),
            Err(errno) => Err(not_opened(errno, path)),
        }
    }

    /// Opens a subdirectory; `None` if it does not exist.
    ///
    /// # Errors
    /// If others could tamper with it.
    pub fn subdirectory(&self, name: &str) -> Result<Option<Self>, DirectoryError> {
        let path = self.path.join(name);
        match open_directory(self, Path::new(name)) {
            Ok(directory) => Self::of(directory, &path).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(not_opened(errno, &path)),
        }
    }

    fn of(directory: OwnedFd, path: &Path) -> Result<Self, DirectoryError> {
        let stat = fstat(&directory).map_err(refused("look at", path))?;
        expect_own(&stat, path)?;
        Ok(Self { path: path.to_owned(), directory: Arc::new(directory) })
    }

    /// Returns the path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if its path still leads to the same directory.
    pub fn is_in_place(&self) -> bool {
        let identity = |stat: FileStat| (stat.st_dev, stat.st_ino);
        let now = lstat(&self.path).map(identity);
        now.is_ok() && now == fstat(&self.directory).map(identity)
    }
}

impl AsFd for PrivateDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

fn open_directory(from: impl AsFd, path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(from, path, flags, Mode::empty())
}

fn not_opened(errno: Errno, path: &Path) -> DirectoryError {
    if !matches!(errno, Errno::ELOOP | Errno::ENOTDIR) {
        return refused("open", path)(errno);
    }
    let why = "it is not a directory (or a symbolic link to one)".to_owned();
    DirectoryError::Unsafe { path: path.to_owned(), why }
}

fn expect_own(stat: &FileStat, path: &Path) -> Result<(), DirectoryError> {
    let unsafe_as = |why| Err(DirectoryError::Unsafe { path: path.to_owned(), why });
    if stat.st_uid != geteuid().as_raw() {
        return unsafe_as(format!("it belongs to user {}", stat.st_uid));
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        let mode = stat.st_mode & 0o777;
        return unsafe_as(format!("others can write to it (mode {mode:o}, expected 700)"));
    }
    Ok(())
}

fn refused(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> DirectoryError {
    let path = path.to_owned();
    move |errno| DirectoryError::Refused { what, path, cause: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use tempfile::tempdir;

    use super::*;
    use crate::testkit::skip;

    const VARIABLE: &str = "SKYHOP_TEST_DIR";

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn places(all: Vec<DirectoryCandidate>) -> PrivateDirectories {
        PrivateDirectories { all, variable: VARIABLE }
    }

    #[test]
    fn everybody_has_places_and_none_where_all_may_write() {
        let of = |user, chosen: Option<&str>, runtime: Option<&str>, home: Option<&str>| {
            let [chosen, runtime, home] = [chosen, runtime, home].map(|path| path.map(Into::into));
            let places = Surroundings { user: Uid::from_raw(user), chosen, runtime, home }.places();
            places.iter().map(|place| place.path.display().to_string()).collect::<Vec<_>>()
        };
        let run = "/run/skyhop";
        assert_eq!(of(0, None, None, None), [run, "/run/user/0/skyhop"]);
        let user = of(7, None, Some("/run/user/7"), Some("/home/u"));
        assert_eq!(user, [run, "/run/user/7/skyhop", "/home/u/.local/state/skyhop"]);
        assert_eq!(of(7, None, Some("user"), Some("u")), [run, "/run/user/7/skyhop"]);
        assert_eq!(of(7, Some("/x"), Some("/run/user/7"), Some("/home/u")), ["/x"]);
    }

    #[test]
    fn a_new_directory_is_the_user_s_alone() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("skyhop");
        let all = ["/proc/no".into(), path.clone()];
        let all = all.map(|path| DirectoryCandidate { path, base: None });
        let directory = places(all.into()).open_usable().unwrap();
        assert_eq!((directory.path(), mode(&path)), (path.as_path(), 0o700));
        assert!(directory.is_in_place());
        fs::remove_dir_all(&path).unwrap();
        assert!(!directory.is_in_place());
        fs::create_dir(&path).unwrap();
        assert!(!directory.is_in_place(), "another directory of that name");
    }

    #[test]
    fn directories_are_made_below_a_base_but_never_where_all_may_write() {
        let scratch = tempdir().unwrap();
        let base = scratch.path().join("home");
        let path = base.join(".local/state/skyhop");
        let place = DirectoryCandidate { path: path.clone(), base: Some(base.clone()) };
        assert!(place.make().is_err() && !base.exists(), "no home, no place");
        fs::create_dir(&base).unwrap();
        for open in [0o1777, 0o777] {
            set_mode(&base, open);
            let error = place.make().unwrap_err().to_string();
            assert!(
                error.contains("other users can change") && !base.join(".local").exists(),
                "{error}"
            );
        }
        set_mode(&base, 0o755);
        place.check().unwrap();
        assert!(!base.join(".local").exists(), "looking makes nothing");
        place.make().unwrap();
        place.check().unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let scratch = tempdir().unwrap();
        let path = scratch.path().join("skyhop");
        fs::create_dir(&path).unwrap();
        let only = PrivateDirectories::only(path.clone(), VARIABLE);
        for (bits, good) in [(0o770, false), (0o702, false), (0o755, true), (0o700, true)] {
            set_mode(&path, bits);
            match only.open_usable() {
                Ok(_) => assert!(good, "{bits:o}"),
                Err(error) => assert!(!good && error.to_string().contains("others can write")),
            }
            assert_eq!(only.open_existing().len(), usize::from(good));
        }
    }

    #[test]
    fn a_symbolic_link_is_refused_and_not_followed() {
        let scratch = tempdir().unwrap();
        let target = scratch.path().join("elsewhere");
        let link = scratch.path().join("skyhop");
        fs::create_dir(&target).unwrap();
        set_mode(&target, 0o700);
        symlink(&target, &link).unwrap();
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [link, file] {
            let places = PrivateDirectories::only(path, VARIABLE);
            for refused in [places.open_usable().map(drop), places.check()] {
                assert!(matches!(refused, Err(DirectoryError::Unsafe { .. })), "{refused:?}");
            }
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    }

    #[test]
    fn another_user_s_directory_is_refused_and_the_next_place_taken() {
        if !geteuid().is_root() {
            return skip("only root can give a directory away");
        }
        let scratch = tempdir().unwrap();
        let [squatted, own] = ["squatted", "own"].map(|name| scratch.path().join(name));
        fs::create_dir(&squatted).unwrap();
        set_mode(&squatted, 0o700);
        chown(&squatted, Some(65534), None).unwrap();
        let error = PrivateDirectories::only(squatted.clone(), VARIABLE)
            .open_usable()
            .unwrap_err()
            .to_string();
        assert!(error.contains("65534"), "{error}");
        let all = [squatted, own.clone()].map(|path| DirectoryCandidate { path, base: None });
        assert_eq!(places(all.into()).open_usable().unwrap().path(), own);
    }

    #[test]
    fn the_reason_for_each_directory_is_reported() {
        let all = ["/proc/one", "/proc/two"]
            .map(|path| DirectoryCandidate { path: path.into(), base: None });
        let error = places(all.into()).open_usable().unwrap_err().to_string();
        for part in ["make /proc/one", "make /proc/two", "set SKYHOP_TEST_DIR"] {
            assert!(error.contains(part), "{part} not in {error}");
        }
        let error = PrivateDirectories::only("/dev/null/one".into(), VARIABLE)
            .check()
            .unwrap_err()
            .to_string();
        assert!(error.contains("make /dev/null/one"), "{error}");
    }
}
