//! An nftables table of the gateway: chains of rules, and a counter for each policy.
//!
//! The table belongs to the netlink socket that created it (`NFT_TABLE_F_OWNER`): however the
//! gateway ends, even by `kill -9`, the kernel removes it. Nothing else in the machine's rule set
//! is changed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use os::netlink::netfilter::{MessageBatch, NetfilterSocket};
use pep::traffic::{PolicySubject, TrafficPolicy};

use crate::network::namespace_slot::NamespaceSlot;
use crate::network::nft::policy;
use crate::network::nft::rule::{COUNTER, Term};

pub(crate) const FAMILY: libc::c_int = libc::NFPROTO_INET;
/// Table flag NFT_TABLE_F_OWNER: the table belongs to its netlink socket.
const OWNED: u32 = 1 << 1;
/// Attribute NFTA_TABLE_USERDATA.
const USER_DATA: u16 = 6;
/// Comment of a table, before the number of the gateway's process.
const PROCESS: &str = "process ";
/// Messages about named objects, here counters (`linux/netfilter/nf_tables.h`).
const NEW_OBJECT: libc::c_int = 18;
const GET_OBJECT: libc::c_int = 19;
const DELETE_OBJECT: libc::c_int = 20;
/// Creates, and fails if the object exists, because then it belongs to another program.
const NEW: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

/// A rule: matches, then actions for the packets that match.
pub(crate) type NftRule = Vec<Term>;

/// A chain of rules, on a hook or called by other chains.
pub(crate) struct NftChain {
    pub(crate) name: &'static str,
    /// The hook that calls it; `None` if other chains do.
    pub(crate) hook: Option<Hook>,
    pub(crate) rules: Vec<NftRule>,
}

impl NftChain {
    /// Creates a chain that is not on a hook, for jumps from other chains.
    pub(crate) fn plain(name: &'static str, rules: Vec<NftRule>) -> Self {
        Self { name, hook: None, rules }
    }

    /// Creates a chain that the kernel enters first.
    pub(crate) fn on_hook(name: &'static str, hook: Hook, rules: Vec<NftRule>) -> Self {
        Self { name, hook: Some(hook), rules }
    }
}

/// Type, hook and priority of a base chain.
///
/// Chains that decide where packets go run after the operator's translation of destinations (DNAT and
/// redirects, NF_IP_PRI_NAT_DST) and before the routing decision. So a captive portal or a mail relay keeps
/// working, and rules see the destination that the operator chose. The operator's marks (NF_IP_PRI_MANGLE)
/// are set by then, too.
#[derive(Clone, Copy)]
pub(crate) struct Hook {
    kind: &'static str,
    number: libc::c_int,
    /// The named priority that `behind` is relative to.
    base: BasePriority,
    behind: i32,
}

/// A priority that nft has a name for.
#[derive(Clone, Copy)]
enum BasePriority {
    Mangle,
    /// nft knows this name on the hook `prerouting` only.
    TranslatedDestination,
}

impl BasePriority {
    const fn priority(self) -> i32 {
        match self {
            Self::Mangle => libc::NF_IP_PRI_MANGLE,
            Self::TranslatedDestination => libc::NF_IP_PRI_NAT_DST,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::TranslatedDestination => "dstnat",
        }
    }
}

/// Priority of our chains, relative to the translation of destinations.
const BEHIND_TRANSLATION: i32 = 10;

impl Hook {
    /// Hook of incoming packets, after the translation of destinations. `behind` orders our own chains.
    pub(crate) const fn prerouting(behind: i32) -> Self {
        let base = BasePriority::TranslatedDestination;
        let behind = BEHIND_TRANSLATION + behind;
        Self { kind: "filter", number: libc::NF_INET_PRE_ROUTING, base, behind }
    }

    /// Hook for the translation of source addresses. `behind`: relative to the usual priority (NF_IP_PRI_NAT_SRC).
    /// The first chain that translates a connection decides.
    pub(crate) const fn source_nat(behind: i32) -> Self {
        let base = BasePriority::Mangle;
        let behind = libc::NF_IP_PRI_NAT_SRC - base.priority() + behind;
        Self { kind: "nat", number: libc::NF_INET_POST_ROUTING, base, behind }
    }

