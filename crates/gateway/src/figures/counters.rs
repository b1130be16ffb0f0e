//! Counters of a running gateway, logged when it exits.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use control::Counter;
use control::status::{TrafficCounters, TunnelCounters};
use slacp::ResetReason;
use units::Instant;

use crate::figures::connections::Register;
use crate::figures::refused_connections::Refusals;
use crate::network::socket_options::KeepaliveSetting;

/// An amount that rises and falls.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the amount, if it is counted elsewhere.
    pub(crate) fn set(&self, amount: u64) {
        self.0.store(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `count` until the returned value is dropped.
    pub(crate) fn hold(&self, count: usize) -> GaugeShare<'_> {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
        GaugeShare { gauge: self, count: count as u64 }
    }
}

/// An amount added to a [`Gauge`], removed when dropped.
pub(crate) struct GaugeShare<'g> {
    gauge: &'g Gauge,
    count: u64,
}

impl Drop for GaugeShare<'_> {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// All counters of a gateway, and other state that its connections share.
#[derive(Debug, Default)]
pub(crate) struct GatewayCounters {
    /// Keep-alive settings of every connection.
    pub(crate) keepalive: KeepaliveSetting,
    /// Destinations that pass unaccelerated for a while.
    pub(crate) refusals: Refusals,
    /// Totals over all connections.
    pub(crate) traffic: TrafficCounters,
    /// Packets of the tunnel.
    pub(crate) tunnel: TunnelCounters,
    /// Bytes currently in pipes between the two sockets of direct connections.
    pub(crate) in_pipes: Gauge,
    /// Bytes held by connections of skyhop's own stack, as last counted.
    pub(crate) in_stack: Gauge,
    /// Times that no connection could be accepted for lack of descriptors or memory.
    pub(crate) exhausted: Counter,
    /// DNS queries that terminals sent to this hub.
    pub(crate) dns_queries: Counter,
    /// DNS queries without an answer.
    pub(crate) dns_failures: Counter,
    /// Connections for which the peer had no room, except those of a client that holds most of them.
    pub(crate) peer_full: Counter,
    /// Reasons for resets and failures.
    pub(crate) reasons: Reasons,
    /// Register of the live connections, and of the clients' shares of them.
    pub(crate) live: Register,
}

/// Numbers of resets and failures by reason.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<BTreeMap<ResetReason, u64>>);

impl GatewayCounters {
    /// Counts the reason why a client's connection was not carried. If the peer or the session has no room,
    /// a client that holds most of the connections passes unaccelerated for a while; otherwise the lack of
    /// room concerns all clients and is counted in `peer_full`.
    pub(crate) fn count_refusal(&self, now: Instant, client: IpAddr, reason: ResetReason) {
        self.reasons.count(reason);
        match reason {
            ResetReason::Limit if self.live.is_dominated_by(client) => {
                self.refusals.pass_client(now, client);
            }
            ResetReason::Limit => self.peer_full.increment(),
            _ => {}
        }
    }
}

impl Reasons {
    pub(crate) fn count(&self, reason: ResetReason) {
        *self.0.lock().expect("no thread panics while it counts").entry(reason).or_default() += 1;
    }

    /// Returns the number for a reason.
    #[cfg(test)]
    pub(crate) fn of(&self, reason: ResetReason) -> u64 {
        self.0.lock().expect("no thread panics while it counts").get(&reason).copied().unwrap_or(0)
    }

    /// Returns all non-zero numbers, by the name of the reason.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let counts = self.0.lock().expect("no thread panics while it counts");
        counts.iter().map(|(reason, count)| (name(*reason).to_owned(), *count)).collect()
    }
}

/// Returns the name of a reason in status and metrics.
fn name(reason: ResetReason) -> &'static str {
    match reason {
        ResetReason::Reset => "reset",
        ResetReason::Refused => "refused",
        ResetReason::Unreachable => "unreachable",
        ResetReason::TimedOut => "timed-out",
        ResetReason::Limit => "limit",
        ResetReason::Prohibited => "prohibited",
        ResetReason::SessionLost => "session-lost",
        _ => "other",
    }
}

impl GatewayCounters {
    /// Formats the counters that apply to a gateway without a hop.
    pub(crate) fn summary_without_hop(&self) -> impl fmt::Display {
        let TrafficCounters { connections, closed, reset, failed, up_bytes, down_bytes, .. } =
            &self.traffic;
        let exhausted = &self.exhausted;
        format!(
            "connections {connections} (closed {closed}, reset {reset}, failed {failed}), \
             bytes up {up_bytes}, down {down_bytes}, exhausted {exhausted}"
        )
    }
}

