//! What may be stored, how long it is fresh, and when it may be used (RFC 9111 §3 and §4, RFC 5861),
//! for a cache that several users share.

use core::time::Duration;
use std::time::UNIX_EPOCH;

use units::UnixTime;

use super::directives::Directives;
use super::fields::Fields;
use super::head::{RequestHead, ResponseHead};

/// Heuristically cacheable status codes (RFC 9110 §15.1) without 206: parts are not stored.
const HEURISTIC: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];
/// Status codes whose caching is understood, for `must-understand` (RFC 9111 §5.2.2.3).
const UNDERSTOOD: [u16; 16] =
    [200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 421, 451, 501];
/// Part of the time since the last change for which a response counts as fresh that does not say itself
/// (RFC 9111 §4.2.2), and the longest such time.
const HEURISTIC_PART: u32 = 10;
const LONGEST_HEURISTIC: Duration = Duration::from_secs(24 * 3600);
/// Fields by which a request may ask some servers for something else than it seems to: what they answer
/// would be stored for others who do not ask so.
const OVERRIDES: [&str; 12] = [
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
/// How far a clock may be set back before ages mean nothing.
const STEP: u64 = 5;
const NEVER: Duration = Duration::from_secs(1 << 40);

/// A stored response without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its head, without the fields of its connection.
    pub head: ResponseHead,
    /// Fields of the request that selected it, named by `Vary`: in lower case, with their values.
    pub selecting: Vec<(String, Option<Vec<u8>>)>,
    /// When it was asked for, by our clock.
    pub requested: UnixTime,
    /// When it came.
    pub received: UnixTime,
}

/// How a stored response may serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// As it is.
    Fresh,
    /// As it is, but it must be validated meanwhile (RFC 5861 §3).
    WhileRevalidating,
    /// Only if the server confirms it.
    Validated,
}

/// Whether a response may be stored (RFC 9111 §3). Besides, nothing is stored that would never be used:
/// that is neither fresh for a while nor can be validated.
pub(super) fn is_storable(request: &RequestHead, response: &ResponseHead) -> bool {
    let asked = Directives::of(&request.fields);
    let said = Directives::of(&response.fields);
    // §3: a final response; 206 is for those who put parts together, 304 is no response of its own.
    let is_whole = response.status >= 200 && !matches!(response.status, 206 | 304);
    if request.method != "GET" || !is_whole || asked.no_store || forbids_storing(response) {
        return false;
    }
    if said.must_understand && !UNDERSTOOD.contains(&response.status) {
        return false;
    }
    // §3.5.
    let shared = said.public || said.s_maxage.is_some();
    if request.fields.has("authorization") && !(shared || said.must_revalidate) {
        return false;
    }
    // `*` is none either.
    let selects = response.fields.members("vary").all(|name| name.iter().all(is_of_name));
    if sets_cookie(response) || !selects || overrides(&request.fields) {
        return false;
    }
    let explicit =
        said.max_age.is_some() || said.s_maxage.is_some() || response.fields.has("expires");
    let lasts = lifetime(response, UnixTime::from_seconds(0)) > Duration::ZERO;
    // Many servers say nothing of what they make for one user, but give it a tag. It would be another's
    // while the server cannot be reached.
    if request.fields.has("cookie") && !(shared || explicit && lasts) {
        return false;
    }
    let is_of_use = lasts || has_validator(&response.fields) || said.stale_if_error.is_some();
    (explicit || said.public || HEURISTIC.contains(&response.status)) && is_of_use
}

/// Whether a byte may be part of a field's name (RFC 9110 §5.6.2), but for `*`, which no name has.
fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(byte)
}

/// Whether a response says that it must not be stored, or not for others.
fn forbids_storing(response: &ResponseHead) -> bool {
    let said = Directives::of(&response.fields);
    // A response with `must-understand` means its `no-store` for those who do not.
    let understood = said.must_understand && UNDERSTOOD.contains(&response.status);
    said.private || said.no_store && !understood
}

/// Whether a response sets a cookie, and does not say that it is for all. §7.3 leaves it to servers to
/// forbid storing it. Many do not, and one user's session would be another's.
pub(super) fn sets_cookie(response: &ResponseHead) -> bool {
    let said = Directives::of(&response.fields);
    response.fields.has("set-cookie") && !(said.public || said.s_maxage.is_some())
}

