//! What FEC costs, and what it buys.

use super::interactive::alone;
use super::{LossCase, Row, Scale, download, hop, percentile, stats};
use crate::hop::{HUB, Plan};

/// No repair once the link has been measured clean.
pub fn clean(scale: Scale) -> Vec<Row> {
    let count = scale.requests.min(1000) + 200;
    let plan = Plan { reply: true, ..Plan::new(1000, 10_000) };
    let mut net = hop(50.0, 10.0, &LossCase::per(0.0), 1).connected(&vec![plan; count]);
    alone(&mut net, 0..200);
    let before = stats(&net, HUB).repairs_sent;
    alone(&mut net, 200..count);
    let (after, bulk) = (stats(&net, HUB).repairs_sent - before, {
        download(&hop(50.0, 10.0, &LossCase::per(0.0), 1), scale.bytes).hub.repairs_sent
    });
    vec![Row::new(
        format!("repairs, no loss, {} requests and a download", count - 200),
        "0",
        format!("{after} and {bulk}; {before} before it was measured"),
        after == 0 && bulk == 0,
    )]
}

/// Repairs of a transfer that fills the link, against its losses.
pub fn loaded(scale: Scale) -> Vec<Row> {
    let row = |per: f64| {
        let run = download(&hop(50.0, 10.0, &LossCase::per(per), 2), scale.bytes);
        let percent = |packets: f64| 100.0 * packets / run.hub.packets_sent as f64;
        let spent = percent(run.hub.repairs_sent as f64);
        // Of the first 300 packets 1 % is taken to be lost, whatever the link.
        let most = 250.0 * per + percent(300.0 * 2.5 * 0.01);
        Row::new(
            format!("repairs of a download, PER {}%", per * 100.0),
            format!("≤ {most:.2} % of the packets"),
            format!("{spent:.2} %, restored {} packets", run.terminal.recovered),
            spent <= most,
        )
    };
    [0.001, 0.01, 0.05, 0.1].map(row).into()
}

/// Repairs of requests and replies on thin links.
pub fn sparse(scale: Scale) -> Vec<Row> {
    let row = |mbit: f64, per: f64| {
        let count = scale.requests.min(1000);
        let plan = Plan { reply: true, ..Plan::new(1000, 10_000) };
        let mut net = hop(mbit, mbit, &LossCase::per(per), 2).connected(&vec![plan; count]);
        let start = net.now();
        let times = alone(&mut net, 0..count);
        let bits = net.now().saturating_since(start).as_secs_f64() * mbit * 1e6;
        let (hub, terminal) = (stats(&net, HUB), stats(&net, crate::hop::TERMINAL));
        let spent = 100.0 * hub.repair_bytes as f64 * 8.0 / bits;
        Row::new(
            format!("repairs of requests, {mbit} Mbit/s, PER {}%", per * 100.0),
            "≤ 5 % of the rate",
            format!(
                "{spent:.2} %, restored {}; p99 {:.0} ms",
                terminal.recovered,
                percentile(&times, 99.0) * 1e3
            ),
            spent <= 5.0,
        )
    };
    vec![row(50.0, 0.01), row(1.0, 0.01), row(1.0, 0.05), row(0.256, 0.01)]
}
