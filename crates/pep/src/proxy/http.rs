//! The CONNECT method of HTTP/1.1 (RFC 9110 §9.3.6). No other method is supported.

use slacp::{Destination, ResetReason};

use super::handshake::{ParseResult, destination};
use crate::work::cost;

/// Maximum length of a request head, in bytes.
pub(super) const LONGEST_HEAD: usize = 8 << 10;
pub(super) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Parses a request head; its fields are ignored. The first `searched` bytes are known not to contain its
/// end.
pub(super) fn request(bytes: &[u8], searched: usize) -> ParseResult<Destination> {
    let Some(length) = head_length(bytes, searched) else {
        if bytes.len() < LONGEST_HEAD {
            return ParseResult::Partial;
        }
        return ParseResult::Bad(response(
            "431 Request Header Fields Too Large",
            "the request's head exceeds 8 KB",
        ));
    };
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(line) = str::from_utf8(line) else { return ParseResult::Bad(malformed()) };
    let mut words = line.trim_end_matches('\r').split(' ');
    // A fourth word would make it something else than a request line.
    let words = [(); 4].map(|()| words.next());
    let [Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None] = words else {
        return ParseResult::Bad(malformed());
    };
    if method != "CONNECT" {
        let only = "this proxy supports only CONNECT (curl: --proxytunnel)";
        return ParseResult::Bad(response("405 Method Not Allowed\r\nAllow: CONNECT", only));
    }
    match authority(target) {
        Some(target) => ParseResult::Whole(target, length),
        None => ParseResult::Bad(malformed()),
    }
}

/// Length of the head with its empty line. Bare line feeds are accepted (RFC 9112 §2.2).
fn head_length(bytes: &[u8], searched: usize) -> Option<usize> {
    let head = &bytes[..bytes.len().min(LONGEST_HEAD)];
    // The empty line may begin in the part already searched.
    let mut from = searched.saturating_sub(2).min(head.len());
    cost::count(head.len() - from);
    while let Some(at) = head[from..].iter().position(|byte| *byte == b'\n') {
        from += at + 1;
        match head[from..] {
            [b'\n', ..] => return Some(from + 1),
            [b'\r', b'\n', ..] => return Some(from + 2),
            _ => {}
        }
    }
    None
}

/// Parses `host:port`, with an IPv6 address in brackets.
fn authority(text: &str) -> Option<Destination> {
    let (host, port) = text.rsplit_once(':')?;
    let is_bare_v6 = host.contains(':') && !host.starts_with('[');
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare_v6 || !is_number {
        return None;
    }
    destination(host, port.parse().ok()?)
}

fn malformed() -> Vec<u8> {
    response("400 Bad Request", "expected a request like CONNECT server:443 HTTP/1.1")
}

/// Builds the response for a client that cannot be connected.
pub(super) fn refusal(reason: ResetReason) -> Vec<u8> {
    let (status, text) = match reason {
        ResetReason::Refused => ("502 Bad Gateway", "the server refused the connection"),
        ResetReason::Unreachable => ("502 Bad Gateway", "the server cannot be reached"),
        ResetReason::TimedOut => ("504 Gateway Timeout", "the server did not answer in time"),
        ResetReason::Prohibited => ("403 Forbidden", "this destination is not permitted"),
        ResetReason::Limit => ("503 Service Unavailable", "there are too many connections"),
        _ => ("502 Bad Gateway", "the connection was reset"),
    };
    response(status, text)
}

fn response(status: &str, text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    )
    .into_bytes()
}