/// Whether a request may ask its server for something else than it seems to.
pub(super) fn overrides(fields: &Fields) -> bool {
    OVERRIDES.iter().any(|name| fields.has(name))
}

fn has_validator(fields: &Fields) -> bool {
    fields.has("etag") || fields.has("last-modified")
}

/// A date (RFC 9110 §5.6.7).
pub(super) fn date(text: &str) -> Option<UnixTime> {
    let time = httpdate::parse_http_date(text).ok()?;
    Some(UnixTime::from_seconds(time.duration_since(UNIX_EPOCH).ok()?.as_secs()))
}

fn between(earlier: UnixTime, later: UnixTime) -> Duration {
    Duration::from_secs(later.seconds().saturating_sub(earlier.seconds()))
}

/// For how long a response is fresh (RFC 9111 §4.2.1). `received` stands for a missing `Date`.
fn lifetime(response: &ResponseHead, received: UnixTime) -> Duration {
    let said = Directives::of(&response.fields);
    if let Some(time) = said.s_maxage.or(said.max_age) {
        return time;
    }
    let made = response.fields.parsed("date", date);
    let mut expires = response.fields.values("expires");
    if let Some(first) = expires.next() {
        // What is no date is past (§5.3); so is what is two.
        let text = core::str::from_utf8(first).ok().filter(|_| expires.next().is_none());
        let at = text.and_then(|text| date(text.trim()));
        return at.map_or(Duration::ZERO, |at| between(made.unwrap_or(received), at));
    }
    if !(HEURISTIC.contains(&response.status) || said.public) {
        return Duration::ZERO;
    }
    let changed = response.fields.parsed("last-modified", date);
    let unchanged = changed.map(|changed| between(changed, made.unwrap_or(received)));
    unchanged.map_or(Duration::ZERO, |time| (time / HEURISTIC_PART).min(LONGEST_HEURISTIC))
}

impl Stored {
    /// What is stored of an answer to `request`.
    pub fn new(
        request: &RequestHead,
        response: &ResponseHead,
        (requested, received): (UnixTime, UnixTime),
    ) -> Self {
        let mut head = response.clone();
        head.fields.remove_of_connection();
        head.fields.remove("trailer");
        let names = head.fields.members("vary").filter_map(|it| core::str::from_utf8(it).ok());
        let mut names: Vec<String> = names.map(str::to_ascii_lowercase).collect();
        names.sort_unstable();
        names.dedup();
        let selecting = names.into_iter().map(|name| {
            let value = selecting_value(&request.fields, &name);
            (name, value)
        });
        let selecting = selecting.collect();
        Self { head, selecting, requested, received }
    }

    /// Whether the request selects this response among those with its key (RFC 9111 §4.1).
    pub(super) fn is_selected_by(&self, request: &RequestHead) -> bool {
        self.selecting.iter().all(|(name, value)| selecting_value(&request.fields, name) == *value)
    }

    /// How old it is (RFC 9111 §4.2.3). A clock that was set back makes it older than anything.
    pub fn age(&self, now: UnixTime) -> Duration {
        if now.seconds() + STEP < self.received.seconds() {
            return NEVER;
        }
        let made = self.head.fields.parsed("date", date).unwrap_or(self.received);
        let apparent = between(made, self.received);
        let corrected = self.age_value() + between(self.requested, self.received);
        apparent.max(corrected) + between(self.received, now)
    }

    /// What other caches said (§5.1): of a list, the first.
    fn age_value(&self) -> Duration {
        let text = self.head.fields.members("age").next().unwrap_or_default();
        let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let text = core::str::from_utf8(text).ok().filter(|_| is_number);
        let seconds = text.map_or(0, |text| text.parse().unwrap_or(1 << 31));
        Duration::from_secs(seconds.min(1 << 31))
    }

    /// For how long it is fresh, from its beginning.
    pub(super) fn lifetime(&self) -> Duration {
        lifetime(&self.head, self.received)
    }

    /// For how long it has not been fresh; zero if it is.
    fn staleness(&self, now: UnixTime) -> Duration {
        let (age, lifetime) = (self.age(now), self.lifetime());
        // Fresh is what has lived less than its time (§4.2).
        if lifetime > age { Duration::ZERO } else { (age - lifetime).max(Duration::from_nanos(1)) }
    }

