//! Time for which a reply may be cached.

use core::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};

/// Longest time in seconds that any record is kept (RFC 8767 §4).
const LONGEST: u32 = 7 * 86_400;
/// Longest time in seconds that a negative answer is kept (RFC 2308 §5).
const LONGEST_NEGATIVE: u32 = 3 * 3_600;
/// Time in seconds that a failure is kept: RFC 9520 §3.2 asks for one second to five minutes.
const FAILURE: u32 = 5;

/// Cacheability of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyLifetime {
    /// Time for which it is fresh; not zero.
    pub(super) fresh: Duration,
    /// `true` for an answer about the name, positive or negative; `false` if the resolver failed.
    pub(super) is_answer: bool,
}

/// The time for which a reply to a question of type `kind` may be cached; [`None`] if not at all.
pub(super) fn reply_lifetime(reply: &Message, kind: RecordType) -> Option<ReplyLifetime> {
    // A truncated reply is to be ignored (RFC 2181 §9).
    if reply.metadata.truncation {
        return None;
    }
    let (seconds, is_answer) = match reply.metadata.response_code {
        ResponseCode::NoError if has_answer(reply, kind) => (shortest(&reply.answers)?, true),
        ResponseCode::NoError | ResponseCode::NXDomain => (negative(reply)?, true),
        _ => (FAILURE, false),
    };
    let fresh = Duration::from_secs(seconds.min(LONGEST).into());
    (seconds > 0).then_some(ReplyLifetime { fresh, is_answer })
}

fn has_answer(reply: &Message, kind: RecordType) -> bool {
    let wanted = |record: &Record| record.record_type() == kind;
    reply.answers.iter().any(wanted) || (kind == RecordType::ANY && !reply.answers.is_empty())
}

/// TTL of a negative answer from its SOA record (RFC 2308 §3, §5); without one it is not cached. The TTLs
/// of the aliases that lead to it are a further bound.
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
