//! Why a gateway does not start, or stops.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::keys::KeyError;
use crate::refusal::Refusal;

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
    #[error("cannot resolve the hub {hub:?}: {cause}")]
    Resolve {
        /// As configured.
        hub: String,
        /// The resolver's reason.
        cause: io::Error,
    },
    /// The UDP socket cannot be had.
    #[error("cannot listen on UDP {address}: {cause}")]
    Bind {
        /// The local address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// The system does not let connections of one side be set up as wanted.
    #[error("{section}.{key} = {value}: the system refuses it: {cause}{}", side_hint(key))]
    Side {
        /// `lan` or `wan`.
        section: &'static str,
        /// The key in that section.
        key: &'static str,
        /// What it says there.
        value: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The proxy's port cannot be had.
    #[error("the proxy cannot listen on TCP {address}: {cause}")]
    Listen {
        /// The local address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// The kernel refuses the listeners, the nftables table, the rule or the route.
    #[error("cannot take over connections: {0}")]
    Interception(Refusal),
    /// The same, where clients' addresses are to be used.
    #[error("cannot connect with clients' addresses (`transparent = true`): {0}")]
    Transparency(Refusal),
    /// The kernel does not show us SYNs, or take them back.
    #[error("cannot defer answers (`answer = \"deferred\"`): {0}")]
    Deferral(Refusal),
    /// The kernel refuses the tunnel's network device, table, rule or route.
    #[error("cannot make the tunnel {name:?}: {refusal}")]
    Tunnel {
        /// Its name.
        name: String,
        /// What is refused.
        refusal: Refusal,
    },
    /// There is a network device of the tunnel's name.
    #[error("there is an interface {name:?} already: expected another `tunnel.name`")]
    TunnelExists {
        /// Its name.
        name: String,
    },
    /// The kernel cannot be asked which addresses are this machine's, which others must
    /// not reach through us.
    #[error("cannot ask the kernel for this machine's addresses (rtnetlink): {0}")]
    OwnAddresses(io::Error),
    /// There are no random numbers.
    #[error(transparent)]
    Randomness(KeyError),
    /// The process has no descriptor left, or the like.
    #[error("cannot start: {0}")]
    System(io::Error),
    /// The control socket that the configuration names cannot be had.
    #[error("cannot make the control socket {}: {cause}", path.display())]
    Control {
        /// Where it was to be.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The address for metrics cannot be had.
    #[error("cannot serve metrics on {address}: {cause}")]
    Metrics {
        /// Where they were to be served.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
    /// The UDP socket failed while it was in use.
    #[error("the UDP socket failed: {0}")]
    Socket(io::Error),
    /// A part of the gateway ended that never should.
    #[error("the task that moves datagrams ended: {0}")]
    Task(tokio::task::JoinError),
}

/// Where to look for what would be accepted.
fn side_hint(key: &str) -> &'static str {
    match key {
        "congestion_control" => {
            ": expected one of /proc/sys/net/ipv4/tcp_available_congestion_control, which \
             another user than root may use if tcp_allowed_congestion_control has it too"
        }
        "initial_window" | "initial_receive_window" => {
            ": it takes CAP_NET_ADMIN, and a main routing table that can be copied"
        }
        _ => "",
    }
}

impl RunError {
    pub(crate) fn device(name: &str, refusal: Refusal) -> Self {
        // A TUN device that is taken is busy; a name that is, invalid.
        let exists = nix::net::if_::if_nametoindex(name).is_ok();
        if exists && !refusal.is_denial() {
            return Self::TunnelExists { name: name.to_owned() };
        }
        Self::Tunnel { name: name.to_owned(), refusal }
    }

    /// What it is for, if taking connections over is not what was asked for.
    pub(crate) fn of_transparency(self) -> Self {
        match self {
            Self::Interception(refusal) => Self::Transparency(refusal),
            other => other,
        }
    }

    /// Whether the gateway never ran: the configuration, the machine or the
    /// privileges need mending first.
    pub fn is_setup(&self) -> bool {
        !matches!(self, Self::Socket(_) | Self::Task(_))
    }
}
