//! Lookup of a terminal's question at the hub's own resolvers.
//!
//! The resolvers are asked in turn, over UDP, and over TCP if an answer was truncated. An answer is
//! accepted if its identifier, which is random for each attempt, and its question match (RFC 5452 §9). The
//! driver accepts it only from the server that was asked, at a port that is also random.

use core::net::IpAddr;
use core::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};
use pep::traffic::IpFamily;
use slacp::HostName;
use thiserror::Error;
use units::{Instant, Machine};

use super::answer::ReplyClass;
use super::message::{HEADER, PAYLOAD};
use super::question::{Question, read_reply};

/// Most attempts for a question.
pub const ATTEMPTS: usize = 4;
/// Time limit of each attempt: ten seconds in all.
const WAITS: [Duration; ATTEMPTS] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(4),
];

/// Why a lookup asks to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupWake {
    /// The server has not answered within the time limit of the attempt.
    NoAnswer,
}

/// The next step of a lookup. A server is given by its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupStep {
    /// Send this datagram to a server, from a new port.
    Udp(usize, Vec<u8>),
    /// Send this message to a server over a new TCP connection.
    Tcp(usize, Vec<u8>),
    /// The answer, with identifier 0.
    Done(Vec<u8>),
    /// No resolver has answered, in any attempt.
    Failed,
}

/// Why a lookup cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LookupError {
    /// It is not a question that a resolver answers.
    #[error("not a question that a resolver answers")]
    NoQuestion,
    /// There is no resolver to ask.
    #[error("there is no resolver to ask")]
    NoServer,
}

/// Builds the query for a host's addresses of an IP version; [`None`] if the name cannot be encoded.
pub fn question_for(host: &HostName, version: IpFamily) -> Option<Vec<u8>> {
    let kind = match version {
        IpFamily::V4 => RecordType::A,
        IpFamily::V6 => RecordType::AAAA,
    };
    let mut message = Message::new(0, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let mut name = Name::from_ascii(host.as_str()).ok()?;
    name.set_fqdn(true);
    message.add_query(Query::query(name, kind));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    message.set_edns(edns);
    message.to_vec().ok()
}

/// Extracts the addresses from an answer, including those behind aliases.
pub fn addresses_in(answer: &[u8]) -> Vec<IpAddr> {
    let records = read_reply(answer).map(|message| message.answers).unwrap_or_default();
    let address = |record: Record| match record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    };
    records.into_iter().filter_map(address).collect()
}

/// State machine of one lookup. Drain [`Self::poll_step`] after every input.
#[derive(Debug)]
pub struct Lookup {
    question: Question,
    message: Message,
    servers: usize,
    identifiers: [u16; ATTEMPTS],
    /// Index of the current attempt.
    attempt: usize,
    over_tcp: bool,
    until: Option<Instant>,
    next: Option<LookupStep>,
    /// The last answer with an error code, which is returned if every attempt fails.
    refusal: Option<Vec<u8>>,
}

impl Lookup {
    /// Starts a lookup of `message` at resolvers 0 to `servers` - 1. The identifiers must be random (RFC
    /// 5452 §9).
    ///
    /// # Errors
    /// [`LookupError`] if the message is not a question for a resolver, or there is no resolver.
    pub fn new(
        now: Instant,
        message: &[u8],
        servers: usize,
        identifiers: [u16; ATTEMPTS],
    ) -> Result<Self, LookupError> {
        let question = Question::parse(message).map_err(|_| LookupError::NoQuestion)?;
        let message = Message::from_vec(message).map_err(|_| LookupError::NoQuestion)?;
        if servers == 0 {
            return Err(LookupError::NoServer);
        }
        let mut lookup = Self {
            question,
            message,
            servers,
            identifiers,
            attempt: 0,
            over_tcp: false,
            until: None,
            next: None,
            refusal: None,
        };
        lookup.ask(now);
        Ok(lookup)
    }

