//! How long a reply may be kept.

use core::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};

/// The longest that any records are kept (RFC 8767 §4).
const LONGEST: u32 = 7 * 86_400;
/// The longest that a negative answer is kept (RFC 2308 §5).
const LONGEST_NEGATIVE: u32 = 3 * 3_600;
/// How long a failure is kept: RFC 9520 §3.2 asks for a second to five minutes.
const FAILURE: u32 = 5;

/// A reply that may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// How long it may be used; not zero.
    pub(super) fresh: Duration,
    /// Whether it says something about the name, and not only that the resolver has failed.
    pub(super) is_answer: bool,
}

/// How long a reply to a question for `kind` may be kept; [`None`] if not at all.
pub(super) fn of(reply: &Message, kind: RecordType) -> Option<Lifetime> {
    if reply.metadata.truncation {
        return None;
    }
    let (seconds, is_answer) = match reply.metadata.response_code {
        ResponseCode::NoError if has_answer(reply, kind) => (shortest(&reply.answers)?, true),
        ResponseCode::NoError | ResponseCode::NXDomain => (negative(reply)?, true),
        _ => (FAILURE, false),
    };
    let fresh = Duration::from_secs(seconds.min(LONGEST).into());
    (seconds > 0).then_some(Lifetime { fresh, is_answer })
}

fn has_answer(reply: &Message, kind: RecordType) -> bool {
    let wanted = |record: &Record| record.record_type() == kind;
    reply.answers.iter().any(wanted) || (kind == RecordType::ANY && !reply.answers.is_empty())
}

/// The time of a negative answer, which its SOA record gives (RFC 2308 §3, §5); without one it is not
/// kept. The aliases that lead to it last no longer than they say.
fn negative(reply: &Message) -> Option<u32> {
    let soa = |record: &Record| match &record.data {
        RData::SOA(soa) => Some(ttl(record.ttl).min(ttl(soa.minimum))),
        _ => None,
    };
    let seconds = reply.authorities.iter().find_map(soa)?.min(LONGEST_NEGATIVE);
    Some(shortest(&reply.answers).map_or(seconds, |aliases| aliases.min(seconds)))
}

fn shortest(records: &[Record]) -> Option<u32> {
    records.iter().map(|record| ttl(record.ttl)).min()
}

/// A TTL with its highest bit set counts as zero (RFC 2181 §8).
fn ttl(seconds: u32) -> u32 {
    if seconds > i32::MAX as u32 { 0 } else { seconds }
}
