//! What the server says besides payload: 32 bytes each.
//!
//! ```text
//!  0  4  magic "SKYM"
//!  4  1  version, 1
//!  5  1  status: 1 accepted, 2 progress, 3 received, 4 corrupt, 16.. refused
//!  6  2  zero
//!  8  8  progress, received, corrupt: bytes received so far, else zero
//! 16  8  corrupt: offset of the first wrong byte, else zero
//! 24  8  received, corrupt: nanoseconds from the first to the last byte, else zero
//! ```
//! Integers are big-endian. A download begins with *accepted* and goes on with
//! payload. An upload is answered by any number of *progress* and then *received*
//! or *corrupt*, a request/reply connection by *accepted*, the replies, and then
//! *received* or *corrupt*. *Refused* ends a connection of any kind.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::request::{MAGIC, VERSION};

/// Length of an encoded answer.
pub const ANSWER_LEN: usize = 32;

/// One answer of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The request is understood, payload follows.
    Accepted,
    /// So many bytes of an upload have arrived, and more are expected.
    Progress {
        /// Bytes received.
        bytes: u64,
    },
    /// The client has finished sending and this is what arrived.
    Receipt(Receipt),
    /// The server will not do it.
    Refused(Refusal),
}

/// What the receiver saw of a stream that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Bytes received.
    pub bytes: u64,
    /// Offset of the first byte that was not what should have been sent.
    pub first_wrong: Option<u64>,
    /// Time from the first to the last byte at the receiver.
    pub span: Duration,
}

/// Why the server will not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// It speaks another version.
    #[error("the server speaks another version of the protocol")]
    Version,
    /// It did not understand the request.
    #[error("the server did not understand the request")]
    Malformed,
    /// Its kernel has no such congestion control.
    #[error("the server's kernel has no such congestion control")]
    CongestionUnknown,
    /// It may not choose that congestion control.
    #[error("the server may not choose that congestion control")]
    CongestionForbidden,
    /// Its kernel refused that congestion control for another reason.
    #[error("the server could not set that congestion control")]
    CongestionRefused,
    /// It serves as many connections as it can.
    #[error("the server is busy with too many connections")]
    Busy,
}

/// Why bytes are not an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Other first bytes: some other program is answering.
    #[error("not a meter server: it answers {found:02x?}")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// Another version of the protocol.
    #[error("meter protocol version {found}, this is version {VERSION}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// A status that this version does not know.
    #[error("unknown status {found}")]
    Status {
        /// The status found.
        found: u8,
    },
    /// A field that the status leaves unused is not zero.
    #[error("status {status} with a field that it does not use")]
    NotZero {
        /// The status found.
        status: u8,
    },
}

const REFUSALS: [(u8, Refusal); 6] = [
    (16, Refusal::Version),
    (17, Refusal::Malformed),
    (18, Refusal::CongestionUnknown),
    (19, Refusal::CongestionForbidden),
    (20, Refusal::CongestionRefused),
    (21, Refusal::Busy),
];

impl Answer {
    /// The answer as it goes over the wire.
    pub fn encode(&self) -> [u8; ANSWER_LEN] {
        let (status, fields) = match *self {
            Self::Accepted => (1, [0; 3]),
            Self::Progress { bytes } => (2, [bytes, 0, 0]),
            Self::Receipt(receipt) => {
                let span = u64::try_from(receipt.span.as_nanos()).unwrap_or(u64::MAX);
                let status = if receipt.first_wrong.is_some() { 4 } else { 3 };
                (status, [receipt.bytes, receipt.first_wrong.unwrap_or(0), span])
            }
            Self::Refused(refusal) => {
                let known = REFUSALS.iter().find(|(_, known)| *known == refusal);
                (known.map_or(17, |(status, _)| *status), [0; 3])
            }
        };
        let mut wire = [0; ANSWER_LEN];
        wire[0..4].copy_from_slice(&MAGIC);
        wire[4] = VERSION;
        wire[5] = status;
        for (chunk, field) in wire[8..].chunks_exact_mut(8).zip(fields) {
            chunk.copy_from_slice(&field.to_be_bytes());
        }
        wire
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// When the bytes are not exactly what [`Answer::encode`] makes.
    pub fn decode(wire: &[u8; ANSWER_LEN]) -> Result<Self, AnswerError> {
        let found = [wire[0], wire[1], wire[2], wire[3]];
        if found != MAGIC {
            return Err(AnswerError::Magic { found });
        }
        if wire[4] != VERSION {
            return Err(AnswerError::Version { found: wire[4] });
        }
        let status = wire[5];
        let answer = Self::of_status(status, fields(wire))?;
        if answer.encode() != *wire {
            return Err(AnswerError::NotZero { status });
        }
        Ok(answer)
    }

    fn of_status(status: u8, [bytes, wrong, nanos]: [u64; 3]) -> Result<Self, AnswerError> {
        let receipt = |first_wrong| {
            Self::Receipt(Receipt { bytes, first_wrong, span: Duration::from_nanos(nanos) })
        };
        match status {
            1 => Ok(Self::Accepted),
            2 => Ok(Self::Progress { bytes }),
            3 => Ok(receipt(None)),
            4 => Ok(receipt(Some(wrong))),
            found => REFUSALS
                .iter()
                .find(|(status, _)| *status == found)
                .map(|(_, refusal)| Self::Refused(*refusal))
                .ok_or(AnswerError::Status { found }),
        }
    }
}

fn fields(wire: &[u8; ANSWER_LEN]) -> [u64; 3] {
    [8, 16, 24].map(|at| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&wire[at..at + 8]);
        u64::from_be_bytes(bytes)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer() -> impl Strategy<Value = Answer> {
        let receipt = (any::<u64>(), any::<Option<u64>>(), any::<u64>()).prop_map(
            |(bytes, first_wrong, nanos)| {
                Answer::Receipt(Receipt { bytes, first_wrong, span: Duration::from_nanos(nanos) })
            },
        );
        prop_oneof![
            Just(Answer::Accepted),
            any::<u64>().prop_map(|bytes| Answer::Progress { bytes }),
            receipt,
            prop::sample::select(REFUSALS.map(|(_, refusal)| refusal).to_vec())
                .prop_map(Answer::Refused),
        ]
    }

    #[test]
    fn another_program_is_named_as_such() {
        let error = Answer::decode(b"HTTP/1.1 400 Bad Request\r\nConnec").unwrap_err();
        assert_eq!(error, AnswerError::Magic { found: *b"HTTP" });
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(answer in answer()) {
            prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }

        #[test]
        fn foreign_bytes_are_read_back_or_refused(
            answer in answer(), at in 0..ANSWER_LEN, byte: u8, noise: [u8; ANSWER_LEN],
        ) {
            let mut wire = answer.encode();
            wire[at] = byte;
            if let Ok(read) = Answer::decode(&wire) {
                prop_assert_eq!(read.encode(), wire);
            }
            let _ = Answer::decode(&noise);
        }
    }
}
