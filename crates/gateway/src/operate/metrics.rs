//! Serves Prometheus metrics, the status as JSON, and a dashboard over HTTP. Read only.

mod family;

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::family::Snapshot;
use crate::error::RunError;
use crate::operate::control::{Answer, Call, Request};
use crate::operate::status::Status;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PAGE: &str = include_str!("metrics/dashboard.html");
/// Content security policy: the page loads nothing from elsewhere.
const ONLY_OURS: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                         connect-src 'self'";

/// Serves until dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    _task: JoinSet<()>,
}

impl MetricsServer {
    /// Serves on `address`; requests the status through `calls`.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub(crate) fn start(address: SocketAddr, calls: mpsc::Sender<Call>) -> Result<Self, RunError> {
        let failed = |cause| RunError::Metrics { address, cause };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        tracing::info!("metrics: http://{at}/metrics, a page at http://{at}/");
        let router = Router::new()
            .route("/", get(page))
            .route("/metrics", get(metrics))
            .route("/status.json", get(json))
            .with_state(calls);
        let mut task = JoinSet::new();
        task.spawn(async move {
            // Returns only when dropped.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { _task: task })
    }
}

async fn ask(calls: &mpsc::Sender<Call>, connections: bool) -> Result<Status, StatusCode> {
    let (call, answer) = Call::new(Request::Status { connections });
    calls.send(call).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    match answer.await {
        Ok(Answer::Status(status)) => Ok(*status),
        _ => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn metrics(State(calls): State<mpsc::Sender<Call>>) -> Result<Response, StatusCode> {
    let text = text(ask(&calls, false).await?).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, OPENMETRICS)], text).into_response())
}

async fn json(State(calls): State<mpsc::Sender<Call>>) -> Result<Response, StatusCode> {
    let status = ask(&calls, true).await?;
    let text = serde_json::to_string(&status).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

async fn page() -> Response {
    let head = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, ONLY_OURS)];
    (head, PAGE).into_response()
}

/// The status in Prometheus' text format.
fn text(status: Status) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use pep::admission::Bypass;

    use super::*;
    use crate::operate::status::{
        BypassStatus, ChannelStatus, ClassStatus, DlepDestination, DlepStatus, InterceptionStatus,
        PolicyStatus, SessionStatus, TunnelStatus,
    };

    #[test]
    fn known_values_are_exported() {
        let mut status = Status { version: "1.2".to_owned(), ..Status::default() };
        status.traffic.to_hop_bytes = 7;
        status.traffic.down_bytes = u64::from(u32::MAX) + 2;
        status.traffic.resets = vec![("refused".to_owned(), 3)];
        let bypassed = vec![BypassStatus { why: Bypass::Memory, total_s: 1.5, times: 2 }];
        status.interception =
            Some(InterceptionStatus { bypassed, ..InterceptionStatus::default() });
        let (name, action) = ("mail".to_owned(), "bypass".to_owned());
        status.policies.push(PolicyStatus { name, action, connections: 4, packets: 0 });
        status.tunnel = Some(TunnelStatus { prohibited: 6, ..TunnelStatus::default() });
        let (state, destinations) = ("up".to_owned(), vec![DlepDestination::default()]);
        let rate_bit_s = Some(20);
        status.dlep =
            Some(DlepStatus { state, rate_bit_s, destinations, sessions: 3, ..Default::default() });
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
            channels: vec![ChannelStatus { channel: 2, missing: 9, ..ChannelStatus::default() }],
            ..SessionStatus::default()
        });
        let text = text(status).unwrap();
        for line in [
            "skyhop_info{role=\"terminal\",version=\"1.2\"} 1.0",
            "skyhop_relayed_bytes_total{direction=\"to_hop\"} 7",
            "skyhop_relayed_bytes_total{direction=\"down\"} 4294967297",
            "skyhop_connections_reset_total{reason=\"refused\"} 3",
            "skyhop_bypass_seconds_total{reason=\"memory\"} 1.5",
            "skyhop_policy_connections_total{policy=\"mail\",action=\"bypass\"} 4",
            "skyhop_policy_packets_total{policy=\"mail\",action=\"bypass\"} 0",
            "skyhop_tunnel_packets_total{fate=\"prohibited\"} 6",
            "skyhop_session_rtt_seconds{peer=\"ship-1\"} 0.6",
            "skyhop_session_rate_tripped{peer=\"ship-1\"} 1.0",
            "skyhop_session_rate_trips_total{peer=\"ship-1\"} 2",
            "skyhop_session_packets_lost_total{peer=\"ship-1\"} 5",
            "skyhop_session_packets_recovered_total{peer=\"ship-1\"} 6",
            "skyhop_class_sent_bytes_total{peer=\"ship-1\",class=\"bulk\"} 8",
            "skyhop_channel_missing_total{peer=\"ship-1\",channel=\"2\",class=\"\"} 9",
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
    fn the_page_needs_nothing_from_elsewhere() {
        assert!(!PAGE.contains("http://") && !PAGE.contains("https://") && !PAGE.contains("//cdn"));
    }
}
