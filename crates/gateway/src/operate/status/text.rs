//! A gateway's status as text for people.

use std::fmt::Write as _;
use std::time::Duration;

use report::{Column, Table};
use units::{BitRate, ByteCount, format_duration};

use super::{
    BundlesStatus, ChannelStatus, ClassStatus, CompressionStatus, ConnectionStatus, DemandStatus,
    DlepStatus, DnsStatus, HttpStatus, InterceptionStatus, MemoryStatus, PolicyStatus, Role,
    SessionStatus, StackStatus, Status, TrafficStatus, TunnelStatus,
};

impl Status {
    /// The status in lines. With an earlier status, it includes the traffic's rates since then.
    pub fn text(&self, before: Option<&Self>) -> String {
        let mut text = self.title();
        if let Some(interception) = &self.interception {
            row(&mut text, "new", &fate(interception));
        }
        self.policies.iter().for_each(|each| row(&mut text, "policy", &policy(each)));
        row(&mut text, "carried", &carried(&self.traffic, self.memory.connections));
        row(&mut text, "moved", &moved(self, before));
        if self.traffic.compression.streams > 0 {
            row(&mut text, "compressed", &compressed(&self.traffic.compression));
        }
        if let Some(tunnel) = &self.tunnel {
            row(&mut text, "tunnel", &packets(tunnel));
        }
        if let Some(stack) = &self.stack {
            row(&mut text, "stack", &stack_row(stack));
        }
        if let Some(dns) = &self.dns {
            row(&mut text, "names", &names(dns, self.role));
        }
        if let Some(http) = &self.http {
            row(&mut text, "http", &self::http(http, self.role));
        }
        if let Some(bundles) = &self.bundles {
            row(&mut text, "bundles", &bundles_row(bundles));
        }
        row(&mut text, "memory", &memory(&self.memory));
        if let Some(dlep) = &self.dlep {
            row(&mut text, "modem", &modem(dlep));
        }
        if let Some(demand) = self.demand.filter(is_on_demand) {
            row(&mut text, "demand", &demand_row(&demand));
        }
        for hub in &self.hubs {
            row(&mut text, "hub", &format!("{} at {}: {}", hub.name, hub.address, hub.state));
        }
        if self.sessions.is_empty() && self.role != Role::Solo {
            row(&mut text, "session", "none");
        }
        self.sessions.iter().for_each(|session| session_rows(&mut text, session));
        if let Some(connections) = &self.connections {
            text += &connection_table(connections, self.role);
        }
        text
    }

    fn title(&self) -> String {
        format!(
            "{} {}, pid {}, up {}{}\n",
            self.role.as_str(),
            self.version,
            self.pid,
            seconds(self.uptime_s),
            if self.draining_s.is_some() { ", draining" } else { "" }
        )
    }
}

fn row(text: &mut String, name: &str, what: &str) {
    let _ = writeln!(text, "  {name:<8} {what}");
}

/// What happens to new connections.
fn fate(interception: &InterceptionStatus) -> String {
    let state = match interception.why {
        None => "intercepted".to_owned(),
        Some(why) => format!("pass unaccelerated ({})", why.as_str()),
    };
    format!("{state}, for {}", seconds(interception.since_s))
}

fn policy(policy: &PolicyStatus) -> String {
    let (name, action) = (&policy.name, &policy.action);
    let (connections, packets) = (policy.connections, policy.packets);
    format!("{name} ({action}): {connections} SYNs, {packets} other packets")
}

fn carried(traffic: &TrafficStatus, alive: u64) -> String {
    let TrafficStatus { connections, closed, reset, failed, .. } = traffic;
    format!(
        "{connections} connections: {alive} alive, {closed} closed, {reset} reset, {failed} failed"
    )
}

