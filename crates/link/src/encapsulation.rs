//! Encapsulation of packets on the link: headers, trailers, cells.
//!
//! The serialiser charges the encapsulated size of a packet, so the link's rate is that of the
//! layer below: cells, transport stream packets, or the data field of BBFRAMEs. Queues and counters
//! stay in bytes of IP packets.
//!
//! Not modelled: the layers further down (PL headers, pilots, BBFRAME headers and padding are part
//! of the rate; [`crate::Modcod`] subtracts them); LLC/SNAP in MPE, which IP does not use; the
//! maximum packet sizes of MPE (4080 bytes) and ULE (32 KiB): longer packets are charged as if they
//! were allowed.

mod ts;

use core::fmt;
use core::str::FromStr;

use thiserror::Error;
use units::ByteCount;

use crate::CodeRate;
use ts::TransportStream;

/// The encapsulation of packets. Text: `"none"`, `"fixed 18 B"`, `"code 1/2"`, `"aal5"`,
/// `"aal5 llc"`, `"mpe"`, `"mpe packed"`, `"ule"`, `"ule packed"`, `"ule npa"`,
/// `"ule npa packed"`, `"gse"`, `"gse 3"`, `"gse 6"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Encapsulation {
    /// No overhead: the rate is that of IP packets.
    #[default]
    None,
    /// A fixed overhead per packet.
    Fixed(ByteCount),
    /// An error-correcting code: the link's rate counts coded bits, and a packet takes `n` / `k` of
    /// its size. The tail with which a convolutional code ends is not charged. Error correction is
    /// not modelled: bit and packet error rates are those after decoding.
    Coded(CodeRate),
    /// ATM AAL5 (ITU-T I.363.5): the packet, padding and an 8-byte trailer fill cells of 48 bytes,
    /// each with a 5-byte header.
    Aal5 {
        /// Add the 8 bytes of LLC/SNAP (RFC 2684 §5); otherwise packets are VC multiplexed (§6).
        llc_snap: bool,
    },
    /// Multi-protocol encapsulation (EN 301 192 §7): a section with a 12-byte header and a 4-byte
    /// CRC, in MPEG-2 transport stream packets.
    Mpe {
        /// Padding or packing of sections in transport stream packets.
        packing: Packing,
    },
    /// Unidirectional lightweight encapsulation (RFC 4326): a 4-byte header and a 4-byte CRC, in
    /// MPEG-2 transport stream packets.
    Ule {
        /// Add the 6 bytes of a destination address (D = 0, §4.1).
        npa: bool,
        /// Padding or packing of SNDUs in transport stream packets.
        packing: Packing,
    },
    /// Generic stream encapsulation (TS 102 606): a 4-byte header and a label, fragmented if longer
    /// than the length field allows.
    Gse {
        /// The label of each packet.
        label: GseLabel,
    },
}

/// The use of the rest of a transport stream packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packing {
    /// It is padded (RFC 4326 §6.2).
    #[default]
    Padded,
    /// The next packet starts in it, if it is already waiting (RFC 4326 §6.3).
    Packed,
}

/// The label of a GSE packet (TS 102 606 §4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GseLabel {
    /// No label: broadcast, or the same label as the previous packet's.
    #[default]
    None,
    /// A label of 3 bytes.
    Three,
    /// A label of 6 bytes: a MAC address.
    Six,
}

impl Encapsulation {
    /// Returns the mean encapsulated size of back-to-back packets of `len` bytes; with packing the
    /// sizes differ.
    pub fn mean_wire_bytes(self, len: usize) -> f64 {
        /// A multiple of every period of the remainders modulo 184 bytes.
        const MANY: u32 = 184 * 183;
        let mut framer = Framer::new(self);
        // Only the first packet finds no transport stream packet to share.
        let all: u128 = (0..MANY).map(|index| framer.charge(len, index > 0)).sum();
        all as f64 / f64::from(MANY)
    }

