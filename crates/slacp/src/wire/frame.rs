//! Frames, the units of which the contents of a packet consist (`docs/slacp.md`, Frames).

mod ack;
mod channel;
mod open;

use crate::wire::ecn::EcnCounts;
use crate::wire::open::{Destination, StreamOpening};
use crate::wire::varint;
use crate::{CloseReason, ResetReason, StreamId};

pub(crate) use ack::{AckFrame, AckReport, ReportedTimes, write_ack, write_link_ack};
use channel::{CHANNEL, COMPRESSED, COMPRESSED_CHANGED, COMPRESSED_LEN, CONTEXT, GONE};
pub(crate) use channel::{
    CHANNEL_SIZE, ChannelAnnouncement, ChannelPacket, CompressedFrame, CompressedPacket,
    ContextPacket, GoneFrame, LANES, MAX_DEADLINE, MAX_PACKET, PacketPart, drop_length,
};
use channel::{PACKET, PACKET_LEN, PACKET_PART};
use open::{MARKED_OPEN, OPEN};

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const SETTLED: u8 = 0x03;
const ACCEPT: u8 = 0x05;
const RESET: u8 = 0x06;
const SESSION_CREDIT: u8 = 0x07;
const STREAM_CREDIT: u8 = 0x08;
const REPAIR: u8 = 0x09;
const REKEY: u8 = 0x0a;
const PATH_CHALLENGE: u8 = 0x0b;
const PATH_ANSWER: u8 = 0x0c;
const CLOSE: u8 = 0x0d;
const TIMED_ACK: u8 = 0x0e;
const MARK: u8 = 0x0f;
const STREAM: u8 = 0x10;
const RETURN: u8 = 0x22;
const ECN: u8 = 0x23;
const LEAVING: u8 = 0x27;
/// Frames about the packets of another link of the session.
const LINK_ASKS: u8 = 0x2c;
const LINK_ACK: u8 = 0x2d;
const SUCCESSOR: u8 = 0x30;
const STREAM_FIN: u8 = 0x01;
const STREAM_LEN: u8 = 0x02;

/// First byte of a compact stream frame: `1Fooiiii`. F marks the end of the stream, oo are the high
/// bits of the offset, iiii is the stream.
const COMPACT: u8 = 0x80;
const COMPACT_FIN: u8 = 0x40;
/// Stream identifiers from this one on follow as a varint.
const COMPACT_STREAMS: u64 = 15;
const COMPACT_BITS: u32 = 26;

/// Maximum distance, in either direction, from the reference point to an offset that expands
/// correctly.
pub(crate) const COMPACT_REACH: u64 = (1 << (COMPACT_BITS - 1)) - 1;

/// Number of bits of a channel's sequence number that are sent.
const SEQUENCE_BITS: u32 = 30;
/// Sequence numbers of a channel are sent modulo this, and larger ones are malformed.
const SEQUENCE_MODULUS: u64 = 1 << SEQUENCE_BITS;

/// Maximum size of a stream frame before its data, in bytes: type, stream, offset, length.
pub(crate) const STREAM_OVERHEAD: usize = 1 + 8 + 8 + 2;

