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
    AccountStatus, ChannelStatus, ClassStatus, CompressionStatus, GatewayStatus, HubStatus,
    LinkStatus, PolicyStatus, SessionStatus, UsageStatus,
};
use crate::table::{Family, Number, Table};

/// The status at the time of a scrape, and a hub's accounts.
#[derive(Debug)]
pub(super) struct MetricsSnapshot {
    pub(super) status: GatewayStatus,
    pub(super) accounts: Vec<AccountStatus>,
}

type MetricLabels = Vec<(&'static str, String)>;

/// A per-session metric: name, help, value.
type SessionFigure = (&'static str, &'static str, fn(&SessionStatus) -> f64);
type SessionCount = (&'static str, &'static str, fn(&SessionStatus) -> u64);

const FIGURES: &[SessionFigure] = &[
    ("reachable", "1 if the peer answers", |s| f64::from(u8::from(s.reachable))),
    ("over_tcp", "1 while the packets go over TCP, because UDP is blocked", |s| {
        f64::from(u8::from(s.over_tcp))
    }),
    ("age_seconds", "Age of the session", |s| s.since_s),
    ("rtt_seconds", "Smoothed round-trip time of the hop", |s| s.rtt_ms / 1e3),
    ("rate_bits_per_second", "Rate at which this side sends", |s| s.rate_bit_s as f64),
    ("rate_tripped", "1 while losses lower a configured or reported rate", |s| {
        f64::from(u8::from(s.rate_state.as_deref() == Some("tripped")))
    }),
    ("rate_exceeds_link", "1 while the configured or reported rate exceeds the link", |s| {
        f64::from(u8::from(s.overload.is_some()))
    }),
    (
        "carried_bits_per_second",
        "What the link carries of a rate that exceeds it; 0 otherwise",
        |s| s.overload.map_or(0.0, |overload| overload.carries_bit_s as f64),
    ),
    ("capacity_bits_per_second", "Measured capacity of the path; 0 if not measured", |s| {
        s.capacity_bit_s.map_or(0.0, |rate| rate as f64)
    }),
    ("queue_seconds", "Measured queueing delay of the path", |s| s.queue_ms / 1e3),
    ("loss_ratio", "Recent share of packets lost by the link", |s| s.loss),
    ("streams", "Open streams", |s| s.streams as f64),
    ("held_to_send_bytes", "Bytes held until the peer acknowledges them", |s| {
        s.held_to_send_bytes as f64
    }),
    ("held_to_read_bytes", "Bytes held until they are read", |s| s.held_to_read_bytes as f64),
];

const COUNTS: &[SessionCount] = &[
    ("packets_sent", "Packets sent", |s| s.packets_sent),
    ("sent_bytes", "Bytes of IP packets sent", |s| s.bytes_sent),
    ("packets_received", "Packets received", |s| s.packets_received),
    ("received_bytes", "Bytes of IP packets received", |s| s.bytes_received),
    ("packets_lost", "Packets lost on the hop; their contents were sent again", |s| s.packets_lost),
    ("rate_trips", "Times that losses lowered a configured or reported rate", |s| s.trips),
    ("capacity_falls", "Times that the measured capacity has fallen", |s| s.capacity_falls),
    ("packets_recovered", "Packets restored here by FEC", |s| s.recovered),
    ("repairs_sent", "FEC repairs sent", |s| s.repairs_sent),
    ("repair_bytes", "Bytes of IP packets with FEC repairs", |s| s.repair_bytes),
    ("padding_bytes", "Bytes of padding sent to measure the path", |s| s.padding_bytes),
    ("ect_sent", "Packets sent as ECN-capable, ECT(0)", |s| s.ect_sent),
    ("ce_reported", "Packets sent that the path marked with CE", |s| s.ce_reported),
    ("ect_received", "Packets received with ECT(0)", |s| s.ect_received),
    ("ce_received", "Packets received that the path marked with CE", |s| s.ce_received),
    ("repairs_received", "FEC repairs received", |s| s.repairs_received),
    ("acknowledgements", "Acknowledgements sent", |s| s.acknowledgements),
    ("probes", "Probes sent because nothing was acknowledged for too long", |s| s.probes),
    ("duplicates", "Duplicate packets received", |s| s.duplicates),
    ("forged", "Packets that failed authentication", |s| s.forged),
    ("outages", "Times that the peer ceased to answer", |s| s.outages),
    ("key_changes", "Key renewals", |s| s.key_changes),
];

type LinkFigure = (&'static str, &'static str, fn(&LinkStatus) -> f64);
type LinkCount = (&'static str, &'static str, fn(&LinkStatus) -> u64);

const LINK_FIGURES: &[LinkFigure] = &[
    ("works", "1 if packets arrive on the link", |l| f64::from(u8::from(l.works))),
    ("over_tcp", "1 while the link's packets go over TCP, because UDP is blocked on it", |l| {
        f64::from(u8::from(l.over_tcp))
    }),
    ("rtt_seconds", "Smoothed round-trip time of the link", |l| l.rtt_ms / 1e3),
    ("rate_bits_per_second", "Rate at which this side sends on the link", |l| l.rate_bit_s as f64),
    ("loss_ratio", "Recent share of packets lost on the link", |l| l.loss),
];

const LINK_COUNTS: &[LinkCount] = &[
    ("sent_bytes", "Bytes of IP packets sent on the link", |l| l.sent_bytes),
    ("received_bytes", "Bytes of IP packets received on the link", |l| l.received_bytes),
    ("packets_lost", "Packets lost on the link; their contents were sent again", |l| {
        l.packets_lost
    }),
];

type ClassCount = (&'static str, &'static str, fn(&ClassStatus) -> u64);
type ChannelCount = (&'static str, &'static str, fn(&ChannelStatus) -> u64);

const CLASS_COUNTS: &[ClassCount] = &[
    ("sent_bytes", "Bytes of IP packets on the hop with new data", |c| c.sent_bytes),
    ("guaranteed_sent_bytes", "The part of sent_bytes that the guaranteed rate covered", |c| {
        c.guaranteed_sent_bytes
    }),
];

const CHANNEL_COUNTS: &[ChannelCount] = &[
    ("packets_sent", "Packets sent, without retransmissions", |c| c.packets_sent),
    ("sent_bytes", "Bytes of packets sent", |c| c.sent_bytes),
    ("compressed", "Packets sent without the headers that the peer knows", |c| c.compressed),
    ("header_saved_bytes", "Bytes of headers that were not sent", |c| c.header_saved_bytes),
    ("retransmitted", "Packets, or parts, retransmitted", |c| c.retransmitted),
    ("lost", "Packets, or parts, lost and not retransmitted", |c| c.lost),
    ("dropped_full", "Packets dropped because the queue was full", |c| c.dropped_full),
    ("dropped_aqm", "Packets dropped by CoDel", |c| c.dropped_aqm),
    ("expired", "Packets dropped because they had waited too long", |c| c.expired),
    ("packets_received", "Packets received and delivered", |c| c.packets_received),
    ("received_bytes", "Bytes of packets received", |c| c.received_bytes),
    ("recovered", "Packets, or parts, restored here by FEC", |c| c.recovered),
    ("missing", "Packets given up as missing", |c| c.missing),
    ("late", "Packets that arrived twice or too late", |c| c.late),
];

impl Collector for MetricsSnapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = FamilyEncoder(encoder);
        general(&self.status, &mut families)?;
        connections(&self.status, &mut families)?;
        bypass(&self.status, &mut families)?;
        policies(&self.status, &mut families)?;
        hubs(&self.status, &mut families)?;
        families.table(&self.status.tunnel)?;
        stack(&self.status, &mut families)?;
        families.table(&self.status.dns)?;
        families.table(&self.status.http)?;
        families.table(&self.status.bundles)?;
        bounds(&self.status, &mut families)?;
        modem(&self.status, &mut families)?;
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
    fn table<S: Table>(&mut self, part: &Option<S>) -> fmt::Result {
        let Some(part) = part else { return Ok(()) };
        let mut families: Vec<Family> = Vec::new();
        for figure in S::FIGURES {
            if !families.contains(&figure.metric.family) {
                families.push(figure.metric.family);
            }
        }
        for family in families {
            let figures = S::FIGURES.iter().filter(|figure| figure.metric.family == family);
            let numbers: Vec<_> =
                figures.map(|figure| (figure.metric.value, (figure.number)(part))).collect();
            self.family(&family, &numbers)?;
        }
        Ok(())
    }

    /// Encodes the metrics of a family, each with the value of its label.
    fn family(&mut self, family: &Family, numbers: &[(&str, Number)]) -> fmt::Result {
        let Family { name, help, label: name_of_label, is_counter } = *family;
        match (name_of_label, numbers) {
            (Some(of), _) => {
                let rows = numbers.iter().map(|(value, number)| (label(of, value), number.count()));
                self.counter(name, help, &rows.collect::<Vec<_>>())
            }
            (None, [(_, number), ..]) if is_counter => self.total(name, help, number.count()),
            (None, [(_, number), ..]) => self.one(name, help, number.measure()),
            (None, []) => Ok(()),
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
    let rows = |count: fn(&PolicyStatus) -> u64| {
        let labels = |policy: &PolicyStatus| {
            vec![("policy", policy.name.clone()), ("action", policy.action.clone())]
        };
        let row = |policy| (labels(policy), count(policy));
        status.policies.iter().map(row).collect::<Vec<_>>()
    };
    let connections = rows(|policy| policy.connections);
    families.counter("skyhop_policy_connections", "SYNs that a policy decided", &connections)?;
    let packets = rows(|policy| policy.packets);
    families.counter("skyhop_policy_packets", "Other packets that a policy decided", &packets)
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

fn stack(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let Some(stack) = &status.stack else { return Ok(()) };
    let kinds = [
        ("opened", stack.opened),
        ("accepted", stack.accepted),
        ("snack", stack.snack),
        ("sack", stack.sack),
    ];
    let rows = kinds.map(|(kind, count)| (label("kind", kind), count));
    let help = "Connections of our own TCP: who opened them, and what their ends have agreed on";
    families.counter("skyhop_stack_connections", help, &rows)?;
    let help = "Segments retransmitted by connections of our own TCP that are over";
    families.total("skyhop_stack_retransmissions", help, stack.retransmissions)?;
    let help = "SYNs ignored because our own TCP had too many connections";
    families.total("skyhop_stack_ignored", help, stack.ignored)
}

fn bounds(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let memory = &status.memory;
    for (name, help, value) in [
        ("skyhop_held_bytes", "Bytes held for streams and in pipes", memory.held_bytes),
        (
            "skyhop_held_limit_bytes",
            "Held bytes above which no new connection is carried",
            memory.limit_bytes,
        ),
        ("skyhop_resident_bytes", "Resident memory of the process", memory.resident_bytes),
        ("skyhop_connections_limit", "Limit of connections", memory.connections_limit),
        ("skyhop_descriptors", "Open descriptors", memory.descriptors),
        ("skyhop_descriptors_limit", "Limit of open descriptors", memory.descriptors_limit),
    ] {
        families.one(name, help, value as f64)?;
    }
    Ok(())
}

fn modem(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let Some(dlep) = &status.dlep else { return Ok(()) };
    let up = f64::from(u8::from(dlep.state == "up"));
    families.one("skyhop_dlep_up", "1 if the modem reports its rate", up)?;
    let rate = dlep.rate_bit_s.unwrap_or(0) as f64;
    families.one("skyhop_dlep_rate_bits_per_second", "Session-wide rate of the modem", rate)?;
    let reachable = dlep.destinations.iter().filter(|destination| destination.up).count();
    families.one(
        "skyhop_dlep_destinations",
        "Destinations of the modem that are up",
        reachable as f64,
    )?;
    families.total("skyhop_dlep_sessions", "DLEP sessions with a modem", dlep.sessions)
}

fn sessions(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    families.one("skyhop_sessions", "Sessions that are up", status.sessions.len() as f64)?;
    let sessions = || status.sessions.iter().map(|session| (label("peer", &session.peer), session));
    for (name, help, figure) in FIGURES {
        let rows: Vec<_> = sessions().map(|(labels, session)| (labels, figure(session))).collect();
        families.gauge(&format!("skyhop_session_{name}"), help, &rows)?;
    }
    for (name, help, count) in COUNTS {
        let rows: Vec<_> = sessions().map(|(labels, session)| (labels, count(session))).collect();
        families.counter(&format!("skyhop_session_{name}"), help, &rows)?;
    }
    Ok(())
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

/// A direction, and the traffic in it.
type UsageCount = (&'static str, fn(&UsageStatus) -> u64);

/// Traffic of the terminals, and their quotas. A terminal that is no longer permitted goes by its
/// key.
fn accounts(accounts: &[AccountStatus], families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let rows = |counts: [UsageCount; 2]| -> Vec<(MetricLabels, u64)> {
        let directions = move |(labels, usage): (MetricLabels, &UsageStatus)| {
            counts.map(|(direction, count)| {
                ([&labels[..], &[("direction", direction.to_owned())]].concat(), count(usage))
            })
        };
        used(accounts).flat_map(directions).collect()
    };
    let bytes = rows([("to", |usage| usage.bytes_to), ("from", |usage| usage.bytes_from)]);
    let help = "Bytes of connections and packets to and from terminals, since their accounts began";
    families.counter("skyhop_account_bytes", help, &bytes)?;
    let packets = rows([("to", |usage| usage.packets_to), ("from", |usage| usage.packets_from)]);
    let help = "Packets carried whole to and from terminals";
    families.counter("skyhop_account_packets", help, &packets)?;
    let connections: Vec<_> =
        used(accounts).map(|(labels, usage)| (labels, usage.connections)).collect();
    families.counter("skyhop_account_connections", "Connections of terminals", &connections)?;
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
    let rows = |count: fn(&ClassStatus) -> u64| {
        let all = status.sessions.iter().flat_map(|session| {
            session.classes.iter().map(move |class| {
                (vec![("peer", session.peer.clone()), ("class", class.name.clone())], count(class))
            })
        });
        all.collect::<Vec<_>>()
    };
    for (name, help, count) in CLASS_COUNTS {
        families.counter(&format!("skyhop_class_{name}"), help, &rows(*count))?;
    }
    let waiting = rows(|class| class.waiting_bytes);
    let waiting: Vec<_> =
        waiting.into_iter().map(|(labels, bytes)| (labels, bytes as f64)).collect();
    families.gauge("skyhop_class_waiting_bytes", "Bytes waiting in the class", &waiting)
}

fn links(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let all = || {
        let of = |session: &'_ SessionStatus| {
            let labels =
                |link: &str| vec![("peer", session.peer.clone()), ("link", link.to_owned())];
            let links = session.links.clone().into_iter();
            links.map(|link| (labels(&link.name), link)).collect::<Vec<_>>()
        };
        status.sessions.iter().flat_map(of)
    };
    for (name, help, figure) in LINK_FIGURES {
        let rows: Vec<_> = all().map(|(labels, link)| (labels, figure(&link))).collect();
        families.gauge(&format!("skyhop_link_{name}"), help, &rows)?;
    }
    for (name, help, count) in LINK_COUNTS {
        let rows: Vec<_> = all().map(|(labels, link)| (labels, count(&link))).collect();
        families.counter(&format!("skyhop_link_{name}"), help, &rows)?;
    }
    Ok(())
}

/// Channels are labelled with the class that this side sends on them, if any.
fn channels(status: &GatewayStatus, families: &mut FamilyEncoder<'_>) -> fmt::Result {
    let all = || {
        let of = |session| session_channels(session);
        status.sessions.iter().flat_map(of).collect::<Vec<_>>()
    };
    for (name, help, count) in CHANNEL_COUNTS {
        let row = |(labels, channel)| (labels, count(channel));
        let rows: Vec<_> = all().into_iter().map(row).collect();
        families.counter(&format!("skyhop_channel_{name}"), help, &rows)?;
    }
    let waiting = |(labels, channel): (_, &ChannelStatus)| (labels, channel.waiting_bytes as f64);
    let rows: Vec<_> = all().into_iter().map(waiting).collect();
    families.gauge("skyhop_channel_waiting_bytes", "Bytes waiting to be sent", &rows)?;
    let queueing = |(labels, channel): (_, &ChannelStatus)| (labels, channel.queue_ms / 1e3);
    let rows: Vec<_> = all().into_iter().map(queueing).collect();
    families.gauge("skyhop_channel_queue_seconds", "Queueing time of the last packet", &rows)
}

fn session_channels(
    session: &SessionStatus,
) -> impl Iterator<Item = (MetricLabels, &ChannelStatus)> {
    session.channels.iter().map(|channel| {
        let class = channel.class.clone().unwrap_or_default();
        let labels = vec![
            ("peer", session.peer.clone()),
            ("channel", channel.channel.to_string()),
            ("class", class),
        ];
        (labels, channel)
    })
}
