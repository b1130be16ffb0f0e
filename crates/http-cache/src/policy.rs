//! Rules of a shared cache: which responses may be stored, how long they are fresh, and when they may be
//! used (RFC 9111 §3 and §4, RFC 5861).

use core::time::Duration;
use std::time::UNIX_EPOCH;

use units::UnixTime;

use super::directives::CacheDirectives;
use super::fields::{HeaderFields, is_token_byte};
use super::head::{RequestHead, ResponseHead};

/// Heuristically cacheable status codes (RFC 9110 §15.1) without 206: partial responses are not stored.
const HEURISTIC_STATUS: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];
/// Status codes whose caching requirements are implemented, for `must-understand` (RFC 9111 §5.2.2.3).
const UNDERSTOOD_STATUS: [u16; 16] =
    [200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 421, 451, 501];
/// Heuristic freshness (RFC 9111 §4.2.2): a tenth of the time since the last change, and at most
/// `LONGEST_HEURISTIC`.
const HEURISTIC_PART: u32 = 10;
const LONGEST_HEURISTIC: Duration = Duration::from_secs(24 * 3600);
/// Fields that make some servers answer for another host, path or method than the request names. The
/// response would be stored for clients that do not send them (cache poisoning).
const OVERRIDE_FIELDS: [&str; 12] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];
/// Seconds that the clock may be set back before ages are meaningless.
const MOST_CLOCK_STEP: u64 = 5;
const NEVER: Duration = Duration::from_secs(1 << 40);

/// A stored response without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The head without connection-specific fields.
    pub head: ResponseHead,
    /// The request fields named by `Vary`, in lower case, with the values of the request that was answered.
    pub selecting: Vec<(String, Option<Vec<u8>>)>,
    /// Time of the request by the local clock.
    pub requested: UnixTime,
    /// Time of the response by the local clock.
    pub received: UnixTime,
}

/// Permitted use of a stored response for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReuseMode {
    /// Use it without asking the server.
    Fresh,
    /// At once, while it is revalidated in the background (RFC 5861 §3).
    WhileRevalidating,
    /// Only after the server has validated it.
    Validated,
}

/// Returns `true` if a response may be stored (RFC 9111 §3) and could be used later: it is fresh for some
/// time, can be validated, or has `stale-if-error`.
pub(super) fn is_storable(request: &RequestHead, response: &ResponseHead) -> bool {
    let asked = CacheDirectives::of(&request.fields);
    let said = CacheDirectives::of(&response.fields);
    // §3: only final responses. Neither a partial response nor a 304 is complete by itself.
    let is_whole = response.status >= 200 && !matches!(response.status, 206 | 304);
    if request.method != "GET" || !is_whole || asked.no_store || forbids_storing(response) {
        return false;
    }
    if said.must_understand && !UNDERSTOOD_STATUS.contains(&response.status) {
        return false;
    }
    // §3.5: responses to authenticated requests need explicit permission.
    if request.fields.has("authorization") && !(said.shared || said.must_revalidate) {
        return false;
    }
    // `*` never matches a request, and is no field name either.
    let selects = response.fields.members("vary").all(|name| name.iter().all(is_token_byte));
    if sets_cookie(response) || !selects || has_override_fields(&request.fields) {
        return false;
    }
    let explicit =
        said.max_age.is_some() || said.s_maxage.is_some() || response.fields.has("expires");
    let lasts = lifetime(response, UnixTime::from_seconds(0)) > Duration::ZERO;
    // Many servers tag what they make for one user without restricting its storage. While the server cannot
    // be reached, another user would get it.
    if request.fields.has("cookie") && !(said.shared || explicit && lasts) {
        return false;
    }
    let is_of_use = lasts || has_validator(&response.fields) || said.stale_if_error.is_some();
    (explicit || said.public || HEURISTIC_STATUS.contains(&response.status)) && is_of_use
}

/// Returns `true` if a response must not be stored, or not be shared.
pub(super) fn forbids_storing(response: &ResponseHead) -> bool {
    let said = CacheDirectives::of(&response.fields);
    // Where `must-understand` is present, `no-store` is for caches that do not understand the status code.
    let understood = said.must_understand && UNDERSTOOD_STATUS.contains(&response.status);
    said.private || said.no_store && !understood
}

/// Returns `true` if a response sets a cookie and is not marked as shareable. RFC 9111 §7.3 leaves it to
/// servers to forbid storing such a response. Many do not, and one user's session would reach another.
pub(super) fn sets_cookie(response: &ResponseHead) -> bool {
    response.fields.has("set-cookie") && !CacheDirectives::of(&response.fields).shared
}

