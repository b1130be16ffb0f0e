//! Segments: what two endpoints exchange, as structs.

pub(crate) mod payload;
pub(crate) mod seq;

use arrayvec::ArrayVec;

use crate::{SegmentPayload, SeqNr};

/// A TCP segment without ports, which belong to the owner of several connections. Urgent data is
/// not modelled: the flag and the pointer are ignored on arrival and never sent (RFC 6093 advises
/// against using them).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment<P> {
    /// The number of the first byte; of the SYN if there is one.
    pub seq: SeqNr,
    /// The acknowledgement, if the ACK flag is set.
    pub ack: Option<SeqNr>,
    /// The flags other than ACK.
    pub flags: HeaderFlags,
    /// The window field as sent, not scaled.
    pub window: u16,
    /// The options of the header.
    pub options: HeaderOptions,
    /// The codepoint of the IP packet that carries the segment.
    pub ecn: Ecn,
    /// The data, possibly empty.
    pub payload: P,
}

/// The flags of a segment, apart from ACK and URG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderFlags {
    /// SYN: begins the stream.
    pub syn: bool,
    /// FIN: ends the stream.
    pub fin: bool,
    /// RST: resets the connection.
    pub rst: bool,
    /// Asks to pass the data to the application.
    pub psh: bool,
    /// Congestion was experienced (RFC 3168 §6.1).
    pub ece: bool,
    /// The congestion window was reduced (RFC 3168 §6.1).
    pub cwr: bool,
    /// The sender is in slow start ([`crate::AfterSlowStart::Signalled`]): the last of the reserved
    /// bits of RFC 9293.
    pub slow_start: bool,
}

/// The ECN codepoint of an IP packet (RFC 3168 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// The transport is not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable; the codepoint that this endpoint sends.
    Ect0,
    /// ECN-capable, like `Ect0` (RFC 3168 §5).
    Ect1,
    /// A queue marked the packet.
    Ce,
}

impl Ecn {
    /// Returns the codepoint's two bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }

    /// Converts from the low two bits of a traffic class.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// The options of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderOptions {
    /// Maximum segment size that the sender wants to receive (RFC 9293 §3.7.1).
    pub mss: Option<u16>,
    /// Shift of window fields (RFC 7323 §2).
    pub window_scale: Option<u8>,
    /// True if selective acknowledgements are supported (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Out-of-order data received, latest first (RFC 2018 §3).
    pub sack: SackBlocks,
    /// The sender's clock, and the echo of the receiver's (RFC 7323 §3).
    pub timestamps: Option<Timestamps>,
    /// A cookie, or a request for one if it is empty (RFC 7413 §4.1.1).
    pub fast_open: Option<Cookie>,
    /// SCPS-TP capability bits (CCSDS 714.0-B-2).
    pub scps: Option<u8>,
    /// A hole in the received data (CCSDS 714.0-B-2).
    pub snack: Option<Snack>,
    /// Connection counts (RFC 1644 §3.2).
    pub counts: CountOptions,
}

/// The connection counts of T/TCP (RFC 1644 §3.2). 0 is never sent: the option is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountOptions {
    /// CC: the count of the sender's connection.
    pub cc: u32,
    /// CC.NEW: the same on a SYN that must not be compared with earlier ones.
    pub new: u32,
    /// CC.ECHO: the count of the SYN that is answered.
    pub echo: u32,
}

impl CountOptions {
    /// The counts that are present, in the order in which they are sent.
    pub(crate) fn all(self) -> [u32; 3] {
        [self.cc, self.new, self.echo]
    }

    #[inline]
    fn wire_len(self) -> usize {
        if self == Self::default() {
            return 0;
        }
        self.all().iter().filter(|count| **count != 0).count() * COUNT_LEN
    }
}

/// A connection count with its alignment, in bytes.
const COUNT_LEN: usize = 8;

/// A hole, counted in maximum segments (without timestamps) from the acknowledgement number of the
/// segment that reports it. The bit vector of the long form is not modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snack {
    /// First missing segment.
    pub offset: u16,
    /// Number of missing segments of the MSS.
    pub size: u16,
}

