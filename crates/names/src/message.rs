//! Error messages, and requests that are not answered by the resolver.

use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};

/// Length of a message's header, in bytes (RFC 1035 §4.1.1).
pub(super) const HEADER: usize = 12;
/// The largest UDP payload that is not fragmented on common paths (DNS flag day 2020), in bytes.
pub(super) const PAYLOAD: u16 = 1232;

/// Handling of a message that is not a question for a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NonQuestion {
    /// Ignore it: it is a response, or shorter than a header.
    Nothing,
    /// Only the server it is meant for can answer it: an update, a zone transfer, a question without
    /// recursion desired, or a signed message.
    Foreign,
    /// Answer with this message.
    Answer(Vec<u8>),
}

impl NonQuestion {
    /// Answers FORMERR to a message that cannot be parsed (RFC 1035 §4.1.1).
    pub(super) fn malformed(header: &[u8; HEADER]) -> Self {
        Self::Answer(error(header, ResponseCode::FormErr, None, None))
    }

    /// Answers BADVERS to a client with a later version of EDNS (RFC 6891 §6.1.3).
    pub(super) fn version(header: &[u8; HEADER], query: &Query) -> Self {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        Self::Answer(error(header, ResponseCode::BADVERS, Some(query), Some(edns)))
    }
}

/// Builds an answer with this response code and without records.
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
