//! Datagrams: the kinds there are, and how they are told apart
//! (`docs/slacp.md`, Packets).

use crate::knock::{MAC, Mac};

/// The version of the protocol, in every handshake datagram.
pub(crate) const VERSION: u8 = 1;

/// The authentication tag at the end of a data packet.
pub(crate) const TAG: usize = 16;

const INITIATION: u8 = 0x01;
const RESPONSE: u8 = 0x02;
const COOKIE: u8 = 0x03;
const VERSIONS: u8 = 0x04;
const UNKNOWN: u8 = 0x05;
/// First byte of a data packet: `01SK00LL`; S a FEC source, K the key phase,
/// LL the length of the packet number less one.
const DATA: u8 = 0x40;
const SOURCE: u8 = 0x20;
const PHASE: u8 = 0x10;
const KIND_MASK: u8 = 0b1100_1100;

/// The number by which a receiver knows its session.
pub(crate) type Index = u16;

/// A datagram, split into header and body but not yet believed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Datagram {
    /// First Noise message.
    Initiation { sender: Index },
    /// A first message of another version.
    Foreign { sender: Index },
    /// Second Noise message, from byte `body` on.
    Response { sender: Index, receiver: Index, body: usize },
    /// The hub wants the initiation again, with this cookie.
    Cookie { receiver: Index, cookie: Mac },
    /// The hub speaks only other versions.
    Versions { receiver: Index },
    /// The hub has no session for the packet with this header.
    Unknown(Header),
    /// A sealed packet.
    Data(Header),
}

/// Where the cookie of an initiation is; all zero for none.
pub(crate) const INITIATION_COOKIE: core::ops::Range<usize> = 4..4 + MAC;
/// Where its Noise message begins; it ends where the knock begins.
pub(crate) const INITIATION_BODY: usize = INITIATION_COOKIE.end;

/// The header of a data packet. All its bytes are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) receiver: Index,
    /// The low `8 * number_len` bits of the packet number.
    pub(crate) truncated: u64,
    pub(crate) number_len: usize,
    /// Whether the packet is a source of FEC blocks.
    pub(crate) source: bool,
    /// The key phase.
    pub(crate) phase: bool,
}

impl Header {
    /// The longest header in bytes.
    pub(crate) const MAX_LEN: usize = 7;

    pub(crate) fn len(&self) -> usize {
        3 + self.number_len
    }

    /// The header of packet `number` when everything below `settled` is known
    /// to the peer: short enough, and never ambiguous (RFC 9000 §A.2).
    pub(crate) fn new(receiver: Index, number: u64, settled: u64, source: bool) -> Self {
        let distance = (number - settled + 1) * 2;
        let number_len = (1..4).find(|len| distance < 1 << (8 * len)).unwrap_or(4);
        let truncated = number & ((1 << (8 * number_len)) - 1);
        Self { receiver, truncated, number_len, source, phase: false }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let source = if self.source { SOURCE } else { 0 };
        let phase = if self.phase { PHASE } else { 0 };
        out.push(DATA | source | phase | (self.number_len as u8 - 1));
        out.extend_from_slice(&self.receiver.to_be_bytes());
        self.write_number(out);
    }

    fn write_number(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.truncated as u32).to_be_bytes()[4 - self.number_len..]);
    }

    /// Marks a packet whose header is written as a FEC source.
    pub(crate) fn mark_source(packet: &mut [u8]) {
        packet[0] |= SOURCE;
    }

    /// The packet number closest to `expected` that ends in the bits sent
    /// (RFC 9000 §A.3).
    pub(crate) fn number(&self, expected: u64) -> u64 {
        let window = 1u64 << (8 * self.number_len);
        let candidate = (expected & !(window - 1)) | self.truncated;
        if candidate + window / 2 <= expected {
            candidate + window
        } else if candidate > expected + window / 2 && candidate >= window {
            candidate - window
        } else {
            candidate
        }
    }
}

/// Reads the header of a datagram; `None` for anything that is not of this
/// protocol.
pub(crate) fn parse(datagram: &[u8]) -> Option<Datagram> {
    match *datagram.first()? {
        INITIATION if *datagram.get(1)? == VERSION => {
            let long_enough = datagram.len() >= INITIATION_BODY + MAC;
            long_enough.then_some(Datagram::Initiation { sender: index(datagram, 2)? })
        }
        INITIATION => Some(Datagram::Foreign { sender: index(datagram, 2)? }),
        RESPONSE if *datagram.get(1)? == VERSION => Some(Datagram::Response {
            sender: index(datagram, 2)?,
            receiver: index(datagram, 4)?,
            body: 6,
        }),
        COOKIE if datagram.len() == 3 + 2 * MAC => {
            let cookie = *datagram.get(3..)?.first_chunk()?;
            Some(Datagram::Cookie { receiver: index(datagram, 1)?, cookie })
        }
        VERSIONS if datagram.len() > 3 + MAC => {
            let spoken = &datagram[3..datagram.len() - MAC];
            let ours = spoken.contains(&VERSION);
            (!ours).then_some(Datagram::Versions { receiver: index(datagram, 1)? })
        }
        UNKNOWN => {
            let number_len = datagram.len().checked_sub(3 + MAC)?;
            let fits = (1..=4).contains(&number_len);
            fits.then(|| header(datagram, number_len, 0)).flatten().map(Datagram::Unknown)
        }
        first if first & KIND_MASK == DATA => {
            header(datagram, usize::from(first & 3) + 1, first).map(Datagram::Data)
        }
        _ => None,
    }
}