/// Returns `true` if a request may make its server answer for something else than its target.
pub(super) fn has_override_fields(fields: &HeaderFields) -> bool {
    OVERRIDE_FIELDS.iter().any(|name| fields.has(name))
}

fn has_validator(fields: &HeaderFields) -> bool {
    fields.has("etag") || fields.has("last-modified")
}

/// Parses a date (RFC 9110 §5.6.7).
pub(super) fn parse_date(text: &str) -> Option<UnixTime> {
    let time = httpdate::parse_http_date(text).ok()?;
    Some(UnixTime::from_seconds(time.duration_since(UNIX_EPOCH).ok()?.as_secs()))
}

fn between(earlier: UnixTime, later: UnixTime) -> Duration {
    Duration::from_secs(later.seconds().saturating_sub(earlier.seconds()))
}

/// Freshness lifetime (RFC 9111 §4.2.1). `received` is used if `Date` is missing.
fn lifetime(response: &ResponseHead, received: UnixTime) -> Duration {
    let said = CacheDirectives::of(&response.fields);
    if let Some(time) = said.s_maxage.or(said.max_age) {
        return time;
    }
    let made = response.fields.parsed("date", parse_date);
    let mut expires = response.fields.values("expires");
    if let Some(first) = expires.next() {
        // A malformed or repeated `Expires` means already expired (§5.3).
        let text = core::str::from_utf8(first).ok().filter(|_| expires.next().is_none());
        let at = text.and_then(|text| parse_date(text.trim()));
        return at.map_or(Duration::ZERO, |at| between(made.unwrap_or(received), at));
    }
    if !(HEURISTIC_STATUS.contains(&response.status) || said.public) {
        return Duration::ZERO;
    }
    let changed = response.fields.parsed("last-modified", parse_date);
    let unchanged = changed.map(|changed| between(changed, made.unwrap_or(received)));
    unchanged.map_or(Duration::ZERO, |time| (time / HEURISTIC_PART).min(LONGEST_HEURISTIC))
}

impl StoredResponse {
    /// Prepares the response to `request` for storage. The times are those of request and response.
    pub fn new(
        request: &RequestHead,
        response: &ResponseHead,
        requested: UnixTime,
        received: UnixTime,
    ) -> Self {
        let mut head = response.clone();
        head.fields.remove_connection_fields();
        head.fields.remove("trailer");
        let mut names: Vec<String> = selecting_names(&head).collect();
        names.sort_unstable();
        names.dedup();
        let selecting = names.into_iter().map(|name| {
            let value = selecting_value(&request.fields, &name);
            (name, value)
        });
        let selecting = selecting.collect();
        Self { head, selecting, requested, received }
    }

    /// Returns `true` if the request's fields match those named by `Vary` (RFC 9111 §4.1).
    pub(super) fn is_selected_by(&self, request: &RequestHead) -> bool {
        self.selecting.iter().all(|(name, value)| selecting_value(&request.fields, name) == *value)
    }

    /// Current age (RFC 9111 §4.2.3). A clock that was set back makes it older than any limit.
    pub fn age(&self, now: UnixTime) -> Duration {
        if now.seconds() + MOST_CLOCK_STEP < self.received.seconds() {
            return NEVER;
        }
        let made = self.head.fields.parsed("date", parse_date).unwrap_or(self.received);
        let apparent = between(made, self.received);
        let corrected = self.age_value() + between(self.requested, self.received);
        apparent.max(corrected) + between(self.received, now)
    }

    /// Value of the `Age` field (RFC 9111 §5.1); of a list, the first.
    fn age_value(&self) -> Duration {
        let text = self.head.fields.members("age").next().unwrap_or_default();
        let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let text = core::str::from_utf8(text).ok().filter(|_| is_number);
        let seconds = text.map_or(0, |text| text.parse().unwrap_or(1 << 31));
        Duration::from_secs(seconds.min(1 << 31))
    }

    /// Freshness lifetime, counted from the response's origination.
    pub(super) fn lifetime(&self) -> Duration {
        lifetime(&self.head, self.received)
    }

    /// Time since the response became stale; zero while it is fresh.
    fn staleness(&self, now: UnixTime) -> Duration {
        let age = self.age(now);
        let lifetime = self.lifetime();
        // A response whose age equals its lifetime is stale (§4.2).
        if lifetime > age { Duration::ZERO } else { (age - lifetime).max(Duration::from_nanos(1)) }
    }

