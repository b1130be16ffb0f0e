//! Contact header and messages (RFC 9174 §4.2, §4.5, §5 and §6).

use thiserror::Error;

const MAGIC: [u8; 4] = *b"dtn!";
const VERSION: u8 = 4;
/// Contact header flag CAN_TLS (RFC 9174 §4.2).
const CAN_TLS: u8 = 1;

const XFER_SEGMENT: u8 = 1;
const XFER_ACK: u8 = 2;
const XFER_REFUSE: u8 = 3;
const KEEPALIVE: u8 = 4;
const SESS_TERM: u8 = 5;
const MSG_REJECT: u8 = 6;
const SESS_INIT: u8 = 7;

/// Segment flags (RFC 9174 §5.2.2).
const END: u8 = 1;
const START: u8 = 2;
/// Session termination flag (RFC 9174 §6.1).
const REPLY: u8 = 1;
/// Extension item flag: the receiver must support it (RFC 9174 §4.8).
const CRITICAL: u8 = 1;
/// Type of the Transfer Length extension (RFC 9174 §5.2.5.1).
const LENGTH_ITEM: u16 = 1;

/// Longest node ID that is accepted, in bytes.
const LONGEST_NODE: usize = 1024;
/// Most bytes of extension items that are accepted.
const LONGEST_ITEMS: usize = 4096;

/// Length of a contact header, in bytes.
pub const CONTACT: usize = 6;

/// Contact header, with which each side begins (RFC 9174 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContactHeader {
    /// Protocol version.
    pub version: u8,
    /// `true` if the sender is able to use TLS.
    pub can_tls: bool,
}

impl ContactHeader {
    /// Contact header of this implementation, without TLS.
    pub const OURS: Self = Self { version: VERSION, can_tls: false };

    /// Encodes the header in its six bytes.
    pub fn encode(self) -> [u8; CONTACT] {
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, self.version, if self.can_tls { CAN_TLS } else { 0 }]
    }

    /// Parses a header; [`None`] if it has another magic string.
    pub fn read(bytes: &[u8; CONTACT]) -> Option<Self> {
        let [magic @ .., version, flags] = bytes;
        (*magic == MAGIC).then_some(Self { version: *version, can_tls: flags & CAN_TLS != 0 })
    }
}

/// Reason for the end of a session (RFC 9174 §9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermReason {
    /// Unknown or not specified.
    Unknown,
    /// The session was idle.
    IdleTimeout,
    /// Incompatible version.
    VersionMismatch,
    /// The node is too busy.
    Busy,
    /// The contact header or session parameters are not acceptable.
    ContactFailure,
    /// Out of resources.
    ResourceExhaustion,
}

impl TermReason {
    fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::IdleTimeout => 1,
            Self::VersionMismatch => 2,
            Self::Busy => 3,
            Self::ContactFailure => 4,
            Self::ResourceExhaustion => 5,
        }
    }

    fn of(code: u8) -> Self {
        match code {
            1 => Self::IdleTimeout,
            2 => Self::VersionMismatch,
            3 => Self::Busy,
            4 => Self::ContactFailure,
            5 => Self::ResourceExhaustion,
            _ => Self::Unknown,
        }
    }
}

/// A TCPCLv4 message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TcpclMessage<'a> {
    /// SESS_INIT: parameters of a session.
    SessInit {
        /// Longest time between messages, in seconds; 0 for no limit.
        keepalive: u16,
        /// Longest segment that the sender accepts, in bytes.
        segment_mru: u64,
        /// Longest bundle that the sender accepts, in bytes.
        transfer_mru: u64,
        /// Node ID of the sender; may be empty.
        node: &'a str,
        /// `true` if an extension is critical; none is supported here.
        critical: bool,
    },
    /// SESS_TERM: the end of a session.
    SessTerm {
        /// `true` if it answers the peer's SESS_TERM.
        reply: bool,
        /// Reason why the sender ends the session.
        reason: TermReason,
    },
    /// XFER_SEGMENT: header of a segment; `length` bytes of data follow.
    XferSegment {
        /// `true` for the first segment of a transfer.
        start: bool,
        /// `true` for the last segment of a transfer.
        end: bool,
        /// Transfer ID.
        id: u64,
        /// Length of the whole bundle, if the first segment contains it.
        total: Option<u64>,
        /// `true` if an unsupported extension is critical.
        critical: bool,
        /// Bytes of data that follow the message.
        length: u64,
    },
    /// XFER_ACK: acknowledges a segment.
    XferAck {
        /// START flag of the segment.
        start: bool,
        /// END flag of the segment.
        end: bool,
        /// Transfer ID.
        id: u64,
        /// Bytes of the transfer received so far.
        length: u64,
    },
    /// XFER_REFUSE: refuses a transfer.
    XferRefuse {
        /// Reason code (RFC 9174 §9.4).
        reason: u8,
        /// Transfer ID.
        id: u64,
    },
    /// KEEPALIVE: shows that the sender is alive.
    Keepalive,
    /// MSG_REJECT: a message was not understood.
    MsgReject {
        /// Reason code (RFC 9174 §9.7).
        reason: u8,
        /// First byte of the rejected message.
        header: u8,
    },
}

