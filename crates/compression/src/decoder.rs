//! Receiving side of one direction.

use pep::work::cost;
use zstd_safe::{InBuffer, OutBuffer};

use super::malformed::MalformedStream;
use super::pool::PooledContext;
use super::{DecoderPool, FRAME, REST, RUN, SMALL_FRAME};

/// Work after which a call without a result ends, in [units](Decoder::work): a quarter of a millisecond.
pub(super) const MOST_WORK: u64 = 250_000;
/// Work per received byte: building the tables of a small block takes longer than its data.
const PER_BYTE: u64 = 16;

/// Decodes the segments of one direction.
///
/// A call does bounded work whatever the peer sends: segments may be empty, and each frame takes a context.
/// Expansion is bounded as well, and happens only as the owner reads: a block of zstd has at least four
/// bytes and expands to at most the window, so data grows at most 8,192 times.
pub struct Decoder {
    state: DecoderState,
    pool: DecoderPool,
    work: u64,
}

enum DecoderState {
    Start,
    /// The value of a run's length so far, and the bytes of it that are missing.
    Length(u32, u8),
    Run(usize),
    Frame(Box<DecoderFrame>),
    Rest,
}

struct DecoderFrame {
    context: PooledContext,
    /// `true` if the context may hold output that did not fit into the buffer.
    has_more: bool,
}

impl Decoder {
    /// Creates a decoder that takes its contexts from `pool`.
    pub fn new(pool: DecoderPool) -> Self {
        Self { state: DecoderState::Start, pool, work: 0 }
    }

    /// The work done so far, in units of a nanosecond of an ordinary processor or less.
    pub fn work(&self) -> u64 {
        self.work
    }

    fn spend(&mut self, work: u64) {
        self.work += work;
        cost::count(work as usize);
    }

    /// Returns `true` if everything that follows is uncompressed: the owner need not call [`Self::decode`].
    pub fn is_rest(&self) -> bool {
        matches!(self.state, DecoderState::Rest)
    }

    /// Decodes from the front of `input` to `out`, which must not be empty; returns the number of bytes
    /// written. If that is 0, either all of the input was used and more is needed, or the call has done
    /// enough work, and the owner calls again after others had their turn.
    ///
    /// # Errors
    /// [`MalformedStream`]; the direction cannot be decoded any further.
    pub fn decode(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<usize, MalformedStream> {
        let until = self.work + MOST_WORK;
        loop {
            let before = input.len();
            let written = match &mut self.state {
                DecoderState::Frame(frame) => {
                    let (written, is_over) = frame.read(input, out)?;
                    if is_over {
                        self.state = DecoderState::Start;
                    }
                    written
                }
                DecoderState::Rest => copy(input, out, usize::MAX),
                DecoderState::Run(left) => {
                    let written = copy(input, out, *left);
                    *left -= written;
                    if *left == 0 {
                        self.state = DecoderState::Start;
                    }
                    written
                }
                DecoderState::Start | DecoderState::Length(..) => {
                    let Some((first, rest)) = input.split_first() else { return Ok(0) };
                    *input = rest;
                    self.state = self.after(*first)?;
                    0
                }
            };
            self.spend(PER_BYTE * (before - input.len()) as u64 + written as u64);
            if written > 0 || input.is_empty() || self.work >= until {
                return Ok(written);
            }
        }
    }

    /// The state after a byte of a segment's header.
    fn after(&mut self, byte: u8) -> Result<DecoderState, MalformedStream> {
        match (&self.state, byte) {
            (DecoderState::Length(so_far, left), _) => {
                let length = so_far << 8 | u32::from(byte);
                let is_whole = *left == 1;
                Ok(if is_whole {
                    DecoderState::Run(length as usize)
                } else {
                    DecoderState::Length(length, left - 1)
                })
            }
            (_, REST) => Ok(DecoderState::Rest),
            (_, RUN) => Ok(DecoderState::Length(0, 3)),
            (_, FRAME | SMALL_FRAME) => {
                let (context, work) = self.pool.take(byte == SMALL_FRAME)?;
                self.spend(work);
                Ok(DecoderState::Frame(Box::new(DecoderFrame { context, has_more: false })))
            }
            (_, kind) => Err(MalformedStream::Kind { kind }),
        }
    }

    /// Checks that the direction may end here, once all of it was decoded.
    ///
    /// # Errors
    /// [`MalformedStream::Truncated`] if it ends within a segment.
    pub fn end(&self) -> Result<(), MalformedStream> {
        match self.state {
            DecoderState::Start | DecoderState::Rest => Ok(()),
            DecoderState::Length(..) | DecoderState::Run(_) | DecoderState::Frame(_) => {
                Err(MalformedStream::Truncated)
            }
        }
    }
}

fn copy(input: &mut &[u8], out: &mut [u8], most: usize) -> usize {
    let count = input.len().min(out.len()).min(most);
    let (now, rest) = input.split_at(count);
    out[..count].copy_from_slice(now);
    *input = rest;
    count
}

impl DecoderFrame {
    /// Returns the number of bytes written, and `true` if the frame is complete.
    fn read(
        &mut self,
        input: &mut &[u8],
        out: &mut [u8],
    ) -> Result<(usize, bool), MalformedStream> {
        // zstd reports the sixteenth call in a row without progress as an error, but an owner may ask as
        // often as it likes whether something has arrived.
        if input.is_empty() && !self.has_more {
            return Ok((0, false));
        }
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(out);
        let left = self.context.get().decompress_stream(&mut to, &mut from);
        let read = from.pos();
        let written = to.pos();
        *input = &input[read..];
        self.has_more = written == out.len();
        left.map(|left| (written, left == 0)).map_err(|_| MalformedStream::Frame)
    }
}
