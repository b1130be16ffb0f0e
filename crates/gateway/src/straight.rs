//! Joins two TCP connections without a hop: the client's, and ours to the server. Bytes are
//! spliced, and stay in the kernel.
//!
//! The promises of [`crate::relay`] hold here too: a FIN is passed on as a FIN, a reset as a reset,
//! and a slow reader slows the sender down.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::connections::{Registered, Waits};
use crate::counters::Counters;
use crate::leg::{self, Leg, PATIENCE};
use crate::pipe::{CAPACITY, Pipe};
use crate::{scratch, tcp};

/// Bytes after which a busy direction yields to others.
const TURN: usize = 4 * CAPACITY;

/// A leg failed, usually by a RST: the other is reset.
struct Broken;

/// How a direction ended.
enum End {
    /// Its FIN was passed on.
    Passed,
    /// The receiving end has closed and answered with a RST (EPIPE). What it sent before, including
    /// its FIN, may still be unread.
    Deaf,
}

/// Direction of a flow.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// From the client to the server.
    Up,
    Down,
}

/// One direction of a connection.
struct Flow<'a> {
    from: &'a Leg,
    to: &'a Leg,
    way: Way,
    entry: &'a Registered<'a>,
    counters: &'a Counters,
    /// Whether the FIN was passed on.
    passed: AtomicBool,
}

/// Relays until both directions end. `first` is data already received from the client.
pub(crate) async fn relay(
    client: Leg,
    server: Leg,
    first: &[u8],
    entry: Registered<'_>,
    counters: &Counters,
) {
    entry.joins(client.socket().as_raw_fd(), server.socket().as_raw_fd());
    for leg in [&client, &server] {
        // Fails if the peer has reset the connection; copying will notice.
        let _ = tcp::prepare(leg.socket(), &counters.keepalive);
    }
    let flow = |from, to, way| Flow {
        from,
        to,
        way,
        entry: &entry,
        counters,
        passed: AtomicBool::new(false),
    };
    let up = flow(&client, &server, Way::Up);
    let down = flow(&server, &client, Way::Down);
    let ended = tokio::select! {
        ended = async { tokio::try_join!(up.run(first), down.run(&[])) } => ended,
        _ = client.failure(|| up.is_passed()) => Err(Broken),
        _ = server.failure(|| down.is_passed()) => Err(Broken),
    };
    entry.socket_ends();
    let is_clean = matches!(ended, Ok((End::Passed, End::Passed)));
    if is_clean { &counters.closed } else { &counters.reset }.increment();
    match ended {
        Ok((End::Passed, End::Passed)) => {
            tokio::join!(client.deliver_rest(), server.deliver_rest());
        }
        Ok((End::Deaf, End::Passed)) => {
            drop(server);
            client.discard(PATIENCE).await;
        }
        Ok((End::Passed, End::Deaf)) => {
            drop(client);
            server.discard(PATIENCE).await;
        }
        Ok((End::Deaf, End::Deaf)) | Err(Broken) => {}
    }
}

