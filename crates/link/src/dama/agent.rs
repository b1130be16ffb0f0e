//! A terminal's agent: decides which capacity to request.
//!
//! Everything is counted in cells and frames. The agent is informed of arrivals and grants, and
//! returns a request at each of its opportunities.
//!
//! Rate requests (RBDC), by policy:
//!
//! ```text
//! classic     R = A/t + max(0, Q − A − asked) / W       W = max(scheduling latency, t)
//! rtt-aware   R = 1.1·A/t + max(0, Q − 1.1·A − asked) / t,  asked: within the last round trip
//! ```
//!
//! with A the cells that arrived in the t frames since the last opportunity, Q the backlog, and
//! `asked` the cells that the rates requested within the last W frames will bring. W is never
//! shorter than t: otherwise the window holds no request, and the agent requests the whole backlog
//! again each time. The part of CRA that classes without requests leave is subtracted from R, which
//! is limited to RBDC's ceiling.
//!
//! Volume requests (VBDC): the backlog, less the cells that were requested and not yet granted. If
//! nothing is granted for long, the request is assumed lost and an absolute one (AVBDC) replaces
//! it.
//!
//! A forecast is of cells that do not wait yet. It is a part of the request of its own, an absolute
//! number, and is granted from capacity that no terminal has requested. When the cells arrive they
//! are requested like any others, so that no terminal gets less because of another one's forecast.

use std::collections::VecDeque;

use units::BitRate;

use super::category::CapacityKind;
use super::config::{CapacityPolicy, DamaConfig, RequestTransport};
use super::request::{TerminalRequest, VolumeRequest, coded_rate, coded_volume};

/// The cells of a terminal, by the capacity that they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CellBacklog {
    /// Cells that the constant rate carries, without a request.
    pub constant: u32,
    /// Waiting cells for which rates are to be requested.
    pub rate: u32,
    /// Waiting cells for which volumes are to be requested.
    pub volume: u32,
    /// Forecast: cells that do not wait yet.
    pub foreseen: u32,
}

impl CellBacklog {
    /// Returns the cells of a category, to change them.
    pub(super) fn of(&mut self, category: CapacityKind) -> &mut u32 {
        match category {
            CapacityKind::Cra => &mut self.constant,
            CapacityKind::Rbdc => &mut self.rate,
            CapacityKind::Vbdc => &mut self.volume,
        }
    }
}

/// The agent that requests capacity for one terminal.
#[derive(Debug)]
pub struct RequestAgent {
    policy: CapacityPolicy,
    cell_rate: CellRate,
    cra: BitRate,
    most_rate: BitRate,
    most_volume: u32,
    /// The longest time between two opportunities without a pause; in frames, like all times here.
    period: u64,
    rate_time_out: u64,
    scheduling_latency: u64,
    volume_time_out: u64,
    /// Round trip of a request and its allocation.
    round_trip: u64,
    /// Cells that arrived since the last opportunity.
    arrived: CellBacklog,
    last_opportunity: u64,
    /// Requested rates, CRA included, each with the frame of its request; the last one holds.
    asked: VecDeque<(u64, CellsPerFrame)>,
    /// The rate last sent, beyond CRA, and the frame of its request.
    rate: BitRate,
    rate_sent: u64,
    /// Cells requested and not granted yet.
    credit: u32,
    /// The frame of the last request or grant of a volume.
    volume_news: u64,
    /// The frame of the last absolute volume request.
    absolute_sent: u64,
    /// Number of volume requests that were assumed lost.
    replaced: u64,
    /// Cells that were announced as a forecast and not granted, and the frame of the announcement.
    foreseen: u32,
    foreseen_sent: u64,
}

/// A rate in cells per frame, with 16 binary digits after the point.
type CellsPerFrame = u128;

const ONE: CellsPerFrame = 1 << 16;

/// The policy `rtt-aware` requests this many tenths of its need.
const OVERESTIMATE: u32 = 11;

/// Converts between rates and cells per frame.
#[derive(Debug, Clone, Copy)]
struct CellRate {
    frame_nanos: u128,
    cell_bits: u128,
}

impl CellRate {
    const SECOND: u128 = 1_000_000_000;

    fn of(self, rate: BitRate) -> CellsPerFrame {
        let bits = u128::from(rate.bits_per_second()) * self.frame_nanos;
        bits * ONE / (self.cell_bits * Self::SECOND)
    }

    fn bit_rate(self, cells: CellsPerFrame) -> BitRate {
        let bits = cells.saturating_mul(self.cell_bits * Self::SECOND) / (self.frame_nanos * ONE);
        BitRate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX))
    }
}

