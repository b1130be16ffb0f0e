//! Commands of the owner: reading, writing, closing, aborting.

use thiserror::Error;
use units::{ByteCount, Instant};

use super::{AbortReason, Connection, ConnectionEvent, TcpState};
use crate::SegmentPayload;
use crate::segment::{HeaderFlags, Segment};

/// The reason why data could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The connection is not open, or no longer.
    #[error("the connection is not open")]
    NotOpen,
    /// The stream has been closed by [`Connection::close`].
    #[error("the stream has been closed")]
    Finished,
}

impl<P: SegmentPayload> Connection<P> {
    /// Appends as much data to the stream as fits; returns the number of bytes. If some is left
    /// over, [`ConnectionEvent::Writable`] follows.
    ///
    /// # Errors
    /// If the connection is not open or the stream was closed.
    pub fn write(&mut self, data: &P) -> Result<usize, WriteError> {
        use TcpState::{CloseWait, Established, SynReceived, SynSent};
        if self.sender.is_finished() {
            return Err(WriteError::Finished);
        }
        if !matches!(self.state, SynSent | SynReceived | Established | CloseWait) {
            return Err(WriteError::NotOpen);
        }
        let space = usize::try_from(self.sender.space()).unwrap_or(usize::MAX);
        let len = data.len().min(space);
        self.sender.write(data.slice(0..len));
        // Only a caller who has something left waits for the event.
        self.write_blocked = len < data.len();
        Ok(len)
    }

    /// Returns the number of bytes that may be written.
    pub fn room(&self) -> ByteCount {
        ByteCount::new(self.sender.space())
    }

    /// Returns the largest payload of a segment, in bytes.
    pub fn segment_size(&self) -> u64 {
        self.sender.mss()
    }

    /// Returns true if there is room for `bytes` more; if not, [`ConnectionEvent::Writable`] follows when
    /// there is more room than now.
    pub fn has_room(&mut self, bytes: ByteCount) -> bool {
        let has_room = self.sender.space() >= bytes.get();
        self.write_blocked |= !has_room;
        has_room
    }

    /// Returns the number of bytes written that were never sent.
    pub fn unsent(&self) -> ByteCount {
        ByteCount::new(self.sender.unsent())
    }

    /// Returns the next data in order, at most `max` bytes; `None` if there is none yet, or no
    /// more.
    pub fn read(&mut self, max: usize) -> Option<P> {
        let data = self.receiver.read(max)?;
        // RFC 9293 §3.8.6.2.2: the peer may be waiting for the window that reading has opened.
        if self.is_synchronised()
            && !self.receiver.is_complete()
            && self.receiver.owes_update(self.sender.mss())
        {
            self.acks.due = true;
        }
        Some(data)
    }

    /// Returns the number of bytes that can be read.
    pub fn readable(&self) -> u64 {
        self.receiver.ready_len()
    }

    /// Bytes written and not acknowledged; 0 once the connection is over.
    pub fn unacknowledged(&self) -> ByteCount {
        let is_over = self.state == TcpState::Closed;
        ByteCount::new(if is_over { 0 } else { self.sender.held() })
    }

    /// Bytes written and not acknowledged, received in order and not read, and received out of order.
    pub fn held(&self) -> ByteCount {
        ByteCount::new(self.sender.held() + self.receiver.held_bytes())
    }

    /// Returns true if an acknowledgement must leave now, for instance because reading has opened
    /// the window.
    pub fn owes_ack(&self) -> bool {
        self.acks.due
    }

    /// Ends our stream after the data written so far: CLOSE of RFC 9293 §3.10.4. The peer's stream
    /// continues. If the SYN has not been answered yet, the connection is given up, including the
    /// data written.
    pub fn close(&mut self) {
        match self.state {
            TcpState::Listen | TcpState::SynSent => {
                self.state = TcpState::Closed;
                self.notify(ConnectionEvent::Closed);
            }
            // The FIN waits for the handshake, as other data does (RFC 9293 §3.10.4).
            TcpState::SynReceived => self.sender.finish(),
            TcpState::Established => {
                self.sender.finish();
                self.state = TcpState::FinWait1;
            }
            TcpState::CloseWait => {
                self.sender.finish();
                self.state = TcpState::LastAck;
            }
            _ => {}
        }
    }

    /// Ends the connection at once with a reset: ABORT of RFC 9293 §3.10.5. As in Linux, also after
    /// CLOSE if the FIN has yet to be sent, because the peer would wait for ever. Returns whether a
    /// reset is sent: a peer that has closed too, or never answered, needs none.
    pub fn abort(&mut self, now: Instant) -> bool {
        use TcpState::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, SynReceived};
        let tells = match self.state {
            SynReceived | Established | FinWait1 | FinWait2 | CloseWait => true,
            Closing | LastAck => !self.sender.is_fin_sent(),
            _ => false,
        };
        if tells {
            self.reset(now);
        }
        if self.state != TcpState::Closed {
            self.end(AbortReason::Local);
        }
        tells
    }

    /// Queues the reset of [`Self::abort`], also for a repetition.
    pub(crate) fn reset(&mut self, now: Instant) {
        let flags = HeaderFlags { rst: true, ..HeaderFlags::default() };
        let reset = Segment { flags, ..self.bare_segment(now) };
        self.outbox.push_back(reset);
    }
}
