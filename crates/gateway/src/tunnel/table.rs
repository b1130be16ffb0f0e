//! An nftables table of our own that marks the packets that are to go through the
//! tunnel. Like that of interception it is owned by our socket, and its chain is
//! empty while nothing is to be taken.

use std::fmt;
use std::io;

use super::route::Place;
use crate::netfilter::{FAMILY, OWNED, PRIORITY, SLOTS, add_rule, display_rules, taken};
use crate::netlink::{Batch, Socket};
use crate::prefix::Prefix;
use crate::rule::{Term, Version};

const CHAIN: &str = "tunnel";
const FORWARDED: &str = "prerouting";
const OWN: &str = "output";
/// Behind interception: what that takes over bears its mark already.
const BEHIND_INTERCEPTION: i32 = PRIORITY + 1;
/// NF_IP_PRI_MANGLE + 1, as nft writes it.
const PRIORITY_NAME: &str = "mangle + 1";
/// The marks of all gateways' interceptions and tunnels.
const ALL_MARKS: u32 = 0x1ff0_0000;

/// Which packets go through the tunnel.
#[derive(Debug, Clone)]
pub(crate) enum Selection {
    /// A terminal's: what comes from its clients and is not split.
    Clients {
        /// The interfaces that they are behind.
        interfaces: Vec<String>,
        /// Destinations that are left alone.
        bypass: Vec<Prefix>,
    },
    /// A hub's: what is for its terminals' clients, from whomever.
    Terminals {
        /// The UDP port of the hop, which must not go through itself.
        hop: u16,
    },
}

impl Selection {
    /// The rules while packets go to `networks`; none if they go nowhere.
    fn rules(&self, networks: &[Prefix], place: Place) -> Vec<Vec<Term>> {
        if networks.is_empty() {
            return Vec::new();
        }
        let ours = [Term::SetMark(place.mark()), Term::Accept];
        let to = |prefix: &Prefix| {
            [Term::Version(Version::of(prefix.address())), Term::To(*prefix)].to_vec()
        };
        let mut rules = vec![vec![Term::MarkedAny(ALL_MARKS), Term::Return]];
        match self {
            Self::Clients { interfaces, bypass } => {
                rules.extend(bypass.iter().map(|prefix| [to(prefix), vec![Term::Return]].concat()));
                rules.extend(interfaces.iter().map(|interface| {
                    let from = Term::From(interface.clone());
                    let what = [from, Term::NotTcp, Term::ToElsewhere, Term::ToOneHost];
                    [&what[..], &ours].concat()
                }));
            }
            Self::Terminals { .. } => {
                rules.extend(networks.iter().map(|network| [&to(network)[..], &ours].concat()));
            }
        }
        rules
    }

    /// The rules of the hook for this machine's own packets, if it has one.
    fn own(&self) -> Option<Vec<Vec<Term>>> {
        match self {
            Self::Clients { .. } => None,
            Self::Terminals { hop } => {
                Some(vec![vec![Term::UdpFrom(*hop), Term::Return], vec![Term::Jump(CHAIN)]])
            }
        }
    }

    /// The whole table in nft syntax, as `nft -f` takes it.
    pub(crate) fn display(&self, networks: &[Prefix], place: Place) -> impl fmt::Display {
        let rules = display_rules(&self.rules(networks, place));
        let jump = display_rules(&[vec![Term::Jump(CHAIN)]]);
        let own = self.own().map_or(String::new(), |own| {
            format!(
                "\n\tchain {OWN} {{\n\t\ttype route hook output priority {PRIORITY_NAME}; \
                 policy accept;\n{}\t}}\n",
                display_rules(&own)
            )
        });
        format!(
            "table inet {} {{\n\tchain {CHAIN} {{\n{rules}\t}}\n\n\tchain {FORWARDED} {{\n\
             \t\ttype filter hook prerouting priority {PRIORITY_NAME}; policy accept;\n\
             {jump}\t}}\n{own}}}",
            place.table_name()
        )
    }
}

/// Our table in the kernel. Gone when dropped.
pub(crate) struct Table {
    socket: Socket,
    place: Place,
    selection: Selection,
}

