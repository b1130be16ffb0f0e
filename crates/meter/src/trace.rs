//! Analysis of packet captures, connection by connection.
//!
//! ```text
//! file ── packet ── segment ──► analysis ──► connection ──► 2 × half ──► report, plot
//! ```
//!
//! All figures derive from the packets that passed the point of capture, and their times there. A
//! capture at the sender shows every transmission; one at the receiver shows arrivals, and infers a
//! loss from the hole and its repair.
//!
//! Not modelled: payload (a capture may hold headers only), checksums, urgent data, congestion
//! windows (which are not transmitted), and TCP in IP fragments.

mod analysis;
mod clock;
mod connection;
mod copies;
mod delivery;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod half;
mod layers;
mod left_out;
mod level;
mod link_type;
mod moments;
mod packet;
mod pcapng;
mod plot;
mod print;
mod ranges;
mod report;
mod rtt;
mod segment;
mod sequence;
mod svg;
mod window;

pub use analysis::{
    AnalysedCapture, CONNECTIONS_MAX, CaptureAnalysis, PLOTTED_MAX, TraceOptions, analyse,
};
pub use connection::Plots;
pub use file::CaptureError;
pub use layers::{CapturePlace, Protocol};
pub use link_type::LinkType;
pub use packet::{CapturedPacket, PacketContent};
pub use plot::{Plot, PlotMark, PlotMarks};
pub use report::{
    ConnectionEnding, ConnectionReport, DirectionReport, DurationStatistics, TraceReport,
    WindowReport,
};
pub use segment::{CapturedSegment, SegmentFlags, SegmentOptions, Sighting};
