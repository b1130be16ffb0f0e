//! Messages that say that a question cannot be answered.

use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};

/// Size of a message's header, in bytes (RFC 1035 §4.1.1).
pub(super) const HEADER: usize = 12;
/// The largest UDP payload that is not fragmented on common paths (DNS flag day 2020), in bytes.
pub(super) const PAYLOAD: u16 = 1232;

/// What to do with a message that is no question for a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswerable {
    /// Ignore it: an answer, or shorter than a header.
    Nothing,
    /// A request that only the server it is meant for can answer: an update, a transfer, a question
    /// without recursion, a signed one.
    Foreign,
    /// Answer with this.
    Answer(Vec<u8>),
}

impl Unanswerable {
    /// The message cannot be read (RFC 1035 §4.1.1, FORMERR).
    pub(super) fn malformed(header: &[u8; HEADER]) -> Self {
        Self::Answer(error(header, ResponseCode::FormErr, None, None))
    }

    /// The client speaks a later version of EDNS (RFC 6891 §6.1.3).
    pub(super) fn version(header: &[u8; HEADER], query: &Query) -> Self {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        Self::Answer(error(header, ResponseCode::BADVERS, Some(query), Some(edns)))
    }
}

/// A message with this code instead of an answer.
pub(super) fn error(
    header: &[u8; HEADER],
    code: ResponseCode,
    query: Option<&Query>,
    edns: Option<Edns>,
) -> Vec<u8> {
    let opcode = OpCode::from_u8((header[2] >> 3) & 0xf);
    let mut message = Message::error_msg(u16::from_be_bytes([header[0], header[1]]), opcode, code);
    message.metadata.recursion_desired = header[2] & 1 != 0;
    message.metadata.recursion_available = true;
    message.add_queries(query.cloned());
    message.edns = edns;
    message.to_vec().unwrap_or_default()
}
