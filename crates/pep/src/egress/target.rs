//! An element of a list of destinations: a prefix, optionally with ports.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::traffic::{PortRange, Prefix, PrefixError};

/// Addresses and ports: `10.0.0.0/8`, `0.0.0.0/0:443`, `192.0.2.1:udp/53`,
/// `[2001:db8::/32]:8000-8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressTarget {
    /// Addresses that match, all of them if its length is 0.
    pub prefix: Prefix,
    /// `None` matches all ports, and protocols without ports such as ICMP.
    pub ports: Option<PortRange>,
}

/// Why a text is not a [`EgressTarget`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Neither a prefix nor a prefix with ports.
    #[error(
        "expected a prefix, with a colon and ports unless it applies to all, like \"10.0.0.0/8\", \
         \"0.0.0.0/0:443\", \"192.0.2.1:udp/53\" or \"[2001:db8::/32]:8000-8080\""
    )]
    Malformed,
    /// The part before the ports looks like a prefix and is none.
    #[error(transparent)]
    Prefix(PrefixError),
}

impl EgressTarget {
    /// Returns `true` if a connection or packet of this protocol to this address and port matches.
    pub fn has(&self, protocol: u8, address: IpAddr, port: u16) -> bool {
        self.prefix.contains(address) && self.ports.is_none_or(|ports| ports.has(protocol, port))
    }
}

impl From<Prefix> for EgressTarget {
    fn from(prefix: Prefix) -> Self {
        Self { prefix, ports: None }
    }
}

impl FromStr for EgressTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (prefix, ports) = split(text).ok_or(TargetError::Malformed)?;
        let prefix = prefix.parse().map_err(|error| match error {
            PrefixError::Malformed => TargetError::Malformed,
            error => TargetError::Prefix(error),
        })?;
        let ports = match ports {
            Some(ports) => Some(PortRange::parse(ports).ok_or(TargetError::Malformed)?),
            None => None,
        };
        Ok(Self { prefix, ports })
    }
}

/// Splits prefix and ports; an IPv6 prefix with ports is in brackets.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        return match rest.split_once(']')? {
            (prefix, "") => Some((prefix, None)),
            (prefix, ports) => Some((prefix, Some(ports.strip_prefix(':')?))),
        };
    }
    match text.split_once(':') {
        Some((prefix, ports)) if !ports.contains(':') => Some((prefix, Some(ports))),
        _ => Some((text, None)),
    }
}

impl fmt::Display for EgressTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.ports, self.prefix.address()) {
            (None, _) => self.prefix.fmt(f),
            (Some(ports), IpAddr::V4(_)) => write!(f, "{}:{ports}", self.prefix),
            (Some(ports), IpAddr::V6(_)) => write!(f, "[{}]:{ports}", self.prefix),
        }
    }
}