    /// Returns the encapsulated size of a packet of `len` bytes on an idle link.
    pub fn wire_bytes(self, len: usize) -> ByteCount {
        let bytes = Framer::new(self).charge(len, false);
        ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Encapsulates successive packets, which may share transport stream packets.
#[derive(Debug)]
pub(crate) struct Framer {
    encapsulation: Encapsulation,
    stream: TransportStream,
}

impl Framer {
    pub(crate) fn new(encapsulation: Encapsulation) -> Self {
        Self { encapsulation, stream: TransportStream::default() }
    }

    /// Returns the number of bytes to send for a packet of `len` bytes; `next` if it follows the
    /// previous packet without a pause.
    #[inline]
    pub(crate) fn charge(&mut self, len: usize, next: bool) -> u128 {
        let len = len as u128;
        if self.encapsulation == Encapsulation::None {
            return len;
        }
        self.wrap(len, next)
    }

    #[inline(never)]
    fn wrap(&mut self, len: u128, next: bool) -> u128 {
        match self.encapsulation {
            Encapsulation::None => len,
            Encapsulation::Fixed(overhead) => len + u128::from(overhead.get()),
            Encapsulation::Coded(code) => coded(len, code),
            Encapsulation::Aal5 { llc_snap } => aal5(len + if llc_snap { 8 } else { 0 }),
            Encapsulation::Mpe { packing } => {
                const HEADER_AND_CRC: u128 = 12 + 4;
                // A section may start with only its first byte fitting.
                self.stream.charge(len + HEADER_AND_CRC, 1, packing == Packing::Packed && next)
            }
            Encapsulation::Ule { npa, packing } => {
                let header_and_crc = 4 + if npa { 6 } else { 0 } + 4;
                // RFC 4326 §6.3: the length field is not split.
                self.stream.charge(len + header_and_crc, 2, packing == Packing::Packed && next)
            }
            Encapsulation::Gse { label } => gse(len, label.len()),
        }
    }
}

impl GseLabel {
    const fn len(self) -> u128 {
        match self {
            Self::None => 0,
            Self::Three => 3,
            Self::Six => 6,
        }
    }
}

fn coded(len: u128, code: CodeRate) -> u128 {
    (len * u128::from(code.n())).div_ceil(code.k().into())
}

fn aal5(len: u128) -> u128 {
    const TRAILER: u128 = 8;
    const PAYLOAD: u128 = 48;
    const CELL: u128 = 53;
    (len + TRAILER).div_ceil(PAYLOAD) * CELL
}

/// TS 102 606 §4.2.1. Two bytes of flags and length come first; the length counts everything after
/// them.
fn gse(len: u128, label: u128) -> u128 {
    /// Maximum of the 12-bit length field.
    const MOST: u128 = 4095;
    const FLAGS_AND_LENGTH: u128 = 2;
    const PROTOCOL: u128 = 2;
    const FRAGMENT_ID: u128 = 1;
    const TOTAL_LENGTH: u128 = 2;
    const CRC: u128 = 4;
    if PROTOCOL + label + len <= MOST {
        return FLAGS_AND_LENGTH + PROTOCOL + label + len;
    }
    let first = MOST - FRAGMENT_ID - TOTAL_LENGTH - PROTOCOL - label;
    // The CRC counts as data that must fit after the last fragment's header.
    let more = (len - first + CRC).div_ceil(MOST - FRAGMENT_ID);
    let headers = FLAGS_AND_LENGTH + FRAGMENT_ID;
    headers + TOTAL_LENGTH + PROTOCOL + label + len + more * headers + CRC
}

/// A text that is not a valid [`Encapsulation`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not an encapsulation: expected none, fixed N B, code K/N, aal5 [llc], mpe [packed], \
     ule [npa] [packed] or gse [3|6]"
)]
#[non_exhaustive]
pub struct UnknownEncapsulation {
    /// The rejected text, as given.
    pub text: String,
}

impl FromStr for Encapsulation {
    type Err = UnknownEncapsulation;