    /// How it may serve a request that selects it (RFC 9111 §4).
    pub(super) fn reuse(&self, now: UnixTime, request: &RequestHead) -> Reuse {
        let asked = Directives::of_request(&request.fields);
        let said = Directives::of(&self.head.fields);
        let (age, stale) = (self.age(now), self.staleness(now));
        let fresh_for = self.lifetime().saturating_sub(age);
        if asked.no_cache
            || said.no_cache
            || asked.max_age.is_some_and(|most| age > most || most.is_zero())
            || asked.min_fresh.is_some_and(|least| fresh_for < least)
        {
            return Reuse::Validated;
        }
        if stale.is_zero() {
            return Reuse::Fresh;
        }
        if self.forbids_stale() || asked.max_age.is_some() {
            return Reuse::Validated;
        }
        if asked.max_stale.is_some_and(|most| stale <= most) {
            return Reuse::Fresh;
        }
        match said.stale_while_revalidate {
            Some(time) if stale <= time => Reuse::WhileRevalidating,
            _ => Reuse::Validated,
        }
    }

    /// Whether it may only be used fresh or validated, whatever happens (RFC 9111 §4.2.4).
    fn forbids_stale(&self) -> bool {
        let said = Directives::of(&self.head.fields);
        said.must_revalidate || said.proxy_revalidate || said.no_cache || said.s_maxage.is_some()
    }

    /// Whether it may serve a request whose validation has failed: the server answers with an error, or
    /// (`disconnected`) cannot be reached. A response or request that says for how long has the last
    /// word (RFC 5861 §4); without it, `usual` holds while disconnected (RFC 9111 §4.2.4).
    pub(super) fn serves_on_error(
        &self,
        now: UnixTime,
        request: &RequestHead,
        disconnected: bool,
        usual: Duration,
    ) -> bool {
        let asked = Directives::of_request(&request.fields);
        if self.forbids_stale()
            || asked.no_cache
            || asked.max_age.is_some()
            || asked.min_fresh.is_some()
        {
            return false;
        }
        let stale = self.staleness(now);
        let said = Directives::of(&self.head.fields).stale_if_error.or(asked.stale_if_error);
        match said {
            Some(time) => stale <= time,
            None => disconnected && stale <= usual,
        }
    }

    /// Whether the server can be asked if it is still valid.
    pub(super) fn has_validator(&self) -> bool {
        has_validator(&self.head.fields)
    }

    /// Takes over the fields of a 304 that confirms it (RFC 9111 §3.2, §4.3.4).
    pub(super) fn confirm(
        &mut self,
        confirmation: &ResponseHead,
        (requested, received): (UnixTime, UnixTime),
    ) {
        let mut new = confirmation.fields.clone();
        new.remove_of_connection();
        // They describe the body, which is the old one.
        ["content-length", "content-encoding", "content-range", "content-type", "trailer"]
            .iter()
            .for_each(|name| new.remove(name));
        // What other caches said of the old response says nothing about this one.
        self.head.fields.remove("age");
        let names: Vec<String> = new.all().map(|(name, _)| name.to_owned()).collect();
        names.iter().for_each(|name| self.head.fields.remove(name));
        new.all().for_each(|(name, value)| self.head.fields.push(name, value));
        (self.requested, self.received) = (requested, received);
    }

    /// What others may have of it after this confirmation: all but a cookie that was set for one client.
    /// [`None`] if the confirmation says that it is not for others, or not to be stored.
    pub(super) fn for_others(mut self, confirmation: &ResponseHead) -> Option<Self> {
        if forbids_storing(&self.head) {
            return None;
        }
        if sets_cookie(&self.head) || sets_cookie(confirmation) {
            self.head.fields.remove("set-cookie");
        }
        Some(self)
    }

    /// Memory that it takes, in bytes.
    pub(super) fn size(&self) -> usize {
        let selecting = self.selecting.iter();
        let selecting = selecting
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len) + 64)
            .sum::<usize>();
        128 + self.head.reason.len() + self.head.fields.size() + selecting
    }
}

/// The value by which a request selects: all fields of a name as one list, without spaces around its
/// members (RFC 9111 §4.1).
fn selecting_value(fields: &Fields, name: &str) -> Option<Vec<u8>> {
    if !fields.has(name) {
        return None;
    }
    let members = fields.values(name).flat_map(|value| value.split(|byte| *byte == b','));
    Some(members.map(<[u8]>::trim_ascii).collect::<Vec<_>>().join(&b','))
}
