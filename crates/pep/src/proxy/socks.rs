//! SOCKS5 (RFC 1928): CONNECT without authentication.

use std::net::{Ipv4Addr, Ipv6Addr};

use slacp::{Destination, ResetReason};

use super::handshake::{ParseResult, destination};

pub(super) const VERSION: u8 = 5;
pub(super) const VERSION_4: u8 = 4;
/// A rejection in the format of SOCKS4.
pub(super) const REFUSAL_4: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];

/// Authentication methods (RFC 1928 §3).
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// Commands and address types (RFC 1928 §4, §5).
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Replies (RFC 1928 §6).
pub(super) const SUCCEEDED: u8 = 0;
const GENERAL_FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const EXPIRED: u8 = 6;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// Parses the greeting. Returns the answer to it.
pub(super) fn greeting(bytes: &[u8]) -> ParseResult<Vec<u8>> {
    let Some(&count) = bytes.get(1) else { return ParseResult::Partial };
    let length = 2 + usize::from(count);
    let Some(methods) = bytes.get(2..length) else { return ParseResult::Partial };
    if methods.contains(&NO_AUTHENTICATION) {
        ParseResult::Whole(vec![VERSION, NO_AUTHENTICATION], length)
    } else {
        ParseResult::Bad(vec![VERSION, NO_ACCEPTABLE_METHOD])
    }
}

/// Parses a connect request.
pub(super) fn request(bytes: &[u8]) -> ParseResult<Destination> {
    let Some((&[version, command, _, kind], rest)) = bytes.split_first_chunk::<4>() else {
        return ParseResult::Partial;
    };
    if version != VERSION {
        return ParseResult::Bad(reply(GENERAL_FAILURE));
    }
    if command != CONNECT {
        return ParseResult::Bad(reply(COMMAND_NOT_SUPPORTED));
    }
    let (host, after) = match kind {
        IPV4 => match rest.split_first_chunk::<4>() {
            Some((octets, after)) => (Ipv4Addr::from(*octets).to_string(), after),
            None => return ParseResult::Partial,
        },
        IPV6 => match rest.split_first_chunk::<16>() {
            Some((octets, after)) => (format!("[{}]", Ipv6Addr::from(*octets)), after),
            None => return ParseResult::Partial,
        },
        NAME => match rest.split_first().and_then(|(n, rest)| rest.split_at_checked((*n).into())) {
            Some((name, after)) => (String::from_utf8_lossy(name).into_owned(), after),
            None => return ParseResult::Partial,
        },
        // The reply has a code of its own for this (RFC 1928 §6).
        _ => return ParseResult::Bad(reply(ADDRESS_NOT_SUPPORTED)),
    };
    let Some((port, after)) = after.split_first_chunk::<2>() else { return ParseResult::Partial };
    match destination(&host, u16::from_be_bytes(*port)) {
        Some(target) => ParseResult::Whole(target, bytes.len() - after.len()),
        None => ParseResult::Bad(reply(GENERAL_FAILURE)),
    }
}

/// Builds a reply with an empty bound address: clients have no use for that of the far side.
pub(super) fn reply(code: u8) -> Vec<u8> {
    vec![VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// The reply code for a reset reason.
pub(super) fn code(reason: ResetReason) -> u8 {
    match reason {
        ResetReason::Refused => REFUSED,
        ResetReason::Unreachable => HOST_UNREACHABLE,
        ResetReason::TimedOut => EXPIRED,
        ResetReason::Prohibited => NOT_ALLOWED,
        _ => GENERAL_FAILURE,
    }
}