    /// The permitted use of the response for a request that it matches (RFC 9111 §4).
    pub(super) fn reuse(&self, now: UnixTime, request: &RequestHead) -> ReuseMode {
        let asked = CacheDirectives::of_request(&request.fields);
        let said = CacheDirectives::of(&self.head.fields);
        let age = self.age(now);
        let stale = self.staleness(now);
        let fresh_for = self.lifetime().saturating_sub(age);
        if asked.no_cache
            || said.no_cache
            || asked.max_age.is_some_and(|most| age > most || most.is_zero())
            || asked.min_fresh.is_some_and(|least| fresh_for < least)
        {
            return ReuseMode::Validated;
        }
        if stale.is_zero() {
            return ReuseMode::Fresh;
        }
        // A client that limits the age accepts no stale response unless it says so (§5.2.1.1).
        if self.forbids_stale() || (asked.max_age.is_some() && asked.max_stale.is_none()) {
            return ReuseMode::Validated;
        }
        if asked.max_stale.is_some_and(|most| stale <= most) {
            return ReuseMode::Fresh;
        }
        match said.stale_while_revalidate {
            Some(time) if stale <= time => ReuseMode::WhileRevalidating,
            _ => ReuseMode::Validated,
        }
    }

    /// Returns `true` if the response must not be used stale under any circumstances (RFC 9111 §4.2.4).
    fn forbids_stale(&self) -> bool {
        let said = CacheDirectives::of(&self.head.fields);
        said.must_revalidate || said.proxy_revalidate || said.no_cache || said.s_maxage.is_some()
    }

    /// Returns `true` if the response may be used although its validation failed: the server returned an
    /// error, or (`disconnected`) cannot be reached. A limit in the response or the request decides (RFC
    /// 5861 §4); without one, `usual` applies while disconnected (RFC 9111 §4.2.4).
    pub(super) fn serves_on_error(
        &self,
        now: UnixTime,
        request: &RequestHead,
        disconnected: bool,
        usual: Duration,
    ) -> bool {
        let asked = CacheDirectives::of_request(&request.fields);
        if self.forbids_stale()
            || asked.no_cache
            || asked.max_age.is_some()
            || asked.min_fresh.is_some()
        {
            return false;
        }
        let stale = self.staleness(now);
        let said = CacheDirectives::of(&self.head.fields).stale_if_error.or(asked.stale_if_error);
        match said {
            Some(time) => stale <= time,
            None => disconnected && stale <= usual,
        }
    }

    /// Returns `true` if a conditional request can validate it.
    pub(super) fn has_validator(&self) -> bool {
        has_validator(&self.head.fields)
    }

    /// Updates the response from a 304 that confirms it (RFC 9111 §3.2, §4.3.4).
    pub(super) fn confirm(
        &mut self,
        confirmation: &ResponseHead,
        requested: UnixTime,
        received: UnixTime,
    ) {
        let mut new = confirmation.fields.clone();
        new.remove_connection_fields();
        // These fields describe the body, which is still the old one.
        ["content-length", "content-encoding", "content-range", "content-type", "trailer"]
            .iter()
            .for_each(|name| new.remove(name));
        // The stored `Age` was counted by other caches from the old response.
        self.head.fields.remove("age");
        let names: Vec<String> = new.all().map(|(name, _)| name.to_owned()).collect();
        names.iter().for_each(|name| self.head.fields.remove(name));
        new.all().for_each(|(name, value)| self.head.fields.push(name, value));
        (self.requested, self.received) = (requested, received);
    }

    /// The part of a confirmed response that may be stored for others: without a cookie set for one client.
    /// [`None`] if the confirmation forbids storing or sharing it, or selects by what was not kept of the
    /// request.
    pub(super) fn shareable(mut self, confirmation: &ResponseHead) -> Option<Self> {
        let is_kept = |name: String| self.selecting.iter().any(|(kept, _)| *kept == name);
        if forbids_storing(&self.head) || !selecting_names(&self.head).all(is_kept) {
            return None;
        }
        if sets_cookie(&self.head) || sets_cookie(confirmation) {
            self.head.fields.remove("set-cookie");
        }
        Some(self)
    }

    /// Approximate memory of the head, in bytes.
    pub(super) fn size(&self) -> usize {
        let selecting = self.selecting.iter();
        let selecting = selecting
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len) + 64)
            .sum::<usize>();
        128 + self.head.reason.len() + self.head.fields.size() + selecting
    }
}

/// The members of `Vary` in lower case, also those that are no field's name.
fn selecting_names(response: &ResponseHead) -> impl Iterator<Item = String> {
    response
        .fields
        .members("vary")
        .map(|member| String::from_utf8_lossy(member).to_ascii_lowercase())
}

/// The normalised value of a field named by `Vary`: all fields of the name as one list, without spaces
/// around the members (RFC 9111 §4.1).
fn selecting_value(fields: &HeaderFields, name: &str) -> Option<Vec<u8>> {
    if !fields.has(name) {
        return None;
    }
    let members = fields.values(name).flat_map(|value| value.split(|byte| *byte == b','));
    Some(members.map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b','))
}
