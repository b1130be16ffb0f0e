//! The subset of HTTP/1.0 (RFC 1945) and HTTP/1.1 (RFC 9112) that a page needs.
//!
//! An object is `/object/KEY/SIZE` (key in hexadecimal, size in bytes). `?cc=NAME` selects the
//! congestion control of the server's socket. The body is the server's payload ([`crate::payload`])
//! for that key.

use std::io;

use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::congestion::CongestionControl;
use crate::stream::patiently;

/// Maximum size of a head, in bytes.
const HEAD_MAX: u64 = 8192;

/// The requested object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: u64,
    pub(crate) size: u64,
    pub(crate) congestion_control: Option<CongestionControl>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) object: Object,
    /// Whether the connection stays open after the reply.
    pub(crate) persistent: bool,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) length: u64,
    pub(crate) persistent: bool,
}

/// Why a head was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The version is not HTTP/1.0 or 1.1.
    #[error("not HTTP/1.0 or HTTP/1.1: {line:?}")]
    Line {
        /// The first line.
        line: String,
    },
    /// Unsupported method or path.
    #[error("no such object: {target:?}")]
    Target {
        /// The requested target.
        target: String,
    },
    /// The response is not a success.
    #[error("the server answered {status:?}")]
    Status {
        /// Its first line without the version.
        status: String,
    },
    /// The response has no length.
    #[error("the server did not give the object's length")]
    Length,
}

/// Reads the lines up to the empty one; `None` if the stream ends before the first byte.
pub(crate) async fn read_head<R: AsyncBufRead + Unpin>(
    reader: &mut R,
) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut limited = reader.take(HEAD_MAX);
    while !bytes.ends_with(b"\r\n\r\n") {
        if patiently(limited.read_until(b'\n', &mut bytes)).await? == 0 {
            let cut = io::Error::new(io::ErrorKind::InvalidData, "the reply's head has no end");
            return if bytes.is_empty() { Ok(None) } else { Err(cut) };
        }
    }
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl Object {
    fn target(&self) -> String {
        let path = format!("/object/{:016x}/{}", self.key, self.size);
        let name = self.congestion_control.as_ref();
        name.map_or_else(|| path.clone(), |name| format!("{path}?cc={name}"))
    }

    fn of_target(target: &str) -> Option<Self> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let (key, size) = path.strip_prefix("/object/")?.split_once('/')?;
        let congestion_control = match query {
            Some(query) => Some(query.strip_prefix("cc=")?.parse().ok()?),
            None => None,
        };
        let key = u64::from_str_radix(key, 16).ok()?;
        Some(Self { key, size: size.parse().ok()?, congestion_control })
    }
}

impl RequestHead {
    /// Encodes it for `version` (`1.0` or `1.1`).
    pub(crate) fn encode(&self, version: &str, host: &str) -> String {
        let connection = if self.persistent { "keep-alive" } else { "close" };
        let target = self.object.target();
        format!(
            "GET {target} HTTP/{version}\r\nHost: {host}\r\nUser-Agent: skyhop\r\n\
             Connection: {connection}\r\n\r\n"
        )
    }

    pub(crate) fn decode(head: &str) -> Result<Self, HttpError> {
        let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
        let foreign = || HttpError::Line { line: line.to_owned() };
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(foreign());
        };
        let persistent = persistent(version, fields).ok_or_else(foreign)?;
        let object = Object::of_target(target).filter(|_| method == "GET");
        let object = object.ok_or_else(|| HttpError::Target { target: target.to_owned() })?;
        Ok(Self { object, persistent })
    }
}

impl ResponseHead {
    pub(crate) fn encode(&self) -> String {
        let connection = if self.persistent { "keep-alive" } else { "close" };
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {}\r\nConnection: {connection}\r\n\r\n",
            self.length
        )
    }

    pub(crate) fn decode(head: &str) -> Result<Self, HttpError> {
        let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
        let foreign = || HttpError::Line { line: line.to_owned() };
        let (version, status) = line.split_once(' ').ok_or_else(foreign)?;
        let persistent = persistent(version, fields).ok_or_else(foreign)?;
        if !status.starts_with("200") {
            return Err(HttpError::Status { status: status.to_owned() });
        }
        let length = field(fields, "content-length").and_then(|text| text.parse().ok());
        Ok(Self { length: length.ok_or(HttpError::Length)?, persistent })
    }
}

/// RFC 9112 §9.3: HTTP/1.1 connections persist by default, HTTP/1.0 ones do not.
fn persistent(version: &str, fields: &str) -> Option<bool> {
    let option = field(fields, "connection");
    match version {
        "HTTP/1.1" => Some(!option.is_some_and(|option| option.eq_ignore_ascii_case("close"))),
        "HTTP/1.0" => Some(option.is_some_and(|option| option.eq_ignore_ascii_case("keep-alive"))),
        _ => None,
    }
}

fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    let pairs = fields.lines().filter_map(|line| line.split_once(':'));
    let mut named = pairs.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    named.next().map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn persistence_follows_version_and_field() {
        let of = |version: &str, field: &str| {
            let head = format!("GET /object/1/2 {version}\r\n{field}\r\n\r\n");
            RequestHead::decode(&head).unwrap().persistent
        };
        assert!(of("HTTP/1.1", "Host: a") && !of("HTTP/1.1", "connection: Close"));
        assert!(!of("HTTP/1.0", "Host: a") && of("HTTP/1.0", "Connection: keep-alive"));
    }

    #[test]
    fn what_is_foreign_is_told() {
        let request = |text: &str| RequestHead::decode(text).unwrap_err();
        assert!(matches!(request("GET / HTTP/1.1\r\n\r\n"), HttpError::Target { .. }));
        assert!(matches!(request("PUT /object/1/2 HTTP/1.1\r\n\r\n"), HttpError::Target { .. }));
        assert!(matches!(request("GET /object/1/2 HTTP/2\r\n\r\n"), HttpError::Line { .. }));
        assert!(matches!(request("hello"), HttpError::Line { .. }));
        let reply = |text: &str| ResponseHead::decode(text).unwrap_err();
        assert!(matches!(reply("HTTP/1.1 404 Not Found\r\n\r\n"), HttpError::Status { .. }));
        assert_eq!(reply("HTTP/1.1 200 OK\r\n\r\n"), HttpError::Length);
    }

    proptest! {
        #[test]
        fn heads_read_back(key: u64, size: u64, persistent: bool, name in prop::option::of("[a-z]{1,15}")) {
            let congestion_control = name.map(|name| name.parse().unwrap());
            let head = RequestHead { object: Object { key, size, congestion_control }, persistent };
            for version in ["1.0", "1.1"] {
                prop_assert_eq!(RequestHead::decode(&head.encode(version, "host")), Ok(head.clone()));
            }
            let reply = ResponseHead { length: size, persistent };
            prop_assert_eq!(ResponseHead::decode(&reply.encode()), Ok(reply));
        }

        #[test]
        fn foreign_heads_never_panic(text: String) {
            let _ = RequestHead::decode(&text);
            let _ = ResponseHead::decode(&text);
        }
    }
}