/// The capabilities of SCPS-TP, and SNACK with its alignment, in bytes.
const SCPS_LEN: usize = 4;
const SNACK_LEN: usize = 8;

/// SCPS-TP: the short form of SNACK is understood.
pub(crate) const SCPS_SNACK: u8 = 0x40;

/// Up to four ranges of sequence numbers.
pub type SackBlocks = ArrayVec<SackBlock, 4>;

/// A range of sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// Number of the first byte.
    pub start: SeqNr,
    /// The first byte after the range.
    pub end: SeqNr,
}

/// The timestamps option: TSval and TSecr (RFC 7323 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the other end's clock as received in an earlier segment.
    pub echo: u32,
}

/// A TCP Fast Open cookie: nothing, or 4 to 16 bytes.
pub type Cookie = ArrayVec<u8, 16>;

/// The room for options in a header, in bytes.
pub(crate) const OPTIONS_MAX: usize = 40;

impl HeaderOptions {
    /// Size of the options in the header in bytes, a multiple of 4. Options that do not fit are not
    /// counted: SACK blocks have the last claim to the room, before them SNACK, the capabilities of
    /// SCPS-TP, and connection counts.
    #[inline]
    pub fn wire_len(&self) -> usize {
        let len = self.len_without_sack();
        if self.sack.is_empty() {
            return len;
        }
        len + match self.sack_room(len) {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }

    /// Number of SACK blocks that fit beside `used` bytes of other options.
    #[inline]
    pub(crate) fn sack_room(&self, used: usize) -> usize {
        let room = OPTIONS_MAX.saturating_sub(used + 4) / 8;
        room.min(self.sack.len())
    }

    #[inline]
    pub(crate) fn len_without_sack(&self) -> usize {
        let len = self.len_of_tcp();
        if self.scps.is_none() && self.snack.is_none() {
            return len;
        }
        let scps = self.has_room_for_scps();
        let snack = self.has_room_for_snack();
        len + if scps { SCPS_LEN } else { 0 } + if snack { SNACK_LEN } else { 0 }
    }

    /// Returns true if there are SCPS-TP capabilities, and room for them.
    pub(crate) fn has_room_for_scps(&self) -> bool {
        self.scps.is_some() && self.len_of_tcp() + SCPS_LEN <= OPTIONS_MAX
    }

    /// Returns true if there is a hole to report, and room for it.
    pub(crate) fn has_room_for_snack(&self) -> bool {
        let scps = if self.has_room_for_scps() { SCPS_LEN } else { 0 };
        self.snack.is_some() && self.len_of_tcp() + scps + SNACK_LEN <= OPTIONS_MAX
    }

    /// Returns true if there are connection counts, and room for all of them.
    pub(crate) fn has_room_for_counts(&self) -> bool {
        let len = self.counts.wire_len();
        len > 0 && self.len_that_fits() + len <= OPTIONS_MAX
    }

    /// Size of the options of TCP and T/TCP.
    #[inline]
    fn len_of_tcp(&self) -> usize {
        let counts = if self.has_room_for_counts() { self.counts.wire_len() } else { 0 };
        self.len_that_fits() + counts
    }

    /// Size of the options that always fit.
    #[inline]
    fn len_that_fits(&self) -> usize {
        let mut len = 0;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += if self.window_scale.is_some() { 4 } else { 0 };
        len += match (self.sack_permitted, self.timestamps.is_some()) {
            // RFC 7323 appendix A: SACK-permitted takes the place of the padding before timestamps.
            (false, false) => 0,
            (true, false) => 4,
            (_, true) => 12,
        };
        len + self.fast_open.as_ref().map_or(0, |cookie| (2 + cookie.len()).next_multiple_of(4))
    }
}

impl<P: SegmentPayload> Segment<P> {
    /// Length in sequence space: data, SYN and FIN.
    pub fn sequence_len(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.flags.syn) + u64::from(self.flags.fin)
    }

    /// Returns the length on the wire in bytes: header, options and data.
    #[inline]
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + self.options.wire_len() + self.payload.len()
    }
}

/// A TCP header without options, in bytes.
pub(crate) const HEADER_LEN: usize = 20;
