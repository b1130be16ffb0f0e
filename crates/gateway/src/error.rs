//! Why a gateway does not start, or stops.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use crate::keys::KeyError;

const PRIVILEGE: &str = "it needs the capability CAP_NET_ADMIN: run it as root, or once \
                         `setcap cap_net_admin+ep` on the program";

/// Why a gateway does not start, or stops. Each prints as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// An interface of the configuration is not there.
    #[error("there is no interface {name:?}: `intercept.interfaces` names those of this machine")]
    Interface {
        /// Its name.
        name: String,
    },
    /// The hub's name has no address.
    #[error("cannot resolve the hub {hub:?}: {source}")]
    Resolve {
        /// As configured.
        hub: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// The UDP socket cannot be had.
    #[error("cannot listen on UDP {address}: {source}")]
    Bind {
        /// The local address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The process may not take over connections.
    #[error("not permitted to take over connections: {PRIVILEGE}")]
    Privilege,
    /// The kernel refuses the listeners or the nftables table.
    #[error("cannot take over connections (nftables with tproxy and socket, Linux 5.12): {0}")]
    Interception(io::Error),
    /// The kernel refuses the rule or the route.
    #[error("cannot route marked packets to this machine: {0}")]
    Routing(io::Error),
    /// The loopback device is down, and no packet can be routed to the machine.
    #[error("the loopback device is down in this network namespace: `ip link set lo up`")]
    LoopbackDown,
    /// There are no random numbers.
    #[error(transparent)]
    Randomness(KeyError),
    /// The process has no descriptor left, or the like.
    #[error("cannot start: {0}")]
    System(io::Error),
    /// The UDP socket failed while it was in use.
    #[error("the UDP socket failed: {0}")]
    Socket(io::Error),
    /// A part of the gateway ended that never should.
    #[error("the task that moves datagrams ended: {0}")]
    Task(tokio::task::JoinError),
}

impl RunError {
    pub(crate) fn interception(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Privilege,
            _ => Self::Interception(error),
        }
    }

    pub(crate) fn routing(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Privilege,
            io::ErrorKind::NetworkDown => Self::LoopbackDown,
            _ => Self::Routing(error),
        }
    }

    /// Whether the gateway never ran: the configuration, the machine or the
    /// privileges need mending first.
    pub fn is_setup(&self) -> bool {
        !matches!(self, Self::Socket(_) | Self::Task(_))
    }
}
