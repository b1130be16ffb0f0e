//! Converts a status to metric families.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::Role;
use crate::status::{
    AccountStatus, BypassStatus, ChannelStatus, ClassStatus, GatewayStatus, HubStatus, LinkStatus,
    SessionStatus, UsageStatus,
};
use crate::table::{Family, Figure, Metric, Number, Table, counter, families, gauge};

/// The status at the time of a scrape, and a hub's accounts.
#[derive(Debug)]
pub(super) struct MetricsSnapshot {
    pub(super) status: GatewayStatus,
    pub(super) accounts: Vec<AccountStatus>,
}

type MetricLabels = Vec<(&'static str, String)>;

impl Collector for MetricsSnapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.status;
        let mut samples = MetricSamples::default();
        general(status, &mut samples);
        interception(status, &mut samples);
        hubs(status, &mut samples);
        samples.add_part(status.tunnel.as_ref());
        samples.add_part(status.stack.as_ref());
        samples.add_part(status.dns.as_ref());
        samples.add_part(status.http.as_ref());
        samples.add_part(status.bundles.as_ref());
        samples.add_part(Some(&status.memory));
        samples.add_part(status.dlep.as_ref());
        samples.add_parts(status.sessions.iter().map(|each| (label("peer", &each.peer), each)));
        terminals(status, &mut samples);
        let class = |class: &ClassStatus| label("class", &class.name);
        samples.add_parts(parts_of(status, |session| &session.classes, class));
        let link = |link: &LinkStatus| label("link", &link.name);
        samples.add_parts(parts_of(status, |session| &session.links, link));
        samples.add_parts(parts_of(status, |session| &session.channels, channel));
        samples.add_parts(used(&self.accounts));
        samples.add_parts(quotas(&self.accounts));
        samples.encode(&mut encoder)
    }
}

/// The metrics of a scrape, and the samples of each family by its name.
#[derive(Default)]
struct MetricSamples {
    metrics: Vec<Metric>,
    samples: BTreeMap<&'static str, Vec<(MetricLabels, Number)>>,
}

impl MetricSamples {
    /// Adds a metric that no table has, with a sample for each of these labels.
    fn add<N: Into<Number>>(
        &mut self,
        metric: Metric,
        samples: impl IntoIterator<Item = (MetricLabels, N)>,
    ) {
        self.metrics.push(metric);
        let samples = samples.into_iter().map(|(labels, number)| (labels, number.into()));
        self.samples.entry(metric.family.name).or_default().extend(samples);
    }

    /// Adds the figures of a part of the status, if it is there.
    fn add_part<S: Table>(&mut self, part: Option<&S>) {
        if let Some(part) = part {
            self.add_parts([(Vec::new(), part)]);
        }
    }

