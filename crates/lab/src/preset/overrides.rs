//! What is changed in a preset.

use core::num::NonZeroU64;
use core::time::Duration;
use std::path::{Path, PathBuf};

use link::{Encapsulation, ErrorModel, GilbertElliott, Jitter, Loss, Outage};
use units::{BitRate, Probability};

use super::raw::RawDirection;
use super::text::{Text, Time};
use super::trace::{Folder, Source};
use super::typed::{Changes, Wrong};
use super::{Direction, Preset, PresetError};
use crate::{Discipline, Queue};

/// What to change in a preset; what is `None` or empty is left. A rate replaces
/// a trace of rates and the other way round, and one loss model another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// The rate of the forward link.
    pub rate: Option<BitRate>,
    /// The trace of rates of the forward link: a file, either in the format of
    /// [`link::Trace`] or in mahimahi's.
    pub rate_trace: Option<PathBuf>,
    /// The rate of the return link.
    pub return_rate: Option<BitRate>,
    /// The trace of rates of the return link.
    pub return_rate_trace: Option<PathBuf>,
    /// The encapsulation of both links.
    pub encapsulation: Option<Encapsulation>,
    /// The one-way delay of both links.
    pub delay: Option<Duration>,
    /// The trace of one-way delays of both links.
    pub delay_trace: Option<PathBuf>,
    /// The jitter of both links.
    pub jitter: Option<Jitter>,
    /// The packet error rate of both links.
    pub per: Option<Probability>,
    /// The bit error rate of both links.
    pub ber: Option<Probability>,
    /// The bursts of errors of both links.
    pub burst: Option<ErrorModel>,
    /// The Gilbert-Elliott model of both links.
    pub gilbert_elliott: Option<GilbertElliott>,
    /// Of so many packets of each link the last is lost.
    pub loss_period: Option<NonZeroU64>,
    /// The trace of packet error rates of both links.
    pub loss_trace: Option<PathBuf>,
    /// The outages of both links, in place of the preset's.
    pub outages: Vec<Outage>,
    /// The queue of both links.
    pub queue: Option<Queue>,
    /// The discipline of both queues.
    pub discipline: Option<Discipline>,
    /// Whether both queues mark packets instead of dropping them.
    pub ecn: Option<bool>,
    /// The longest IP packet in bytes.
    pub mtu: Option<u16>,
    /// How many terminals there are.
    pub terminals: Option<u8>,
    /// What to change in the terrestrial link.
    pub terrestrial: TerrestrialOverrides,
}

/// What to change in the terrestrial link, in both directions; `None` leaves
/// it. If there is none, one change makes one: 1 Gbit/s without delay or losses,
/// with a queue of 1 BDP of the whole path.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TerrestrialOverrides {
    /// The rate.
    pub rate: Option<BitRate>,
    /// The one-way delay.
    pub delay: Option<Duration>,
    /// The packet error rate, in place of other losses.
    pub per: Option<Probability>,
    /// The queue.
    pub queue: Option<Queue>,
}

impl Preset {
    /// The preset with some of it changed. Paths are relative to the working
    /// directory.
    ///
    /// # Errors
    /// When the result is not a possible link.
    pub fn with(mut self, overrides: &Overrides) -> Result<Self, PresetError> {
        let folder = Folder::Disk(Path::new(""));
        let wrong = Wrong { origin: "command line", prefix: "--", folder };
        let on_return = Wrong { prefix: "--return-", ..wrong };
        self.mtu = overrides.mtu.unwrap_or(self.mtu);
        wrong.mtu(self.mtu)?;
        let both = wrong.changes(overrides.of_both())?;
        for direction in [&mut self.forward, &mut self.ret] {
            direction.change(both.clone());
            wrong.marking(direction)?;
        }
        self.forward.change(wrong.changes(overrides.of_forward())?);
        self.ret.change(on_return.changes(overrides.of_return())?);
        self.terminals = overrides.terminals.unwrap_or(self.terminals);
        wrong.terminals(self.terminals)?;
        if overrides.terrestrial != TerrestrialOverrides::default() {
            let on_terrestrial = Wrong { prefix: "--terrestrial-", ..wrong };
            let changes = on_terrestrial.changes(overrides.terrestrial.written())?;
            self.terrestrial.get_or_insert_with(Direction::terrestrial).change(changes);
        }
        Ok(self)
    }
}

impl TerrestrialOverrides {
    fn written(&self) -> RawDirection {
        RawDirection {
            rate: self.rate,
            delay: self.delay.map(Time).map(Text),
            per: self.per,
            queue: self.queue.map(Text),
            ..RawDirection::default()
        }
    }
}

impl Overrides {
    fn of_both(&self) -> RawDirection {
        let outages = || self.outages.iter().copied().map(Text).collect();
        RawDirection {
            encapsulation: self.encapsulation.map(Text),
            delay: self.delay.map(Time).map(Text),
            delay_trace: file(&self.delay_trace),
            jitter: self.jitter.map(Text),
            queue: self.queue.map(Text),
            discipline: self.discipline.map(Text),
            ecn: self.ecn,
            per: self.per,
            ber: self.ber,
            burst: self.burst.map(Text),
            gilbert_elliott: self.gilbert_elliott.map(Text),
            loss_period: self.loss_period,
            loss_trace: file(&self.loss_trace),
            outages: (!self.outages.is_empty()).then(outages),
            ..RawDirection::default()
        }
    }

    fn of_forward(&self) -> RawDirection {
        let (rate, rate_trace) = (self.rate, file(&self.rate_trace));
        RawDirection { rate, rate_trace, ..RawDirection::default() }
    }

    fn of_return(&self) -> RawDirection {
        let (rate, rate_trace) = (self.return_rate, file(&self.return_rate_trace));
        RawDirection { rate, rate_trace, ..RawDirection::default() }
    }
}

fn file(path: &Option<PathBuf>) -> Option<Source> {
    path.clone().map(Source::File)
}

impl Direction {
    /// A terrestrial link of which nothing is said yet.
    fn terrestrial() -> Self {
        Self {
            rate: BitRate::from_mbit(1000).into(),
            encapsulation: Encapsulation::None,
            delay: Duration::ZERO.into(),
            jitter: Jitter::None,
            loss: Loss::None,
            outages: Vec::new(),
            queue: Queue::Bdp(1.0),
            discipline: Discipline::default(),
            ecn: false,
        }
    }

    fn change(&mut self, changes: Changes) {
        fn set<T>(value: &mut T, new: Option<T>) {
            if let Some(new) = new {
                *value = new;
            }
        }
        set(&mut self.rate, changes.rate);
        set(&mut self.encapsulation, changes.encapsulation);
        set(&mut self.delay, changes.delay);
        set(&mut self.jitter, changes.jitter);
        set(&mut self.loss, changes.loss);
        set(&mut self.outages, changes.outages);
        set(&mut self.queue, changes.queue);
        set(&mut self.discipline, changes.discipline);
        set(&mut self.ecn, changes.ecn);
    }
}
