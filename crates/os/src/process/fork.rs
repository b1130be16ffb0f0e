//! Forks a process of one thread.

use std::fs;
use std::io::{self, Write};

use nix::sys::wait::waitpid;
use nix::unistd::ForkResult;

/// Returns the number of threads of this process.
///
/// # Errors
/// If there is no `/proc`.
pub fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Forks this process (fork(2)).
///
/// # Errors
/// If it has a second thread, which the child would lack with whatever locks it holds; those of
/// fork(2).
pub fn fork() -> io::Result<ForkResult> {
    let threads = threads()?;
    if threads != 1 {
        return Err(io::Error::other(format!("a process of {threads} threads cannot fork")));
    }
    // SAFETY: this is the only thread, so the child has everything it had.
    Ok(unsafe { nix::unistd::fork() }?)
}

/// Runs `work` in a child process and returns its text.
///
/// # Errors
/// As for [`fork`]; `UnexpectedEof` if the child ended without a text.
pub fn in_child(work: impl FnOnce() -> String) -> io::Result<String> {
    let (reader, writer) = io::pipe()?;
    match fork()? {
        ForkResult::Child => {
            drop(reader);
            let mut writer = writer;
            let _ = writer.write_all(work().as_bytes());
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            // Or the pipe would not end with the child.
            drop(writer);
            // Read before waiting: a full pipe blocks the child.
            let said = io::read_to_string(reader);
            let _ = waitpid(child, None);
            let said = said?;
            if said.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(said) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_does_not_fork() {
        // The test harness has at least one other thread.
        let forked = std::thread::scope(|scope| scope.spawn(fork).join()).unwrap();
        assert!(forked.unwrap_err().to_string().contains("threads"));
    }
}
