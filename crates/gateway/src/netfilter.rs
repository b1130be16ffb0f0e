//! An nftables table of our own that hands new TCP connections to our
//! listeners.
//!
//! The table belongs to the netlink socket that made it (`NFT_TABLE_F_OWNER`):
//! however the gateway ends, even by `kill -9`, the kernel removes it. Nothing
//! else in the machine's rule set is read or written.
//!
//! Two chains: `prerouting` is on the hook, `intercept` is where new connections
//! are taken over. Only `intercept` is emptied when interception stops: packets
//! of the connections that we hold must go on reaching their sockets, while new
//! connections pass the gateway by. Only SYNs are taken over: later packets of a
//! connection that passed by must never meet our listeners, which would reset it.
//!
//! Two more if the machine's own connections are taken over: `output` on the hook,
//! `own` where it is decided. A SYN of theirs is marked and so routed to loopback,
//! comes in again and is taken over there. What follows it must go the same way,
//! which the mark of the connection (conntrack) tells. What the gateway itself
//! sends bears another mark, [`PASSING`], and is left alone.

use std::fmt;
use std::io;

use crate::netlink::{Batch, Socket};
use crate::prefix::Prefix;
use crate::rule::{Mark, Term, Version};

pub(crate) const FAMILY: libc::c_int = libc::NFPROTO_INET;
const HOOK_CHAIN: &str = "prerouting";
const INTERCEPT_CHAIN: &str = "intercept";
const OUTPUT_CHAIN: &str = "output";
const OWN_CHAIN: &str = "own";
const LOOPBACK: &str = "lo";
/// NFT_TABLE_F_OWNER.
pub(crate) const OWNED: u32 = 1 << 1;
/// NF_IP_PRI_MANGLE: before the routing decision and before NAT.
pub(crate) const PRIORITY: i32 = -150;
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

    /// The terms that destinations of `version` must pass: of one of the lists.
    fn terms(&self, version: Version) -> Vec<Vec<Term>> {
        match self {
            Self::Nothing => vec![],
            Self::Everything => vec![vec![]],
            Self::Only(networks) => {
                let fitting =
                    networks.iter().filter(|network| Version::of(network.address()) == version);
                fitting.map(|network| vec![Term::To(*network)]).collect()
            }
        }
    }
}

/// What is taken over, and by which listeners.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) interfaces: Vec<String>,
    pub(crate) bypass: Vec<Prefix>,
    /// The loopback ports of the listeners there are.
    pub(crate) listeners: Vec<(Version, u16)>,
    /// Withhold SYNs and log them, instead of having them answered.
    pub(crate) deferred: bool,
    /// Take over the machine's own connections too.
    pub(crate) own_traffic: bool,
}

impl Rules {
    /// The rules of the chain on the hook.
    fn hook(slot: Slot) -> Vec<Vec<Term>> {
        vec![
            vec![Term::Tcp, Term::OnlySyn, Term::Jump(INTERCEPT_CHAIN)],
            vec![Term::Tcp, Term::OfTransparentSocket, Term::SetMark(slot.mark()), Term::Accept],
        ]
    }

    /// The rules of the hook's chain of what the machine itself sends. A SYN that
    /// passes by must not leave the mark of an earlier connection behind.
    fn output(slot: Slot) -> Vec<Vec<Term>> {
        vec![
            vec![Term::Tcp, Term::Marked(PASSING), Term::Accept],
            vec![
                Term::Tcp,
                Term::OnlySyn,
                Term::MarkConnection(slot.none()),
                Term::Goto(OWN_CHAIN),
            ],
            vec![
                Term::Tcp,
                Term::OfMarkedConnection(slot.mark()),
                Term::SetMark(slot.mark()),
                Term::Accept,
            ],
        ]
    }

    /// The rules of the chain that takes new connections over.
    fn intercept(&self, slot: Slot, scope: &Scope) -> Vec<Vec<Term>> {
        let mut rules = Vec::new();
        for &(version, port) in &self.listeners {
            let listener = tproxy(slot, version, port);
            let from_loopback = |mark, rest: &[Term]| {
                let source = [Term::From(LOOPBACK.to_owned()), Term::Marked(mark)];
                [&source, &[Term::Version(version), Term::Tcp][..], rest].concat()
            };
            if self.deferred {
                rules.push(from_loopback(slot.let_in(), &listener));
            }
            if self.own_traffic {
                rules.push(from_loopback(slot.round(), &self.takeover(slot, version, port)));
            }
        }
        rules.extend(self.bypassed());
        for interface in &self.interfaces {
            for &(version, port) in &self.listeners {
                for within in scope.terms(version) {
                    let source = [Term::From(interface.clone()), Term::Version(version)];
                    let takeover = self.takeover(slot, version, port);
                    let rest = [&[Term::ToElsewhere, Term::Tcp], takeover.as_slice()].concat();
                    rules.push([source.to_vec(), within, rest].concat());
                }
            }
        }
        rules
    }

