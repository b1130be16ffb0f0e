//! A table of our own in nftables: chains of rules, and a counter for each policy.
//!
//! The table belongs to the netlink socket that made it (`NFT_TABLE_F_OWNER`):
//! however the gateway ends, even by `kill -9`, the kernel removes it. Nothing
//! else in the machine's rule set is read or written.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use crate::netlink::{Batch, Socket};
use crate::rule::{COUNTER, Term};

const FAMILY: libc::c_int = libc::NFPROTO_INET;
/// NFT_TABLE_F_OWNER.
const OWNED: u32 = 1 << 1;
/// Messages about objects (`linux/netfilter/nf_tables.h`).
const NEW_OBJECT: libc::c_int = 18;
const GET_OBJECT: libc::c_int = 19;
const DELETE_OBJECT: libc::c_int = 20;
/// Chains and tables that are there already are somebody else's.
const NEW: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

/// A rule: tests, and what is done with a packet that passes them.
pub(crate) type Rule = Vec<Term>;

/// A chain of rules.
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    /// Where packets come from; without it, other chains.
    pub(crate) hook: Option<Hook>,
    pub(crate) rules: Vec<Rule>,
}

impl Chain {
    /// One that other chains use.
    pub(crate) fn plain(name: &'static str, rules: Vec<Rule>) -> Self {
        Self { name, hook: None, rules }
    }
}

/// Where the kernel calls a chain, and what it is for.
#[derive(Clone, Copy)]
pub(crate) struct Hook {
    kind: &'static str,
    number: libc::c_int,
    /// Relative to NF_IP_PRI_MANGLE: before the routing decision and before NAT.
    behind_mangle: i32,
}

/// NF_IP_PRI_MANGLE.
const MANGLE: i32 = -150;

impl Hook {
    /// For what comes in.
    pub(crate) const fn prerouting(behind_mangle: i32) -> Self {
        Self { kind: "filter", number: libc::NF_INET_PRE_ROUTING, behind_mangle }
    }

    /// For what this machine itself sends, which is routed again if its mark changes.
    pub(crate) const fn output(behind_mangle: i32) -> Self {
        Self { kind: "route", number: libc::NF_INET_LOCAL_OUT, behind_mangle }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.number == libc::NF_INET_LOCAL_OUT { "output" } else { "prerouting" };
        write!(f, "type {} hook {name} priority mangle", self.kind)?;
        match self.behind_mangle {
            0 => {}
            behind => write!(f, " + {behind}")?,
        }
        f.write_str("; policy accept;")
    }
}

/// A whole table in nft syntax, as `nft -f` takes it.
pub(crate) fn display(table: &str, counters: &[String], chains: &[Chain]) -> String {
    let counter = |name: &String| format!("\tcounter {name} {{\n\t\tpackets 0 bytes 0\n\t}}\n");
    let mut parts: Vec<String> = counters.iter().map(counter).collect();
    parts.extend(chains.iter().map(|chain| {
        let hook = chain.hook.map_or(String::new(), |hook| format!("\t\t{hook}\n"));
        format!("\tchain {} {{\n{hook}{}\t}}\n", chain.name, display_rules(&chain.rules))
    }));
    format!("table inet {table} {{\n{}}}", parts.join("\n"))
}

/// Rules in nft syntax, a line for each.
fn display_rules(rules: &[Rule]) -> String {
    let line = |rule: &Rule| {
        let terms: Vec<String> = rule.iter().map(Term::to_string).collect();
        format!("\t\t{}\n", terms.join(" "))
    };
    rules.iter().map(line).collect()
}

/// A table in the kernel. Gone when dropped.
pub(crate) struct NftTable {
    socket: Socket,
    name: String,
    /// Those of the last refill.
    counters: Vec<String>,
}

