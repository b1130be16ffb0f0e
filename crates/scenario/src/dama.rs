//! Capacity on demand: the `[dama]` table of a hop.

mod classes;
mod contention;
pub(crate) mod raw;
#[cfg(test)]
mod tests;

use core::time::Duration;

use link::dama::{
    Allocation, CapacityPolicy, Cell, ClassCapacities, DamaConfig, DamaError, Frames, FramesError,
    FreeCapacity, MacLimit, RandomAccess, RequestSettings, RequestTransport, SharingRule,
    TerminalConfig,
};
use link::{Encapsulation, Jitter, LinkConfig, Rate};
use units::{BitRate, format_duration};

use crate::{LinkSpec, RateSpec};
use config::FileError;
use config::file::place::{KeyContext, quoted};
use raw::{RawDama, RawDamaTerminal};

/// A return link on which terminals request capacity. Rate, delay, losses, the IP queue and its
/// discipline are those of the hop's return link, whose rate is that of one carrier.
#[derive(Debug, Clone, PartialEq)]
pub struct DamaSpec {
    /// Duration of a frame.
    pub frame: Duration,
    /// Number of frames in a superframe.
    pub frames_per_superframe: u32,
    /// Number of carriers that all terminals share.
    pub carriers: u32,
    /// Time from a decision to the transmission of the plan.
    pub processing: Duration,
    /// Algorithm of the terminals' requests and of the network control centre's allocation.
    pub policy: CapacityPolicy,
    /// Frames between a terminal's request opportunities.
    pub request_period: u32,
    /// Superframes for which a requested rate holds.
    pub rate_time_out: u32,
    /// Minimum scheduling latency in frames.
    pub scheduling_latency: u32,
    /// Frames without a grant after which a volume request counts as lost; `None`: three times the
    /// longest time to a grant on an empty link.
    pub volume_time_out: Option<u32>,
    /// Transport of requests to the network control centre.
    pub transport: RequestTransport,
    /// Carriers on which short bursts of packets are sent without a request.
    pub random_access: Option<RandomAccess>,
    /// True if assigned requests survive error bursts.
    pub robust_requests: bool,
    /// Division of insufficient capacity among terminals.
    pub sharing: SharingRule,
    /// Distribution of unrequested capacity.
    pub free: FreeCapacity,
    /// Settings of each terminal.
    pub terminal: DamaTerminal,
}

/// Capacity of each terminal, and its MAC buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct DamaTerminal {
    /// Rate that needs no request.
    pub cra: BitRate,
    /// Upper limit of its rate requests.
    pub rbdc: BitRate,
    /// Maximum number of cells in one volume request.
    pub vbdc: u32,
    /// Number of cells that each terminal gets before any gets more.
    pub vbdc_first: u32,
    /// Kind of capacity that each class of traffic uses.
    pub categories: ClassCapacities,
    /// Upper limit of its total rate.
    pub ceiling: Option<BitRate>,
    /// Its share where terminals share by weight.
    pub weight: u32,
    /// The MAC buffer of each class of traffic.
    pub mac: MacLimit,
    /// True if packets wait in the IP queue until they fit into the MAC buffer.
    pub flow_control: bool,
}

