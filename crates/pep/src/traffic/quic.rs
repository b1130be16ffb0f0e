//! Recognition of the datagram that begins a QUIC flow.
//!
//! A client's first datagram has a long header: form and fixed bit are set, and the version follows (RFC 8999 §5.1,
//! RFC 9000 §17.2). It is at least 1,200 bytes long (RFC 9000 §14.1), which QUIC before its standard demanded, too.
//! Nothing else on the same port looks like it: its first byte is at least 192, while STUN, ZRTP, DTLS, TURN channels
//! and RTP begin with smaller ones (RFC 9443 §2), and so does WireGuard, whose first message has 148 bytes.
//!
//! Not recognised, and so left alone: QUIC up to Q043, which no browser has sent for years; versions that are
//! not listed; and a client that clears the fixed bit of its first packet, as it may to a server that it
//! remembers (RFC 9287 §3.1).

use super::ports::{PortRange, UDP};

/// The port of HTTP/3. Other ports are those of applications of their own, which may have nothing but QUIC.
pub const HTTP_3: PortRange = PortRange { protocol: Some(UDP), first: 443, last: 443 };
/// Length of the shortest UDP payload that begins a flow, in bytes.
pub const SHORTEST_FIRST: u16 = 1200;
/// Form and fixed bit in the first byte, both of which are set in a long header.
pub const LONG_HEADER: u8 = 0xc0;
/// Offset of the version in the UDP payload.
pub const VERSION_OFFSET: u8 = 1;

/// QUIC versions with some bits in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuicVersions {
    /// The bits in common.
    pub mask: u32,
    /// Their values.
    pub value: u32,
}

impl QuicVersions {
    /// The versions that are recognised.
    pub const KNOWN: [Self; 6] = [
        // Version 1 (RFC 9000 §15), and version 2 (RFC 9369 §3.1).
        Self { mask: u32::MAX, value: 0x0000_0001 },
        Self { mask: u32::MAX, value: 0x6b33_43cf },
        // Drafts of version 1, and versions that only exercise negotiation (RFC 9000 §15).
        Self { mask: 0xffff_ff00, value: 0xff00_0000 },
        Self { mask: 0x0f0f_0f0f, value: 0x0a0a_0a0a },
        // gQUIC: "Q0" or "T0" (with TLS) and two digits.
        Self { mask: 0xffff_0000, value: 0x5130_0000 },
        Self { mask: 0xffff_0000, value: 0x5430_0000 },
    ];

    /// Returns `true` if `version` is one of them.
    pub fn contains(self, version: u32) -> bool {
        version & self.mask == self.value
    }
}

/// Returns `true` if a UDP payload of `length` bytes, which begins with `start`, begins a QUIC flow. Later datagrams
/// with long headers look the same, so only the first one of a flow may be judged.
pub fn begins_quic(length: usize, start: &[u8]) -> bool {
    let Some([first, version @ ..]) = start.first_chunk::<5>() else { return false };
    let version = u32::from_be_bytes(*version);
    length >= usize::from(SHORTEST_FIRST)
        && first & LONG_HEADER == LONG_HEADER
        && QuicVersions::KNOWN.iter().any(|known| known.contains(version))
}

/// First bytes of UDP flows as the standards write them, with the length of the payload.
#[cfg(any(test, feature = "testkit"))]
pub mod samples {
    /// The beginning of a flow.
    #[derive(Debug, Clone, Copy)]
    pub struct FirstDatagram {
        /// Protocol and message.
        pub name: &'static str,
        /// Length of the UDP payload.
        pub length: usize,
        /// How it begins; zeros follow.
        pub start: &'static [u8],
    }

    impl FirstDatagram {
        /// The whole payload.
        pub fn payload(&self) -> Vec<u8> {
            let mut payload = self.start.to_vec();
            payload.resize(self.length, 0);
            payload
        }
    }

    const fn first(name: &'static str, length: usize, start: &'static [u8]) -> FirstDatagram {
        FirstDatagram { name, length, start }
    }