    /// The rules of the chain that takes the machine's own connections over.
    /// Those to our clients' side have nothing to gain.
    fn own(&self, slot: Slot, scope: &Scope) -> Vec<Vec<Term>> {
        let nearby = |interface: &String| vec![Term::Through(interface.clone()), Term::Return];
        let mut rules: Vec<_> = self.interfaces.iter().map(nearby).collect();
        rules.extend(self.bypassed());
        for &(version, _) in &self.listeners {
            for within in scope.terms(version) {
                let mut rule = vec![Term::Version(version)];
                rule.extend(within);
                rule.extend([Term::ToElsewhere, Term::MarkConnection(slot.mark())]);
                rule.extend([Term::SetMark(slot.mark()), Term::Accept]);
                rules.push(rule);
            }
        }
        rules
    }

    fn bypassed(&self) -> impl Iterator<Item = Vec<Term>> {
        self.bypass.iter().map(|prefix| {
            vec![Term::Version(Version::of(prefix.address())), Term::To(*prefix), Term::Return]
        })
    }

    /// What is done to a SYN that is to be taken over.
    fn takeover(&self, slot: Slot, version: Version, port: u16) -> Vec<Term> {
        if self.deferred {
            vec![Term::Log(slot.log_group()), Term::Drop]
        } else {
            tproxy(slot, version, port).to_vec()
        }
    }

    /// The whole table in nft syntax, as `nft -f` takes it.
    pub(crate) fn display(&self, slot: Slot, scope: &Scope) -> impl fmt::Display {
        let mut chains = format!(
            "\tchain {INTERCEPT_CHAIN} {{\n{}\t}}\n\n\tchain {HOOK_CHAIN} {{\n\
             \t\ttype filter hook prerouting priority mangle; policy accept;\n{}\t}}\n",
            display_rules(&self.intercept(slot, scope)),
            display_rules(&Self::hook(slot)),
        );
        if self.own_traffic {
            chains += &format!(
                "\n\tchain {OWN_CHAIN} {{\n{}\t}}\n\n\tchain {OUTPUT_CHAIN} {{\n\
                 \t\ttype route hook output priority mangle; policy accept;\n{}\t}}\n",
                display_rules(&self.own(slot, scope)),
                display_rules(&Self::output(slot)),
            );
        }
        format!("table inet {} {{\n{chains}}}", slot.table())
    }
}

/// Rules in nft syntax, a line for each.
pub(crate) fn display_rules(rules: &[Vec<Term>]) -> String {
    let line = |rule: &Vec<Term>| {
        let terms: Vec<String> = rule.iter().map(Term::to_string).collect();
        format!("\t\t{}\n", terms.join(" "))
    };
    rules.iter().map(line).collect()
}

/// Hands a SYN to the listener.
fn tproxy(slot: Slot, version: Version, port: u16) -> [Term; 3] {
    [Term::Tproxy(version, port), Term::SetMark(slot.mark()), Term::Accept]
}

/// Our table in the kernel. Gone when dropped.
pub(crate) struct Table {
    socket: Socket,
    slot: Slot,
}

