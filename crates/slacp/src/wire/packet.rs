//! Datagrams and their headers (`docs/slacp.md`, Packets).

/// The protocol version, sent in every handshake datagram.
pub(crate) const VERSION: u8 = 2;

/// Size of the authentication tag at the end of a data packet.
pub(crate) const TAG: usize = 16;

const INITIATION: u8 = 0x01;
const RESPONSE: u8 = 0x02;
const COOKIE: u8 = 0x03;
const VERSIONS: u8 = 0x04;
const UNKNOWN: u8 = 0x05;
/// First byte of a data packet: `01SK00LL`. S marks a FEC source, K is the key phase, LL the length
/// of the packet number less one.
pub(crate) const DATA: u8 = 0x40;
const SOURCE: u8 = 0x20;
const PHASE: u8 = 0x10;
pub(crate) const KIND_MASK: u8 = 0b1100_1100;

/// The number by which a receiver finds its session. Its bits have a meaning only for the side that
/// chose it.
pub(crate) type Index = u32;
/// Size of an [`Index`] in bytes.
const INDEX: usize = 4;
/// The index in answers that set up no session. No session has it.
pub(crate) const NO_INDEX: Index = 0;

/// The part of an initiation that a *versions* answer echoes: its third and fourth byte, whatever
/// they mean in its version of the protocol.
pub(crate) type Echo = [u8; 2];

/// A keyed hash, truncated to 16 bytes.
pub(crate) type Mac = [u8; MAC];
/// Length of a [`Mac`] in bytes.
pub(crate) const MAC: usize = 16;

/// A datagram split into header and body, not yet authenticated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Datagram {
    /// An initiation of this version, with the first Noise message.
    Initiation { sender: Index },
    /// An initiation of another version.
    Foreign { version: u8, echo: Echo },
    /// A response, with the second Noise message from byte `body` on.
    Response { sender: Index, receiver: Index, body: usize },
    /// The hub's request for another initiation, with this cookie.
    Cookie { receiver: Index, cookie: Mac },
    /// The hub's answer that it speaks only other versions; see [`spoken`].
    Versions { echo: Echo },
    /// The hub's answer that it has no session for the packet with this header.
    Unknown(PacketHeader),
    /// An encrypted packet of a session.
    Data(PacketHeader),
}

/// Position of the cookie in an initiation; all zero for none.
pub(crate) const INITIATION_COOKIE: core::ops::Range<usize> = 2 + INDEX..2 + INDEX + MAC;
/// Start of the Noise message in an initiation; it ends where the knock begins.
pub(crate) const INITIATION_BODY: usize = INITIATION_COOKIE.end;
/// Start of the Noise message in a response; it extends to the end.
pub(crate) const RESPONSE_BODY: usize = 2 + 2 * INDEX;

/// The header of a data packet. All of its bytes are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketHeader {
    pub(crate) receiver: Index,
    /// The low `8 * number_len` bits of the packet number.
    pub(crate) truncated: u64,
    pub(crate) number_len: usize,
    /// Set if the packet is a source of FEC blocks.
    pub(crate) source: bool,
    /// The key phase: the last bit of the generation of the keys.
    pub(crate) phase: bool,
}

impl PacketHeader {
    /// Position of the packet number.
    const NUMBER: usize = 1 + INDEX;
    /// Maximum size of a header, in bytes.
    pub(crate) const MAX_LEN: usize = Self::NUMBER + 4;

    pub(crate) fn len(&self) -> usize {
        Self::NUMBER + self.number_len
    }

    /// The header of packet `number`. `settled` is one more than the largest number acknowledged,
    /// or 0 before any. The number is as short as it can be without ambiguity (RFC 9000 §A.2).
    pub(crate) fn new(receiver: Index, number: u64, acked_end: u64, source: bool) -> Self {
        let distance = (number - acked_end + 1) * 2;
        let number_len = (1..4).find(|len| distance < 1 << (8 * len)).unwrap_or(4);
        let truncated = number & ((1 << (8 * number_len)) - 1);
        Self { receiver, truncated, number_len, source, phase: false }
    }