    /// Datagrams that begin a QUIC flow.
    pub const QUIC: &[FirstDatagram] = &[
        // The protected packet of RFC 9001, appendix A.2, and that of RFC 9369, appendix A.2.
        first("version 1", 1200, &[0xc0, 0, 0, 0, 1, 8, 0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51]),
        first("version 2", 1200, &[0xd7, 0x6b, 0x33, 0x43, 0xcf, 8, 0x83, 0x94, 0xc8, 0xf0]),
        first("0-RTT before its Initial", 1252, &[0xd5, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6]),
        first("draft 29", 1252, &[0xc9, 0xff, 0, 0, 29, 16]),
        first("greased", 1357, &[0xcf, 0x1a, 0x2a, 0xfa, 0xba, 8]),
        first("Q046", 1350, &[0xc3, b'Q', b'0', b'4', b'6', 0x50]),
        first("T051", 1350, &[0xc7, b'T', b'0', b'5', b'1', 8]),
    ];

    /// Datagrams that do not.
    pub const OTHERS: &[FirstDatagram] = &[
        // RFC 8489 §5: a Binding request with the magic cookie, as WebRTC sends it first (RFC 8445 §7).
        first("STUN", 1200, &[0, 1, 4, 0x9c, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4]),
        // RFC 6347 §4.1: handshake records of DTLS 1.0 and 1.2, the latter also of 1.3 (RFC 9147 §5.3).
        first("DTLS 1.0", 1400, &[22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 5]),
        first("DTLS 1.2", 1200, &[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0xa3]),
        // The first message of WireGuard's handshake: type 1, three zeros, the sender's index.
        first("WireGuard", 148, &[1, 0, 0, 0, 0xc0, 0, 0, 1, 7, 7, 7, 7]),
        first("WireGuard, data", 1452, &[4, 0, 0, 0, 0xc0, 0, 0, 1, 7, 7, 7, 7]),
        // RFC 3550 §5.1 and RFC 3711: version 2 in the upper bits.
        first("SRTP", 1200, &[0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]),
        first("TURN channel", 1200, &[0x40, 0, 4, 0xac, 0, 0, 0, 1]),
        first("OpenVPN", 1200, &[0x38, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0]),
        first("IKE behind NAT", 1208, &[0, 0, 0, 0, 0xc0, 0, 0, 1]),
        first("DNS", 60, &[0xc0, 0, 0, 0, 1, 0, 0, 1]),
        // QUIC, but no new flow that can be recognised.
        first("QUIC, short header", 1200, &[0x41, 0, 0, 0, 1, 8]),
        first("QUIC, too short", 1199, &[0xc0, 0, 0, 0, 1, 8]),
        first("QUIC, fixed bit cleared", 1200, &[0x80, 0, 0, 0, 1, 8]),
        first("QUIC, version negotiation", 1200, &[0xc0, 0, 0, 0, 0, 8]),
        first("QUIC, unknown version", 1200, &[0xc0, 0, 0, 0, 3, 8]),
    ];
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::samples::{OTHERS, QUIC};
    use super::*;

    #[test]
    fn first_datagrams_of_quic_are_told_from_those_of_others() {
        for (samples, is_quic) in [(QUIC, true), (OTHERS, false)] {
            for sample in samples {
                let payload = sample.payload();
                assert_eq!(begins_quic(payload.len(), &payload), is_quic, "{}", sample.name);
            }
        }
    }

    #[test]
    fn the_length_and_the_first_five_bytes_suffice() {
        for sample in QUIC {
            assert!(begins_quic(sample.length, &sample.start[..5]), "{}", sample.name);
            assert!(!begins_quic(sample.length, &sample.start[..4]), "{}", sample.name);
            assert!(!begins_quic(usize::from(SHORTEST_FIRST) - 1, sample.start));
        }
    }

    proptest! {
        /// RFC 9443 §2: a first byte below 192 belongs to another protocol, or to a flow that runs.
        #[test]
        fn no_other_first_byte_begins_quic(first in 0u8..192, rest: [u8; 12], length in 0usize..9000) {
            let start = [&[first], &rest[..]].concat();
            prop_assert!(!begins_quic(length, &start));
        }
    }
}