    /// Returns the next step.
    pub fn poll_step(&mut self) -> Option<LookupStep> {
        self.next.take()
    }

    /// Returns `true` if a step is waiting.
    pub fn has_step(&self) -> bool {
        self.next.is_some()
    }

    /// Handles a message from the server that was asked last.
    pub fn handle_message(&mut self, now: Instant, bytes: &[u8]) {
        if self.until.is_none() || !self.is_ours(bytes) {
            return;
        }
        match rcode(bytes) {
            _ if is_cut_off(bytes) && !self.over_tcp => {
                self.over_tcp = true;
                self.ask(now);
            }
            // RFC 6891 §6.2.2: the server does not know EDNS.
            Some(ResponseCode::FormErr) if self.message.edns.take().is_some() => self.ask(now),
            Some(ResponseCode::NoError | ResponseCode::NXDomain) => self.end(bytes),
            _ => {
                // Another resolver may know the answer: an error counts only if every attempt fails.
                self.refusal = Some(bytes.to_vec());
                self.ask_next(now);
            }
        }
    }

    /// Handles a failure to reach the server that was asked last.
    pub fn handle_failure(&mut self, now: Instant) {
        if self.until.is_some() {
            self.ask_next(now);
        }
    }

    fn is_ours(&self, bytes: &[u8]) -> bool {
        let identifier = self.identifiers[self.attempt].to_be_bytes();
        bytes.starts_with(&identifier)
            && (is_bare_error(bytes) || !matches!(self.question.reply(bytes), ReplyClass::Foreign))
    }

    fn ask_next(&mut self, now: Instant) {
        self.attempt += 1;
        // TCP was needed by the answer of the resolver before.
        self.over_tcp = false;
        if self.attempt < ATTEMPTS {
            return self.ask(now);
        }
        match self.refusal.take() {
            Some(refusal) => self.end(&refusal),
            None => {
                self.until = None;
                self.next = Some(LookupStep::Failed);
            }
        }
    }

    fn ask(&mut self, now: Instant) {
        self.until = Some(now + WAITS[self.attempt]);
        self.message.metadata.id = self.identifiers[self.attempt];
        // A message that was parsed can be written.
        let message = self.message.to_vec().unwrap_or_default();
        let server = self.attempt % self.servers;
        self.next = Some(if self.over_tcp {
            LookupStep::Tcp(server, message)
        } else {
            LookupStep::Udp(server, message)
        });
    }

    fn end(&mut self, answer: &[u8]) {
        let mut answer = answer.to_vec();
        // On a stream of its own a message needs no identifier (RFC 9250 §4.2.1).
        answer[..2].fill(0);
        self.until = None;
        self.next = Some(LookupStep::Done(answer));
    }
}

impl Machine for Lookup {
    type Wake = LookupWake;

    fn poll_timeout(&self) -> Option<(Instant, LookupWake)> {
        self.until.map(|until| (until, LookupWake::NoAnswer))
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            self.ask_next(now);
        }
    }
}

/// Returns `true` for an error that consists of a header only, with which old servers answer EDNS: FORMERR
/// or NOTIMP.
fn is_bare_error(bytes: &[u8]) -> bool {
    let code = rcode(bytes);
    let is_error = matches!(code, Some(ResponseCode::FormErr | ResponseCode::NotImp));
    bytes.len() == HEADER && bytes[2] & 0b1000_0000 != 0 && is_error
}

/// The TC flag (RFC 1035 §4.1.1).
fn is_cut_off(bytes: &[u8]) -> bool {
    bytes.get(2).is_some_and(|flags| flags & 0b10 != 0)
}

/// The response code without its upper bits in the OPT record.
fn rcode(bytes: &[u8]) -> Option<ResponseCode> {
    let mut decoder = BinDecoder::new(bytes.get(..HEADER)?);
    let header = hickory_proto::op::Header::read(&mut decoder).ok()?;
    Some(header.metadata.response_code)
}