impl RequestAgent {
    /// The agent of terminal number `terminal`, which must exist.
    pub fn new(config: &DamaConfig, terminal: usize) -> Self {
        let DamaConfig { frames, requests, .. } = config;
        let frame_nanos = frames.duration.as_nanos().max(1);
        let round_trip = config.delay.greatest() + config.forward_delay + config.processing;
        // Rounded up, because an answer takes effect only with the next frame.
        let round_trip = round_trip.as_nanos().div_ceil(frame_nanos);
        let round_trip = u64::try_from(round_trip).unwrap_or(u64::MAX);
        let period = match requests.transport {
            RequestTransport::Assigned => requests.period.into(),
            // The next request waits until the one in the air is answered.
            _ => u64::from(requests.period).max(round_trip),
        };
        let terminal = &config.terminals[terminal];
        Self {
            policy: requests.policy,
            cell_rate: CellRate { frame_nanos, cell_bits: u128::from(frames.cell.wire) * 8 },
            cra: terminal.cra,
            most_rate: terminal.rbdc,
            most_volume: terminal.vbdc,
            period,
            rate_time_out: u64::from(requests.rate_time_out) * u64::from(frames.per_superframe),
            scheduling_latency: requests.scheduling_latency.into(),
            volume_time_out: requests.volume_time_out.into(),
            round_trip,
            arrived: CellBacklog::default(),
            last_opportunity: 0,
            asked: VecDeque::new(),
            rate: BitRate::default(),
            rate_sent: 0,
            credit: 0,
            volume_news: 0,
            absolute_sent: 0,
            replaced: 0,
            foreseen: 0,
            foreseen_sent: 0,
        }
    }

    /// Records cells that have arrived.
    pub fn handle_arrival(&mut self, cells: CellBacklog) {
        self.arrived.constant = self.arrived.constant.saturating_add(cells.constant);
        self.arrived.rate = self.arrived.rate.saturating_add(cells.rate);
        self.arrived.volume = self.arrived.volume.saturating_add(cells.volume);
    }

    /// Records slots that were granted for requested volumes and have passed in frame number
    /// `frame`.
    pub fn handle_volume_grant(&mut self, frame: u64, slots: u32) {
        self.credit = self.credit.saturating_sub(slots);
        self.volume_news = self.volume_news.max(frame);
    }

    /// Records slots of free capacity that have passed.
    pub fn handle_free_grant(&mut self, slots: u32) {
        self.foreseen = self.foreseen.saturating_sub(slots);
    }

    /// Records that the hub has the last request, according to the plan of frame number `frame`.
    /// Grants for it can come only from now on.
    pub fn handle_received(&mut self, frame: u64) {
        self.volume_news = self.volume_news.max(frame);
    }

    /// Withdraws `request`, the last one, after the last attempt to send it has failed: its
    /// capacity will not come.
    pub fn handle_given_up(&mut self, request: TerminalRequest) {
        if request.rate.is_some() {
            (self.rate, self.rate_sent) = (BitRate::default(), 0);
            // The hub never had it, so it must not count as coming.
            self.asked.pop_back();
        }
        match request.volume {
            Some(VolumeRequest::More(cells)) => self.credit = self.credit.saturating_sub(cells),
            Some(VolumeRequest::All(_)) => self.credit = 0,
            None => {}
        }
        if request.foreseen.is_some() {
            self.foreseen = 0;
        }
    }

    /// Returns true if it has nothing to request or to end while nothing waits or arrives, so that
    /// it needs no opportunity.
    pub fn is_idle(&self) -> bool {
        let asked = self.credit > 0 || self.foreseen > 0 || self.rate > BitRate::default();
        self.arrived == CellBacklog::default() && !asked
    }

    /// Returns the number of volume requests that were assumed lost and replaced.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Returns the request for an opportunity in frame number `frame`, which never decreases.
    pub fn request(&mut self, frame: u64, backlog: CellBacklog) -> TerminalRequest {
        let can_ask_rate = self.most_rate > BitRate::default();
        let rate = can_ask_rate.then(|| self.rate_request(frame, backlog.rate)).flatten();
        let can_ask_volume = self.most_volume > 0;
        let volume = can_ask_volume.then(|| self.volume_request(frame, backlog.volume)).flatten();
        let foreseen =
            can_ask_volume.then(|| self.forecast_request(frame, backlog.foreseen)).flatten();
        self.arrived = CellBacklog::default();
        self.last_opportunity = frame;
        TerminalRequest { rate, volume, foreseen }
    }

    /// Returns the forecast, if it differs from what was announced and not granted, or if the
    /// announcement may be lost.
    fn forecast_request(&mut self, frame: u64, cells: u32) -> Option<u32> {
        let cells = self.coded(cells);
        let is_old = frame.saturating_sub(self.foreseen_sent) >= self.volume_time_out;
        if cells == self.foreseen && !(cells > 0 && is_old) {
            return None;
        }
        (self.foreseen, self.foreseen_sent) = (cells, frame);
        Some(cells)
    }

