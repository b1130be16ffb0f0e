//! Test helper: two sides of a session without the packet layer between them.

use super::*;
use crate::wire::frame;

impl StreamSet {
    /// Processes a frame from packet `number`; returns whether its data was accepted.
    pub(super) fn hear(
        &mut self,
        (now, number): (Instant, u64),
        mut bytes: &[u8],
    ) -> Result<bool, ProtocolError> {
        match frame::read(&mut bytes).unwrap().unwrap() {
            Frame::Open { stream, window, credit, open, .. } => {
                self.on_open(now, stream, window, credit, *open)?;
            }
            Frame::StreamCredit { stream, returns, limit } => {
                self.on_stream_credit(now, stream, returns, limit);
            }
            Frame::Accept(stream) => self.on_accept(now, stream),
            Frame::Return { stream, returns, limit } => self.on_return(stream, returns, limit)?,
            Frame::SessionCredit(limit) => self.on_session_credit(limit),
            Frame::Reset { stream, reason, sent } => self.on_reset(now, stream, reason, sent)?,
            Frame::Stream { stream, offset, fin, data } => {
                return self.on_data((now, number), stream, offset, data, fin);
            }
            frame => panic!("{frame:?}"),
        }
        Ok(true)
    }

    /// Returns the next frame, which is acknowledged at once.
    pub(super) fn say(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(frame) = self.next_control(|_| true) {
            frame.write(&mut bytes, true);
            return Some(bytes);
        }
        let chunk = self.next_lost(|_| 1400).or_else(|| self.next_new(0, |_| 1400));
        let StreamChunk { stream, range, fin, .. } = chunk?;
        let offset = frame::TruncatedOffset::full(range.start);
        frame::write_stream_head(&mut bytes, stream, offset, fin, None);
        self.copy(stream, &range, &mut bytes);
        self.on_acknowledged(now, stream, range, fin);
        Some(bytes)
    }
}
