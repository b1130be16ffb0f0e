//! The signals that end a process, and waiting for signals.

use core::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The signals that ask a process to end.
const TERMINATING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Returns the signals that ask a process to end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
pub fn terminating_signals() -> SigSet {
    TERMINATING.into_iter().collect()
}

/// Leaves terminating signals (Ctrl-C, SIGTERM) to the command that this process runs, so that this
/// process can wait until it ends. The command itself starts with the default actions.
pub fn leave_signals_to_the_command() {
    extern "C" fn nothing(_: i32) {}
    // A handler instead of SIG_IGN, because exec(2) resets handlers but keeps ignored signals
    // ignored.
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    for signal in handled_signals() {
        // SAFETY: a handler that does nothing is safe at any point.
        let set = unsafe { sigaction(signal, &action) };
        set.expect("these signals can be caught");
    }
}

/// Returns SIGCHLD, and those of [`terminating_signals`] that this process does not ignore (as under nohup).
pub(super) fn waited_for() -> SigSet {
    let mut set: SigSet = handled_signals().collect();
    set.add(Signal::SIGCHLD);
    set
}

fn handled_signals() -> impl Iterator<Item = Signal> {
    TERMINATING.into_iter().filter(|signal| !is_ignored(*signal))
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

/// Restores the default action of SIGCHLD: the parent process may have set it to be ignored, which
/// is inherited and hides how children end.
pub(super) fn default_sigchld() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is involved.
    unsafe { sigaction(Signal::SIGCHLD, &action) }.map(drop)
}

/// Waits for the next of `signals`, which must be blocked. Returns it, and true if the kernel sent
/// it (on behalf of the terminal). `None` when the time `left` is over or the wait was interrupted.
pub(super) fn wait_for_signal(signals: &SigSet, left: Option<Duration>) -> Option<(Signal, bool)> {
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
