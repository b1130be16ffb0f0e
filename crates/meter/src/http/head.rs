//! Heads of HTTP/1.0 (RFC 1945) and HTTP/1.1 (RFC 9112) messages.

use httparse::{EMPTY_HEADER, Header, Status};
use thiserror::Error;

/// Maximum size of a head, in bytes.
pub const HEAD_MAX: usize = 8192;
/// Maximum number of fields in a head.
const FIELDS_MAX: usize = 64;

/// The head of a request, as parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedRequest<'a> {
    /// Method of the request, such as `GET`.
    pub method: &'a str,
    /// Target of the request, such as `/index.html`.
    pub target: &'a str,
    /// Set if the client keeps the connection open for another request.
    pub persistent: bool,
}

/// The head of a response, as parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedResponse {
    /// Status code of the response, such as 200.
    pub status: u16,
    /// Reason phrase beside the status, such as `OK`.
    pub reason: String,
    /// The length of the body in bytes, if given.
    pub length: Option<u64>,
    /// Set if the server keeps the connection open for another request.
    pub persistent: bool,
    /// The size of the head in bytes, after which the body begins.
    pub size: usize,
}

/// The reason why bytes are not a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeadError {
    /// Not HTTP/1.0 or 1.1, or too many fields.
    #[error("not HTTP/1.0 or HTTP/1.1")]
    Malformed,
    /// The head does not end within [`HEAD_MAX`] bytes.
    #[error("the head is longer than {HEAD_MAX} bytes")]
    TooLong,
}

impl<'a> ParsedRequest<'a> {
    /// Parses the head at the beginning of `bytes`; `None` until it is complete.
    ///
    /// # Errors
    /// If the bytes are not the beginning of a head.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, HeadError> {
        let mut fields = [EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        if end(request.parse(bytes), bytes)?.is_none() {
            return Ok(None);
        }
        let method = request.method.unwrap_or("");
        let target = request.path.unwrap_or("");
        let persistent = persistent(request.version, request.headers);
        Ok(Some(Self { method, target, persistent }))
    }
}

impl ParsedResponse {
    /// Parses the head at the beginning of `bytes`; `None` until it is complete.
    ///
    /// # Errors
    /// If the bytes are not the beginning of a head.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, HeadError> {
        let mut fields = [EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let Some(size) = end(response.parse(bytes), bytes)? else { return Ok(None) };
        let length = field(response.headers, "content-length");
        Ok(Some(Self {
            status: response.code.unwrap_or(0),
            reason: response.reason.unwrap_or("").to_owned(),
            length: length.and_then(|text| text.parse().ok()),
            persistent: persistent(response.version, response.headers),
            size,
        }))
    }
}

/// Returns the size of the head, if it is complete.
fn end(parsed: httparse::Result<usize>, bytes: &[u8]) -> Result<Option<usize>, HeadError> {
    match parsed {
        Ok(Status::Complete(size)) => Ok(Some(size)),
        Ok(Status::Partial) if bytes.len() <= HEAD_MAX => Ok(None),
        Ok(Status::Partial) => Err(HeadError::TooLong),
        Err(_) => Err(HeadError::Malformed),
    }
}

/// Returns whether the connection persists (RFC 9112 §9.3): by default in HTTP/1.1, not in
/// HTTP/1.0.
fn persistent(minor: Option<u8>, fields: &[Header<'_>]) -> bool {
    let asks = |option| {
        field(fields, "connection").is_some_and(|value| value.eq_ignore_ascii_case(option))
    };
    if minor == Some(1) { !asks("close") } else { asks("keep-alive") }
}

fn field<'a>(fields: &[Header<'a>], name: &str) -> Option<&'a str> {
    let field = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
    core::str::from_utf8(field.value).ok().map(str::trim)
}

/// Encodes a GET request of HTTP `version` (`1.0` or `1.1`).
pub fn get(target: &str, version: &str, host: &str, persistent: bool) -> String {
    let connection = connection(persistent);
    format!(
        "GET {target} HTTP/{version}\r\nHost: {host}\r\nUser-Agent: skyhop\r\n\
         Connection: {connection}\r\n\r\n"
    )
}

/// Encodes the head of a successful response with a body of `length` bytes.
pub fn ok(length: u64, persistent: bool) -> String {
    let connection = connection(persistent);
    format!(
        // The server's own version, whatever the client's (RFC 9110 §2.5).
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\
         Content-Type: application/octet-stream\r\nConnection: {connection}\r\n\r\n"
    )
}

/// Encodes a response without a body that ends the connection; `status` is a code and its reason.
pub fn refusal(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn connection(persistent: bool) -> &'static str {
    if persistent { "keep-alive" } else { "close" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn persistence_follows_version_and_field() {
        let of = |version: &str, field: &str| {
            let head = format!("GET / {version}\r\n{field}\r\n\r\n");
            ParsedRequest::parse(head.as_bytes()).unwrap().unwrap().persistent
        };
        assert!(of("HTTP/1.1", "Host: a") && !of("HTTP/1.1", "connection: Close"));
        assert!(!of("HTTP/1.0", "Host: a") && of("HTTP/1.0", "Connection: keep-alive"));
    }

    #[test]
    fn a_head_is_complete_partial_malformed_or_too_long() {
        assert_eq!(ParsedResponse::parse(b"HTTP/1.1 200 OK\r\n"), Ok(None));
        assert_eq!(ParsedResponse::parse(b"SSH-2.0-x\r\n"), Err(HeadError::Malformed));
        assert_eq!(ParsedRequest::parse(b"GET / HTTP/2\r\n\r\n"), Err(HeadError::Malformed));
        let long = format!("GET /{}", "x".repeat(HEAD_MAX));
        assert_eq!(ParsedRequest::parse(long.as_bytes()), Err(HeadError::TooLong));
        let head = refusal("404 Not Found");
        let response = ParsedResponse::parse(format!("{head}more").as_bytes()).unwrap().unwrap();
        assert_eq!((response.status, response.reason.as_str()), (404, "Not Found"));
        assert_eq!((response.length, response.size), (Some(0), head.len()));
    }

    proptest! {
        #[test]
        fn heads_read_back(target in "/[a-z0-9/?=]{0,40}", length: u64, persistent: bool) {
            for version in ["1.0", "1.1"] {
                let text = get(&target, version, "host", persistent);
                let expected = ParsedRequest { method: "GET", target: &target, persistent };
                prop_assert_eq!(ParsedRequest::parse(text.as_bytes()), Ok(Some(expected)));
            }
            let text = ok(length, persistent);
            let response = ParsedResponse::parse(text.as_bytes()).unwrap().unwrap();
            let read = (response.status, response.length, response.persistent);
            prop_assert_eq!(read, (200, Some(length), persistent));
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = ParsedRequest::parse(&bytes);
            let _ = ParsedResponse::parse(&bytes);
        }
    }
}
