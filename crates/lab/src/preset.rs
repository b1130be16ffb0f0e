//! The links and the extent of a lab, as a preset describes them.

use core::time::Duration;

use link::LinkConfig;
use scenario::{LinkSpec, Preset};

use crate::LinkName;
use crate::topology::crossing::Extent;

/// The parts of a preset by the names of the lab's links.
pub(crate) trait PresetLinks {
    /// Returns the hosts and links that the lab has to consist of.
    fn extent(&self) -> Extent;

    /// Returns the part that describes a link. The forward one stands in for a link that does not
    /// exist.
    fn spec(&self, name: LinkName) -> &LinkSpec;

    /// Returns the round-trip time and MTU that a link's queue size refers to. For the queue of a
    /// link beside the hop a BDP means the round-trip time of the whole path, because that is what
    /// a flow through it sees.
    fn scale(&self, name: LinkName) -> (Duration, u16);

    /// Returns the configuration of a link of the lab.
    fn link(&self, name: LinkName) -> LinkConfig {
        let (rtt, mtu) = self.scale(name);
        self.spec(name).config(rtt, mtu)
    }
}

impl PresetLinks for Preset {
    fn extent(&self) -> Extent {
        let terminals = self.terminals;
        let mtu = self.mtu;
        let [terrestrial, client_side] =
            [&self.terrestrial, &self.client_side].map(Option::is_some);
        Extent { terminals, terrestrial, client_side, mtu, cabled: false }
    }

    fn spec(&self, name: LinkName) -> &LinkSpec {
        match name {
            LinkName::Forward => &self.forward,
            LinkName::Return(_) => &self.ret,
            LinkName::TerrestrialForward | LinkName::TerrestrialReturn => {
                self.terrestrial.as_ref().unwrap_or(&self.forward)
            }
            LinkName::ClientForward(_) | LinkName::ClientReturn(_) => {
                self.client_side.as_ref().unwrap_or(&self.forward)
            }
        }
    }

    fn scale(&self, name: LinkName) -> (Duration, u16) {
        if name.is_hop() {
            (self.rtt(), self.mtu)
        } else {
            (self.path_rtt(), self.extent().lan_mtu())
        }
    }
}

#[cfg(test)]
mod tests {
    use link::{LossModel, QueueLimit};
    use units::{ByteCount, Probability};

    use super::*;

    #[test]
    fn a_terrestrial_queue_is_one_of_the_whole_path() {
        let geo = Preset::load("geo").unwrap();
        let text = geo.to_string()
            + "[terrestrial]\nrate = \"10 Mbit/s\"\ndelay = \"100 ms\"\nqueue = \"1 BDP\"\nper = \"1%\"\n";
        let preset = Preset::from_text(&text).unwrap();
        for name in [LinkName::TerrestrialForward, LinkName::TerrestrialReturn] {
            let link = preset.link(name);
            assert_eq!(link.loss, LossModel::Per(Probability::new(0.01).unwrap()));
            // 10 Mbit/s × 800 ms
            assert_eq!(link.queue, QueueLimit::Bytes(ByteCount::new(1_000_000)));
        }
        assert_eq!(preset.link(LinkName::Forward), geo.links()[0]);
    }
}
