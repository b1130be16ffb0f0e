//! The subset of HTTP/1.0 (RFC 1945) and HTTP/1.1 (RFC 9112) that a page needs.
//!
//! An object is `/object/KEY/SIZE` (key in hexadecimal, size in bytes). `?cc=NAME` selects the
//! congestion control of the server's socket, and `fresh=SECONDS` says how long caches may use the
//! object. The body is the server's payload ([`crate::protocol::payload`]) for that key.

pub mod head;

use std::io;

use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use self::head::HEAD_MAX;
use crate::sockets::congestion::CongestionControl;
use crate::sockets::patience::with_idle_limit;

/// An object as named by the target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestedObject {
    pub(crate) key: u64,
    pub(crate) size: u64,
    pub(crate) congestion_control: Option<CongestionControl>,
    /// Time for which a cache may use the object, in seconds; `None` if the response says nothing
    /// about caches.
    pub(crate) fresh: Option<u32>,
}

/// The parsed head of a request for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) object: RequestedObject,
    /// Set if the connection stays open after the reply.
    pub(crate) persistent: bool,
}

/// The parsed head of a successful response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) length: u64,
    pub(crate) persistent: bool,
}

/// The reason why a head was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The version is not HTTP/1.0 or 1.1.
    #[error("not HTTP/1.0 or HTTP/1.1: {line:?}")]
    Line {
        /// The first line of the head.
        line: String,
    },
    /// The method is not GET, or the target names no object.
    #[error("no such object: {target:?}")]
    Target {
        /// The target of the request line.
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

/// Reads a head, up to and including its empty line; `None` if the stream ends before the first
/// byte.
pub(crate) async fn read_head<R: AsyncBufRead + Unpin>(
    reader: &mut R,
) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    // Bounds the memory for a peer that never ends its head.
    let mut limited = reader.take(HEAD_MAX as u64);
    while !bytes.ends_with(b"\r\n\r\n") {
        if with_idle_limit(limited.read_until(b'\n', &mut bytes)).await? == 0 {
            let cut = io::Error::new(io::ErrorKind::InvalidData, "the reply's head has no end");
            return if bytes.is_empty() { Ok(None) } else { Err(cut) };
        }
    }
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl RequestedObject {
    fn target(&self) -> String {
        let path = format!("/object/{:016x}/{}", self.key, self.size);
        let name = self.congestion_control.as_ref().map(|name| format!("cc={name}"));
        let fresh = self.fresh.map(|seconds| format!("fresh={seconds}"));
        let options: Vec<String> = name.into_iter().chain(fresh).collect();
        if options.is_empty() { path } else { format!("{path}?{}", options.join("&")) }
    }

    fn of_target(target: &str) -> Option<Self> {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let (key, size) = path.strip_prefix("/object/")?.split_once('/')?;
        let mut congestion_control = None;
        let mut fresh = None;
        for option in query.into_iter().flat_map(|query| query.split('&')) {
            match option.split_once('=')? {
                ("cc", name) => congestion_control = Some(name.parse().ok()?),
                ("fresh", seconds) => fresh = Some(seconds.parse().ok()?),
                _ => return None,
            }
        }
        let key = u64::from_str_radix(key, 16).ok()?;
        Some(Self { key, size: size.parse().ok()?, congestion_control, fresh })
    }
}

impl RequestHead {
    /// Encodes the head for HTTP `version` (`1.0` or `1.1`).
    pub(crate) fn encode(&self, version: &str, host: &str) -> String {
        head::get(&self.object.target(), version, host, self.persistent)
    }

    pub(crate) fn decode(head: &str) -> Result<Self, HttpError> {
        let request = head::ParsedRequest::parse(head.as_bytes()).ok().flatten();
        let head::ParsedRequest { method, target, persistent } =
            request.ok_or_else(|| HttpError::foreign(head))?;
        let object = RequestedObject::of_target(target).filter(|_| method == "GET");
        let object = object.ok_or_else(|| HttpError::Target { target: target.to_owned() })?;
        Ok(Self { object, persistent })
    }
}

impl ResponseHead {
    pub(crate) fn encode(&self) -> String {
        head::ok(self.length, self.persistent)
    }

    /// Like [`Self::encode`], with permission for caches to use the response for some seconds.
    pub(crate) fn encode_fresh(&self, seconds: u32) -> String {
        self.encode().replacen("\r\n", &format!("\r\nCache-Control: max-age={seconds}\r\n"), 1)
    }

    pub(crate) fn decode(head: &str) -> Result<Self, HttpError> {
        let response = head::ParsedResponse::parse(head.as_bytes()).ok().flatten();
        let response = response.ok_or_else(|| HttpError::foreign(head))?;
        let head::ParsedResponse { status, reason, length, persistent, .. } = response;
        if status != 200 {
            return Err(HttpError::Status { status: format!("{status} {reason}") });
        }
        Ok(Self { length: length.ok_or(HttpError::Length)?, persistent })
    }
}

impl HttpError {
    fn foreign(head: &str) -> Self {
        Self::Line { line: head.lines().next().unwrap_or_default().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn foreign_packets_are_reported() {
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
        fn heads_read_back(key: u64, size: u64, persistent: bool, name in prop::option::of("[a-z]{1,15}"), fresh: Option<u32>) {
            let congestion_control = name.map(|name| name.parse().unwrap());
            let head = RequestHead { object: RequestedObject { key, size, congestion_control, fresh }, persistent };
            for version in ["1.0", "1.1"] {
                prop_assert_eq!(RequestHead::decode(&head.encode(version, "host")), Ok(head.clone()));
            }
            let reply = ResponseHead { length: size, persistent };
            prop_assert_eq!(ResponseHead::decode(&reply.encode()), Ok(reply.clone()));
            let fresh = reply.encode_fresh(60);
            prop_assert!(fresh.contains("\r\nCache-Control: max-age=60\r\n"));
            prop_assert_eq!(ResponseHead::decode(&fresh), Ok(reply));
        }

        #[test]
        fn foreign_heads_never_panic(text: String) {
            let _ = RequestHead::decode(&text);
            let _ = ResponseHead::decode(&text);
        }
    }
}
