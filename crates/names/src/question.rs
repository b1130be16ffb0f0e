//! A client's question.

use core::fmt;
use core::str::FromStr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use pep::cost;
use thiserror::Error;

use super::message::{HEADER, PAYLOAD, Unanswerable};

/// The largest answer over UDP to a client without EDNS, in bytes (RFC 1035 §4.2.1).
const USUAL_PAYLOAD: u16 = 512;

/// What a question asks for: equal questions have equal answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The name in wire form, in lower case.
    pub(super) name: Box<[u8]>,
    pub(super) kind: u16,
    /// DNSSEC records are wanted (RFC 3225).
    pub(super) dnssec_ok: bool,
    /// The client validates by itself (RFC 4035 §3.2.2).
    pub(super) checking_disabled: bool,
}

impl Key {
    /// Size in memory beyond its own, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.name.len()
    }
}

/// The most records of a question: OPT, a signature, the SOA record of a transfer. And of a reply: the
/// largest sets in use have some hundreds.
const MOST_ASKED: u32 = 8;
const MOST_REPLIED: u32 = 512;

/// Whether a message has one question, and at most so many records. Each name takes up to 127 steps to read,
/// in two bytes: 64 kB of them would take tens of milliseconds.
fn is_short(message: &[u8], most_records: u32) -> bool {
    let count =
        |at: usize| message.get(at..at + 2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
    let counts = [4, 6, 8, 10].map(|at| count(at).unwrap_or(u32::MAX));
    counts[0] == 1
        && counts[1..].iter().fold(0_u32, |sum, it| sum.saturating_add(*it)) <= most_records
}

/// Reads a reply, unless it has more records than one has.
pub(super) fn read_reply(bytes: &[u8]) -> Option<Message> {
    if !is_short(bytes, MOST_REPLIED) {
        return None;
    }
    cost::count(bytes.len());
    Message::from_vec(bytes).ok()
}

/// Kinds of questions that are treated differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Anything else.
    Other,
}

/// A standard question, by one who wants recursion.
#[derive(Debug, Clone)]
pub struct Question {
    pub(super) key: Key,
    pub(super) id: u16,
    /// As asked, in the client's case.
    pub(super) query: Query,
    /// The largest answer over UDP that the client takes; [`None`] without EDNS (RFC 6891).
    pub(super) payload: Option<u16>,
    /// The client wants to know whether the answer was validated (RFC 6840 §5.7).
    pub(super) authentic: bool,
}

impl Question {
    /// Reads a client's message.
    ///
    /// # Errors
    /// What to do with one that is no such question.
    pub fn parse(message: &[u8]) -> Result<Self, Unanswerable> {
        let Some(header) = message.first_chunk::<HEADER>() else {
            return Err(Unanswerable::Nothing);
        };
        // QR, opcode and RD. Without recursion, an authority is asked (RFC 1034 §4.3.1).
        match header[2] & 0b1111_1001 {
            0b0000_0001 => {}
            flags if flags & 0b1000_0000 != 0 => return Err(Unanswerable::Nothing),
            _ => return Err(Unanswerable::Foreign),
        }
        if !is_short(header, MOST_ASKED) {
            return Err(Unanswerable::malformed(header));
        }
        cost::count(message.len());
        let Ok(message) = Message::from_vec(message) else {
            return Err(Unanswerable::malformed(header));
        };
        Self::of(&message, header)
    }

    fn of(message: &Message, header: &[u8; HEADER]) -> Result<Self, Unanswerable> {
        let [query] = &message.queries[..] else { return Err(Unanswerable::malformed(header)) };
        let signed = message.signature.is_some()
            || message.additionals.iter().any(|it| is_signature(it.record_type()));
        if signed || query.query_class() != DNSClass::IN || is_transfer(query.query_type()) {
            return Err(Unanswerable::Foreign);
        }
        let edns = message.edns.as_ref();
        if edns.is_some_and(|edns| edns.version() > 0) {
            return Err(Unanswerable::version(header, query));
        }
        let key = Key {
            name: wire_name(query.name(), true),
            kind: query.query_type().into(),
            dnssec_ok: edns.is_some_and(|edns| edns.flags().dnssec_ok),
            checking_disabled: message.metadata.checking_disabled,
        };
        Ok(Self {
            key,
            id: message.metadata.id,
            query: query.clone(),
            payload: edns.map(Edns::max_payload),
            authentic: message.metadata.authentic_data,
        })
    }

    /// The question that this reply answers.
    pub(super) fn again(reply: &[u8], key: Key) -> Option<Self> {
        let query = Message::from_vec(reply).ok()?.queries.into_iter().next()?;
        Some(Self { key, id: 0, query, payload: None, authentic: false })
    }

    /// What is asked for.
    pub fn kind(&self) -> Kind {
        match self.query.query_type() {
            RecordType::A => Kind::A,
            RecordType::AAAA => Kind::Aaaa,
            _ => Kind::Other,
        }
    }

    /// The name as text, in lower case without a dot at the end; [`None`] for one that is no host
    /// name.
    pub(super) fn host(&self) -> Option<slacp::HostName> {
        let name = self.query.name().to_lowercase().to_ascii();
        slacp::HostName::new(name.strip_suffix('.').unwrap_or(&name))
    }

