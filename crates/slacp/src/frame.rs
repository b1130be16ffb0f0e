//! Frames, the units inside a packet (`docs/slacp.md`, Frames).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;
use core::time::Duration;

use crate::varint;
use crate::{Open, ResetReason, StreamId};

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const SETTLED: u8 = 0x03;
const OPEN: u8 = 0x04;
const ACCEPT: u8 = 0x05;
const RESET: u8 = 0x06;
const SESSION_CREDIT: u8 = 0x07;
const STREAM_CREDIT: u8 = 0x08;
const REPAIR: u8 = 0x09;
const STREAM: u8 = 0x10;
const STREAM_FIN: u8 = 0x01;
const STREAM_LEN: u8 = 0x02;

/// Stream offsets are sent modulo this: windows are smaller than half of it.
const OFFSET_MODULUS: u64 = 1 << 30;

/// The most bytes that one stream may have in flight.
pub(crate) const MAX_WINDOW: u64 = OFFSET_MODULUS / 2 - 1;

/// The bytes of a stream frame before its data, at most: type, stream, offset,
/// length.
pub(crate) const STREAM_OVERHEAD: usize = 1 + 8 + 4 + 2;

/// A frame as it stands in a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Ping,
    Ack(Ack<'a>),
    /// The sender cares for no packet below this number any more.
    Settled(u64),
    Open {
        stream: StreamId,
        credit: u64,
        open: Open,
    },
    Accept(StreamId),
    /// Ends both directions; `sent` is how many bytes the sender of this frame
    /// has sent on the stream.
    Reset {
        stream: StreamId,
        reason: ResetReason,
        sent: u64,
    },
    /// The peer may send so many bytes in all on the session.
    SessionCredit(u64),
    /// The peer may send so many bytes in all on the stream.
    StreamCredit {
        stream: StreamId,
        limit: u64,
    },
    Repair(Repair<'a>),
    Stream {
        stream: StreamId,
        offset: TruncatedOffset,
        fin: bool,
        data: &'a [u8],
    },
}

/// The low 30 bits of a stream offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TruncatedOffset(u64);

impl TruncatedOffset {
    pub(crate) fn new(offset: u64) -> Self {
        Self(offset % OFFSET_MODULUS)
    }

    /// The offset closest to `near` that ends in these bits.
    pub(crate) fn expand(self, near: u64) -> u64 {
        let base = near - near % OFFSET_MODULUS + self.0;
        if base + OFFSET_MODULUS / 2 < near {
            base + OFFSET_MODULUS
        } else if base > near + OFFSET_MODULUS / 2 && base >= OFFSET_MODULUS {
            base - OFFSET_MODULUS
        } else {
            base
        }
    }
}

/// One repair packet of a FEC block: the block is every `stride`-th packet of
/// `count`, the first one `distance` before the packet that carries this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repair<'a> {
    pub(crate) distance: u64,
    pub(crate) stride: u64,
    pub(crate) count: usize,
    pub(crate) repairs: usize,
    pub(crate) index: usize,
    pub(crate) shard: &'a [u8],
}

/// A selective acknowledgement: a run-length coded bit vector from the largest
/// packet received downwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ack<'a> {
    pub(crate) largest: u64,
    pub(crate) held: Duration,
    /// How many packets the receiver has recovered by FEC so far.
    pub(crate) recovered: u64,
    /// Received and missing runs in turn, each at least 1, valid by parsing.
    runs: &'a [u8],
}

impl<'a> Ack<'a> {
    /// The ranges received, the highest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let mut input = self.runs;
        let mut end = self.largest + 1;
        core::iter::from_fn(move || {
            let run = varint::read(&mut input)?;
            let range = end - run..end;
            let gap = varint::read(&mut input).unwrap_or(0);
            end = range.start - gap;
            Some(range)
        })
    }

    fn read(input: &mut &'a [u8]) -> Option<Self> {
        let largest = varint::read(input)?;
        let held = Duration::from_micros(varint::read(input)?);
        let recovered = varint::read(input)?;
        let length = usize::try_from(varint::read(input)?).ok()?;
        let (runs, rest) = input.split_at_checked(length)?;
        *input = rest;
        runs_are_valid(runs, largest).then_some(Self { largest, held, recovered, runs })
    }
}

