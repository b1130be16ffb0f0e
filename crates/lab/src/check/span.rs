//! The measured part of the path.

use scenario::Preset;

use crate::{HOP_DEVICE, LAN_DEVICE, LinkName, Node, Site};

/// A part of the path with a link in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathPart {
    /// Between the first terminal and the hub.
    Hop,
    /// The terrestrial part between hub and server.
    Terrestrial,
}

impl PathPart {
    /// Returns the parts that exist in this preset.
    pub(super) fn all(preset: &Preset) -> Vec<Self> {
        let terrestrial = preset.terrestrial.as_ref().map(|_| Self::Terrestrial);
        [Self::Hop].into_iter().chain(terrestrial).collect()
    }

    /// Returns the links of this part, forward and return.
    pub(super) const fn links(self) -> [LinkName; 2] {
        match self {
            Self::Hop => [LinkName::Forward, LinkName::Return(Site::FIRST)],
            Self::Terrestrial => [LinkName::TerrestrialForward, LinkName::TerrestrialReturn],
        }
    }

    /// Returns the hosts at the ends of the forward and the return link.
    pub(super) const fn ends(self) -> [Node; 2] {
        match self {
            Self::Hop => [Node::Terminal, Node::Hub],
            Self::Terrestrial => [Node::Hub, Node::Server],
        }
    }

    /// Returns the name of the hosts' device on this part.
    pub(super) const fn device(self) -> &'static str {
        match self {
            Self::Hop => HOP_DEVICE,
            Self::Terrestrial => LAN_DEVICE,
        }
    }
}
