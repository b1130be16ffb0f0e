//! A gateway's status as text for people.

use std::fmt::Write as _;
use std::time::Duration;

use gateway::status::{
    ChannelStatus, ClassStatus, ConnectionStatus, DlepStatus, Role, SessionStatus, Status,
    TrafficStatus, TunnelStatus,
};
use units::{BitRate, ByteCount, format_duration};

/// The status, with the traffic since `before`.
pub(super) fn of(now: &Status, before: Option<&Status>) -> String {
    let mut text = format!(
        "{} {}, pid {}, up {}{}\n",
        now.role.as_str(),
        now.version,
        now.pid,
        seconds(now.uptime_s),
        if now.draining_s.is_some() { ", draining" } else { "" }
    );
    if let Some(interception) = &now.interception {
        let state = match interception.why {
            None => "intercepted".to_owned(),
            Some(why) => format!("pass unaccelerated ({})", why.as_str()),
        };
        row(&mut text, "new", &format!("{state}, for {}", seconds(interception.since_s)));
    }
    for policy in &now.policies {
        let (name, action) = (&policy.name, &policy.action);
        let (connections, packets) = (policy.connections, policy.packets);
        let what = format!("{name} ({action}): {connections} SYNs, {packets} other packets");
        row(&mut text, "policy", &what);
    }
    let traffic = &now.traffic;
    row(
        &mut text,
        "carried",
        &format!(
            "{} connections: {} alive, {} closed, {} reset, {} failed",
            traffic.connections,
            now.memory.connections,
            traffic.closed,
            traffic.reset,
            traffic.failed
        ),
    );
    row(&mut text, "moved", &moved(now, before));
    if let Some(tunnel) = &now.tunnel {
        row(&mut text, "tunnel", &packets(tunnel));
    }
    let memory = &now.memory;
    row(
        &mut text,
        "memory",
        &format!(
            "{} held of {}, {} resident, {} descriptors of {}",
            bytes(memory.held_bytes),
            bytes(memory.limit_bytes),
            bytes(memory.resident_bytes),
            memory.descriptors,
            memory.descriptors_limit
        ),
    );
    if let Some(dlep) = &now.dlep {
        row(&mut text, "modem", &modem(dlep));
    }
    if now.sessions.is_empty() && now.role != Role::Solo {
        row(&mut text, "session", "none");
    }
    now.sessions.iter().for_each(|session| session_rows(&mut text, session));
    if let Some(connections) = &now.connections {
        text += &connection_table(connections, now.role);
    }
    text
}

fn row(text: &mut String, name: &str, what: &str) {
    let _ = writeln!(text, "  {name:<8} {what}");
}

/// Traffic totals, and the rates since `before`.
fn moved(now: &Status, before: Option<&Status>) -> String {
    let time = before.map(|before| (now.uptime_s - before.uptime_s).max(1e-3));
    let of = |count: fn(&TrafficStatus) -> u64| {
        let total = count(&now.traffic);
        let since = before.map(|before| total.saturating_sub(count(&before.traffic)));
        let pace = since.zip(time).map(|(since, time)| since as f64 * 8.0 / time);
        (bytes(total), pace.map(|bits| BitRate::from_bits_per_second(round(bits))))
    };
    let pace = |pace: (Option<BitRate>, Option<BitRate>)| match pace {
        (Some(one), Some(other)) => format!(" (now {one} and {other})"),
        _ => String::new(),
    };
    let mut parts = Vec::new();
    if now.role != Role::Solo {
        let (onto, from) =
            (of(|traffic| traffic.to_hop_bytes), of(|traffic| traffic.from_hop_bytes));
        let paces = pace((onto.1, from.1));
        parts.push(format!("{} onto the hop, {} from it{paces}", onto.0, from.0));
    }
    if now.role == Role::Solo || now.traffic.straight > 0 {
        let (up, down) = (of(|traffic| traffic.up_bytes), of(|traffic| traffic.down_bytes));
        let paces = pace((up.1, down.1));
        parts.push(format!("{} straight up, {} down{paces}", up.0, down.0));
    }
    parts.join("; ")
}

/// Fate of the tunnel's packets.
fn packets(tunnel: &TunnelStatus) -> String {
    format!(
        "{} packets onto the hop, {} from it; {} prohibited, {} foreign, {} dropped",
        tunnel.to_hop, tunnel.from_hop, tunnel.prohibited, tunnel.foreign, tunnel.dropped
    )
}

