//! Builds the answers to clients: their question with the records of a reply to the same question.

use core::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RData, Record};

use super::message::{HEADER, PAYLOAD, error};
use super::question::{Question, read_reply, wire_name};

/// TTL of stale records, in seconds (RFC 8767 §4).
const STALE_TTL: u32 = 30;
/// Extended DNS Error: the answer is stale (RFC 8914 §4.4).
const EDE_STALE: [u8; 2] = [0, 3];
const EDE: EdnsCode = EdnsCode::Unknown(15);

/// Builds the answer to a request that is not served here: REFUSED, or NOTIMP for an opcode other than
/// QUERY. [`None`] if `request` is itself a response, or shorter than a header.
pub fn failure(request: &[u8]) -> Option<Vec<u8>> {
    let header = request.first_chunk::<HEADER>()?;
    // Opcode 0 is QUERY (RFC 1035 §4.1.1).
    let is_question = header[2] & 0b0111_1000 == 0;
    let code = if is_question { ResponseCode::Refused } else { ResponseCode::NotImp };
    let asked = Message::from_vec(request).map(|message| message.queries).unwrap_or_default();
    (header[2] & 0b1000_0000 == 0).then(|| error(header, code, asked.first(), None))
}

/// Age of the records in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordAge {
    /// The hub sent them this long ago.
    Since(Duration),
    /// They have expired, and are given for want of newer ones.
    Stale,
}

impl Question {
    /// Builds this client's answer from the records of `reply`.
    pub(super) fn answer(&self, reply: Message, age: RecordAge, over_tcp: bool) -> Vec<u8> {
        let mut answer = self.empty(reply.metadata.response_code);
        // AD is for clients that ask for it (RFC 6840 §5.7), and stale data is no longer authenticated.
        answer.metadata.authentic_data = reply.metadata.authentic_data
            && (self.authentic || self.key.dnssec_ok)
            && age != RecordAge::Stale;
        let fit = |records: Vec<Record>| {
            records.into_iter().map(|record| self.adapt_record(record, age)).collect()
        };
        answer.answers = fit(reply.answers);
        answer.authorities = fit(reply.authorities);
        answer.additionals = fit(reply.additionals);
        if let (RecordAge::Stale, Some(edns)) = (age, &mut answer.edns) {
            edns.options_mut().insert(EdnsOption::Unknown(EDE.into(), EDE_STALE.to_vec()));
        }
        self.encode(&answer, over_tcp)
    }

    /// Builds an answer with this record, or without records.
    pub(super) fn with_address(&self, address: Option<RData>, ttl: u32, over_tcp: bool) -> Vec<u8> {
        let mut answer = self.empty(ResponseCode::NoError);
        let record = |data| Record::from_rdata(self.query.name().clone(), ttl, data);
        answer.answers = address.into_iter().map(record).collect();
        self.encode(&answer, over_tcp)
    }

    /// Builds an answer without records, which may be kept for `ttl` seconds (RFC 2308 §5).
    pub(super) fn without_records(&self, ttl: u32, over_tcp: bool) -> Vec<u8> {
        let mut answer = self.empty(ResponseCode::NoError);
        // Which zone the name is in is not known here, so it is a zone of its own, with the timers of a locally
        // served one (RFC 6303 §3), and neither a server nor a mailbox.
        let soa = SOA::new(Name::root(), Name::root(), 1, 3600, 1200, 604_800, ttl);
        let zone = self.query.name().clone();
        answer.authorities = vec![Record::from_rdata(zone, ttl, RData::SOA(soa))];
        self.encode(&answer, over_tcp)
    }

    /// Builds a SERVFAIL answer.
    pub(super) fn servfail(&self, over_tcp: bool) -> Vec<u8> {
        self.encode(&self.empty(ResponseCode::ServFail), over_tcp)
    }

