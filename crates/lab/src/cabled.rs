//! The hosts of a lab without its links, to measure what a gateway costs on its own.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::topology::crossing::Extent;
use crate::topology::crossing::LAN_MTU;
use crate::topology::{self, LabNetwork};
use crate::{NetNs, Node, TopologyError};

/// Client, terminal, hub and server, joined by veth pairs with all offloads on. No driver runs. It
/// disappears with the last process in it.
pub struct CabledLab {
    network: LabNetwork,
}

impl CabledLab {
    /// Creates the hosts. The process must have [entered](crate::enter) its own namespaces.
    ///
    /// # Errors
    /// If the kernel refuses a step; everything is then cleaned up.
    pub fn start() -> Result<Self, TopologyError> {
        let terrestrial = false;
        let client_side = false;
        let extent = Extent { terminals: 1, terrestrial, client_side, mtu: LAN_MTU, cabled: true };
        Ok(Self { network: topology::build(&extent)? })
    }

    /// Returns a host's network namespace.
    ///
    /// # Panics
    /// For a client or terminal other than the first.
    pub fn node(&self, node: Node) -> &NetNs {
        self.network.host(node)
    }

    /// Returns a command that will run on a host.
    ///
    /// # Panics
    /// As [`Self::node`].
    pub fn command(&self, node: Node, program: impl AsRef<OsStr>) -> Command {
        self.node(node).command(program)
    }

    /// Returns a host's IPv4 address.
    pub fn address4(&self, node: Node) -> Ipv4Addr {
        node.address4()
    }
}
