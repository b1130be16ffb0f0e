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
    MemoryStatus, PolicyStatus, TrafficStatus, UnansweredStatus,
};
use crate::Role;

impl GatewayStatus {
    /// Formats the status in lines. With an earlier status, it includes the rates of the traffic since then.
    pub fn text(&self, before: Option<&Self>) -> String {
        let mut text = self.title();
        self.interception_rows(&mut text);
        self.traffic_rows(&mut text, before);
        self.service_rows(&mut text);
        row(&mut text, "memory", &memory(&self.memory));
        if let Some(loss) = &self.log_loss {
            row(&mut text, "log", &format!("{} lines lost: {}", loss.lines, loss.cause));
        }
        self.hop_rows(&mut text);
        self.process_rows(&mut text);
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

    /// Adds the rows for new connections and the policies that decide on them.
    fn interception_rows(&self, text: &mut String) {
        if let Some(interception) = &self.interception {
            row(text, "new", &interception_row(interception));
            if let Some(UnansweredStatus { clients, suspects }) = &interception.unanswered {
                let passing = format!("{clients} clients pass unaccelerated: {suspects}");
                row(text, "unanswered", &passing);
            }
            interception.shared.iter().for_each(|each| row(text, "shared", &each.to_string()));
            if let Some(refusals) = &interception.refusals {
                row(text, "refusals", &services::refusals(refusals));
            }
        }
        self.policies.iter().for_each(|each| row(text, "policy", &policy(each)));
    }

    /// Adds the rows for the totals of connections.
    fn traffic_rows(&self, text: &mut String, before: Option<&Self>) {
        row(text, "carried", &carried(&self.traffic, self.memory.connections));
        row(text, "moved", &moved(self, before));
        if self.traffic.compression.streams > 0 {
            row(text, "compressed", &compressed(&self.traffic.compression));
        }
    }

    /// Adds the rows for the services that this gateway has.
    fn service_rows(&self, text: &mut String) {
        if let Some(tunnel) = &self.tunnel {
            row(text, "tunnel", &services::packets(tunnel));
        }
        if let Some(stack) = &self.stack {
            row(text, "stack", &services::stack(stack));
        }
        if let Some(dns) = &self.dns {
            row(text, "names", &services::names(dns, self.role));
        }
        if let Some(http) = &self.http {
            row(text, "http", &services::http(http, self.role));
        }
        if let Some(bundles) = &self.bundles {
            row(text, "bundles", &services::bundles(bundles));
        }
    }

    /// Adds the rows for the modem, the demand and a terminal's hubs.
    fn hop_rows(&self, text: &mut String) {
        if let Some(dlep) = &self.dlep {
            row(text, "modem", &services::modem(dlep));
        }
        if let Some(demand) = self.demand.filter(is_on_demand) {
            row(text, "demand", &demand_row(&demand));
        }
        for hub in &self.hubs {
            row(text, "hub", &format!("{} at {}: {}", hub.name, hub.address, hub.state));
            if let (Some(silent), Some(why)) = (hub.silent_s, &hub.why) {
                row(text, "", &format!("no answer for {}: {why}", seconds(silent)));
            }
        }
    }

    /// Adds the rows for the hub's next key, its predecessor and its threads.
    fn process_rows(&self, text: &mut String) {
        if let Some(next) = &self.next_key {
            row(text, "next key", &services::next_key(next));
        }
        if let Some(pid) = self.predecessor {
            row(text, "upgrade", &format!("pid {pid} still carries connections of before"));
        }
        for (number, worker) in (1..).zip(&self.workers) {
            let sessions = worker.sessions;
            let held = bytes(worker.held_bytes);
            row(text, "worker", &format!("{number}: {sessions} sessions, {held} held"));
        }
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
    let PolicyStatus { name, action, connections, packets } = policy;
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
    let pace = |one: Option<BitRate>, other: Option<BitRate>| match (one, other) {
        (Some(one), Some(other)) => format!(" (now {one} and {other})"),
        _ => String::new(),
    };
    let mut parts = Vec::new();
    if now.role != Role::Solo {
        let (onto, onto_pace) = of(|traffic| traffic.to_hop_bytes);
        let (from, from_pace) = of(|traffic| traffic.from_hop_bytes);
        let paces = pace(onto_pace, from_pace);
        parts.push(format!("{onto} onto the hop, {from} from it{paces}"));
    }
    if now.role == Role::Solo || now.traffic.straight > 0 {
        let (up, up_pace) = of(|traffic| traffic.up_bytes);
        let (down, down_pace) = of(|traffic| traffic.down_bytes);
        let paces = pace(up_pace, down_pace);
        parts.push(format!("{up} straight up, {down} down{paces}"));
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
        ("destination", |connection| connection.destination.clone()),
        ("age", |connection| seconds(connection.age_s)),
        (up, |connection| bytes(connection.to_hop_bytes)),
        (down, |connection| bytes(connection.from_hop_bytes)),
        (onto, |connection| connection.to_hop_limit.as_str().to_owned()),
        (off, |connection| connection.from_hop_limit.as_str().to_owned()),
        ("LAN ms", |connection| rtt(connection.lan_rtt_ms)),
    ];
    if alone {
        columns.push(("WAN ms", |connection| rtt(connection.wan_rtt_ms)));
        return columns;
    }
    columns.insert(0, ("peer", |connection| connection.peer.clone()));
    columns.extend([
        ("hop ms", (|connection| format!("{:.0}", connection.hop_rtt_ms)) as CellFormat),
        ("resent", |connection| bytes(connection.resent_bytes)),
        ("restored", |connection| bytes(connection.recovered_bytes)),
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
