//! Responses served from the cache: complete, partial, or 304 Not Modified (RFC 9110 §13, §14).

use units::UnixTime;

use super::fields::HeaderFields;
use super::head::{RequestHead, ResponseHead};
use super::policy::{StoredResponse, parse_date};

/// Fields that a 304 carries over from the stored response (RFC 9110 §15.4.5).
const NOT_MODIFIED_FIELDS: [&str; 8] = [
    "cache-control",
    "content-location",
    "date",
    "etag",
    "expires",
    "vary",
    "last-modified",
    "access-control-allow-origin",
];

/// A byte range of the stored body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyRange {
    /// Offset of the first byte.
    pub from: u64,
    /// Length of the range in bytes.
    pub length: u64,
}

/// Builds the response to `request` from a stored response whose body has `length` bytes. The second value
/// is the range of the body to send: [`None`] for HEAD, and with a 304 or 416.
pub(super) fn build_response(
    now: UnixTime,
    request: &RequestHead,
    stored: &StoredResponse,
    length: u64,
) -> (ResponseHead, Option<BodyRange>) {
    let mut head = stored.head.clone();
    // Larger ages count as 2^31 (RFC 9111 §1.2.2).
    head.fields.set("Age", stored.age(now).as_secs().min(1 << 31).to_string());
    // A 204 has no content, and so no length (RFC 9110 §8.6).
    if head.status != 204 {
        head.fields.set("Content-Length", length.to_string());
    }
    let whole = BodyRange { from: 0, length };
    let is_head = request.method == "HEAD";
    // Preconditions and ranges apply only where the response would be a 200 (RFC 9110 §13.2.1, §14.2).
    if stored.head.status != 200 {
        return (head, (!is_head).then_some(whole));
    }
    if is_not_modified(request, stored) {
        return (not_modified(&head), None);
    }
    let is_part = !is_head && permits_range(request, stored);
    let asked = request.fields.parsed("range", |text| parse_range(text, length));
    match asked.filter(|_| is_part) {
        Some(Ok(part)) => {
            (head.status, head.reason) = (206, "Partial Content".to_owned());
            let last = part.from + part.length - 1;
            head.fields.set("Content-Range", format!("bytes {}-{last}/{length}", part.from));
            head.fields.set("Content-Length", part.length.to_string());
            (head, Some(part))
        }
        Some(Err(UnsatisfiableRange)) => {
            let mut head = ResponseHead::own(416, "Range Not Satisfiable");
            head.fields.push("Content-Range", format!("bytes */{length}"));
            head.fields.push("Content-Length", "0");
            (head, None)
        }
        None => (head, (!is_head).then_some(whole)),
    }
}

fn not_modified(whole: &ResponseHead) -> ResponseHead {
    let mut head = ResponseHead::own(304, "Not Modified");
    // A cookie does not describe the stored response, so the client gets it even with a 304.
    let kept = |name: &str| {
        ["age", "set-cookie"].iter().any(|other| name.eq_ignore_ascii_case(other))
            || NOT_MODIFIED_FIELDS.iter().any(|other| name.eq_ignore_ascii_case(other))
    };
    let fields = whole.fields.all().filter(|(name, _)| kept(name));
    fields.for_each(|(name, value)| head.fields.push(name, value));
    head
}

/// Evaluates `If-None-Match` and `If-Modified-Since` (RFC 9110 §13.2.2, steps 3 and 4); `true` if the
/// client's copy is current.
fn is_not_modified(request: &RequestHead, stored: &StoredResponse) -> bool {
    if request.fields.has("if-none-match") {
        // `If-Modified-Since` beside it is ignored (RFC 9110 §13.1.3).
        let is_any = |text: &str| (text == "*").then_some(());
        let has = |ours: &str| {
            parse_tags(&request.fields)
                .any(|tag| strip_weakness(tag) == strip_weakness(ours))
                .then_some(())
        };
        return request.fields.parsed("if-none-match", is_any).is_some()
            || stored.head.fields.parsed("etag", has).is_some();
    }
    let since = request.fields.parsed("if-modified-since", parse_date);
    // Without `Last-Modified`, `Date` stands for the time of the last change (RFC 9111 §4.3.2).
    let fields = &stored.head.fields;
    let changed = match fields.has("last-modified") {
        true => fields.parsed("last-modified", parse_date),
        false => fields.parsed("date", parse_date),
    };
    matches!((since, changed), (Some(since), Some(changed)) if changed <= since)
}

/// The entity tags of `If-None-Match`. A tag may contain a comma, so the list cannot be split at commas.
fn parse_tags(fields: &HeaderFields) -> impl Iterator<Item = &str> {
    let texts = fields.values("if-none-match").filter_map(|value| core::str::from_utf8(value).ok());
    texts.flat_map(|text| {
        let mut rest = text;
        core::iter::from_fn(move || {
            rest = rest.trim_start_matches([',', ' ', '\t']);
            let open = rest.find('"')?;
            let close = open + 1 + rest[open + 1..].find('"')?;
            let (tag, behind) = rest.split_at(close + 1);
            rest = behind;
            Some(tag)
        })
    })
}

/// Strips the prefix of a weak tag, for weak comparison (RFC 9110 §8.8.3.2).
fn strip_weakness(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Evaluates `If-Range` (RFC 9110 §13.1.5): `true` without the field, or if its entity tag is strong and
/// equals that of the stored response.
fn permits_range(request: &RequestHead, stored: &StoredResponse) -> bool {
    // A date is a strong validator only if nothing else changed within that second, which a cache cannot
    // know.
    let strong = |text: &str| text.starts_with('"').then(|| text.to_owned());
    let [theirs, ours] =
        [request.fields.parsed("if-range", strong), stored.head.fields.parsed("etag", strong)];
    !request.fields.has("if-range") || theirs.is_some() && theirs == ours
}

/// The range begins behind the end of the body: the response is a 416.
struct UnsatisfiableRange;

/// Parses `Range` for a body of `length` bytes (RFC 9110 §14.1.2). [`None`] for ranges that are not served
/// in part, such as several ranges or another unit: the complete body is sent.
fn parse_range(text: &str, length: u64) -> Option<Result<BodyRange, UnsatisfiableRange>> {
    let (unit, range) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| {
        // 18 digits fit into a `u64`, and so does their successor.
        let is_number = (1..=18).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let (from, end) = match (first.is_empty(), last.is_empty()) {
        (true, true) => return None,
        (true, false) => {
            let count = number(last)?;
            if count == 0 {
                return Some(Err(UnsatisfiableRange));
            }
            (length.saturating_sub(count), length)
        }
        (false, true) => (number(first)?, length),
        (false, false) => {
            let first = number(first)?;
            let last = number(last)?;
            if last < first {
                return None;
            }
            (first, length.min(last + 1))
        }
    };
    Some(if from < end {
        Ok(BodyRange { from, length: end - from })
    } else {
        Err(UnsatisfiableRange)
    })
}

/// Builds the conditional request that validates a stored response (RFC 9111 §4.3.1). The stored validators
/// replace the client's conditions.
pub(super) fn validation_request(request: &RequestHead, stored: &StoredResponse) -> RequestHead {
    let mut asked = request.clone();
    ["if-none-match", "if-modified-since"].iter().for_each(|name| asked.fields.remove(name));
    for (condition, validator) in
        [("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")]
    {
        if let Some(value) = stored.head.fields.values(validator).next() {
            asked.fields.push(condition, value);
        }
    }
    asked
}
