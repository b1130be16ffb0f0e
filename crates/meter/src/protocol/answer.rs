//! Answers of the server, 72 bytes each, which it sends beside the payload.
//!
//! ```text
//!  0  4  magic "SKYM"
//!  4  1  version, 3
//!  5  1  status: 1 accepted, 2 progress, 3 received, 4 corrupt, 5 sent, 6 port,
//!        7 datagrams sent, 8 datagrams received, 16.. refused
//!  6  2  zero
//!  8  8  progress, received, corrupt: bytes received so far; sent: bytes sent; else zero
//! 16  8  corrupt: offset of the first wrong byte; sent: segments; else zero
//! 24  8  received, corrupt: nanoseconds from the first to the last byte;
//!        sent: retransmitted segments; else zero
//! 32  8  sent: retransmitted bytes, else zero
//! 40  8  sent: shortest round trip, nanoseconds, all ones: unknown; else zero
//! 48  8  sent: mean round trip, nanoseconds, all ones: unknown; else zero
//! 56 16  zero
//! ```
//!
//! Integers are big-endian. *Port* has the port number in the first field. *Datagrams sent* has the
//! number sent and the number that the sender's own system refused. *Datagrams received* has the
//! numbers received, duplicated, reordered and corrupt; jitter, span and delay variation in
//! nanoseconds (all ones: unknown); and the number dropped because the receiver's socket was full.
//! The latter two are sent in both directions.
//!
//! A download begins with *accepted* and goes on with payload in blocks ([`super::frame`]); when the
//! client has all of it and half-closes, the server reports what it *sent*. An upload is answered by
//! any number of *progress* and then *received* or *corrupt*, a request/reply connection by
//! *accepted*, the replies, and then *received* or *corrupt*. *Refused* ends any connection.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::request::{MAGIC, VERSION};
use super::udp_plan::UdpCounts;
use crate::sockets::sender::SenderReport;

/// Length of an encoded answer.
pub const ANSWER_LEN: usize = 72;

/// Number fields after the first eight bytes.
const FIELDS: usize = 8;
/// The encoding of an unknown time.
const UNKNOWN: u64 = u64::MAX;

/// An answer of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAnswer {
    /// The request was understood; payload follows.
    Accepted,
    /// Part of an upload has arrived, and more is expected.
    Progress {
        /// Number of payload bytes received so far.
        bytes: u64,
    },
    /// The client has finished sending: a summary of what arrived.
    Receipt(Receipt),
    /// The server has sent everything: the figures of its kernel.
    Sent(SenderReport),
    /// The port that the server sends datagrams from and receives them on, or that it accepts an
    /// upload on.
    Port {
        /// The UDP port, or the TCP port of an upload.
        port: u16,
    },
    /// All datagrams have been sent.
    UdpSent {
        /// Number of datagrams that the sender's system accepted.
        datagrams: u64,
        /// Number of datagrams that the sender's own system refused.
        unsent: u64,
    },
    /// The receiver's counts of the datagrams.
    UdpReceived(UdpCounts),
    /// The server rejected the request.
    Refused(RequestRefusal),
}

/// The receiver's summary of a finished stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Number of payload bytes received.
    pub bytes: u64,
    /// Offset of the first byte that differs from the one sent; `None` if all are correct.
    pub first_wrong: Option<u64>,
    /// Time from the first to the last byte at the receiver.
    pub span: Duration,
}

/// The reason why the server rejected a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestRefusal {
    /// The server speaks another version.
    #[error("the server speaks another version of the protocol")]
    Version,
    /// The server did not understand the request.
    #[error("the server cannot parse the request")]
    Malformed,
    /// The server's kernel does not have that congestion control.
    #[error("the server's kernel has no such congestion control")]
    CongestionUnknown,
    /// The server has no permission to use that congestion control.
    #[error("the server is not permitted to use that congestion control")]
    CongestionForbidden,
    /// The server's kernel refused that congestion control for another reason.
    #[error("the server could not set that congestion control")]
    CongestionRefused,
    /// The server's kernel does not allow buffers of that size.
    #[error("the server's kernel does not allow socket buffers of that size")]
    BufferRefused,
    /// The server has reached its connection limit.
    #[error("the server is busy with too many connections")]
    Busy,
}

