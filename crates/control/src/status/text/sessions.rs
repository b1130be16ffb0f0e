//! Rows of the status text for a session.

use std::fmt::Write as _;

use super::super::{ChannelStatus, ClassStatus, Health, LinkStatus, SessionStatus};
use super::{bit_rate, bytes, row, seconds};

pub(super) fn rows(text: &mut String, session: &SessionStatus) {
    let silent = if session.reachable { "" } else { ", UNREACHABLE" };
    let SessionStatus { peer, address, .. } = session;
    let since = seconds(session.since_s);
    let over = if session.over_tcp { " over TCP" } else { "" };
    row(text, "session", &format!("{peer} at {address}{over}, for {since}{silent}"));
    // A quota that is used up has a row of its own below.
    let is_known = session.health == Health::Warn && session.exhausted.is_some();
    if session.health != Health::Good && !is_known {
        row(text, "", &format!("!! {}", session.verdict));
    }
    let lines = [path(session), sent(session), received(session), streams(session)];
    lines
        .into_iter()
        .chain(share_of(session))
        .chain(session.exhausted.as_ref().map(|then| format!("quota used up: {then}")))
        .chain(ecn(session))
        .for_each(|line| row(text, "", &line));
    session.links.iter().for_each(|link| link_row(text, link));
    session.classes.iter().filter(|class| is_used(class)).for_each(|class| class_row(text, class));
    let carries = |channel: &&ChannelStatus| channel.packets_sent + channel.packets_received > 0;
    session.channels.iter().filter(carries).for_each(|channel| channel_rows(text, channel));
}

/// Returns the source of the rate; without a report of the modem, its substitute.
fn source(session: &SessionStatus) -> &str {
    let measured = session.rate_state.as_deref().is_some_and(|state| state != "tripped");
    match (session.rate_source.as_str(), session.told_for_s) {
        ("modem", None) if measured => "measured while no rate is reported",
        ("modem", None) => "initial_rate while no rate is reported",
        (source, _) => source,
    }
}

/// Formats rate, round-trip time, queue and loss of the path.
pub(super) fn path(session: &SessionStatus) -> String {
    let mut path = format!("{} ({}", bit_rate(session.rate_bit_s), source(session));
    if let Some(state) = &session.rate_state {
        let _ = write!(path, ", {state}");
    }
    if let Some(told) = session.told_for_s {
        let by = if session.told_by_modem { "reported by DLEP" } else { "told" };
        let _ = write!(path, ", {by}");
        if let (Some(rate), Some(age)) = (session.told_bit_s, session.told_age_s) {
            let _ = write!(path, " {} {} ago", bit_rate(rate), seconds(age));
        }
        let _ = write!(path, ", valid for {}", seconds(told));
    }
    if let Some(capacity) = session.capacity_bit_s {
        let _ = write!(path, ", capacity {}", bit_rate(capacity));
    }
    let SessionStatus { rtt_ms, queue_ms, .. } = session;
    let loss = session.loss * 100.0;
    let _ = write!(path, "), RTT {rtt_ms:.0} ms, queue {queue_ms:.0} ms, loss {loss:.2} %");
    path
}

fn sent(session: &SessionStatus) -> String {
    let left = match session.padding_left_bytes {
        0 => String::new(),
        left => format!(" ({} more allowed)", bytes(left)),
    };
    format!(
        "{} sent in {} packets, {} lost and resent; {} repairs ({}), {} of padding{left}",
        bytes(session.bytes_sent),
        session.packets_sent,
        session.packets_lost,
        session.repairs_sent,
        bytes(session.repair_bytes),
        bytes(session.padding_bytes)
    )
}

fn received(session: &SessionStatus) -> String {
    format!(
        "{} received in {} packets, {} restored from {} repairs",
        bytes(session.bytes_received),
        session.packets_received,
        session.recovered,
        session.repairs_received
    )
}

