//! Forks a process of one thread.

use std::fs;
use std::io;

use nix::unistd::ForkResult;

/// Number of threads of this process.
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