    fn from_str(text: &str) -> Result<Self, UnknownEncapsulation> {
        let unknown = || UnknownEncapsulation { text: text.to_owned() };
        if let Some(overhead) = text.trim().strip_prefix("fixed ") {
            return overhead.parse().map(Self::Fixed).map_err(|_| unknown());
        }
        if let Some(code) = text.trim().strip_prefix("code ") {
            return code.parse().map(Self::Coded).map_err(|_| unknown());
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let padded = Packing::Padded;
        let packed = Packing::Packed;
        Ok(match words[..] {
            ["none"] => Self::None,
            ["aal5"] => Self::Aal5 { llc_snap: false },
            ["aal5", "llc"] => Self::Aal5 { llc_snap: true },
            ["mpe"] => Self::Mpe { packing: padded },
            ["mpe", "packed"] => Self::Mpe { packing: packed },
            ["ule"] => Self::Ule { npa: false, packing: padded },
            ["ule", "packed"] => Self::Ule { npa: false, packing: packed },
            ["ule", "npa"] => Self::Ule { npa: true, packing: padded },
            ["ule", "npa", "packed"] => Self::Ule { npa: true, packing: packed },
            ["gse"] => Self::Gse { label: GseLabel::None },
            ["gse", "3"] => Self::Gse { label: GseLabel::Three },
            ["gse", "6"] => Self::Gse { label: GseLabel::Six },
            _ => return Err(unknown()),
        })
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packed = |packing| if packing == Packing::Packed { " packed" } else { "" };
        match *self {
            Self::None => f.write_str("none"),
            Self::Fixed(overhead) => write!(f, "fixed {overhead}"),
            Self::Coded(code) => write!(f, "code {code}"),
            Self::Aal5 { llc_snap: false } => f.write_str("aal5"),
            Self::Aal5 { llc_snap: true } => f.write_str("aal5 llc"),
            Self::Mpe { packing } => write!(f, "mpe{}", packed(packing)),
            Self::Ule { npa: false, packing } => write!(f, "ule{}", packed(packing)),
            Self::Ule { npa: true, packing } => write!(f, "ule npa{}", packed(packing)),
            Self::Gse { label: GseLabel::None } => f.write_str("gse"),
            Self::Gse { label: GseLabel::Three } => f.write_str("gse 3"),
            Self::Gse { label: GseLabel::Six } => f.write_str("gse 6"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wire(name: &str, len: usize) -> u64 {
        name.parse::<Encapsulation>().unwrap().wire_bytes(len).get()
    }

    #[test]
    fn none_and_fixed() {
        assert_eq!(wire("none", 1500), 1500);
        assert_eq!(wire("fixed 18 B", 1500), 1518);
    }

    #[test]
    fn a_code_of_rate_one_half_doubles_packets() {
        assert_eq!(wire("code 1/2", 1500), 3000);
        assert_eq!(wire("code 1/1", 1500), 1500);
        assert_eq!(wire("code 2/3", 41), 62); // 61.5
    }

    const NAMES: [&str; 15] = [
        "none",
        "fixed 18 B",
        "code 1/2",
        "code 7/8",
        "aal5",
        "aal5 llc",
        "mpe",
        "mpe packed",
        "ule",
        "ule packed",
        "ule npa",
        "ule npa packed",
        "gse",
        "gse 3",
        "gse 6",
    ];

    #[test]
    fn names_read_back() {
        for name in NAMES {
            assert_eq!(name.parse::<Encapsulation>().unwrap().to_string(), name);
        }
    }

    /// Packed units of 1508 bytes fill all 184 bytes of each transport stream packet, except for a
    /// pointer where a unit starts.
    #[test]
    fn the_mean_of_packed_units_lies_between_the_whole_packets() {
        let mean = |name: &str| name.parse::<Encapsulation>().unwrap().mean_wire_bytes(1500);
        assert_eq!(mean("aal5"), 32.0 * 53.0);
        assert_eq!(mean("ule"), 9.0 * 188.0);
        let packed = mean("ule packed");
        let least = 1508.0 / 184.0 * 188.0;
        let most = 1509.0 / 183.9 * 188.0;
        assert!((least..most).contains(&packed), "{packed} {least} {most}");
    }

    /// A TCP acknowledgement of 40 bytes and the trailer exactly fill one cell; with LLC/SNAP they
    /// need two.
    #[test]
    fn aal5_fills_cells() {
        assert_eq!(wire("aal5", 0), 53);
        assert_eq!(wire("aal5", 40), 53);
        assert_eq!(wire("aal5", 41), 2 * 53);
        assert_eq!(wire("aal5", 576), 13 * 53); // 584 / 48 = 12.2
        assert_eq!(wire("aal5", 1500), 32 * 53); // 1508 / 48 = 31.4
        assert_eq!(wire("aal5 llc", 40), 2 * 53);
        assert_eq!(wire("aal5 llc", 9180), 192 * 53); // RFC 2225's MTU: 9196 / 48 = 191.6
    }

    /// The first TS packet of a packet has a pointer and room for 183 bytes, the others have room
    /// for 184.
    #[test]
    fn mpe_pads_transport_stream_packets() {
        assert_eq!(wire("mpe", 40), 188); // 56
        assert_eq!(wire("mpe", 167), 188); // 183
        assert_eq!(wire("mpe", 168), 2 * 188);
        assert_eq!(wire("mpe", 1500), 9 * 188); // 183 + 7 · 184 + 45 = 1516
    }

    #[test]
    fn ule_needs_eight_or_fourteen_bytes() {
        assert_eq!(wire("ule", 175), 188); // 183
        assert_eq!(wire("ule", 176), 2 * 188);
        assert_eq!(wire("ule npa", 169), 188); // 183
        assert_eq!(wire("ule npa", 170), 2 * 188);
        assert_eq!(wire("ule", 1463), 8 * 188); // 183 + 7 · 184 = 1471
        assert_eq!(wire("ule", 1500), 9 * 188);
    }

    #[test]
    fn gse_has_a_short_header() {
        assert_eq!(wire("gse", 1500), 1504);
        assert_eq!(wire("gse 3", 1500), 1507);
        assert_eq!(wire("gse 6", 1500), 1510);
    }

    /// The 12-bit length field allows 4095 bytes after it.
    #[test]
    fn gse_fragments_what_its_length_field_cannot_say() {
        assert_eq!(wire("gse", 4093), 4097);
        // 7 + 4090, then 3 + 4 + 4.
        assert_eq!(wire("gse", 4094), 4097 + 3 + 4 + 4);
        // With a label of 6: 13 + 4084, then 3 + 4090 + 4.
        assert_eq!(wire("gse 6", 8174), 4097 + 4097);
        assert_eq!(wire("gse 6", 8175), 4097 + 4097 + 3 + 1);
    }

    #[test]
    fn refuses_text_that_is_no_encapsulation() {
        for text in ["", "atm", "gse 4", "fixed", "fixed much", "code 3/2", "ule packed npa"] {
            let error = text.parse::<Encapsulation>().unwrap_err().to_string();
            assert!(error.contains("gse [3|6]"), "{text}: {error}");
        }
    }

    /// Back-to-back packets in two ways.
    #[test]
    fn packing_saves_the_padding() {
        let charges = |name: &str, len: usize| -> Vec<u128> {
            let mut framer = Framer::new(name.parse().unwrap());
            (0..4).map(|index| framer.charge(len, index > 0) / 188).collect()
        };
        // SNDUs of 48 bytes: 183 hold three and 39 bytes of the fourth.
        assert_eq!(charges("ule", 40), [1, 1, 1, 1]);
        assert_eq!(charges("ule packed", 40), [1, 0, 0, 1]);
        // SNDUs of 200 bytes: 183 | 17 and pointer and 166 | 34 and pointer and
        // 149 | 51 and pointer and 132 | 68.
        assert_eq!(charges("ule npa packed", 186), [2, 1, 1, 1]);
    }

    fn any_encapsulation() -> impl Strategy<Value = Encapsulation> {
        prop::sample::select(&NAMES[..]).prop_map(|name| name.parse().unwrap())
    }

    proptest! {
        #[test]
        fn no_packet_is_shorter_on_the_link(encapsulation in any_encapsulation(), len: usize) {
            let len = len / 2;
            prop_assert!(encapsulation.wire_bytes(len).get() >= len as u64);
        }

        /// Whatever the packets are, all their bytes are in the stream, and packing never takes
        /// more than padding.
        #[test]
        fn packed_streams_hold_everything(lens in prop::collection::vec(0usize..3000, 1..50)) {
            let total = |name: &str| {
                let mut framer = Framer::new(name.parse().unwrap());
                let charges = lens.iter().enumerate().map(|(i, &len)| framer.charge(len, i > 0));
                charges.sum::<u128>()
            };
            let bytes: u128 = lens.iter().map(|&len| len as u128 + 8).sum();
            prop_assert!(total("ule packed") / 188 * 184 >= bytes);
            prop_assert!(total("ule packed") <= total("ule"));
        }
    }
}