/// What the modem reports over DLEP.
fn modem(dlep: &DlepStatus) -> String {
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

fn session_rows(text: &mut String, session: &SessionStatus) {
    let silent = if session.reachable { "" } else { ", UNREACHABLE" };
    let head = format!(
        "{} at {}, for {}{silent}",
        session.peer,
        session.address,
        seconds(session.since_s)
    );
    row(text, "session", &head);
    let mut rate = format!("{} ({}", bit_rate(session.rate_bit_s), session.rate_source);
    if let Some(state) = &session.rate_state {
        let _ = write!(rate, ", {state}");
    }
    if let Some(told) = session.told_for_s {
        let by = if session.told_by_modem { "reported by DLEP" } else { "told" };
        let _ = write!(rate, ", {by} for {}", seconds(told));
    }
    if let Some(capacity) = session.capacity_bit_s {
        let _ = write!(rate, ", capacity {}", bit_rate(capacity));
    }
    let _ = write!(
        rate,
        "), RTT {:.0} ms, queue {:.0} ms, loss {:.2} %",
        session.rtt_ms,
        session.queue_ms,
        session.loss * 100.0
    );
    row(text, "", &rate);
    row(
        text,
        "",
        &format!(
            "{} sent in {} packets, {} lost and resent; {} repairs ({})",
            bytes(session.bytes_sent),
            session.packets_sent,
            session.packets_lost,
            session.repairs_sent,
            bytes(session.repair_bytes)
        ),
    );
    row(
        text,
        "",
        &format!(
            "{} received in {} packets, {} restored from {} repairs",
            bytes(session.bytes_received),
            session.packets_received,
            session.recovered,
            session.repairs_received
        ),
    );
    row(
        text,
        "",
        &format!(
            "{} streams; {} not yet acknowledged, {} not yet read",
            session.streams,
            bytes(session.held_to_send_bytes),
            bytes(session.held_to_read_bytes)
        ),
    );
    session.classes.iter().filter(|class| is_used(class)).for_each(|class| class_row(text, class));
    let carries = |channel: &&ChannelStatus| channel.packets_sent + channel.packets_received > 0;
    session.channels.iter().filter(carries).for_each(|channel| channel_rows(text, channel));
}

fn is_used(class: &ClassStatus) -> bool {
    class.sent_bytes > 0 || class.waiting_bytes > 0
}

fn class_row(text: &mut String, class: &ClassStatus) {
    let mut what = format!("{}: weight {}", class.name, class.weight);
    if let Some(rate) = class.guaranteed_bit_s {
        let _ = write!(what, ", guaranteed {}", bit_rate(rate));
    }
    if let Some(rate) = class.maximum_bit_s {
        let _ = write!(what, ", at most {}", bit_rate(rate));
    }
    let (sent, waiting) = (bytes(class.sent_bytes), bytes(class.waiting_bytes));
    row(text, "class", &format!("{what}; {sent} sent, {waiting} waiting"));
}

/// Traffic sent and received on a channel.
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

fn connection_table(connections: &[ConnectionStatus], role: Role) -> String {
    if role == Role::Solo {
        return straight_table(connections);
    }
    let head = [
        "peer",
        "client",
        "destination",
        "age",
        "to hop",
        "from hop",
        "limited up by",
        "down by",
        "LAN ms",
        "hop ms",
        "resent",
        "restored",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for connection in connections {
        let lan = connection.lan_rtt_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        rows.push([
            connection.peer.clone(),
            client(connection),
            connection.destination.clone(),
            seconds(connection.age_s),
            bytes(connection.to_hop_bytes),
            bytes(connection.from_hop_bytes),
            connection.to_hop_limit.as_str().to_owned(),
            connection.from_hop_limit.as_str().to_owned(),
            lan,
            format!("{:.0}", connection.hop_rtt_ms),
            bytes(connection.resent_bytes),
            bytes(connection.recovered_bytes),
        ]);
    }
    aligned(&rows)
}

/// The client's address, marked if only the peer vouches for it.
fn client(connection: &ConnectionStatus) -> String {
    let claimed = if connection.client_claimed { " (claimed)" } else { "" };
    format!("{}{claimed}", connection.client)
}

/// Connections of a gateway without a hop.
fn straight_table(connections: &[ConnectionStatus]) -> String {
    let head = [
        "client",
        "destination",
        "age",
        "up",
        "down",
        "limited up by",
        "down by",
        "LAN ms",
        "WAN ms",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let rtt = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    for connection in connections {
        rows.push([
            connection.client.clone(),
            connection.destination.clone(),
            seconds(connection.age_s),
            bytes(connection.to_hop_bytes),
            bytes(connection.from_hop_bytes),
            connection.to_hop_limit.as_str().to_owned(),
            connection.from_hop_limit.as_str().to_owned(),
            rtt(connection.lan_rtt_ms),
            rtt(connection.wan_rtt_ms),
        ]);
    }
    aligned(&rows)
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}

fn seconds(seconds: f64) -> String {
    format_duration(Duration::from_secs(round(seconds)))
}

fn round(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

/// Formats a byte count to three digits.
fn bytes(bytes: u64) -> String {
    ByteCount::new(three_digits(bytes)).to_string()
}

fn bit_rate(bits: u64) -> String {
    BitRate::from_bits_per_second(three_digits(bits)).to_string()
}

fn three_digits(value: u64) -> u64 {
    let step = 10u64.pow(value.checked_ilog10().unwrap_or(0).saturating_sub(2));
    value.saturating_add(step / 2) / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let mut status = Status::default();
        status.version = "1.2.3".to_owned();
        status.uptime_s = 61.2;
        status.traffic.to_hop_bytes = 1_234_567;
        let mut session = SessionStatus::default();
        session.peer = "ship-1".to_owned();
        session.rate_bit_s = 49_876_543;
        session.rate_source = "auto".to_owned();
        session.rate_state = Some("cruising".to_owned());
        session.loss = 0.0123;
        session.rtt_ms = 602.4;
        let mut class = ClassStatus::default();
        class.name = "voice".to_owned();
        class.maximum_bit_s = Some(2_000_000);
        class.sent_bytes = 1_000;
        session.classes = vec![class, ClassStatus::default()];
        let mut channel = ChannelStatus::default();
        channel.channel = 3;
        channel.class = Some("voice".to_owned());
        channel.packets_sent = 2;
        channel.expired = 1;
        channel.missing = 4;
        session.channels = vec![channel, ChannelStatus::default()];
        status.sessions.push(session);
        let mut dlep = DlepStatus::default();
        dlep.state = "up".to_owned();
        dlep.peer_type = Some("modem 7".to_owned());
        dlep.modem = Some("192.0.2.1:854".to_owned());
        dlep.rate_bit_s = Some(20_000_000);
        dlep.since_s = 61.0;
        status.dlep = Some(dlep);
        let mut tunnel = TunnelStatus::default();
        (tunnel.from_hop, tunnel.prohibited) = (9, 7);
        status.tunnel = Some(tunnel);
        status
    }

    #[test]
    fn what_is_known_is_told() {
        let text = of(&status(), None);
        for part in [
            "terminal 1.2.3",
            "1.23 MB onto the hop",
            "ship-1",
            "UNREACHABLE",
            "49.9 Mbit/s (auto, cruising)",
            "RTT 602 ms",
            "tunnel   0 packets onto the hop, 9 from it; 7 prohibited, 0 foreign, 0 dropped",
            "modem    up with \"modem 7\" at 192.0.2.1:854, for",
            "20 Mbit/s, 0 of 0 destinations up",
            "loss 1.23 %",
            "voice: weight 0, at most 2 Mbit/s; 1 kB sent, 0 B waiting",
            "3 (voice): 0 B sent in 2 packets",
            "1 expired",
            "4 missing",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!((text.matches("  class").count(), text.matches("  channel").count()), (1, 1));
        assert!(!text.contains("now "), "{text}");
    }

    #[test]
    fn a_second_look_tells_the_pace() {
        let before = status();
        let mut now = status();
        now.uptime_s += 2.0;
        now.traffic.to_hop_bytes += 2_500_000;
        let text = of(&now, Some(&before));
        assert!(text.contains("(now 10 Mbit/s and 0 bit/s)"), "{text}");
    }

    #[test]
    fn connections_are_a_table() {
        let mut now = status();
        let mut connection = ConnectionStatus::default();
        connection.client = "10.1.2.3:40000".to_owned();
        connection.lan_rtt_ms = Some(0.25);
        connection.from_hop_bytes = 3 << 32;
        now.connections = Some(vec![connection]);
        // As received over the control socket.
        let now = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        let text = of(&now, None);
        let lines: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(lines[1].find("client"), lines[0].find("10.1.2.3:40000"), "{text}");
        for part in ["0.2", "idle", "12.9 GB"] {
            assert!(lines[0].contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_gateway_alone_has_no_hop_to_tell_of() {
        let mut now = Status::default();
        now.role = Role::Solo;
        now.traffic.up_bytes = 1_000;
        now.traffic.down_bytes = 2_000_000;
        let mut connection = ConnectionStatus::default();
        connection.client = "10.1.2.3:40000".to_owned();
        connection.wan_rtt_ms = Some(601.5);
        now.connections = Some(vec![connection]);
        let text = of(&now, None);
        assert!(text.contains("1 kB straight up, 2 MB down"), "{text}");
        assert!(text.contains("601.5") && !text.contains("hop"), "{text}");
        assert!(!text.contains("session"), "{text}");
    }

    #[test]
    fn three_digits_are_enough() {
        for (value, rounded) in
            [(0, 0), (7, 7), (999, 999), (1234, 1230), (1235, 1240), (99_950, 100_000)]
        {
            assert_eq!(three_digits(value), rounded);
        }
    }
}