    /// Adds the figures of parts that a gateway may have several of, each with its labels. The samples of a
    /// family come together.
    fn add_parts<'s, S: Table>(&mut self, parts: impl IntoIterator<Item = (MetricLabels, &'s S)>) {
        self.metrics.extend(S::FIGURES.iter().map(|figure| figure.metric));
        for (labels, part) in parts {
            for Figure { metric, number } in S::FIGURES {
                let labels = labels.iter().cloned().chain(metric.labels()).collect();
                let samples = self.samples.entry(metric.family.name).or_default();
                samples.push((labels, number(part)));
            }
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, is_counter, .. } in families(&self.metrics) {
            let kind = if is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut encoder = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, number) in self.samples.get(name).into_iter().flatten() {
                if labels.is_empty() {
                    // No labels would be written as `{}`, and there is no other sample.
                    encode(*number, is_counter, encoder)?;
                    break;
                }
                encode(*number, is_counter, encoder.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode(number: Number, is_counter: bool, encoder: MetricEncoder<'_>) -> fmt::Result {
    match number {
        Number::Unknown => Ok(()),
        Number::Count(count) if is_counter => ConstCounter::new(count).encode(encoder),
        Number::Measure(measure) if is_counter => ConstCounter::new(measure).encode(encoder),
        number => ConstGauge::new(number.measure()).encode(encoder),
    }
}

fn label(name: &'static str, value: &str) -> MetricLabels {
    vec![(name, value.to_owned())]
}

fn general(status: &GatewayStatus, samples: &mut MetricSamples) {
    let labels = [label("role", status.role.as_str()), label("version", &status.version)].concat();
    samples.add(gauge("skyhop_info", "Role and version of the gateway"), [(labels, 1_u64)]);
    samples.add_part(Some(status));
    samples.add_part(Some(&status.traffic));
    let resets = status.traffic.resets.iter();
    samples.add(
        counter("skyhop_connections_reset", "Connections reset, by reason")
            .before("skyhop_relayed_bytes"),
        resets.map(|(reason, count)| (label("reason", reason), *count)),
    );
    samples.add_part(Some(&status.traffic.compression));
}

fn interception(status: &GatewayStatus, samples: &mut MetricSamples) {
    if let Some(interception) = &status.interception {
        samples.add_part(Some(interception));
        samples.add_part(interception.refusals.as_ref());
        let reason = |row: &BypassStatus| label("reason", row.why.as_str());
        samples.add(
            counter("skyhop_bypass_seconds", "Time that new connections bypassed the gateway"),
            interception.bypassed.iter().map(|row| (reason(row), row.total_s)),
        );
        samples.add(
            counter("skyhop_bypasses", "Times that new connections began to bypass the gateway"),
            interception.bypassed.iter().map(|row| (reason(row), row.times)),
        );
    }
    samples.add_parts(status.policies.iter().map(|policy| {
        ([label("policy", &policy.name), label("action", &policy.action)].concat(), policy)
    }));
}

fn hubs(status: &GatewayStatus, samples: &mut MetricSamples) {
    // A single hub counts as in use even while it does not answer, which `skyhop_sessions` shows.
    if status.hubs.len() < 2 {
        return;
    }
    let row = |hub: &HubStatus| {
        (vec![("hub", hub.name.clone()), ("state", hub.state.replace(' ', "-"))], 1_u64)
    };
    let metric = gauge("skyhop_hub_state", "1 for the state of each hub of a terminal");
    samples.add(metric, status.hubs.iter().map(row));
}

/// A hub's terminals, with and without a session.
fn terminals(status: &GatewayStatus, samples: &mut MetricSamples) {
    let connected = status.sessions.iter().filter(|_| status.role == Role::Hub);
    let connected = connected.map(|session| (label("peer", &session.peer), 1));
    let absent = || status.absent.iter().map(|terminal| (label("peer", &terminal.peer), terminal));
    let missing = absent().map(|(labels, _)| (labels, 0));
    // Prometheus rejects a series that occurs twice. A terminal in both lists counts as connected.
    let rows: BTreeMap<MetricLabels, u64> = missing.chain(connected).collect();
    let help = "On a hub: 1 if the permitted terminal has a session";
    samples.add(gauge("skyhop_terminal_connected", help), rows);
    samples.add_parts(absent());
}

/// Traffic of each terminal in each class.
fn used(accounts: &[AccountStatus]) -> impl Iterator<Item = (MetricLabels, &UsageStatus)> {
    accounts.iter().flat_map(|account| {
        account.classes.iter().map(move |(class, usage)| {
            (vec![("terminal", account.name().to_owned()), ("class", class.clone())], usage)
        })
    })
}

/// The accounts with a quota.
fn quotas(accounts: &[AccountStatus]) -> impl Iterator<Item = (MetricLabels, &AccountStatus)> {
    let limited = accounts.iter().filter(|account| account.quota_bytes.is_some());
    limited.map(|account| (label("terminal", account.name()), account))
}

/// Labels of a channel. The class is that which this side sends on it, if any.
fn channel(channel: &ChannelStatus) -> MetricLabels {
    let class = channel.class.as_deref().unwrap_or_default();
    [label("channel", &channel.channel.to_string()), label("class", class)].concat()
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
