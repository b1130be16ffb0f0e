//! The `[dama]` table as written in a file.

use link::dama::{CapacityPolicy, FreeCapacity, MacLimit, SharingRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::BitRate;

use super::classes::RawClasses;
use super::contention::{RawRandomAccess, RawRequests};
use super::{DamaSpec, DamaTerminal};
use config::file::text::{Text, Time};

/// Capacity on demand on the return link, whose rate is that of one carrier.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "Dama")]
pub(crate) struct RawDama {
    /// Duration of a frame.
    #[schemars(extend("examples" = ["53 ms"]))]
    pub(super) frame: Text<Time>,
    /// Number of frames in a superframe. Capacity is allocated once per superframe.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub(super) frames_per_superframe: Option<u32>,
    /// Number of carriers that all terminals share.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub(super) carriers: Option<u32>,
    /// Time from a decision to the transmission of the plan.
    #[schemars(extend("default" = "0 s"))]
    pub(super) processing: Option<Text<Time>>,
    /// Algorithm of requests and their allocation: classic or rtt-aware.
    #[schemars(extend("default" = "classic", "examples" = ["classic", "rtt-aware"]))]
    pub(super) policy: Option<Text<CapacityPolicy>>,
    /// Frames between a terminal's request opportunities.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub(super) request_period: Option<u32>,
    /// RBDC: superframes for which a requested rate holds.
    #[schemars(range(min = 1), extend("default" = 12))]
    pub(super) rate_time_out: Option<u32>,
    /// RBDC: frames within which the backlog is to be sent; minimum scheduling latency.
    #[schemars(range(min = 1), extend("default" = 2))]
    pub(super) scheduling_latency: Option<u32>,
    /// VBDC: frames without a grant after which a request counts as lost. By default three times the
    /// longest time to a grant on an empty link.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume_time_out: Option<u32>,
    /// Assigned requests survive error bursts, because they are short and coded more strongly.
    #[schemars(extend("default" = false))]
    pub(super) robust_requests: Option<bool>,
    /// Division of insufficient capacity among terminals: proportional or fair.
    #[schemars(extend("default" = "proportional", "examples" = ["proportional", "fair"]))]
    pub(super) sharing: Option<Text<SharingRule>>,
    /// FCA: terminals that get unrequested capacity: none, all \[chunk=N\], asking \[chunk=N\].
    #[schemars(extend("default" = "none", "examples" = ["none", "all chunk=4", "asking"]))]
    pub(super) free: Option<Text<FreeCapacity>>,
    /// Transport of requests; without this table, in slots of each terminal's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requests: Option<RawRequests>,
    /// Carriers on which short bursts of packets are sent without a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) random_access: Option<RawRandomAccess>,
    /// Capacity of each terminal, and its MAC buffer.
    pub(super) terminal: RawDamaTerminal,
}

/// Capacity of each terminal, and its MAC buffer. Rates count cells with their headers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(rename = "DamaTerminal")]
pub(super) struct RawDamaTerminal {
    /// CRA: rate that needs no request.
    #[schemars(extend("default" = "0 bit/s"))]
    pub(super) cra: Option<Text<BitRate>>,
    /// RBDC: upper limit of its rate requests.
    #[schemars(extend("default" = "0 bit/s"))]
    pub(super) rbdc: Option<Text<BitRate>>,
    /// VBDC: maximum number of cells in one request.
    #[schemars(range(max = 4080), extend("default" = 0))]
    pub(super) vbdc: Option<u32>,
    /// VBDC: number of cells that each terminal gets before any gets more.
    #[schemars(extend("default" = 3))]
    pub(super) vbdc_first: Option<u32>,
    /// Kind of capacity that each class of traffic uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) classes: Option<RawClasses>,
    /// Upper limit of its total rate; by default that of its transmitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ceiling: Option<Text<BitRate>>,
    /// Its share where terminals share by weight.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub(super) weight: Option<u32>,
    /// The MAC buffer of each class of traffic.
    #[schemars(extend("examples" = ["600 cells", "64 kB"]))]
    pub(super) mac_buffer: Text<MacLimit>,
    /// Packets wait in the IP queue until they fit into the MAC buffer. Otherwise the IP queue stays
    /// empty, and the MAC buffer drops packets that do not fit.
    #[schemars(extend("default" = false))]
    pub(super) flow_control: Option<bool>,
}

impl From<&DamaSpec> for RawDama {
    fn from(spec: &DamaSpec) -> Self {
        Self {
            frame: Text(Time(spec.frame)),
            frames_per_superframe: Some(spec.frames_per_superframe),
            carriers: Some(spec.carriers),
            processing: Some(Text(Time(spec.processing))),
            policy: Some(Text(spec.policy)),
            request_period: Some(spec.request_period),
            rate_time_out: Some(spec.rate_time_out),
            scheduling_latency: Some(spec.scheduling_latency),
            // Left out by default, because the default follows from delays that the file may change.
            volume_time_out: spec.volume_time_out,
            robust_requests: Some(spec.robust_requests),
            sharing: Some(Text(spec.sharing)),
            free: Some(Text(spec.free)),
            requests: RawRequests::of(&spec.transport),
            random_access: spec.random_access.as_ref().map(Into::into),
            terminal: (&spec.terminal).into(),
        }
    }
}

impl From<&DamaTerminal> for RawDamaTerminal {
    fn from(terminal: &DamaTerminal) -> Self {
        Self {
            cra: Some(Text(terminal.cra)),
            rbdc: Some(Text(terminal.rbdc)),
            vbdc: Some(terminal.vbdc),
            vbdc_first: Some(terminal.vbdc_first),
            classes: RawClasses::of(terminal.categories),
            ceiling: terminal.ceiling.map(Text),
            weight: Some(terminal.weight),
            mac_buffer: Text(terminal.mac),
            flow_control: Some(terminal.flow_control),
        }
    }
}
