//! The error that ends a gateway.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use pep::traffic::Prefix;
use thiserror::Error;

use crate::config::FileError;
use crate::config::keys::KeyError;
use crate::process::refusal::{KernelOperation, KernelRefusal};

/// Reason why a gateway cannot start, or stops. Displayed as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The permits of terminals cannot be read.
    #[error(transparent)]
    Permits(#[from] FileError),
    /// A running hub cannot be replaced.
    #[error("cannot take over from the running hub: {problem}")]
    TakeOver {
        /// Description of the problem, as a clause.
        problem: String,
    },
    /// The bundle node cannot start.
    #[error("[bundles]: {problem}")]
    Bundles {
        /// Description of the problem, as a clause.
        problem: String,
    },
    /// The UDP socket cannot be bound.
    #[error("cannot listen on UDP {address}: {cause}")]
    Bind {
        /// The local address and port.
        address: SocketAddr,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The socket of a link cannot be bound.
    #[error("cannot use link \"{name}\": {cause}")]
    Link {
        /// Name of the link in `[[link]]`.
        name: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The system refuses a TCP setting of one side.
    #[error("{section}.{key} = {value}: the kernel refuses it: {cause}{}", side_hint(key))]
    Side {
        /// The section of the setting: `lan` or `wan`.
        section: &'static str,
        /// The key in that section.
        key: &'static str,
        /// The configured value, as text.
        value: String,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The proxy's port cannot be bound.
    #[error("the proxy cannot listen on TCP {address}: {cause}")]
    Listen {
        /// The local address and port.
        address: SocketAddr,
        /// The error of the system call.
        cause: io::Error,
    },
    /// DNS over TLS or HTTPS cannot be served.
    #[error("cannot resolve names: {problem}")]
    Dns {
        /// Description of the problem, as a clause.
        problem: String,
    },
    /// The kernel refuses the listeners, the nftables table, the rule or the route.
    #[error("cannot intercept connections: {0}")]
    Interception(KernelRefusal),
    /// The kernel refuses a requirement of transparent addresses.
    #[error("cannot connect with clients' addresses (`transparent = true`): {0}")]
    Transparency(KernelRefusal),
    /// The kernel refuses to log SYNs to the gateway, or to reinject them.
    #[error("cannot defer answers (`answer = \"deferred\"`): {0}")]
    Deferral(KernelRefusal),
    /// The kernel refuses the tunnel's network device, table, rule or route.
    #[error("cannot create the tunnel {name:?}: {refusal}")]
    Tunnel {
        /// Configured name of the device.
        name: String,
        /// The refused operation, with the kernel's error.
        refusal: KernelRefusal,
    },
    /// The kernel refuses the device, table, rule or route of skyhop's own TCP towards servers.
    #[error("cannot use `wan.stack = \"skyhop\"` with the device {name:?}: {refusal}")]
    Stack {
        /// Configured name of the device.
        name: String,
        /// The refused operation, with the kernel's error.
        refusal: KernelRefusal,
    },
    /// A route of this machine leads to the addresses for terminals without networks.
    #[error(
        "tunnel.pool {pool}: this machine has a route to {route}: expected a prefix to which no \
         route leads, or `networks` of every terminal"
    )]
    Pool {
        /// The configured addresses.
        pool: Prefix,
        /// Destinations of the route.
        route: Prefix,
    },
    /// A network device with the tunnel's or stack's name already exists.
    #[error("the interface {name:?} already exists: expected another `tunnel.name` or `wan.name`")]
    TunnelExists {
        /// Configured name of the device.
        name: String,
    },
    /// The kernel does not report this machine's own addresses, without which the gateway could not keep
    /// others from them.
    #[error("cannot read this machine's addresses (rtnetlink): {0}")]
    OwnAddresses(io::Error),
    /// The system has no random numbers.
    #[error(transparent)]
    Randomness(KeyError),
    /// A system call failed, for example for lack of descriptors.
    #[error("cannot start: {0}")]
    System(io::Error),
    /// The configured control socket cannot be created.
    #[error("cannot create the control socket {}: {cause}", path.display())]
    Control {
        /// Configured path of the socket.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The metrics address cannot be bound.
    #[error("cannot serve metrics on {address}: {cause}")]
    Metrics {
        /// Configured address of the server.
        address: SocketAddr,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The token of the metrics server cannot be used.
    #[error("metrics.token_file {}: {why}", path.display())]
    MetricsToken {
        /// Configured path of the file.
        path: PathBuf,
        /// The problem, and what would be accepted.
        why: String,
    },
    /// The certificate for TLS or its key cannot be used: file and reason.
    #[error("{0}")]
    Certificate(String),
    /// The UDP socket failed during operation.
    #[error("the UDP socket failed: {0}")]
    Socket(io::Error),
    /// A task ended that should run for ever.
    #[error("the task that moves datagrams ended: {0}")]
    Task(tokio::task::JoinError),
}

/// Returns a hint on the values of a key that would be accepted, or an empty string.
fn side_hint(key: &str) -> &'static str {
    match key {
        "congestion_control" => {
            ": expected one of /proc/sys/net/ipv4/tcp_available_congestion_control, which users \
             other than root may use only if it is also in tcp_allowed_congestion_control"
        }
        _ => "",
    }
}

impl RunError {
    /// Tells a device that exists already from one that the kernel refuses.
    pub(crate) fn device(name: &str, refusal: KernelRefusal) -> Self {
        // A TUN device in use is reported as busy, an existing name as invalid.
        let exists = nix::net::if_::if_nametoindex(name).is_ok();
        if exists && !refusal.is_denial() {
            return Self::TunnelExists { name: name.to_owned() };
        }
        Self::Tunnel { name: name.to_owned(), refusal }
    }

    /// Wraps the kernel's refusal to create or change an nftables table.
    pub(crate) fn nftables(cause: io::Error) -> Self {
        Self::Interception(KernelRefusal::wrap(KernelOperation::Nftables)(cause))
    }

    /// Attributes an interception error to `transparent = true`.
    pub(crate) fn of_transparency(self) -> Self {
        match self {
            Self::Interception(refusal) => Self::Transparency(refusal),
            other => other,
        }
    }

    /// Returns whether the gateway never ran, so that configuration, machine or privileges must be fixed.
    pub fn is_setup(&self) -> bool {
        !matches!(self, Self::Socket(_) | Self::Task(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_while_running_is_no_matter_of_setup() {
        let cause = || io::Error::from_raw_os_error(libc::EADDRINUSE);
        let address = ([127, 0, 0, 1], 9).into();
        assert!(RunError::Bind { address, cause: cause() }.is_setup());
        assert!(!RunError::Socket(cause()).is_setup());
    }

    #[test]
    fn a_device_that_exists_is_told_from_one_that_is_refused() {
        let refused = |code| KernelRefusal::expected(KernelOperation::Tun, code);
        let exists = RunError::device("lo", refused(libc::EBUSY));
        assert!(matches!(exists, RunError::TunnelExists { .. }), "{exists}");
        for (name, code) in [("lo", libc::EPERM), ("no-such", libc::EBUSY)] {
            let error = RunError::device(name, refused(code));
            assert!(matches!(error, RunError::Tunnel { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn interception_for_transparent_addresses_is_blamed_on_them() {
        let refusal = || KernelRefusal::expected(KernelOperation::Nftables, libc::EPERM);
        let error = RunError::Interception(refusal()).of_transparency();
        assert!(error.to_string().contains("transparent = true"), "{error}");
        let other = RunError::Deferral(refusal()).of_transparency();
        assert!(matches!(other, RunError::Deferral(_)));
    }

    #[test]
    fn a_refused_setting_says_what_would_be_accepted() {
        let error = |key| RunError::Side {
            section: "wan",
            key,
            value: "\"bbr9\"".to_owned(),
            cause: io::Error::from_raw_os_error(libc::ENOENT),
        };
        let text = error("congestion_control").to_string();
        assert!(text.starts_with("wan.congestion_control = \"bbr9\": the kernel refuses it"));
        assert!(text.contains("tcp_available_congestion_control") && !text.contains('\n'));
        assert!(error("send_buffer").to_string().ends_with("(os error 2)"));
    }
}
