//! Cache directives (RFC 9111 §5.2).

use core::time::Duration;

use super::fields::HeaderFields;

/// Cap for times in directives, in seconds (RFC 9111 §1.2.2).
const LONGEST: u64 = 1 << 31;

/// The cache directives of a message. Of a repeated directive the strictest value counts. A malformed time
/// counts as zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CacheDirectives {
    /// `no-store`.
    pub(super) no_store: bool,
    /// `no-cache`, with or without a list of fields.
    pub(super) no_cache: bool,
    /// `private`, with or without a list of fields.
    pub(super) private: bool,
    /// `public`.
    pub(super) public: bool,
    /// `must-revalidate`.
    pub(super) must_revalidate: bool,
    /// `proxy-revalidate`.
    pub(super) proxy_revalidate: bool,
    /// `must-understand`.
    pub(super) must_understand: bool,
    /// `only-if-cached`.
    pub(super) only_if_cached: bool,
    /// `max-age`.
    pub(super) max_age: Option<Duration>,
    /// `s-maxage`.
    pub(super) s_maxage: Option<Duration>,
    /// `min-fresh`.
    pub(super) min_fresh: Option<Duration>,
    /// `max-stale`; without a value, any staleness is acceptable.
    pub(super) max_stale: Option<Duration>,
    /// `stale-while-revalidate` (RFC 5861 §3).
    pub(super) stale_while_revalidate: Option<Duration>,
    /// `stale-if-error` (RFC 5861 §4).
    pub(super) stale_if_error: Option<Duration>,
}

impl CacheDirectives {
    /// Parses the directives of a message; for requests see [`Self::of_request`].
    pub(super) fn of(fields: &HeaderFields) -> Self {
        let mut directives = Self::default();
        for value in fields.values("cache-control") {
            split(value, |name, value| directives.add(name, value));
        }
        directives
    }

    /// Parses the directives of a request. `Pragma: no-cache` counts if there is no `Cache-Control` (RFC
    /// 9111 §5.4).
    pub(super) fn of_request(fields: &HeaderFields) -> Self {
        let mut directives = Self::of(fields);
        directives.no_cache |=
            !fields.has("cache-control") && fields.contains_member("pragma", "no-cache");
        directives
    }

    fn add(&mut self, name: &str, value: Option<&str>) {
        let seconds = || Some(value.map_or(Duration::ZERO, seconds));
        let least = |had: Option<Duration>| had.into_iter().chain(seconds()).min();
        match name {
            "no-store" => self.no_store = true,
            "no-cache" => self.no_cache = true,
            "private" => self.private = true,
            "public" => self.public = true,
            "must-revalidate" => self.must_revalidate = true,
            "proxy-revalidate" => self.proxy_revalidate = true,
            "must-understand" => self.must_understand = true,
            "only-if-cached" => self.only_if_cached = true,
            "max-age" => self.max_age = least(self.max_age),
            "s-maxage" => self.s_maxage = least(self.s_maxage),
            "min-fresh" => self.min_fresh = seconds(),
            "max-stale" => {
                self.max_stale = Some(value.map_or(Duration::from_secs(LONGEST), self::seconds));
            }
            "stale-while-revalidate" => {
                self.stale_while_revalidate = least(self.stale_while_revalidate);
            }
            "stale-if-error" => self.stale_if_error = least(self.stale_if_error),
            _ => {}
        }
    }
}

/// Parses a time in seconds; zero if it is malformed.
fn seconds(text: &str) -> Duration {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let seconds = if is_number { text.parse().unwrap_or(LONGEST).min(LONGEST) } else { 0 };
    Duration::from_secs(seconds)
}

/// Calls `member` for each directive of a list: its name in lower case, and the text of its value without
/// quotes.
fn split(value: &[u8], mut member: impl FnMut(&str, Option<&str>)) {
    let Ok(mut rest) = core::str::from_utf8(value) else { return };
    while !rest.is_empty() {
        let end = rest.find([',', '=']).unwrap_or(rest.len());
        let name = rest[..end].trim().to_ascii_lowercase();
        let has_value = rest[end..].starts_with('=');
        rest = rest.get(end + 1..).unwrap_or_default();
        if !has_value {
            if !name.is_empty() {
                member(&name, None);
            }
            continue;
        }
        let value = take_value(&mut rest);
        if !name.is_empty() {
            member(&name, Some(value.trim()));
        }
    }
}

/// Takes a value and the comma behind it. In a quoted value, commas are text.
fn take_value<'a>(rest: &mut &'a str) -> &'a str {
    let quoted = rest.trim_start().strip_prefix('"');
    let Some(quoted) = quoted else {
        let end = rest.find(',').unwrap_or(rest.len());
        let value = &rest[..end];
        *rest = rest.get(end + 1..).unwrap_or_default();
        return value;
    };
    let mut escaped = false;
    let end = quoted.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let (value, behind) = match end {
        Some(end) => (&quoted[..end], &quoted[end + 1..]),
        None => (quoted, ""),
    };
    let next = behind.find(',').map_or(behind.len(), |comma| comma + 1);
    *rest = behind.get(next..).unwrap_or_default();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> CacheDirectives {
        let mut fields = HeaderFields::default();
        values.iter().for_each(|value| fields.push("Cache-Control", value));
        CacheDirectives::of(&fields)
    }

    const fn s(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn directives_are_read_whatever_surrounds_them() {
        assert_eq!(of(&["max-age=5"]).max_age, s(5));
        assert_eq!(of(&["PUBLIC , Max-Age=\"5\", x=\"a, no-store\""]).max_age, s(5));
        assert!(!of(&["x=\"a, no-store\""]).no_store && of(&["x=\"a\\\", b\", no-store"]).no_store);
        assert!(of(&["private=\"set-cookie\""]).private && of(&["no-cache=x", "public"]).public);
        assert_eq!(of(&["max-stale"]).max_stale, s(LONGEST));
        assert_eq!(of(&["x=\"never closed, no-store"]), CacheDirectives::default());
    }

    #[test]
    fn the_strictest_of_a_repeated_one_counts_and_nonsense_is_zero() {
        assert_eq!(of(&["max-age=5, max-age=3"]).max_age, s(3));
        assert_eq!(of(&["max-age=3600", "max-age=0"]).max_age, s(0));
        for none in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=a", "max-age='5'"]
        {
            assert_eq!(of(&[none]).max_age, s(0), "{none}");
        }
        assert_eq!(of(&["max-age=99999999999999999999"]).max_age, s(LONGEST));
    }

    #[test]
    fn a_pragma_counts_only_alone_and_in_requests() {
        let mut fields = HeaderFields::default();
        fields.push("Pragma", "no-cache");
        assert!(
            CacheDirectives::of_request(&fields).no_cache && !CacheDirectives::of(&fields).no_cache
        );
        fields.push("Cache-Control", "max-age=1");
        assert!(!CacheDirectives::of_request(&fields).no_cache);
    }
}
