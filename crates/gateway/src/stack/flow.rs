//! A connection of the stack: polled reads and writes that wake the task when they can continue.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pep::relay::LegFailure;
use slacp::ResetReason;
use tcp::{AbortReason, FlowFailure, FlowId, FlowRead};

use super::driver::{StackShared, StackState};
use crate::figures::connections::FlowFigures;
use crate::process::clock;

/// A connection, or a SYN that is not answered yet. Dropping it before [`StackFlow::is_delivered`] was called
/// resets it: an aborted connection must not look like a finished one.
pub(crate) struct StackFlow {
    shared: Arc<StackShared>,
    id: FlowId,
    /// Close the connection when dropped, instead of resetting it.
    closes: bool,
}

/// A view of a connection of the stack for the register of connections.
#[derive(Clone)]
pub(crate) struct FlowView {
    shared: Arc<StackShared>,
    id: FlowId,
}

impl StackFlow {
    pub(super) fn new(shared: Arc<StackShared>, id: FlowId) -> Self {
        Self { shared, id, closes: false }
    }

    pub(crate) fn view(&self) -> FlowView {
        FlowView { shared: self.shared.clone(), id: self.id }
    }

    /// Waits until the handshake is complete.
    ///
    /// # Errors
    /// As connect(2).
    pub(crate) async fn connected(&self) -> io::Result<()> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            match state.stack.is_connected(self.id) {
                Ok(false) => state.wait_to_write(self.id, context),
                Ok(true) => Poll::Ready(Ok(())),
                Err(cut) => Poll::Ready(Err(error_of(cut))),
            }
        })
        .await
    }

    /// Waits until the peer gives up a SYN that is not answered, or the connection fails.
    pub(crate) async fn failed(&self) -> LegFailure {
        poll_fn(|context| self.poll_failure(context)).await
    }

    /// Answers the SYN with a SYN-ACK.
    pub(crate) fn accept(&self) {
        self.shared.accept(clock::now(), self.id);
    }

    /// Answers the SYN by the reason why its destination was not reached. For a silent destination nothing
    /// is sent: the host retransmits its SYN until its own time-out.
    pub(crate) fn refuse(self, reason: ResetReason) {
        match reason {
            ResetReason::Refused => {
                self.shared.lock().stack.refuse(self.id);
                self.shared.notify_driver();
            }
            ResetReason::Unreachable => self.shared.tell_unreachable(self.id, false),
            ResetReason::Prohibited => self.shared.tell_unreachable(self.id, true),
            _ => {}
        }
    }

    /// Reads available data; 0 bytes mean the end.
    pub(crate) fn poll_read(
        &self,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, LegFailure>> {
        let mut state = self.shared.lock();
        let mut filled = 0;
        while filled < buffer.len() {
            match state.stack.read(self.id, buffer.len() - filled) {
                FlowRead::Data(data) => {
                    buffer[filled..][..data.len()].copy_from_slice(&data);
                    filled += data.len();
                }
                // The next call returns it again.
                FlowRead::End | FlowRead::Failed(_) if filled > 0 => break,
                FlowRead::End => return Poll::Ready(Ok(0)),
                FlowRead::Failed(cut) => return Poll::Ready(Err(failure_of(cut))),
                FlowRead::Blocked if filled > 0 => break,
                FlowRead::Blocked => return state.wait_to_read(self.id, context),
            }
        }
        drop(state);
        // Reading may have opened the window.
        self.shared.notify_driver();
        Poll::Ready(Ok(filled))
    }

    /// Writes as much of `data` as there is room for, at least one byte.
    pub(crate) fn poll_write(
        &self,
        context: &Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, LegFailure>> {
        let mut state = self.shared.lock();
        let room = match state.room(self.id) {
            Ok(room) => room,
            Err(cut) => return Poll::Ready(Err(failure_of(cut))),
        };
        // Copied, since the stack keeps data until it is acknowledged; so no more than there is room for.
        let data = Bytes::copy_from_slice(&data[..data.len().min(room)]);
        match state.stack.write(self.id, &data) {
            Ok(0) => state.wait_for_room(self.id, context).map_ok(|()| 0),
            Ok(written) => {
                drop(state);
                self.shared.notify_driver();
                Poll::Ready(Ok(written))
            }
            Err(cut) => Poll::Ready(Err(failure_of(cut))),
        }
    }

    /// Polls for room to write.
    pub(crate) fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), LegFailure>> {
        self.shared.lock().wait_for_room(self.id, context)
    }

    pub(crate) fn poll_failure(&self, context: &Context<'_>) -> Poll<LegFailure> {
        let mut state = self.shared.lock();
        match state.stack.failure(self.id) {
            Some(cut) => Poll::Ready(failure_of(cut)),
            None => state.wait_for_failure(self.id, context),
        }
    }

    /// Ends the sending direction (FIN).
    ///
    /// # Errors
    /// The failure of the connection, if it has failed.
    pub(crate) fn finish(&self) -> Result<(), LegFailure> {
        let finished = self.shared.lock().stack.finish(self.id);
        self.shared.notify_driver();
        finished.map_err(failure_of)
    }

    /// Bytes written that the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.shared.lock().stack.unacknowledged(self.id)
    }

    /// Returns whether the peer has acknowledged everything. From now on, dropping the connection closes it
    /// normally.
    pub(crate) fn is_delivered(&mut self) -> bool {
        self.closes = true;
        self.shared.lock().stack.is_delivered(self.id)
    }
}

impl Drop for StackFlow {
    fn drop(&mut self) {
        self.shared.release(clock::now(), self.id, self.closes);
    }
}

impl FlowFigures for FlowView {
    fn rtt(&self) -> Option<Duration> {
        self.shared.lock().stack.stats(self.id)?.smoothed_rtt
    }

    fn congestion_window(&self) -> Option<u32> {
        let state = self.shared.lock();
        let segment = state.stack.segment_size(self.id)?.max(1);
        u32::try_from(state.stack.stats(self.id)?.cwnd.get() / segment).ok()
    }
}

impl std::fmt::Debug for FlowView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FlowView").field(&self.id).finish()
    }
}

/// Translates a failure of the stack for the relay.
fn failure_of(cut: FlowFailure) -> LegFailure {
    LegFailure::of_connection(cut.why, cut.after_end)
}

/// Translates a failure of the stack to the error of connect(2).
fn error_of(cut: FlowFailure) -> io::Error {
    io::Error::from_raw_os_error(match cut.why {
        AbortReason::Refused => libc::ECONNREFUSED,
        AbortReason::TimedOut => libc::ETIMEDOUT,
        AbortReason::Unreachable => libc::EHOSTUNREACH,
        _ => libc::ECONNRESET,
    })
}

impl StackState {
    /// Room to write, in bytes.
    fn room(&mut self, id: FlowId) -> Result<usize, FlowFailure> {
        self.stack.room(id).map(|room| usize::try_from(room).unwrap_or(usize::MAX))
    }

    fn wait_for_room(&mut self, id: FlowId, context: &Context<'_>) -> Poll<Result<(), LegFailure>> {
        match self.stack.has_room(id) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => self.wait_to_write(id, context),
            Err(cut) => Poll::Ready(Err(failure_of(cut))),
        }
    }
}