/// A decoded frame, which borrows its data from the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Ping,
    Ack(AckFrame<'a>),
    /// Counts of packets received by ECN codepoint. Precedes an acknowledgement.
    Ecn(EcnCounts),
    /// The sender no longer needs any packet below this number.
    Settled(u64),
    Open {
        stream: StreamId,
        /// The credit of the sender of this frame on the stream, until it is granted more.
        window: u64,
        /// The credit of the other side.
        credit: u64,
        /// Set if both sides send the stream's data in segments.
        compressed: bool,
        open: Box<StreamOpening<Destination>>,
    },
    Accept(StreamId),
    /// Ends both directions; `sent` is the number of bytes the sender of this frame has sent on the
    /// stream.
    Reset {
        stream: StreamId,
        reason: ResetReason,
        sent: u64,
    },
    /// Total number of stream bytes the peer may send in the session.
    SessionCredit(u64),
    /// Total number of bytes the peer may send on the stream, valid if it has returned its window
    /// exactly `returns` times.
    StreamCredit {
        stream: StreamId,
        returns: u64,
        limit: u64,
    },
    /// Returns the sender's credit on the stream beyond this offset. The count of returns
    /// invalidates all credit granted before.
    Return {
        stream: StreamId,
        returns: u64,
        limit: u64,
    },
    Repair(RepairFrame<'a>),
    /// One side's key share for a new generation.
    Rekey {
        generation: u64,
        key: [u8; 32],
    },
    /// A token to be echoed, which shows that the address it was sent to works.
    PathChallenge(u64),
    PathAnswer(u64),
    /// The sender has ended the session.
    Close(CloseReason),
    /// The sender takes no new streams, and is about to stop.
    Leaving,
    /// The sender is about to stop, and another process at its address takes new sessions.
    Successor,
    /// Asks which packets of the link with this number have arrived.
    LinkAsks(u64),
    /// An acknowledgement of packets of the link with this number.
    LinkAck(u64, AckFrame<'a>),
    /// Asks for the arrival time of this packet.
    Mark,
    Stream {
        stream: StreamId,
        offset: TruncatedOffset,
        fin: bool,
        data: &'a [u8],
    },
    /// Announces the deadline of a packet channel.
    Channel(ChannelAnnouncement),
    /// Reports that the sender has given up a packet of a channel.
    Gone(GoneFrame),
    Packet(ChannelPacket<'a>),
    /// A packet of a channel whose headers are to be kept.
    Context(ContextPacket<'a>),
    /// A packet of a channel without its headers.
    Compressed(CompressedPacket<'a>),
}

/// A number as sent: a full stream offset, the low 26 bits of one in a compact frame, or the low 30
/// bits of a channel's sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TruncatedOffset {
    low: u64,
    bits: u32,
}

/// The bits of a varint: nothing is truncated.
const FULL_BITS: u32 = 62;

impl TruncatedOffset {
    /// Maximum encoded size of the sequence number of a packet channel, in bytes.
    pub(crate) const MAX_SEQUENCE_LEN: usize = varint::len((1 << SEQUENCE_BITS) - 1);

    /// Truncates the sequence number of a packet channel.
    pub(crate) fn new(sequence: u64) -> Self {
        Self::of(sequence, SEQUENCE_BITS)
    }

    /// A full stream offset, which must be below 2^62.
    pub(crate) fn full(offset: u64) -> Self {
        Self { low: offset, bits: FULL_BITS }
    }

    /// Truncates a stream offset for a compact frame.
    pub(crate) fn compact(offset: u64) -> Self {
        Self::of(offset, COMPACT_BITS)
    }

    fn of(offset: u64, bits: u32) -> Self {
        Self { low: offset % (1 << bits), bits }
    }

    /// Returns `true` if the number was sent in full.
    pub(crate) fn is_full(self) -> bool {
        self.bits == FULL_BITS
    }

    /// Expands to the number closest to `near` that ends in these bits.
    pub(crate) fn expand(self, near: u64) -> u64 {
        if self.is_full() {
            return self.low;
        }
        let modulus = 1u64 << self.bits;
        let base = near - near % modulus + self.low;
        if base + modulus / 2 < near {
            base + modulus
        } else if base > near + modulus / 2 && base >= modulus {
            base - modulus
        } else {
            base
        }
    }
}

/// A repair of a FEC block. The block consists of every `stride`-th packet number, `count` of them,
/// beginning `distance` before the packet that carries this frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RepairFrame<'a> {
    pub(crate) distance: u64,
    pub(crate) stride: u64,
    pub(crate) count: usize,
    pub(crate) repairs: usize,
    pub(crate) index: usize,
    pub(crate) shard: &'a [u8],
}

/// Returns `true` if a packet whose frames begin with this byte begins with an acknowledgement, or
/// with the ECN frame that precedes one.
pub(crate) fn is_ack(first: u8) -> bool {
    matches!(first, ACK | TIMED_ACK | ECN)
}

impl Frame<'_> {
    /// Returns `true` if a packet with this frame must be acknowledged.
    pub(crate) fn is_eliciting(&self) -> bool {
        use Frame::{Ack, Close, Ecn, LinkAck, PathAnswer, PathChallenge, Settled};
        let report = matches!(self, Ack(_) | Ecn(_) | LinkAck(..));
        !report && !matches!(self, Settled(_) | PathChallenge(_) | PathAnswer(_) | Close(_))
    }

    /// Returns `true` if the frame carries data or control information, rather than only asking for
    /// an acknowledgement.
    pub(crate) fn has_payload(&self) -> bool {
        self.is_eliciting() && !matches!(self, Frame::Ping | Frame::Mark)
    }

    /// Appends the frame. With `last`, a frame with data is written without its length, which is
    /// allowed only for the last frame of a packet. A REPAIR frame is always the last.
    pub(crate) fn write(&self, out: &mut Vec<u8>, last: bool) {
        match self {
            Frame::Ping => out.push(PING),
            Frame::Mark => out.push(MARK),
            Frame::Ack(ack) => {
                write_ack(out, ack.ranges(), ack.restored(), &ack.report(), usize::MAX);
            }
            Frame::Ecn(counts) => {
                out.push(ECN);
                counts.write(out);
            }
            Frame::Settled(number) => write_numbers(out, SETTLED, &[*number]),
            Frame::Open { stream, window, credit, compressed, open } => {
                open::write(out, [stream.0, *window, *credit], *compressed, open);
            }
            Frame::Accept(stream) => write_numbers(out, ACCEPT, &[stream.0]),
            Frame::Reset { stream, reason, sent } => {
                write_numbers(out, RESET, &[stream.0, *sent]);
                out.push(reason_code(*reason));
            }
            Frame::SessionCredit(limit) => write_numbers(out, SESSION_CREDIT, &[*limit]),
            Frame::StreamCredit { stream, returns, limit } => {
                write_numbers(out, STREAM_CREDIT, &[stream.0, *returns, *limit]);
            }
            Frame::Return { stream, returns, limit } => {
                write_numbers(out, RETURN, &[stream.0, *returns, *limit]);
            }
            Frame::Repair(repair) => write_repair(out, repair),
            Frame::Rekey { generation, key } => {
                write_numbers(out, REKEY, &[*generation]);
                out.extend_from_slice(key);
            }
            Frame::Close(reason) => out.extend([CLOSE, close_code(*reason)]),
            Frame::Leaving => out.push(LEAVING),
            Frame::Successor => out.push(SUCCESSOR),
            Frame::LinkAsks(link) => write_numbers(out, LINK_ASKS, &[*link]),
            Frame::LinkAck(link, ack) => {
                write_numbers(out, LINK_ACK, &[*link]);
                Frame::Ack(ack.clone()).write(out, last);
            }
            Frame::PathChallenge(token) => write_token(out, PATH_CHALLENGE, *token),
            Frame::PathAnswer(token) => write_token(out, PATH_ANSWER, *token),
            Frame::Stream { stream, offset, fin, data } => {
                let length = (!last).then_some(data.len());
                write_stream_head(out, *stream, *offset, *fin, length);
                out.extend_from_slice(data);
            }
            Frame::Channel(announcement) => announcement.write(out),
            Frame::Gone(gone) => gone.write(out),
            Frame::Packet(packet) => packet.write(out, last),
            Frame::Context(packet) => packet.write(out),
            Frame::Compressed(packet) => packet.write(out, last),
        }
    }
}

/// Maximum size of a stream frame before its data, without a length, for offsets up to `offset`.
pub(crate) fn stream_head(stream: StreamId, offset: u64, compact: bool) -> usize {
    if !compact {
        return 1 + varint::len(stream.0) + varint::len(offset);
    }
    4 + stream.0.checked_sub(COMPACT_STREAMS).map_or(0, varint::len)
}

/// Appends the head of a stream frame. Without `length`, the data extends to the end of the packet;
/// only then may the offset be compact.
pub(crate) fn write_stream_head(
    out: &mut Vec<u8>,
    stream: StreamId,
    offset: TruncatedOffset,
    fin: bool,
    length: Option<usize>,
) {
    if offset.bits == COMPACT_BITS {
        debug_assert!(length.is_none());
        return write_compact_head(out, stream, offset, fin);
    }
    let fin = if fin { STREAM_FIN } else { 0 };
    let length_flag = if length.is_some() { STREAM_LEN } else { 0 };
    write_numbers(out, STREAM | fin | length_flag, &[stream.0, offset.low]);
    if let Some(length) = length {
        varint::write(out, length as u64);
    }
}

fn write_compact_head(out: &mut Vec<u8>, stream: StreamId, offset: TruncatedOffset, fin: bool) {
    let fin = if fin { COMPACT_FIN } else { 0 };
    let [high, low @ ..] = (offset.low as u32).to_be_bytes();
    out.push(COMPACT | fin | high << 4 | stream.0.min(COMPACT_STREAMS) as u8);
    if let Some(rest) = stream.0.checked_sub(COMPACT_STREAMS) {
        varint::write(out, rest);
    }
    out.extend_from_slice(&low);
}

fn write_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| varint::write(out, *number));
}