impl Table {
    /// Makes a table in the first free place of this network namespace; it takes
    /// nothing yet.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn claim(selection: Selection) -> io::Result<Self> {
        let socket = Socket::open()?;
        let mut refusal = io::Error::from(io::ErrorKind::AddrInUse);
        for place in (0..SLOTS).map(Place) {
            match socket.execute(creation(place, &selection)) {
                Ok(()) => return Ok(Self { socket, place, selection }),
                Err(error) if taken(&error) => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Takes what is for `networks` from now on, and nothing else.
    pub(crate) fn take(&self, networks: &[Prefix]) -> io::Result<()> {
        let name = self.place.table_name();
        let mut batch = Batch::new();
        batch.message(libc::NFT_MSG_DELRULE, FAMILY, 0, |rule| {
            rule.text(1, &name);
            rule.text(2, CHAIN);
        });
        for rule in self.selection.rules(networks, self.place) {
            add_rule(&mut batch, &name, CHAIN, &rule);
        }
        self.socket.execute(batch)
    }
}

/// As for interception: a child process may have a copy of the socket.
impl Drop for Table {
    fn drop(&mut self) {
        let name = self.place.table_name();
        let mut batch = Batch::new();
        batch.message(libc::NFT_MSG_DELTABLE, FAMILY, 0, |table| table.text(1, &name));
        if let Err(error) = self.socket.execute(batch) {
            tracing::debug!("the table {name} goes with its socket: {error}");
        }
    }
}

fn creation(place: Place, selection: &Selection) -> Batch {
    const NEW: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let name = place.table_name();
    let mut batch = Batch::new();
    batch.message(libc::NFT_MSG_NEWTABLE, FAMILY, NEW, |table| {
        table.text(1, &name);
        table.number(2, OWNED);
    });
    batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |chain| {
        chain.text(1, &name);
        chain.text(3, CHAIN);
    });
    let forwarded = vec![vec![Term::Jump(CHAIN)]];
    add_hook(&mut batch, &name, FORWARDED, ("filter", libc::NF_INET_PRE_ROUTING), &forwarded);
    if let Some(own) = selection.own() {
        // A chain of type `route` has a packet routed again when its mark changes.
        add_hook(&mut batch, &name, OWN, ("route", libc::NF_INET_LOCAL_OUT), &own);
    }
    batch
}

fn add_hook(
    batch: &mut Batch,
    table: &str,
    name: &str,
    (kind, number): (&str, libc::c_int),
    rules: &[Vec<Term>],
) {
    const NEW: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    batch.message(libc::NFT_MSG_NEWCHAIN, FAMILY, NEW, |chain| {
        chain.text(1, table);
        chain.text(3, name);
        chain.nest(4, |hook| {
            hook.number(1, number as u32);
            hook.number(2, BEHIND_INTERCEPTION as u32);
        });
        chain.number(5, libc::NF_ACCEPT as u32);
        chain.text(7, kind);
    });
    rules.iter().for_each(|rule| add_rule(batch, table, name, rule));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{in_namespace, nft};

    fn networks() -> Vec<Prefix> {
        ["10.1.0.0/16", "fd00:1::/64"].map(|text| text.parse().unwrap()).to_vec()
    }

    fn selections() -> [Selection; 2] {
        let clients = Selection::Clients {
            interfaces: vec!["lan0".to_owned(), "lan1".to_owned()],
            bypass: vec!["192.0.2.0/24".parse().unwrap()],
        };
        [clients, Selection::Terminals { hop: 5900 }]
    }

    /// A table's chains as nft lists them, without its name and its owner.
    fn chains(listed: &str) -> Vec<&str> {
        let lines = listed.lines().skip(1).map(str::trim);
        lines.filter(|line| !line.is_empty() && *line != "flags owner").collect()
    }

    #[test]
    fn the_kernel_has_the_rules_that_we_print() {
        in_namespace(|| {
            for selection in selections() {
                let table = Table::claim(selection.clone()).unwrap();
                table.take(&networks()).unwrap();
                let list = ["list", "table", "inet", "skyhop-tunnel-0"];
                let Some(ours) = nft(&list, "") else { return };
                let printed = selection.display(&networks(), table.place()).to_string();
                nft(&["-f", "-"], &printed.replace("skyhop-tunnel-0", "printed")).unwrap();
                let theirs = nft(&["list", "table", "inet", "printed"], "").unwrap();
                nft(&["delete", "table", "inet", "printed"], "").unwrap();
                assert_eq!(chains(&ours), chains(&theirs));
                assert!(ours.contains("meta mark set"), "{ours}");
            }
        });
    }

    #[test]
    fn while_nothing_is_open_nothing_is_marked() {
        in_namespace(|| {
            for selection in selections() {
                let table = Table::claim(selection).unwrap();
                let Some(idle) = nft(&["list", "ruleset"], "") else { return };
                table.take(&networks()).unwrap();
                table.take(&networks()).unwrap();
                let open = nft(&["list", "ruleset"], "").unwrap();
                assert_eq!(open.matches("meta mark set").count(), 2, "{open}");
                table.take(&[]).unwrap();
                assert_eq!(nft(&["list", "ruleset"], "").unwrap(), idle);
                drop(table);
                assert_eq!(nft(&["list", "ruleset"], "").unwrap(), "");
            }
        });
    }
}
