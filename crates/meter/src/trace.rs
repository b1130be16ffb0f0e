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
mod capture;
mod clock;
mod connection;
mod copies;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod left_out;
mod moments;
mod plot;
mod print;
mod report;
mod svg;

pub use analysis::{
    AnalysedCapture, CONNECTIONS_MAX, CaptureAnalysis, PLOTTED_MAX, TraceOptions, analyse,
};
pub use capture::file::CaptureError;
pub use capture::layers::{CapturePlace, Protocol};
pub use capture::link_type::LinkType;
pub use capture::packet::{CapturedPacket, PacketContent};
pub use capture::segment::{CapturedSegment, SegmentFlags, SegmentOptions, Sighting};
pub use connection::Plots;
pub use plot::{Plot, PlotMark, PlotMarks};
pub use report::{
    ConnectionEnding, ConnectionReport, DirectionReport, DurationStatistics, TraceReport,
    WindowReport,
};