impl Flow<'_> {
    fn is_passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }

    async fn run(&self, first: &[u8]) -> Result<End, Broken> {
        match self.move_all(first).await {
            Ok(()) => {
                self.passed.store(true, Ordering::Relaxed);
                Ok(End::Passed)
            }
            Err(Failure::Sink(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(End::Deaf),
            Err(_) => Err(Broken),
        }
    }

    /// Moves all data, then the FIN.
    async fn move_all(&self, first: &[u8]) -> Result<(), Failure> {
        let (from, to) = (self.from.socket(), self.to.socket());
        send_all(to, first).await?;
        self.moved(first.len());
        let mut turn = 0;
        loop {
            self.waits_for_source();
            from.readable().await.map_err(|_| Failure::Source)?;
            self.waits_for_sink();
            // Take only what the other leg has room for.
            to.writable().await.map_err(Failure::Sink)?;
            let Some(count) = step(from, to, self.counters).await? else { continue };
            if count == 0 {
                return leg::shut_down(to).map_err(Failure::Sink);
            }
            self.from.has_read();
            self.moved(count);
            turn += count;
            if turn >= TURN {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Flow<'_> {
    fn moved(&self, count: usize) {
        match self.way {
            Way::Up => self.entry.moved_up(count),
            Way::Down => self.entry.moved_down(count),
        }
    }

    fn waits_for_source(&self) {
        match self.way {
            Way::Up => self.entry.waits_to_hop(Waits::Socket),
            Way::Down => self.entry.waits_from_hop(Waits::Stream),
        }
    }

    fn waits_for_sink(&self) {
        match self.way {
            Way::Up => self.entry.waits_to_hop(Waits::Stream),
            Way::Down => self.entry.waits_from_hop(Waits::Socket),
        }
    }
}

/// Which leg of a direction failed.
enum Failure {
    /// The leg being read.
    Source,
    /// The leg being written.
    Sink(io::Error),
}

/// Moves what is available: `None` if nothing yet, 0 for the FIN. Copies if no pipe is available
/// for lack of descriptors.
async fn step(
    from: &TcpStream,
    to: &TcpStream,
    counters: &Counters,
) -> Result<Option<usize>, Failure> {
    match Pipe::borrow() {
        Ok(pipe) => splice(pipe, from, to, counters).await,
        Err(_) => copy(from, to, counters).await,
    }
}

async fn splice(
    pipe: Pipe,
    from: &TcpStream,
    to: &TcpStream,
    counters: &Counters,
) -> Result<Option<usize>, Failure> {
    let filled = from.try_io(Interest::READABLE, || fill(&pipe, from, counters));
    let Some(count) = unless_blocked(filled).map_err(|_| Failure::Source)? else {
        pipe.give_back();
        return Ok(None);
    };
    let _held = counters.in_pipes.hold(count);
    let mut left = count;
    while left > 0 {
        let emptied = to.try_io(Interest::WRITABLE, || Ok(pipe.empty(to, left)?));
        match unless_blocked(emptied).map_err(Failure::Sink)? {
            Some(taken) => left -= taken,
            None => to.writable().await.map_err(Failure::Sink)?,
        }
    }
    pipe.give_back();
    Ok(Some(count))
}

/// Fills the pipe. The kernel does not splice urgent data, so that byte is copied.
fn fill(pipe: &Pipe, from: &TcpStream, counters: &Counters) -> io::Result<usize> {
    match pipe.fill(from) {
        Err(Errno::EAGAIN) if tcp::is_at_urgent(from) => {
            let count = pipe.copy_byte(from)?;
            counters.urgent.add(count as u64);
            Ok(count)
        }
        filled => Ok(filled?),
    }
}

async fn copy(
    from: &TcpStream,
    to: &TcpStream,
    counters: &Counters,
) -> Result<Option<usize>, Failure> {
    let is_urgent = tcp::is_at_urgent(from);
    let read = scratch::with(|buffer| {
        let read = unless_blocked(from.try_read(buffer)).map_err(|_| Failure::Source)?;
        let Some(count) = read else { return Ok(None) };
        let taken = write_some(to, &buffer[..count])?;
        Ok(Some((count, buffer[taken..count].to_vec())))
    })?;
    let Some((count, rest)) = read else { return Ok(None) };
    if is_urgent {
        counters.urgent.increment();
    }
    send_all(to, &rest).await?;
    Ok(Some(count))
}

async fn send_all(to: &TcpStream, mut data: &[u8]) -> Result<(), Failure> {
    while !data.is_empty() {
        to.writable().await.map_err(Failure::Sink)?;
        data = &data[write_some(to, data)?..];
    }
    Ok(())
}

/// Writes what the socket accepts now, possibly nothing.
fn write_some(to: &TcpStream, data: &[u8]) -> Result<usize, Failure> {
    Ok(unless_blocked(to.try_write(data)).map_err(Failure::Sink)?.unwrap_or(0))
}

fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests;
