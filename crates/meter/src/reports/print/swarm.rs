//! The report on a swarm as text.

use std::fmt::Write as _;

use super::{rate, seconds};
use crate::swarm::{ProcessFigures, SwarmReport, TrafficReport};

pub(super) fn text(report: &SwarmReport) -> String {
    let mut text = format!(
        "{} of {} sessions are up, the last after {}: {:.0} handshakes/s",
        report.up,
        report.terminals,
        seconds(Some(report.all_up)),
        report.handshakes_per_second
    );
    if let Some(times) = report.setup_seconds {
        let median = times.median;
        let p95 = times.p95;
        let max = times.max;
        let _ = write!(text, "; set-up: median {median:.3} s, p95 {p95:.3} s, max {max:.3} s");
    }
    text.push('\n');
    if report.lost_sessions > 0 {
        let _ = writeln!(text, "{} sessions were lost", report.lost_sessions);
    }
    if report.socket_overflows > 0 {
        let _ = writeln!(
            text,
            "the terminals' sockets overflowed {} times: the hub sends faster than this machine receives",
            report.socket_overflows
        );
    }
    report.traffic.iter().for_each(|traffic| text += &moved(traffic));
    report.hub.iter().for_each(|hub| text += &process(hub));
    report.errors.iter().for_each(|error| _ = writeln!(text, "error: {error}"));
    text
}

fn moved(traffic: &TrafficReport) -> String {
    let TrafficReport { flows, complete, moved_bytes, total, goodput, jain_index } = traffic;
    let megabytes = *moved_bytes as f64 / 1e6;
    let total = seconds(Some(*total));
    let goodput = rate(*goodput);
    let fairness = jain_index.map_or(String::new(), |index| format!("; Jain's index {index:.3}"));
    format!(
        "{complete} of {flows} downloads complete and verified: {megabytes:.1} MB in {total}, \
         {goodput}{fairness}\n"
    )
}

fn process(hub: &ProcessFigures) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let mut text = format!(
        "hub: {:.1} MB of memory before, {:.1} MB with all sessions",
        megabytes(hub.resident_before_bytes),
        megabytes(hub.resident_up_bytes)
    );
    if let Some(each) = hub.resident_per_session_bytes {
        let _ = write!(text, " ({:.1} kB each)", each as f64 / 1e3);
    }
    let most = hub.resident_peak_bytes;
    let end = hub.resident_after_bytes;
    let _ =
        writeln!(text, ", {:.1} MB at most, {:.1} MB at the end", megabytes(most), megabytes(end));
    let _ = write!(text, "hub: {:.2} s of CPU for the handshakes", hub.setup_cpu_seconds);
    if let Some(each) = hub.cpu_seconds_per_gigabyte {
        let _ = write!(text, ", {:.2} s for the traffic: {each:.2} s/GB", hub.traffic_cpu_seconds);
    }
    text + "\n"
}
