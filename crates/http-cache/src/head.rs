//! Heads of requests and responses, and the framing of their bodies (RFC 9112).

use httparse::{EMPTY_HEADER, Status};
use pep::work::cost;

use super::fields::HeaderFields;

/// Longest head that is parsed, in bytes.
pub const LONGEST_HEAD: usize = 64 << 10;
/// Most fields of a head that is parsed.
const MOST_FIELDS: usize = 128;

/// Result of parsing a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedHead<H> {
    /// The head is not complete.
    Incomplete,
    /// The head, and its length in bytes.
    Head(H, usize),
    /// Not HTTP/1.x, or longer than the limits.
    Malformed,
}

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, in its original case.
    pub method: String,
    /// The request target as received (RFC 9112 §3.2).
    pub target: String,
    /// The minor version of HTTP/1: 0 or 1.
    pub minor: u8,
    /// The header fields in their order.
    pub fields: HeaderFields,
}

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, three digits.
    pub status: u16,
    /// The reason phrase; it may be empty.
    pub reason: String,
    /// The minor version of HTTP/1: 0 or 1.
    pub minor: u8,
    /// The header fields in their order.
    pub fields: HeaderFields,
}

/// Framing of a message body, which determines its end (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    None,
    /// A body of this many bytes.
    Length(u64),
    /// The chunked coding (RFC 9112 §7.1).
    Chunked,
    /// Everything until the connection closes; responses only.
    UntilClose,
}

/// Why the cache does not handle a message. Its connection is passed through unchanged, and is not shared
/// with other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PassThroughReason {
    /// The body can be framed in more than one way, as in request smuggling (RFC 9112 §11.2).
    #[error("ambiguous framing")]
    Framing,
    /// `Host` is missing, repeated or malformed.
    #[error("Host missing, repeated or malformed")]
    Host,
    /// The target is not in origin form (a path).
    #[error("the target is not a path")]
    Target,
    /// The connection switches to another protocol.
    #[error("switch to another protocol")]
    Protocol,
    /// The connection itself is authenticated (NTLM, Negotiate), so it must not be shared.
    #[error("the connection is authenticated")]
    Authentication,
}

impl RequestHead {
    /// Parses a head at the beginning of `bytes`. Leading empty lines are skipped (RFC 9112 §2.2).
    pub fn parse(bytes: &[u8]) -> ParsedHead<Self> {
        let mut fields = [EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(bytes);
        let head = || {
            Some(Self {
                method: request.method?.to_owned(),
                target: request.path?.to_owned(),
                minor: request.version?,
                fields: collect_fields(request.headers),
            })
        };
        parse_result(parsed, bytes.len(), head)
    }

    /// The framing of the body, if the request is one that a cache may handle.
    ///
    /// # Errors
    /// The reason why the cache must not handle it.
    pub fn framing(&self) -> Result<BodyFraming, PassThroughReason> {
        if self.method == "CONNECT"
            || self.fields.has("upgrade")
            || self.fields.contains_member("connection", "upgrade")
        {
            return Err(PassThroughReason::Protocol);
        }
        if !self.target.starts_with('/') {
            return Err(PassThroughReason::Target);
        }
        self.host().ok_or(PassThroughReason::Host)?;
        if self.fields.values("authorization").any(authenticates_connection) {
            return Err(PassThroughReason::Authentication);
        }
        if self.fields.all().any(|(name, _)| resembles_framing(name)) {
            return Err(PassThroughReason::Framing);
        }
        // A request without a length has no body (RFC 9112 §6.3).
        match body_framing(&self.fields, self.minor)? {
            BodyFraming::UntilClose => Ok(BodyFraming::None),
            framing => Ok(framing),
        }
    }

    /// The host in lower case; empty in an HTTP/1.0 request without one. [`None`] if `Host` is missing in
    /// HTTP/1.1, repeated, or not a host of a URI.
    pub fn host(&self) -> Option<String> {
        let mut hosts = self.fields.values("host");
        let Some(host) = hosts.next() else { return (self.minor == 0).then(String::new) };
        let known = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%[]:!$&'()*+,;=".contains(b);
        let is_host = hosts.next().is_none() && host.iter().all(known) && !host.is_empty();
        let host = core::str::from_utf8(host).ok().filter(|_| is_host)?;
        Some(host.to_ascii_lowercase())
    }

    /// Returns `true` if the client wants the connection to stay open (RFC 9112 §9.3).
    pub fn keeps_alive(&self) -> bool {
        keeps_alive(&self.fields, self.minor)
    }

    /// Returns `true` if the method is safe: defined not to change anything (RFC 9110 §9.2.1).
    pub fn is_safe(&self) -> bool {
        ["GET", "HEAD", "OPTIONS", "TRACE"].contains(&self.method.as_str())
    }

    /// The request as its server receives it: without the fields that `Connection` names (RFC 9110 §7.6.1).
    pub(super) fn end_to_end(&self) -> Self {
        let mut head = self.clone();
        head.fields.remove_nominated();
        head
    }

    /// Appends the head in wire format.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            format!("{} {} HTTP/1.{}\r\n", self.method, self.target, self.minor).as_bytes(),
        );
        self.fields.write(out);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns `true` if credentials authenticate the connection instead of the request: NTLM, Negotiate,
/// Kerberos.
fn authenticates_connection(credentials: &[u8]) -> bool {
    let mut words = credentials.trim_ascii().split(u8::is_ascii_whitespace);
    let scheme = words.next().unwrap_or_default();
    ["ntlm", "negotiate", "kerberos"]
        .iter()
        .any(|listed| scheme.eq_ignore_ascii_case(listed.as_bytes()))
}

impl ResponseHead {
    /// A response of the cache's own, without fields.
    pub fn own(status: u16, reason: &str) -> Self {
        let fields = HeaderFields::default();
        Self { status, reason: reason.to_owned(), minor: 1, fields }
    }

