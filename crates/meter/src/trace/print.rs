//! The report on a capture as a table for people and as CSV for programs.

use core::fmt;
use std::time::Duration;

use report::{CsvText, TableColumn, TextTable, dash};

use super::report::{
    ConnectionEnding, ConnectionReport, DirectionReport, DurationStatistics, TraceReport,
    WindowReport,
};
use crate::print::{rate, seconds, seconds_field, size};

impl fmt::Display for TraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (packets, tcp, connections) = (self.packets, self.tcp_packets, self.connections.len());
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
        for it in &self.connections {
            let [a, b] = [it.a, it.b].map(|address| address.to_string());
            csv.row(fields(it, "a_to_b", [&a, &b], &it.a_to_b));
            csv.row(fields(it, "b_to_a", [&b, &a], &it.b_to_a));
        }
        csv.into_text()
    }
}

fn title(it: &ConnectionReport) -> String {
    let mut text = format!(
        "connection {}: A = {}, B = {}\n  began at {}, lasted {}, {}",
        it.number,
        it.a,
        it.b,
        seconds(it.start),
        seconds(it.lasted),
        ending(it.ending),
    );
    if let Some(handshake) = it.handshake {
        text += &format!(", handshake {}", milliseconds(handshake.as_secs_f64()));
    }
    if !it.begins_in_capture {
        text += "\n  without both SYNs: window scale unknown";
    }
    text + "\n"
}

