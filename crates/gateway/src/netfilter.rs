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

use std::fmt;
use std::io;

use crate::netlink::{Batch, Socket};
use crate::prefix::Prefix;
use crate::rule::{Mark, Term, Version};

const FAMILY: libc::c_int = libc::NFPROTO_INET;
const HOOK_CHAIN: &str = "prerouting";
const INTERCEPT_CHAIN: &str = "intercept";
/// NFT_TABLE_F_OWNER.
const OWNED: u32 = 1 << 1;
/// NF_IP_PRI_MANGLE: before the routing decision and before NAT.
const PRIORITY: i32 = -150;
/// How many gateways may share a network namespace: the values of four bits of
/// the packet mark, less zero.
pub(crate) const SLOTS: u32 = 15;
const MARK_SHIFT: u32 = 20;

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

/// What is taken over, and by which listeners.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) interfaces: Vec<String>,
    pub(crate) bypass: Vec<Prefix>,
    /// The loopback ports of the listeners there are.
    pub(crate) listeners: Vec<(Version, u16)>,
}

impl Rules {
    /// The rules of the chain on the hook.
    fn hook(slot: Slot) -> Vec<Vec<Term>> {
        vec![
            vec![Term::Tcp, Term::OnlySyn, Term::Jump(INTERCEPT_CHAIN)],
            vec![Term::Tcp, Term::OfTransparentSocket, Term::SetMark(slot.mark()), Term::Accept],
        ]
    }

    /// The rules of the chain that takes new connections over.
    fn intercept(&self, slot: Slot) -> Vec<Vec<Term>> {
        let bypass = self.bypass.iter().map(|prefix| {
            vec![Term::Version(Version::of(prefix.address())), Term::To(*prefix), Term::Return]
        });
        let takeover = self.interfaces.iter().flat_map(|interface| {
            self.listeners.iter().map(move |(version, port)| {
                vec![
                    Term::From(interface.clone()),
                    Term::Version(*version),
                    Term::ToElsewhere,
                    Term::Tcp,
                    Term::Tproxy(*version, *port),
                    Term::SetMark(slot.mark()),
                    Term::Accept,
                ]
            })
        });
        bypass.chain(takeover).collect()
    }

    /// The whole table in nft syntax, as `nft -f` takes it.
    pub(crate) fn display(&self, slot: Slot) -> impl fmt::Display {
        let chain = |rules: Vec<Vec<Term>>| -> String {
            let line = |rule: &Vec<Term>| {
                let terms: Vec<String> = rule.iter().map(Term::to_string).collect();
                format!("\t\t{}\n", terms.join(" "))
            };
            rules.iter().map(line).collect()
        };
        format!(
            "table inet {} {{\n\tchain {INTERCEPT_CHAIN} {{\n{}\t}}\n\n\tchain {HOOK_CHAIN} {{\n\
             \t\ttype filter hook prerouting priority mangle; policy accept;\n{}\t}}\n}}",
            slot.table(),
            chain(self.intercept(slot)),
            chain(Self::hook(slot)),
        )
    }
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

    /// Starts taking over what `rules` say.
    pub(crate) fn start(&self, rules: &Rules) -> io::Result<()> {
        let mut batch = self.emptied();
        for rule in rules.intercept(self.slot) {
            add_rule(&mut batch, self.slot, INTERCEPT_CHAIN, &rule);
        }
        self.socket.execute(batch)
    }

    /// Stops taking over; connections that are ours remain so.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.socket.execute(self.emptied())
    }

    fn emptied(&self) -> Batch {
        let mut batch = Batch::new();
        batch.message(libc::NFT_MSG_DELRULE, FAMILY, 0, |rule| {
            rule.text(1, &self.slot.table());
            rule.text(2, INTERCEPT_CHAIN);
        });
        batch
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
    let socket = Socket::open()?;
    match socket.query(libc::NFT_MSG_GETTABLE, FAMILY, |table| table.text(1, &slot.table())) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EPERM))
}

fn creation(slot: Slot) -> Batch {
    const NEW: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut batch = Batch::new();
    batch.message(libc::NFT_MSG_NEWTABLE, FAMILY, NEW, |table| {
        table.text(1, &slot.table());
        table.number(2, OWNED);
    });
    batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |chain| {
        chain.text(1, &slot.table());
        chain.text(3, INTERCEPT_CHAIN);
    });
    batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |chain| {
        chain.text(1, &slot.table());
        chain.text(3, HOOK_CHAIN);
        chain.nest(4, |hook| {
            hook.number(1, libc::NF_INET_PRE_ROUTING as u32);
            hook.number(2, PRIORITY as u32);
        });
        chain.number(5, libc::NF_ACCEPT as u32);
        chain.text(7, "filter");
    });
    for rule in Rules::hook(slot) {
        add_rule(&mut batch, slot, HOOK_CHAIN, &rule);
    }
    batch
}

fn add_rule(batch: &mut Batch, slot: Slot, chain: &str, terms: &[Term]) {
    const APPEND: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
    batch.message(libc::NFT_MSG_NEWRULE, FAMILY, APPEND, |rule| {
        rule.text(1, &slot.table());
        rule.text(2, chain);
        rule.nest(4, |list| terms.iter().for_each(|term| term.encode(list)));
    });
}

#[cfg(test)]
mod tests;
