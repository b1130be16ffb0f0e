//! The nftables table of the stack, which recognises its packets.
//!
//! Connections that the stack opens are recognised by conntrack: packets from its device mark their
//! connection, and the replies are routed back into the device. Connections from the WAN side are selected
//! at their SYN, like those of clients. Unless it uses clients' addresses, the stack has an address of its
//! own, which the kernel translates into this machine's (masquerading).

use std::collections::BTreeMap;
use std::io;

use pep::traffic::{IpFamily, PolicyAction, PolicySubject, Prefix, TrafficPolicy};

use super::address;
use crate::intercept::netfilter::{self, SLOTS};
use crate::intercept::nft_table::{self, Hook, NftChain, NftRule, NftTable};
use crate::intercept::policy;
use crate::intercept::rule::{FirewallMark, Term};
use crate::tun::route::Slot;

const HOOK_CHAIN: &str = "prerouting";
const OUTPUT_CHAIN: &str = "output";
const NAT_CHAIN: &str = "postrouting";
const ACCEPT_CHAIN: &str = "wan";
const POLICY_CHAIN: &str = "policies";
/// Our chains run after those of interception, whose packets are not for the stack.
const BEHIND_INTERCEPTION: i32 = 1;

/// Selection of the connections from the WAN side that the stack accepts.
#[derive(Debug, Clone, Default)]
pub(super) struct WanSelection {
    /// Names of the interfaces towards the WAN.
    pub(super) interfaces: Vec<String>,
    pub(super) policies: Vec<TrafficPolicy>,
}

impl WanSelection {
    /// Returns the chains that decide about new connections, without rules unless `accepts`, and the chain
    /// for known ones.
    fn deciding(&self, mark: FirewallMark, accepts: bool) -> Vec<NftChain> {
        let take = vec![Term::MarkConnection(mark), Term::SetMark(mark), Term::Accept];
        let policies = policy::chain(
            &self.policies,
            PolicySubject::Connections,
            true,
            take.clone(),
            |action| match action {
                PolicyAction::Split => take.clone(),
                PolicyAction::Tunnel | PolicyAction::Bypass => vec![Term::Return],
            },
        );
        let none = FirewallMark { value: 0, ..mark };
        let of_interface = |interface: &String| {
            let from = Term::FromInterface(interface.clone());
            // A SYN that passes must not keep the mark of an earlier connection.
            let decide = [Term::NotToThisMachine, Term::ToUnicast, Term::MarkConnection(none)];
            [&[from], &decide[..], &[Term::Goto(POLICY_CHAIN)]].concat()
        };
        let accept: Vec<NftRule> = self.interfaces.iter().map(of_interface).collect();
        let mut chains =
            vec![NftChain::plain(POLICY_CHAIN, policies), NftChain::plain(ACCEPT_CHAIN, accept)];
        if !accepts {
            chains.iter_mut().for_each(|chain| chain.rules.clear());
        }
        chains.push(NftChain::plain(RETURN_CHAIN, self.returning(mark)));
        chains
    }

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

    fn counters(&self) -> Vec<String> {
        policy::counters(&self.policies, PolicySubject::Connections)
    }

    /// Formats the whole table in nft syntax.
    pub(super) fn display(&self, device: &str, slot: Slot) -> String {
        let mut chains = self.deciding(slot.mark(), true);
        chains.extend(hooks(device, slot.mark()));
        nft_table::display(&slot.table_name(), &self.counters(), &chains)
    }
}

const RETURN_CHAIN: &str = "known";

/// Builds the chains on hooks.
fn hooks(device: &str, mark: FirewallMark) -> Vec<NftChain> {
    let came =
        vec![Term::FromInterface(device.to_owned()), Term::MarkConnection(mark), Term::Accept];
    let new = vec![Term::Tcp, Term::OnlySyn, Term::Jump(ACCEPT_CHAIN)];
    // A packet marked by interception is for a socket. Where clients' addresses are kept, its connection may
    // have the same addresses and ports as one of the stack, and then shares its connection mark.
    let intercepted = vec![Term::HasAnyMark(netfilter::GatewaySlot(0).mark().mask), Term::Return];
    let prerouting = vec![came, intercepted, new, vec![Term::Jump(RETURN_CHAIN)]];
    // ICMP errors of this machine about packets of the stack, for instance about too large ones.
    let known = [Term::ConnectionHasMark(mark), Term::SetMark(mark), Term::Accept];
    let output = vec![[&[Term::NotTcp], &known[..]].concat()];
    let masquerade = |version| {
        let own = Prefix::host(address(version));
        vec![Term::Version(version), Term::FromPrefix(own), Term::Masquerade]
    };
    let nat = [IpFamily::V4, IpFamily::V6].map(masquerade).to_vec();
    [
        (HOOK_CHAIN, Hook::prerouting(BEHIND_INTERCEPTION), prerouting),
        (OUTPUT_CHAIN, Hook::output(BEHIND_INTERCEPTION), output),
        (NAT_CHAIN, Hook::source_nat(), nat),
    ]
    .map(|(name, hook, rules)| NftChain { name, hook: Some(hook), rules })
    .into()
}