fn header(datagram: &[u8], number_len: usize, first: u8) -> Option<Header> {
    let number = datagram.get(3..3 + number_len)?;
    Some(Header {
        receiver: index(datagram, 1)?,
        truncated: number.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)),
        number_len,
        source: first & SOURCE != 0,
        phase: first & PHASE != 0,
    })
}

fn index(datagram: &[u8], at: usize) -> Option<Index> {
    let bytes = datagram.get(at..at + 2)?;
    Some(Index::from_be_bytes([bytes[0], bytes[1]]))
}

/// The head of a first handshake datagram.
pub(crate) fn initiation(sender: Index, cookie: &Mac) -> Vec<u8> {
    let mut out = vec![INITIATION, VERSION];
    out.extend_from_slice(&sender.to_be_bytes());
    out.extend_from_slice(cookie);
    out
}

/// The head of a second handshake datagram.
pub(crate) fn response(sender: Index, receiver: Index) -> Vec<u8> {
    let mut out = vec![RESPONSE, VERSION];
    out.extend_from_slice(&sender.to_be_bytes());
    out.extend_from_slice(&receiver.to_be_bytes());
    out
}

/// What asks for an initiation with a cookie, without its tag.
pub(crate) fn cookie_request(receiver: Index, cookie: &Mac) -> Vec<u8> {
    let mut out = answer(COOKIE, receiver);
    out.extend_from_slice(cookie);
    out
}

/// What tells the versions spoken, without its tag.
pub(crate) fn versions(receiver: Index, spoken: &[u8]) -> Vec<u8> {
    let mut out = answer(VERSIONS, receiver);
    out.extend_from_slice(spoken);
    out
}

/// What says that there is no session for the packet with `header`, without its
/// tag.
pub(crate) fn unknown(header: &Header) -> Vec<u8> {
    let mut out = answer(UNKNOWN, header.receiver);
    header.write_number(&mut out);
    out
}

fn answer(kind: u8, receiver: Index) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend_from_slice(&receiver.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9000 §A.3.
    #[test]
    fn packet_number_example() {
        let header =
            Header { receiver: 0, truncated: 0x9b32, number_len: 2, source: false, phase: false };
        assert_eq!(header.number(0xa82f_30eb), 0xa82f_9b32);
    }

    #[test]
    fn heads_read_back() {
        let mut first = initiation(7, &[1; MAC]);
        assert_eq!(first[INITIATION_COOKIE], [1; MAC]);
        assert_eq!(parse(&first), None, "too short");
        first.extend_from_slice(&[0; MAC]);
        assert_eq!(parse(&first), Some(Datagram::Initiation { sender: 7 }));
        first[1] = VERSION + 1;
        assert_eq!(parse(&first), Some(Datagram::Foreign { sender: 7 }));
        let mut second = response(7, 9);
        assert_eq!(parse(&second), Some(Datagram::Response { sender: 7, receiver: 9, body: 6 }));
        second[1] = VERSION + 1;
        assert_eq!(parse(&second), None);
    }

    #[test]
    fn short_answers_read_back() {
        let tagged = |mut answer: Vec<u8>| {
            answer.extend_from_slice(&[0; MAC]);
            parse(&answer)
        };
        let cookie = [3; MAC];
        let asked = Datagram::Cookie { receiver: 9, cookie };
        assert_eq!(tagged(cookie_request(9, &cookie)), Some(asked));
        let foreign = Datagram::Versions { receiver: 9 };
        assert_eq!(tagged(versions(9, &[VERSION + 1, VERSION + 2])), Some(foreign));
        assert_eq!(tagged(versions(9, &[])), None);
        assert_eq!(tagged(versions(9, &[VERSION + 1, VERSION])), None, "we do speak that");
        for number in [5, 500, 70_000, 20_000_000] {
            let header = Header::new(9, number, 0, false);
            assert_eq!(tagged(unknown(&header)), Some(Datagram::Unknown(header)));
        }
    }

    proptest! {
        #[test]
        fn numbers_survive_truncation(
            settled in 0u64..1 << 40, ahead in 0u64..1 << 20, reach in 0.0f64..1.0,
            source: bool, phase: bool
        ) {
            let number = settled + ahead;
            let expected = settled + ((ahead + 1) as f64 * reach) as u64;
            let header = Header { phase, ..Header::new(3, number, settled, source) };
            let mut out = Vec::new();
            header.write(&mut out);
            prop_assert_eq!(out.len(), header.len());
            prop_assert_eq!(parse(&out), Some(Datagram::Data(header)));
            prop_assert_eq!(header.number(expected), number);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&bytes);
        }
    }
}
