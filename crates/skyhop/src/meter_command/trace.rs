//! `skyhop meter trace`.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use meter::trace::{
    ConnectionReport, DirectionReport, Durations, Ending, Trace, TraceOptions, TraceReport,
    WindowReport, svg,
};
use serde::Serialize;

use super::text::{csv_line, rate, seconds, size};

/// Arguments of `skyhop meter trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Capture file: pcap or pcapng
    file: PathBuf,
    /// Print the whole report as JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a CSV line for each direction of each connection
    #[arg(long)]
    csv: bool,
    /// Draw an SVG time-sequence graph of each direction with payload into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Analyse only this connection, counted from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    connection: Option<u64>,
}

/// The report, with the name of its capture.
#[derive(Serialize)]
struct Titled<'a> {
    meter: &'static str,
    file: &'a Path,
    #[serde(flatten)]
    report: &'a TraceReport,
}

/// Runs the analysis. Errors inside a capture are warnings; the exit code is 0 if anything could be
/// read.
pub(super) fn run(args: &TraceArgs) -> Result<ExitCode> {
    let trace = analyse(args)?;
    for warning in &trace.report.warnings {
        eprintln!("skyhop: {}: {warning}", args.file.display());
    }
    let connections = &trace.report.connections;
    if let Some(number) = args.connection.filter(|_| connections.is_empty()) {
        bail!("{} has no connection {number}", args.file.display());
    }
    if let Some(directory) = &args.svg {
        draw(&trace, directory)?;
    }
    crate::print(&show(args, &trace.report)?)?;
    Ok(ExitCode::SUCCESS)
}

fn analyse(args: &TraceArgs) -> Result<Trace> {
    let shown = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {shown}"))?;
    // A pipe has no length; the progress bar then only counts.
    let length = file.metadata().with_context(|| format!("cannot open {shown}"))?.len();
    let bar = ProgressBar::new(length).with_style(
        ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let options = TraceOptions { connection: args.connection, plots: args.svg.is_some() };
    let trace = meter::trace::analyse(bar.wrap_read(file), options);
    bar.finish_and_clear();
    trace.with_context(|| shown.to_string())
}

fn draw(trace: &Trace, directory: &Path) -> Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    std::fs::create_dir_all(directory).with_context(|| cannot(directory))?;
    for (number, plots) in &trace.plots {
        let found = trace.report.connections.iter().find(|it| it.number == *number);
        let Some(connection) = found else { continue };
        for (name, text) in svg::draw(connection, plots)? {
            let path = directory.join(name);
            std::fs::write(&path, text).with_context(|| cannot(&path))?;
        }
    }
    Ok(())
}

fn show(args: &TraceArgs, report: &TraceReport) -> Result<String> {
    if args.json {
        let titled = Titled { meter: "trace", file: &args.file, report };
        return Ok(serde_json::to_string_pretty(&titled)? + "\n");
    }
    if args.csv {
        let lines = report.connections.iter().map(csv);
        return Ok(CSV_HEAD.to_owned() + "\n" + &lines.collect::<String>());
    }
    Ok(text(report))
}

fn text(report: &TraceReport) -> String {
    let mut text = format!(
        "{} packets, {} of them TCP, {} connections\n",
        report.packets,
        report.tcp_packets,
        report.connections.len()
    );
    for connection in &report.connections {
        text += "\n";
        text += &connection_text(connection);
    }
    text
}

fn connection_text(it: &ConnectionReport) -> String {
    let mut text = format!(
        "connection {}: A = {}, B = {}\n  began at {}, lasted {}, {}",
        it.number,
        it.a,
        it.b,
        seconds(Some(it.start)),
        seconds(Some(it.lasted)),
        ending(it.ending),
    );
    if let Some(handshake) = it.handshake {
        let _ = write!(text, ", handshake {}", milliseconds(handshake.as_secs_f64()));
    }
    if !it.begins_in_capture {
        text += "\n  without both SYNs: window scale unknown";
    }
    let _ = writeln!(text, "\n  {:<28}{:>24}{:>24}", "", "A → B", "B → A");
    for (name, of) in ROWS {
        let [a, b] = [&it.a_to_b, &it.b_to_a].map(of);
        if a.is_some() || b.is_some() {
            let shown = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
            let _ = writeln!(text, "  {name:<28}{:>24}{:>24}", shown(a), shown(b));
        }
    }
    text
}