/// An error in decoding an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Wrong magic: another program is answering.
    #[error("not a meter server: it answers {found:02x?}")]
    Magic {
        /// The first four bytes of the answer.
        found: [u8; 4],
    },
    /// Another version of the protocol.
    #[error("meter protocol version {found}, this is version {VERSION}")]
    Version {
        /// The version in the answer.
        found: u8,
    },
    /// A status unknown to this version.
    #[error("unknown status {found}")]
    Status {
        /// The status in the answer.
        found: u8,
    },
    /// A field that the status does not use is not zero.
    #[error("status {status} with a field that must be zero")]
    NotZero {
        /// The status in the answer.
        status: u8,
    },
}

const REFUSALS: [(u8, RequestRefusal); 7] = [
    (16, RequestRefusal::Version),
    (17, RequestRefusal::Malformed),
    (18, RequestRefusal::CongestionUnknown),
    (19, RequestRefusal::CongestionForbidden),
    (20, RequestRefusal::CongestionRefused),
    (21, RequestRefusal::Busy),
    (22, RequestRefusal::BufferRefused),
];

impl ServerAnswer {
    /// Encodes the answer for the wire.
    pub fn encode(&self) -> [u8; ANSWER_LEN] {
        let (status, fields) = match *self {
            Self::Accepted => (1, [0; FIELDS]),
            Self::Progress { bytes } => (2, [bytes, 0, 0, 0, 0, 0, 0, 0]),
            Self::Receipt(receipt) => {
                let span = nanos(receipt.span);
                let status = if receipt.first_wrong.is_some() { 4 } else { 3 };
                let wrong = receipt.first_wrong.unwrap_or(0);
                (status, [receipt.bytes, wrong, span, 0, 0, 0, 0, 0])
            }
            Self::Sent(report) => (5, sent_fields(&report)),
            Self::Port { port } => (6, [port.into(), 0, 0, 0, 0, 0, 0, 0]),
            Self::UdpSent { datagrams, unsent } => (7, [datagrams, unsent, 0, 0, 0, 0, 0, 0]),
            Self::UdpReceived(counts) => (8, udp_fields(&counts)),
            Self::Refused(refusal) => {
                // All refusals are listed; 17 is the most general one.
                let known = REFUSALS.iter().find(|(_, known)| *known == refusal);
                (known.map_or(17, |(status, _)| *status), [0; FIELDS])
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

    /// Decodes an answer.
    ///
    /// # Errors
    /// If the bytes are not exactly what [`ServerAnswer::encode`] produces.
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
        // Unused fields must be zero, so that a later version can give them a meaning.
        if answer.encode() != *wire {
            return Err(AnswerError::NotZero { status });
        }
        Ok(answer)
    }

    fn of_status(status: u8, fields: [u64; FIELDS]) -> Result<Self, AnswerError> {
        let [bytes, wrong, span, ..] = fields;
        let receipt = |first_wrong| {
            Self::Receipt(Receipt { bytes, first_wrong, span: Duration::from_nanos(span) })
        };
        match status {
            1 => Ok(Self::Accepted),
            2 => Ok(Self::Progress { bytes }),
            3 => Ok(receipt(None)),
            4 => Ok(receipt(Some(wrong))),
            5 => Ok(Self::Sent(sent_report(fields))),
            6 => {
                // A larger number has bits set that must be zero.
                let port = u16::try_from(bytes).map_err(|_| AnswerError::NotZero { status })?;
                Ok(Self::Port { port })
            }
            7 => Ok(Self::UdpSent { datagrams: bytes, unsent: wrong }),
            8 => Ok(Self::UdpReceived(udp_counts(fields))),
            found => REFUSALS
                .iter()
                .find(|(status, _)| *status == found)
                .map(|(_, refusal)| Self::Refused(*refusal))
                .ok_or(AnswerError::Status { found }),
        }
    }
}

fn sent_fields(report: &SenderReport) -> [u64; FIELDS] {
    let time = |time: Option<Duration>| time.map_or(UNKNOWN, nanos);
    [
        report.sent_bytes,
        report.segments,
        report.retransmitted_segments,
        report.retransmitted_bytes,
        time(report.min_rtt),
        time(report.mean_rtt),
        0,
        0,
    ]
}

fn sent_report(fields: [u64; FIELDS]) -> SenderReport {
    let [sent_bytes, segments, retransmitted_segments, retransmitted_bytes, min, mean, ..] = fields;
    let time = |nanos| (nanos != UNKNOWN).then(|| Duration::from_nanos(nanos));
    SenderReport {
        sent_bytes,
        segments,
        retransmitted_segments,
        retransmitted_bytes,
        min_rtt: time(min),
        mean_rtt: time(mean),
    }
}

fn udp_fields(counts: &UdpCounts) -> [u64; FIELDS] {
    let time = |time: Option<Duration>| time.map_or(UNKNOWN, nanos);
    let [jitter, span, variation] =
        [time(counts.jitter), nanos(counts.span), time(counts.delay_variation)];
    let counted = [counts.received, counts.duplicates, counts.reordered, counts.corrupt];
    let [received, duplicates, reordered, corrupt] = counted;
    [received, duplicates, reordered, corrupt, jitter, span, variation, counts.overflowed]
}

fn udp_counts(fields: [u64; FIELDS]) -> UdpCounts {
    let [received, duplicates, reordered, corrupt, jitter, span, variation, overflowed] = fields;
    let time = |nanos| (nanos != UNKNOWN).then(|| Duration::from_nanos(nanos));
    let [jitter, delay_variation] = [jitter, variation].map(time);
    let span = Duration::from_nanos(span);
    UdpCounts {
        received,
        duplicates,
        reordered,
        corrupt,
        overflowed,
        jitter,
        delay_variation,
        span,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn fields(wire: &[u8; ANSWER_LEN]) -> [u64; FIELDS] {
    [8, 16, 24, 32, 40, 48, 56, 64].map(|at| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&wire[at..at + 8]);
        u64::from_be_bytes(bytes)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer() -> impl Strategy<Value = ServerAnswer> {
        let receipt = (any::<u64>(), any::<Option<u64>>(), any::<u64>()).prop_map(
            |(bytes, first_wrong, nanos)| {
                ServerAnswer::Receipt(Receipt {
                    bytes,
                    first_wrong,
                    span: Duration::from_nanos(nanos),
                })
            },
        );
        let time = || prop::option::of((0..UNKNOWN).prop_map(Duration::from_nanos));
        let sent = (any::<[u64; 4]>(), time(), time()).prop_map(|(counts, min_rtt, mean_rtt)| {
            let [sent_bytes, segments, retransmitted_segments, retransmitted_bytes] = counts;
            ServerAnswer::Sent(SenderReport {
                sent_bytes,
                segments,
                retransmitted_segments,
                retransmitted_bytes,
                min_rtt,
                mean_rtt,
            })
        });
        prop_oneof![
            Just(ServerAnswer::Accepted),
            any::<u64>().prop_map(|bytes| ServerAnswer::Progress { bytes }),
            receipt,
            sent,
            any::<u16>().prop_map(|port| ServerAnswer::Port { port }),
            any::<[u64; 2]>()
                .prop_map(|[datagrams, unsent]| ServerAnswer::UdpSent { datagrams, unsent }),
            any::<[u64; FIELDS]>().prop_map(|fields| ServerAnswer::UdpReceived(udp_counts(fields))),
            prop::sample::select(REFUSALS.map(|(_, refusal)| refusal).to_vec())
                .prop_map(ServerAnswer::Refused),
        ]
    }

    #[test]
    fn another_program_is_named_as_such() {
        let error = ServerAnswer::decode(
            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 123456789\r\n",
        )
        .unwrap_err();
        assert_eq!(error, AnswerError::Magic { found: *b"HTTP" });
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(answer in answer()) {
            prop_assert_eq!(ServerAnswer::decode(&answer.encode()), Ok(answer));
        }

        #[test]
        fn foreign_bytes_are_read_back_or_refused(
            answer in answer(), at in 0..ANSWER_LEN, byte: u8, noise: [[u8; 24]; 3],
        ) {
            let mut wire = answer.encode();
            wire[at] = byte;
            if let Ok(read) = ServerAnswer::decode(&wire) {
                prop_assert_eq!(read.encode(), wire);
            }
            let _ = ServerAnswer::decode(noise.as_flattened().try_into().unwrap());
        }
    }
}
