//! Parses clients' questions.

use core::fmt;
use core::str::FromStr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use pep::work::cost;
use thiserror::Error;

use super::message::{HEADER, NonQuestion, PAYLOAD};

/// Largest answer over UDP to a client without EDNS, in bytes (RFC 1035 §4.2.1).
const USUAL_PAYLOAD: u16 = 512;

/// Cache key of a question: questions with equal keys have the same answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QuestionKey {
    /// The name in wire form, in lower case.
    pub(super) name: Box<[u8]>,
    pub(super) kind: u16,
    /// DO: DNSSEC records are requested (RFC 3225).
    pub(super) dnssec_ok: bool,
    /// CD: the client validates by itself (RFC 4035 §3.2.2).
    pub(super) checking_disabled: bool,
}

impl QuestionKey {
    /// Memory beyond the key's own size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.name.len()
    }
}

/// Most records of a request, such as OPT, a signature, or the SOA record of a transfer.
const MOST_ASKED: u32 = 8;
/// Most records of a reply: the largest sets in use have some hundreds.
const MOST_REPLIED: u32 = 512;

/// Returns `true` if a message has one question and at most `most_records` records. Two bytes of a
/// compressed name can take 127 steps to parse: 64 kB of them would take tens of milliseconds.
fn is_short(message: &[u8], most_records: u32) -> bool {
    let count = |at: usize| {
        message.get(at..at + 2).map(|bytes| u32::from(bytes[0]) << 8 | u32::from(bytes[1]))
    };
    let counts = [4, 6, 8, 10].map(|at| count(at).unwrap_or(u32::MAX));
    counts[0] == 1
        && counts[1..].iter().fold(0_u32, |sum, count| sum.saturating_add(*count)) <= most_records
}

/// Parses a reply, unless it has more than `MOST_REPLIED` records.
pub(super) fn read_reply(bytes: &[u8]) -> Option<Message> {
    if !is_short(bytes, MOST_REPLIED) {
        return None;
    }
    cost::count(bytes.len());
    Message::from_vec(bytes).ok()
}

/// Question types, as far as they are treated differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionKind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Service bindings: SVCB or HTTPS (RFC 9460).
    Service,
    /// Anything else.
    Other,
}

/// A question of class IN with recursion desired.
#[derive(Debug, Clone)]
pub struct Question {
    pub(super) key: QuestionKey,
    pub(super) id: u16,
    /// The question in the client's spelling.
    pub(super) query: Query,
    /// Largest UDP payload that the client accepts; [`None`] without EDNS (RFC 6891).
    pub(super) payload: Option<u16>,
    /// AD: the client asks whether the answer was validated (RFC 6840 §5.7).
    pub(super) authentic: bool,
}

impl Question {
    /// Parses a client's message.
    ///
    /// # Errors
    /// The handling of a message that is not such a question.
    pub fn parse(message: &[u8]) -> Result<Self, NonQuestion> {
        let Some(header) = message.first_chunk::<HEADER>() else {
            return Err(NonQuestion::Nothing);
        };
        // QR, opcode and RD. Without recursion desired the client asks an authoritative server (RFC 1034
        // §4.3.1).
        match header[2] & 0b1111_1001 {
            0b0000_0001 => {}
            flags if flags & 0b1000_0000 != 0 => return Err(NonQuestion::Nothing),
            _ => return Err(NonQuestion::Foreign),
        }
        if !is_short(header, MOST_ASKED) {
            return Err(NonQuestion::malformed(header));
        }
        cost::count(message.len());
        let Ok(message) = Message::from_vec(message) else {
            return Err(NonQuestion::malformed(header));
        };
        Self::of(&message, header)
    }

