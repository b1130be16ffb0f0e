//! Sending side of one direction.

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use super::look::{SampleResult, classify, is_encrypted};
use super::{CHUNK, ContextSlot, ContextSlots, FRAME, REST, RUN, SMALL_FRAME, WINDOW, dictionary};

/// zstd's fastest ordinary level, for bulk: with this window the next two do not make logs and JSON any
/// shorter.
const LEVEL: i32 = 1;
/// Bytes written at once from which the data counts as bulk. Smaller pieces are compressed with the
/// dictionary and a higher level, for six times the processor time or more.
const BULK: usize = 16 << 10;
/// Most inconclusive samples before the direction is left uncompressed.
const MOST_SAMPLES: u32 = 16;
/// Bytes after which a frame must have saved a twentieth, or it ends.
const TRIAL: u64 = 128 << 10;
/// Bytes that are then sent uncompressed before the next sample.
const PAUSE: u64 = 1 << 20;

/// Encodes the data of one direction as segments.
pub struct Encoder {
    state: EncoderState,
    slots: ContextSlots,
    /// `true` while the dictionary is used: the peer has it, and no bulk was written.
    is_small: bool,
    /// `true` if data was compressed before: it may become compressible again.
    was_compressible: bool,
}

enum EncoderState {
    /// The next data decides, after this many inconclusive samples.
    Looking(u32),
    Frame(Box<EncoderFrame>),
    /// Uncompressed for this many bytes.
    Pause(u64),
    /// Everything to the end is sent uncompressed.
    Rest,
}

/// A frame being written, and what it has saved recently.
struct EncoderFrame {
    context: CCtx<'static>,
    is_small: bool,
    _slot: ContextSlot,
    before: u64,
    after: u64,
}

impl Encoder {
    /// Creates an encoder that compresses where it pays, while a slot of `slots` is free.
    pub fn new(slots: ContextSlots) -> Self {
        Self { state: EncoderState::Looking(0), slots, is_small: false, was_compressible: false }
    }

    /// Sets whether the peer has the dictionary.
    pub fn with_dictionary(self, peer_has_it: bool) -> Self {
        Self { is_small: peer_has_it, ..self }
    }

    /// Returns `true` if everything that follows is uncompressed: the owner need not call [`Self::encode`].
    pub fn is_rest(&self) -> bool {
        matches!(self.state, EncoderState::Rest)
    }

    /// Memory of the context in bytes, while a frame is open.
    #[cfg(test)]
    pub(super) fn memory(&self) -> Option<usize> {
        match &self.state {
            EncoderState::Frame(frame) => Some(frame.context.sizeof()),
            _ => None,
        }
    }

    /// Appends the segments of the next data to `out`, at most 64 kB of it; returns the number of bytes
    /// encoded. The peer can decode all of them from `out` at once.
    pub fn encode(&mut self, data: &[u8], out: &mut Vec<u8>) -> usize {
        let data = &data[..data.len().min(CHUNK)];
        self.is_small &= data.len() < BULK;
        self.decide(data, out);
        match &mut self.state {
            EncoderState::Rest => out.extend_from_slice(data),
            EncoderState::Looking(_) => write_run(data, out),
            EncoderState::Pause(left) => {
                write_run(data, out);
                *left = left.saturating_sub(data.len() as u64);
                if *left == 0 {
                    self.state = EncoderState::Looking(0);
                }
            }
            EncoderState::Frame(frame) => {
                frame.write(data, out);
                if frame.is_vain() {
                    frame.end(out);
                    self.state = EncoderState::Pause(PAUSE);
                }
            }
        }
        data.len()
    }

