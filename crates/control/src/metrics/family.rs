//! Converts a status to metric families.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::Role;
use crate::status::{
    AccountStatus, ChannelStatus, CompressionStatus, GatewayStatus, HubStatus, SessionStatus,
    UsageStatus,
};
use crate::table::{Family, Number, Table};

/// The status at the time of a scrape, and a hub's accounts.
#[derive(Debug)]
pub(super) struct MetricsSnapshot {
    pub(super) status: GatewayStatus,
    pub(super) accounts: Vec<AccountStatus>,
}

type MetricLabels = Vec<(&'static str, String)>;

impl Collector for MetricsSnapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = FamilyEncoder(encoder);
        general(&self.status, &mut families)?;
        connections(&self.status, &mut families)?;
        bypass(&self.status, &mut families)?;
        policies(&self.status, &mut families)?;
        hubs(&self.status, &mut families)?;
        families.table(self.status.tunnel.as_ref())?;
        families.table(self.status.stack.as_ref())?;
        families.table(self.status.dns.as_ref())?;
        families.table(self.status.http.as_ref())?;
        families.table(self.status.bundles.as_ref())?;
        families.table(Some(&self.status.memory))?;
        families.table(self.status.dlep.as_ref())?;
        sessions(&self.status, &mut families)?;
        terminals(&self.status, &mut families)?;
        classes(&self.status, &mut families)?;
        links(&self.status, &mut families)?;
        channels(&self.status, &mut families)?;
        accounts(&self.accounts, &mut families)
    }
}

struct FamilyEncoder<'e>(DescriptorEncoder<'e>);

impl FamilyEncoder<'_> {
    fn gauge(&mut self, name: &str, help: &str, rows: &[(MetricLabels, f64)]) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            ConstGauge::new(*value).encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn seconds(&mut self, name: &str, help: &str, rows: &[(MetricLabels, f64)]) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            ConstCounter::new(*value).encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, rows: &[(MetricLabels, u64)]) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            ConstCounter::new(*value).encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    /// Encodes the figures of a part of the status, if it is there. The rows of a family come together.
    fn table<S: Table>(&mut self, part: Option<&S>) -> fmt::Result {
        let Some(part) = part else { return Ok(()) };
        for family in S::families() {
            let rows = rows(&family, &[(Vec::new(), part)]);
            match (family.label, &rows[..]) {
                (None, [(_, number)]) => self.single(&family, *number)?,
                _ => self.family(&family, rows)?,
            }
        }
        Ok(())
    }

    /// Encodes the figures of parts that a gateway may have several of, each with its labels. Families for
    /// which `is_first` holds precede the others.
    fn tables<S: Table>(
        &mut self,
        parts: &[(MetricLabels, &S)],
        is_first: fn(&Family) -> bool,
    ) -> fmt::Result {
        let mut families = S::families();
        families.sort_by_key(|family| !is_first(family));
        families.iter().try_for_each(|family| self.family(family, rows(family, parts)))
    }

    fn family(&mut self, family: &Family, rows: Vec<(MetricLabels, Number)>) -> fmt::Result {
        let Family { name, help, is_counter, .. } = *family;
        let rows = rows.into_iter();
        if is_counter {
            let rows = rows.map(|(labels, number)| (labels, number.count()));
            self.counter(name, help, &rows.collect::<Vec<_>>())
        } else {
            let rows = rows.map(|(labels, number)| (labels, number.measure()));
            self.gauge(name, help, &rows.collect::<Vec<_>>())
        }
    }

    fn single(&mut self, family: &Family, number: Number) -> fmt::Result {
        match family.is_counter {
            true => self.total(family.name, family.help, number.count()),
            false => self.one(family.name, family.help, number.measure()),
        }
    }

    /// Encodes a counter without labels.
    fn total(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    /// Encodes a gauge without labels.
    fn one(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }
}

/// The metrics of a family in each of these parts, labelled as the part, and with the family's own label.
fn rows<S: Table>(family: &Family, parts: &[(MetricLabels, &S)]) -> Vec<(MetricLabels, Number)> {
    let mut rows = Vec::new();
    for (labels, part) in parts {
        for figure in S::FIGURES.iter().filter(|figure| figure.metric.family == *family) {
            let own = family.label.map(|name| (name, figure.metric.value.to_owned()));
            rows.push((labels.iter().cloned().chain(own).collect(), (figure.number)(part)));
        }
    }
    rows
}

fn label(name: &'static str, value: &str) -> MetricLabels {
    vec![(name, value.to_owned())]
}