/// An ending for people.
fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Closed => "closed",
        Ending::HalfClosedByA => "half-closed by A",
        Ending::HalfClosedByB => "half-closed by B",
        Ending::ResetByA => "reset by A",
        Ending::ResetByB => "reset by B",
        Ending::Refused => "refused",
        Ending::Unanswered => "not answered",
        _ => "still open",
    }
}

/// A row of the table: its name, and its value; `None` if unknown or not worth showing.
type Row = (&'static str, fn(&DirectionReport) -> Option<String>);

const ROWS: [Row; 36] = [
    ("packets", |it| Some(it.packets.to_string())),
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
    ("  largest", |it| (it.data_packets > 0).then(|| size(it.outstanding_max_bytes))),
    ("window-limited for", |it| it.window_limited.filter(|_| sends(it)).map(time)),
    ("zero window for", |it| it.zero_window.filter(|zero| !zero.is_zero()).map(time)),
    ("RTT samples", |it| it.rtt.map(|it| it.samples.to_string())),
    ("  min / mean / max", |it| it.rtt.map(|it| three(&it))),
    ("  deviation", |it| it.rtt.map(|it| milliseconds(it.deviation_seconds))),
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

fn three(it: &Durations) -> String {
    let [min, mean, max] = [it.min_seconds, it.mean_seconds, it.max_seconds].map(|it| it * 1e3);
    format!("{min:.2}/{mean:.2}/{max:.2} ms")
}

/// The columns of [`csv`].
const CSV_HEAD: &str = "connection,direction,from,to,start_seconds,lasted_seconds,ending,packets,\
    data_packets,pure_acks,payload_bytes,unique_bytes,retransmitted_packets,retransmitted_bytes,\
    needless_packets,repair_packets,repair_bytes,reordered_packets,duplicate_acks,sack_blocks,\
    dsacks,syn_retransmissions,mss,window_scale,initial_window_bytes,outstanding_mean_bytes,\
    outstanding_max_bytes,window_limited_seconds,zero_window_seconds,rtt_samples,rtt_min_seconds,\
    rtt_mean_seconds,rtt_max_seconds,rtt_deviation_seconds,idle_seconds,\
    throughput_bits_per_second,goodput_bits_per_second";

fn csv(it: &ConnectionReport) -> String {
    let to_b = csv_direction(it, "a_to_b", [it.a, it.b].map(|it| it.to_string()), &it.a_to_b);
    to_b + &csv_direction(it, "b_to_a", [it.b, it.a].map(|it| it.to_string()), &it.b_to_a)
}

fn csv_direction(
    connection: &ConnectionReport,
    direction: &str,
    [from, to]: [String; 2],
    it: &DirectionReport,
) -> String {
    let time = |time: Duration| time.as_secs_f64().to_string();
    let rtt = |of: fn(&Durations) -> f64| it.rtt.as_ref().map(|rtt| of(rtt).to_string());
    let ending = serde_json::to_value(connection.ending).ok();
    let count = |count: u64| Some(count.to_string());
    csv_line(&[
        count(connection.number),
        Some(direction.to_owned()),
        Some(from),
        Some(to),
        Some(time(connection.start)),
        Some(time(connection.lasted)),
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
        count(it.outstanding_max_bytes),
        it.window_limited.map(time),
        it.zero_window.map(time),
        rtt(|it| it.samples as f64),
        rtt(|it| it.min_seconds),
        rtt(|it| it.mean_seconds),
        rtt(|it| it.max_seconds),
        rtt(|it| it.deviation_seconds),
        it.idle.map(time),
        it.throughput.map(|rate| rate.bits_per_second().to_string()),
        it.goodput.map(|rate| rate.bits_per_second().to_string()),
    ])
}