/// An odd number of runs, none empty, together no more than there are packets.
fn runs_are_valid(mut runs: &[u8], largest: u64) -> bool {
    let mut left = largest + 1;
    let mut count = 0usize;
    while !runs.is_empty() {
        let Some(run) = varint::read(&mut runs) else { return false };
        if run == 0 || run > left {
            return false;
        }
        left -= run;
        count += 1;
    }
    count % 2 == 1
}

/// Appends an acknowledgement of `ranges` (the highest first, not empty), as
/// many as fit in `room` bytes; `false` if not even one fits.
pub(crate) fn write_ack(
    out: &mut Vec<u8>,
    ranges: impl Iterator<Item = Range<u64>>,
    held: Duration,
    recovered: u64,
    room: usize,
) -> bool {
    let mut runs = Vec::new();
    let (mut largest, mut lowest) = (0, None);
    for range in ranges {
        let mut next = Vec::new();
        match lowest {
            None => largest = range.end - 1,
            Some(lowest) => varint::write(&mut next, lowest - range.end),
        }
        varint::write(&mut next, range.end - range.start);
        // The fields before the runs take at most 1 + 8 + 8 + 8 + 2 bytes.
        if 27 + runs.len() + next.len() > room {
            break;
        }
        runs.extend_from_slice(&next);
        lowest = Some(range.start);
    }
    if lowest.is_none() {
        return false;
    }
    out.push(ACK);
    varint::write(out, largest);
    varint::write(out, u64::try_from(held.as_micros()).unwrap_or(varint::MAX).min(varint::MAX));
    varint::write(out, recovered);
    varint::write(out, runs.len() as u64);
    out.extend_from_slice(&runs);
    true
}

impl Frame<'_> {
    /// Appends the frame. A stream or repair frame without length must be the
    /// last: `last` leaves the length of a stream frame out.
    pub(crate) fn write(&self, out: &mut Vec<u8>, last: bool) {
        match self {
            Frame::Ping => out.push(PING),
            Frame::Ack(ack) => {
                write_ack(out, ack.ranges(), ack.held, ack.recovered, usize::MAX);
            }
            Frame::Settled(number) => write_numbers(out, SETTLED, &[*number]),
            Frame::Open { stream, credit, open } => {
                write_numbers(out, OPEN, &[stream.0, *credit]);
                write_address(out, open.destination);
                write_address(out, open.source);
            }
            Frame::Accept(stream) => write_numbers(out, ACCEPT, &[stream.0]),
            Frame::Reset { stream, reason, sent } => {
                write_numbers(out, RESET, &[stream.0, *sent]);
                out.push(reason_code(*reason));
            }
            Frame::SessionCredit(limit) => write_numbers(out, SESSION_CREDIT, &[*limit]),
            Frame::StreamCredit { stream, limit } => {
                write_numbers(out, STREAM_CREDIT, &[stream.0, *limit]);
            }
            Frame::Repair(repair) => {
                let counts = [repair.count as u64, repair.repairs as u64, repair.index as u64];
                write_numbers(out, REPAIR, &[repair.distance, repair.stride]);
                counts.iter().for_each(|count| varint::write(out, *count));
                out.extend_from_slice(repair.shard);
            }
            Frame::Stream { stream, offset, fin, data } => {
                let length = (!last).then_some(data.len());
                write_stream_head(out, *stream, *offset, *fin, length);
                out.extend_from_slice(data);
            }
        }
    }
}

/// The bytes of a stream frame before its data, at most, without its length.
pub(crate) fn stream_head(stream: StreamId) -> usize {
    1 + varint::len(stream.0) + 4
}

/// Appends a stream frame up to its data. Without `length` the data reaches to
/// the end of the packet.
pub(crate) fn write_stream_head(
    out: &mut Vec<u8>,
    stream: StreamId,
    offset: TruncatedOffset,
    fin: bool,
    length: Option<usize>,
) {
    let fin = if fin { STREAM_FIN } else { 0 };
    let said = if length.is_some() { STREAM_LEN } else { 0 };
    write_numbers(out, STREAM | fin | said, &[stream.0, offset.0]);
    if let Some(length) = length {
        varint::write(out, length as u64);
    }
}