fn general(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let mut labels = label("role", status.role.as_str());
    labels.push(("version", status.version.clone()));
    families.gauge("skyhop_info", "Role and version of the gateway", &[(labels, 1.0)])?;
    families.one("skyhop_uptime_seconds", "Time since the gateway started", status.uptime_s)?;
    let lost = status.log_loss.as_ref().map_or(0, |loss| loss.lines);
    let help = "Lines of the log that could not be written";
    families.total("skyhop_log_lines_lost", help, lost)?;
    let draining = f64::from(u8::from(status.draining_s.is_some()));
    families.one("skyhop_draining", "1 if the gateway is draining", draining)
}

fn compression(done: &CompressionStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let sides = [
        ("to_hop", "plain", done.to_hop_bytes),
        ("to_hop", "compressed", done.sent_bytes),
        ("from_hop", "plain", done.from_hop_bytes),
        ("from_hop", "compressed", done.received_bytes),
    ];
    let row = |(direction, form, bytes)| {
        ([label("direction", direction), label("form", form)].concat(), bytes)
    };
    let help = "Bytes of streams that are compressed where it pays, before and after";
    families.counter("skyhop_compression_bytes", help, &sides.map(row))
}

fn connections(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let traffic = &status.traffic;
    families.one("skyhop_connections", "Open connections", status.memory.connections as f64)?;
    let help = "Connections carried, from both sides";
    families.total("skyhop_connections_carried", help, traffic.connections)?;
    let outcomes =
        [("closed", traffic.closed), ("reset", traffic.reset), ("failed", traffic.failed)];
    let rows = outcomes.map(|(outcome, count)| (label("outcome", outcome), count));
    families.counter("skyhop_connections_ended", "Connections ended, by outcome", &rows)?;
    let resets: Vec<_> =
        traffic.resets.iter().map(|(reason, count)| (label("reason", reason), *count)).collect();
    families.counter("skyhop_connections_reset", "Connections reset, by reason", &resets)?;
    let directions = [
        ("to_hop", traffic.to_hop_bytes),
        ("from_hop", traffic.from_hop_bytes),
        ("up", traffic.up_bytes),
        ("down", traffic.down_bytes),
    ];
    let rows = directions.map(|(direction, bytes)| (label("direction", direction), bytes));
    let help = "Bytes of TCP connections; up and down are to and from servers without the hop";
    families.counter("skyhop_relayed_bytes", help, &rows)?;
    compression(&traffic.compression, families)?;
    let help = "Urgent marks received, which are not passed on";
    families.total("skyhop_urgent", help, traffic.urgent)?;
    let help = "Times that two machines used one key";
    families.total("skyhop_shared_keys", help, traffic.shared_keys)?;
    let datagrams = [
        ("sent", traffic.datagrams_sent),
        ("received", traffic.datagrams_received),
        ("ignored", traffic.datagrams_ignored),
        ("too_large", traffic.datagrams_too_large),
        ("error", traffic.socket_errors),
    ];
    let rows = datagrams.map(|(fate, count)| (label("fate", fate), count));
    families.counter("skyhop_datagrams", "Datagrams of the hop's UDP socket", &rows)
}

fn bypass(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let Some(interception) = &status.interception else { return Ok(()) };
    let on = f64::from(u8::from(interception.on));
    families.one("skyhop_interception_on", "1 if new connections are intercepted", on)?;
    let unanswered = interception.unanswered.as_ref().map_or(0, |unanswered| unanswered.clients);
    families.one(
        "skyhop_unanswered_clients",
        "Clients that pass unaccelerated because their redirected SYNs were never answered",
        unanswered as f64,
    )?;
    families.table(interception.refusals.as_ref())?;
    let reason = |why: pep::admission::BypassReason| label("reason", why.as_str());
    let rows: Vec<_> =
        interception.bypassed.iter().map(|row| (reason(row.why), row.total_s)).collect();
    families.seconds(
        "skyhop_bypass_seconds",
        "Time that new connections bypassed the gateway",
        &rows,
    )?;
    let rows: Vec<_> =
        interception.bypassed.iter().map(|row| (reason(row.why), row.times)).collect();
    families.counter(
        "skyhop_bypasses",
        "Times that new connections began to bypass the gateway",
        &rows,
    )
}

fn policies(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let rows = status.policies.iter().map(|policy| {
        (vec![("policy", policy.name.clone()), ("action", policy.action.clone())], policy)
    });
    families.tables(&rows.collect::<Vec<_>>(), |family| family.is_counter)
}

fn hubs(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    // A single hub counts as in use even while it does not answer, which `skyhop_sessions` shows.
    if status.hubs.len() < 2 {
        return Ok(());
    }
    let row = |hub: &HubStatus| {
        (vec![("hub", hub.name.clone()), ("state", hub.state.replace(' ', "-"))], 1.0)
    };
    let rows: Vec<_> = status.hubs.iter().map(row).collect();
    families.gauge("skyhop_hub_state", "1 for the state of each hub of a terminal", &rows)
}