impl DamaSpec {
    /// Reads the table, for a hop with these links, forward and return.
    pub(crate) fn read(
        place: &KeyContext<'_>,
        raw: &RawDama,
        links: [&LinkSpec; 2],
        terminals: u32,
    ) -> Result<Self, FileError> {
        let count = |key, value: Option<u32>, default: u32| {
            let value = value.unwrap_or(default);
            place.check(value > 0, key, value, "1 or more").map(|()| value)
        };
        let frame = place.time("frame", Some(raw.frame))?.unwrap_or_default();
        let spec = Self {
            frame,
            frames_per_superframe: count("frames-per-superframe", raw.frames_per_superframe, 1)?,
            carriers: count("carriers", raw.carriers, 1)?,
            processing: place.time("processing", raw.processing)?.unwrap_or_default(),
            policy: raw.policy.map(|text| text.0).unwrap_or_default(),
            request_period: count("request-period", raw.request_period, 1)?,
            rate_time_out: count("rate-time-out", raw.rate_time_out, 12)?,
            scheduling_latency: count("scheduling-latency", raw.scheduling_latency, 2)?,
            volume_time_out: raw.volume_time_out,
            robust_requests: raw.robust_requests.unwrap_or(false),
            transport: contention::transport(&place.within("requests"), raw.requests.as_ref())?,
            random_access: raw.random_access.as_ref().map(Into::into),
            sharing: raw.sharing.map(|text| text.0).unwrap_or_default(),
            free: raw.free.map(|text| text.0).unwrap_or_default(),
            terminal: DamaTerminal::read(&place.within("terminal"), &raw.terminal)?,
        };
        spec.check(place, links, terminals).map(|()| spec)
    }

    /// Checks that a hop with these links, forward and return, can be built with this table.
    pub(crate) fn check(
        &self,
        place: &KeyContext<'_>,
        [forward, ret]: [&LinkSpec; 2],
        terminals: u32,
    ) -> Result<(), FileError> {
        // Frames have a fixed number of slots, so mahimahi's delivery opportunities or ACM do not fit.
        let RateSpec::Given(Rate::Constant(_) | Rate::Trace(_)) = ret.rate else {
            let message = "a return link with [dama] needs a constant rate, or a trace of rates";
            return Err(place.unreadable("", message));
        };
        if ret.jitter != Jitter::None {
            return Err(place.unreadable("", "a return link with [dama] has no jitter but its own"));
        }
        if ret.policer.is_some() {
            return Err(place.unreadable("", "a return link with [dama] has no policer"));
        }
        if cell(ret.encapsulation).is_none() {
            let value = quoted(ret.encapsulation);
            let message = format!(
                "a return link with [dama] needs cells, not encapsulation = {value}: expected \
                 \"aal5\" or \"mpe\""
            );
            return Err(place.unreadable("", message));
        }
        // Round-trip time and MTU determine only the size of the queue, which is not checked here.
        // Built as a check, so that everything that can be read can be built.
        let built = self.config(forward, &ret.config(Duration::ZERO, u16::MAX), terminals);
        built.map(drop).map_err(|error| self.explain(place, error, ret, terminals))
    }

    /// Returns the error of a file whose return link cannot be built.
    fn explain(
        &self,
        place: &KeyContext<'_>,
        error: DamaError,
        ret: &LinkSpec,
        terminals: u32,
    ) -> FileError {
        let wrong_cra = |expected: String| {
            place.within("terminal").wrong_value("cra", self.terminal.cra, expected)
        };
        match error {
            DamaError::Frames(FramesError::TooSlow { .. }) => {
                let expected = format!("long enough for a cell at {}", ret.rate.greatest());
                place.wrong_value("frame", format_duration(self.frame), expected)
            }
            DamaError::Overbooked { capacity, .. } => {
                wrong_cra(format!("at most {capacity} for all {terminals} terminals"))
            }
            DamaError::RequestSlots(error) => {
                contention::wrong_slots(&place.within("requests"), &self.transport, error)
            }
            DamaError::RandomAccess(error) => {
                let place = place.within("random-access");
                contention::wrong_access(&place, self.random_access.as_ref(), error)
            }
            DamaError::OneOverbooked { capacity, .. } => {
                wrong_cra(format!("at most a carrier's {capacity}"))
            }
            other => place.unreadable("frame", other),
        }
    }