impl fmt::Display for GatewayCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { traffic, tunnel, .. } = self;
        write!(
            f,
            "connections {} (closed {}, reset {}, failed {}), bytes to hop {}, from hop {}, \
             straight {}, bytes up {}, down {}, packets to hop {}, from hop {}, foreign {}, dropped {}, \
             datagrams sent {}, received {}, too large {}, socket errors {}, shared keys {}, exhausted {}",
            traffic.connections,
            traffic.closed,
            traffic.reset,
            traffic.failed,
            traffic.to_hop_bytes,
            traffic.from_hop_bytes,
            traffic.straight,
            traffic.up_bytes,
            traffic.down_bytes,
            tunnel.to_hop,
            tunnel.from_hop,
            tunnel.foreign,
            tunnel.dropped,
            traffic.datagrams_sent,
            traffic.datagrams_received,
            traffic.datagrams_too_large,
            traffic.socket_errors,
            traffic.shared_keys,
            self.exhausted
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::figures::connections::ArrivingConnection;

    #[test]
    fn a_gauge_falls_when_a_share_is_dropped_and_only_then() {
        let gauge = Gauge::default();
        let (first, second) = (gauge.hold(5), gauge.hold(7));
        assert_eq!(gauge.get(), 12);
        drop(first);
        assert_eq!(gauge.get(), 7);
        drop(second);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn counts_of_several_threads_add_up() {
        let counters = GatewayCounters::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.traffic.to_hop_bytes.add(3);
                        counters.reasons.count(ResetReason::Limit);
                    }
                });
            }
        });
        assert_eq!(counters.traffic.to_hop_bytes.get(), 12_000);
        assert_eq!(counters.reasons.of(ResetReason::Limit), 4000);
    }

    #[test]
    fn without_room_a_client_that_has_most_connections_passes_and_others_are_not_held_up() {
        let (counters, now) = (Arc::new(GatewayCounters::default()), Instant::ZERO);
        let [greedy, other] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let _held = [greedy, greedy, greedy, other]
            .map(|client| ArrivingConnection::new(counters.clone(), client));
        let passing = || counters.refusals.take_change(now).map(|exempt| exempt.clients);
        counters.count_refusal(now, greedy, ResetReason::Refused);
        assert_eq!((passing(), counters.peer_full.get()), (None, 0));
        counters.count_refusal(now, greedy, ResetReason::Limit);
        assert_eq!((passing(), counters.peer_full.get()), (Some(vec![greedy]), 0));
        counters.count_refusal(now, other, ResetReason::Limit);
        assert_eq!((passing(), counters.peer_full.get()), (None, 1));
        assert_eq!(counters.reasons.of(ResetReason::Limit), 2);
    }

    #[test]
    fn each_reason_has_a_name_of_its_own() {
        let reasons = Reasons::default();
        let all = [
            ResetReason::Reset,
            ResetReason::Refused,
            ResetReason::Unreachable,
            ResetReason::TimedOut,
            ResetReason::Limit,
            ResetReason::Prohibited,
            ResetReason::SessionLost,
        ];
        assert_eq!((reasons.all(), reasons.of(ResetReason::Reset)), (vec![], 0));
        for (count, reason) in all.into_iter().enumerate() {
            (0..=count).for_each(|_| reasons.count(reason));
        }
        let mut names: Vec<String> = reasons.all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(reasons.all().iter().map(|(_, count)| count).sum::<u64>(), 28);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(!names.contains(&"other".to_owned()));
    }

    #[test]
    fn a_summary_has_every_counter_of_its_gateway() {
        let counters = GatewayCounters::default();
        let each = [
            &counters.traffic.connections,
            &counters.traffic.closed,
            &counters.traffic.reset,
            &counters.traffic.failed,
            &counters.traffic.to_hop_bytes,
            &counters.traffic.from_hop_bytes,
            &counters.traffic.straight,
            &counters.traffic.up_bytes,
            &counters.traffic.down_bytes,
            &counters.tunnel.to_hop,
            &counters.tunnel.from_hop,
            &counters.tunnel.foreign,
            &counters.tunnel.dropped,
            &counters.traffic.datagrams_sent,
            &counters.traffic.datagrams_received,
            &counters.traffic.datagrams_too_large,
            &counters.traffic.socket_errors,
            &counters.traffic.shared_keys,
            &counters.exhausted,
        ];
        for (number, counter) in (101..).zip(each) {
            counter.add(number);
        }
        let numbers = |text: &str| -> Vec<u64> {
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
        };
        assert_eq!(numbers(&counters.to_string()), (101..120).collect::<Vec<_>>());
        let alone = numbers(&counters.summary_without_hop().to_string());
        assert_eq!(alone, [101, 102, 103, 104, 108, 109, 119]);
    }
}
