//! Three processes: the *supervisor* (the one the user started) waits outside; *init* is process 1
//! of the lab's PID namespace and reaps orphans; the *lab* does the work. When one ends, so do the
//! others.
//!
//! The kernel kills a PID namespace when its init ends, and init is killed when the supervisor
//! ends, even by SIGKILL. Init is a separate process so that reaping orphans does not interfere
//! with the lab's own children.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, getpgrp, pipe, tcgetpgrp, tcsetpgrp};

use super::fork::fork;
use super::signals::{default_sigchld, wait_for_signal, waited_for};
use crate::clock;

/// Time within which the lab's processes must end after SIGTERM or SIGHUP.
const GRACE: Duration = Duration::from_secs(2);

/// Forks twice; returns in the lab process only.
pub(crate) fn split() -> io::Result<()> {
    let mask = SigSet::thread_get_mask()?;
    let waited = waited_for();
    // Blocked before the fork, so that a signal between the fork and the wait is not lost.
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&waited), None)?;
    default_sigchld()?;
    let (alive, held) = pipe()?;
    match fork()? {
        ForkResult::Parent { child } => supervise(child, &waited, alive),
        ForkResult::Child => drop(held),
    }
    die_with_parent(&alive)?;
    drop(alive);
    match fork()? {
        ForkResult::Parent { child } => init(child, &waited),
        ForkResult::Child => Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?),
    }
}

/// Runs a command and waits for it, as `supervise` does for a lab: passes on signals and keeps
/// the terminal's foreground. Returns its exit code, or 128 + the signal that ended it. The command
/// is killed when this process ends.
///
/// # Errors
/// If it cannot be started.
pub fn run_supervised(command: &mut Command) -> io::Result<i32> {
    let mask = SigSet::thread_get_mask()?;
    let waited = waited_for();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&waited), None)?;
    default_sigchld()?;
    let (group, foreground) = foreground();
    let prepare = move || {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
        Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
    };
    // SAFETY: sigprocmask(2) and prctl(2) are async-signal-safe.
    unsafe { command.pre_exec(prepare) };
    let child = Pid::from_raw(command.spawn()?.id() as i32);
    let code = watch(child, &waited, None, |signal| send(child, signal));
    if foreground {
        take_foreground(group);
    }
    Ok(code)
}

/// Ends init with the supervisor. `alive` reports end of file once the supervisor is gone, which
/// may have happened before prctl(2) took effect.
fn die_with_parent(alive: &OwnedFd) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut fds = [PollFd::new(alive.as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, PollTimeout::ZERO)? > 0 {
        exit(128 + Signal::SIGKILL as i32);
    }
    Ok(())
}

/// The supervisor: passes signals on to init, and ends as init ends. If its process group had the
/// terminal's foreground, it keeps it: a shell in the lab takes it and, being in another PID
/// namespace, cannot give it back.
fn supervise(init: Pid, waited: &SigSet, _alive: OwnedFd) -> ! {
    let (group, foreground) = foreground();
    let code = watch(init, waited, None, |signal| send(init, signal));
    if foreground {
        take_foreground(group);
    }
    exit(code)
}

/// Returns this process's group, and true if it has the terminal's foreground.
fn foreground() -> (Pid, bool) {
    let group = getpgrp();
    (group, tcgetpgrp(io::stdin()) == Ok(group))
}

fn take_foreground(group: Pid) {
    // SIGTTOU would stop a background process that does this, unless it is blocked.
    let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), None);
    let _ = tcsetpgrp(io::stdin(), group);
}

/// Process 1: reaps orphans, passes on signals, and ends with the lab.
fn init(lab: Pid, waited: &SigSet) -> ! {
    let _ = prctl::set_name(c"skyhop-init");
    // All processes of the PID namespace but this one (kill(2)).
    let everybody = Pid::from_raw(-1);
    exit(watch(lab, waited, Some(GRACE), |signal| send(everybody, signal)))
}

/// Sends a signal; a process that has ended does not need it.
fn send(to: Pid, signal: Signal) {
    let _ = kill(to, signal);
}

/// Waits until `child` ends; returns its exit code, or 128 + the signal that ended it. Reaps all
/// other children, and passes signals to `pass_on`. With a `grace`, waits at most that long after a
/// SIGTERM or SIGHUP.
fn watch(child: Pid, waited: &SigSet, grace: Option<Duration>, pass_on: impl Fn(Signal)) -> i32 {
    let mut deadline = None;
    loop {
        let left = deadline.map(|(at, _)| clock::until(at));
        match (wait_for_signal(waited, left), deadline) {
            (Some((Signal::SIGCHLD, _)), _) => {
                if let Some(code) = reap(child) {
                    return code;
                }
            }
            (Some((signal, from_terminal)), _) => {
                // The terminal has already signalled the whole process group.
                if !(from_terminal && matches!(signal, Signal::SIGINT | Signal::SIGQUIT)) {
                    pass_on(signal);
                }
                if let (Signal::SIGTERM | Signal::SIGHUP, Some(grace), None) =
                    (signal, grace, deadline)
                {
                    deadline = Some((clock::now() + grace, signal));
                }
            }
            (None, Some((at, signal))) if clock::now() >= at => return 128 + signal as i32,
            (None, _) => {}
        }
    }
}

/// Reaps all ended children; returns the exit code of `child` if it is among them.
fn reap(child: Pid) -> Option<i32> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => return Some(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                return Some(128 + signal as i32);
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
            _ => {}
        }
    }
}
