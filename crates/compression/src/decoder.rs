//! The receiving side of a direction.

use pep::cost;
use zstd_safe::{InBuffer, OutBuffer};

use super::malformed::Malformed;
use super::pool::PooledContext;
use super::{DecoderPool, FRAME, REST, RUN, SMALL_FRAME};

/// The work after which a call that has nothing to return yet ends, in [units](Decoder::work): a quarter of
/// a millisecond.
pub(super) const MOST_WORK: u64 = 250_000;
/// Work per byte that comes: the tables of a small block take longer than its data.
const PER_BYTE: u64 = 16;

/// Reads a direction's data from segments.
///
/// A call does bounded work, whatever comes: segments may be empty, and each frame takes a context. What a few bytes become is bounded, and made only as the owner takes it: a block of zstd has four
/// bytes at least and becomes no more than the window, so that data grows at most 8,192 times.
pub struct Decoder {
    state: State,
    pool: DecoderPool,
    work: u64,
}

enum State {
    Start,
    /// These bytes of a run's length have come.
    Length(u32, u8),
    Run(usize),
    Frame(Box<Frame>),
    Rest,
}

struct Frame {
    context: PooledContext,
    /// Whether the context may hold output for which there was no room.
    has_more: bool,
}

impl Decoder {
    /// A decoder that decompresses with contexts of `pool`.
    pub fn new(pool: DecoderPool) -> Self {
        Self { state: State::Start, pool, work: 0 }
    }

    /// The work done so far, in units of a nanosecond of an ordinary processor or less.
    pub fn work(&self) -> u64 {
        self.work
    }

    fn spend(&mut self, work: u64) {
        self.work += work;
        cost::count(work as usize);
    }

    /// Whether all that follows is as it was: the owner need not call [`Self::decode`].
    pub fn is_rest(&self) -> bool {
        matches!(self.state, State::Rest)
    }

    /// Reads from the front of `input` and writes to `out`, which must not be empty; returns how much
    /// it has written. If that is 0, either all of the input was used, and more is needed; or the call
    /// has done enough for now, and the owner calls again after others had their turn.
    ///
    /// # Errors
    /// See [`Malformed`]. The direction cannot be read any further.
    pub fn decode(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<usize, Malformed> {
        let until = self.work + MOST_WORK;
        loop {
            let before = input.len();
            let written = match &mut self.state {
                State::Frame(frame) => {
                    let (written, is_over) = frame.read(input, out)?;
                    if is_over {
                        self.state = State::Start;
                    }
                    written
                }
                State::Rest => copy(input, out, usize::MAX),
                State::Run(left) => {
                    let written = copy(input, out, *left);
                    *left -= written;
                    if *left == 0 {
                        self.state = State::Start;
                    }
                    written
                }
                State::Start | State::Length(..) => {
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

    /// The state after a byte of a segment's head.
    fn after(&mut self, byte: u8) -> Result<State, Malformed> {
        match (&self.state, byte) {
            (State::Length(so_far, left), _) => {
                let length = so_far << 8 | u32::from(byte);
                let is_whole = *left == 1;
                Ok(if is_whole {
                    State::Run(length as usize)
                } else {
                    State::Length(length, left - 1)
                })
            }
            (_, REST) => Ok(State::Rest),
            (_, RUN) => Ok(State::Length(0, 3)),
            (_, FRAME | SMALL_FRAME) => {
                let (context, work) = self.pool.take(byte == SMALL_FRAME)?;
                self.spend(work);
                Ok(State::Frame(Box::new(Frame { context, has_more: false })))
            }
            (_, kind) => Err(Malformed::Kind { kind }),
        }
    }

    /// Handles the end of the direction, once all of it was decoded.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if it ends within a segment.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.state {
            State::Start | State::Rest => Ok(()),
            State::Length(..) | State::Run(_) | State::Frame(_) => Err(Malformed::Truncated),
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

impl Frame {
    /// How much was written, and whether the frame is over.
    fn read(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<(usize, bool), Malformed> {
        // zstd takes the sixteenth call for nothing in a row for a fault, but an owner may ask as often
        // as it likes whether something has come.
        if input.is_empty() && !self.has_more {
            return Ok((0, false));
        }
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(out);
        let left = self.context.get().decompress_stream(&mut to, &mut from);
        let (read, written) = (from.pos(), to.pos());
        *input = &input[read..];
        self.has_more = written == out.len();
        left.map(|left| (written, left == 0)).map_err(|_| Malformed::Frame)
    }
}
