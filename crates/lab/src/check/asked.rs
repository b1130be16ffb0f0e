//! The configuration of one direction, in the quantities that are measured.

use core::time::Duration;

use link::{
    Delay, DisciplineChoice, Encapsulation, Jitter, LinkConfig, Loss, QueueLimit, QueueSize, Rate,
};
use scenario::{LinkSpec, Preset};
use units::BitRate;

use crate::preset::Links as _;
use crate::{LinkName, Site};

/// One direction of a preset's link.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) link: LinkConfig,
    /// The maximum rate of MTU-sized packets.
    pub(super) rate: BitRate,
    /// The discipline as written in the preset.
    pub(super) discipline: DisciplineChoice,
}

impl Asked {
    /// A link of the lab.
    pub(super) fn of(preset: &Preset, name: LinkName) -> Self {
        let (direction, (_, mtu)) = (preset.spec(name), preset.scale(name));
        Self {
            link: preset.link(name),
            rate: direction.peak_rate(mtu),
            discipline: direction.discipline,
        }
    }

    /// Serialisation time of a packet of `len` bytes at the minimum rate.
    pub(super) fn longest_time_of(&self, len: usize) -> Duration {
        self.link.rate.least().time_to_send(self.link.encapsulation.wire_bytes(len))
    }

    /// The rate of MTU-sized packets, if it is constant.
    pub(super) fn constant_rate(&self) -> Option<BitRate> {
        matches!(self.link.rate, Rate::Constant(_)).then_some(self.rate)
    }

    /// Number of packets of `len` bytes that fit in the queue.
    pub(super) fn queue_packets(&self, len: usize) -> u64 {
        match self.link.queue {
            QueueLimit::Packets(packets) => packets as u64,
            QueueLimit::Bytes(bytes) => bytes.get() / len as u64,
        }
    }

    /// The loss probability of a packet if losses are independent, that is, not in bursts.
    pub(super) fn loss_of_each(&self, len: u16) -> Option<f64> {
        let alone = self.link.outages.is_empty();
        match &self.link.loss {
            Loss::None if alone => Some(0.0),
            Loss::Per(per) if alone => Some(per.get()),
            // 1 − (1 − b)^bits
            Loss::Ber(ber) if alone => {
                Some(-(f64::from(len) * 8.0 * (-ber.get()).ln_1p()).exp_m1())
            }
            _ => None,
        }
    }

    /// The long-run fraction of lost packets, if there is one.
    pub(super) fn long_run_loss(&self) -> Option<f64> {
        match &self.link.loss {
            Loss::Burst(burst) if self.link.outages.is_empty() => Some(burst.bad_share()),
            Loss::GilbertElliott(model) if self.link.outages.is_empty() => Some(model.mean_loss()),
            _ => None,
        }
    }
}

/// Whether queue drops can be identified: nothing else loses packets, and all take the same time.
pub(super) fn is_plain(link: &LinkSpec) -> bool {
    let LinkSpec { rate, encapsulation, jitter, loss, outages, discipline, .. } = link;
    let constant = matches!(rate, Rate::Constant(_)) && *encapsulation == Encapsulation::None;
    let sure = *loss == Loss::None && outages.is_empty() && *jitter == Jitter::None;
    constant && sure && *discipline == DisciplineChoice::DropTail
}

/// The same lab with the same queues, and links without losses or other disturbances.
pub(super) fn plain(preset: &Preset) -> Preset {
    let mut plain = lossless(preset);
    for (name, direction) in directions(&mut plain) {
        let (_, mtu) = preset.scale(name);
        direction.rate = direction.peak_rate(mtu).into();
        direction.encapsulation = Encapsulation::None;
        direction.delay = Delay::Constant(direction.delay.greatest());
        (direction.discipline, direction.ecn) = (DisciplineChoice::DropTail, false);
        direction.queue = match preset.link(name).queue {
            QueueLimit::Packets(packets) => QueueSize::Packets(packets),
            QueueLimit::Bytes(bytes) => QueueSize::Bytes(bytes),
        };
    }
    plain
}

/// The same lab with drops at queues only.
pub(super) fn lossless(preset: &Preset) -> Preset {
    let mut clean = preset.clone();
    for (_, direction) in directions(&mut clean) {
        (direction.loss, direction.jitter) = (Loss::None, Jitter::None);
        direction.outages.clear();
    }
    clean
}

/// The same lab with drop-tail queues.
pub(super) fn drop_tail(preset: &Preset) -> Preset {
    let mut tail = preset.clone();
    for (_, direction) in directions(&mut tail) {
        (direction.discipline, direction.ecn) = (DisciplineChoice::DropTail, false);
    }
    tail
}

/// The directions of a preset, each with a link that it configures.
fn directions(preset: &mut Preset) -> impl Iterator<Item = (LinkName, &mut LinkSpec)> {
    let hop = [
        (LinkName::Forward, &mut preset.forward),
        (LinkName::Return(Site::FIRST), &mut preset.ret),
    ];
    let terrestrial = preset.terrestrial.as_mut();
    hop.into_iter().chain(terrestrial.map(|each| (LinkName::TerrestrialForward, each)))
}