    /// Parses a head at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> ParsedHead<Self> {
        let mut fields = [EMPTY_HEADER; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(bytes);
        let head = || {
            Some(Self {
                status: response.code?,
                reason: response.reason?.to_owned(),
                minor: response.version?,
                fields: collect_fields(response.headers),
            })
        };
        parse_result(parsed, bytes.len(), head)
    }

    /// The framing of the body (RFC 9112 §6.3) of a response to a request with `method`.
    ///
    /// # Errors
    /// [`PassThroughReason::Framing`] if it is ambiguous; [`PassThroughReason::Protocol`] if the connection
    /// switches to another protocol.
    pub fn framing(&self, method: &str) -> Result<BodyFraming, PassThroughReason> {
        if self.status == 101 {
            return Err(PassThroughReason::Protocol);
        }
        if method == "HEAD" || self.status < 200 || matches!(self.status, 204 | 304) {
            return Ok(BodyFraming::None);
        }
        body_framing(&self.fields, self.minor)
    }

    /// Returns `true` for an interim response (RFC 9110 §15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// Returns `true` if the server leaves the connection open (RFC 9112 §9.3).
    pub fn keeps_alive(&self) -> bool {
        keeps_alive(&self.fields, self.minor)
    }

    /// Appends the head in wire format, as HTTP/1.1.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            // An intermediary sends its own version (RFC 9112 §2.3).
            format!("HTTP/1.1 {:03} {}\r\n", self.status, self.reason).as_bytes(),
        );
        self.fields.write(out);
        out.extend_from_slice(b"\r\n");
    }
}

fn parse_result<H>(
    parsed: httparse::Result<usize>,
    read: usize,
    head: impl FnOnce() -> Option<H>,
) -> ParsedHead<H> {
    cost::count(if let Ok(Status::Complete(length)) = parsed { length } else { read });
    match parsed {
        Ok(Status::Complete(length)) if length <= LONGEST_HEAD => {
            head().map_or(ParsedHead::Malformed, |head| ParsedHead::Head(head, length))
        }
        Ok(Status::Partial) if read < LONGEST_HEAD => ParsedHead::Incomplete,
        _ => ParsedHead::Malformed,
    }
}

fn collect_fields(parsed: &[httparse::Header<'_>]) -> HeaderFields {
    let mut fields = HeaderFields::default();
    parsed.iter().for_each(|field| fields.push(field.name, field.value));
    fields
}

/// The framing that the fields describe. Ambiguous ones are refused: both lengths, duplicates, unknown
/// codings, the chunked coding in HTTP/1.0.
fn body_framing(fields: &HeaderFields, minor: u8) -> Result<BodyFraming, PassThroughReason> {
    let mut lengths = fields.values("content-length");
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(PassThroughReason::Framing);
    }
    let mut codings = fields.values("transfer-encoding");
    match (codings.next(), length) {
        (None, None) => Ok(BodyFraming::UntilClose),
        (None, Some(length)) => {
            parse_length(length).map(BodyFraming::Length).ok_or(PassThroughReason::Framing)
        }
        (Some(coding), None) => {
            let is_chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked") && minor == 1;
            let is_only = codings.next().is_none();
            (is_chunked && is_only)
                .then_some(BodyFraming::Chunked)
                .ok_or(PassThroughReason::Framing)
        }
        (Some(_), Some(_)) => Err(PassThroughReason::Framing),
    }
}