/// The bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Unknown type, and so an unknown length.
    #[error("a message of an unknown type, {0}")]
    Type(u8),
    /// A field is too long or not text.
    #[error("a malformed message of type {0}")]
    Malformed(u8),
}

/// Reader of big-endian numbers from the front of the received bytes.
struct TcpclReader<'a>(&'a [u8]);

impl<'a> TcpclReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<u64> {
        let bytes = self.take(N)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Reads the bytes of extension items; an error if they are too long.
    fn items(&mut self, kind: u8) -> Result<Option<&'a [u8]>, MessageError> {
        let Some(length) = self.number::<4>() else { return Ok(None) };
        if length > LONGEST_ITEMS as u64 {
            return Err(MessageError::Malformed(kind));
        }
        Ok(self.take(length as usize))
    }
}

/// Parses extension items: the length of the transfer, and `true` if an unsupported item is critical.
fn items(bytes: &[u8], transfer: bool, kind: u8) -> Result<(Option<u64>, bool), MessageError> {
    let mut reader = TcpclReader(bytes);
    let mut total = None;
    let mut critical = false;
    while !reader.0.is_empty() {
        let item = (reader.number::<1>(), reader.number::<2>(), reader.number::<2>());
        let (Some(flags), Some(number), Some(length)) = item else {
            return Err(MessageError::Malformed(kind));
        };
        let value = reader.take(length as usize).ok_or(MessageError::Malformed(kind))?;
        if transfer && number == u64::from(LENGTH_ITEM) {
            let value = <[u8; 8]>::try_from(value).map_err(|_| MessageError::Malformed(kind))?;
            total = Some(u64::from_be_bytes(value));
        } else {
            // Any other item is unsupported, which matters only if its sender says so.
            critical |= flags as u8 & CRITICAL != 0;
        }
    }
    Ok((total, critical))
}

impl<'a> TcpclMessage<'a> {
    /// Parses a message at the front of `bytes`, of a segment all but its data. Returns it with the bytes
    /// behind it; [`None`] if it is incomplete.
    ///
    /// # Errors
    /// [`MessageError`] if the bytes are not a message.
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, MessageError> {
        let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
        let mut reader = TcpclReader(rest);
        let message = match *kind {
            SESS_INIT => Self::read_init(&mut reader)?,
            XFER_SEGMENT => Self::read_segment(&mut reader)?,
            SESS_TERM => reader.number::<2>().map(|both| Self::SessTerm {
                reply: (both >> 8) as u8 & REPLY != 0,
                reason: TermReason::of(both as u8),
            }),
            XFER_ACK => Self::read_ack(&mut reader),
            XFER_REFUSE => {
                let reason = reader.number::<1>();
                let id = reader.number::<8>();
                reason.zip(id).map(|(reason, id)| Self::XferRefuse { reason: reason as u8, id })
            }
            KEEPALIVE => Some(Self::Keepalive),
            MSG_REJECT => reader
                .number::<2>()
                .map(|both| Self::MsgReject { reason: (both >> 8) as u8, header: both as u8 }),
            // The end of an unknown message cannot be found, as messages carry no length of their own.
            other => return Err(MessageError::Type(other)),
        };
        Ok(message.map(|message| (message, reader.0)))
    }