    /// Hook of locally sent packets, after the translation of destinations. Packets whose mark changes
    /// here are routed again.
    pub(crate) const fn output(behind: i32) -> Self {
        // nft has no name for the translation of destinations on this hook.
        let base = BasePriority::Mangle;
        let translated = libc::NF_IP_PRI_NAT_DST - base.priority();
        let behind = translated + BEHIND_TRANSLATION + behind;
        Self { kind: "route", number: libc::NF_INET_LOCAL_OUT, base, behind }
    }

    /// Hook of locally sent packets, without influence on their route.
    pub(crate) const fn sent(behind_mangle: i32) -> Self {
        Self {
            kind: "filter",
            number: libc::NF_INET_LOCAL_OUT,
            base: BasePriority::Mangle,
            behind: behind_mangle,
        }
    }

    const fn priority(self) -> i32 {
        self.base.priority() + self.behind
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.number {
            libc::NF_INET_LOCAL_OUT => "output",
            libc::NF_INET_POST_ROUTING => "postrouting",
            _ => "prerouting",
        };
        write!(f, "type {} hook {name} priority {}", self.kind, self.base.name())?;
        match self.behind {
            0 => {}
            behind => write!(f, " + {behind}")?,
        }
        f.write_str("; policy accept;")
    }
}

/// Formats a whole table in nft syntax, as `nft -f` accepts it.
pub(crate) fn display(table: &str, counters: &[String], chains: &[NftChain]) -> String {
    let counter = |name: &String| format!("\tcounter {name} {{\n\t\tpackets 0 bytes 0\n\t}}\n");
    let mut parts: Vec<String> = counters.iter().map(counter).collect();
    parts.extend(chains.iter().map(|chain| {
        let hook = chain.hook.map_or(String::new(), |hook| format!("\t\t{hook}\n"));
        format!("\tchain {} {{\n{hook}{}\t}}\n", chain.name, display_rules(&chain.rules))
    }));
    format!("table inet {table} {{\n{}}}", parts.join("\n"))
}

/// Formats rules in nft syntax, one per line.
fn display_rules(rules: &[NftRule]) -> String {
    let line = |rule: &NftRule| {
        let terms: Vec<String> = rule.iter().map(Term::to_string).collect();
        format!("\t\t{}\n", terms.join(" "))
    };
    rules.iter().map(line).collect()
}

/// A table in the kernel. Removed when dropped.
pub(crate) struct NftTable {
    socket: NetfilterSocket,
    name: String,
    /// The policies of the last refill.
    policies: Vec<TrafficPolicy>,
    /// Names of their counters.
    counters: Vec<String>,
}

