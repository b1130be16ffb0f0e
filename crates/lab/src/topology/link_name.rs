//! Names of a lab's links.

use core::fmt;

use crate::topology::node::Site;

/// One direction of one of a lab's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkName {
    /// From the hub to the terminals.
    Forward,
    /// From this terminal to the hub.
    Return(Site),
    /// From the server to the hub, on the terrestrial part.
    TerrestrialForward,
    /// From the hub to the server, on the terrestrial part.
    TerrestrialReturn,
    /// From this site's terminal to its client.
    ClientForward(Site),
    /// From this site's client to its terminal.
    ClientReturn(Site),
}

impl LinkName {
    /// Returns true for a link of the satellite hop.
    pub const fn is_hop(self) -> bool {
        matches!(self, Self::Forward | Self::Return(_))
    }
}

/// `forward`, `return`, `return 2`, `terrestrial forward`, `client forward`, `client return 2`.
impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward => f.write_str("forward"),
            Self::Return(Site::FIRST) => f.write_str("return"),
            Self::Return(site) => write!(f, "return {}", site.number()),
            Self::TerrestrialForward => f.write_str("terrestrial forward"),
            Self::TerrestrialReturn => f.write_str("terrestrial return"),
            Self::ClientForward(Site::FIRST) => f.write_str("client forward"),
            Self::ClientForward(site) => write!(f, "client forward {}", site.number()),
            Self::ClientReturn(Site::FIRST) => f.write_str("client return"),
            Self::ClientReturn(site) => write!(f, "client return {}", site.number()),
        }
    }
}

impl serde::Serialize for LinkName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_terminal_s_return_link_is_the_return_link() {
        let names = [1, 2].map(|number| LinkName::Return(Site::new(number).unwrap()).to_string());
        assert_eq!(names, ["return", "return 2"]);
    }
}