    fn read_init(reader: &mut TcpclReader<'a>) -> Result<Option<Self>, MessageError> {
        let numbers = (
            reader.number::<2>(),
            reader.number::<8>(),
            reader.number::<8>(),
            reader.number::<2>(),
        );
        let (Some(keepalive), Some(segment_mru), Some(transfer_mru), Some(length)) = numbers else {
            return Ok(None);
        };
        if length > LONGEST_NODE as u64 {
            return Err(MessageError::Malformed(SESS_INIT));
        }
        let Some(node) = reader.take(length as usize) else { return Ok(None) };
        let node = core::str::from_utf8(node).map_err(|_| MessageError::Malformed(SESS_INIT))?;
        let Some(bytes) = reader.items(SESS_INIT)? else { return Ok(None) };
        let (_, critical) = items(bytes, false, SESS_INIT)?;
        let keepalive = keepalive as u16;
        Ok(Some(Self::SessInit { keepalive, segment_mru, transfer_mru, node, critical }))
    }

    fn read_segment(reader: &mut TcpclReader<'a>) -> Result<Option<Self>, MessageError> {
        let Some(flags) = reader.number::<1>() else { return Ok(None) };
        let Some(id) = reader.number::<8>() else { return Ok(None) };
        let start = flags as u8 & START != 0;
        let end = flags as u8 & END != 0;
        let mut total = None;
        let mut critical = false;
        if start {
            let Some(bytes) = reader.items(XFER_SEGMENT)? else { return Ok(None) };
            (total, critical) = items(bytes, true, XFER_SEGMENT)?;
        }
        let length = reader.number::<8>();
        Ok(length.map(|length| Self::XferSegment { start, end, id, total, critical, length }))
    }

    fn read_ack(reader: &mut TcpclReader<'a>) -> Option<Self> {
        let flags = reader.number::<1>()? as u8;
        let id = reader.number::<8>()?;
        let length = reader.number::<8>()?;
        Some(Self::XferAck { start: flags & START != 0, end: flags & END != 0, id, length })
    }

    /// Appends the encoded message, of a segment all but its data.
    pub fn write(&self, out: &mut Vec<u8>) {
        let flags =
            |start: bool, end: bool| (if start { START } else { 0 }) | if end { END } else { 0 };
        match self {
            Self::SessInit { keepalive, segment_mru, transfer_mru, node, .. } => {
                out.push(SESS_INIT);
                out.extend(keepalive.to_be_bytes());
                out.extend(segment_mru.to_be_bytes());
                out.extend(transfer_mru.to_be_bytes());
                out.extend((node.len() as u16).to_be_bytes());
                out.extend(node.bytes());
                // No extension items.
                out.extend(0u32.to_be_bytes());
            }
            Self::SessTerm { reply, reason } => {
                out.extend([SESS_TERM, if *reply { REPLY } else { 0 }, reason.code()]);
            }
            Self::XferSegment { start, end, id, total, length, .. } => {
                out.extend([XFER_SEGMENT, flags(*start, *end)]);
                out.extend(id.to_be_bytes());
                if *start {
                    write_length(out, *total);
                }
                out.extend(length.to_be_bytes());
            }
            Self::XferAck { start, end, id, length } => {
                out.extend([XFER_ACK, flags(*start, *end)]);
                out.extend(id.to_be_bytes());
                out.extend(length.to_be_bytes());
            }
            Self::XferRefuse { reason, id } => {
                out.extend([XFER_REFUSE, *reason]);
                out.extend(id.to_be_bytes());
            }
            Self::Keepalive => out.push(KEEPALIVE),
            Self::MsgReject { reason, header } => out.extend([MSG_REJECT, *reason, *header]),
        }
    }
}

/// Appends the extension items of a first segment: the length of the transfer, if given.
fn write_length(out: &mut Vec<u8>, total: Option<u64>) {
    let item = total.map(|total| {
        let number = LENGTH_ITEM.to_be_bytes();
        [&[0][..], &number, &8u16.to_be_bytes(), &total.to_be_bytes()].concat()
    });
    let items = item.unwrap_or_default();
    out.extend((items.len() as u32).to_be_bytes());
    out.extend(items);
}
