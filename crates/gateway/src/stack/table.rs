//! The nftables table of the stack, which recognises its packets.
//!
//! Connections that the stack opens are recognised by conntrack: packets from its device mark their
//! connection, and the replies are routed back into the device. Connections from the WAN side are selected
//! at their SYN, like those of clients. Unless it uses clients' addresses, the stack has an address of its
//! own, which the kernel translates into this machine's (masquerading).

use pep::traffic::{IpFamily, PolicyAction, PolicySubject, Prefix, TrafficPolicy};

use super::address;
use crate::intercept::netfilter::GatewaySlot;
use crate::network::namespace_slot::NamespaceSlot;
use crate::network::nft::policy;
use crate::network::nft::rule::{FirewallMark, Term};
use crate::network::nft::table::{Hook, NftChain, NftRule};
use crate::network::tun::table::{BEHIND_INTERCEPTION, DeviceRules};

const HOOK_CHAIN: &str = "prerouting";
const OUTPUT_CHAIN: &str = "output";
const NAT_CHAIN: &str = "postrouting";
const ACCEPT_CHAIN: &str = "wan";
const POLICY_CHAIN: &str = "policies";
const RETURN_CHAIN: &str = "known";

/// Selection of the connections from the WAN side that the stack accepts.
#[derive(Debug, Clone, Default)]
pub(super) struct WanSelection {
    /// Names of the interfaces towards the WAN.
    pub(super) interfaces: Vec<String>,
    pub(super) policies: Vec<TrafficPolicy>,
}

impl DeviceRules for WanSelection {
    /// Set if new connections are accepted.
    type Scope = bool;

    fn policies(&self) -> &[TrafficPolicy] {
        &self.policies
    }

    fn counted(&self) -> &'static [PolicySubject] {
        &[PolicySubject::Connections]
    }

    /// Returns the chains that decide about new connections, without rules unless `accepts`, and the chain
    /// for known ones.
    fn deciding_chains(&self, accepts: &bool, mark: FirewallMark) -> Vec<NftChain> {
        let take = vec![Term::MarkConnection(mark), Term::SetMark(mark), Term::Accept];
        let policies = policy::chain(
            &self.policies,
            PolicySubject::Connections,
            |_| true,
            take.clone(),
            |policy| match policy.action {
                PolicyAction::Split => take.clone(),
                PolicyAction::Tunnel | PolicyAction::Bypass => vec![Term::Return],
                // Interception refuses, and only what clients send.
                PolicyAction::Refuse => vec![],
            },
        );
        let of_interface = |interface: &String| {
            let from = Term::FromInterface(interface.clone());
            // A SYN that passes must not keep the mark of an earlier connection.
            let decide =
                [Term::NotToThisMachine, Term::ToUnicast, Term::MarkConnection(mark.cleared())];
            [&[from], &decide[..], &[Term::Goto(POLICY_CHAIN)]].concat()
        };
        let accept: Vec<NftRule> = self.interfaces.iter().map(of_interface).collect();
        let mut chains =
            vec![NftChain::plain(POLICY_CHAIN, policies), NftChain::plain(ACCEPT_CHAIN, accept)];
        if !*accepts {
            chains.iter_mut().for_each(|chain| chain.rules.clear());
        }
        chains.push(NftChain::plain(RETURN_CHAIN, self.returning(mark)));
        chains
    }

    fn hooks(&self, device: &str, mark: FirewallMark) -> Vec<NftChain> {
        let came =
            vec![Term::FromInterface(device.to_owned()), Term::MarkConnection(mark), Term::Accept];
        let new = vec![Term::Tcp, Term::OnlySyn, Term::Jump(ACCEPT_CHAIN)];
        // A packet marked by interception is for a socket. Where clients' addresses are kept, its connection may
        // have the same addresses and ports as one of the stack, and then shares its connection mark.
        let intercepted = vec![Term::HasAnyMark(GatewaySlot(0).mark().mask), Term::Return];
        let prerouting = vec![came, intercepted, new, vec![Term::Jump(RETURN_CHAIN)]];
        // ICMP errors of this machine about packets of the stack, for instance about too large ones.
        let known = [Term::ConnectionHasMark(mark), Term::SetMark(mark), Term::Accept];
        let output = vec![[&[Term::NotTcp], &known[..]].concat()];
        let masquerade = |version| {
            let own = Prefix::host(address(version));
            vec![Term::Version(version), Term::FromPrefix(own), Term::Masquerade]
        };
        let nat = IpFamily::BOTH.map(masquerade).to_vec();
        vec![
            NftChain::on_hook(HOOK_CHAIN, Hook::prerouting(BEHIND_INTERCEPTION), prerouting),
            NftChain::on_hook(OUTPUT_CHAIN, Hook::output(BEHIND_INTERCEPTION), output),
            NftChain::on_hook(NAT_CHAIN, Hook::source_nat(0), nat),
        ]
    }
}

impl WanSelection {
    /// Returns the rules for packets of the stack's connections: all that come in by a WAN interface, and
    /// replies from anywhere.
    fn returning(&self, mark: FirewallMark) -> Vec<NftRule> {
        let take = [Term::ConnectionHasMark(mark), Term::SetMark(mark), Term::Accept];
        let from =
            |interface: &String| [&[Term::FromInterface(interface.clone())], &take[..]].concat();
        let mut rules: Vec<NftRule> = self.interfaces.iter().map(from).collect();
        rules.push([&[Term::IsReply], &take[..]].concat());
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tun::table::DeviceTable;
    use crate::testkit::{assert_printed, in_namespace, nft};

    fn selection() -> WanSelection {
        let to = vec!["192.0.2.0/24".parse().unwrap()];
        let policies =
            vec![TrafficPolicy { to, ..TrafficPolicy::new("bypass", PolicyAction::Bypass) }];
        WanSelection { interfaces: vec!["wan0".to_owned(), "wan1".to_owned()], policies }
    }

    #[test]
    fn the_kernel_has_the_rules_that_we_print() {
        in_namespace(|| {
            let mut table = DeviceTable::claim(selection(), "skyhop-wan").unwrap();
            table.set_scope(true).unwrap();
            let name = table.slot().table_name();
            let printed = selection().display(&true, "skyhop-wan", table.slot());
            let Some(ours) = assert_printed(&name, &printed) else { return };
            for part in ["masquerade", "ct direction reply", "iifname \"wan1\"", "priority srcnat"]
            {
                assert!(ours.contains(part), "{part} is not in {ours}");
            }
        });
    }

    #[test]
    fn a_table_that_accepts_nothing_keeps_what_it_has() {
        in_namespace(|| {
            let mut table = DeviceTable::claim(selection(), "skyhop-wan").unwrap();
            let Some(idle) = nft(&["list", "ruleset"], "") else { return };
            table.set_scope(true).unwrap();
            let open = nft(&["list", "ruleset"], "").unwrap();
            assert!(open.contains("192.0.2.0/24") && !idle.contains("192.0.2.0/24"));
            assert!(idle.contains("ct mark"), "packets of open connections return: {idle}");
            table.set_scope(false).unwrap();
            assert_eq!(nft(&["list", "ruleset"], "").unwrap(), idle);
            table.update(|rules| *rules = WanSelection::default()).unwrap();
            assert!(!nft(&["list", "ruleset"], "").unwrap().contains("wan0"));
            drop(table);
            assert_eq!(nft(&["list", "ruleset"], "").unwrap(), "");
        });
    }
}
