//! The rows of the acceptance table that a rival can be put beside.

use crate::quic::{Control, connected, download, exchange};
use crate::rows::{LossCase, Scale, bulk, hop, limit, percentile};

const REQUESTS: usize = 2000;

/// Prints what SLACP and its rivals reach on the same links.
pub(crate) fn print(scale: Scale) {
    println!(
        "\nSide by side: downloads of {} MB, seconds (share of the limit), window",
        scale.bytes / 1_000_000
    );
    println!("{:<32} {:>16} {:>24} {:>24}", "", "SLACP", "quinn CUBIC", "quinn BBR");
    for (forward, ret) in [(250.0, 3.0), (50.0, 10.0), (10.0, 2.0), (2.0, 10.0)] {
        downloads(scale, forward, ret, &LossCase::per(0.0));
    }
    for loss in bulk::losses() {
        downloads(scale, 50.0, 10.0, &loss);
    }
    println!("\n{REQUESTS} requests of 1 kB, replies of 10 kB, 50/10, ms: p50, p99, p99.9");
    for per in [0.0, 0.01] {
        requests(per);
    }
}

fn downloads(scale: Scale, forward: f64, ret: f64, loss: &LossCase) {
    let hop = hop(forward, ret, loss, 1);
    let limit = limit(scale.bytes, forward, loss.mean);
    let ours = crate::rows::download(&hop, scale.bytes).seconds;
    let [cubic, bbr] = [Control::Cubic, Control::Bbr].map(|c| download(&hop, c, scale.bytes));
    let share = |seconds: f64| format!("{seconds:.2} ({:.1} %)", 100.0 * limit / seconds);
    let text = |reached: Option<(f64, u32)>| match reached {
        Some((seconds, window)) => format!("{} {window} MB", share(seconds)),
        None => "breaks".to_owned(),
    };
    let case = format!("{forward}/{ret}, {}", loss.name);
    println!("{case:<32} {:>16} {:>24} {:>24}", share(ours), text(cubic), text(bbr));
}

fn requests(per: f64) {
    let hop = hop(50.0, 10.0, &LossCase::per(per), 7);
    let mut lines = vec![("SLACP".to_owned(), crate::rows::interactive::times(&hop, REQUESTS))];
    for control in [Control::Cubic, Control::Bbr] {
        let mut net = connected(&hop, control, 64);
        let time = |_| exchange(&mut net, 1000, 10_000).unwrap_or(f64::INFINITY);
        let times = (0..REQUESTS).map(time).collect();
        lines.push((format!("quinn {control:?}"), times));
    }
    for (name, times) in lines {
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|p| percentile(&times, p) * 1e3);
        println!(
            "PER {:<5} {name:<14} {p50:>8.0} {p99:>8.0} {p999:>8.0}",
            format!("{}%", per * 100.0)
        );
    }
}
