//! Overrides of single fields of a preset.

use core::num::NonZeroU64;
use core::time::Duration;
use std::path::{Path, PathBuf};

use link::{
    DisciplineChoice, Encapsulation, ErrorModel, GilbertElliott, Jitter, LossModel, Outage,
    Policer, QueueSize,
};
use units::{BitRate, ErrorRate, Probability};

use super::{Preset, check_mtu, check_terminals};
use crate::link_spec::LinkChanges;
use crate::link_spec::raw::RawLink;
use crate::trace::Source;
use crate::{LinkSpec, OrNone};
use config::FileError;
use config::file::folder::BaseFolder;
use config::file::place::KeyContext;
use config::file::text::{Text, Time, Words};

/// Changes to a preset; `None` leaves a field as it is. A rate replaces a trace of rates
/// or adaptive coding and modulation, and vice versa, and one loss model replaces another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PresetOverrides {
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
    /// Outages of both links, replacing the preset's; an empty list removes those.
    pub outages: Option<Vec<Outage>>,
    /// Policer of the forward link, or none.
    pub policer: Option<OrNone<Policer>>,
    /// Policer of the return link, or none.
    pub return_policer: Option<OrNone<Policer>>,
    /// Queue of both links.
    pub queue: Option<QueueSize>,
    /// Discipline of both queues.
    pub discipline: Option<DisciplineChoice>,
    /// True to make both queues mark ECN-capable packets instead of dropping them.
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
    pub queue: Option<QueueSize>,
}

impl Preset {
    /// Applies changes to the preset. Paths are relative to the working directory.
    ///
    /// # Errors
    /// If the result is not a valid link.
    pub fn with(mut self, overrides: &PresetOverrides) -> Result<Self, FileError> {
        let options = |prefix| KeyContext::options(prefix, BaseFolder::Disk(Path::new("")));
        let place = options("--");
        self.mtu = overrides.mtu.unwrap_or(self.mtu);
        check_mtu(&place, self.mtu)?;
        // Options are read like keys of a file, so that both have the same bounds.
        let both = LinkChanges::read(&place, overrides.of_both())?;
        for link in [&mut self.forward, &mut self.ret] {
            link.change(both.clone());
            // The new discipline may be one that cannot mark.
            link.check_marking(&place)?;
        }
        self.forward.change(LinkChanges::read(&place, overrides.of_forward())?);
        self.ret.change(LinkChanges::read(&options("--return-"), overrides.of_return())?);
        self.terminals = overrides.terminals.unwrap_or(self.terminals);
        // Checked before the return link, whose slots depend on the number of terminals.
        check_terminals(&place, self.terminals)?;
        if let Some(dama) = &self.dama {
            // Another rate, encapsulation or number of terminals may no longer fit the frames.
            dama.check(&place, [&self.forward, &self.ret], self.terminals.into())?;
        }
        if overrides.terrestrial != TerrestrialOverrides::default() {
            let written = overrides.terrestrial.written();
            let changes = LinkChanges::read(&options("--terrestrial-"), written)?;
            self.terrestrial.get_or_insert_with(default_terrestrial).change(changes);
        }
        Ok(self)
    }
}

impl TerrestrialOverrides {
    fn written(&self) -> RawLink {
        RawLink {
            rate: self.rate.map(Text),
            delay: self.delay.map(Time).map(Text),
            per: self.per.map(ErrorRate).map(Text),
            queue: self.queue.map(Text),
            ..RawLink::default()
        }
    }
}

impl PresetOverrides {
    fn of_both(&self) -> RawLink {
        let texts = |outages: &Vec<Outage>| outages.iter().copied().map(Text).collect();
        RawLink {
            encapsulation: self.encapsulation.map(Text),
            delay: self.delay.map(Time).map(Text),
            delay_trace: file(&self.delay_trace),
            jitter: self.jitter.map(Text),
            queue: self.queue.map(Text),
            discipline: self.discipline.map(Text),
            ecn: self.ecn,
            per: self.per.map(ErrorRate).map(Text),
            ber: self.ber.map(ErrorRate).map(Text),
            burst: self.burst.map(Words),
            gilbert_elliott: self.gilbert_elliott.map(Words),
            loss_period: self.loss_period,
            loss_trace: file(&self.loss_trace),
            outages: self.outages.as_ref().map(texts),
            ..RawLink::default()
        }
    }

    fn of_forward(&self) -> RawLink {
        let rate = self.rate.map(Text);
        let rate_trace = file(&self.rate_trace);
        let policer = self.policer.map(Text);
        RawLink { rate, rate_trace, policer, ..RawLink::default() }
    }

    fn of_return(&self) -> RawLink {
        let rate = self.return_rate.map(Text);
        let rate_trace = file(&self.return_rate_trace);
        let policer = self.return_policer.map(Text);
        RawLink { rate, rate_trace, policer, ..RawLink::default() }
    }
}

fn file(path: &Option<PathBuf>) -> Option<Source> {
    path.clone().map(Source::File)
}

/// Returns the terrestrial link that options change if the preset has none.
fn default_terrestrial() -> LinkSpec {
    LinkSpec {
        rate: BitRate::from_mbit(1000).into(),
        encapsulation: Encapsulation::None,
        delay: Duration::ZERO.into(),
        jitter: Jitter::None,
        loss: LossModel::None,
        outages: Vec::new(),
        policer: None,
        queue: QueueSize::Bdp(1.0),
        discipline: DisciplineChoice::default(),
        ecn: false,
    }
}