    /// The header of a packet with its number in four bytes, the longest form.
    pub(crate) fn of(receiver: Index, number: u64) -> Self {
        let truncated = number & u64::from(u32::MAX);
        Self { receiver, truncated, number_len: 4, source: false, phase: false }
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

    /// Sets the FEC source bit in a packet's finished header.
    pub(crate) fn mark_source(packet: &mut [u8]) {
        packet[0] |= SOURCE;
    }

    /// Expands to the packet number closest to `expected` that ends in the transmitted bits (RFC
    /// 9000 §A.3).
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

/// Parses the header of a datagram; `None` if it does not belong to this protocol.
pub(crate) fn parse(datagram: &[u8]) -> Option<Datagram> {
    match *datagram.first()? {
        INITIATION if *datagram.get(1)? == VERSION => {
            let long_enough = datagram.len() >= INITIATION_BODY + MAC;
            long_enough.then_some(Datagram::Initiation { sender: index(datagram, 2)? })
        }
        INITIATION => Some(Datagram::Foreign {
            version: datagram[1],
            echo: *datagram.get(2..)?.first_chunk()?,
        }),
        RESPONSE if *datagram.get(1)? == VERSION => Some(Datagram::Response {
            sender: index(datagram, 2)?,
            receiver: index(datagram, 2 + INDEX)?,
            body: RESPONSE_BODY,
        }),
        COOKIE if datagram.len() == 1 + INDEX + 2 * MAC => {
            let cookie = *datagram.get(1 + INDEX..)?.first_chunk()?;
            Some(Datagram::Cookie { receiver: index(datagram, 1)?, cookie })
        }
        VERSIONS if datagram.len() > SPOKEN + MAC => {
            // A list with the version of this side is no refusal.
            let ours = spoken(datagram).contains(&VERSION);
            (!ours).then_some(Datagram::Versions { echo: *datagram.get(1..)?.first_chunk()? })
        }
        UNKNOWN => {
            // It has no flags: the length of the number follows from that of the datagram.
            let number_len = datagram.len().checked_sub(PacketHeader::NUMBER + MAC)?;
            let fits = (1..=4).contains(&number_len);
            fits.then(|| header(datagram, number_len, 0)).flatten().map(Datagram::Unknown)
        }
        first if first & KIND_MASK == DATA => {
            header(datagram, usize::from(first & 3) + 1, first).map(Datagram::Data)
        }
        _ => None,
    }
}

/// Position of the version list in a *versions* answer.
const SPOKEN: usize = 1 + size_of::<Echo>();

/// The version list of a *versions* answer, whose length has been checked.
pub(crate) fn spoken(versions: &[u8]) -> &[u8] {
    &versions[SPOKEN..versions.len() - MAC]
}

fn header(datagram: &[u8], number_len: usize, first: u8) -> Option<PacketHeader> {
    let number = datagram.get(PacketHeader::NUMBER..PacketHeader::NUMBER + number_len)?;
    Some(PacketHeader {
        receiver: index(datagram, 1)?,
        truncated: number.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)),
        number_len,
        source: first & SOURCE != 0,
        phase: first & PHASE != 0,
    })
}

fn index(datagram: &[u8], at: usize) -> Option<Index> {
    let bytes = datagram.get(at..)?.first_chunk()?;
    Some(Index::from_be_bytes(*bytes))
}

/// The head of an initiation: everything before its Noise message.
pub(crate) fn initiation(sender: Index, cookie: &Mac) -> Vec<u8> {
    let mut out = vec![INITIATION, VERSION];
    out.extend_from_slice(&sender.to_be_bytes());
    out.extend_from_slice(cookie);
    out
}

/// The head of a response: everything before its Noise message.
pub(crate) fn response(sender: Index, receiver: Index) -> Vec<u8> {
    let mut out = vec![RESPONSE, VERSION];
    out.extend_from_slice(&sender.to_be_bytes());
    out.extend_from_slice(&receiver.to_be_bytes());
    out
}

/// A *cookie* answer, without its tag.
pub(crate) fn cookie_request(receiver: Index, cookie: &Mac) -> Vec<u8> {
    let mut out = answer(COOKIE, receiver);
    out.extend_from_slice(cookie);
    out
}

/// A *versions* answer to the initiation with these bytes, without its tag.
pub(crate) fn versions(echo: Echo, spoken: &[u8]) -> Vec<u8> {
    let mut out = vec![VERSIONS];
    out.extend_from_slice(&echo);
    out.extend_from_slice(spoken);
    out
}

/// The bytes of an initiation with this index that every version echoes.
pub(crate) fn echo_of(sender: Index) -> Echo {
    let [a, b, ..] = sender.to_be_bytes();
    [a, b]
}

/// An *unknown* answer to a packet with `header`, without its tag.
pub(crate) fn unknown(header: &PacketHeader) -> Vec<u8> {
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
        let header = PacketHeader {
            receiver: 0,
            truncated: 0x9b32,
            number_len: 2,
            source: false,
            phase: false,
        };
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
        let foreign = Datagram::Foreign { version: VERSION + 1, echo: echo_of(7) };
        assert_eq!(parse(&first), Some(foreign));
        let mut second = response(7, 9);
        assert_eq!(parse(&second), Some(Datagram::Response { sender: 7, receiver: 9, body: 10 }));
        second[1] = VERSION + 1;
        assert_eq!(parse(&second), None);
    }

    #[test]
    fn reserved_kinds_are_ignored() {
        let kinds = (0x00..=0x05).chain((0x40..=0x7f).filter(|first| first & 0x0c == 0));
        let known: Vec<u8> = kinds.skip(1).collect();
        for first in (0..=u8::MAX).filter(|first| !known.contains(first)) {
            assert_eq!(parse(&[first; 64]), None, "{first:#04x}");
        }
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
        let foreign = Datagram::Versions { echo: [9, 8] };
        assert_eq!(tagged(versions([9, 8], &[VERSION + 1, VERSION + 2])), Some(foreign));
        assert_eq!(tagged(versions([9, 8], &[])), None);
        assert_eq!(tagged(versions([9, 8], &[VERSION + 1, VERSION])), None, "we do speak that");
        for number in [5, 500, 70_000, 20_000_000] {
            let header = PacketHeader::new(9, number, 0, false);
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
            let header = PacketHeader { phase, ..PacketHeader::new(3, number, settled, source) };
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
