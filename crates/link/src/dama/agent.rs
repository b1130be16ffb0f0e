//! A terminal's agent: what to ask for.
//!
//! Everything is counted in cells and frames. The agent is told what arrives and what is granted,
//! and is asked for a request at each of its opportunities.
//!
//! Two ways of rate requests (RBDC):
//!
//! ```text
//! classic     R = A/t + max(0, Q − A − asked) / W       W = max(scheduling latency, t)
//! rtt-aware   R = 1.1·A/t + max(0, Q − 1.1·A − asked) / t,  asked: within the last round trip
//! ```
//!
//! with A the cells that arrived in the t frames since the last opportunity, Q the backlog, and
//! `asked` the cells that the rates asked for within the last W frames will bring. W is never
//! shorter than t: otherwise the window holds no request, and the agent asks for the whole backlog
//! again each time. What classes without requests leave of CRA is subtracted from R, which is limited
//! to RBDC's ceiling.
//!
//! Volume requests (VBDC): what waits, less what was asked for and not yet granted. If nothing is
//! granted for long, the request is taken for lost and an absolute one (AVBDC) replaces it.
//!
//! What is foreseen does not wait yet. It is said apart, as an absolute number, and granted from what
//! nobody asks for. When it comes it is asked for like anything else: what is free then may carry it
//! sooner, and nobody gets less because of a forecast.

use std::collections::VecDeque;

use units::BitRate;

use super::category::Category;
use super::config::{DamaConfig, Policy, RequestTransport};
use super::request::{Request, Volume, coded_rate, coded_volume};

/// What an agent knows at an opportunity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Cells that the constant rate carries: nothing is asked for them.
    pub constant: u32,
    /// Cells that wait and for which rates are to be asked.
    pub rate: u32,
    /// Cells that wait and for which volumes are to be asked.
    pub volume: u32,
    /// Cells that do not wait yet.
    pub foreseen: u32,
}

impl Backlog {
    /// The cells of a category.
    pub(super) fn of(&mut self, category: Category) -> &mut u32 {
        match category {
            Category::Cra => &mut self.constant,
            Category::Rbdc => &mut self.rate,
            Category::Vbdc => &mut self.volume,
        }
    }
}

/// The agent of one terminal.
#[derive(Debug)]
pub struct Agent {
    policy: Policy,
    cell_rate: CellRate,
    cra: BitRate,
    most_rate: BitRate,
    most_volume: u32,
    /// The most frames within which what arrived since the last opportunity came; in frames, like
    /// all times here.
    period: u64,
    rate_time_out: u64,
    scheduling_latency: u64,
    volume_time_out: u64,
    /// A round trip of request and allocation.
    round_trip: u64,
    /// Cells that arrived since the last opportunity.
    arrived: Backlog,
    last_opportunity: u64,
    /// Since which frame each rate was asked for, CRA included; the last one holds.
    asked: VecDeque<(u64, CellsPerFrame)>,
    /// The rate last sent, beyond CRA, and in which frame.
    rate: BitRate,
    rate_sent: u64,
    /// Cells asked for and not granted.
    credit: u32,
    /// The frame of the last request or grant of a volume.
    volume_news: u64,
    /// The frame of the last absolute volume request.
    absolute_sent: u64,
    /// Volume requests that were taken for lost.
    replaced: u64,
    /// Cells that were said to be foreseen and not granted, and the frame in which that was said.
    foreseen: u32,
    foreseen_sent: u64,
}

/// A rate in cells per frame, with 16 binary digits after the point.
type CellsPerFrame = u128;

const ONE: CellsPerFrame = 1 << 16;

/// The policy `rtt-aware` asks for this many tenths of what it needs.
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

