//! Firewalls of the operator that drop what a gateway takes over: chains of nftables
//! (those that `iptables-nft` makes too) on the hook of what is for this machine, whose
//! policy is to drop. A drop is final whatever other tables say, and skyhop changes
//! nobody else's table; so what can be done is to say which rule is missing. Whether
//! there is one already is not looked for: rules can say the same in many ways.

use std::fmt;

use crate::netlink::{BaseChain, Socket};
use crate::rule::Mark;

/// A chain that drops what it does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Barrier {
    chain: BaseChain,
    mark: Mark,
}

/// Those in the way of packets with this mark. None where they cannot be listed.
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
            "a firewall drops what it does not accept (nftables: {family} {table} {name}); unless it \
             accepts what is taken over: `nft insert rule {family} {table} {name} meta mark and \
             {:#x} == {:#x} accept`",
            mark.mask, mark.value
        )
    }
}
