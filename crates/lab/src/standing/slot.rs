//! The directory of one persistent lab.
//!
//! | file | holds |
//! |---|---|
//! | `lock` | locked (flock) by the lab's processes while one of them lives |
//! | `supervisor` | id and start time of the process whose end ends the lab |
//! | `control` | the control socket |
//! | `log` | the lab's stderr |
//!
//! The lock shows whether a lab is alive: the kernel releases it when the last of its processes
//! ends, however it ends. By then a process id could be another process's.

use core::time::Duration;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use os::PrivateDirectory;

use super::base::{LabsDirectory, StateError, file_in, refused, short_path};
use super::name::LabName;
use super::process::ProcessIdentity;

const LOCK: &str = "lock";
const SUPERVISOR: &str = "supervisor";
const CONTROL: &str = "control";
const LOG: &str = "log";
/// All possible files except the lock.
const FILES: [&str; 3] = [SUPERVISOR, CONTROL, LOG];
/// Number of checks whether an ending lab has ended. The next constant is their interval.
const ENDING_LOOKS: u32 = 500;
const LOOK: Duration = Duration::from_millis(10);
/// Part of a log that is shown when a lab has ended unexpectedly, in bytes.
const LOG_TAIL: usize = 2000;

/// The existing directory of a lab.
#[derive(Debug)]
pub(super) struct LabSlot {
    pub(super) name: LabName,
    pub(super) path: PathBuf,
    base: LabsDirectory,
    directory: PrivateDirectory,
    /// Kept open even after the lab has removed it, to tell when the lab has ended.
    lock: File,
}

/// A slot that this process has locked: its lab is alive. Processes forked from here share the
/// lock, and must not open it again.
#[derive(Debug)]
pub struct ReservedSlot {
    slot: LabSlot,
}

impl LabSlot {
    /// Finds the slot of that name in `base`. The caller must hold the turn.
    pub(super) fn find(base: &LabsDirectory, name: &LabName) -> Result<Option<Self>, StateError> {
        let path = base.0.path().join(name.as_str());
        let Some(directory) = base.0.subdirectory(name.as_str())? else { return Ok(None) };
        let lock = file_in(&directory, LOCK, OFlag::O_RDWR | OFlag::O_CREAT);
        let lock = match lock {
            Ok(lock) => lock,
            Err(Errno::ENOENT) => return Ok(None), // removed meanwhile
            Err(errno) => return Err(refused("open", &path.join(LOCK))(errno)),
        };
        Ok(Some(Self { name: name.clone(), path, base: base.clone(), directory, lock }))
    }

    /// Reserves the name in `base`, and cleans up after a killed lab of that name.
    pub(super) fn reserve(
        base: &LabsDirectory,
        name: &LabName,
    ) -> Result<ReservedSlot, StateError> {
        let _turn = base.lock()?;
        let path = base.0.path().join(name.as_str());
        // The directory of a killed lab is used again.
        match mkdirat(&base.0, name.as_str(), Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(refused("make", &path)(errno)),
        }
        let slot = Self::find(base, name)?;
        let slot = slot.ok_or_else(|| refused("open", &path)(Errno::ENOENT))?;
        // A lab holds its lock for as long as it lives.
        if !slot.try_lock()? {
            return Err(StateError::Taken { name: name.clone() });
        }
        slot.clear()?;
        Ok(ReservedSlot { slot })
    }

    /// Returns true if a process of the lab is alive. The caller must hold the turn.
    pub(super) fn is_alive(&self) -> Result<bool, StateError> {
        let free = self.try_lock()?;
        if free {
            self.unlock()?;
        }
        Ok(!free)
    }

    /// Removes the directory of a dead lab. Returns false if the lab is alive or the directory
    /// already removed. The caller must hold the turn.
    pub(super) fn remove_if_dead(&self) -> Result<bool, StateError> {
        // A new lab may have the name by now.
        if !self.is_in_place() {
            return Ok(false);
        }
        if !self.try_lock()? {
            return Ok(false);
        }
        let removed = self.remove();
        self.unlock()?;
        removed.map(|()| true)
    }