fn write_repair(out: &mut Vec<u8>, repair: &RepairFrame) {
    write_numbers(out, REPAIR, &[repair.distance, repair.stride]);
    // 255 at most each: `MAX_BLOCK`, `MAX_REPAIRS`.
    out.extend([repair.count as u8, repair.repairs as u8, repair.index as u8]);
    out.extend_from_slice(repair.shard);
}

fn write_token(out: &mut Vec<u8>, kind: u8, token: u64) {
    out.push(kind);
    out.extend_from_slice(&token.to_be_bytes());
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*bytes)
}

/// Takes the next frame from the front of `input` and skips padding. `Ok(None)` at the end.
///
/// # Errors
/// If the bytes are not a valid frame. The rest of the packet is then unreadable.
pub(crate) fn read<'a>(input: &mut &'a [u8]) -> Result<Option<Frame<'a>>, MalformedFrame> {
    while let [PADDING, rest @ ..] = *input {
        *input = rest;
    }
    let Some((&kind, rest)) = input.split_first() else { return Ok(None) };
    *input = rest;
    read_body(kind, input).map(Some).ok_or(MalformedFrame { kind })
}

/// A packet with an invalid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame of type {kind:#04x}")]
pub(crate) struct MalformedFrame {
    kind: u8,
}

