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
//! Every name above is a network namespace. `sky` belongs to the lab: a thread in it (the *driver*)
//! takes each IP packet off one device, passes it to the [`link::Link`] of that direction with its
//! arrival time, and writes it to the other device when the link delivers it. There may be further
//! terminals with a client each, which share the forward link, and links instead of the LANs: a
//! terrestrial one between hub and server, one between each terminal and its client.
//!
//! [`Builder`] is the short way for programs and tests of other projects. A program that starts a
//! lab step by step calls [`enter`] first, while it has a single thread, and then [`Lab::start`].
//! Nothing outlives the process: namespaces have no names, only file descriptors, and the kernel
//! kills whatever runs in the lab when the lab's first process ends, however it ends. A persistent
//! lab ([`detach`], [`PersistentLab`]) runs in a process that no command waits for.
//!
//! Not modelled: the LANs (they are as fast as the machine), and the time the machine itself takes
//! to move a packet (tens of microseconds).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod builder;
mod cabled;
mod capture;
mod check;
mod driver;
mod environment;
mod lab;
mod preset;
mod server;
mod standing;
mod start_error;
#[cfg(test)]
mod testkit;
mod topology;

pub use builder::{BuildError, Builder};
pub use cabled::CabledLab;
pub use capture::{CaptureError, CaptureSummary, LabCapture};
pub use check::{
    CheckError, CheckReport, DelayReport, DirectionReport, DisciplineReport, DriverReport,
    LossReport, OrderReport, QueueReport, RateReport, ReachReport, check,
};
pub use driver::carrier::SharedGauge;
pub use driver::lateness::Lateness;
pub use driver::shared_return::allocation::allocation_picture;
pub use driver::shared_return::{OfferedPacket, ReturnRecord};
pub use driver::{Faults, GaugeReader, LinkGauge, ModemState, ReturnModem};
pub use environment::join::LabEntry;
pub use environment::{FindError, LAB_VARIABLE, NETNS_VARIABLE, find_netns};
pub use lab::{ChangeError, Lab};
pub use os::namespace::{EnterError, NetNs, enter};
pub use scenario::{LinkSpec, Preset, PresetOverrides, TerrestrialOverrides};
pub use server::TestObject;
pub use standing::{
    AppliedChange, AskError, DetachedProcess, FaultsStatus, FoundLabs, HostStatus, LabCallbacks,
    LabName, LabNameError, LabRegistry, LabStatus, LatenessStatus, LinkChange, LinkStatus,
    PersistentLab, ReservedSlot, RunningLab, STATE_VARIABLE, StartingLab, StateError, TallyStatus,
    detach,
};
pub use start_error::StartError;
pub use topology::crossing::{HOP_DEVICE, LAN_DEVICE};
pub use topology::link_name::LinkName;
pub use topology::node::{FurtherSite, Node, Site, UnknownNode};
pub use topology::{LabNamespace, TopologyError};
