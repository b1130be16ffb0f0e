//! The status as text for Prometheus: in OpenMetrics, or in the older format for clients that do
//! not accept it.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::family::MetricsSnapshot;
use crate::status::{AccountStatus, GatewayStatus};

/// Media type of OpenMetrics.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of Prometheus' own format.
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Encodes the status and a hub's accounts in OpenMetrics.
///
/// # Errors
/// None are known: a string takes all that is written to it.
pub fn openmetrics(
    status: GatewayStatus,
    accounts: Vec<AccountStatus>,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsSnapshot { status, accounts }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Converts OpenMetrics to Prometheus' own format, in which HELP and TYPE name a counter by its
/// series, and nothing marks the end.
pub fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let counters: std::collections::BTreeSet<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    for line in openmetrics.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                text += &format!("# {what} {name}_total {rest}\n");
            }
            _ => text += &format!("{line}\n"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use pep::admission::BypassReason;

    use super::*;
    use crate::status::{
        AbsentStatus, BundlesStatus, BypassStatus, ChannelStatus, ClassStatus, DlepDestination,
        DlepStatus, DnsStatus, HttpStatus, HubStatus, InterceptionStatus, LinkStatus, LogLoss,
        PolicyStatus, RefusalStatus, SessionStatus, StackStatus, StrangerStatus, TunnelStatus,
        UsageStatus,
    };

    /// A status with every part that has metrics, and an account.
    fn full() -> (GatewayStatus, AccountStatus) {
        let mut status = GatewayStatus { version: "1.2".to_owned(), ..GatewayStatus::default() };
        status.traffic.to_hop_bytes = 7;
        status.traffic.down_bytes = u64::from(u32::MAX) + 2;
        status.traffic.resets = vec![("refused".to_owned(), 3)];
        let bypassed = vec![BypassStatus { why: BypassReason::Memory, total_s: 1.5, times: 2 }];
        let refusals = Some(RefusalStatus { answered: 160, limited: 9 });
        status.interception =
            Some(InterceptionStatus { bypassed, refusals, ..InterceptionStatus::default() });
        let (name, action) = ("mail".to_owned(), "bypass".to_owned());
        status.policies.push(PolicyStatus { name, action, connections: 4, packets: 0 });
        let hub = |name: &str, state: &str| HubStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            ..HubStatus::default()
        };
        status.hubs = vec![hub("hub", "not needed"), hub("hub-2", "in use")];
        status.absent = vec![AbsentStatus {
            peer: "ship-2".to_owned(),
            last_heard_unix_s: Some(7),
            ..AbsentStatus::default()
        }];
        status.strangers = vec![StrangerStatus::default()];
        status.log_loss = Some(LogLoss { lines: 12, cause: "full".to_owned() });
        status.tunnel = Some(TunnelStatus { prohibited: 6, ..TunnelStatus::default() });
        status.stack = Some(StackStatus::default());
        status.dns = Some(DnsStatus { hits: 8, saved_round_trips: 9, ..DnsStatus::default() });
        status.bundles =
            Some(BundlesStatus { waiting: 4, oldest_s: 2.5, expired: 1, ..Default::default() });
        status.http = Some(HttpStatus { hits: 3, saved_bytes: 4, ..HttpStatus::default() });
        let (state, destinations) = ("up".to_owned(), vec![DlepDestination::default()]);
        let rate_bit_s = Some(20);
        status.dlep =
            Some(DlepStatus { state, rate_bit_s, destinations, sessions: 3, ..Default::default() });
        let usage =
            UsageStatus { bytes_to: 50, packets_from: 3, connections: 2, ..Default::default() };
        let account = AccountStatus {
            terminal: "ship-1".to_owned(),
            classes: [("bulk".to_owned(), usage)].into(),
            quota_bytes: Some(60),
            quota_used_bytes: Some(50),
            ..AccountStatus::default()
        };
        let peer = "ship-1".to_owned();
        status.sessions.push(SessionStatus {
            peer,
            rtt_ms: 600.0,
            rate_state: Some("tripped".to_owned()),
            trips: 2,
            packets_lost: 5,
            recovered: 6,
            classes: vec![ClassStatus {
                name: "bulk".to_owned(),
                sent_bytes: 8,
                ..ClassStatus::default()
            }],
            links: vec![LinkStatus {
                name: "leo".to_owned(),
                works: true,
                sent_bytes: 11,
                ..LinkStatus::default()
            }],
            channels: vec![ChannelStatus { channel: 2, missing: 9, ..ChannelStatus::default() }],
            ..SessionStatus::default()
        });
        (status, account)
    }

    #[test]
    fn known_values_are_exported() {
        let (status, account) = full();
        let text = openmetrics(status, vec![account]).unwrap();
        for line in [
            "skyhop_info{role=\"terminal\",version=\"1.2\"} 1.0",
            "skyhop_relayed_bytes_total{direction=\"to_hop\"} 7",
            "skyhop_relayed_bytes_total{direction=\"down\"} 4294967297",
            "skyhop_connections_reset_total{reason=\"refused\"} 3",
            "skyhop_bypass_seconds_total{reason=\"memory\"} 1.5",
            "skyhop_policy_connections_total{policy=\"mail\",action=\"bypass\"} 4",
            "skyhop_policy_packets_total{policy=\"mail\",action=\"bypass\"} 0",
            "skyhop_hub_state{hub=\"hub-2\",state=\"in-use\"} 1.0",
            "skyhop_terminal_connected{peer=\"ship-2\"} 0.0",
            "skyhop_terminal_last_heard_timestamp_seconds{peer=\"ship-2\"} 7.0",
            "skyhop_refused_terminals 1.0",
            "skyhop_log_lines_lost_total 12",
            "skyhop_tunnel_packets_total{fate=\"prohibited\"} 6",
            "skyhop_names_total{fate=\"hit\"} 8",
            "skyhop_names_saved_round_trips_total 9",
            "skyhop_bundles_total{fate=\"expired\"} 1",
            "skyhop_bundles_waiting 4.0",
            "skyhop_bundles_oldest_seconds 2.5",
            "skyhop_http_total{fate=\"hit\"} 3",
            "skyhop_http_saved_bytes_total 4",
            "skyhop_session_rtt_seconds{peer=\"ship-1\"} 0.6",
            "skyhop_session_rate_tripped{peer=\"ship-1\"} 1.0",
            "skyhop_session_rate_trips_total{peer=\"ship-1\"} 2",
            "skyhop_session_packets_lost_total{peer=\"ship-1\"} 5",
            "skyhop_session_packets_recovered_total{peer=\"ship-1\"} 6",
            "skyhop_class_sent_bytes_total{peer=\"ship-1\",class=\"bulk\"} 8",
            "skyhop_link_works{peer=\"ship-1\",link=\"leo\"} 1.0",
            "skyhop_link_sent_bytes_total{peer=\"ship-1\",link=\"leo\"} 11",
            "skyhop_channel_missing_total{peer=\"ship-1\",channel=\"2\",class=\"\"} 9",
            "skyhop_account_bytes_total{terminal=\"ship-1\",class=\"bulk\",direction=\"to\"} 50",
            "skyhop_account_packets_total{terminal=\"ship-1\",class=\"bulk\",direction=\"from\"} 3",
            "skyhop_account_connections_total{terminal=\"ship-1\",class=\"bulk\"} 2",
            "skyhop_account_quota_bytes{terminal=\"ship-1\"} 60.0",
            "skyhop_account_quota_used_bytes{terminal=\"ship-1\"} 50.0",
            "skyhop_account_quota_exhausted{terminal=\"ship-1\"} 0.0",
            "skyhop_dlep_up 1.0",
            "skyhop_dlep_rate_bits_per_second 20.0",
            "skyhop_dlep_destinations 0.0",
            "skyhop_dlep_sessions_total 3",
            "skyhop_connections_carried_total 0",
            "skyhop_sessions 1.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
        // Prometheus rejects a scrape in which a series occurs twice.
        let samples = || text.lines().filter(|line| !line.starts_with('#'));
        let series: std::collections::BTreeSet<_> =
            samples().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect();
        assert_eq!(series.len(), samples().count());
        // Every family has one TYPE and one HELP line.
        for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
    }

    #[test]
    fn a_figure_without_a_value_has_no_sample() {
        let (mut status, account) = full();
        status.absent[0].last_heard_unix_s = None;
        let account = AccountStatus { quota_bytes: None, quota_used_bytes: None, ..account };
        let text = openmetrics(status, vec![account]).unwrap();
        for name in ["skyhop_terminal_last_heard_timestamp_seconds", "skyhop_account_quota"] {
            let sample = |line: &&str| line.starts_with(name);
            assert_eq!(text.lines().find(sample), None, "{text}");
            assert!(text.contains(&format!("# TYPE {name}")), "{text}");
        }
    }

    #[test]
    fn the_older_format_names_counters_by_their_series() {
        let text = prometheus(&openmetrics(GatewayStatus::default(), Vec::new()).unwrap());
        assert!(text.contains("\n# TYPE skyhop_connections_carried_total counter\n"), "{text}");
        assert!(text.contains("\n# HELP skyhop_connections_carried_total "), "{text}");
        assert!(text.contains("\n# TYPE skyhop_sessions gauge\n"), "{text}");
        assert!(text.contains("\nskyhop_connections_carried_total 0\n"), "{text}");
        assert!(!text.contains("# EOF") && text.ends_with('\n'));
    }

    /// A row for each metric: its series, type, labels and meaning. Labels whose values are known have them.
    fn rows(text: &str) -> String {
        let mut rows = String::new();
        for family in text.split("# HELP ").skip(1) {
            let mut lines = family.lines();
            let (name, help) = lines.next().and_then(|line| line.split_once(' ')).unwrap();
            let kind = lines.next().and_then(|line| line.rsplit_once(' ')).unwrap().1;
            let samples = lines.filter(|line| !line.starts_with('#'));
            let mut labels = BTreeMap::<&str, Vec<&str>>::new();
            for sample in samples {
                let inside = sample.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                let pairs = inside.map_or("", |(pairs, _)| pairs).split(',');
                for (label, value) in pairs.filter_map(|pair| pair.split_once('=')) {
                    let values = labels.entry(label).or_default();
                    let value = value.trim_matches('"');
                    if LISTED.contains(&label) && !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
            let label = |(name, values): (&&str, &Vec<&str>)| match values[..] {
                [] => format!("`{name}`"),
                _ => format!("`{name}`: {}", values.join(", ")),
            };
            let labels: Vec<String> = labels.iter().map(label).collect();
            let series = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
            let help = help.trim_end_matches('.');
            rows += &format!("| `{series}` | {kind} | {} | {help} |\n", labels.join("; "));
        }
        rows
    }

    /// Labels whose every value is exported always.
    const LISTED: [&str; 3] = ["direction", "fate", "form"];

    /// `SKYHOP_DOCS=write cargo test -p skyhop-control --lib metrics::text` rewrites the table.
    #[test]
    fn the_page_lists_every_metric() {
        let (status, account) = full();
        let made = rows(&openmetrics(status, vec![account]).unwrap());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let page = fs::read_to_string(&path).unwrap();
        let head = "|---|---|---|---|\n";
        let (text, documented) = page.split_once(head).unwrap();
        if std::env::var("SKYHOP_DOCS").is_ok_and(|wish| wish == "write") {
            return fs::write(path, [text, head, &made].concat()).unwrap();
        }
        assert_eq!(documented, made, "run this test with SKYHOP_DOCS=write");
    }
}