/// Returns `true` if servers that map `_` to `-`, as CGI does (RFC 3875 §4.1.18), could take a field of
/// this name for the body's length or coding, and so find another body.
fn resembles_framing(name: &str) -> bool {
    let is_same = |other: &str| name.replace('_', "-").eq_ignore_ascii_case(other);
    name.contains('_') && (is_same("content-length") || is_same("transfer-encoding"))
}

/// Parses a length: digits only, without sign, spaces or list.
fn parse_length(text: &[u8]) -> Option<u64> {
    let is_number = (1..=18).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

fn keeps_alive(fields: &HeaderFields, minor: u8) -> bool {
    match minor {
        0 => fields.contains_member("connection", "keep-alive"),
        _ => !fields.contains_member("connection", "close"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> RequestHead {
        match RequestHead::parse(text.as_bytes()) {
            ParsedHead::Head(head, length) => {
                assert_eq!(length, text.len());
                head
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn response(text: &str) -> ResponseHead {
        match ResponseHead::parse(text.as_bytes()) {
            ParsedHead::Head(head, _) => head,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_head_is_complete_at_its_empty_line() {
        let text = "GET /a?b HTTP/1.1\r\nHost: A.Example\r\nX: 1\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(
                RequestHead::parse(&text.as_bytes()[..cut]),
                ParsedHead::Incomplete,
                "{cut}"
            );
        }
        let head = request(text);
        assert_eq!(
            (head.host().as_deref(), head.framing()),
            (Some("a.example"), Ok(BodyFraming::None))
        );
        let mut written = Vec::new();
        head.write(&mut written);
        assert_eq!(written, text.as_bytes());
    }

    #[test]
    fn other_protocols_are_malformed() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(LONGEST_HEAD));
        for text in ["SSH-2.0-x\r\n", "\x16\x03\x01\x02", "GET / HTTP/1.1\r\nA B: c\r\n\r\n", &long]
        {
            assert_eq!(RequestHead::parse(text.as_bytes()), ParsedHead::Malformed, "{text:.20?}");
        }
        let http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(RequestHead::parse(http2.as_bytes()), ParsedHead::Malformed);
    }

    #[test]
    fn whatever_may_be_read_in_two_ways_is_unfit() {
        let framing = |fields: &str| {
            request(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).framing()
        };
        assert_eq!(framing("Content-Length: 5\r\n"), Ok(BodyFraming::Length(5)));
        assert_eq!(framing("Transfer-Encoding: chunked\r\n"), Ok(BodyFraming::Chunked));
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: \r\n",
            "Content-Length: 9999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Content_Length: 5\r\n",
            "content_length: 0\r\nContent-Length: 5\r\n",
            "TRANSFER_ENCODING: chunked\r\n",
        ] {
            assert_eq!(framing(fields), Err(PassThroughReason::Framing), "{fields:?}");
        }
        let old = request("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(old.framing(), Err(PassThroughReason::Framing));
    }

    #[test]
    fn requests_that_a_cache_cannot_handle_are_unfit() {
        for (text, why) in [
            ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", PassThroughReason::Protocol),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
                PassThroughReason::Protocol,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Upgrade\r\n\r\n",
                PassThroughReason::Protocol,
            ),
            ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", PassThroughReason::Target),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", PassThroughReason::Target),
            ("GET / HTTP/1.1\r\n\r\n", PassThroughReason::Host),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", PassThroughReason::Host),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", PassThroughReason::Host),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: NTLM TlR=\r\n\r\n",
                PassThroughReason::Authentication,
            ),
        ] {
            assert_eq!(request(text).framing(), Err(why), "{text:?}");
        }
        assert_eq!(request("GET / HTTP/1.0\r\n\r\n").host().as_deref(), Some(""));
    }

    #[test]
    fn the_body_of_a_response_ends_as_the_standard_says() {
        let head = |rest: &str| response(&format!("HTTP/1.1 {rest}\r\n\r\n"));
        let long = head("200 OK\r\nContent-Length: 7");
        assert_eq!(long.framing("GET"), Ok(BodyFraming::Length(7)));
        assert_eq!(long.framing("HEAD"), Ok(BodyFraming::None));
        assert_eq!(head("200 OK").framing("GET"), Ok(BodyFraming::UntilClose));
        assert_eq!(head("304 x\r\nContent-Length: 7").framing("GET"), Ok(BodyFraming::None));
        assert_eq!(head("204 x").framing("GET"), Ok(BodyFraming::None));
        assert_eq!(head("101 x").framing("GET"), Err(PassThroughReason::Protocol));
        let both = head("200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked");
        assert_eq!(both.framing("GET"), Err(PassThroughReason::Framing));
    }

    #[test]
    fn connections_stay_open_as_each_version_says() {
        for (text, stays) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(request(text).keeps_alive(), stays, "{text:?}");
        }
    }
}
