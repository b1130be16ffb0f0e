//! Operating system services for the tests of several crates.

mod durability;
mod filter;
mod namespace;

use std::fmt::Display;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, signal};
use nix::unistd::setsid;

use crate::namespace::enter_user;
use crate::process::terminating_signals;

pub use durability::durable_steps;
pub use filter::NoSockets;
pub use namespace::in_namespace;

/// With the value 1, a test that cannot run fails; otherwise it is skipped.
pub const REQUIRE_VARIABLE: &str = "SKYHOP_REQUIRE_LAB";

/// Reports that a test cannot run here.
///
/// # Panics
/// If [`REQUIRE_VARIABLE`] is 1.
pub fn skip(why: impl Display) {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    assert!(!required, "must not be skipped: {why}");
    #[cfg_attr(not(test), expect(clippy::print_stdout, reason = "it is the output of a test"))]
    {
        println!("SKIPPED: {why}");
    }
}

/// Restores the default actions of terminating signals for a command. A shell's background job
/// ignores SIGINT, `nohup` ignores SIGHUP, and child processes inherit that.
pub fn restore_signal_defaults(command: &mut Command) {
    let heed = || {
        for ending in &terminating_signals() {
            // SAFETY: no handler is involved.
            unsafe { signal(ending, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: only sigaction(2) is called between fork and exec.
    unsafe { command.pre_exec(heed) };
}

/// Runs a command as root of a new user namespace.
pub fn run_in_user_namespace(command: &mut Command) {
    // SAFETY: the child has one thread; it makes system calls, and allocates memory, which the C
    // library allows after fork.
    unsafe { command.pre_exec(enter_user) };
}

/// Makes the terminal on a command's stdin its controlling terminal, in a new session: a hang-up
/// then reaches the command.
pub fn take_terminal(command: &mut Command) {
    let take = || {
        setsid()?;
        // SAFETY: the request takes an int, by value.
        let code = unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) };
        Errno::result(code).map(drop).map_err(io::Error::from)
    };
    // SAFETY: only system calls are made between fork and exec.
    unsafe { command.pre_exec(take) };
}
