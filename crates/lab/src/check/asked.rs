//! The configuration of one direction, in the quantities that are measured.

use core::time::Duration;

use link::{
    Delay, DisciplineChoice, Encapsulation, Jitter, LinkConfig, LossModel, QueueLimit, QueueSize,
    Rate,
};
use scenario::{LinkSpec, Preset, RateSpec};
use units::BitRate;

use crate::preset::PresetLinks as _;
use crate::{LinkName, Site};

/// One direction of a preset's link.
#[derive(Debug, Clone)]
pub(super) struct ConfiguredLink {
    pub(super) link: LinkConfig,
    /// The maximum rate of MTU-sized packets.
    pub(super) rate: BitRate,
    /// The discipline as written in the preset.
    pub(super) discipline: DisciplineChoice,
}

impl ConfiguredLink {
    /// Returns the configuration of a link of the lab.
    pub(super) fn of(preset: &Preset, name: LinkName) -> Self {
        let direction = preset.spec(name);
        let (_, mtu) = preset.scale(name);
        Self {
            link: preset.link(name),
            rate: direction.peak_rate(mtu),
            discipline: direction.discipline,
        }
    }

    /// Returns the serialisation time of a packet of `len` bytes at the minimum rate.
    pub(super) fn longest_time_of(&self, len: usize) -> Duration {
        self.link.rate.least().time_to_send(self.link.encapsulation.wire_bytes(len))
    }

    /// Returns the rate of MTU-sized packets, if it is constant.
    pub(super) fn constant_rate(&self) -> Option<BitRate> {
        matches!(self.link.rate, Rate::Constant(_)).then_some(self.rate)
    }

    /// Returns the number of packets of `len` bytes that fit in the queue.
    pub(super) fn queue_packets(&self, len: usize) -> u64 {
        match self.link.queue {
            QueueLimit::Packets(packets) => packets as u64,
            QueueLimit::Bytes(bytes) => bytes.get() / len as u64,
        }
    }

    /// Returns the loss probability of a packet if losses are independent, that is, not in bursts.
    pub(super) fn loss_of_each(&self, len: u16) -> Option<f64> {
        let alone = self.link.outages.is_empty();
        match &self.link.loss {
            LossModel::None if alone => Some(0.0),
            LossModel::Per(per) if alone => Some(per.get()),
            // 1 − (1 − b)^bits
            LossModel::Ber(ber) if alone => {
                Some(-(f64::from(len) * 8.0 * (-ber.get()).ln_1p()).exp_m1())
            }
            _ => None,
        }
    }

    /// Returns the long-run fraction of lost packets, if there is one.
    pub(super) fn long_run_loss(&self) -> Option<f64> {
        // Outages add losses that the model does not know.
        match &self.link.loss {
            LossModel::Burst(burst) if self.link.outages.is_empty() => Some(burst.bad_share()),
            LossModel::GilbertElliott(model) if self.link.outages.is_empty() => {
                Some(model.mean_loss())
            }
            _ => None,
        }
    }
}

/// Returns true if queue drops can be identified: nothing else loses packets, and all take the same
/// time.
pub(super) fn is_plain(link: &LinkSpec) -> bool {
    let LinkSpec { rate, encapsulation, jitter, loss, outages, policer, discipline, .. } = link;
    let constant =
        matches!(rate, RateSpec::Given(Rate::Constant(_))) && *encapsulation == Encapsulation::None;
    let sure = *loss == LossModel::None && outages.is_empty() && *jitter == Jitter::None;
    constant && sure && policer.is_none() && *discipline == DisciplineChoice::DropTail
}

/// Returns the same lab with the same queues, and links without losses or other disturbances.
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

/// Returns the same lab with drops at queues only.
pub(super) fn lossless(preset: &Preset) -> Preset {
    let mut clean = preset.clone();
    for (_, direction) in directions(&mut clean) {
        (direction.loss, direction.jitter) = (LossModel::None, Jitter::None);
        direction.outages.clear();
        direction.policer = None;
        // Leaves out the losses of a MODCOD that does not suit the weather.
        direction.rate = direction.rate.over_time().clone().into();
    }
    clean
}

/// Returns the same lab with drop-tail queues.
pub(super) fn drop_tail(preset: &Preset) -> Preset {
    let mut tail = preset.clone();
    for (_, direction) in directions(&mut tail) {
        (direction.discipline, direction.ecn) = (DisciplineChoice::DropTail, false);
    }
    tail
}

/// Returns the directions of a preset, each with the name of a link that it configures.
fn directions(preset: &mut Preset) -> impl Iterator<Item = (LinkName, &mut LinkSpec)> {
    let hop = [
        (LinkName::Forward, &mut preset.forward),
        (LinkName::Return(Site::FIRST), &mut preset.ret),
    ];
    // Both terrestrial directions have the same specification.
    let terrestrial = preset.terrestrial.as_mut();
    hop.into_iter().chain(terrestrial.map(|each| (LinkName::TerrestrialForward, each)))
}