fn memory(memory: &MemoryStatus) -> String {
    format!(
        "{} held of {}, {} resident, {} descriptors of {}",
        bytes(memory.held_bytes),
        bytes(memory.limit_bytes),
        bytes(memory.resident_bytes),
        memory.descriptors,
        memory.descriptors_limit
    )
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

/// What the compression of streams has saved.
fn compressed(done: &CompressionStatus) -> String {
    format!(
        "{} streams; {} sent for {}, {} received for {}",
        done.streams,
        bytes(done.sent_bytes),
        bytes(done.to_hop_bytes),
        bytes(done.received_bytes),
        bytes(done.from_hop_bytes)
    )
}

/// Fate of the tunnel's packets.
fn packets(tunnel: &TunnelStatus) -> String {
    format!(
        "{} packets onto the hop, {} from it; {} prohibited, {} foreign, {} dropped",
        tunnel.to_hop, tunnel.from_hop, tunnel.prohibited, tunnel.foreign, tunnel.dropped
    )
}

/// Our own TCP towards the WAN.
fn stack_row(stack: &StackStatus) -> String {
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

/// What became of questions for names.
fn names(dns: &DnsStatus, role: Role) -> String {
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

/// What became of requests of cleartext HTTP.
fn http(http: &HttpStatus, role: Role) -> String {
    if role == Role::Hub {
        let HttpStatus { requests, reused, pushed, .. } = http;
        let what = format!("{requests} requests, {reused} over connections that were there");
        return if *pushed > 0 { format!("{what}; {pushed} pushed") } else { what };
    }
    let HttpStatus { requests, hits, confirmed, saved_bytes, entries, .. } = http;
    let mut what = format!(
        "{requests} requests: {hits} from the cache, {confirmed} confirmed; {} saved; {entries} stored",
        ByteCount::new(*saved_bytes)
    );
    if http.pushed > 0 {
        let _ = write!(what, "; {} pushed, {} used", http.pushed, http.push_used);
    }
    for (count, why) in [
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

/// What waits of bundles, and what became of others.
fn bundles_row(bundles: &BundlesStatus) -> String {
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

/// Whether there is more to say than the classes of the sessions do.
fn is_on_demand(demand: &DemandStatus) -> bool {
    demand.foreseen_bytes > 0 || demand.forecasts_used + demand.forecasts_unused > 0
}

fn demand_row(demand: &DemandStatus) -> String {
    let [waiting, foreseen, unused] =
        [demand.waiting_bytes, demand.foreseen_bytes, demand.unused_bytes].map(bytes);
    format!(
        "{waiting} waiting, {foreseen} foreseen; {} forecasts came true, {} failed ({unused})",
        demand.forecasts_used, demand.forecasts_unused
    )
}

fn session_rows(text: &mut String, session: &SessionStatus) {
    let silent = if session.reachable { "" } else { ", UNREACHABLE" };
    let (peer, address, since) = (&session.peer, &session.address, seconds(session.since_s));
    let over = if session.over_tcp { " over TCP" } else { "" };
    row(text, "session", &format!("{peer} at {address}{over}, for {since}{silent}"));
    let lines = [path(session), sent(session), received(session), streams(session)];
    lines
        .into_iter()
        .chain(share_of(session))
        .chain(ecn(session))
        .for_each(|line| row(text, "", &line));
    session.classes.iter().filter(|class| is_used(class)).for_each(|class| class_row(text, class));
    let carries = |channel: &&ChannelStatus| channel.packets_sent + channel.packets_received > 0;
    session.channels.iter().filter(carries).for_each(|channel| channel_rows(text, channel));
}

/// Where the rate comes from; without a report of the modem, what stands in for it.
fn source(session: &SessionStatus) -> &str {
    let measured = session.rate_state.as_deref().is_some_and(|state| state != "tripped");
    match (session.rate_source.as_str(), session.told_for_s) {
        ("modem", None) if measured => "measured while no rate is reported",
        ("modem", None) => "initial_rate while no rate is reported",
        (source, _) => source,
    }
}

/// Rate, delay and loss.
fn path(session: &SessionStatus) -> String {
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
    let (rtt, queue, loss) = (session.rtt_ms, session.queue_ms, session.loss * 100.0);
    let _ = write!(path, "), RTT {rtt:.0} ms, queue {queue:.0} ms, loss {loss:.2} %");
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

/// Congestion marks, if either direction carries them.
fn ecn(session: &SessionStatus) -> Option<String> {
    let received = session.ect_received + session.ce_received;
    if session.ecn.is_none() && received == 0 {
        return None;
    }
    let state = session.ecn.as_deref().unwrap_or("not sent");
    let (sent, reported, marked) = (session.ect_sent, session.ce_reported, session.ce_received);
    let counts = format!("{reported} of {sent} packets sent and {marked} of {received} received");
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

/// A weight, with a guaranteed and a maximum rate if there are any.
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

/// What distinguishes a session's share of the hub's rate from those of the others.
fn share_of(session: &SessionStatus) -> Option<String> {
    let rates = [session.guaranteed_bit_s, session.maximum_bit_s];
    let usual = session.weight <= 1 && rates == [None; 2];
    (!usual).then(|| share(session.weight, rates))
}

fn class_row(text: &mut String, class: &ClassStatus) {
    let rates = [class.guaranteed_bit_s, class.maximum_bit_s];
    let what = format!("{}: {}", class.name, share(class.weight.into(), rates));
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

/// The text of a cell.
type Cell = fn(&ConnectionStatus) -> String;

fn connection_table(connections: &[ConnectionStatus], role: Role) -> String {
    let columns = columns(role);
    let names = columns.iter().map(|(name, _)| Column::left(name));
    let mut table = Table::new(names).indent(2);
    for connection in connections {
        table.row(columns.iter().map(|(_, cell)| cell(connection)));
    }
    table.to_string()
}

/// A gateway alone has no hop and no peer.
fn columns(role: Role) -> Vec<(&'static str, Cell)> {
    let alone = role == Role::Solo;
    let (up, down) = if alone { ("up", "down") } else { ("to hop", "from hop") };
    let mut columns: Vec<(&str, Cell)> = vec![
        ("client", client),
        ("destination", |it| it.destination.clone()),
        ("age", |it| seconds(it.age_s)),
        (up, |it| bytes(it.to_hop_bytes)),
        (down, |it| bytes(it.from_hop_bytes)),
        ("limited up by", |it| it.to_hop_limit.as_str().to_owned()),
        ("down by", |it| it.from_hop_limit.as_str().to_owned()),
        ("LAN ms", |it| rtt(it.lan_rtt_ms)),
    ];
    if alone {
        columns.push(("WAN ms", |it| rtt(it.wan_rtt_ms)));
        return columns;
    }
    columns.insert(0, ("peer", |it| it.peer.clone()));
    columns.extend([
        ("hop ms", (|it| format!("{:.0}", it.hop_rtt_ms)) as Cell),
        ("resent", |it| bytes(it.resent_bytes)),
        ("restored", |it| bytes(it.recovered_bytes)),
    ]);
    columns
}

/// The client's address, marked if only the peer vouches for it.
fn client(connection: &ConnectionStatus) -> String {
    let claimed = if connection.client_claimed { " (claimed)" } else { "" };
    format!("{}{claimed}", connection.client)
}

fn rtt(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
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
        let tunnel = TunnelStatus { from_hop: 9, prohibited: 7, ..Default::default() };
        let dlep = DlepStatus {
            state: "up".to_owned(),
            peer_type: Some("modem 7".to_owned()),
            modem: Some("192.0.2.1:854".to_owned()),
            rate_bit_s: Some(20_000_000),
            since_s: 61.0,
            ..Default::default()
        };
        Status {
            version: "1.2.3".to_owned(),
            uptime_s: 61.2,
            traffic: TrafficStatus { to_hop_bytes: 1_234_567, ..Default::default() },
            sessions: vec![session()],
            dlep: Some(dlep),
            demand: Some(DemandStatus {
                waiting_bytes: 1_200,
                foreseen_bytes: 2_600,
                forecasts_used: 7,
                forecasts_unused: 2,
                unused_bytes: 3_900,
            }),
            tunnel: Some(tunnel),
            stack: Some(StackStatus {
                controller: "hybla:rtt0=50ms".to_owned(),
                connections: 2,
                held_bytes: 4_000,
                opened: 5,
                accepted: 1,
                snack: 4,
                sack: 6,
                retransmissions: 17,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn session() -> SessionStatus {
        let class = ClassStatus {
            name: "voice".to_owned(),
            maximum_bit_s: Some(2_000_000),
            sent_bytes: 1_000,
            ..Default::default()
        };
        let channel = ChannelStatus {
            channel: 3,
            class: Some("voice".to_owned()),
            packets_sent: 2,
            expired: 1,
            missing: 4,
            ..Default::default()
        };
        SessionStatus {
            peer: "ship-1".to_owned(),
            rate_bit_s: 49_876_543,
            rate_source: "auto".to_owned(),
            rate_state: Some("cruising".to_owned()),
            loss: 0.0123,
            weight: 3,
            guaranteed_bit_s: Some(1_000_000),
            rtt_ms: 602.4,
            classes: vec![class, ClassStatus::default()],
            channels: vec![channel, ChannelStatus::default()],
            ..Default::default()
        }
    }

    fn connection() -> ConnectionStatus {
        ConnectionStatus { client: "10.1.2.3:40000".to_owned(), ..Default::default() }
    }

    #[test]
    fn the_status_shows_what_is_known() {
        let text = status().text(None);
        for part in [
            "terminal 1.2.3",
            "1.23 MB onto the hop",
            "ship-1",
            "UNREACHABLE",
            "49.9 Mbit/s (auto, cruising)",
            "RTT 602 ms",
            "tunnel   0 packets onto the hop, 9 from it; 7 prohibited, 0 foreign, 0 dropped",
            "stack    skyhop, hybla:rtt0=50ms: 2 connections hold 4 kB; 5 opened, 1 accepted, 4 with \
             SNACK (SCPS-TP), 6 with SACK; 17 segments resent, 0 SYNs ignored",
            "modem    up with \"modem 7\" at 192.0.2.1:854, for",
            "20 Mbit/s, 0 of 0 destinations up",
            "demand   1.2 kB waiting, 2.6 kB foreseen; 7 forecasts came true, 2 failed (3.9 kB)",
            "loss 1.23 %",
            "weight 3, guaranteed 1 Mbit/s\n",
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
    fn the_status_says_what_stands_in_for_a_modem_s_rate() {
        for (state, told, expected) in [
            (Some("cruising"), None, "(measured while no rate is reported, cruising)"),
            (None, None, "(initial_rate while no rate is reported)"),
            (Some("tripped"), None, "(initial_rate while no rate is reported, tripped)"),
            (None, Some(30.0), "(modem, reported by DLEP, valid for 30 s)"),
        ] {
            let session = SessionStatus {
                rate_source: "modem".to_owned(),
                rate_state: state.map(str::to_owned),
                told_for_s: told,
                told_by_modem: true,
                ..Default::default()
            };
            assert!(path(&session).contains(expected), "{}", path(&session));
        }
    }

    #[test]
    fn names_are_shown_where_they_are_resolved() {
        let dns = DnsStatus {
            questions: 9,
            hits: 4,
            instant: 2,
            prefetched: 1,
            failed: 3,
            saved_round_trips: 6,
            ..DnsStatus::default()
        };
        let text = |role| Status { role, dns: Some(dns), ..status() }.text(None);
        let line = "names    9 questions: 4 from the cache, 0 stale, 2 instant; 1 prefetched; \
                    6 round trips saved; 3 without an answer\n";
        assert!(text(Role::Terminal).contains(line), "{}", text(Role::Terminal));
        assert!(text(Role::Hub).contains("names    9 questions, 3 without an answer\n"));
        assert!(!status().text(None).contains("names"));
    }

    #[test]
    fn bundles_are_shown_where_there_is_a_node_for_them() {
        let bundles = BundlesStatus {
            waiting: 2,
            waiting_bytes: 3_000_000,
            oldest_s: 90.0,
            forwarded: 5,
            expired: 1,
            ..BundlesStatus::default()
        };
        let text = |bundles| Status { bundles: Some(bundles), ..status() }.text(None);
        let line = "bundles  2 in the store (3 MB), the oldest for 90 s; 5 forwarded, \
                    0 delivered, 1 expired\n";
        assert!(text(bundles).contains(line), "{}", text(bundles));
        let none = text(BundlesStatus::default());
        assert!(none.contains("bundles  none in the store; 0 forwarded, 0 delivered\n"), "{none}");
        assert!(!status().text(None).contains("bundles"));
    }

    #[test]
    fn http_says_what_it_saved() {
        let http = HttpStatus {
            requests: 24,
            hits: 12,
            confirmed: 1,
            saved_bytes: 2_100_000,
            entries: 9,
            pushed: 5,
            push_used: 4,
            reused: 7,
            disk_errors: 2,
            ..HttpStatus::default()
        };
        let text = |role| Status { role, http: Some(http), ..status() }.text(None);
        let line = "http     24 requests: 12 from the cache, 1 confirmed; 2.1 MB saved; 9 stored; \
                    5 pushed, 4 used; 2 errors of the disk\n";
        assert!(text(Role::Terminal).contains(line), "{}", text(Role::Terminal));
        let line = "http     24 requests, 7 over connections that were there; 5 pushed\n";
        assert!(text(Role::Hub).contains(line), "{}", text(Role::Hub));
    }

    #[test]
    fn marks_are_shown_where_there_is_ecn() {
        let text = |session| {
            let mut text = String::new();
            session_rows(&mut text, &session);
            text
        };
        assert!(!text(session()).contains("ECN"));
        let capable = SessionStatus {
            ecn: Some("capable".to_owned()),
            ect_sent: 1_000,
            ce_reported: 7,
            ..session()
        };
        let line = "ECN capable: 7 of 1000 packets sent and 0 of 0 received marked by the path";
        assert!(text(capable).contains(line));
        let hears = SessionStatus { ect_received: 90, ce_received: 10, ..session() };
        let line = "ECN not sent: 0 of 0 packets sent and 10 of 100 received marked by the path";
        assert!(text(hears).contains(line));
    }

    #[test]
    fn a_second_look_tells_the_pace() {
        let before = status();
        let mut now = status();
        now.uptime_s += 2.0;
        now.traffic.to_hop_bytes += 2_500_000;
        let text = now.text(Some(&before));
        assert!(text.contains("(now 10 Mbit/s and 0 bit/s)"), "{text}");
    }

    #[test]
    fn connections_are_a_table() {
        let (lan_rtt_ms, from_hop_bytes) = (Some(0.25), 3 << 32);
        let connection = ConnectionStatus { lan_rtt_ms, from_hop_bytes, ..connection() };
        let now = Status { connections: Some(vec![connection]), ..status() };
        // As received over the control socket.
        let now: Status = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        let text = now.text(None);
        let lines: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(lines[1].find("client"), lines[0].find("10.1.2.3:40000"), "{text}");
        for part in ["0.2", "idle", "12.9 GB"] {
            assert!(lines[0].contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_gateway_alone_has_no_hop_to_tell_of() {
        let traffic =
            TrafficStatus { up_bytes: 1_000, down_bytes: 2_000_000, ..Default::default() };
        let connection = ConnectionStatus { wan_rtt_ms: Some(601.5), ..connection() };
        let connections = Some(vec![connection]);
        let now = Status { role: Role::Solo, traffic, connections, ..Default::default() };
        let text = now.text(None);
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