    fn of(message: &Message, header: &[u8; HEADER]) -> Result<Self, NonQuestion> {
        let [query] = &message.queries[..] else { return Err(NonQuestion::malformed(header)) };
        let signed = message.signature.is_some()
            || message.additionals.iter().any(|record| is_signature(record.record_type()));
        // Only the server that these are addressed to can answer them.
        if signed || query.query_class() != DNSClass::IN || is_transfer(query.query_type()) {
            return Err(NonQuestion::Foreign);
        }
        let edns = message.edns.as_ref();
        if edns.is_some_and(|edns| edns.version() > 0) {
            return Err(NonQuestion::version(header, query));
        }
        let key = QuestionKey {
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

    /// Recovers the question from a cached reply to it.
    pub(super) fn from_cached_reply(reply: &[u8], key: QuestionKey) -> Option<Self> {
        let query = Message::from_vec(reply).ok()?.queries.into_iter().next()?;
        Some(Self { key, id: 0, query, payload: None, authentic: false })
    }

    /// The type of the question.
    pub fn kind(&self) -> QuestionKind {
        match self.query.query_type() {
            RecordType::A => QuestionKind::A,
            RecordType::AAAA => QuestionKind::Aaaa,
            RecordType::SVCB | RecordType::HTTPS => QuestionKind::Service,
            _ => QuestionKind::Other,
        }
    }

    /// The name in lower case without the final dot; [`None`] if it is not a host name.
    pub(super) fn host(&self) -> Option<slacp::HostName> {
        let name = self.query.name().to_lowercase().to_ascii();
        slacp::HostName::new(name.strip_suffix('.').unwrap_or(&name))
    }

    /// Returns `true` if the name is in one of these domains.
    pub(super) fn is_of(&self, domains: &[Domain]) -> bool {
        let name = self.query.name().to_lowercase().to_ascii();
        let name = name.strip_suffix('.').unwrap_or(&name);
        domains.iter().any(|domain| domain.has(name))
    }

    /// Returns `true` if the client validates signatures itself.
    pub(super) fn validates(&self) -> bool {
        self.key.dnssec_ok || self.key.checking_disabled
    }

    /// Longest answer in bytes. Over UDP it is limited so that it is not fragmented.
    pub(super) fn longest_answer(&self, over_tcp: bool) -> u16 {
        match self.payload {
            _ if over_tcp => u16::MAX,
            None => USUAL_PAYLOAD,
            // Smaller sizes count as 512 (RFC 6891 §6.2.3).
            Some(payload) => payload.clamp(USUAL_PAYLOAD, PAYLOAD),
        }
    }

    /// Encodes the question for the hub, with identifier 0.
    pub(super) fn to_hub(&self) -> Vec<u8> {
        let mut message = Message::new(0, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        // The cached reply also serves clients that ask for AD (RFC 6840 §5.7); `answer` clears it for the
        // others.
        message.metadata.authentic_data = true;
        message.metadata.checking_disabled = self.key.checking_disabled;
        message.add_query(self.query.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD).set_dnssec_ok(self.key.dnssec_ok);
        message.set_edns(edns);
        // A message that was parsed can be written.
        message.to_vec().unwrap_or_default()
    }
}

/// Returns `true` for a signature over the whole message (RFC 8945, RFC 2931), which an answer of the
/// resolver would lack.
fn is_signature(kind: RecordType) -> bool {
    matches!(kind, RecordType::TSIG | RecordType::SIG)
}

/// Returns `true` for zone transfers (RFC 5936, RFC 1995).
fn is_transfer(kind: RecordType) -> bool {
    matches!(kind, RecordType::AXFR | RecordType::IXFR)
}

/// Encodes a name in wire format without compression.
pub(super) fn wire_name(name: &Name, lower_case: bool) -> Box<[u8]> {
    let mut wire = Vec::with_capacity(name.len() + 1);
    for label in name.iter() {
        // A label has at most 63 bytes (RFC 1035 §2.3.4).
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

/// A domain: a name and all names below it.
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
    /// Returns `true` if a name in lower case is this domain or below it.
    pub(super) fn has(&self, name: &str) -> bool {
        is_within(name, &self.0)
    }
}

/// Domains that public resolvers do not know, or that have a local meaning (RFC 6761, RFC 6762, RFC 7686,
/// RFC 8375, RFC 9476).
const SPECIAL: [&str; 9] =
    ["localhost", "local", "invalid", "test", "onion", "home.arpa", "internal", "alt", "arpa"];

/// Returns `true` if a connection may be opened by this name, in lower case: it is neither local nor in a
/// domain of `real`.
pub(super) fn may_use_pool(name: &str, real: &[Domain]) -> bool {
    let special = |domain: &&str| is_within(name, domain);
    name.contains('.')
        && !SPECIAL.iter().any(special)
        && !real.iter().any(|domain| domain.has(name))
}

/// Returns `true` if a name is this domain or below it; both are in lower case.
pub(super) fn is_within(name: &str, domain: &str) -> bool {
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
            assert!(matches!(parsed, Err(NonQuestion::Answer(_))) && cost == 0, "{counts:?}");
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