#[cfg(test)]
impl ConfiguredLink {
    /// The forward link of a [preset](crate::testkit::preset) with these lines.
    pub(super) fn forward(lines: &str) -> Self {
        Self::of(&crate::testkit::preset(lines), LinkName::Forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::preset;

    #[test]
    fn the_rate_is_that_of_full_packets_after_encapsulation() {
        let link = ConfiguredLink::forward("encapsulation = \"fixed 500 B\"");
        assert_eq!(link.constant_rate(), Some(BitRate::from_mbit(9)));
        // 1000 bytes and 500 at 12 Mbit/s.
        assert_eq!(link.longest_time_of(1000), Duration::from_millis(1));
    }

    #[test]
    fn a_changing_rate_has_no_constant_and_its_least_is_the_slowest() {
        let link = ConfiguredLink::forward("rate-trace = [\"0s 12 Mbit/s\", \"1s 3 Mbit/s\"]");
        assert_eq!(link.constant_rate(), None);
        assert_eq!(link.longest_time_of(1500), Duration::from_millis(4));
    }

    #[test]
    fn a_queue_of_bytes_holds_whole_packets() {
        assert_eq!(ConfiguredLink::forward("queue = \"4499 B\"").queue_packets(1500), 2);
        assert_eq!(ConfiguredLink::forward("queue = \"7 packets\"").queue_packets(1500), 7);
    }

    #[test]
    fn only_independent_losses_have_a_probability_per_packet() {
        assert_eq!(ConfiguredLink::forward("").loss_of_each(1500), Some(0.0));
        assert_eq!(ConfiguredLink::forward("per = \"2 %\"").loss_of_each(64), Some(0.02));
        let [short, long] = [50, 1500]
            .map(|len| ConfiguredLink::forward("ber = \"1e-4\"").loss_of_each(len).unwrap());
        assert!((short - (1.0 - 0.9999f64.powi(400))).abs() < 1e-12, "{short}");
        assert!((long - (1.0 - 0.9999f64.powi(12_000))).abs() < 1e-12, "{long}");
        for dependent in [
            "burst = \"medium\"",
            "gilbert-elliott = \"good-to-bad=1% bad-to-good=20%\"",
            "loss-period = 100",
            "loss-trace = [\"0s 1 %\"]",
            "per = \"2 %\"\noutages = [\"1s+1s\"]",
            "outages = [\"1s+1s\"]",
        ] {
            assert_eq!(ConfiguredLink::forward(dependent).loss_of_each(1500), None, "{dependent}");
        }
    }

    #[test]
    fn losses_in_bursts_have_a_mean_unless_there_are_outages() {
        let chain = "gilbert-elliott = \"good-to-bad=1% bad-to-good=4% loss-good=0 loss-bad=1\"";
        let mean = ConfiguredLink::forward(chain).long_run_loss().unwrap();
        assert!((mean - 0.2).abs() < 1e-12, "{mean}");
        assert_eq!(
            ConfiguredLink::forward(&format!("{chain}\noutages = [\"1s+1s\"]")).long_run_loss(),
            None
        );
        assert_eq!(ConfiguredLink::forward("per = \"2 %\"").long_run_loss(), None);
    }

    /// Everything that could disturb the measurement of the queue, one at a time.
    const DISTURBANCES: [&str; 9] = [
        "acm = { standard = \"dvb-s\", symbol-rate = \"10 Mbaud\", clear-sky = \"5 dB\", \
         rain = [\"0s 0 dB\", \"5s 9 dB\"], modcods = \"QPSK 1/2\" }",
        "rate-trace = [\"0s 12 Mbit/s\", \"1s 3 Mbit/s\"]",
        "encapsulation = \"fixed 18 B\"",
        "jitter = \"5 ms\"",
        "per = \"1 %\"",
        "loss-period = 9",
        "outages = [\"1s+1s\"]",
        "discipline = \"red\"",
        "discipline = \"codel\"\necn = true",
    ];

    #[test]
    fn a_disturbed_link_is_not_plain_until_it_is_made_so() {
        assert!(is_plain(&preset("").forward));
        for disturbance in DISTURBANCES {
            let disturbed = preset(disturbance);
            assert!(!is_plain(&disturbed.forward), "{disturbance}");
            assert!(is_plain(&plain(&disturbed).forward), "{disturbance}");
        }
    }

    #[test]
    fn the_plain_link_has_the_same_queue_in_packets() {
        // A BDP depends on the rate, the encapsulation and the delay, which all become plain.
        for queue in ["1 BDP", "100 kB", "70 packets"] {
            let lines = format!(
                "queue = \"{queue}\"\nencapsulation = \"fixed 500 B\"\n\
                 delay-trace = [\"0s 300 ms\", \"1s 20 ms\"]"
            );
            let disturbed = preset(&lines);
            let link = LinkName::Forward;
            let before = disturbed.link(link);
            let after = plain(&disturbed).link(link);
            assert_eq!(after.queue, before.queue, "{queue}");
        }
    }

    #[test]
    fn the_terrestrial_link_is_made_plain_too() {
        let terrestrial = "[terrestrial]\nrate = \"10 Mbit/s\"\ndelay = \"20 ms\"\n\
                           queue = \"1 BDP\"\nper = \"1 %\"\ndiscipline = \"red\"\n";
        let preset = Preset::from_text(&(preset("").to_string() + terrestrial)).unwrap();
        let of = |preset: Preset| preset.terrestrial.unwrap();
        assert!(is_plain(&of(plain(&preset))));
        assert_eq!(of(lossless(&preset)).loss, LossModel::None);
        assert_eq!(of(drop_tail(&preset)).discipline, DisciplineChoice::DropTail);
        assert_ne!(of(drop_tail(&preset)).loss, LossModel::None);
    }
}
