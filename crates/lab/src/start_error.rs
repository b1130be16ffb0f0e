//! The error of starting a lab.

use std::io;

use link::dama::DamaError;
use thiserror::Error;

use crate::TopologyError;

/// The reason why a lab did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The network could not be created.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The hosts' names could not be published.
    #[error("cannot put the lab's names into /etc/hosts: {cause}")]
    Names {
        /// The error of the system call.
        cause: io::Error,
    },
    /// The directory for the gateways' sockets could not be created.
    #[error("cannot create a directory for the lab's sockets: {cause}")]
    Run {
        /// The error of the system call.
        cause: io::Error,
    },
    /// A packet socket on the hop could not be opened.
    #[error("cannot open the packet socket on {device}: {cause}")]
    Port {
        /// Name of the device in `sky`.
        device: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The shared return link cannot be built.
    #[error(transparent)]
    Return(#[from] DamaError),
    /// The driver's thread did not start.
    #[error("cannot start the link's driver: {cause}")]
    Driver {
        /// The error of the system call.
        cause: io::Error,
    },
    /// A service on `server` did not start.
    #[error("cannot start the service on port {port} of server: {cause}")]
    Service {
        /// TCP port of the service.
        port: u16,
        /// The error of the system call.
        cause: io::Error,
    },
}
