//! An nftables table of our own that hands new TCP connections to our
//! listeners.
//!
//! The chain `prerouting` is on the hook. It hands SYNs to `intercept`, which knows
//! where clients are, `policies`, and `takeover`.
//! All but the first are emptied when interception stops: packets
//! of the connections that we hold must go on reaching their sockets, while new
//! connections pass the gateway by. Only SYNs are taken over: later packets of a
//! connection that passed by must never meet our listeners, which would reset it.
//!
//! Four more if the machine's own connections are taken over: `output` on the hook,
//! `own`, `own-policies` and `own-takeover`. A SYN of theirs is marked and so routed to
//! loopback, comes in again and is taken over there. What follows it must go the same
//! way, which the mark of the connection (conntrack) tells. What the gateway itself
//! sends bears another mark, [`PASSING`], and is left alone.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use crate::class::TCP;
use crate::nft_table::{self, Chain, Hook, NftTable, Rule};
use crate::policy::{self, Action, Policy, Seen};
use crate::prefix::Prefix;
use crate::rule::{Mark, Term, Version};

const HOOK_CHAIN: &str = "prerouting";
const INTERCEPT_CHAIN: &str = "intercept";
const POLICY_CHAIN: &str = "policies";
const TAKEOVER_CHAIN: &str = "takeover";
const OUTPUT_CHAIN: &str = "output";
const OWN_CHAIN: &str = "own";
const OWN_POLICY_CHAIN: &str = "own-policies";
const OWN_TAKEOVER_CHAIN: &str = "own-takeover";
/// How many chains decide, besides those of the machine's own connections.
const WITHOUT_OWN: usize = 3;
const LOOPBACK: &str = "lo";
/// How many gateways may share a network namespace: the values of four bits of
/// the packet mark, less zero.
pub(crate) const SLOTS: u32 = 15;
const MARK_SHIFT: u32 = 20;
/// What gateways let pass: connections of their own, and SYNs that they let in.
pub(crate) const PASSING: Mark = Mark { value: 1 << 24, mask: 1 << 24 };
/// The log group of the first slot.
const FIRST_GROUP: u16 = 5900;

/// One of the places for a gateway in a network namespace: its table's name,
/// packet mark and routing table follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The name of the nftables table.
    pub(crate) fn table(self) -> String {
        format!("skyhop-{}", self.0)
    }

    /// The mark of packets that are ours to receive.
    pub(crate) fn mark(self) -> Mark {
        Mark { value: (self.0 + 1) << MARK_SHIFT, mask: 0xf << MARK_SHIFT }
    }
}

impl Slot {
    /// The mark of SYNs that were withheld and are let in now.
    pub(crate) fn let_in(self) -> Mark {
        let mark = self.mark();
        Mark { value: mark.value | PASSING.value, mask: mark.mask | PASSING.mask }
    }

    /// The mark of our own machine's SYNs on their way round.
    fn round(self) -> Mark {
        Mark { value: self.mark().value, ..self.let_in() }
    }

    /// The mark of no slot.
    fn none(self) -> Mark {
        Mark { value: 0, ..self.mark() }
    }

    /// Where withheld SYNs are logged to.
    pub(crate) fn log_group(self) -> u16 {
        FIRST_GROUP + self.0 as u16
    }
}

/// Which destinations of new connections are taken over, as far as the
/// configuration allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    Nothing,
    Everything,
    /// These; at least one.
    Only(Vec<Prefix>),
}

impl Scope {
    /// These networks, or nothing if there are none.
    pub(crate) fn only(networks: Vec<Prefix>) -> Self {
        if networks.is_empty() { Self::Nothing } else { Self::Only(networks) }
    }

    /// The terms that destinations must pass: of one of the lists.
    fn terms(&self) -> Vec<Rule> {
        match self {
            Self::Nothing => vec![],
            Self::Everything => vec![vec![]],
            Self::Only(networks) => networks.iter().map(to).collect(),
        }
    }
}

/// The terms of a destination.
pub(crate) fn to(network: &Prefix) -> Rule {
    vec![Term::Version(Version::of(network.address())), Term::To(*network)]
}