fn read_body<'a>(kind: u8, input: &mut &'a [u8]) -> Option<Frame<'a>> {
    Some(match kind {
        PING => Frame::Ping,
        ACK | TIMED_ACK => Frame::Ack(AckFrame::read(input, kind == TIMED_ACK)?),
        MARK => Frame::Mark,
        ECN => Frame::Ecn(EcnCounts::read(input)?),
        SETTLED => Frame::Settled(varint::read(input)?),
        OPEN | MARKED_OPEN => {
            let stream = read_stream(input)?;
            let ([window, credit], compressed, open) = open::read(kind, input)?;
            Frame::Open { stream, window, credit, compressed, open: Box::new(open) }
        }
        ACCEPT => Frame::Accept(read_stream(input)?),
        RESET => {
            let stream = read_stream(input)?;
            let sent = varint::read(input)?;
            Frame::Reset { stream, sent, reason: reason_of(take::<1>(input)?[0]) }
        }
        SESSION_CREDIT => Frame::SessionCredit(varint::read(input)?),
        STREAM_CREDIT => {
            let stream = read_stream(input)?;
            let returns = varint::read(input)?;
            Frame::StreamCredit { stream, returns, limit: varint::read(input)? }
        }
        RETURN => {
            let stream = read_stream(input)?;
            let returns = varint::read(input)?;
            Frame::Return { stream, returns, limit: varint::read(input)? }
        }
        REPAIR => Frame::Repair(read_repair(input)?),
        REKEY => Frame::Rekey { generation: varint::read(input)?, key: take::<32>(input)? },
        CLOSE => {
            let code = usize::from(take::<1>(input)?[0]);
            Frame::Close(CLOSE_REASONS.get(code).copied().unwrap_or(CloseReason::Shutdown))
        }
        LEAVING => Frame::Leaving,
        SUCCESSOR => Frame::Successor,
        LINK_ASKS => Frame::LinkAsks(varint::read(input)?),
        LINK_ACK => {
            let link = varint::read(input)?;
            let kind = take::<1>(input)?[0];
            (kind == ACK).then_some(())?;
            Frame::LinkAck(link, AckFrame::read(input, false)?)
        }
        PATH_CHALLENGE => Frame::PathChallenge(u64::from_be_bytes(take::<8>(input)?)),
        PATH_ANSWER => Frame::PathAnswer(u64::from_be_bytes(take::<8>(input)?)),
        _ if kind & !(STREAM_FIN | STREAM_LEN) == STREAM => read_stream_data(kind, input)?,
        CHANNEL => Frame::Channel(ChannelAnnouncement::read(input)?),
        GONE => Frame::Gone(GoneFrame::read(input)?),
        _ if kind & !(PACKET_LEN | PACKET_PART) == PACKET => {
            Frame::Packet(ChannelPacket::read(kind, input)?)
        }
        CONTEXT => Frame::Context(ContextPacket::read(input)?),
        _ if kind & !(COMPRESSED_LEN | COMPRESSED_CHANGED) == COMPRESSED => {
            Frame::Compressed(CompressedPacket::read(kind, input)?)
        }
        _ if kind & COMPACT != 0 => read_compact(kind, input)?,
        _ => return None,
    })
}

