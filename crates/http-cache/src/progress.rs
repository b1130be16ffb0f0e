//! Decides when to parse a head that arrives in pieces.

use pep::work::cost;

use super::head::LONGEST_HEAD;

/// Bytes that may be parsed in vain before attempts are spaced out: enough for ordinary heads in many
/// pieces.
const MOST_WASTED: usize = 256 << 10;

/// Progress of a head that is arriving. The parser starts anew at each attempt, so an attempt for each
/// piece of a long head would take quadratic time.
#[derive(Debug, Default)]
pub struct HeadProgress {
    /// Leading empty lines (RFC 9112 §2.2), which the parser skips.
    skipped: usize,
    /// Bytes already searched for the empty line at the end.
    searched: usize,
    /// Bytes parsed by the last attempt, and by all attempts.
    last: usize,
    all: usize,
}

impl HeadProgress {
    /// Returns `true` if `bytes`, all that has arrived, should be parsed now: at once if the head is
    /// complete. Until then, all attempts together parse at most `MOST_WASTED` bytes and three times the head.
    pub fn is_due(&mut self, bytes: &[u8]) -> bool {
        let is_due = self.is_complete(bytes)
            || bytes.len() >= LONGEST_HEAD
            || bytes.len() >= 2 * self.last
            || self.all + bytes.len() <= MOST_WASTED;
        if is_due {
            self.last = bytes.len();
            self.all += bytes.len();
        }
        is_due
    }

    /// Returns `true` if the empty line behind a head has arrived.
    fn is_complete(&mut self, bytes: &[u8]) -> bool {
        if self.skipped == self.searched {
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            let skipped = bytes[self.skipped..].iter().position(|byte| !is_line_end(byte));
            self.skipped = skipped.map_or(bytes.len(), |at| self.skipped + at);
            cost::count(self.skipped - self.searched);
            self.searched = self.skipped;
        }
        // The empty line may begin in the bytes searched before.
        let from = self.searched.saturating_sub(2).max(self.skipped);
        let new = &bytes[from..];
        self.searched = bytes.len();
        let ends = |at: usize| matches!(new[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]);
        let end = new.iter().enumerate().position(|(at, byte)| *byte == b'\n' && ends(at));
        cost::count(end.unwrap_or(new.len()));
        end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ParsedHead, RequestHead};
    use super::*;

    /// The first result other than [`ParsedHead::Incomplete`], and after how many bytes.
    fn read(bytes: &[u8], piece: usize) -> Option<(ParsedHead<RequestHead>, usize)> {
        let mut progress = HeadProgress::default();
        let ends = (1..=bytes.len()).filter(|end| end % piece == 0 || *end == bytes.len());
        ends.filter_map(|end| {
            let is_due = progress.is_due(&bytes[..end]);
            is_due.then(|| (RequestHead::parse(&bytes[..end]), end))
        })
        .find(|(parsed, _)| *parsed != ParsedHead::Incomplete)
    }

    #[test]
    fn a_head_is_found_with_its_last_byte_however_it_comes() {
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(40_000));
        for head in ["GET / HTTP/1.1\r\n\r\n", "\r\n\n\r\nGET / HTTP/1.1\nHost: a\n\n", &long] {
            let whole = RequestHead::parse(head.as_bytes());
            assert!(matches!(whole, ParsedHead::Head(_, length) if length == head.len()));
            for piece in [1, 2, 3, 1000, 50_000] {
                assert_eq!(read(head.as_bytes(), piece), Some((whole.clone(), head.len())));
            }
            let followed = format!("{head}GET /");
            assert_eq!(read(followed.as_bytes(), 100_000), Some((whole, followed.len())));
        }
    }

    #[test]
    fn another_protocol_is_known_with_its_first_line() {
        for text in ["SSH-2.0-x\r\n", "HELO a\r\n", "\x16\x03\x01"] {
            let found = read(text.as_bytes(), 1).map(|(parsed, _)| parsed);
            assert_eq!(found, Some(ParsedHead::Malformed), "{text:?}");
        }
    }

    /// Whatever comes, and however: a head, none, or lines that are skipped.
    #[test]
    fn the_work_of_a_head_in_pieces_is_bounded() {
        for repeated in ["x", "\r\n", "\n", "\r", "a: b\r\n", " "] {
            for begin in ["GET / HTTP/1.1\r\n", "GET /", ""] {
                let bytes = format!("{begin}{}", repeated.repeat(LONGEST_HEAD / repeated.len()));
                for piece in [1, 7, 1000] {
                    let (_, cost) = cost::of(|| read(bytes.as_bytes(), piece));
                    let most = MOST_WASTED + 8 * bytes.len();
                    assert!(cost <= most as u64, "{begin:?} {repeated:?} by {piece}: {cost}");
                }
            }
        }
    }
}