    /// Appends what must precede the end of the direction.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let EncoderState::Frame(frame) = &mut self.state {
            frame.end(out);
        }
        self.state = EncoderState::Rest;
    }

    /// Samples the next data if that may change how it is sent.
    fn decide(&mut self, data: &[u8], out: &mut Vec<u8>) {
        match &mut self.state {
            EncoderState::Rest | EncoderState::Pause(_) => {}
            // TLS after CONNECT or STARTTLS.
            EncoderState::Frame(frame) if is_encrypted(data) => {
                frame.end(out);
                self.begin_rest(out);
            }
            // The dictionary and its level are for small pieces only.
            EncoderState::Frame(frame) if frame.is_small && !self.is_small => {
                frame.turn_to_bulk(out);
            }
            EncoderState::Frame(_) => {}
            EncoderState::Looking(looks) => match classify(data) {
                SampleResult::Unclear if *looks < MOST_SAMPLES => *looks += 1,
                SampleResult::Compressible => self.begin_frame(out),
                SampleResult::Dense | SampleResult::Unclear
                    if self.was_compressible && !is_encrypted(data) =>
                {
                    // Compressible data may follow again.
                    self.state = EncoderState::Pause(PAUSE);
                }
                SampleResult::Dense | SampleResult::Unclear => self.begin_rest(out),
            },
        }
    }

    fn begin_frame(&mut self, out: &mut Vec<u8>) {
        match self.slots.take().and_then(|slot| EncoderFrame::new(slot, self.is_small)) {
            Some(frame) => {
                out.push(if self.is_small { SMALL_FRAME } else { FRAME });
                self.was_compressible = true;
                self.state = EncoderState::Frame(Box::new(frame));
            }
            None => self.begin_rest(out),
        }
    }

    fn begin_rest(&mut self, out: &mut Vec<u8>) {
        out.push(REST);
        self.state = EncoderState::Rest;
    }
}

fn write_run(data: &[u8], out: &mut Vec<u8>) {
    let [_, length @ ..] = (data.len() as u32).to_be_bytes();
    out.push(RUN);
    out.extend(length);
    out.extend_from_slice(data);
}

impl EncoderFrame {
    fn new(slot: ContextSlot, is_small: bool) -> Option<Self> {
        let mut context = CCtx::try_create()?;
        configure(&mut context, is_small);
        Some(Self { context, is_small, _slot: slot, before: 0, after: 0 })
    }

    /// Ends the frame and begins another one for bulk.
    fn turn_to_bulk(&mut self, out: &mut Vec<u8>) {
        self.end(out);
        self.context.reset(ResetDirective::SessionAndParameters).expect("no frame is open");
        configure(&mut self.context, false);
        out.push(FRAME);
        self.is_small = false;
        (self.before, self.after) = (0, 0);
    }

    fn write(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let before = out.len();
        self.drive(data, ZSTD_EndDirective::ZSTD_e_flush, out);
        self.before += data.len() as u64;
        self.after += (out.len() - before) as u64;
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.drive(&[], ZSTD_EndDirective::ZSTD_e_end, out);
    }

    /// Returns `true` if the last bytes have hardly been compressed.
    fn is_vain(&mut self) -> bool {
        if self.before < TRIAL {
            return false;
        }
        let is_vain = self.after * 20 > self.before * 19;
        (self.before, self.after) = (0, 0);
        is_vain
    }

    fn drive(&mut self, data: &[u8], until: ZSTD_EndDirective, out: &mut Vec<u8>) {
        let mut input = InBuffer::around(data);
        let mut part = [0; 4096];
        loop {
            let mut output = OutBuffer::around(&mut part[..]);
            let left = self.context.compress_stream2(&mut output, &mut input, until);
            out.extend_from_slice(output.as_slice());
            // Fails only if there is no memory for the tables, or the context is misused.
            if left.expect("the context is used as zstd wants it") == 0 {
                return;
            }
        }
    }
}

/// Prepares a context for a frame.
fn configure(context: &mut CCtx<'static>, is_small: bool) {
    let mut set = |parameter| {
        context.set_parameter(parameter).expect("the value is in range and no frame is open");
    };
    set(CParameter::WindowLog(WINDOW));
    if is_small {
        // The type of the segment identifies the dictionary, so zstd need not.
        set(CParameter::DictIdFlag(false));
        // The level is part of the prepared dictionary.
        context.ref_cdict(&dictionary::OF_ENCODERS).expect("no frame is open");
    } else {
        set(CParameter::CompressionLevel(LEVEL));
    }
}
