//! A gateway as a child process: starting, waiting, stopping.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::PairError;

/// Printed by a gateway once it is in service.
const READY: &str = "ready";
/// Maximum stderr kept from a child. The tail is kept: it has the reason for the exit.
const COMPLAINTS_MAX: usize = 16 * 1024;
/// Time a child has to exit after SIGTERM before SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Polling interval while waiting for a child to exit.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A running gateway. Killed when dropped.
pub(crate) struct GatewayProcess {
    name: String,
    process: Child,
    /// Lines that it has written to stdout.
    lines: Receiver<String>,
    /// Thread that collects its stderr.
    stderr: Option<JoinHandle<String>>,
    /// The time at which it is killed, once it has been asked to end.
    deadline: Option<Instant>,
}

impl GatewayProcess {
    /// Starts `command` with `config` on its stdin. The child ignores Ctrl-C, because its parent
    /// may outlive the signal.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn start(
        name: String,
        mut command: Command,
        config: &str,
    ) -> Result<Self, PairError> {
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = match command.spawn() {
            Ok(process) => process,
            Err(cause) => return Err(PairError::Start { name, cause }),
        };
        let lines = lines_of(process.stdout.take().expect("stdout is piped"));
        // Read continuously, because a child that fills the pipe blocks.
        let complaints = thread::spawn({
            let stderr = process.stderr.take().expect("stderr is piped");
            move || tail_of(stderr)
        });
        // Closed on return, which ends the configuration.
        let mut stdin = process.stdin.take().expect("stdin is piped");
        let gateway = Self { name, process, lines, stderr: Some(complaints), deadline: None };
        // A child that has already exited gives its reason on stderr; see `wait_ready`.
        let _ = stdin.write_all(config.as_bytes());
        Ok(gateway)
    }

    /// Waits until the gateway reports that it is in service.
    ///
    /// # Errors
    /// If it exits first, or does not report within `limit`.
    pub(crate) fn wait_ready(&mut self, limit: Duration) -> Result<(), PairError> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.trim() == READY => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    // `failure` reads stderr to its end, which comes only with the end of the
                    // process.
                    let _ = self.process.kill();
                    return Err(self.failure(&format!("was not ready in {} s", limit.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.end()?;
                    return Err(self.failure(&format!("ended ({status})")));
                }
            }
        }
    }

    /// Checks whether the gateway has failed. One that exited in order after a signal has not: a
    /// signal to a lab reaches everything in it.
    ///
    /// # Errors
    /// If it has failed, with its stderr.
    pub(crate) fn check(&mut self) -> Result<(), PairError> {
        let status = self.process.try_wait();
        match status.map_err(|cause| self.lost(cause))? {
            Some(status) if !status.success() => Err(self.failure(&format!("ended ({status})"))),
            _ => Ok(()),
        }
    }

    /// Stops gateways side by side: all are asked to end before any is waited for.
    ///
    /// # Errors
    /// The first failure of one, with its stderr; the others are stopped as well.
    pub(crate) fn stop_all(mut all: Vec<Self>) -> Result<(), PairError> {
        all.iter_mut().for_each(|gateway| _ = gateway.ask_to_end());
        all.into_iter().map(Self::stop).fold(Ok(()), Result::and)
    }

    /// Asks the gateway to end, and waits for its exit.
    ///
    /// # Errors
    /// If it fails, with its stderr.
    pub(crate) fn stop(mut self) -> Result<(), PairError> {
        self.check()?;
        let status = self.end()?;
        if !status.success() {
            return Err(self.failure(&format!("ended ({status})")));
        }
        Ok(())
    }

    /// Sends SIGTERM, then SIGKILL if that does not help.
    fn end(&mut self) -> Result<ExitStatus, PairError> {
        self.terminate().map_err(|cause| self.lost(cause))
    }

    fn terminate(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.process.try_wait()? {
            return Ok(status);
        }
        let deadline = self.ask_to_end();
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            thread::sleep(LOOK_INTERVAL);
        }
        self.process.kill()?;
        self.process.wait()
    }

    /// Sends SIGTERM, on which a gateway ends its sessions. Returns the time at which one that hangs is killed.
    fn ask_to_end(&mut self) -> Instant {
        *self.deadline.get_or_insert_with(|| {
            // A child that has been waited for has no process any more, and its id may be another's.
            if matches!(self.process.try_wait(), Ok(None)) {
                let id = i32::try_from(self.process.id()).expect("process ids are positive i32");
                let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
            }
            Instant::now() + END_LIMIT
        })
    }

    /// Describes the gateway's failure together with its stderr. Call it after the child has
    /// exited.
    fn failure(&mut self, what: &str) -> PairError {
        let said = self.stderr.take().and_then(|thread| thread.join().ok());
        let said = match said.as_deref().map(str::trim) {
            None | Some("") => "no message",
            Some(said) => said,
        };
        PairError::Failed { name: self.name.clone(), what: what.to_owned(), said: said.to_owned() }
    }

    fn lost(&self, cause: io::Error) -> PairError {
        PairError::Process { name: self.name.clone(), cause }
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // Killed at once: a caller that needs an orderly end calls `stop`.
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn lines_of(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    // On a thread, because reading from a pipe has no time limit.
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Reads stderr to its end and returns the tail.
fn tail_of(stderr: impl Read) -> String {
    let mut tail = String::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        tail += &line;
        tail.push('\n');
        while tail.len() > COMPLAINTS_MAX {
            let end = tail.find('\n').map_or(tail.len(), |at| at + 1);
            tail.drain(..end);
        }
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> GatewayProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        GatewayProcess::start("hub".into(), command, "rate = 1\n").expect("starts")
    }

    #[test]
    fn a_child_that_is_ready_runs_until_stopped() {
        let mut gateway = shell(
            "trap 'exit 0' TERM; read line; echo \"$line\"; echo ready; while read x; do :; done; \
             sleep 60 & wait",
        );
        gateway.wait_ready(LIMIT).unwrap();
        gateway.check().unwrap();
        gateway.stop().unwrap();
    }

    #[test]
    fn after_the_failure_of_one_child_the_others_are_asked_to_end_as_well() {
        let directory = tempfile::tempdir().unwrap();
        let [failed, orderly] = ["exit 3", "echo ended >>$1; exit 0"].map(|at_end| {
            let script = format!("trap '{at_end}' TERM; echo ready; while :; do sleep 0.01; done");
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh"]).arg(directory.path().join("ends"));
            let mut gateway = GatewayProcess::start("hub".into(), command, "").unwrap();
            gateway.wait_ready(LIMIT).unwrap();
            gateway
        });
        let error = GatewayProcess::stop_all(vec![failed, orderly]).unwrap_err().to_string();
        assert_eq!(error, "the hub ended (exit status: 3): no message");
        assert_eq!(std::fs::read_to_string(directory.path().join("ends")).unwrap(), "ended\n");
    }

    #[test]
    fn what_a_failed_child_said_is_passed_on() {
        let mut gateway = shell("echo 'skyhop: no privilege' >&2; exit 2");
        let error = gateway.wait_ready(LIMIT).unwrap_err().to_string();
        assert_eq!(error, "the hub ended (exit status: 2): skyhop: no privilege");
    }

    #[test]
    fn a_child_that_ends_too_early_is_noticed() {
        let mut gateway = shell("echo ready; exit 3");
        gateway.wait_ready(LIMIT).unwrap();
        assert_eq!(gateway.process.wait().unwrap().code(), Some(3));
        let error = gateway.check().unwrap_err().to_string();
        assert_eq!(error, "the hub ended (exit status: 3): no message");
    }

    #[test]
    fn only_the_end_of_many_complaints_is_kept() {
        let text: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
        let tail = tail_of(text.as_bytes());
        assert!(tail.len() <= COMPLAINTS_MAX && tail.ends_with("line 9999\n"));
        assert!(tail.starts_with("line "));
    }
}
