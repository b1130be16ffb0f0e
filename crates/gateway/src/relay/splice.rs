//! Splicing from socket to socket through a pipe, so that the bytes stay in the kernel.

use std::io;
use std::task::{Context, Poll};

use nix::errno::Errno;
use pep::relay::{LegSide, LegStep};
use tokio::io::Interest;

use super::end::{SocketEnd, failure_of};
use crate::figures::counters::{GatewayCounters, GaugeShare};
use crate::relay::pipe::SplicePipe;

/// A pipe with bytes of a connection.
pub(super) struct Piped<'c> {
    pipe: SplicePipe,
    left: usize,
    _share: GaugeShare<'c>,
}

/// Fills a pipe with received data of the source once the sink has room. `None` if no pipe can be created,
/// for lack of descriptors.
pub(super) fn fill<'c>(
    context: &mut Context<'_>,
    from: LegSide,
    [source, sink]: [&SocketEnd; 2],
    counters: &'c GatewayCounters,
) -> Result<Option<Piped<'c>>, LegStep> {
    match source.poll_ready(context, Interest::READABLE) {
        Poll::Pending => return Err(LegStep::Blocked(from)),
        Poll::Ready(Err(error)) => return Err(LegStep::Failed(from, failure_of(&error))),
        Poll::Ready(Ok(())) => {}
    }
    // Without room at the sink, the pipe would be held for as long as the peer does not read.
    match sink.poll_ready(context, Interest::WRITABLE) {
        Poll::Pending => return Err(LegStep::Blocked(from.other())),
        Poll::Ready(Err(error)) => return Err(LegStep::Failed(from.other(), failure_of(&error))),
        Poll::Ready(Ok(())) => {}
    }
    // Without a pipe the data is copied.
    let Ok(pipe) = SplicePipe::borrow() else { return Ok(None) };
    let fill = || source.socket.try_io(Interest::READABLE, || fill_from(&pipe, source, counters));
    let filled = source.poll_io(context, Interest::READABLE, fill);
    match filled {
        Poll::Ready(Ok(left @ 1..)) => {
            source.has_read();
            Ok(Some(Piped { pipe, left, _share: counters.in_pipes.hold(left) }))
        }
        unfilled => {
            pipe.give_back();
            Err(match unfilled {
                Poll::Pending => LegStep::Blocked(from),
                Poll::Ready(Ok(_)) => LegStep::End,
                Poll::Ready(Err(error)) => LegStep::Failed(from, failure_of(&error)),
            })
        }
    }
}

/// Fills the pipe from the socket. An urgent byte is copied, because the kernel does not splice it.
fn fill_from(
    pipe: &SplicePipe,
    source: &SocketEnd,
    counters: &GatewayCounters,
) -> io::Result<usize> {
    match pipe.fill(&*source.socket) {
        Err(Errno::EAGAIN) if source.is_at_urgent() => {
            let count = pipe.copy_byte(&*source.socket)?;
            counters.traffic.urgent.add(count as u64);
            Ok(count)
        }
        filled => Ok(filled?),
    }
}

impl Piped<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Writes as much as `sink` accepts.
    pub(super) fn empty(
        &mut self,
        context: &mut Context<'_>,
        to: LegSide,
        sink: &SocketEnd,
    ) -> LegStep {
        let pipe = &self.pipe;
        let left = self.left;
        let write =
            || sink.socket.try_io(Interest::WRITABLE, || Ok(pipe.empty(&*sink.socket, left)?));
        match sink.poll_io(context, Interest::WRITABLE, write) {
            Poll::Pending => LegStep::Blocked(to),
            Poll::Ready(Err(error)) => LegStep::Failed(to, failure_of(&error)),
            Poll::Ready(Ok(taken)) => {
                self.left -= taken;
                LegStep::Moved(taken)
            }
        }
    }

    /// Returns an empty pipe for reuse.
    pub(super) fn give_back(self) {
        debug_assert!(self.is_empty(), "a pipe with bytes in it would mix connections");
        self.pipe.give_back();
    }
}
