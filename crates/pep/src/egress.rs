//! Egress rules: destinations that each side lets the other reach.
//!
//! The same rules hold on both sides, for split connections, the tunnel and names:
//!
//! 1. Destinations listed in `deny` are refused.
//! 2. Destinations not listed in `reach` are refused. A hub's default lists every address, a terminal's
//!    none.
//! 3. Special addresses (`special`) are refused unless a line of `reach` lies inside their range. This
//!    machine's own addresses, and those of the gateways on the other side of the hop, are refused unless a
//!    line is exactly that address. So neither `0.0.0.0/0` nor `10.0.0.0/8` opens our own `10.0.0.1`: an
//!    operator who lists a network does not mean this machine.
//!
//! Not modelled: an address that NAT elsewhere maps to this machine. Such a connection arrives from
//! outside, where the operator's firewall sees it.

mod special;
mod target;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub use self::target::{EgressTarget, TargetError};
use crate::traffic::{Prefix, TCP};
pub use special::{SPECIAL, SpecialRange, forms};

/// Permitted destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRules {
    /// Destinations that may be reached.
    pub reach: Vec<EgressTarget>,
    /// Exceptions to `reach`, in every form of an address.
    pub deny: Vec<EgressTarget>,
}

/// Reason why a destination is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressRefusal {
    /// Port 0, to which nothing can connect.
    NoPort,
    /// A line of `deny` matches.
    Denied(EgressTarget),
    /// No line of `reach` matches.
    NotListed,
    /// A special address that no line of `reach` opens; its range is named.
    Special(&'static str),
    /// An address of this gateway, or of one on the other side of the hop, that no line of `reach`
    /// opens.
    Own,
    /// The client claims an address of this machine.
    Source,
    /// The kernel did not say whether the address is this machine's.
    Unknown,
}

impl fmt::Display for EgressRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort => f.write_str("there is no port 0"),
            Self::Denied(target) => write!(f, "denied by {target}"),
            Self::NotListed => f.write_str("not listed"),
            Self::Special(what) => write!(f, "{what}, not listed explicitly"),
            Self::Own => f.write_str("an address of a gateway, not listed explicitly"),
            Self::Source => f.write_str("its client has an address of this machine"),
            Self::Unknown => f.write_str(
                "cannot determine whether it is an address of this \
                                          machine",
            ),
        }
    }
}

impl EgressRules {
    /// Everything except special and own addresses: a hub's default.
    pub fn everywhere() -> Self {
        let reach = [Prefix::ALL_V4, Prefix::ALL_V6].map(EgressTarget::from).to_vec();
        Self { reach, deny: Vec::new() }
    }

    /// Nothing: a terminal's default.
    pub fn nowhere() -> Self {
        Self { reach: Vec::new(), deny: Vec::new() }
    }

    /// Adds this machine's loopback addresses.
    pub fn and_loopback(mut self) -> Self {
        self.reach.extend(special::LOOPBACK.map(EgressTarget::from));
        self
    }

    /// Checks a connection to `to`. `is_own` returns whether an address belongs to a gateway, or [`None`]
    /// if unknown. It is called at most once for each form of the address, and only if nothing else
    /// refuses.
    ///
    /// # Errors
    /// The reason why the destination is refused.
    pub fn check(
        &self,
        to: SocketAddr,
        mut is_own: impl FnMut(IpAddr) -> Option<bool>,
    ) -> Result<(), EgressRefusal> {
        if to.port() == 0 {
            return Err(EgressRefusal::NoPort);
        }
        let views = special::embedded_views(to.ip());
        // `deny` covers every form of an address, `reach` only the one in which it is reached.
        let named =
            |target: &&EgressTarget| views.iter().any(|view| target.has(TCP, *view, to.port()));
        if let Some(target) = self.deny.iter().find(named) {
            return Err(EgressRefusal::Denied(target.clone()));
        }
        if !self.reach.iter().any(|target| target.has(TCP, views[0], to.port())) {
            return Err(EgressRefusal::NotListed);
        }
        views.into_iter().try_for_each(|view| self.check_view(view, to.port(), &mut is_own))
    }

    /// Checks one form of an address: special ranges and own addresses need a line of `reach` for them.
    fn check_view(
        &self,
        view: IpAddr,
        port: u16,
        is_own: &mut impl FnMut(IpAddr) -> Option<bool>,
    ) -> Result<(), EgressRefusal> {
        let lists = |inside: &dyn Fn(Prefix) -> bool| {
            let mut fitting = self.reach.iter().filter(|target| target.has(TCP, view, port));
            fitting.any(|target| inside(target.prefix))
        };
        for SpecialRange { range, what } in
            SPECIAL.iter().filter(|special| special.range.contains(view))
        {
            if !lists(&|prefix| range.covers(prefix)) {
                return Err(EgressRefusal::Special(what));
            }
        }
        // A loopback address got here only by a line inside its range, which is explicit enough.
        if view.is_loopback() || lists(&Prefix::is_host) {
            return Ok(());
        }
        match is_own(view) {
            Some(false) => Ok(()),
            Some(true) => Err(EgressRefusal::Own),
            None => Err(EgressRefusal::Unknown),
        }
    }
}

#[cfg(test)]
mod tests;
