//! Cache directives (RFC 9111 §5.2).

use core::time::Duration;

use super::fields::{HeaderFields, is_token_byte};

/// Cap for times in directives, in seconds (RFC 9111 §1.2.2).
const LONGEST: u64 = 1 << 31;

/// The cache directives of a message. Of a repeated directive the strictest value counts.
///
/// What cannot be read never permits more: a malformed time counts as the strictest one, and what is no
/// directive could be any, so that it counts as those that restrict most.
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
    /// The response may be shared although its request or it names a user: `public`, or an `s-maxage` that
    /// can be read.
    pub(super) shared: bool,
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
        for mut rest in fields.values("cache-control") {
            while !rest.is_empty() {
                match take_directive(&mut rest) {
                    Some((name, value)) => directives.add(&name, value),
                    None => directives.restrict(),
                }
            }
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

    fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        let read = value.and_then(seconds);
        let time = read.unwrap_or_default();
        match name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => (self.public, self.shared) = (true, true),
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age = least(self.max_age, time),
            b"s-maxage" => {
                self.s_maxage = least(self.s_maxage, time);
                self.shared |= read.is_some();
            }
            b"min-fresh" => {
                self.min_fresh = self.min_fresh.max(read.or(Some(Duration::from_secs(LONGEST))));
            }
            b"max-stale" => {
                let most = if value.is_some() { time } else { Duration::from_secs(LONGEST) };
                self.max_stale = least(self.max_stale, most);
            }
            b"stale-while-revalidate" => {
                self.stale_while_revalidate = least(self.stale_while_revalidate, time);
            }
            b"stale-if-error" => self.stale_if_error = least(self.stale_if_error, time),
            _ => {}
        }
    }

    /// Counts what cannot be read.
    fn restrict(&mut self) {
        (self.no_store, self.no_cache, self.private) = (true, true, true);
    }
}

/// The lesser of a time and an earlier one.
fn least(had: Option<Duration>, time: Duration) -> Option<Duration> {
    Some(had.map_or(time, |had| had.min(time)))
}

/// Parses a time in seconds; [`None`] if it is malformed.
fn seconds(text: &[u8]) -> Option<Duration> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).ok().filter(|_| is_number)?;
    // A number of too many digits is long.
    Some(Duration::from_secs(text.parse().unwrap_or(LONGEST).min(LONGEST)))
}

/// Takes the next member of a list: the name of a directive in lower case, and its value without quotes. The
/// name of an empty member is empty. [`None`] for what is no directive (RFC 9111 §5.2).
fn take_directive<'a>(rest: &mut &'a [u8]) -> Option<(Vec<u8>, Option<&'a [u8]>)> {
    let all = *rest;
    let end = all.iter().position(|byte| b",=".contains(byte)).unwrap_or(all.len());
    let (name, behind) = all.split_at(end);
    *rest = behind.get(1..).unwrap_or_default();
    let value = if behind.starts_with(b"=") { Some(take_value(rest)?) } else { None };
    let name = name.trim_ascii();
    let is_name = name.iter().all(is_token_byte) && !(name.is_empty() && value.is_some());
    is_name.then(|| (name.to_ascii_lowercase(), value))
}

/// Takes a value and the comma behind it. In a quoted value, commas are text, and any bytes may stand.
/// [`None`] for what is neither a quoted value nor a token.
fn take_value<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let all = *rest;
    let Some(quoted) = all.trim_ascii_start().strip_prefix(b"\"") else {
        let value = take_member(rest).trim_ascii();
        return value.iter().all(is_token_byte).then_some(value);
    };
    let mut escaped = false;
    let end = quoted.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    // Without its end, what follows is in it or not.
    let (value, behind) = quoted.split_at(end.unwrap_or(quoted.len()));
    *rest = behind.get(1..).unwrap_or_default();
    let is_all = take_member(rest).trim_ascii().is_empty();
    (is_all && end.is_some()).then(|| value.trim_ascii())
}

/// Takes the bytes before the next comma, and the comma.
fn take_member<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let all = *rest;
    let end = all.iter().position(|byte| *byte == b',').unwrap_or(all.len());
    *rest = all.get(end + 1..).unwrap_or_default();
    &all[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<T: AsRef<[u8]>>(values: &[T]) -> CacheDirectives {
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
        assert_eq!(of(&[", x = a ,, y"]), CacheDirectives::default());
    }

    #[test]
    fn directives_are_read_beside_bytes_that_are_no_text() {
        assert!(of(&[b"private, x=\"\xff\""]).private && of(&[b"x=\"\xff\", no-store"]).no_store);
        assert!(!of(&[b"x=\"\xff, no-store\""]).no_store);
        assert_eq!(of(&[b"max-age=5, x=\"\xe2\""]), of(&["max-age=5"]));
    }

    #[test]
    fn what_is_no_directive_restricts() {
        let unread = [
            &b"pri\xff"[..],
            b"private\xa0",
            b"no-store; x",
            b"x=\xff",
            b"x=5 no-store",
            b"x=\"a\" no-store",
            b"x=\"never closed, no-store",
            b"=5",
        ];
        for value in unread {
            let read = of(&[value]);
            assert!(read.no_store && read.no_cache && read.private, "{value:?}");
            let beside = of(&[&b"public, max-age=5"[..], value]);
            assert!(beside.private && beside.max_age == s(5), "{value:?}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_read_is_the_strictest() {
        let read = of(&[
            &b"min-fresh=\"\xff\", max-stale=\"\xff\", s-maxage=\"\xff\""[..],
            b"min-fresh=5",
        ]);
        assert_eq!((read.min_fresh, read.max_stale, read.s_maxage), (s(LONGEST), s(0), s(0)));
        assert!(!read.shared && of(&["s-maxage=0"]).shared && of(&["public"]).shared);
        assert_eq!(of(&["max-stale=5, max-stale", "max-stale=9"]).max_stale, s(5));
        assert_eq!(of(&["min-fresh=5, min-fresh=3"]).min_fresh, s(5));
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
