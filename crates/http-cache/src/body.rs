//! Finds the end of a message body as its bytes arrive.

use super::head::BodyFraming;

/// Most bytes of a line with a chunk's size, and of the last such line together with the trailers.
const LONGEST_LINE: usize = 4096;

/// The body does not follow the chunked coding of RFC 9112 §7.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunks")]
pub struct BadChunk;

/// Parser of a message body. It is fed the bytes that arrive, and separates the body from the message
/// behind it, and content from chunk framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyParser {
    state: BodyState,
    /// Bytes of the current size line, or of it and the trailers.
    line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// Content with this many bytes left, and the state that follows it.
    Content(u64, AfterContent),
    /// Inside a chunk's size: its value and digits so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// Inside a chunk extension.
    Extension {
        size: u64,
    },
    /// Expects the LF after a size.
    SizeEnd {
        size: u64,
    },
    /// Expects the CR and LF after a chunk.
    ChunkCr,
    ChunkLf,
    /// Inside the trailers: `empty` if the line has no bytes yet, `cr` if its last byte was a CR.
    Trailers {
        empty: bool,
        cr: bool,
    },
    UntilClose,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterContent {
    End,
    Chunk,
}

impl BodyParser {
    /// Starts a body with this framing.
    pub fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::None | BodyFraming::Length(0) => BodyState::End,
            BodyFraming::Length(length) => BodyState::Content(length, AfterContent::End),
            BodyFraming::Chunked => BodyState::Size { size: 0, digits: 0 },
            BodyFraming::UntilClose => BodyState::UntilClose,
        };
        Self { state, line: 0 }
    }

    /// Returns `true` once the complete body has arrived.
    pub fn is_over(&self) -> bool {
        self.state == BodyState::End
    }

    /// Consumes bytes that have arrived, and passes their content to `content`. Returns the number of bytes
    /// that belong to the body; the bytes behind them are the next message.
    ///
    /// # Errors
    /// [`BadChunk`] if the chunked coding is malformed.
    pub fn take(
        &mut self,
        bytes: &[u8],
        mut content: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < bytes.len() && !self.is_over() {
            match self.state {
                BodyState::Content(left, after) => {
                    let count = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    content(&bytes[at..at + count]);
                    at += count;
                    self.state = match (left - count as u64, after) {
                        (0, AfterContent::End) => BodyState::End,
                        (0, AfterContent::Chunk) => BodyState::ChunkCr,
                        (left, after) => BodyState::Content(left, after),
                    };
                }
                BodyState::UntilClose => {
                    content(&bytes[at..]);
                    at = bytes.len();
                }
                _ => {
                    self.state = self.step(bytes[at])?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    /// Consumes one byte of chunk framing. Neither a bare CR nor a bare LF ends a line: RFC 9112 §2.2
    /// permits a recipient to accept the LF, but a strict reader cannot disagree with the next one about
    /// where a body ends.
    fn step(&mut self, byte: u8) -> Result<BodyState, BadChunk> {
        self.line += 1;
        if self.line > LONGEST_LINE {
            return Err(BadChunk);
        }
        Ok(match (self.state, byte) {
            // 15 hexadecimal digits fit into a `u64`.
            (BodyState::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                BodyState::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (BodyState::Size { size, digits: 1.. }, b'\r') => BodyState::SizeEnd { size },
            (BodyState::Size { size, digits: 1.. }, b';' | b' ' | b'\t') => {
                BodyState::Extension { size }
            }
            (BodyState::Extension { size }, b'\r') => BodyState::SizeEnd { size },
            (BodyState::Extension { size }, byte) if byte != b'\n' => BodyState::Extension { size },
            (BodyState::SizeEnd { size: 0 }, b'\n') => {
                BodyState::Trailers { empty: true, cr: false }
            }
            (BodyState::SizeEnd { size }, b'\n') => BodyState::Content(size, AfterContent::Chunk),
            (BodyState::ChunkCr, b'\r') => BodyState::ChunkLf,
            (BodyState::ChunkLf, b'\n') => {
                self.line = 0;
                BodyState::Size { size: 0, digits: 0 }
            }
            (BodyState::Trailers { empty: true, cr: true }, b'\n') => BodyState::End,
            (BodyState::Trailers { empty: false, cr: true }, b'\n') => {
                BodyState::Trailers { empty: true, cr: false }
            }
            (BodyState::Trailers { empty, cr: false }, b'\r') => {
                BodyState::Trailers { empty, cr: true }
            }
            (BodyState::Trailers { cr: false, .. }, byte) if byte != b'\n' => {
                BodyState::Trailers { empty: false, cr: false }
            }
            _ => return Err(BadChunk),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        framing: BodyFraming,
        bytes: &[u8],
        piece: usize,
    ) -> Result<(Vec<u8>, usize, bool), BadChunk> {
        let (mut body, mut content, mut taken) = (BodyParser::new(framing), Vec::new(), 0);
        for piece in bytes.chunks(piece) {
            taken += body.take(piece, |it| content.extend_from_slice(it))?;
        }
        Ok((content, taken, body.is_over()))
    }

    const CHUNKS: &[u8] = b"4\r\nWiki\r\nA;name=\"v\"\r\n0123456789\r\n0\r\nX: y\r\n\r\n";

    #[test]
    fn pieces_make_no_difference() {
        let behind = [CHUNKS, b"GET /"].concat();
        for piece in 1..behind.len() {
            let (content, taken, over) = read(BodyFraming::Chunked, &behind, piece).unwrap();
            assert_eq!(
                (content.as_slice(), taken, over),
                (&b"Wiki0123456789"[..], CHUNKS.len(), true)
            );
        }
        let counted = read(BodyFraming::Length(5), b"helloGET", 3).unwrap();
        assert_eq!(counted, (b"hello".to_vec(), 5, true));
        assert_eq!(read(BodyFraming::None, b"GET", 3).unwrap(), (vec![], 0, true));
        assert_eq!(read(BodyFraming::UntilClose, b"abc", 2).unwrap(), (b"abc".to_vec(), 3, false));
    }

    #[test]
    fn a_body_that_was_cut_off_is_not_over() {
        for cut in 0..CHUNKS.len() {
            assert!(!read(BodyFraming::Chunked, &CHUNKS[..cut], 9).unwrap().2, "{cut}");
        }
        assert!(!read(BodyFraming::Length(5), b"hell", 9).unwrap().2);
    }

    #[test]
    fn what_others_might_read_differently_is_no_chunk() {
        for bytes in [
            &b"\r\n"[..],
            b"g\r\n",
            b"-4\r\n",
            b"0x4\r\n",
            b"4\nWiki",
            b"4\r\nWikiX",
            b"4\r\nWiki\n",
            b"4\rX",
            b"fffffffffffffffff\r\n",
            b"0\r\nX: y\n\r\n",
            b"4 ;a\nb\r\n",
            &[b'0'; 5000],
        ] {
            assert_eq!(
                read(BodyFraming::Chunked, bytes, 7),
                Err(BadChunk),
                "{:?}",
                &bytes[..4.min(bytes.len())]
            );
        }
    }
}
