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
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, sigaction, sigprocmask,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpgrp, pipe, tcgetpgrp, tcsetpgrp};
use os::clock;

/// Terminating signals, passed on to everything in the lab.
const ENDINGS: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
/// How long the lab's processes may take to end after SIGTERM or SIGHUP.
const GRACE: Duration = Duration::from_secs(2);

/// Forks twice; returns in the lab process only.
pub(crate) fn split() -> nix::Result<()> {
    let mask = SigSet::thread_get_mask()?;
    let waited = waited_for()?;
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&waited), None)?;
    default_sigchld()?;
    let (alive, held) = pipe()?;
    // SAFETY: the process has one thread (checked by `enter`).
    match unsafe { fork() }? {
        ForkResult::Parent { child } => supervise(child, &waited, alive),
        ForkResult::Child => drop(held),
    }
    die_with_parent(&alive)?;
    drop(alive);
    // SAFETY: as above.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => init(child, &waited),
        ForkResult::Child => sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None),
    }
}

/// For a process that runs a command in the lab: terminating signals (Ctrl-C, SIGTERM) are from now
/// on for the command to handle, and this process waits until it ends. The command itself starts
/// with the default actions.
pub fn leave_signals_to_the_command() {
    extern "C" fn nothing(_: i32) {}
    // A handler instead of SIG_IGN, because exec(2) resets handlers but keeps ignored signals
    // ignored.
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    for signal in heeded() {
        // SAFETY: a handler that does nothing is safe at any point.
        let set = unsafe { sigaction(signal, &action) };
        set.expect("these signals can be caught");
    }
}

/// The terminating signals.
pub(crate) fn endings() -> SigSet {
    ENDINGS.into_iter().collect()
}

/// Runs a command and waits for it, as [`supervise`] does for a lab: passes on signals and keeps
/// the terminal's foreground. Returns its exit code, or 128 + the signal that ended it. The command
/// is killed when this process ends.
pub(crate) fn attend(command: &mut Command) -> io::Result<i32> {
    let (mask, waited) = (SigSet::thread_get_mask()?, waited_for()?);
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

/// The parent process may have set SIGCHLD to be ignored, which is inherited and hides how children
/// ended.
fn default_sigchld() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is involved.
    unsafe { sigaction(Signal::SIGCHLD, &action) }.map(drop)
}

/// SIGCHLD, and those of [`ENDINGS`] that this process does not ignore (as under nohup).
fn waited_for() -> nix::Result<SigSet> {
    let mut set: SigSet = heeded().collect();
    set.add(Signal::SIGCHLD);
    Ok(set)
}

fn heeded() -> impl Iterator<Item = Signal> {
    ENDINGS.into_iter().filter(|signal| !is_ignored(*signal))
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the old action is written to a buffer of its type; an all-zero one
    // is valid, should the call fail.
    let action = unsafe {
        libc::sigaction(signal as i32, core::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
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

/// This process's group, and whether it has the terminal's foreground.
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

/// The next of `signals`, and whether the kernel sent it (on behalf of the terminal). `None` when
/// the time `left` is over or the wait was interrupted.
fn wait_for_signal(signals: &SigSet, left: Option<Duration>) -> Option<(Signal, bool)> {
    let left = left.map(|left| libc::timespec {
        tv_sec: left.as_secs() as libc::time_t,
        tv_nsec: left.subsec_nanos().into(),
    });
    let timeout = left.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: all three point to initialised values of the right types, or are
    // null where that is allowed.
    let number = unsafe { libc::sigtimedwait(signals.as_ref(), info.as_mut_ptr(), timeout) };
    let signal = Signal::try_from(number).ok()?;
    // SAFETY: zero is a valid siginfo_t, and the kernel filled it in.
    let from_kernel = unsafe { info.assume_init() }.si_code == libc::SI_KERNEL;
    Some((signal, from_kernel))
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