fn table(it: &ConnectionReport) -> TextTable {
    let columns = [
        TableColumn::left("").at_least(26),
        TableColumn::right("A → B").at_least(22),
        TableColumn::right("B → A").at_least(22),
    ];
    let mut table = TextTable::new(columns).indent(2);
    for (name, of) in ROWS {
        let [a, b] = [&it.a_to_b, &it.b_to_a].map(of);
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
    ("packets", |it| Some(it.packets.to_string())),
    ("  captured twice", |it| some(it.copies)),
    ("  with payload", |it| Some(it.data_packets.to_string())),
    ("  pure ACKs", |it| Some(it.pure_acks.to_string())),
    ("  duplicate ACKs", |it| some(it.duplicate_acks)),
    ("  with SACK (blocks)", |it| {
        (it.sack_packets > 0).then(|| format!("{} ({})", it.sack_packets, it.sack_blocks))
    }),
    ("  with D-SACK", |it| some(it.dsacks)),
    ("  SYNs again", |it| some(it.syn_retransmissions)),
    ("  FINs again", |it| some(it.fin_retransmissions)),
    ("  resets", |it| some(it.resets)),
    ("  probes", |it| some(it.probes)),
    ("payload", |it| Some(size(it.payload_bytes))),
    ("  each byte once", |it| Some(size(it.unique_bytes))),
    ("  retransmitted", |it| retransmitted(it.retransmitted_packets, it.retransmitted_bytes)),
    ("    needlessly", |it| some(it.needless_packets).map(|it| it + " packets")),
    ("  repairs", |it| retransmitted(it.repair_packets, it.repair_bytes)),
    ("  reordered", |it| some(it.reordered_packets).map(|it| it + " packets")),
    ("  not in the capture", |it| (it.missed_bytes > 0).then(|| size(it.missed_bytes))),
    ("MSS, largest payload", |it| {
        let mss = it.mss.map(|mss| mss.to_string());
        Some(format!("{}, {} B", mss.unwrap_or_else(|| "-".into()), it.largest_payload))
    }),
    ("window scale, SACK, stamps", |it| {
        let scale = it.window_scale.map(|it| it.to_string()).unwrap_or_else(|| "-".into());
        let yes = |yes| if yes { "yes" } else { "no" };
        Some(format!("{scale}, {}, {}", yes(it.sack_permitted), yes(it.timestamps)))
    }),
    ("window first", |it| window(it, |it| it.first)),
    ("  smallest", |it| window(it, |it| it.min)),
    ("  largest", |it| window(it, |it| it.max)),
    ("initial window", |it| it.initial_window_bytes.map(size)),
    ("outstanding mean", |it| {
        it.outstanding_mean_bytes.filter(|_| it.data_packets > 0).map(|mean| size(mean as u64))
    }),
    ("  largest", |it| it.outstanding_max_bytes.filter(|_| sends(it)).map(size)),
    ("window-limited for", |it| it.window_limited.filter(|_| sends(it)).map(time)),
    ("zero window for", |it| it.zero_window.filter(|zero| !zero.is_zero()).map(time)),
    ("RTT samples", |it| it.rtt.map(|it| it.samples.to_string())),
    ("  min / mean / max", |it| it.rtt.map(|it| three(&it))),
    ("  deviation", |it| it.rtt.and_then(|it| it.deviation_seconds).map(milliseconds)),
    ("RTT by time stamps", |it| it.timestamp_rtt.map(|it| three(&it))),
    ("first, last payload", |it| {
        Some(format!("{}, {}", seconds(Some(it.first_data?)), seconds(Some(it.last_data?))))
    }),
    ("longest idle", |it| it.idle.map(time)),
    ("  from", |it| it.idle_start.map(time)),
    ("throughput", |it| it.throughput.map(|it| rate(Some(it)))),
    ("goodput", |it| it.goodput.filter(|_| sends(it)).map(|it| rate(Some(it)))),
];

fn sends(it: &DirectionReport) -> bool {
    it.data_packets > 0
}

fn some(count: u64) -> Option<String> {
    (count > 0).then(|| count.to_string())
}

fn retransmitted(packets: u64, bytes: u64) -> Option<String> {
    (packets > 0).then(|| format!("{packets} ({})", size(bytes)))
}

fn window(it: &DirectionReport, of: fn(&WindowReport) -> u64) -> Option<String> {
    it.advertised_window.as_ref().map(|window| format!("{} B", of(window)))
}

fn time(time: Duration) -> String {
    seconds(Some(time))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

fn three(it: &DurationStatistics) -> String {
    let [min, mean, max] = [it.min_seconds, it.mean_seconds, it.max_seconds].map(|it| it * 1e3);
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
    it: &DirectionReport,
) -> [Option<String>; 39] {
    let rtt = |of: fn(&DurationStatistics) -> f64| it.rtt.as_ref().map(|rtt| of(rtt).to_string());
    let ending = serde_json::to_value(connection.ending).ok();
    let count = |count: u64| Some(count.to_string());
    [
        count(connection.number),
        Some(direction.to_owned()),
        Some(from.to_owned()),
        Some(to.to_owned()),
        seconds_field(connection.start),
        seconds_field(connection.lasted),
        ending.and_then(|it| it.as_str().map(str::to_owned)),
        count(it.packets),
        count(it.data_packets),
        count(it.pure_acks),
        count(it.payload_bytes),
        count(it.unique_bytes),
        count(it.retransmitted_packets),
        count(it.retransmitted_bytes),
        count(it.needless_packets),
        count(it.repair_packets),
        count(it.repair_bytes),
        count(it.reordered_packets),
        count(it.duplicate_acks),
        count(it.sack_blocks),
        count(it.dsacks),
        count(it.syn_retransmissions),
        it.mss.map(|mss| mss.to_string()),
        it.window_scale.map(|scale| scale.to_string()),
        it.initial_window_bytes.map(|bytes| bytes.to_string()),
        it.outstanding_mean_bytes.map(|bytes| bytes.to_string()),
        it.outstanding_max_bytes.map(|bytes| bytes.to_string()),
        seconds_field(it.window_limited),
        seconds_field(it.zero_window),
        rtt(|it| it.samples as f64),
        rtt(|it| it.min_seconds),
        rtt(|it| it.mean_seconds),
        rtt(|it| it.max_seconds),
        it.rtt.and_then(|it| it.deviation_seconds).map(|it| it.to_string()),
        seconds_field(it.idle),
        it.throughput.map(|rate| rate.bits_per_second().to_string()),
        it.goodput.map(|rate| rate.bits_per_second().to_string()),
        count(it.copies),
        count(it.probes),
    ]
}
