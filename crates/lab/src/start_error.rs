//! Why a lab did not start.

use std::io;

use link::dama::DamaError;
use thiserror::Error;

use crate::TopologyError;

/// Why a lab did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The network could not be created.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The hosts' names could not be published.
    #[error("cannot put the lab's names into /etc/hosts: {cause}")]
    Names {
        /// The kernel's error.
        cause: io::Error,
    },
    /// The directory for the gateways' sockets could not be created.
    #[error("cannot create a directory for the lab's sockets: {cause}")]
    Run {
        /// The kernel's error.
        cause: io::Error,
    },
    /// A packet socket on the hop could not be opened.
    #[error("cannot open the packet socket on {device}: {cause}")]
    Port {
        /// The device in `sky`.
        device: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The shared return link cannot be built.
    #[error(transparent)]
    Return(#[from] DamaError),
    /// The driver's thread did not start.
    #[error("cannot start the link's driver: {cause}")]
    Driver {
        /// The kernel's error.
        cause: io::Error,
    },
    /// A service on `server` did not start.
    #[error("cannot start the service on port {port} of server: {cause}")]
    Service {
        /// The TCP port.
        port: u16,
        /// The kernel's error.
        cause: io::Error,
    },
}