impl NftTable {
    /// Creates a table in the first of `slots` whose name is free, and returns that slot. Chains on
    /// hooks get their rules; the others stay empty.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn claim<S: NamespaceSlot>(
        slots: impl Iterator<Item = S>,
        chains: impl Fn(S) -> Vec<NftChain>,
    ) -> io::Result<(S, Self)> {
        let socket = NetfilterSocket::open()?;
        let mut refusal = io::Error::from(io::ErrorKind::AddrInUse);
        for slot in slots {
            let name = slot.table_name();
            match socket.execute(creation(&name, &chains(slot))) {
                Ok(()) => {
                    return Ok((slot, Self { socket, name, policies: vec![], counters: vec![] }));
                }
                // Another program's table: EEXIST, or EPERM if it has an owner. Without privilege,
                // every name yields EPERM.
                Err(error) if is_taken(&error) => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    /// Adds chains, callees first, with the rules of those on hooks.
    pub(crate) fn add(&self, chains: &[NftChain]) -> io::Result<()> {
        let mut batch = MessageBatch::new();
        add_chains(&mut batch, &self.name, chains);
        self.socket.execute(batch)
    }

    /// Removes a chain on a hook, with its rules.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn remove_chain(&self, name: &str) -> io::Result<()> {
        let mut batch = MessageBatch::new();
        batch.message(libc::NFT_MSG_DELCHAIN, FAMILY, 0, |chain| {
            chain.text(1, &self.name);
            chain.text(3, name);
        });
        self.socket.execute(batch)
    }

    /// Adds a counter that survives refills.
    pub(crate) fn add_counter(&self, name: &str) -> io::Result<()> {
        let mut batch = MessageBatch::new();
        about_counter(&mut batch, NEW_OBJECT, NEW, &self.name, name);
        self.socket.execute(batch)
    }

    /// Replaces the rules of all chains that are not on hooks, atomically. Each of the `policies` has a counter
    /// for each of the `subjects`, which depend on the policies only. If the policies have changed, all
    /// their counters restart at 0.
    pub(crate) fn refill(
        &mut self,
        chains: &[NftChain],
        policies: &[TrafficPolicy],
        subjects: &[PolicySubject],
    ) -> io::Result<()> {
        let changed = policies != self.policies;
        let counters = changed.then(|| policy::counters(policies, subjects));
        // One transaction: packets see either the old or the new rules.
        let mut batch = MessageBatch::new();
        let plain = || chains.iter().filter(|chain| chain.hook.is_none());
        for chain in plain() {
            // Without the handle of a rule, this deletes all rules of the chain.
            batch.message(libc::NFT_MSG_DELRULE, FAMILY, 0, |rule| {
                rule.text(1, &self.name);
                rule.text(2, chain.name);
            });
        }
        if let Some(counters) = &counters {
            // Only now: the rules that were deleted referred to them.
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
            self.policies = policies.to_vec();
        }
        Ok(())
    }

    /// Removes the table before its socket is closed.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let mut batch = MessageBatch::new();
        batch.message(libc::NFT_MSG_DELTABLE, FAMILY, 0, |table| table.text(1, &self.name));
        self.socket.execute(batch)
    }

    /// Reads the packets of each counter.
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

/// Closing the socket has the same effect, but not while a child process about to exec still holds
/// a copy of it.
impl Drop for NftTable {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::debug!("cannot remove the table {} before its socket: {error}", self.name);
        }
    }
}

/// Returns whether a table of this name exists.
pub(crate) fn exists(name: &str) -> io::Result<bool> {
    let socket = NetfilterSocket::open()?;
    match socket.query(libc::NFT_MSG_GETTABLE, FAMILY, |table| table.text(1, name)) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the process that has created a table, by the table's comment.
pub(crate) fn process_of(comment: &str) -> Option<u32> {
    comment.strip_prefix(PROCESS)?.parse().ok()
}

/// Returns whether the table's name is in use, or the privilege is missing: EPERM means either.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EPERM))
}

fn creation(table: &str, chains: &[NftChain]) -> MessageBatch {
    let mut batch = MessageBatch::new();
    batch.message(libc::NFT_MSG_NEWTABLE, FAMILY, NEW, |message| {
        message.text(1, table);
        message.number(2, OWNED);
        message.comment(USER_DATA, &format!("{PROCESS}{}", std::process::id()));
    });
    add_chains(&mut batch, table, chains);
    batch
}

/// Adds the chains, callees first, and the rules of the hooks.
fn add_chains(batch: &mut MessageBatch, table: &str, chains: &[NftChain]) {
    for chain in chains {
        batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |message| {
            message.text(1, table);
            message.text(3, chain.name);
            let Some(hook) = chain.hook else { return };
            message.nest(4, |attributes| {
                attributes.number(1, hook.number as u32);
                attributes.number(2, hook.priority() as u32);
            });
            // By default packets pass: what the gateway does not take goes its usual way.
            message.number(5, libc::NF_ACCEPT as u32);
            message.text(7, hook.kind);
        });
    }
    // After all chains, so that the rules may jump to any of them.
    for chain in chains.iter().filter(|chain| chain.hook.is_some()) {
        chain.rules.iter().for_each(|rule| add_rule(batch, table, chain.name, rule));
    }
}

fn about_counter(batch: &mut MessageBatch, kind: libc::c_int, flags: i32, table: &str, name: &str) {
    batch.message(kind, FAMILY, flags, |object| {
        object.text(1, table);
        object.text(2, name);
        object.number(3, COUNTER);
        object.nest(4, |_| {});
    });
}