impl Agent {
    /// The agent of terminal number `terminal`, which must exist.
    pub fn new(config: &DamaConfig, terminal: usize) -> Self {
        let DamaConfig { frames, requests, .. } = config;
        let frame_nanos = frames.duration.as_nanos().max(1);
        let round_trip = config.delay.greatest() + config.forward_delay + config.processing;
        let round_trip = round_trip.as_nanos().div_ceil(frame_nanos);
        let round_trip = u64::try_from(round_trip).unwrap_or(u64::MAX);
        let period = match requests.transport {
            RequestTransport::Assigned => requests.period.into(),
            // A request in the air keeps back the next one.
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
            arrived: Backlog::default(),
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

    /// Takes note of cells that have arrived.
    pub fn handle_arrival(&mut self, cells: Backlog) {
        self.arrived.constant = self.arrived.constant.saturating_add(cells.constant);
        self.arrived.rate = self.arrived.rate.saturating_add(cells.rate);
        self.arrived.volume = self.arrived.volume.saturating_add(cells.volume);
    }

    /// Takes note of slots that were granted for requested volumes and have passed in frame number
    /// `frame`.
    pub fn handle_volume_grant(&mut self, frame: u64, slots: u32) {
        self.credit = self.credit.saturating_sub(slots);
        self.volume_news = self.volume_news.max(frame);
    }

    /// Takes note of slots of free capacity that have passed.
    pub fn handle_free_grant(&mut self, slots: u32) {
        self.foreseen = self.foreseen.saturating_sub(slots);
    }

    /// The hub has the last request, as the plan of frame number `frame` says. Grants for it can come
    /// only from now on.
    pub fn handle_received(&mut self, frame: u64) {
        self.volume_news = self.volume_news.max(frame);
    }

    /// The attempts to send `request`, the last one, were given up: what it asked for will not come.
    pub fn handle_given_up(&mut self, request: Request) {
        if request.rate.is_some() {
            (self.rate, self.rate_sent) = (BitRate::default(), 0);
            self.asked.pop_back();
        }
        match request.volume {
            Some(Volume::More(cells)) => self.credit = self.credit.saturating_sub(cells),
            Some(Volume::All(_)) => self.credit = 0,
            None => {}
        }
        if request.foreseen.is_some() {
            self.foreseen = 0;
        }
    }

    /// Whether it has nothing to ask for while nothing waits or arrives, so that it needs no
    /// opportunity.
    pub fn is_idle(&self) -> bool {
        let asked = self.credit > 0 || self.foreseen > 0 || self.rate > BitRate::default();
        self.arrived == Backlog::default() && !asked
    }

    /// Volume requests that were taken for lost and replaced.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Decides what to ask for at an opportunity in frame number `frame`, which never decreases.
    pub fn request(&mut self, frame: u64, backlog: Backlog) -> Request {
        let can_ask_rate = self.most_rate > BitRate::default();
        let rate = can_ask_rate.then(|| self.rate_request(frame, backlog.rate)).flatten();
        let can_ask_volume = self.most_volume > 0;
        let volume = can_ask_volume.then(|| self.volume_request(frame, backlog.volume)).flatten();
        let foreseen = can_ask_volume.then(|| self.foresee(frame, backlog.foreseen)).flatten();
        self.arrived = Backlog::default();
        self.last_opportunity = frame;
        Request { rate, volume, foreseen }
    }

    /// What it foresees, if that differs from what it has said and not been granted, or was lost.
    fn foresee(&mut self, frame: u64, cells: u32) -> Option<u32> {
        let cells = self.coded(cells);
        let is_old = frame.saturating_sub(self.foreseen_sent) >= self.volume_time_out;
        if cells == self.foreseen && !(cells > 0 && is_old) {
            return None;
        }
        (self.foreseen, self.foreseen_sent) = (cells, frame);
        Some(cells)
    }

    /// A rate that differs from the one that holds, or repeats it halfway to its time-out.
    fn rate_request(&mut self, frame: u64, backlog: u32) -> Option<BitRate> {
        let needed = self.cell_rate.bit_rate(self.needed(frame, backlog));
        // CRA may be more than what is needed.
        let cra = self.cra_left(frame);
        let beyond = needed.bits_per_second().saturating_sub(cra.bits_per_second());
        let beyond = BitRate::from_bits_per_second(beyond).min(self.most_rate);
        let wanted = coded_rate(beyond);
        let all = self.cell_rate.of(wanted) + self.cell_rate.of(cra);
        self.asked.push_back((frame, all));
        let is_old = frame.saturating_sub(self.rate_sent).saturating_mul(2) >= self.rate_time_out;
        if wanted == self.rate && (wanted == BitRate::default() || !is_old) {
            return None;
        }
        (self.rate, self.rate_sent) = (wanted, frame);
        Some(wanted)
    }

    /// What the classes that only CRA serves have left of it since the last opportunity.
    fn cra_left(&self, frame: u64) -> BitRate {
        let arrived = u128::from(self.arrived.constant) * ONE;
        let used = self.cell_rate.bit_rate(arrived / u128::from(self.since(frame)));
        let left = self.cra.bits_per_second().saturating_sub(used.bits_per_second());
        BitRate::from_bits_per_second(left)
    }

    /// Frames in which what arrived since the last opportunity has come.
    fn since(&self, frame: u64) -> u64 {
        // After a pause, it did not take so long to come.
        frame.saturating_sub(self.last_opportunity).clamp(1, self.period.max(1))
    }

    /// The rate that the classes that ask for rates need, CRA included.
    fn needed(&mut self, frame: u64, backlog: u32) -> CellsPerFrame {
        let since = self.since(frame);
        let (window, drain) = match self.policy {
            Policy::Classic => {
                let window = self.scheduling_latency.max(since);
                (window, window)
            }
            Policy::RttAware => (self.round_trip.max(since), since),
        };
        let arrived = u128::from(self.arrived.rate) * ONE;
        let arrived = match self.policy {
            Policy::Classic => arrived,
            Policy::RttAware => arrived * u128::from(OVERESTIMATE) / 10,
        };
        let coming = self.asked_since(frame.saturating_sub(window), frame);
        let missing = (u128::from(backlog) * ONE).saturating_sub(arrived + coming);
        arrived / u128::from(since) + missing / u128::from(drain)
    }

    /// Cells that the rates asked for bring between two frames, times [`ONE`].
    fn asked_since(&mut self, begin: u64, frame: u64) -> u128 {
        while self.asked.get(1).is_some_and(|(next, _)| *next <= begin) {
            self.asked.pop_front();
        }
        let ends = self.asked.iter().skip(1).map(|(since, _)| *since).chain([frame]);
        let cells = |((since, rate), end): (&(u64, CellsPerFrame), u64)| {
            rate.saturating_mul(u128::from(end.saturating_sub(*since.max(&begin))))
        };
        self.asked.iter().zip(ends).map(cells).sum()
    }

    /// A volume beyond what was asked for.
    fn volume_request(&mut self, frame: u64, backlog: u32) -> Option<Volume> {
        let lost =
            self.credit > 0 && frame.saturating_sub(self.volume_news) >= self.volume_time_out;
        if lost {
            self.replaced += 1;
        }
        if lost || self.is_absolute_due(frame, backlog) {
            let cells = self.coded(self.overestimated(backlog));
            (self.credit, self.volume_news, self.absolute_sent) = (cells, frame, frame);
            return Some(Volume::All(cells));
        }
        let more = match self.policy {
            Policy::Classic => backlog.saturating_sub(self.credit),
            Policy::RttAware => self.overestimated(self.arrived.volume),
        };
        let cells = self.coded(more);
        if cells == 0 {
            return None;
        }
        self.credit = self.credit.saturating_add(cells);
        self.volume_news = frame;
        Some(Volume::More(cells))
    }

    /// The policy `rtt-aware` begins with an absolute request and repeats it before it expires.
    fn is_absolute_due(&self, frame: u64, backlog: u32) -> bool {
        let age = frame.saturating_sub(self.absolute_sent);
        self.policy == Policy::RttAware
            && backlog > 0
            && (self.credit == 0 || age.saturating_mul(2) >= self.volume_time_out)
    }

    fn overestimated(&self, cells: u32) -> u32 {
        match self.policy {
            Policy::Classic => cells,
            Policy::RttAware => cells.saturating_mul(OVERESTIMATE).div_ceil(10),
        }
    }

    fn coded(&self, cells: u32) -> u32 {
        coded_volume(cells.min(self.most_volume))
    }
}

#[cfg(test)]
mod tests;