fn sessions(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    families.one("skyhop_sessions", "Sessions that are up", status.sessions.len() as f64)?;
    let rows = status.sessions.iter().map(|session| (label("peer", &session.peer), session));
    families.tables(&rows.collect::<Vec<_>>(), |family| !family.is_counter)
}

/// A hub's terminals, with and without a session, and unknown machines.
fn terminals(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let connected = status.sessions.iter().filter(|_| status.role == Role::Hub);
    let connected = connected.map(|session| (label("peer", &session.peer), 1.0));
    let absent = status.absent.iter().map(|terminal| (label("peer", &terminal.peer), 0.0));
    // Prometheus rejects a series that occurs twice. A terminal in both lists counts as connected.
    let rows: BTreeMap<MetricLabels, f64> = absent.chain(connected).collect();
    let rows: Vec<_> = rows.into_iter().collect();
    let help = "On a hub: 1 if the permitted terminal has a session";
    families.gauge("skyhop_terminal_connected", help, &rows)?;
    let heard = status.absent.iter().filter_map(|terminal| {
        Some((label("peer", &terminal.peer), terminal.last_heard_unix_s? as f64))
    });
    let name = "skyhop_terminal_last_heard_timestamp_seconds";
    let help = "On a hub: when a terminal without a session was last heard";
    families.gauge(name, help, &heard.collect::<Vec<_>>())?;
    let help = "Machines that asked for a session within the last hour and were refused";
    families.one("skyhop_refused_terminals", help, status.strangers.len() as f64)
}

/// Traffic of the terminals, and their quotas. A terminal that is no longer permitted goes by its
/// key.
fn accounts(accounts: &[AccountStatus], families: &mut FamilyEncoder<'_>) -> fmt::Result {
    families.tables(&used(accounts).collect::<Vec<_>>(), |family| family.is_counter)?;
    let quotas = |figure: fn(&AccountStatus) -> Option<u64>| -> Vec<(MetricLabels, f64)> {
        let row = |account: &AccountStatus| {
            Some((label("terminal", display_name(account)), figure(account)? as f64))
        };
        accounts.iter().filter_map(row).collect()
    };
    let quota = quotas(|account| account.quota_bytes);
    families.gauge("skyhop_account_quota_bytes", "Volume of the quota per period", &quota)?;
    let used = quotas(|account| account.quota_used_bytes);
    families.gauge("skyhop_account_quota_used_bytes", "Volume used in this period", &used)?;
    let over = quotas(|account| account.quota_bytes.map(|_| account.exhausted.is_some().into()));
    families.gauge("skyhop_account_quota_exhausted", "1 if the quota is used up", &over)
}

/// Traffic of each terminal in each class.
fn used(accounts: &[AccountStatus]) -> impl Iterator<Item = (MetricLabels, &UsageStatus)> {
    accounts.iter().flat_map(|account| {
        account.classes.iter().map(move |(class, usage)| {
            (vec![("terminal", display_name(account).to_owned()), ("class", class.clone())], usage)
        })
    })
}

fn display_name(account: &AccountStatus) -> &str {
    if account.terminal.is_empty() { &account.key } else { &account.terminal }
}

fn classes(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let rows = parts_of(status, |session| &session.classes, |class| label("class", &class.name));
    families.tables(&rows, |family| family.is_counter)
}

fn links(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let rows = parts_of(status, |session| &session.links, |link| label("link", &link.name));
    families.tables(&rows, |family| !family.is_counter)
}

/// Channels are labelled with the class that this side sends on them, if any.
fn channels(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let labels = |channel: &ChannelStatus| {
        let class = channel.class.clone().unwrap_or_default();
        vec![("channel", channel.channel.to_string()), ("class", class)]
    };
    let rows = parts_of(status, |session| &session.channels, labels);
    families.tables(&rows, |family| family.is_counter)
}

/// Parts of all sessions, labelled with the peer and `labels`.
fn parts_of<S>(
    status: &GatewayStatus,
    parts: fn(&SessionStatus) -> &[S],
    labels: impl Fn(&S) -> MetricLabels,
) -> Vec<(MetricLabels, &S)> {
    let labels =
        |session: &SessionStatus, part| [label("peer", &session.peer), labels(part)].concat();
    let all = status
        .sessions
        .iter()
        .flat_map(|session| parts(session).iter().map(move |part| (session, part)));
    all.map(|(session, part)| (labels(session, part), part)).collect()
}