/// Formats the congestion marks, if either direction uses ECN.
fn ecn(session: &SessionStatus) -> Option<String> {
    let received = session.ect_received + session.ce_received;
    if session.ecn.is_none() && received == 0 {
        return None;
    }
    let state = session.ecn.as_deref().unwrap_or("not sent");
    let SessionStatus { ect_sent, ce_reported, ce_received, .. } = session;
    let counts = format!(
        "{ce_reported} of {ect_sent} packets sent and {ce_received} of {received} received"
    );
    Some(format!("ECN {state}: {counts} marked by the path"))
}

fn streams(session: &SessionStatus) -> String {
    format!(
        "{} streams; {} not yet acknowledged, {} not yet read",
        session.streams,
        bytes(session.held_to_send_bytes),
        bytes(session.held_to_read_bytes)
    )
}

fn is_used(class: &ClassStatus) -> bool {
    class.sent_bytes > 0 || class.waiting_bytes > 0
}

/// Formats a weight, with the guaranteed and the maximum rate if they are set.
fn share(weight: u32, [guaranteed, maximum]: [Option<u64>; 2]) -> String {
    let mut share = format!("weight {weight}");
    if let Some(rate) = guaranteed {
        let _ = write!(share, ", guaranteed {}", bit_rate(rate));
    }
    if let Some(rate) = maximum {
        let _ = write!(share, ", at most {}", bit_rate(rate));
    }
    share
}

/// Formats a session's share of the hub's rate, unless it is the default.
fn share_of(session: &SessionStatus) -> Option<String> {
    let rates = [session.guaranteed_bit_s, session.maximum_bit_s];
    let usual = session.weight <= 1 && rates == [None; 2];
    (!usual).then(|| share(session.weight, rates))
}

fn link_row(text: &mut String, link: &LinkStatus) {
    let silent = if link.works { "" } else { ", SILENT" };
    let rate = bit_rate(link.rate_bit_s);
    let loss = link.loss * 100.0;
    let sent = bytes(link.sent_bytes);
    let received = bytes(link.received_bytes);
    let over = if link.over_tcp { " over TCP" } else { "" };
    let at = format!("{} at {}{over}", link.name, link.address);
    let what = format!("{at}: {rate}, RTT {:.0} ms, loss {loss:.2} %", link.rtt_ms);
    row(text, "link", &format!("{what}; {sent} sent, {received} received{silent}"));
}

fn class_row(text: &mut String, class: &ClassStatus) {
    let rates = [class.guaranteed_bit_s, class.maximum_bit_s];
    let what = format!("{}: {}", class.name, share(class.weight.into(), rates));
    let sent = bytes(class.sent_bytes);
    let waiting = bytes(class.waiting_bytes);
    row(text, "class", &format!("{what}; {sent} sent, {waiting} waiting"));
}

/// Adds the rows of a packet channel: traffic sent, traffic received.
fn channel_rows(text: &mut String, channel: &ChannelStatus) {
    let name = match &channel.class {
        Some(class) => format!("{} ({class})", channel.channel),
        None => channel.channel.to_string(),
    };
    let sent = format!(
        "{name}: {} sent in {} packets, {} retransmitted, {} lost; dropped {} full, {} by CoDel, \
         {} expired; {} waiting",
        bytes(channel.sent_bytes),
        channel.packets_sent,
        channel.retransmitted,
        channel.lost,
        channel.dropped_full,
        channel.dropped_aqm,
        channel.expired,
        bytes(channel.waiting_bytes)
    );
    row(text, "channel", &sent);
    if channel.compressed > 0 {
        let saved = bytes(channel.header_saved_bytes);
        row(text, "", &format!("{} packets without headers, {saved} saved", channel.compressed));
    }
    let received = format!(
        "{} received in {} packets, {} restored, {} missing, {} late",
        bytes(channel.received_bytes),
        channel.packets_received,
        channel.recovered,
        channel.missing,
        channel.late
    );
    row(text, "", &received);
}