fn read_stream(input: &mut &[u8]) -> Option<StreamId> {
    varint::read(input).map(StreamId)
}

fn read_repair<'a>(input: &mut &'a [u8]) -> Option<RepairFrame<'a>> {
    let distance = varint::read(input)?;
    let stride = varint::read(input)?;
    let [count, repairs, index] = take::<3>(input)?.map(usize::from);
    let shard = core::mem::take(input);
    Some(RepairFrame { distance, stride, count, repairs, index, shard })
}

fn read_stream_data<'a>(kind: u8, input: &mut &'a [u8]) -> Option<Frame<'a>> {
    let stream = read_stream(input)?;
    let offset = TruncatedOffset::full(varint::read(input)?);
    let data = read_data(input, kind & STREAM_LEN != 0)?;
    Some(Frame::Stream { stream, offset, fin: kind & STREAM_FIN != 0, data })
}

fn read_truncated(input: &mut &[u8]) -> Option<TruncatedOffset> {
    varint::read(input).filter(|sequence| *sequence < SEQUENCE_MODULUS).map(TruncatedOffset::new)
}

/// Reads the data of a frame; without a length it extends to the end of the packet.
fn read_data<'a>(input: &mut &'a [u8], has_length: bool) -> Option<&'a [u8]> {
    if !has_length {
        return Some(core::mem::take(input));
    }
    let length = usize::try_from(varint::read(input)?).ok()?;
    let (data, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(data)
}

fn read_compact<'a>(kind: u8, input: &mut &'a [u8]) -> Option<Frame<'a>> {
    let mut stream = u64::from(kind) % (COMPACT_STREAMS + 1);
    if stream == COMPACT_STREAMS {
        // The sum may exceed the range of identifiers.
        stream =
            varint::read(input)?.checked_add(COMPACT_STREAMS).filter(|id| *id <= varint::MAX)?;
    }
    let [a, b, c] = take::<3>(input)?;
    let offset = u32::from_be_bytes([kind >> 4 & 3, a, b, c]);
    Some(Frame::Stream {
        stream: StreamId(stream),
        offset: TruncatedOffset::compact(u64::from(offset)),
        fin: kind & COMPACT_FIN != 0,
        data: core::mem::take(input),
    })
}

const REASONS: [ResetReason; 7] = [
    ResetReason::Reset,
    ResetReason::Refused,
    ResetReason::Unreachable,
    ResetReason::TimedOut,
    ResetReason::Limit,
    ResetReason::Prohibited,
    ResetReason::SessionLost,
];

/// Indexed by code; an unknown code is read as the first.
const CLOSE_REASONS: [CloseReason; 3] =
    [CloseReason::Shutdown, CloseReason::Violation, CloseReason::Prohibited];

fn close_code(reason: CloseReason) -> u8 {
    CLOSE_REASONS.iter().position(|known| *known == reason).unwrap_or(0) as u8
}

fn reason_code(reason: ResetReason) -> u8 {
    REASONS.iter().position(|known| *known == reason).unwrap_or(0) as u8
}

/// The reason with this code. An unknown one, from a later version, is read as a plain reset.
fn reason_of(code: u8) -> ResetReason {
    REASONS.get(usize::from(code)).copied().unwrap_or(ResetReason::Reset)
}

#[cfg(test)]
mod tests;
