//! A satellite link on one machine, with real packets and real kernels.
//!
//! ```text
//!            LAN (veth)          satellite hop            LAN (veth)
//!   client ──────────── terminal ══════════════ hub ──────────────── server
//!                           sat0 │             │ sat0
//!                             t0 └──── sky ────┘ h0
//!                          AF_PACKET · 2 × link::Link · AF_PACKET
//! ```
//!
//! Every name above is a network namespace. `sky` belongs to the lab: a thread
//! in it (the *driver*) takes each IP packet off one device, hands it to the
//! [`link::Link`] of that direction with the time it arrived, and puts it on
//! the other device when the link delivers it.
//!
//! A program that wants a lab calls [`enter`] first, before it has a second
//! thread, and then [`Lab::start`]. Nothing outlives the process: namespaces
//! have no names, only file descriptors, and whatever runs in the lab is killed
//! by the kernel when the lab's first process ends, however it ends.
//!
//! What the lab does not model: the LANs (they are as fast as the machine), and
//! the time the machine itself takes to move a packet (tens of microseconds).

mod capture;
mod check;
mod clock;
mod driver;
mod enter;
mod environment;
mod hosts;
mod lab;
mod lateness;
mod netlink;
mod netns;
mod node;
mod offload;
mod pcapng;
mod port;
mod preset;
mod priority;
mod queue;
mod ring;
mod server;
mod settings;
mod supervise;
mod tap;
mod topology;

pub use capture::{Capture, CaptureError, Captured};
pub use check::{
    CheckError, CheckReport, DelayReport, DirectionReport, DriverReport, LossReport, OrderReport,
    QueueReport, RateReport, ReachReport, check,
};
pub use driver::{Faults, Gauge, Gauges};
pub use enter::{EnterError, enter};
pub use environment::{FindError, LAB_VARIABLE, NETNS_VARIABLE, find_netns};
pub use lab::{Lab, StartError};
pub use lateness::Lateness;
pub use netns::NetNs;
pub use node::{Node, UnknownNode};
pub use preset::{Direction, Overrides, Preset, PresetError};
pub use queue::{Queue, QueueError};
pub use supervise::leave_signals_to_the_command;
pub use topology::{HOP_DEVICE, LAN_DEVICE, TopologyError};