/// The stack's table in the kernel. Removed when dropped.
pub(super) struct StackTable {
    table: NftTable,
    slot: Slot,
    selection: WanSelection,
    accepts: bool,
}

impl StackTable {
    /// Creates a table for the stack's `device` in the first free slot of this network namespace. It
    /// accepts no connections yet.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(super) fn claim(selection: WanSelection, device: &str) -> io::Result<Self> {
        let chains = |slot: Slot| {
            let mut chains = selection.deciding(slot.mark(), false);
            chains.extend(hooks(device, slot.mark()));
            chains
        };
        let (slot, table) = NftTable::claim((0..SLOTS).map(Slot), Slot::table_name, chains)?;
        let mut table = Self { table, slot, selection, accepts: false };
        // Chains that are not on hooks are created empty, but known connections need their rules.
        table.fill(true)?;
        Ok(table)
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Starts or stops accepting new connections. Existing ones are kept.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn accept(&mut self, accepts: bool) -> io::Result<()> {
        if accepts == self.accepts {
            return Ok(());
        }
        self.accepts = accepts;
        self.fill(false)
    }

    /// Applies new interfaces and policies. If the policies have changed, their counters restart at 0.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn configure(&mut self, selection: WanSelection) -> io::Result<()> {
        let changed = selection.policies != self.selection.policies;
        self.selection = selection;
        self.fill(changed)
    }

    fn fill(&mut self, new_counters: bool) -> io::Result<()> {
        let counters = new_counters.then(|| self.selection.counters());
        let chains = self.selection.deciding(self.slot.mark(), self.accepts);
        self.table.refill(&chains, counters)
    }

    /// Reads the number of connections decided by each policy.
    pub(super) fn counts(&self) -> io::Result<BTreeMap<String, u64>> {
        self.table.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{in_namespace, nft};

    fn selection() -> WanSelection {
        let to = vec!["192.0.2.0/24".parse().unwrap()];
        let policies =
            vec![TrafficPolicy { to, ..TrafficPolicy::new("bypass", PolicyAction::Bypass) }];
        WanSelection { interfaces: vec!["wan0".to_owned(), "wan1".to_owned()], policies }
    }

    /// A table's chains as nft lists them, without name and owner.
    fn chains(listed: &str) -> Vec<&str> {
        let lines = listed.lines().skip(1).map(str::trim);
        lines.filter(|line| !line.is_empty() && *line != "flags owner").collect()
    }

    #[test]
    fn the_kernel_has_the_rules_that_we_print() {
        in_namespace(|| {
            let mut table = StackTable::claim(selection(), "skyhop-wan").unwrap();
            table.accept(true).unwrap();
            let name = table.slot().table_name();
            let Some(ours) = nft(&["list", "table", "inet", &name], "") else { return };
            let printed = selection().display("skyhop-wan", table.slot());
            nft(&["-f", "-"], &printed.replace(&name, "printed")).unwrap();
            let theirs = nft(&["list", "table", "inet", "printed"], "").unwrap();
            assert_eq!(chains(&ours), chains(&theirs));
            for part in ["masquerade", "ct direction reply", "iifname \"wan1\"", "priority srcnat"]
            {
                assert!(ours.contains(part), "{part} is not in {ours}");
            }
        });
    }

    #[test]
    fn a_table_that_accepts_nothing_keeps_what_it_has() {
        in_namespace(|| {
            let mut table = StackTable::claim(selection(), "skyhop-wan").unwrap();
            let Some(idle) = nft(&["list", "ruleset"], "") else { return };
            table.accept(true).unwrap();
            let open = nft(&["list", "ruleset"], "").unwrap();
            assert!(open.contains("192.0.2.0/24") && !idle.contains("192.0.2.0/24"));
            assert!(idle.contains("ct mark"), "packets of open connections return: {idle}");
            table.accept(false).unwrap();
            assert_eq!(nft(&["list", "ruleset"], "").unwrap(), idle);
            table.configure(WanSelection::default()).unwrap();
            assert!(!nft(&["list", "ruleset"], "").unwrap().contains("wan0"));
            drop(table);
            assert_eq!(nft(&["list", "ruleset"], "").unwrap(), "");
        });
    }
}
