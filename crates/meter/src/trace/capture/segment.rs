//! A TCP segment as captured: header, time and length, but not the payload.

use std::net::SocketAddr;
use std::num::NonZeroU16;

use units::Instant;

use super::layers::CapturePlace;

/// A TCP segment as captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedSegment {
    /// Capture time since 1970.
    pub time: Instant,
    /// Set if the file has a time stamp for it.
    pub timed: bool,
    /// Address and port of the sender.
    pub from: SocketAddr,
    /// Address and port of the receiver.
    pub to: SocketAddr,
    /// Sequence number in the header.
    pub sequence: u32,
    /// The acknowledgement number, if the ACK flag is set.
    pub ack: Option<u32>,
    /// The window field, not scaled.
    pub window: u16,
    /// The flags SYN, FIN and RST.
    pub flags: SegmentFlags,
    /// Bytes of payload on the wire; the capture may have fewer.
    pub length: u32,
    /// The options, as far as they could be parsed.
    pub options: SegmentOptions,
    /// The place where it was captured, and marks of the packet.
    pub sighting: Sighting,
}

/// The marks that tell two captures of one packet from two packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sighting {
    /// The place on the path where the packet was captured.
    pub place: CapturePlace,
    /// The IP header's TTL or hop limit.
    pub hop_limit: u8,
    /// The IPv4 header's identification. Zero identifies nothing (RFC 6864 §4.1).
    pub id: Option<NonZeroU16>,
}

/// The flags that open and close connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SegmentFlags {
    /// The SYN flag (RFC 9293 §3.1).
    pub syn: bool,
    /// The FIN flag (RFC 9293 §3.1).
    pub fin: bool,
    /// The RST flag (RFC 9293 §3.1).
    pub rst: bool,
}

/// The options that are analysed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SegmentOptions {
    /// Maximum segment size (RFC 9293 §3.7.1), bytes.
    pub mss: Option<u16>,
    /// Window scale (RFC 7323 §2), a shift.
    pub window_scale: Option<u8>,
    /// Set if SACK is permitted (RFC 2018 §2).
    pub sack_permitted: bool,
    /// The blocks of a SACK option: left and right edge (RFC 2018 §3).
    pub sack: [Option<(u32, u32)>; 4],
    /// TSval and TSecr (RFC 7323 §3).
    pub timestamps: Option<(u32, u32)>,
}

impl CapturedSegment {
    /// Returns true if it carries only an acknowledgement.
    pub fn is_pure_ack(&self) -> bool {
        self.length == 0 && self.ack.is_some() && self.flags == SegmentFlags::default()
    }
}

impl SegmentOptions {
    /// Parses the options of a header (RFC 9293 §3.1). Truncated, invalid and unknown options are
    /// ignored.
    pub(crate) fn read(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        loop {
            bytes = match *bytes {
                // NOP is the only option without a length, besides the end.
                [1, ref rest @ ..] => rest,
                [kind, length, ref rest @ ..] if kind > 1 && length > 1 => {
                    let Some((value, rest)) = rest.split_at_checked(usize::from(length) - 2) else {
                        return options;
                    };
                    options.add(kind, value);
                    rest
                }
                _ => return options,
            };
        }
    }

    fn add(&mut self, kind: u8, value: &[u8]) {
        match (kind, value) {
            (2, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            // RFC 7323 §2.3: values above 14 count as 14.
            (3, &[shift]) => self.window_scale = Some(shift.min(14)),
            (4, []) => self.sack_permitted = true,
            (5, _) => {
                let (blocks, _) = value.as_chunks::<8>();
                for (block, place) in blocks.iter().zip(&mut self.sack) {
                    *place = Some(halves(block));
                }
            }
            (8, _) => self.timestamps = value.try_into().ok().map(halves),
            _ => {}
        }
    }
}

fn halves(value: &[u8; 8]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = *value;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_past_unknown_ones() {
        let bytes = [
            2, 4, 5, 180, 1, 3, 3, 7, 4, 2, 30, 4, 9, 9, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 5, 10, 0,
            0, 0, 3, 0, 0, 0, 4, 0, 0,
        ];
        let options = SegmentOptions::read(&bytes);
        assert_eq!((options.mss, options.window_scale), (Some(1460), Some(7)));
        assert!(options.sack_permitted);
        assert_eq!(options.timestamps, Some((1, 2)));
        assert_eq!(options.sack, [Some((3, 4)), None, None, None]);
    }

    #[test]
    fn options_that_are_cut_or_wrong_are_not_there() {
        assert_eq!(SegmentOptions::read(&[2, 4, 5]), SegmentOptions::default());
        assert_eq!(SegmentOptions::read(&[2, 0, 1, 1]), SegmentOptions::default());
        assert_eq!(SegmentOptions::read(&[8, 3, 1, 2, 3, 5, 0]), SegmentOptions::default());
        assert_eq!(SegmentOptions::read(&[0, 2, 4, 5, 180]), SegmentOptions::default());
        assert_eq!(SegmentOptions::read(&[3, 3, 99]).window_scale, Some(14));
    }
}
