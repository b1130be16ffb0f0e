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

pub use analysis::{Analysis, CONNECTIONS_MAX, PLOTTED_MAX, Trace, TraceOptions, analyse};
pub use connection::Plots;
pub use file::CaptureError;
pub use layers::{Place, Protocol};
pub use link_type::LinkType;
pub use packet::{Content, Packet};
pub use plot::{Mark, Marks, Plot};
pub use report::{ConnectionReport, DirectionReport, Durations, Ending, TraceReport, WindowReport};
pub use segment::{Flags, Options, Segment, Sighting};
