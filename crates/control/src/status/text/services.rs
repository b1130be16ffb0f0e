//! Rows of the status text for refusals, tunnel, stack, names, HTTP, bundles and modem.

use std::fmt::Write as _;

use units::ByteCount;

use super::super::{
    BundlesStatus, DlepStatus, DnsStatus, HttpStatus, NextKeyStatus, RefusalStatus, StackStatus,
    TunnelStatus,
};
use super::{bit_rate, bytes, seconds};
use crate::Role;

/// Formats the counts of the tunnel's packets.
pub(super) fn packets(tunnel: &TunnelStatus) -> String {
    format!(
        "{} packets onto the hop, {} from it; {} prohibited, {} foreign, {} dropped",
        tunnel.to_hop, tunnel.from_hop, tunnel.prohibited, tunnel.foreign, tunnel.dropped
    )
}

/// Formats the packets that policies refuse.
pub(super) fn refusals(refusals: &RefusalStatus) -> String {
    let RefusalStatus { answered, limited } = refusals;
    format!("{answered} packets answered for their destination; {limited} beyond a client's limit")
}

/// Formats the progress of the rotation of the hub's key.
pub(super) fn next_key(next: &NextKeyStatus) -> String {
    let mut text = next.key.clone();
    match &next.until {
        _ if next.in_force => text += ", in force",
        Some(until) => _ = write!(text, ", alone from {until}"),
        None => {}
    }
    let _ = write!(text, "; known to {} terminals", next.known);
    let (some, rest) = next.unaware.split_at(next.unaware.len().min(MOST_UNAWARE));
    if !some.is_empty() {
        let _ = write!(text, ", not to {}", some.join(", "));
    }
    if !rest.is_empty() {
        let _ = write!(text, " and {} more", rest.len());
    }
    text
}

/// Maximum terminals named that do not know the next key.
const MOST_UNAWARE: usize = 8;

/// Formats the figures of skyhop's own TCP towards the WAN.
pub(super) fn stack(stack: &StackStatus) -> String {
    format!(
        "skyhop, {}: {} connections hold {}; {} opened, {} accepted, {} with SNACK (SCPS-TP), {} with \
         SACK; {} segments resent, {} SYNs ignored",
        stack.controller,
        stack.connections,
        bytes(stack.held_bytes),
        stack.opened,
        stack.accepted,
        stack.snack,
        stack.sack,
        stack.retransmissions,
        stack.ignored
    )
}

/// Formats the outcomes of DNS queries, rare ones only if they have occurred.
pub(super) fn names(dns: &DnsStatus, role: Role) -> String {
    if role == Role::Hub {
        return format!("{} questions, {} without an answer", dns.questions, dns.failed);
    }
    let DnsStatus { questions, hits, stale, instant, prefetched, saved_round_trips, .. } = dns;
    let mut what = format!(
        "{questions} questions: {hits} from the cache, {stale} stale, {instant} instant; \
         {prefetched} prefetched; {saved_round_trips} round trips saved"
    );
    for (count, why) in [
        (dns.straight, "asked without the hop"),
        (dns.failed, "without an answer"),
        (dns.refused, "refused"),
    ] {
        if count > 0 {
            let _ = write!(what, "; {count} {why}");
        }
    }
    what
}

/// Formats the outcomes of HTTP requests.
pub(super) fn http(http: &HttpStatus, role: Role) -> String {
    if role == Role::Hub {
        let HttpStatus { requests, reused, hits, confirmed, saved_bytes, .. } = http;
        let mut what = format!("{requests} requests, {reused} over connections that were there");
        if http.hits + http.misses > 0 {
            let saved = ByteCount::new(*saved_bytes);
            let _ = write!(what, "; {hits} from the cache, {confirmed} confirmed, {saved} saved");
        }
        return what;
    }
    let HttpStatus { requests, hits, confirmed, saved_bytes, entries, .. } = http;
    let mut what = format!(
        "{requests} requests: {hits} from the cache, {confirmed} confirmed; {} saved; {entries} stored",
        ByteCount::new(*saved_bytes)
    );
    for (count, why) in [
        (http.collapsed, "with another's request"),
        (http.stale, "expired"),
        (http.plain, "connections left alone"),
        (http.disk_errors, "errors of the disk"),
    ] {
        if count > 0 {
            let _ = write!(what, "; {count} {why}");
        }
    }
    what
}

/// Formats the bundles in the store, and the outcomes of others.
pub(super) fn bundles(bundles: &BundlesStatus) -> String {
    let mut what = match bundles.waiting {
        0 => "none in the store".to_owned(),
        waiting => format!(
            "{waiting} in the store ({}), the oldest for {}",
            bytes(bundles.waiting_bytes),
            seconds(bundles.oldest_s)
        ),
    };
    let _ = write!(what, "; {} forwarded, {} delivered", bundles.forwarded, bundles.delivered);
    for (count, why) in [
        (bundles.expired, "expired"),
        (bundles.duplicates, "duplicates"),
        (bundles.refused, "refused"),
    ] {
        if count > 0 {
            let _ = write!(what, ", {count} {why}");
        }
    }
    what
}

/// Formats the state of the DLEP session and the modem's reports.
pub(super) fn modem(dlep: &DlepStatus) -> String {
    let mut what = dlep.state.clone();
    if let Some(peer_type) = &dlep.peer_type {
        let _ = write!(what, " with {peer_type:?}");
    }
    if let Some(modem) = &dlep.modem {
        let _ = write!(what, " at {modem}");
    }
    let _ = write!(what, ", for {}", seconds(dlep.since_s));
    if let Some(rate) = dlep.rate_bit_s {
        let up = dlep.destinations.iter().filter(|destination| destination.up).count();
        let all = dlep.destinations.len();
        let _ = write!(what, "; {}, {up} of {all} destinations up", bit_rate(rate));
    }
    if let Some(trouble) = &dlep.trouble {
        let _ = write!(what, "; {trouble}");
    }
    what
}