impl NftTable {
    /// Makes a table with the first of these names that is free; chains of the hooks
    /// have their rules, others have none yet. Which it was.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn claim<P: Copy>(
        places: impl Iterator<Item = P>,
        name: impl Fn(P) -> String,
        chains: impl Fn(P) -> Vec<Chain>,
    ) -> io::Result<(P, Self)> {
        let socket = Socket::open()?;
        let mut refusal = io::Error::from(io::ErrorKind::AddrInUse);
        for place in places {
            let name = name(place);
            match socket.execute(creation(&name, &chains(place))) {
                Ok(()) => return Ok((place, Self { socket, name, counters: vec![] })),
                // Somebody else's table: EEXIST, or EPERM if it has an owner,
                // which is also what a caller without privilege gets each time.
                Err(error) if is_taken(&error) => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    /// Adds further chains.
    pub(crate) fn add(&self, chains: &[Chain]) -> io::Result<()> {
        let mut batch = Batch::new();
        add_chains(&mut batch, &self.name, chains);
        self.socket.execute(batch)
    }

    /// Adds a counter that no refill takes away.
    pub(crate) fn add_counter(&self, name: &str) -> io::Result<()> {
        let mut batch = Batch::new();
        about_counter(&mut batch, NEW_OBJECT, NEW, &self.name, name);
        self.socket.execute(batch)
    }

    /// Gives the chains that are not on hooks these rules, all at one moment; with
    /// `counters`, new ones of these names instead of those of the last refill.
    pub(crate) fn refill(
        &mut self,
        chains: &[Chain],
        counters: Option<Vec<String>>,
    ) -> io::Result<()> {
        let mut batch = Batch::new();
        let plain = || chains.iter().filter(|chain| chain.hook.is_none());
        for chain in plain() {
            batch.message(libc::NFT_MSG_DELRULE, FAMILY, 0, |rule| {
                rule.text(1, &self.name);
                rule.text(2, chain.name);
            });
        }
        if let Some(counters) = &counters {
            for counter in &self.counters {
                about_counter(&mut batch, DELETE_OBJECT, 0, &self.name, counter);
            }
            for counter in counters {
                about_counter(&mut batch, NEW_OBJECT, NEW, &self.name, counter);
            }
        }
        for chain in plain() {
            chain.rules.iter().for_each(|r| add_rule(&mut batch, &self.name, chain.name, r));
        }
        self.socket.execute(batch)?;
        if let Some(counters) = counters {
            self.counters = counters;
        }
        Ok(())
    }

    /// Removes it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let mut batch = Batch::new();
        batch.message(libc::NFT_MSG_DELTABLE, FAMILY, 0, |table| table.text(1, &self.name));
        self.socket.execute(batch)
    }

    /// How many packets each counter has counted.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn counts(&self) -> io::Result<BTreeMap<String, u64>> {
        let found = self.socket.objects(GET_OBJECT, FAMILY, |object| {
            object.text(1, &self.name);
            object.number(3, COUNTER);
        })?;
        Ok(found.into_iter().map(|object| (object.name.clone(), object.packets())).collect())
    }
}

/// Closing the socket has the same effect, but not while a child process that is
/// about to start another program still has a copy of it.
impl Drop for NftTable {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::debug!("the table {} goes with its socket: {error}", self.name);
        }
    }
}

/// Whether there is a table of this name.
pub(crate) fn is_there(name: &str) -> io::Result<bool> {
    let socket = Socket::open()?;
    match socket.query(libc::NFT_MSG_GETTABLE, FAMILY, |table| table.text(1, name)) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether somebody else has the table already, or we may make none.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EPERM))
}

fn creation(table: &str, chains: &[Chain]) -> Batch {
    let mut batch = Batch::new();
    batch.message(libc::NFT_MSG_NEWTABLE, FAMILY, NEW, |message| {
        message.text(1, table);
        message.number(2, OWNED);
    });
    add_chains(&mut batch, table, chains);
    batch
}

/// Adds the chains, those that others go on to first; and the rules of hooks.
fn add_chains(batch: &mut Batch, table: &str, chains: &[Chain]) {
    for chain in chains {
        batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |message| {
            message.text(1, table);
            message.text(3, chain.name);
            let Some(hook) = chain.hook else { return };
            message.nest(4, |attributes| {
                attributes.number(1, hook.number as u32);
                attributes.number(2, (MANGLE + hook.behind_mangle) as u32);
            });
            message.number(5, libc::NF_ACCEPT as u32);
            message.text(7, hook.kind);
        });
    }
    for chain in chains.iter().filter(|chain| chain.hook.is_some()) {
        chain.rules.iter().for_each(|rule| add_rule(batch, table, chain.name, rule));
    }
}

fn about_counter(batch: &mut Batch, kind: libc::c_int, flags: i32, table: &str, name: &str) {
    batch.message(kind, FAMILY, flags, |object| {
        object.text(1, table);
        object.text(2, name);
        object.number(3, COUNTER);
        object.nest(4, |_| {});
    });
}

/// Adds a rule at the end of a chain.
fn add_rule(batch: &mut Batch, table: &str, chain: &str, terms: &[Term]) {
    const APPEND: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
    batch.message(libc::NFT_MSG_NEWRULE, FAMILY, APPEND, |rule| {
        rule.text(1, table);
        rule.text(2, chain);
        rule.nest(4, |list| terms.iter().for_each(|term| term.encode(list)));
    });
}