/// What is taken over, and by which listeners.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) interfaces: Vec<String>,
    pub(crate) policies: Vec<Policy>,
    /// Destinations whose connections pass by whatever policies say.
    pub(crate) refused: Vec<SocketAddr>,
    /// The loopback ports of the listeners there are.
    pub(crate) listeners: Vec<(Version, u16)>,
    /// Withhold SYNs and log them, instead of having them answered.
    pub(crate) deferred: bool,
    /// Take over the machine's own connections too.
    pub(crate) own_traffic: bool,
}

impl Rules {
    /// The chains in which it is decided what is taken over.
    fn deciding(&self, slot: Slot, scope: &Scope) -> Vec<Chain> {
        let mut chains = vec![
            Chain::plain(TAKEOVER_CHAIN, self.takeover(slot)),
            Chain::plain(POLICY_CHAIN, self.policy(TAKEOVER_CHAIN)),
            Chain::plain(INTERCEPT_CHAIN, self.intercept(slot, scope)),
        ];
        if self.own_traffic {
            chains.extend([
                Chain::plain(OWN_TAKEOVER_CHAIN, self.own_takeover(slot)),
                Chain::plain(OWN_POLICY_CHAIN, self.policy(OWN_TAKEOVER_CHAIN)),
                Chain::plain(OWN_CHAIN, self.own(scope)),
            ]);
        }
        if *scope == Scope::Nothing {
            chains.iter_mut().for_each(|chain| chain.rules.clear());
        }
        chains
    }

    /// Where a new connection comes from, and what has been decided about already.
    fn intercept(&self, slot: Slot, scope: &Scope) -> Vec<Rule> {
        let from = |interface: &str| Term::From(interface.to_owned());
        let mut rules = Vec::new();
        if self.deferred {
            for &(version, port) in &self.listeners {
                let let_in = [from(LOOPBACK), Term::Marked(slot.let_in())];
                let listener = tproxy(slot, version, port);
                rules.push([&let_in[..], &[Term::Version(version), Term::Tcp], &listener].concat());
            }
        }
        if self.own_traffic {
            let round = [from(LOOPBACK), Term::Marked(slot.round()), Term::Goto(TAKEOVER_CHAIN)];
            rules.push(round.to_vec());
        }
        for interface in &self.interfaces {
            for within in scope.terms() {
                let decide = [Term::ToElsewhere, Term::Tcp, Term::Goto(POLICY_CHAIN)];
                rules.push([&[from(interface)], &within[..], &decide].concat());
            }
        }
        rules
    }

    /// The machine's own new connections. Those to our clients' side have nothing
    /// to gain.
    fn own(&self, scope: &Scope) -> Vec<Rule> {
        let nearby = |interface: &String| vec![Term::Through(interface.clone()), Term::Return];
        let decide = [Term::ToElsewhere, Term::Goto(OWN_POLICY_CHAIN)];
        let wanted = scope.terms().into_iter().map(|within| [&within[..], &decide].concat());
        self.interfaces.iter().map(nearby).chain(wanted).collect()
    }

    /// What is to be split goes on to `takeover`.
    fn policy(&self, takeover: &'static str) -> Vec<Rule> {
        let usual = vec![Term::Goto(takeover)];
        policy::chain(&self.policies, Seen::Connections, true, usual, |action| match action {
            Action::Split => vec![Term::Goto(takeover)],
            Action::Tunnel | Action::Bypass => vec![Term::Return],
        })
    }

    /// What is done to a SYN that is to be taken over.
    fn takeover(&self, slot: Slot) -> Vec<Rule> {
        let listener = |&(version, port): &(Version, u16)| {
            let end = if self.deferred {
                vec![Term::Log(slot.log_group()), Term::Drop]
            } else {
                tproxy(slot, version, port).to_vec()
            };
            [&[Term::Version(version), Term::Tcp], &end[..]].concat()
        };
        self.passing().chain(self.listeners.iter().map(listener)).collect()
    }

    /// What passes by though it is to be split.
    fn passing(&self) -> impl Iterator<Item = Rule> {
        self.refused.iter().map(|destination| {
            let port = Term::ToPorts(TCP, destination.port(), destination.port());
            [to(&Prefix::host(destination.ip())), vec![port, Term::Return]].concat()
        })
    }

