//! Assigns the packets of a capture to connections.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;

use units::Instant;

use super::capture::file::{self, CaptureError, CaptureRecord};
use super::capture::link_type::LinkType;
use super::capture::packet::{CapturedPacket, PacketContent};
use super::capture::segment::CapturedSegment;
use super::clock::Clocks;
use super::connection::{Plots, TracedConnection};
use super::copies::CopyDetector;
use super::left_out::LeftOut;
use super::report::{ConnectionReport, TraceReport};

/// Options of a capture's analysis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// Number of the only connection to report, counted from 1; `None` for all.
    pub connection: Option<u64>,
    /// Set to produce graphs: of the selected connection, or of the first [`PLOTTED_MAX`].
    pub plots: bool,
}

/// Maximum number of connections reported; packets of later ones are only counted.
pub const CONNECTIONS_MAX: u64 = 65_536;
/// Maximum number of connections with graphs, unless one is selected.
pub const PLOTTED_MAX: u64 = 50;

/// The result of an analysis.
#[derive(Debug, Default)]
pub struct AnalysedCapture {
    /// Counts and figures of the whole capture.
    pub report: TraceReport,
    /// The graphs: the connection's number and its two directions.
    pub plots: Vec<(u64, Plots)>,
}

/// Reads a capture to its end, or to the first error in it, which is reported as a warning.
///
/// For each direction it keeps at most 65,536 segments in flight (32 bytes each), 4,096 time
/// stamps, 4,096 holes and twice 4,096 ranges: 2.5 MB, of which a connection without loss uses only
/// what is in flight. A direction's graph takes at most 2.8 MB more. The last 65,536 TCP packets
/// are remembered to recognise their copies: 20 MB. The file is never loaded into memory.
///
/// # Errors
/// If the file is not a capture, or fails before its first packet.
pub fn analyse(source: impl Read, options: TraceOptions) -> Result<AnalysedCapture, CaptureError> {
    let mut analysis = CaptureAnalysis::new(options);
    let read = file::read(source, &mut |record| analysis.record(&record));
    match read {
        Err(error) if analysis.packets == 0 => Err(error),
        read => Ok(analysis.finish(read)),
    }
}

/// Interface, and the addresses and ports of both ends.
type ConnectionKey = (u32, SocketAddr, SocketAddr);

/// Analyses packets one by one, in the order of the capture.
#[derive(Debug)]
pub struct CaptureAnalysis {
    options: TraceOptions,
    live: BTreeMap<ConnectionKey, TracedConnection>,
    done: Vec<(ConnectionReport, Option<Plots>)>,
    begin: Option<Instant>,
    connections: u64,
    packets: u64,
    tcp_packets: u64,
    clocks: Clocks,
    copies: CopyDetector,
    left_out: LeftOut,
}

impl CaptureAnalysis {
    /// Creates an analysis without packets.
    pub fn new(options: TraceOptions) -> Self {
        Self {
            options,
            live: BTreeMap::new(),
            done: Vec::new(),
            begin: None,
            connections: 0,
            packets: 0,
            tcp_packets: 0,
            clocks: Clocks::default(),
            copies: CopyDetector::default(),
            left_out: LeftOut::default(),
        }
    }

    fn record(&mut self, record: &CaptureRecord<'_>) {
        match *record {
            CaptureRecord::Packet(ref packet) => self.add_packet(packet),
            CaptureRecord::Lost { interface, packets } => self.left_out.lost(interface, packets),
            CaptureRecord::Unknown { kind } => self.left_out.block(kind),
        }
    }

    /// Adds a packet: counts it, and analyses its TCP segment if it has one.
    pub fn add_packet(&mut self, packet: &CapturedPacket<'_>) {
        self.packets += 1;
        if packet.time.is_none() {
            self.left_out.untimed += 1;
        }
        let time = self.clocks.time(packet.interface, packet.time);
        // Times are relative to the first packet of any kind.
        self.begin.get_or_insert(time);
        if let LinkType::Unknown(number) = packet.link {
            return self.left_out.link(number);
        }
        match packet.content() {
            PacketContent::Tcp(segment) => {
                self.add_segment(packet.interface, &CapturedSegment { time, ..segment });
            }
            PacketContent::Fragment => self.left_out.fragments += 1,
            PacketContent::Unreadable => self.left_out.unreadable += 1,
            PacketContent::Other(protocol) => self.left_out.protocol(protocol),
        }
    }

    /// Adds a TCP segment captured on `interface`.
    pub fn add_segment(&mut self, interface: u32, segment: &CapturedSegment) {
        self.tcp_packets += 1;
        self.begin.get_or_insert(segment.time);
        let low = segment.from.min(segment.to);
        let high = segment.from.max(segment.to);
        // Both directions have the same key.
        let key = (interface, low, high);
        if self.live.get(&key).is_some_and(|connection| connection.is_over_with(segment))
            && let Some(over) = self.live.remove(&key)
        {
            self.end(over);
        }
        let set_back = self.clocks.set_back;
        if let Some(connection) = self.live.get_mut(&key) {
            if connection.add_segment(segment, set_back, &mut self.copies) {
                self.left_out.copies += 1;
            }
            return;
        }
        if self.connections == CONNECTIONS_MAX {
            self.left_out.connections += 1;
            return;
        }
        self.connections += 1;
        let plotted = self.options.plots && self.is_plotted(self.connections);
        let mut connection = TracedConnection::new(self.connections, interface, segment, plotted);
        connection.add_segment(segment, set_back, &mut self.copies);
        self.live.insert(key, connection);
    }

    fn is_plotted(&self, number: u64) -> bool {
        self.options.connection.map_or(number <= PLOTTED_MAX, |chosen| chosen == number)
    }

    fn end(&mut self, connection: TracedConnection) {
        let (report, plots) = connection.finish(self.begin.unwrap_or_default());
        if self.options.connection.is_none_or(|chosen| chosen == report.number) {
            self.done.push((report, plots));
        }
    }

    /// Finishes after all packets were added; `read` is how the file ended.
    pub fn finish(mut self, read: Result<(), CaptureError>) -> AnalysedCapture {
        let mut warnings = self.left_out.warnings(&self.clocks);
        if let Err(error) = read {
            warnings.push(format!("{error}, after {} packets", self.packets));
        }
        if self.options.plots && self.options.connection.is_none() && self.connections > PLOTTED_MAX
        {
            warnings.push(format!("graphs of the first {PLOTTED_MAX} connections only"));
        }
        while let Some((_, connection)) = self.live.pop_first() {
            self.end(connection);
        }
        // Connections end in another order than they begin.
        self.done.sort_by_key(|(report, _)| report.number);
        let mut trace = AnalysedCapture::default();
        trace.report.packets = self.packets;
        trace.report.tcp_packets = self.tcp_packets;
        trace.report.other_packets = self.left_out.other_packets();
        for (report, plots) in self.done {
            trace.plots.extend(plots.map(|plots| (report.number, plots)));
            trace.report.connections.push(report);
        }
        trace.report.warnings = warnings;
        trace
    }
}

#[cfg(test)]
mod tests;
