//! Moves the process into new namespaces: user (for ordinary users), mount, PID and network.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};
use thiserror::Error;

use crate::process;

/// The reason why namespaces could not be created or entered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnterError {
    /// The process has several threads, and only one of them would enter.
    #[error("only a single-threaded process can enter a lab, and this one has {threads} threads")]
    Threads {
        /// The number of threads of the process.
        threads: usize,
    },
    /// The kernel refused a step.
    #[error("cannot {step}: {cause}{hint}")]
    Refused {
        /// The refused step, such as "create a user namespace".
        step: &'static str,
        /// The error that the kernel returned.
        cause: io::Error,
        /// A hint for the user, if the cause is known.
        hint: String,
    },
}

/// Moves the process into its own namespaces, where it may create networks: directly as root, or
/// through a user namespace as an ordinary user.
///
/// The function returns in a *child* of the calling process. (The first child in the new PID
/// namespace is an init that reaps orphans; the child is that one's.) The caller itself stays
/// outside: it passes on signals, waits, and exits with the child's exit code, or 128 + the signal
/// that killed it. However the caller or the child ends, nothing is left behind.
///
/// # Errors
/// If there is already a second thread, or the kernel refuses a namespace.
pub fn enter() -> Result<(), EnterError> {
    expect_one_thread()?;
    leave_users()?;
    let rest = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET;
    unshare(rest).map_err(EnterError::refused("create mount, PID and network namespaces"))?;
    // Not private: the lab must not keep a disk busy that is unmounted outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
        .map_err(EnterError::refused("make mounts private to the lab"))?;
    process::split().map_err(EnterError::refused("start the lab's first process"))?;
    mount_proc();
    Ok(())
}

/// Checks that the process has a single thread: namespaces belong to threads, and a fork copies
/// only one.
///
/// # Errors
/// If it has more, or there is no `/proc` to count them.
pub fn expect_one_thread() -> Result<(), EnterError> {
    match process::threads().map_err(EnterError::refused("count the threads"))? {
        1 => Ok(()),
        threads => Err(EnterError::Threads { threads }),
    }
}

/// Enters a user namespace if the process may not create the others otherwise.
fn leave_users() -> Result<(), EnterError> {
    // Root in a container may lack the right, so it is tried.
    if Uid::effective().is_root() && unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        return Ok(());
    }
    enter_user().map_err(EnterError::refused("create a user namespace"))
}

/// Moves the process, which must have one thread, into a user namespace in which it is root
/// (user_namespaces(7)).
///
/// # Errors
/// The kernel's refusal: EPERM where users may not create any.
pub fn enter_user() -> io::Result<()> {
    let uid = Uid::effective();
    let gid = Gid::effective();
    unshare(CloneFlags::CLONE_NEWUSER)?;
    // gid_map may only be written after setgroups(2) has been given up.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))
}

/// Mounts a `/proc` that shows the lab's processes. Some containers forbid it; the lab then works
/// with the host's.
fn mount_proc() {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(error) = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
        tracing::debug!("cannot mount the lab's own /proc: {error}");
    }
}

impl EnterError {
    /// Returns the error for a refused step, such as "create a user namespace", with a hint if its
    /// cause is known.
    pub fn refused<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| {
            let cause = cause.into();
            let code = cause.raw_os_error();
            let hint = code.map_or(String::new(), |code| hint(Errno::from_raw(code)));
            Self::Refused { step, cause, hint }
        }
    }
}

/// Returns the usual obstacle to user namespaces on this kind of system, as a part of the error's
/// text.
fn hint(errno: Errno) -> String {
    if !matches!(errno, Errno::EPERM | Errno::EACCES | Errno::ENOSPC | Errno::EUSERS) {
        return String::new();
    }
    let setting = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok();
    let is = |name: &str, value: &str| setting(name).is_some_and(|text| text.trim() == value);
    let cause = if is("user/max_user_namespaces", "0") {
        "the sysctl user.max_user_namespaces is 0"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "the sysctl kernel.unprivileged_userns_clone is 0"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor forbids it: the sysctl kernel.apparmor_restrict_unprivileged_userns is 1"
    } else {
        "check the sysctl user.max_user_namespaces and the container's limits"
    };
    format!(" ({cause}; or run as root)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_refused() {
        // The test harness has at least one other thread.
        let inside = std::thread::scope(|scope| scope.spawn(enter).join()).unwrap();
        assert!(matches!(inside, Err(EnterError::Threads { threads: 2.. })));
    }

    #[test]
    fn only_a_lack_of_permission_is_given_a_hint() {
        assert!(hint(Errno::EPERM).contains("run as root"));
        assert_eq!(hint(Errno::ENOMEM), "");
    }
}
