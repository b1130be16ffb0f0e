//! Datagrams: the three kinds there are, and how they are told apart
//! (`docs/slacp.md`, Packets).

/// The version of the protocol, in every handshake datagram.
pub(crate) const VERSION: u8 = 1;

/// The authentication tag at the end of a data packet.
pub(crate) const TAG: usize = 16;

const INITIATION: u8 = 0x01;
const RESPONSE: u8 = 0x02;
/// First byte of a data packet: `01SK00LL`; S a FEC source, K reserved for the
/// key phase, LL the length of the packet number less one.
const DATA: u8 = 0x40;
const SOURCE: u8 = 0x20;
const KIND_MASK: u8 = 0b1101_1100;

/// The number by which a receiver knows its session.
pub(crate) type Index = u16;

/// A datagram, split into header and body but not yet believed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Datagram {
    /// First Noise message, from byte `body` on.
    Initiation { sender: Index, body: usize },
    /// Second Noise message, from byte `body` on.
    Response { sender: Index, receiver: Index, body: usize },
    /// A sealed packet.
    Data(Header),
}

/// The header of a data packet. All its bytes are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) receiver: Index,
    /// The low `8 * number_len` bits of the packet number.
    pub(crate) truncated: u64,
    pub(crate) number_len: usize,
    /// Whether the packet is a source of FEC blocks.
    pub(crate) source: bool,
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
        Self { receiver, truncated, number_len, source }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let source = if self.source { SOURCE } else { 0 };
        out.push(DATA | source | (self.number_len as u8 - 1));
        out.extend_from_slice(&self.receiver.to_be_bytes());
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
/// protocol and version.
pub(crate) fn parse(datagram: &[u8]) -> Option<Datagram> {
    match *datagram.first()? {
        INITIATION if datagram.get(1) == Some(&VERSION) => {
            Some(Datagram::Initiation { sender: index(datagram, 2)?, body: 4 })
        }
        RESPONSE if datagram.get(1) == Some(&VERSION) => Some(Datagram::Response {
            sender: index(datagram, 2)?,
            receiver: index(datagram, 4)?,
            body: 6,
        }),
        first if first & KIND_MASK == DATA => {
            let number_len = usize::from(first & 3) + 1;
            let number = datagram.get(3..3 + number_len)?;
            Some(Datagram::Data(Header {
                receiver: index(datagram, 1)?,
                truncated: number.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)),
                number_len,
                source: first & SOURCE != 0,
            }))
        }
        _ => None,
    }
}

fn index(datagram: &[u8], at: usize) -> Option<Index> {
    let bytes = datagram.get(at..at + 2)?;
    Some(Index::from_be_bytes([bytes[0], bytes[1]]))
}

/// The header of a first handshake datagram.
pub(crate) fn initiation(sender: Index) -> Vec<u8> {
    let mut out = vec![INITIATION, VERSION];
    out.extend_from_slice(&sender.to_be_bytes());
    out
}

/// The header of a second handshake datagram.
pub(crate) fn response(sender: Index, receiver: Index) -> Vec<u8> {
    let mut out = vec![RESPONSE, VERSION];
    out.extend_from_slice(&sender.to_be_bytes());
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
        let header = Header { receiver: 0, truncated: 0x9b32, number_len: 2, source: false };
        assert_eq!(header.number(0xa82f_30eb), 0xa82f_9b32);
    }

    #[test]
    fn handshake_headers_read_back() {
        let sent = Datagram::Initiation { sender: 7, body: 4 };
        assert_eq!(parse(&initiation(7)), Some(sent));
        let sent = Datagram::Response { sender: 7, receiver: 9, body: 6 };
        assert_eq!(parse(&response(7, 9)), Some(sent));
    }

    #[test]
    fn another_version_is_not_ours() {
        let mut datagram = initiation(7);
        datagram[1] = VERSION + 1;
        assert_eq!(parse(&datagram), None);
    }

    proptest! {
        #[test]
        fn numbers_survive_truncation(
            settled in 0u64..1 << 40, ahead in 0u64..1 << 20, reach in 0.0f64..1.0, source: bool
        ) {
            let number = settled + ahead;
            let expected = settled + ((ahead + 1) as f64 * reach) as u64;
            let header = Header::new(3, number, settled, source);
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