    /// Returns a rate that differs from the one that holds, or repeats it at the last opportunity that is not
    /// later than halfway to its time-out; at each one if there is none.
    fn rate_request(&mut self, frame: u64, backlog: u32) -> Option<BitRate> {
        let needed = self.cell_rate.bit_rate(self.needed(frame, backlog));
        // CRA may be more than what is needed.
        let cra = self.cra_left(frame);
        let beyond = needed.bits_per_second().saturating_sub(cra.bits_per_second());
        let beyond = BitRate::from_bits_per_second(beyond).min(self.most_rate);
        let wanted = coded_rate(beyond);
        let all = self.cell_rate.of(wanted) + self.cell_rate.of(cra);
        // Recorded even if nothing is sent: the rate in force goes on to bring cells.
        self.asked.push_back((frame, all));
        // If a repeat is lost, another one still comes before the rate expires.
        let next_age = frame.saturating_sub(self.rate_sent).saturating_add(self.period);
        let is_old = next_age.saturating_mul(2) > self.rate_time_out;
        if wanted == self.rate && (wanted == BitRate::default() || !is_old) {
            return None;
        }
        (self.rate, self.rate_sent) = (wanted, frame);
        Some(wanted)
    }

    /// Returns the part of CRA that the classes served by it alone have left since the last
    /// opportunity.
    fn cra_left(&self, frame: u64) -> BitRate {
        let arrived = u128::from(self.arrived.constant) * ONE;
        let used = self.cell_rate.bit_rate(arrived / u128::from(self.since(frame)));
        let left = self.cra.bits_per_second().saturating_sub(used.bits_per_second());
        BitRate::from_bits_per_second(left)
    }

    /// Returns the number of frames within which the arrivals since the last opportunity have come.
    fn since(&self, frame: u64) -> u64 {
        // After a pause the arrivals came within a shorter time: over the whole pause their rate
        // would look low.
        frame.saturating_sub(self.last_opportunity).clamp(1, self.period.max(1))
    }

    /// Returns the rate that the classes on RBDC need, CRA included.
    fn needed(&mut self, frame: u64, backlog: u32) -> CellsPerFrame {
        let since = self.since(frame);
        // A window shorter than the time since the last request would contain none (module docs).
        let (window, drain) = match self.policy {
            CapacityPolicy::Classic => {
                let window = self.scheduling_latency.max(since);
                (window, window)
            }
            CapacityPolicy::RttAware => (self.round_trip.max(since), since),
        };
        let arrived = u128::from(self.arrived.rate) * ONE;
        let arrived = match self.policy {
            CapacityPolicy::Classic => arrived,
            CapacityPolicy::RttAware => arrived * u128::from(OVERESTIMATE) / 10,
        };
        let coming = self.asked_since(frame.saturating_sub(window), frame);
        let missing = (u128::from(backlog) * ONE).saturating_sub(arrived + coming);
        arrived / u128::from(since) + missing / u128::from(drain)
    }

    /// Returns the cells that the requested rates bring between two frames, times [`ONE`].
    fn asked_since(&mut self, begin: u64, frame: u64) -> u128 {
        // The rate in force at `begin` was requested earlier, so the entry before it stays.
        while self.asked.get(1).is_some_and(|(next, _)| *next <= begin) {
            self.asked.pop_front();
        }
        let ends = self.asked.iter().skip(1).map(|(since, _)| *since).chain([frame]);
        let cells = |((since, rate), end): (&(u64, CellsPerFrame), u64)| {
            rate.saturating_mul(u128::from(end.saturating_sub(*since.max(&begin))))
        };
        self.asked.iter().zip(ends).map(cells).sum()
    }

    /// Returns a request for the volume beyond what was requested before.
    fn volume_request(&mut self, frame: u64, backlog: u32) -> Option<VolumeRequest> {
        // Without news for so long, a request or its grant must have been lost.
        let lost =
            self.credit > 0 && frame.saturating_sub(self.volume_news) >= self.volume_time_out;
        if lost {
            self.replaced += 1;
        }
        if lost || self.is_absolute_due(frame, backlog) {
            let cells = self.coded(self.overestimated(backlog));
            (self.credit, self.volume_news, self.absolute_sent) = (cells, frame, frame);
            return Some(VolumeRequest::All(cells));
        }
        let more = match self.policy {
            CapacityPolicy::Classic => backlog.saturating_sub(self.credit),
            // New cells only: earlier ones are repeated absolutely.
            CapacityPolicy::RttAware => self.overestimated(self.arrived.volume),
        };
        let cells = self.coded(more);
        if cells == 0 {
            return None;
        }
        self.credit = self.credit.saturating_add(cells);
        self.volume_news = frame;
        Some(VolumeRequest::More(cells))
    }

    /// The policy `rtt-aware` begins with an absolute request and repeats it before it expires.
    fn is_absolute_due(&self, frame: u64, backlog: u32) -> bool {
        let age = frame.saturating_sub(self.absolute_sent);
        self.policy == CapacityPolicy::RttAware
            && backlog > 0
            && (self.credit == 0 || age.saturating_mul(2) >= self.volume_time_out)
    }

    fn overestimated(&self, cells: u32) -> u32 {
        match self.policy {
            CapacityPolicy::Classic => cells,
            CapacityPolicy::RttAware => cells.saturating_mul(OVERESTIMATE).div_ceil(10),
        }
    }

    fn coded(&self, cells: u32) -> u32 {
        coded_volume(cells.min(self.most_volume))
    }
}

#[cfg(test)]
mod tests;