fn write_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| varint::write(out, *number));
}

/// Family (4 or 6), address, port.
fn write_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn read_address(input: &mut &[u8]) -> Option<SocketAddr> {
    let ip = match take::<1>(input)? {
        [4] => IpAddr::V4(Ipv4Addr::from(take::<4>(input)?)),
        [6] => IpAddr::V6(Ipv6Addr::from(take::<16>(input)?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(take::<2>(input)?)))
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*bytes)
}

/// Takes the next frame from the front of `input`, past padding. `Ok(None)` at
/// the end.
///
/// # Errors
/// When the bytes are no frame; the rest of the packet cannot be read then.
pub(crate) fn read<'a>(input: &mut &'a [u8]) -> Result<Option<Frame<'a>>, Malformed> {
    while let [PADDING, rest @ ..] = *input {
        *input = rest;
    }
    let Some((&kind, rest)) = input.split_first() else { return Ok(None) };
    *input = rest;
    read_body(kind, input).map(Some).ok_or(Malformed { kind })
}

/// A packet whose bytes are no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame of type {kind:#04x}")]
pub(crate) struct Malformed {
    kind: u8,
}

fn read_body<'a>(kind: u8, input: &mut &'a [u8]) -> Option<Frame<'a>> {
    Some(match kind {
        PING => Frame::Ping,
        ACK => Frame::Ack(Ack::read(input)?),
        SETTLED => Frame::Settled(varint::read(input)?),
        OPEN => {
            let (stream, credit) = (read_stream(input)?, varint::read(input)?);
            let (destination, source) = (read_address(input)?, read_address(input)?);
            Frame::Open { stream, credit, open: Open { destination, source } }
        }
        ACCEPT => Frame::Accept(read_stream(input)?),
        RESET => {
            let (stream, sent) = (read_stream(input)?, varint::read(input)?);
            Frame::Reset { stream, sent, reason: reason_of(take::<1>(input)?[0]) }
        }
        SESSION_CREDIT => Frame::SessionCredit(varint::read(input)?),
        STREAM_CREDIT => {
            Frame::StreamCredit { stream: read_stream(input)?, limit: varint::read(input)? }
        }
        REPAIR => Frame::Repair(read_repair(input)?),
        _ if kind & !(STREAM_FIN | STREAM_LEN) == STREAM => read_stream_data(kind, input)?,
        _ => return None,
    })
}

fn read_stream(input: &mut &[u8]) -> Option<StreamId> {
    varint::read(input).map(StreamId)
}

fn read_repair<'a>(input: &mut &'a [u8]) -> Option<Repair<'a>> {
    let (distance, stride) = (varint::read(input)?, varint::read(input)?);
    let mut count = || varint::read(input).and_then(|count| usize::try_from(count).ok());
    let (count, repairs, index) = (count()?, count()?, count()?);
    let shard = core::mem::take(input);
    Some(Repair { distance, stride, count, repairs, index, shard })
}

fn read_stream_data<'a>(kind: u8, input: &mut &'a [u8]) -> Option<Frame<'a>> {
    let stream = read_stream(input)?;
    let offset = TruncatedOffset(varint::read(input).filter(|offset| *offset < OFFSET_MODULUS)?);
    let data = if kind & STREAM_LEN != 0 {
        let length = usize::try_from(varint::read(input)?).ok()?;
        let (data, rest) = input.split_at_checked(length)?;
        *input = rest;
        data
    } else {
        core::mem::take(input)
    };
    Some(Frame::Stream { stream, offset, fin: kind & STREAM_FIN != 0, data })
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

fn reason_code(reason: ResetReason) -> u8 {
    REASONS.iter().position(|known| *known == reason).unwrap_or(0) as u8
}

/// A reason from a later version is a plain reset.
fn reason_of(code: u8) -> ResetReason {
    REASONS.get(usize::from(code)).copied().unwrap_or(ResetReason::Reset)
}

#[cfg(test)]
mod tests;
