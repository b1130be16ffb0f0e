//! Detaches a lab from the command that starts it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigmaskHow, sigprocmask};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};
use os::descriptor::close_inherited;
use os::namespace::{EnterError, expect_one_thread};
use os::process;

use super::ReservedSlot;

/// Sent by a lab when it is ready for use.
const READY: &str = "ready";

/// The process in which [`detach`] returned.
pub enum DetachedProcess {
    /// The command that started the lab. The lab is ready, or the error says why not.
    Command(Result<(), String>),
    /// The process that will be the lab's supervisor.
    Lab(StartingLab),
}

/// The slot that the lab holds, and its channel to the command that started it.
#[derive(Debug)]
pub struct StartingLab {
    taken: ReservedSlot,
    ready: File,
}

/// Splits the process. The command waits until the lab is ready or has failed; the lab runs on in
/// its own session, without the terminal.
///
/// # Errors
/// If there is a second thread, or the operating system refuses a step.
pub fn detach(taken: ReservedSlot) -> Result<DetachedProcess, EnterError> {
    expect_one_thread()?;
    let (told, tell) = pipe2(OFlag::O_CLOEXEC).map_err(EnterError::refused("make a pipe"))?;
    match process::fork().map_err(EnterError::refused("start the lab's supervisor"))? {
        ForkResult::Parent { .. } => {
            // The pipe ends with the lab only if no other process can write to it.
            drop(tell);
            let slot = taken.release_share();
            let told = wait(BufReader::new(File::from(told)));
            let autopsy =
                || slot.map_or_else(|| "the lab has ended".into(), |slot| slot.failure_reason());
            Ok(DetachedProcess::Command(told.map_err(|said| said.unwrap_or_else(autopsy))))
        }
        ForkResult::Child => {
            drop(told);
            let starting = StartingLab { taken, ready: tell.into() };
            if let Err(error) = starting.leave_session() {
                starting.fail(&error);
            }
            Ok(DetachedProcess::Lab(starting))
        }
    }
}

/// Waits for the lab's message that it is ready, or of its failure. The error is `None` if it ended
/// without one.
fn wait(mut lab: impl BufRead) -> Result<(), Option<String>> {
    let mut line = String::new();
    // After an error the line is empty, as if the lab had ended without a message.
    let _ = lab.read_line(&mut line);
    match line.trim_end() {
        READY => Ok(()),
        "" => Err(None),
        error => Err(Some(error.to_owned())),
    }
}

impl StartingLab {
    /// Detaches the process from the session and terminal.
    fn leave_session(&self) -> io::Result<()> {
        setsid()?;
        close_inherited();
        let null = File::open("/dev/null")?;
        let log = self.taken.log()?;
        dup2_stdin(&null)?;
        dup2_stdout(&log)?;
        dup2_stderr(&log)?;
        std::env::set_current_dir("/")?;
        // They are received by a descriptor, together with requests.
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&process::terminating_signals()), None)?;
        self.taken.record_supervisor()
    }

    /// Tells the command that the lab is ready. If the command is gone, the lab is not wanted any
    /// more. Returns the reserved slot.
    pub(super) fn report_ready(mut self) -> io::Result<ReservedSlot> {
        match writeln!(self.ready, "{READY}") {
            Ok(()) => Ok(self.taken),
            Err(error) => {
                let _ = self.taken.release();
                Err(error)
            }
        }
    }

    pub(super) fn taken(&self) -> &ReservedSlot {
        &self.taken
    }

    /// Tells the command that the lab failed, with the reason, and exits.
    pub fn fail(self, why: &dyn core::fmt::Display) -> ! {
        let Self { taken, mut ready } = self;
        // Released first, so that the name is free once the command has the message.
        let _ = taken.release();
        // The command reads a single line.
        let _ = writeln!(ready, "{}", why.to_string().replace('\n', " "));
        std::process::exit(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_lab_are_passed_on() {
        assert_eq!(wait(&b"ready\n"[..]), Ok(()));
        assert_eq!(wait(&b""[..]), Err(None));
        let refused = "cannot create a user namespace: EPERM";
        assert_eq!(wait(refused.as_bytes()), Err(Some(refused.to_owned())));
    }
}
