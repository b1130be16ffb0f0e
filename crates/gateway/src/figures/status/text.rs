//! Formatting of a gateway's status as text.

mod services;
mod sessions;
mod terminals;

use std::fmt::Write as _;
use std::time::Duration;

use report::{TableColumn, TextTable};
use units::{BitRate, ByteCount, format_duration};

use super::{
    CompressionStatus, ConnectionStatus, DemandStatus, GatewayStatus, InterceptionStatus,
    MemoryStatus, PolicyStatus, Role, TrafficStatus, UnansweredStatus,
};

impl GatewayStatus {
    /// Formats the status in lines. With an earlier status, it includes the rates of the traffic since then.
    pub fn text(&self, before: Option<&Self>) -> String {
        let mut text = self.title();
        if let Some(interception) = &self.interception {
            row(&mut text, "new", &interception_row(interception));
            if let Some(UnansweredStatus { clients, suspects }) = &interception.unanswered {
                let told = format!("{clients} clients pass unaccelerated: {suspects}");
                row(&mut text, "unanswered", &told);
            }
        }
        self.policies.iter().for_each(|each| row(&mut text, "policy", &policy(each)));
        row(&mut text, "carried", &carried(&self.traffic, self.memory.connections));
        row(&mut text, "moved", &moved(self, before));
        if self.traffic.compression.streams > 0 {
            row(&mut text, "compressed", &compressed(&self.traffic.compression));
        }
        if let Some(tunnel) = &self.tunnel {
            row(&mut text, "tunnel", &services::packets(tunnel));
        }
        if let Some(stack) = &self.stack {
            row(&mut text, "stack", &services::stack(stack));
        }
        if let Some(dns) = &self.dns {
            row(&mut text, "names", &services::names(dns, self.role));
        }
        if let Some(http) = &self.http {
            row(&mut text, "http", &services::http(http, self.role));
        }
        if let Some(bundles) = &self.bundles {
            row(&mut text, "bundles", &services::bundles(bundles));
        }
        row(&mut text, "memory", &memory(&self.memory));
        if let Some(loss) = &self.log_loss {
            row(&mut text, "log", &format!("{} lines lost: {}", loss.lines, loss.cause));
        }
        if let Some(dlep) = &self.dlep {
            row(&mut text, "modem", &services::modem(dlep));
        }
        if let Some(demand) = self.demand.filter(is_on_demand) {
            row(&mut text, "demand", &demand_row(&demand));
        }
        for hub in &self.hubs {
            row(&mut text, "hub", &format!("{} at {}: {}", hub.name, hub.address, hub.state));
            if let (Some(silent), Some(why)) = (hub.silent_s, &hub.why) {
                row(&mut text, "", &format!("no answer for {}: {why}", seconds(silent)));
            }
        }
        if let Some(next) = &self.next_key {
            row(&mut text, "next key", &services::next_key(next));
        }
        if let Some(pid) = self.predecessor {
            row(&mut text, "upgrade", &format!("pid {pid} still carries connections of before"));
        }
        for (number, worker) in (1..).zip(&self.workers) {
            let (sessions, held) = (worker.sessions, bytes(worker.held_bytes));
            row(&mut text, "worker", &format!("{number}: {sessions} sessions, {held} held"));
        }
        if self.sessions.is_empty() && self.role != Role::Solo {
            row(&mut text, "session", "none");
        }
        self.sessions.iter().for_each(|session| sessions::rows(&mut text, session));
        terminals::rows(&mut text, &self.absent, &self.strangers);
        if let Some(connections) = &self.connections {
            text += &connection_table(connections, self.role);
        }
        text
    }

    fn title(&self) -> String {
        format!(
            "{} {}{}, pid {}, up {}{}\n",
            self.role.as_str(),
            if self.host.is_empty() { String::new() } else { format!("on {}, ", self.host) },
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

/// Describes whether new connections are intercepted, and since when.
fn interception_row(interception: &InterceptionStatus) -> String {
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

/// Formats traffic totals, and the rates since `before`.
fn moved(now: &GatewayStatus, before: Option<&GatewayStatus>) -> String {
    // Two statuses may be of the same moment.
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

/// Formats the totals of compressed streams.
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

/// Returns whether there are forecasts. Without them, the rows of the classes already show the demand.
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

/// Formats a cell of the table of connections.
type CellFormat = fn(&ConnectionStatus) -> String;

fn connection_table(connections: &[ConnectionStatus], role: Role) -> String {
    let columns = columns(role);
    let names = columns.iter().map(|(name, _)| TableColumn::left(name));
    let mut table = TextTable::new(names).indent(2);
    for connection in connections {
        table.row(columns.iter().map(|(_, cell)| cell(connection)));
    }
    table.to_string()
}

/// Returns the columns of the table of connections. A solo gateway has none for hop and peer.
fn columns(role: Role) -> Vec<(&'static str, CellFormat)> {
    let alone = role == Role::Solo;
    let (up, down) = if alone { ("up", "down") } else { ("to hop", "from hop") };
    // Named by direction relative to the hop: a hub sends the download of a terminal's client to the hop,
    // so "up" and "down" would be ambiguous.
    let (onto, off) =
        if alone { ("up limited by", "down by") } else { ("to hop limited by", "from by") };
    let mut columns: Vec<(&str, CellFormat)> = vec![
        ("client", client),
        ("destination", |it| it.destination.clone()),
        ("age", |it| seconds(it.age_s)),
        (up, |it| bytes(it.to_hop_bytes)),
        (down, |it| bytes(it.from_hop_bytes)),
        (onto, |it| it.to_hop_limit.as_str().to_owned()),
        (off, |it| it.from_hop_limit.as_str().to_owned()),
        ("LAN ms", |it| rtt(it.lan_rtt_ms)),
    ];
    if alone {
        columns.push(("WAN ms", |it| rtt(it.wan_rtt_ms)));
        return columns;
    }
    columns.insert(0, ("peer", |it| it.peer.clone()));
    columns.extend([
        ("hop ms", (|it| format!("{:.0}", it.hop_rtt_ms)) as CellFormat),
        ("resent", |it| bytes(it.resent_bytes)),
        ("restored", |it| bytes(it.recovered_bytes)),
    ]);
    columns
}

/// Formats the client's address, with a mark if it is only claimed by the peer.
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
mod tests;