    /// Returns the process whose end ends all of the lab's processes.
    pub(super) fn supervisor(&self) -> Option<ProcessIdentity> {
        let mut text = String::new();
        let mut file = file_in(&self.directory, SUPERVISOR, OFlag::O_RDONLY).ok()?;
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }

    /// Returns the path of the lab's control socket.
    pub(super) fn control(&self) -> PathBuf {
        short_path(&self.directory, CONTROL)
    }

    /// Returns the end of the lab's log.
    pub(super) fn log_tail(&self) -> String {
        let mut bytes = Vec::new();
        let file = file_in(&self.directory, LOG, OFlag::O_RDONLY);
        let _ = file.map(|mut file| file.read_to_end(&mut bytes));
        let from = bytes.len().saturating_sub(LOG_TAIL);
        // The cut may fall inside a character.
        String::from_utf8_lossy(&bytes[from..]).trim().to_owned()
    }

    /// Returns the reason why a lab has ended by itself, in one line, as far as its log shows. The
    /// log is then removed with the lab.
    pub(super) fn failure_reason(&self) -> String {
        let said = self.log_tail().replace('\n', " | ");
        // The lab's last processes may hold the lock for a moment.
        for _ in 0..ENDING_LOOKS {
            let swept = self.base.lock().and_then(|_turn| self.remove_if_dead());
            if !matches!(swept, Ok(false)) || !self.is_in_place() {
                break;
            }
            std::thread::sleep(LOOK);
        }
        let said = if said.is_empty() { "no message" } else { &said };
        format!("the lab ended before it was ready: {said}")
    }

    /// Returns true if this is still the directory of that name.
    pub(super) fn is_in_place(&self) -> bool {
        let identity = |stat: nix::sys::stat::FileStat| (stat.st_dev, stat.st_ino);
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        let now = fstatat(&self.base.0, self.name.as_str(), flags).map(identity);
        let own = nix::sys::stat::fstat(&self.directory).map(identity);
        self.base.0.is_in_place() && now.is_ok() && now == own
    }

    /// Takes the lock; returns false if another process holds it.
    fn try_lock(&self) -> Result<bool, StateError> {
        match self.lock.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(cause)) => Err(self.lock_refused(cause)),
        }
    }

    fn unlock(&self) -> Result<(), StateError> {
        self.lock.unlock().map_err(|cause| self.lock_refused(cause))
    }

    fn lock_refused(&self, cause: io::Error) -> StateError {
        StateError::Refused { what: "lock", path: self.path.join(LOCK), cause }
    }

    fn clear(&self) -> Result<(), StateError> {
        FILES.into_iter().try_for_each(|file| self.unlink(file))
    }

    fn remove(&self) -> Result<(), StateError> {
        self.clear()?;
        self.unlink(LOCK)?;
        let base = &self.base.0;
        let name = self.name.as_str();
        unlinkat(base, name, UnlinkatFlags::RemoveDir).map_err(refused("remove", &self.path))
    }

    fn unlink(&self, file: &str) -> Result<(), StateError> {
        match unlinkat(&self.directory, file, UnlinkatFlags::NoRemoveDir) {
            // A lab that ended early does not have all of its files.
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(refused("remove", &self.path.join(file))(errno)),
        }
    }
}

impl ReservedSlot {
    /// Returns the name of the lab.
    pub fn name(&self) -> &LabName {
        &self.slot.name
    }

    /// Gives up this process's share of the lock, and returns the slot as other processes see it.
    pub(super) fn release_share(self) -> Option<LabSlot> {
        let _turn = self.slot.base.lock().ok()?;
        // Opened again, because a lock belongs to the open file (flock(2)), which the lab shares.
        LabSlot::find(&self.slot.base, self.name()).ok().flatten()
    }

    pub(super) fn slot(&self) -> &LabSlot {
        &self.slot
    }