impl Table {
    /// Makes a table in the first free slot of this network namespace; it takes
    /// nothing over yet.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn claim() -> io::Result<Self> {
        let socket = Socket::open()?;
        let mut refusal = io::Error::from(io::ErrorKind::AddrInUse);
        for slot in (0..SLOTS).map(Slot) {
            match socket.execute(creation(slot)) {
                Ok(()) => return Ok(Self { socket, slot }),
                // Somebody else's table: EEXIST, or EPERM if it has an owner,
                // which is also what a caller without privilege gets each time.
                Err(error) if taken(&error) => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Adds the chains for the machine's own connections.
    pub(crate) fn add_own(&self) -> io::Result<()> {
        let (mut batch, table) = (Batch::new(), self.slot.table());
        add_chain(&mut batch, self.slot, OWN_CHAIN);
        let hook = Hook { kind: "route", number: libc::NF_INET_LOCAL_OUT };
        add_base_chain(&mut batch, self.slot, OUTPUT_CHAIN, &hook);
        for rule in Rules::output(self.slot) {
            add_rule(&mut batch, &table, OUTPUT_CHAIN, &rule);
        }
        self.socket.execute(batch)
    }

    /// Takes over what `rules` say of `scope`; connections that are ours already
    /// remain so.
    pub(crate) fn take_over(&self, rules: &Rules, scope: &Scope) -> io::Result<()> {
        let mut batch = Batch::new();
        self.refill(&mut batch, INTERCEPT_CHAIN, &rules.intercept(self.slot, scope), scope);
        if rules.own_traffic {
            self.refill(&mut batch, OWN_CHAIN, &rules.own(self.slot, scope), scope);
        }
        self.socket.execute(batch)
    }

    fn refill(&self, batch: &mut Batch, chain: &str, rules: &[Vec<Term>], scope: &Scope) {
        batch.message(libc::NFT_MSG_DELRULE, FAMILY, 0, |rule| {
            rule.text(1, &self.slot.table());
            rule.text(2, chain);
        });
        if *scope != Scope::Nothing {
            let table = self.slot.table();
            rules.iter().for_each(|rule| add_rule(batch, &table, chain, rule));
        }
    }
}

/// Closing the socket has the same effect, but not while a child process that is
/// about to start another program still has a copy of it.
impl Drop for Table {
    fn drop(&mut self) {
        let mut batch = Batch::new();
        let name = self.slot.table();
        batch.message(libc::NFT_MSG_DELTABLE, FAMILY, 0, |table| table.text(1, &name));
        if let Err(error) = self.socket.execute(batch) {
            tracing::debug!("the table {name} goes with its socket: {error}");
        }
    }
}

/// Whether the gateway that had `slot` is alive: its table is there.
pub(crate) fn is_claimed(slot: Slot) -> io::Result<bool> {
    has_table(&slot.table())
}

/// Whether there is a table of this name.
pub(crate) fn has_table(name: &str) -> io::Result<bool> {
    let socket = Socket::open()?;
    match socket.query(libc::NFT_MSG_GETTABLE, FAMILY, |table| table.text(1, name)) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether somebody else has the table already, or we may make none.
pub(crate) fn taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EPERM))
}

/// Chains and tables that are there already are somebody else's.
const NEW: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

fn creation(slot: Slot) -> Batch {
    let mut batch = Batch::new();
    batch.message(libc::NFT_MSG_NEWTABLE, FAMILY, NEW, |table| {
        table.text(1, &slot.table());
        table.number(2, OWNED);
    });
    add_chain(&mut batch, slot, INTERCEPT_CHAIN);
    let hook = Hook { kind: "filter", number: libc::NF_INET_PRE_ROUTING };
    add_base_chain(&mut batch, slot, HOOK_CHAIN, &hook);
    for rule in Rules::hook(slot) {
        add_rule(&mut batch, &slot.table(), HOOK_CHAIN, &rule);
    }
    batch
}

/// Where a chain is called, and what it is for.
struct Hook {
    kind: &'static str,
    number: libc::c_int,
}

fn add_chain(batch: &mut Batch, slot: Slot, name: &str) {
    batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |chain| {
        chain.text(1, &slot.table());
        chain.text(3, name);
    });
}

fn add_base_chain(batch: &mut Batch, slot: Slot, name: &str, hook: &Hook) {
    batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |chain| {
        chain.text(1, &slot.table());
        chain.text(3, name);
        chain.nest(4, |attributes| {
            attributes.number(1, hook.number as u32);
            attributes.number(2, PRIORITY as u32);
        });
        chain.number(5, libc::NF_ACCEPT as u32);
        chain.text(7, hook.kind);
    });
}

/// Adds a rule at the end of a chain.
pub(crate) fn add_rule(batch: &mut Batch, table: &str, chain: &str, terms: &[Term]) {
    const APPEND: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
    batch.message(libc::NFT_MSG_NEWRULE, FAMILY, APPEND, |rule| {
        rule.text(1, table);
        rule.text(2, chain);
        rule.nest(4, |list| terms.iter().for_each(|term| term.encode(list)));
    });
}

#[cfg(test)]
mod tests;
