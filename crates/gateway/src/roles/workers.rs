//! The threads of a hub: one for each of its parts. The first part is on the thread of everything
//! else.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The runtimes of a gateway's parts, each with one thread.
pub(crate) struct Workers {
    handles: Vec<Handle>,
    threads: Vec<Thread>,
}

/// A thread that runs until dropped.
struct Thread {
    /// Dropped to end it.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.running = None;
        // It only fails by a panic, which has been reported.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Workers {
    /// Only this thread.
    pub(crate) fn none() -> Self {
        Self { handles: vec![Handle::current()], threads: Vec::new() }
    }

    /// This thread and others, for `parts` of a hub.
    ///
    /// # Errors
    /// If the system permits no further threads or descriptors.
    pub(crate) fn start(parts: u8) -> io::Result<Self> {
        let mut workers = Self::none();
        for part in 1..parts {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (running, stopped) = oneshot::channel::<()>();
            workers.handles.push(runtime.handle().clone());
            let thread = thread::Builder::new().name(format!("part {part}")).spawn(move || {
                // The sender is dropped without a message.
                let _ = runtime.block_on(stopped);
            })?;
            workers.threads.push(Thread { running: Some(running), thread: Some(thread) });
        }
        Ok(workers)
    }

    /// Number of parts.
    pub(crate) fn count(&self) -> u8 {
        // There are as many as were asked for.
        self.handles.len() as u8
    }

    /// The runtime of a part.
    pub(crate) fn of(&self, part: u8) -> &Handle {
        &self.handles[usize::from(part)]
    }
}

/// Moves a connection to the runtime of the calling task, whose thread then learns first what happens
/// on it.
///
/// # Errors
/// If the process has no descriptor left.
pub(crate) fn adopt(socket: TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(socket.into_std()?)
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[tokio::test]
    async fn each_part_has_a_thread_that_ends_with_the_workers() {
        let workers = Workers::start(3).unwrap();
        let mut threads = vec![current().id()];
        for part in 1..3 {
            threads.push(workers.of(part).spawn(async { current().id() }).await.unwrap());
        }
        threads.sort_by_key(|id| format!("{id:?}"));
        threads.dedup();
        assert_eq!(threads.len(), 3);
        let handle = workers.of(2).clone();
        drop(workers);
        assert!(handle.spawn(async {}).await.unwrap_err().is_cancelled());
    }
}