    /// Records this process as the one whose end ends the lab.
    pub(super) fn record_supervisor(&self) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC;
        let mut file = file_in(&self.slot.directory, SUPERVISOR, flags)?;
        writeln!(file, "{}", ProcessIdentity::own()?)
    }

    /// Opens the lab's log for writing.
    pub(super) fn log(&self) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND;
        Ok(file_in(&self.slot.directory, LOG, flags)?)
    }

    /// Releases the name and removes everything. Does nothing if the directory is already gone.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn release(self) -> Result<(), StateError> {
        if !self.slot.is_in_place() {
            return Ok(());
        }
        let _turn = self.slot.base.lock()?;
        self.slot.remove()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::testkit::Scratch;
    use super::*;

    #[test]
    fn a_name_is_taken_once_at_a_time() {
        let scratch = Scratch::new();
        let base = scratch.base();
        let [one, two] = ["one", "two"].map(|name| name.parse::<LabName>().unwrap());
        let taken = LabSlot::reserve(&base, &one).unwrap();
        let error = LabSlot::reserve(&base, &one).unwrap_err();
        assert!(error.to_string().contains("one is already up"), "{error}");
        let other = LabSlot::reserve(&base, &two).unwrap();
        assert_eq!(base.names(), [one.clone(), two]);
        taken.release().unwrap();
        other.release().unwrap();
        assert!(base.names().is_empty());
        LabSlot::reserve(&base, &one).unwrap();
    }

    #[test]
    fn a_lab_is_alive_while_its_lock_is_held_and_swept_after() {
        let scratch = Scratch::new();
        let base = scratch.base();
        let name: LabName = "geo".parse().unwrap();
        let taken = LabSlot::reserve(&base, &name).unwrap();
        taken.record_supervisor().unwrap();
        taken.log().unwrap().write_all(b"what happened\n").unwrap();
        let found = LabSlot::find(&base, &name).unwrap().unwrap();
        assert!(found.is_alive().unwrap() && !found.remove_if_dead().unwrap());
        assert_eq!(found.supervisor(), Some(ProcessIdentity::own().unwrap()));
        assert_eq!(found.log_tail(), "what happened");
        drop(taken); // as if killed: nothing is removed
        assert!(!found.is_alive().unwrap() && found.path.join(LOG).exists());
        assert!(found.remove_if_dead().unwrap());
        assert!(base.names().is_empty() && !found.remove_if_dead().unwrap());
    }

    #[test]
    fn the_next_lab_of_that_name_finds_nothing_of_the_killed_one() {
        let scratch = Scratch::new();
        let base = scratch.base();
        let name: LabName = "geo".parse().unwrap();
        let first = LabSlot::reserve(&base, &name).unwrap();
        first.record_supervisor().unwrap();
        let path = first.slot().path.clone();
        drop(first);
        let _second = LabSlot::reserve(&base, &name).unwrap();
        assert!(!path.join(SUPERVISOR).exists());
    }

    #[test]
    fn a_lab_notices_that_its_directory_is_gone() {
        let scratch = Scratch::new();
        let base = scratch.base();
        let name: LabName = "geo".parse().unwrap();
        let taken = LabSlot::reserve(&base, &name).unwrap();
        assert!(taken.slot().is_in_place());
        fs::remove_dir_all(&taken.slot().path).unwrap();
        assert!(!taken.slot().is_in_place());
        let _other = LabSlot::reserve(&base, &name).unwrap();
        assert!(!taken.slot().is_in_place());
        taken.release().unwrap();
        assert_eq!(base.names(), [name], "the other one's is left alone");
    }

    #[test]
    fn no_symbolic_link_is_followed() {
        let scratch = Scratch::new();
        let base = scratch.base();
        let name: LabName = "geo".parse().unwrap();
        let elsewhere = scratch.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, base.0.path().join("geo")).unwrap();
        assert!(LabSlot::reserve(&base, &name).is_err());
        assert!(LabSlot::find(&base, &name).is_err());
        fs::remove_file(base.0.path().join("geo")).unwrap();
        // Nor for the files inside.
        let taken = LabSlot::reserve(&base, &name).unwrap();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, taken.slot().path.join(SUPERVISOR)).unwrap();
        assert!(taken.record_supervisor().is_err());
        taken.release().unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn a_damaged_file_names_no_process() {
        let scratch = Scratch::new();
        let taken = LabSlot::reserve(&scratch.base(), &"geo".parse().unwrap()).unwrap();
        for text in ["", "1", "x y", "-1 5", "0 0", "1 2 3"] {
            fs::write(taken.slot().path.join(SUPERVISOR), text).unwrap();
            assert_eq!(taken.slot().supervisor(), None, "{text:?}");
        }
    }
}