    fn empty(&self, code: ResponseCode) -> Message {
        // The upper bits of an extended code travel in the OPT record (RFC 6891 §6.1.3), which this client
        // does not get.
        let lost = code.high() > 0 && self.payload.is_none();
        let code = if lost { ResponseCode::ServFail } else { code };
        let mut message = Message::error_msg(self.id, OpCode::Query, code);
        message.metadata.recursion_desired = true;
        message.metadata.recursion_available = true;
        message.metadata.checking_disabled = self.key.checking_disabled;
        message.add_query(self.query.clone());
        message.edns = self.payload.map(|_| {
            let mut edns = Edns::new();
            edns.set_max_payload(PAYLOAD).set_dnssec_ok(self.key.dnssec_ok);
            edns
        });
        message
    }

    /// Adjusts a record for the client: its TTL is the time that is left. A name equal to the one in the
    /// question gets the client's spelling, which some clients compare to recognise forgeries.
    fn adapt_record(&self, mut record: Record, age: RecordAge) -> Record {
        match age {
            RecordAge::Since(age) => {
                let seconds = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
                record.ttl = record.ttl.saturating_sub(seconds);
            }
            RecordAge::Stale => record.ttl = STALE_TTL,
        }
        // Names compare without regard to case.
        if record.name == *self.query.name() {
            record.name.clone_from(self.query.name());
        }
        record
    }

    /// Encodes an answer; without records and with TC if it is too long for the client (RFC 2181 §9).
    fn encode(&self, message: &Message, over_tcp: bool) -> Vec<u8> {
        let longest = usize::from(self.longest_answer(over_tcp));
        match message.to_vec() {
            Ok(bytes) if bytes.len() <= longest => bytes,
            // An answer that cannot be encoded is of no use to any client.
            Err(_) => self.empty(ResponseCode::ServFail).to_vec().unwrap_or_default(),
            Ok(_) => message.truncate().to_vec().unwrap_or_default(),
        }
    }

    /// Adapts a reply whose records cannot be parsed: it gets the client's identifier and spelling.
    pub(super) fn adapt_unreadable(&self, mut reply: Vec<u8>, over_tcp: bool) -> Vec<u8> {
        let name = wire_name(self.query.name(), false);
        let end = HEADER + name.len();
        let fits = reply.len() <= usize::from(self.longest_answer(over_tcp));
        let same = reply.get(HEADER..end).is_some_and(|echoed| echoed.eq_ignore_ascii_case(&name));
        if !fits || !same {
            let mut message = self.empty(ResponseCode::ServFail);
            // The question matches, so TC makes the client ask again over TCP.
            if same {
                message.metadata.response_code = ResponseCode::NoError;
                message.metadata.truncation = true;
            }
            return message.to_vec().unwrap_or_default();
        }
        reply[..2].copy_from_slice(&self.id.to_be_bytes());
        reply[HEADER..end].copy_from_slice(&name);
        reply
    }

    /// Classifies a reply to this question.
    pub(super) fn reply(&self, bytes: &[u8]) -> ReplyClass {
        match read_reply(bytes) {
            Some(message) if self.is_answered_by(&message) => ReplyClass::Read(message),
            Some(_) => ReplyClass::Foreign,
            None if self.matches_prefix(bytes) => ReplyClass::Unreadable,
            None => ReplyClass::Foreign,
        }
    }

    fn is_answered_by(&self, message: &Message) -> bool {
        let metadata = &message.metadata;
        let [query] = &message.queries[..] else { return false };
        metadata.message_type == MessageType::Response
            && metadata.op_code == OpCode::Query
            && query.query_type() == self.query.query_type()
            && query.query_class() == self.query.query_class()
            && wire_name(query.name(), true) == self.key.name
    }

    /// Returns `true` if an unparsable reply has a header and a question that match this one.
    fn matches_prefix(&self, bytes: &[u8]) -> bool {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return false };
        let question = [&self.key.name[..], &self.key.kind.to_be_bytes(), &[0, 1]].concat();
        header[2] & 0b1111_1000 == 0b1000_0000
            && header[4..6] == [0, 1]
            && rest
                .get(..question.len())
                .is_some_and(|echoed| echoed.eq_ignore_ascii_case(&question))
    }
}

/// Classification of a reply.
pub(super) enum ReplyClass {
    /// It answers the question.
    Read(Message),
    /// It answers the question, but its records cannot be parsed.
    Unreadable,
    /// It is not a reply to the question.
    Foreign,
}
