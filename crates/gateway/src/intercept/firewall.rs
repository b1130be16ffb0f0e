//! Finds operator firewalls that drop intercepted packets: nftables chains (including those of
//! `iptables-nft`) on the input hook whose policy is to drop. A drop is final whatever other tables
//! say, and skyhop changes no table but its own, so all it can do is name the rule that is missing.
//! It does not check whether such a rule exists: rules can say the same in many ways.

use std::fmt;

use os::netlink::netfilter::{BaseChain, Socket};

use crate::intercept::rule::Mark;

/// A chain that drops what it does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Barrier {
    chain: BaseChain,
    mark: Mark,
}

/// Chains in the way of packets with this mark; empty if chains cannot be listed.
pub(crate) fn barriers(mark: Mark) -> Vec<Barrier> {
    let chains = Socket::open().and_then(|socket| socket.base_chains()).unwrap_or_default();
    let drops = |chain: &BaseChain| chain.hook == libc::NF_INET_LOCAL_IN && chain.drops;
    chains.into_iter().filter(drops).map(|chain| Barrier { chain, mark }).collect()
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain: BaseChain { family, table, name, .. }, mark } = self;
        write!(
            f,
            "a firewall drops by default (nftables: {family} {table} {name}); if it does not \
             accept intercepted connections: `nft insert rule {family} {table} {name} meta mark \
             and {:#x} == {:#x} accept`",
            mark.mask, mark.value
        )
    }
}