    /// Whether the client checks signatures itself.
    pub(super) fn validates(&self) -> bool {
        self.key.dnssec_ok || self.key.checking_disabled
    }

    /// The longest answer, in bytes. Over UDP it is short enough not to be fragmented.
    pub(super) fn longest_answer(&self, over_tcp: bool) -> u16 {
        match self.payload {
            _ if over_tcp => u16::MAX,
            None => USUAL_PAYLOAD,
            Some(payload) => payload.clamp(USUAL_PAYLOAD, PAYLOAD),
        }
    }

    /// The question as the hub gets it.
    pub(super) fn to_hub(&self) -> Vec<u8> {
        let mut message = Message::new(0, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.metadata.authentic_data = true;
        message.metadata.checking_disabled = self.key.checking_disabled;
        message.add_query(self.query.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD).set_dnssec_ok(self.key.dnssec_ok);
        message.set_edns(edns);
        // What was read can be written.
        message.to_vec().unwrap_or_default()
    }
}

/// Signatures of whole messages (RFC 8945, RFC 2931), which an answer of ours would not have.
fn is_signature(kind: RecordType) -> bool {
    matches!(kind, RecordType::TSIG | RecordType::SIG)
}

/// Zone transfers (RFC 5936, RFC 1995).
fn is_transfer(kind: RecordType) -> bool {
    matches!(kind, RecordType::AXFR | RecordType::IXFR)
}

/// A name in wire form without compression.
pub(super) fn wire_name(name: &Name, lower_case: bool) -> Box<[u8]> {
    let mut wire = Vec::with_capacity(name.len() + 1);
    for label in name.iter() {
        wire.push(label.len() as u8);
        let start = wire.len();
        wire.extend_from_slice(label);
        if lower_case {
            wire[start..].make_ascii_lowercase();
        }
    }
    wire.push(0);
    wire.into()
}

/// A domain: a name with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(String);

/// The text is not a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected a domain, like \"corp.example\"")]
pub struct DomainError;

impl FromStr for Domain {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let text = text.trim_matches('.').to_ascii_lowercase();
        let labels = text.split('.').all(|label| (1..=63).contains(&label.len()));
        let good = labels && slacp::HostName::new(&text).is_some();
        good.then_some(Self(text)).ok_or(DomainError)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Domain {
    /// Whether a name in lower case is this one or below it.
    pub(super) fn has(&self, name: &str) -> bool {
        is_in(name, &self.0)
    }
}

/// Names that no resolver of the world knows, or that each machine knows for itself (RFC 6761,
/// RFC 6762, RFC 7686, RFC 8375, RFC 9476).
const SPECIAL: [&str; 9] =
    ["localhost", "local", "invalid", "test", "onion", "home.arpa", "internal", "alt", "arpa"];

/// Whether a connection may be opened by this name, in lower case: not a name of the site alone, nor one
/// of a domain that is listed.
pub(super) fn may_be_opened_by(name: &str, real: &[Domain]) -> bool {
    let special = |domain: &&str| is_in(name, domain);
    name.contains('.')
        && !SPECIAL.iter().any(special)
        && !real.iter().any(|domain| domain.has(name))
}

fn is_in(name: &str, domain: &str) -> bool {
    let before = name.strip_suffix(domain);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with these counts, whose names are pointers to a long one.
    fn message(counts: [u16; 4], is_reply: bool) -> Vec<u8> {
        let mut bytes = vec![0, 7, if is_reply { 0x81 } else { 1 }, 0];
        bytes.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
        bytes.extend([1, b'a'].repeat(126));
        bytes.push(0);
        bytes.extend([0, 1, 0, 1]);
        for _ in 0..counts[1..].iter().map(|count| u32::from(*count)).sum::<u32>() {
            bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1]);
        }
        bytes
    }

    #[test]
    fn a_message_with_more_records_than_any_has_is_not_read() {
        let (parsed, cost) = cost::of(|| Question::parse(&message([1, 0, 1, 4], false)));
        assert!(parsed.is_ok() && cost > 0);
        for counts in [[1, 0, 0, 9], [1, 4000, 0, 0], [2, 0, 0, 0], [u16::MAX; 4]] {
            let long = message(counts.map(|count| count.min(4000)), false);
            let (parsed, cost) = cost::of(|| Question::parse(&long));
            assert!(matches!(parsed, Err(Unanswerable::Answer(_))) && cost == 0, "{counts:?}");
        }
        assert!(read_reply(&message([1, 300, 200, 12], true)).is_some());
        let long = message([1, 300, 200, 13], true);
        let (parsed, cost) = cost::of(|| read_reply(&long));
        assert!(parsed.is_none() && cost == 0);
    }

    #[test]
    fn a_domain_holds_itself_and_what_is_below_it() {
        let domain: Domain = "Corp.Example.".parse().unwrap();
        assert_eq!(domain.to_string(), "corp.example");
        for (name, inside) in
            [("corp.example", true), ("a.corp.example", true), ("acorp.example", false)]
        {
            assert_eq!(domain.has(name), inside, "{name}");
        }
        for none in ["", ".", "a..b", "a b", &"a".repeat(64)] {
            assert_eq!(none.parse::<Domain>(), Err(DomainError), "{none}");
        }
    }
}
