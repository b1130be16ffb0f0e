//! The report on a capture as a table for people and as CSV for programs.

use core::fmt;
use std::time::Duration;

use report::{CsvText, TableColumn, TextTable, dash};
use units::BitRate;

use super::report::{
    ConnectionEnding, ConnectionReport, DirectionReport, DurationStatistics, TraceReport,
    WindowReport,
};
use crate::reports::print::{rate, seconds, seconds_field, size};

impl fmt::Display for TraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets = self.packets;
        let tcp = self.tcp_packets;
        let connections = self.connections.len();
        writeln!(f, "{packets} packets, {tcp} of them TCP, {connections} connections")?;
        if !self.other_packets.is_empty() {
            let others = self.other_packets.iter().map(|(name, count)| format!("{count} {name}"));
            writeln!(f, "not TCP: {}", others.collect::<Vec<_>>().join(", "))?;
        }
        for connection in &self.connections {
            write!(f, "\n{}{}", title(connection), table(connection))?;
        }
        Ok(())
    }
}

impl TraceReport {
    /// Returns CSV: a line for each direction of each connection.
    pub fn csv(&self) -> String {
        let mut csv = CsvText::new(&COLUMNS);
        for connection in &self.connections {
            let [a, b] = [connection.a, connection.b].map(|address| address.to_string());
            csv.row(fields(connection, "a_to_b", [&a, &b], &connection.a_to_b));
            csv.row(fields(connection, "b_to_a", [&b, &a], &connection.b_to_a));
        }
        csv.into_text()
    }
}

fn title(connection: &ConnectionReport) -> String {
    let mut text = format!(
        "connection {}: A = {}, B = {}\n  began at {}, lasted {}, {}",
        connection.number,
        connection.a,
        connection.b,
        seconds(connection.start),
        seconds(connection.lasted),
        ending(connection.ending),
    );
    if let Some(handshake) = connection.handshake {
        text += &format!(", handshake {}", milliseconds(handshake.as_secs_f64()));
    }
    if !connection.begins_in_capture {
        text += "\n  without both SYNs: window scale unknown";
    }
    text + "\n"
}

fn table(connection: &ConnectionReport) -> TextTable {
    let columns = [
        TableColumn::left("").at_least(26),
        TableColumn::right("A → B").at_least(22),
        TableColumn::right("B → A").at_least(22),
    ];
    let mut table = TextTable::new(columns).indent(2);
    for (name, of) in ROWS {
        let [a, b] = [&connection.a_to_b, &connection.b_to_a].map(of);
        if a.is_some() || b.is_some() {
            table.row([name.to_owned(), dash(a), dash(b)]);
        }
    }
    table
}

/// The end of a connection in words.
fn ending(ending: ConnectionEnding) -> &'static str {
    match ending {
        ConnectionEnding::Closed => "closed",
        ConnectionEnding::HalfClosedByA => "half-closed by A",
        ConnectionEnding::HalfClosedByB => "half-closed by B",
        ConnectionEnding::ResetByA => "reset by A",
        ConnectionEnding::ResetByB => "reset by B",
        ConnectionEnding::Refused => "refused",
        ConnectionEnding::Unanswered => "not answered",
        ConnectionEnding::Open => "still open",
    }
}