/// Appends a rule to a chain.
fn add_rule(batch: &mut MessageBatch, table: &str, chain: &str, terms: &[Term]) {
    const APPEND: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
    batch.message(libc::NFT_MSG_NEWRULE, FAMILY, APPEND, |rule| {
        rule.text(1, table);
        rule.text(2, chain);
        rule.nest(4, |list| terms.iter().for_each(|term| term.encode(list)));
    });
}

#[cfg(test)]
mod tests {
    use pep::traffic::PolicyAction;

    use super::*;
    use crate::intercept::netfilter::GatewaySlot;
    use crate::testkit::{in_namespace, nft};

    fn chains(_: GatewaySlot) -> Vec<NftChain> {
        let first = vec![vec![Term::Jump("called")]];
        let called = NftChain::plain("called", vec![]);
        vec![called, NftChain::on_hook("first", Hook::prerouting(1), first)]
    }

    fn claim() -> io::Result<(GatewaySlot, NftTable)> {
        NftTable::claim(GatewaySlot::all().take(2), chains)
    }

    fn policies(names: &[&str]) -> Vec<TrafficPolicy> {
        names.iter().map(|name| TrafficPolicy::new(name, PolicyAction::Bypass)).collect()
    }

    const COUNTED: [PolicySubject; 1] = [PolicySubject::Connections];

    #[test]
    fn a_table_of_another_program_is_left_alone() {
        in_namespace(|| {
            if nft(&["add", "table", "inet", "skyhop-0"], "").is_none() {
                return;
            }
            let (slot, table) = claim().unwrap();
            assert_eq!(slot, GatewaySlot(1));
            // Both names are taken now, by others.
            assert_eq!(claim().err().unwrap().raw_os_error(), Some(libc::EPERM));
            assert!(exists("skyhop-0").unwrap() && exists("skyhop-1").unwrap());
            drop(table);
            assert!(exists("skyhop-0").unwrap() && !exists("skyhop-1").unwrap());
        });
    }

    #[test]
    fn a_refill_replaces_the_rules_of_called_chains_and_no_others() {
        in_namespace(|| {
            let (_, mut table) = claim().unwrap();
            let filled = |rules: Vec<NftRule>| vec![NftChain::plain("called", rules)];
            for rules in [vec![vec![Term::Tcp, Term::Return], vec![Term::Drop]], vec![]] {
                for _ in 0..2 {
                    table.refill(&filled(rules.clone()), &[], &COUNTED).unwrap();
                }
                let Some(listed) = nft(&["list", "table", "inet", "skyhop-0"], "") else { return };
                assert_eq!(listed.matches("jump called").count(), 1, "{listed}");
                assert_eq!(listed.matches("drop").count(), rules.len() / 2, "{listed}");
            }
        });
    }

    #[test]
    fn a_refill_that_the_kernel_refuses_changes_nothing() {
        in_namespace(|| {
            let (_, mut table) = claim().unwrap();
            table.add_counter("kept").unwrap();
            let good = vec![NftChain::plain("called", vec![vec![Term::Drop]])];
            table.refill(&good, &policies(&["one"]), &COUNTED).unwrap();
            let bad = vec![NftChain::plain("called", vec![vec![Term::Jump("missing")]])];
            assert!(table.refill(&bad, &policies(&["one", "two"]), &COUNTED).is_err());
            let names: Vec<String> = table.counts().unwrap().into_keys().collect();
            assert_eq!(names, ["kept", "policy-1-connections"]);
            // The counters are still those of the last table that was taken.
            table.refill(&good, &[], &COUNTED).unwrap();
            assert_eq!(table.counts().unwrap().into_keys().collect::<Vec<_>>(), ["kept"]);
        });
    }

    #[test]
    fn priorities_are_printed_relative_to_those_with_a_name() {
        assert_eq!(
            Hook::prerouting(0).to_string(),
            "type filter hook prerouting priority dstnat + 10; policy accept;"
        );
        assert_eq!(
            Hook::output(2).to_string(),
            "type route hook output priority mangle + 62; policy accept;"
        );
    }
}
