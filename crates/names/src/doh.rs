//! DNS over HTTPS (RFC 8484): finds the question of a request, and the freshness of an answer.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hickory_proto::op::Message;
use thiserror::Error;

use super::lifetime;

/// Path of the DNS service.
pub const PATH: &str = "/dns-query";
/// Media type of questions and answers (RFC 8484 §6).
pub const MEDIA_TYPE: &str = "application/dns-message";
/// Longest question that is accepted, in bytes; longer than any that clients send.
pub const LONGEST_QUESTION: usize = 4096;

/// Why a request contains no question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoQuestion {
    /// The request is for another path.
    #[error("not found: DNS queries go to {PATH}")]
    Path,
    /// It is neither GET nor POST.
    #[error("DNS queries use GET or POST")]
    Method,
    /// The body of a POST is not a DNS message.
    #[error("expected {MEDIA_TYPE}")]
    MediaType,
    /// The query has not exactly one `dns`, or it is not base64url without padding (RFC 8484 §4.1.1).
    #[error("expected one parameter `dns` in base64url")]
    Query,
    /// The question is longer than [`LONGEST_QUESTION`].
    #[error("the DNS query is too long")]
    TooLong,
}

impl NoQuestion {
    /// HTTP status code of the response (RFC 9110 §15).
    pub fn status(self) -> u16 {
        match self {
            Self::Query => 400,
            Self::Path => 404,
            Self::Method => 405,
            Self::TooLong => 413,
            Self::MediaType => 415,
        }
    }
}

/// Location of the question in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionLocation {
    /// The decoded message from the target.
    Target(Vec<u8>),
    /// The body is the message.
    Body,
}

/// Finds the question of a request from its method, path, query and `Content-Type`.
///
/// # Errors
/// The reason why the request has no question.
pub fn question(
    method: &str,
    path: &str,
    query: Option<&str>,
    content_type: Option<&[u8]>,
) -> Result<QuestionLocation, NoQuestion> {
    if path != PATH {
        return Err(NoQuestion::Path);
    }
    match method {
        "GET" => in_query(query.unwrap_or_default()).map(QuestionLocation::Target),
        "POST" if is_message(content_type.unwrap_or_default()) => Ok(QuestionLocation::Body),
        "POST" => Err(NoQuestion::MediaType),
        _ => Err(NoQuestion::Method),
    }
}

fn in_query(query: &str) -> Result<Vec<u8>, NoQuestion> {
    let mut given = query.split('&').filter_map(|pair| pair.strip_prefix("dns="));
    let (Some(text), None) = (given.next(), given.next()) else { return Err(NoQuestion::Query) };
    // Base64 codes three bytes as four characters; checked before decoding allocates.
    if text.len() > LONGEST_QUESTION / 3 * 4 + 4 {
        return Err(NoQuestion::TooLong);
    }
    URL_SAFE_NO_PAD.decode(text).map_err(|_| NoQuestion::Query)
}

/// Returns `true` for the media type of DNS messages, with or without parameters.
fn is_message(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
}

/// Seconds that HTTP caches may keep an answer: at most the shortest TTL of its records (RFC 8484 §5.1); 0
/// for a failure or an unparsable message.
pub fn freshness(answer: &[u8]) -> u64 {
    let Ok(message) = Message::from_vec(answer) else { return 0 };
    let kind = message.queries.first().map(|query| query.query_type());
    let lifetime = kind
        .and_then(|kind| lifetime::reply_lifetime(&message, kind))
        .filter(|lifetime| lifetime.is_answer);
    lifetime.map_or(0, |lifetime| lifetime.fresh.as_secs())
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use hickory_proto::op::{MessageType, OpCode, Query, ResponseCode};
    use hickory_proto::rr::rdata::{A, SOA};
    use hickory_proto::rr::{Name, RData, Record, RecordType};

    use super::*;

    fn get(query: &str) -> Result<QuestionLocation, NoQuestion> {
        question("GET", PATH, Some(query), None)
    }

    /// The examples of RFC 8484 §4.1.1: www.example.com, type A.
    #[test]
    fn the_question_of_the_standard_is_read_from_target_and_body() {
        let asked = "AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB";
        let Ok(QuestionLocation::Target(message)) = get(&format!("dns={asked}")) else { panic!() };
        let message = Message::from_vec(&message).unwrap();
        assert_eq!(message.queries[0].name().to_string(), "www.example.com.");
        assert_eq!(get(&format!("ct&dns={asked}&x=1")).map(|_| ()), Ok(()));
        let post = |kind: &str| question("POST", PATH, None, Some(kind.as_bytes()));
        assert_eq!(post("application/dns-message"), Ok(QuestionLocation::Body));
        assert_eq!(post("Application/DNS-Message ; charset=x"), Ok(QuestionLocation::Body));
        assert_eq!(post("text/html"), Err(NoQuestion::MediaType));
    }

    #[test]
    fn anything_else_is_refused_with_its_status() {
        for query in ["", "dns", "dns=AAAB&dns=AAAB", "DNS=AAAB", "dns=AA==", "dns=A+/B", "dns=A"] {
            assert_eq!(get(query), Err(NoQuestion::Query), "{query}");
        }
        assert_eq!(get(&format!("dns={}", "A".repeat(6000))), Err(NoQuestion::TooLong));
        assert_eq!(question("GET", "/", Some("dns=AAAB"), None), Err(NoQuestion::Path));
        assert_eq!(question("PUT", PATH, Some("dns=AAAB"), None), Err(NoQuestion::Method));
        let all = [NoQuestion::Query, NoQuestion::Path, NoQuestion::Method, NoQuestion::MediaType];
        assert_eq!(all.map(NoQuestion::status), [400, 404, 405, 415]);
    }

    #[test]
    fn an_answer_is_fresh_as_long_as_its_shortest_record() {
        let name = Name::from_ascii("example.com.").unwrap();
        let mut answer = Message::new(0, MessageType::Response, OpCode::Query);
        answer.add_query(Query::query(name.clone(), RecordType::A));
        let fresh = |answer: &Message| freshness(&answer.to_vec().unwrap());
        assert_eq!(fresh(&answer), 0);
        let address = RData::A(A(Ipv4Addr::LOCALHOST));
        for ttl in [300, 60, 3600] {
            answer.add_answer(Record::from_rdata(name.clone(), ttl, address.clone()));
        }
        assert_eq!(fresh(&answer), 60);
        answer.metadata.response_code = ResponseCode::ServFail;
        assert_eq!(fresh(&answer), 0);
        let mut negative = Message::new(0, MessageType::Response, OpCode::Query);
        negative.add_query(Query::query(name.clone(), RecordType::A));
        negative.metadata.response_code = ResponseCode::NXDomain;
        let soa = SOA::new(name.clone(), name.clone(), 1, 1, 1, 1, 90);
        negative.add_authority(Record::from_rdata(name, 600, RData::SOA(soa)));
        assert_eq!((fresh(&negative), freshness(b"nothing")), (90, 0));
    }
}