/// A row of the table: its name, and its value; `None` if unknown or not worth showing.
type Row = (&'static str, fn(&DirectionReport) -> Option<String>);

const ROWS: [Row; 37] = [
    ("packets", |report| Some(report.packets.to_string())),
    ("  captured twice", |report| some(report.copies)),
    ("  with payload", |report| Some(report.data_packets.to_string())),
    ("  pure ACKs", |report| Some(report.pure_acks.to_string())),
    ("  duplicate ACKs", |report| some(report.duplicate_acks)),
    ("  with SACK (blocks)", |report| {
        (report.sack_packets > 0)
            .then(|| format!("{} ({})", report.sack_packets, report.sack_blocks))
    }),
    ("  with D-SACK", |report| some(report.dsacks)),
    ("  SYNs again", |report| some(report.syn_retransmissions)),
    ("  FINs again", |report| some(report.fin_retransmissions)),
    ("  resets", |report| some(report.resets)),
    ("  probes", |report| some(report.probes)),
    ("payload", |report| Some(size(report.payload_bytes))),
    ("  each byte once", |report| Some(size(report.unique_bytes))),
    ("  retransmitted", |report| {
        retransmitted(report.retransmitted_packets, report.retransmitted_bytes)
    }),
    ("    needlessly", |report| some(report.needless_packets).map(|count| count + " packets")),
    ("  repairs", |report| retransmitted(report.repair_packets?, report.repair_bytes?)),
    ("  reordered", |report| some(report.reordered_packets?).map(|count| count + " packets")),
    ("  not in the capture", |report| (report.missed_bytes > 0).then(|| size(report.missed_bytes))),
    ("MSS, largest payload", |report| {
        let mss = report.mss.map(|mss| mss.to_string());
        Some(format!("{}, {} B", mss.unwrap_or_else(|| "-".into()), report.largest_payload))
    }),
    ("window scale, SACK, stamps", |report| {
        let scale =
            report.window_scale.map(|scale| scale.to_string()).unwrap_or_else(|| "-".into());
        let yes = |yes| if yes { "yes" } else { "no" };
        Some(format!("{scale}, {}, {}", yes(report.sack_permitted), yes(report.timestamps)))
    }),
    ("window first", |report| window(report, |window| window.first)),
    ("  smallest", |report| window(report, |window| window.min)),
    ("  largest", |report| window(report, |window| window.max)),
    ("initial window", |report| report.initial_window_bytes.map(size)),
    ("outstanding mean", |report| {
        report
            .outstanding_mean_bytes
            .filter(|_| report.data_packets > 0)
            .map(|mean| size(mean as u64))
    }),
    ("  largest", |report| report.outstanding_max_bytes.filter(|_| sends(report)).map(size)),
    ("window-limited for", |report| report.window_limited.filter(|_| sends(report)).map(time)),
    ("zero window for", |report| report.zero_window.filter(|zero| !zero.is_zero()).map(time)),
    ("RTT samples", |report| report.rtt.map(|rtt| rtt.samples.to_string())),
    ("  min / mean / max", |report| report.rtt.as_ref().map(three)),
    ("  deviation", |report| report.rtt.and_then(|rtt| rtt.deviation_seconds).map(milliseconds)),
    ("RTT by time stamps", |report| report.timestamp_rtt.as_ref().map(three)),
    ("first, last payload", |report| {
        Some(format!("{}, {}", seconds(Some(report.first_data?)), seconds(Some(report.last_data?))))
    }),
    ("longest idle", |report| report.idle.map(time)),
    ("  from", |report| report.idle_start.map(time)),
    ("throughput", |report| report.throughput.map(bit_rate)),
    ("goodput", |report| report.goodput.filter(|_| sends(report)).map(bit_rate)),
];

fn sends(report: &DirectionReport) -> bool {
    report.data_packets > 0
}

fn some(count: u64) -> Option<String> {
    (count > 0).then(|| count.to_string())
}

fn retransmitted(packets: u64, bytes: u64) -> Option<String> {
    (packets > 0).then(|| format!("{packets} ({})", size(bytes)))
}

fn window(report: &DirectionReport, of: fn(&WindowReport) -> u64) -> Option<String> {
    report.advertised_window.as_ref().map(|window| format!("{} B", of(window)))
}

fn bit_rate(bit_rate: BitRate) -> String {
    rate(Some(bit_rate))
}

fn time(time: Duration) -> String {
    seconds(Some(time))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

fn three(rtt: &DurationStatistics) -> String {
    let [min, mean, max] =
        [rtt.min_seconds, rtt.mean_seconds, rtt.max_seconds].map(|seconds| seconds * 1e3);
    format!("{min:.2}/{mean:.2}/{max:.2} ms")
}

const COLUMNS: [&str; 39] = [
    "connection",
    "direction",
    "from",
    "to",
    "start_seconds",
    "lasted_seconds",
    "ending",
    "packets",
    "data_packets",
    "pure_acks",
    "payload_bytes",
    "unique_bytes",
    "retransmitted_packets",
    "retransmitted_bytes",
    "needless_packets",
    "repair_packets",
    "repair_bytes",
    "reordered_packets",
    "duplicate_acks",
    "sack_blocks",
    "dsacks",
    "syn_retransmissions",
    "mss",
    "window_scale",
    "initial_window_bytes",
    "outstanding_mean_bytes",
    "outstanding_max_bytes",
    "window_limited_seconds",
    "zero_window_seconds",
    "rtt_samples",
    "rtt_min_seconds",
    "rtt_mean_seconds",
    "rtt_max_seconds",
    "rtt_deviation_seconds",
    "idle_seconds",
    "throughput_bits_per_second",
    "goodput_bits_per_second",
    "copies",
    "probes",
];

fn fields(
    connection: &ConnectionReport,
    direction: &str,
    [from, to]: [&str; 2],
    report: &DirectionReport,
) -> [Option<String>; 39] {
    let rtt =
        |of: fn(&DurationStatistics) -> f64| report.rtt.as_ref().map(|rtt| of(rtt).to_string());
    // By way of JSON, so that endings have the same names in both formats.
    let ending = serde_json::to_value(connection.ending).ok();
    let count = |count: u64| Some(count.to_string());
    [
        count(connection.number),
        Some(direction.to_owned()),
        Some(from.to_owned()),
        Some(to.to_owned()),
        seconds_field(connection.start),
        seconds_field(connection.lasted),
        ending.and_then(|name| name.as_str().map(str::to_owned)),
        count(report.packets),
        count(report.data_packets),
        count(report.pure_acks),
        count(report.payload_bytes),
        count(report.unique_bytes),
        count(report.retransmitted_packets),
        count(report.retransmitted_bytes),
        count(report.needless_packets),
        report.repair_packets.and_then(count),
        report.repair_bytes.and_then(count),
        report.reordered_packets.and_then(count),
        count(report.duplicate_acks),
        count(report.sack_blocks),
        count(report.dsacks),
        count(report.syn_retransmissions),
        report.mss.map(|mss| mss.to_string()),
        report.window_scale.map(|scale| scale.to_string()),
        report.initial_window_bytes.map(|bytes| bytes.to_string()),
        report.outstanding_mean_bytes.map(|bytes| bytes.to_string()),
        report.outstanding_max_bytes.map(|bytes| bytes.to_string()),
        seconds_field(report.window_limited),
        seconds_field(report.zero_window),
        rtt(|rtt| rtt.samples as f64),
        rtt(|rtt| rtt.min_seconds),
        rtt(|rtt| rtt.mean_seconds),
        rtt(|rtt| rtt.max_seconds),
        report.rtt.and_then(|rtt| rtt.deviation_seconds).map(|seconds| seconds.to_string()),
        seconds_field(report.idle),
        report.throughput.map(|rate| rate.bits_per_second().to_string()),
        report.goodput.map(|rate| rate.bits_per_second().to_string()),
        count(report.copies),
        count(report.probes),
    ]
}
