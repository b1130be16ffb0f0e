//! What was asked of one direction, in the terms in which it is measured.

use core::time::Duration;

use link::{Delay, Encapsulation, Jitter, LinkConfig, Loss, QueueLimit, Rate};
use units::BitRate;

use crate::{Direction, Discipline, LinkName, Preset, Queue, Site};

/// One direction of a preset's link.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) link: LinkConfig,
    /// The greatest rate of packets of the MTU.
    pub(super) rate: BitRate,
    /// As people write it.
    pub(super) discipline: Discipline,
}

impl Asked {
    /// A link of the lab.
    pub(super) fn of(preset: &Preset, name: LinkName) -> Self {
        let (direction, (_, mtu)) = (preset.direction(name), preset.scale(name));
        Self {
            link: preset.link(name),
            rate: direction.peak_rate(mtu),
            discipline: direction.discipline,
        }
    }

    /// How long a packet of `len` bytes takes at the least rate.
    pub(super) fn longest_time_of(&self, len: usize) -> Duration {
        self.link.rate.least().time_to_send(self.link.encapsulation.wire_bytes(len))
    }

    /// The rate of packets of the MTU, if it is always the same.
    pub(super) fn constant_rate(&self) -> Option<BitRate> {
        matches!(self.link.rate, Rate::Constant(_)).then_some(self.rate)
    }

    /// How many packets of `len` bytes fit into the queue.
    pub(super) fn queue_packets(&self, len: usize) -> u64 {
        match self.link.queue {
            QueueLimit::Packets(packets) => packets as u64,
            QueueLimit::Bytes(bytes) => bytes.get() / len as u64,
        }
    }

    /// Whether each packet's fate is its own: losses do not come in bursts.
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

    /// The share of packets that is lost in the long run, where there is one.
    pub(super) fn long_run_loss(&self) -> Option<f64> {
        match &self.link.loss {
            Loss::Burst(burst) if self.link.outages.is_empty() => Some(burst.bad_share()),
            Loss::GilbertElliott(model) if self.link.outages.is_empty() => Some(model.mean_loss()),
            _ => None,
        }
    }
}

/// Whether it is plain when the queue drops a packet: nothing else loses any,
/// and each takes the same time.
pub(super) fn is_plain(direction: &Direction) -> bool {
    let Direction { rate, encapsulation, jitter, loss, outages, discipline, .. } = direction;
    let constant = matches!(rate, Rate::Constant(_)) && *encapsulation == Encapsulation::None;
    let sure = *loss == Loss::None && outages.is_empty() && *jitter == Jitter::None;
    constant && sure && *discipline == Discipline::DropTail
}

/// The same lab with queues as long, and otherwise plain links.
pub(super) fn plain(preset: &Preset) -> Preset {
    let mut plain = lossless(preset);
    for (name, direction) in directions(&mut plain) {
        let (_, mtu) = preset.scale(name);
        direction.rate = direction.peak_rate(mtu).into();
        direction.encapsulation = Encapsulation::None;
        direction.delay = Delay::Constant(direction.delay.greatest());
        (direction.discipline, direction.ecn) = (Discipline::DropTail, false);
        direction.queue = match preset.link(name).queue {
            QueueLimit::Packets(packets) => Queue::Packets(packets),
            QueueLimit::Bytes(bytes) => Queue::Bytes(bytes),
        };
    }
    plain
}

/// The same lab; only its queues drop packets.
pub(super) fn lossless(preset: &Preset) -> Preset {
    let mut clean = preset.clone();
    for (_, direction) in directions(&mut clean) {
        (direction.loss, direction.jitter) = (Loss::None, Jitter::None);
        direction.outages.clear();
    }
    clean
}

/// The same lab; nothing is dropped while there is room.
pub(super) fn drop_tail(preset: &Preset) -> Preset {
    let mut tail = preset.clone();
    for (_, direction) in directions(&mut tail) {
        (direction.discipline, direction.ecn) = (Discipline::DropTail, false);
    }
    tail
}

/// The directions that a preset describes, each with a link that it is for.
fn directions(preset: &mut Preset) -> impl Iterator<Item = (LinkName, &mut Direction)> {
    let hop = [
        (LinkName::Forward, &mut preset.forward),
        (LinkName::Return(Site::FIRST), &mut preset.ret),
    ];
    let terrestrial = preset.terrestrial.as_mut();
    hop.into_iter().chain(terrestrial.map(|each| (LinkName::TerrestrialForward, each)))
}