    /// Builds the return link of `terminals` terminals. The delay of allocations is that of `forward`;
    /// everything else is that of `ret`, the terminals' link without DAMA. If its rate changes, frames
    /// have the slots of the greatest rate.
    ///
    /// # Errors
    /// If it cannot be built; never with the links for which the table was read.
    pub fn config(
        &self,
        forward: &LinkSpec,
        ret: &LinkConfig,
        terminals: u32,
    ) -> Result<DamaConfig, DamaError> {
        let forward_delay = forward.delay.greatest();
        // `check` has refused other encapsulations already, with the name of the key.
        let cell = cell(ret.encapsulation).ok_or(FramesError::Empty)?;
        let count = self.frames_per_superframe;
        let carrier = ret.rate.greatest();
        let frames = Frames::new(self.frame, count, self.carriers, carrier, cell)?;
        // The request crosses the return link, the plan the forward link.
        let allocation = forward_delay + ret.delay.greatest() + self.processing;
        let config = DamaConfig {
            frames,
            rate: matches!(ret.rate, Rate::Trace(_)).then(|| ret.rate.clone()),
            delay: ret.delay.clone(),
            forward_delay,
            processing: self.processing,
            requests: RequestSettings {
                policy: self.policy,
                period: self.request_period,
                rate_time_out: self.rate_time_out,
                scheduling_latency: self.scheduling_latency,
                volume_time_out: self.volume_time_out.unwrap_or_else(|| self.patience(allocation)),
                transport: self.transport,
                robust: self.robust_requests,
            },
            allocation: Allocation { sharing: self.sharing, free: self.free },
            random_access: self.random_access,
            terminals: vec![self.terminal.config(ret); terminals as usize],
        };
        config.check().map(|()| config)
    }

    /// Returns three times the longest time to a grant on an empty link, in frames.
    fn patience(&self, allocation: Duration) -> u32 {
        let frames = allocation.as_nanos().div_ceil(self.frame.as_nanos().max(1));
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        // A period until the request leaves, a superframe until it is decided, and the granted one.
        let waits = self.request_period.saturating_add(self.frames_per_superframe * 2);
        frames.saturating_add(waits).saturating_mul(3)
    }
}

impl DamaTerminal {
    fn read(place: &KeyContext<'_>, raw: &RawDamaTerminal) -> Result<Self, FileError> {
        let rate = |text: Option<config::file::text::Text<BitRate>>| text.map(|text| text.0);
        let weight = raw.weight.unwrap_or(1);
        place.check(weight > 0, "weight", weight, "1 or more")?;
        let terminal = Self {
            cra: rate(raw.cra).unwrap_or_default(),
            rbdc: rate(raw.rbdc).unwrap_or_default(),
            vbdc: raw.vbdc.unwrap_or(0),
            vbdc_first: raw.vbdc_first.unwrap_or(3),
            categories: classes::read(&place.within("classes"), raw)?,
            ceiling: rate(raw.ceiling),
            weight,
            mac: raw.mac_buffer.0,
            flow_control: raw.flow_control.unwrap_or(false),
        };
        let any = terminal.cra > BitRate::default()
            || terminal.rbdc > BitRate::default()
            || terminal.vbdc > 0;
        let expected =
            "a rate above 0, unless rbdc or vbdc has one: the terminal could send nothing";
        place.check(any, "cra", terminal.cra, expected).map(|()| terminal)
    }

    fn config(&self, ret: &LinkConfig) -> TerminalConfig {
        TerminalConfig {
            cra: self.cra,
            rbdc: self.rbdc,
            vbdc: self.vbdc,
            vbdc_first: self.vbdc_first,
            categories: self.categories,
            ceiling: self.ceiling,
            weight: self.weight,
            mac: self.mac,
            flow_control: self.flow_control,
            queue: ret.queue,
            discipline: ret.discipline,
            loss: ret.loss.clone(),
            outages: ret.outages.clone(),
        }
    }
}

/// Returns the cells of an encapsulation; `None` if it does not use cells.
fn cell(encapsulation: Encapsulation) -> Option<Cell> {
    match encapsulation {
        Encapsulation::Aal5 { llc_snap: false } => Some(Cell::ATM),
        // 8 bytes of LLC/SNAP (RFC 2684) besides the 8 of AAL5's trailer.
        Encapsulation::Aal5 { llc_snap: true } => Some(Cell { per_packet: 16, ..Cell::ATM }),
        Encapsulation::Mpe { .. } => Some(Cell::MPEG),
        _ => None,
    }
}
