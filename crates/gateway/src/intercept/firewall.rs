//! Detection of operator firewalls that drop intercepted packets: nftables chains (including those of
//! `iptables-nft`) on the input hook whose policy is to drop. A drop is final whatever other tables
//! accept, and skyhop changes no table but its own, so it can only name the rule that is missing. It does
//! not check whether that rule exists, since a rule set can express it in many ways.

use std::fmt;

use os::netlink::netfilter::{BaseChain, NetfilterSocket};

use crate::network::nft::rule::FirewallMark;

/// A chain on the input hook that drops by default, with the mark that it must accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Barrier {
    chain: BaseChain,
    mark: FirewallMark,
}

/// Finds the chains that may drop packets with this mark; empty if chains cannot be listed.
pub(crate) fn barriers(mark: FirewallMark) -> Vec<Barrier> {
    let chains =
        NetfilterSocket::open().and_then(|socket| socket.base_chains()).unwrap_or_default();
    let drops = |chain: &BaseChain| chain.hook == libc::NF_INET_LOCAL_IN && chain.drops;
    chains.into_iter().filter(drops).map(|chain| Barrier { chain, mark }).collect()
}

/// Describes the chains that drop forwarded packets by default, and so perhaps those of the gateway's own
/// TCP stack.
pub(crate) fn forward_barriers() -> Vec<String> {
    let chains =
        NetfilterSocket::open().and_then(|socket| socket.base_chains()).unwrap_or_default();
    let drops = |chain: &BaseChain| chain.hook == libc::NF_INET_FORWARD && chain.drops;
    let told = |BaseChain { family, table, name, .. }: BaseChain| {
        format!(
            "a firewall drops forwarded packets by default (nftables: {family} {table} {name}); if it \
             does not accept those of the stack: `nft insert rule {family} {table} {name} iifname \
             DEVICE accept`, and the same with oifname, for the DEVICE `wan.name`"
        )
    };
    chains.into_iter().filter(drops).map(told).collect()
}

/// Finds the chains that filter forwarded packets. Intercepted connections do not pass through them, since
/// they end at this machine. In nft syntax, such as `inet filter forward`.
pub(crate) fn forward_filter_chains() -> Vec<String> {
    let Ok(socket) = NetfilterSocket::open() else { return Vec::new() };
    let chains = socket.base_chains().unwrap_or_default().into_iter();
    let decides = |chain: &BaseChain| {
        chain.hook == libc::NF_INET_FORWARD
            && (chain.drops || socket.has_rules(chain).unwrap_or(false))
    };
    let name =
        |BaseChain { family, table, name, .. }: BaseChain| format!("{family} {table} {name}");
    chains.filter(decides).map(name).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intercept::netfilter::GatewaySlot;
    use crate::network::namespace_slot::NamespaceSlot;
    use crate::testkit::{in_namespace, nft};

    const TABLE: &str = "table inet guard {
        chain in { type filter hook input priority 0; policy drop; }
        chain on { type filter hook forward priority 0; policy drop; }
        chain open { type filter hook input priority 5; policy accept; }
    }";

    #[test]
    fn a_firewall_that_drops_what_comes_in_is_reported_with_the_rule_it_lacks() {
        in_namespace(|| {
            let mark = GatewaySlot(3).mark();
            assert_eq!(barriers(mark), []);
            assert_eq!(forward_filter_chains(), Vec::<String>::new());
            assert!(forward_barriers().is_empty());
            if nft(&["-f", "-"], TABLE).is_none() {
                return;
            }
            let forwarding = forward_barriers();
            assert!(forwarding.len() == 1 && forwarding[0].contains("inet guard on"));
            assert_eq!(
                forward_filter_chains(),
                ["inet guard on"],
                "an empty chain decides nothing"
            );
            let add = ["add", "chain", "inet", "guard", "more"];
            let hook = "{ type filter hook forward priority 1; }";
            nft(&[&add[..], &[hook]].concat(), "").unwrap();
            assert_eq!(forward_filter_chains().len(), 1);
            nft(&["add", "rule", "inet", "guard", "more", "tcp", "dport", "25", "reject"], "")
                .unwrap();
            assert_eq!(forward_filter_chains(), ["inet guard on", "inet guard more"]);
            let [barrier] = &barriers(mark)[..] else { panic!("{:?}", barriers(mark)) };
            let told = barrier.to_string();
            let command = told.split('`').nth(1).unwrap();
            assert!(told.contains("inet guard in"), "{told}");
            // What it advises works.
            let arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
            nft(&arguments, "").unwrap();
            let listed = nft(&["list", "chain", "inet", "guard", "in"], "").unwrap();
            assert!(listed.contains("0x00f00000 == 0x00400000 accept"), "{listed}");
        });
    }
}
