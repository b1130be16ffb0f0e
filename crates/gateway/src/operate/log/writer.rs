//! Writes log lines on a thread of its own.
//!
//! A write to standard error can fail (full disk, closed pipe, lost terminal) or block for ever (a
//! stopped reader, as with `| less`). A gateway has one thread for everything else, which must not
//! wait for that.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use control::status::LogLoss;

/// Limit of queued lines, in bytes: a few seconds of `debug`.
const MAX_WAITING: usize = 1 << 20;

/// The queue of lines, between the gateway and the writing thread.
pub(super) struct LineQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Set while the thread writes a line, which is no longer queued.
    is_writing: bool,
    loss: Option<LogLoss>,
    /// Lost lines that the log itself does not mention yet.
    unreported: u64,
}

impl QueueState {
    fn lose(&mut self, cause: &str) {
        let lines = self.loss.take().map_or(0, |loss| loss.lines) + 1;
        self.loss = Some(LogLoss { lines, cause: cause.to_owned() });
        self.unreported += 1;
    }
}

impl LineQueue {
    /// Starts the thread that writes to standard error.
    ///
    /// # Panics
    /// The system has no thread left.
    pub(super) fn start() -> Arc<Self> {
        // Not `io::stderr()`: a blocked write would hold its lock until the process ends.
        let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
        Self::start_with(stderr.expect("standard error can be duplicated"))
    }

    fn start_with(out: impl Write + Send + 'static) -> Arc<Self> {
        let queue = Arc::new(Self { state: Mutex::default(), changed: Condvar::new() });
        let lines = Arc::clone(&queue);
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || lines.write_all(out)).expect("a thread for the log");
        queue
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        // To wait for room would freeze every connection of the gateway.
        if state.waiting_bytes + line.len() > MAX_WAITING {
            state.lose("its reader has stopped");
            return;
        }
        state.waiting_bytes += line.len();
        state.waiting.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until all lines are written, for `limit` at most.
    pub(super) fn flush(&self, limit: Duration) {
        let is_busy = |state: &mut QueueState| state.is_writing || !state.waiting.is_empty();
        drop(self.changed.wait_timeout_while(self.state(), limit, is_busy));
    }

    /// Lines lost since the start.
    pub(super) fn loss(&self) -> Option<LogLoss> {
        self.state().loss.clone()
    }

    fn write_all(&self, mut out: impl Write) -> ! {
        loop {
            let line = self.next();
            let result = out.write_all(&line);
            let mut state = self.state();
            match result {
                Err(error) => state.lose(&error.to_string()),
                Ok(()) if state.unreported > 0 => {
                    let unreported = core::mem::take(&mut state.unreported);
                    drop(state);
                    // In one write, so that lines of several processes do not mix.
                    let note = format!("skyhop: {unreported} lines of this log were lost\n");
                    let result = out.write_all(note.as_bytes());
                    state = self.state();
                    if result.is_err() {
                        state.unreported += unreported;
                    }
                }
                Ok(()) => {}
            }
            state.is_writing = false;
            drop(state);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Vec<u8> {
        let mut state = self.state();
        loop {
            if let Some(line) = state.waiting.pop_front() {
                state.waiting_bytes -= line.len();
                state.is_writing = true;
                return line;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Queues the subscriber's lines, each of which is one write. Never fails and never waits.
pub(super) struct LineWriter(pub(super) Arc<LineQueue>);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A log that fails or takes a line as the test says, one write after the other.
    struct Scripted {
        outcomes: Receiver<io::Result<()>>,
        written: Sender<String>,
    }

    impl Write for Scripted {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Without an outcome the reader has stopped.
            self.outcomes.recv().unwrap_or_else(|_| {
                loop {
                    thread::park();
                }
            })?;
            self.written.send(String::from_utf8(line.to_vec()).unwrap()).unwrap();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn scripted(outcomes: Vec<io::Result<()>>) -> (Arc<LineQueue>, Receiver<String>) {
        let (script, played) = channel();
        outcomes.into_iter().for_each(|outcome| script.send(outcome).unwrap());
        let (written, lines) = channel();
        (LineQueue::start_with(Scripted { outcomes: played, written }), lines)
    }

    #[test]
    fn failed_lines_are_counted_and_mentioned_once_the_log_can_be_written_again() {
        let full = || Err(io::ErrorKind::StorageFull.into());
        let (queue, lines) = scripted(vec![Ok(()), full(), full(), Ok(()), Ok(()), Ok(())]);
        for line in ["one\n", "two\n", "three\n", "four\n", "five\n"] {
            LineWriter(Arc::clone(&queue)).write_all(line.as_bytes()).unwrap();
        }
        queue.flush(LONG);
        let loss = queue.loss().unwrap();
        assert_eq!((loss.lines, loss.cause.as_str()), (2, "no storage space"));
        let lines: String = lines.try_iter().collect();
        assert_eq!(lines, "one\nfour\nskyhop: 2 lines of this log were lost\nfive\n");
    }

    #[test]
    fn a_reader_that_stopped_holds_up_neither_the_gateway_nor_its_end() {
        let (queue, _lines) = scripted(Vec::new());
        let line = [b'x'; 1000];
        let mut taken = 0;
        while queue.loss().is_none() {
            LineWriter(Arc::clone(&queue)).write_all(&line).unwrap();
            taken += line.len();
            assert!(taken <= MAX_WAITING + 2 * line.len(), "{taken} bytes wait");
        }
        assert_eq!(queue.loss().unwrap().cause, "its reader has stopped");
        queue.flush(Duration::from_millis(1));
        assert!(queue.state().waiting_bytes > 0);
    }
}
