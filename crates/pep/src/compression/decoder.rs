//! The receiving side of a direction.

use thiserror::Error;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::{FRAME, REST, RUN, SMALL_FRAME, Slot, Slots, WINDOW, dictionary};

/// Why a direction cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// There is no such segment.
    #[error("there is no segment of type {kind}")]
    Kind {
        /// Its first byte.
        kind: u8,
    },
    /// A frame that is not zstd's, or wants a larger window.
    #[error("a compressed segment is malformed")]
    Frame,
    /// More compressed segments at a time than were agreed on.
    #[error("{open} directions are decompressed already")]
    TooMany {
        /// How many.
        open: usize,
    },
    /// The direction ends within a segment.
    #[error("the data ends within a segment")]
    Truncated,
}

/// Reads a direction's data from segments.
///
/// What a few bytes become is bounded, and made only as the owner takes it: a block of zstd has four
/// bytes at least and becomes no more than the window, so that data grows at most 8,192 times.
pub struct Decoder {
    state: State,
    slots: Slots,
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
    context: DCtx<'static>,
    /// Whether the context may hold output for which there was no room.
    has_more: bool,
    _slot: Slot,
}

impl Decoder {
    /// A decoder that decompresses while there is a place in `slots`.
    pub fn new(slots: Slots) -> Self {
        Self { state: State::Start, slots }
    }

    /// Whether all that follows is as it was: the owner need not call [`Self::decode`].
    pub fn is_rest(&self) -> bool {
        matches!(self.state, State::Rest)
    }

    /// Reads from the front of `input` and writes to `out`, which must not be empty; returns how much
    /// it has written. If that is 0, all of the input was used, and more is needed.
    ///
    /// # Errors
    /// See [`Malformed`]. The direction cannot be read any further.
    pub fn decode(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<usize, Malformed> {
        loop {
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
                    continue;
                }
            };
            if written > 0 || input.is_empty() {
                return Ok(written);
            }
        }
    }

    /// The state after a byte of a segment's head.
    fn after(&self, byte: u8) -> Result<State, Malformed> {
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
                let open = self.slots.taken();
                let slot = self.slots.take().ok_or(Malformed::TooMany { open })?;
                let frame = Frame::new(slot, byte == SMALL_FRAME).ok_or(Malformed::Frame)?;
                Ok(State::Frame(Box::new(frame)))
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
    fn new(slot: Slot, has_dictionary: bool) -> Option<Self> {
        let mut context = DCtx::try_create()?;
        // In range.
        context.set_parameter(DParameter::WindowLogMax(WINDOW)).ok()?;
        if has_dictionary {
            context.ref_ddict(&dictionary::OF_DECODERS).ok()?;
        }
        Some(Self { context, has_more: false, _slot: slot })
    }

    /// How much was written, and whether the frame is over.
    fn read(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<(usize, bool), Malformed> {
        // zstd takes the sixteenth call for nothing in a row for a fault, but an owner may ask as often
        // as it likes whether something has come.
        if input.is_empty() && !self.has_more {
            return Ok((0, false));
        }
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(out);
        let left = self.context.decompress_stream(&mut to, &mut from);
        let (read, written) = (from.pos(), to.pos());
        *input = &input[read..];
        self.has_more = written == out.len();
        left.map(|left| (written, left == 0)).map_err(|_| Malformed::Frame)
    }
}
