//! Changes to a preset.

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

/// Changes to a preset; `None` or empty leaves a field as it is. A rate replaces a trace of rates
/// and vice versa, and one loss model replaces another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides {
    /// Rate of the forward link.
    pub rate: Option<BitRate>,
    /// Rate trace of the forward link: a file in the format of [`link::Trace`] or of mahimahi.
    pub rate_trace: Option<PathBuf>,
    /// Rate of the return link.
    pub return_rate: Option<BitRate>,
    /// Rate trace of the return link.
    pub return_rate_trace: Option<PathBuf>,
    /// Encapsulation of both links.
    pub encapsulation: Option<Encapsulation>,
    /// One-way delay of both links.
    pub delay: Option<Duration>,
    /// One-way delay trace of both links.
    pub delay_trace: Option<PathBuf>,
    /// Jitter of both links.
    pub jitter: Option<Jitter>,
    /// Packet error rate of both links.
    pub per: Option<Probability>,
    /// Bit error rate of both links.
    pub ber: Option<Probability>,
    /// Error bursts of both links.
    pub burst: Option<ErrorModel>,
    /// Gilbert-Elliott model of both links.
    pub gilbert_elliott: Option<GilbertElliott>,
    /// Loses the last of every this many packets on each link.
    pub loss_period: Option<NonZeroU64>,
    /// Packet error rate trace of both links.
    pub loss_trace: Option<PathBuf>,
    /// Outages of both links, replacing the preset's.
    pub outages: Vec<Outage>,
    /// Queue of both links.
    pub queue: Option<Queue>,
    /// Discipline of both queues.
    pub discipline: Option<Discipline>,
    /// Whether both queues mark packets instead of dropping them.
    pub ecn: Option<bool>,
    /// MTU of the hop in bytes.
    pub mtu: Option<u16>,
    /// Number of terminals.
    pub terminals: Option<u8>,
    /// Changes to the terrestrial link.
    pub terrestrial: TerrestrialOverrides,
}

/// Changes to the terrestrial link, in both directions; `None` leaves a field as it is. If there is
/// no such link, any change creates one: 1 Gbit/s without delay or losses, with a queue of 1 BDP of
/// the whole path.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TerrestrialOverrides {
    /// The rate in each direction.
    pub rate: Option<BitRate>,
    /// The one-way delay.
    pub delay: Option<Duration>,
    /// Packet error rate, replacing other losses.
    pub per: Option<Probability>,
    /// The queue in each direction.
    pub queue: Option<Queue>,
}

impl Preset {
    /// Applies changes to the preset. Paths are relative to the working directory.
    ///
    /// # Errors
    /// If the result is not a valid link.
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
    /// The default terrestrial link.
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