    /// The same, of our own machine: it is sent round.
    fn own_takeover(&self, slot: Slot) -> Vec<Rule> {
        let round = |&(version, _): &(Version, u16)| {
            let mark = [Term::MarkConnection(slot.mark()), Term::SetMark(slot.mark())];
            [&[Term::Version(version)], &mark[..], &[Term::Accept]].concat()
        };
        self.passing().chain(self.listeners.iter().map(round)).collect()
    }

    fn counters(&self) -> Vec<String> {
        policy::counters(&self.policies, Seen::Connections)
    }

    /// The whole table in nft syntax, as `nft -f` takes it.
    pub(crate) fn display(&self, slot: Slot, scope: &Scope) -> String {
        let mut chains = self.deciding(slot, scope);
        let own = chains.split_off(WITHOUT_OWN);
        chains.push(hook(slot));
        chains.extend(own);
        chains.extend(self.own_traffic.then(|| output(slot)));
        nft_table::display(&slot.table(), &self.counters(), &chains)
    }
}

/// Hands a SYN to the listener.
fn tproxy(slot: Slot, version: Version, port: u16) -> [Term; 3] {
    [Term::Tproxy(version, port), Term::SetMark(slot.mark()), Term::Accept]
}

/// The chain of what comes in.
fn hook(slot: Slot) -> Chain {
    let rules = vec![
        vec![Term::Tcp, Term::OnlySyn, Term::Jump(INTERCEPT_CHAIN)],
        vec![Term::Tcp, Term::OfTransparentSocket, Term::SetMark(slot.mark()), Term::Accept],
    ];
    Chain { name: HOOK_CHAIN, hook: Some(Hook::prerouting(0)), rules }
}

/// The chain of what the machine itself sends. A SYN that passes by must not leave
/// the mark of an earlier connection behind.
fn output(slot: Slot) -> Chain {
    let rules = vec![
        vec![Term::Tcp, Term::Marked(PASSING), Term::Accept],
        vec![Term::Tcp, Term::OnlySyn, Term::MarkConnection(slot.none()), Term::Goto(OWN_CHAIN)],
        vec![
            Term::Tcp,
            Term::OfMarkedConnection(slot.mark()),
            Term::SetMark(slot.mark()),
            Term::Accept,
        ],
    ];
    Chain { name: OUTPUT_CHAIN, hook: Some(Hook::output(0)), rules }
}

/// Chains without rules yet.
fn empty(names: [&'static str; 3]) -> Vec<Chain> {
    names.map(|name| Chain::plain(name, vec![])).into()
}

/// Our table in the kernel. Gone when dropped.
pub(crate) struct Table {
    table: NftTable,
    slot: Slot,
    /// Those that are counted; none yet.
    policies: Option<Vec<Policy>>,
}

impl Table {
    /// Makes a table in the first free slot of this network namespace; it takes
    /// nothing over yet.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn claim() -> io::Result<Self> {
        let chains = |slot| {
            let mut chains = empty([TAKEOVER_CHAIN, POLICY_CHAIN, INTERCEPT_CHAIN]);
            chains.push(hook(slot));
            chains
        };
        let (slot, table) = NftTable::claim((0..SLOTS).map(Slot), Slot::table, chains)?;
        Ok(Self { table, slot, policies: None })
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Adds the chains for the machine's own connections.
    pub(crate) fn add_own(&self) -> io::Result<()> {
        let mut chains = empty([OWN_TAKEOVER_CHAIN, OWN_POLICY_CHAIN, OWN_CHAIN]);
        chains.push(output(self.slot));
        self.table.add(&chains)
    }

    /// Takes over what `rules` say of `scope`; connections that are ours already
    /// remain so. Other policies than before count from zero.
    pub(crate) fn take_over(&mut self, rules: &Rules, scope: &Scope) -> io::Result<()> {
        let changed = self.policies.as_ref() != Some(&rules.policies);
        let counters = changed.then(|| rules.counters());
        self.table.refill(&rules.deciding(self.slot, scope), counters)?;
        if changed {
            self.policies = Some(rules.policies.clone());
        }
        Ok(())
    }

    /// How many connections each policy has decided about.
    pub(crate) fn counts(&self) -> io::Result<BTreeMap<String, u64>> {
        self.table.counts()
    }
}

/// Whether the gateway that had `slot` is alive: its table is there.
pub(crate) fn is_claimed(slot: Slot) -> io::Result<bool> {
    nft_table::is_there(&slot.table())
}

#[cfg(test)]
mod tests;
