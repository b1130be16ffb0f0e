//! The threads of a hub, one for each of its parts, and their sockets. The first part is on the thread
//! of everything else.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread::{self, JoinHandle};

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::hop::udp::{self, SiblingSockets, UdpLink};
use crate::process::error::RunError;
use crate::process::runtime;

/// The runtimes of a gateway's parts, each with one thread.
pub(crate) struct Workers {
    handles: Vec<Handle>,
    threads: Vec<Thread>,
}

/// A thread that runs until dropped.
struct Thread {
    /// Dropping it ends the thread.
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
    /// Returns the workers of a gateway in one part: the calling thread only.
    pub(crate) fn none() -> Self {
        Self { handles: vec![Handle::current()], threads: Vec::new() }
    }

    /// Starts a thread for each of a hub's `parts` but the first, which stays on this one. `gathers`: as
    /// for [`runtime::start`].
    ///
    /// # Errors
    /// If the system permits no further threads or descriptors.
    pub(crate) fn start(parts: u8, gathers: bool) -> io::Result<Self> {
        let mut workers = Self::none();
        // The first part is on this thread, with everything else.
        for part in 1..parts {
            let runtime = runtime::start(gathers)?;
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

    /// Number of parts, this thread's included.
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

/// Binds a port of all addresses for all workers; of IPv4 only where there is no IPv6.
///
/// # Errors
/// As [`bind`].
pub(super) fn bind_anywhere(
    port: u16,
    workers: &Workers,
    beside: Option<SiblingSockets>,
) -> Result<Vec<UdpLink>, RunError> {
    let v6: SocketAddr = (Ipv6Addr::UNSPECIFIED, port).into();
    match bind(v6, workers, beside) {
        Err(RunError::Bind { cause, .. }) if is_no_ipv6(&cause) => {
            bind((Ipv4Addr::UNSPECIFIED, port).into(), workers, beside)
        }
        result => result,
    }
}

/// Binds an address for all workers, perhaps beside the sockets of another process that keeps these
/// indices.
///
/// # Errors
/// [`RunError::Bind`].
pub(crate) fn bind(
    address: SocketAddr,
    workers: &Workers,
    beside: Option<SiblingSockets>,
) -> Result<Vec<UdpLink>, RunError> {
    let sockets = match beside {
        Some(others) => udp::bind_beside(address, workers.count(), others),
        None => udp::bind_parts(address, workers.count()),
    };
    let bound = sockets.and_then(|sockets| {
        let link = |(part, socket)| {
            // A socket belongs to the runtime that it is wrapped in.
            let _its = workers.of(part).enter();
            UdpLink::from_socket(socket, address.is_ipv6())
        };
        (0..).zip(sockets).map(link).collect()
    });
    bound.map_err(|cause| RunError::Bind { address, cause })
}

fn is_no_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[tokio::test]
    async fn each_part_has_a_thread_that_ends_with_the_workers() {
        let workers = Workers::start(3, true).unwrap();
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
