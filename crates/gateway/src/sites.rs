//! The hub's terminals: which are there, and which addresses are behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use slacp::{Open, PublicKey, ResetReason, SessionId};

use crate::config::PermittedTerminal;
use crate::prefix::Prefix;

/// All terminals that may connect, and the sessions there are, named by `S`.
pub(crate) struct Sites<S = SessionId> {
    terminals: Vec<PermittedTerminal>,
    sessions: BTreeMap<S, Session>,
    /// Whether terminals may reach each other.
    mesh: bool,
    /// Whether connections are made in the clients' names.
    transparent: bool,
}

/// A session with a terminal.
struct Session {
    /// The place in the list of terminals; `None` for one that is not there.
    terminal: Option<usize>,
    reachable: bool,
}

/// What becomes of a stream that a terminal has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way<S = SessionId> {
    /// The hub connects to its destination.
    Here,
    /// The terminal of this session does.
    Through(S),
    /// Nobody does.
    Closed(ResetReason),
}

impl<S: Copy + Ord> Sites<S> {
    pub(crate) fn new(terminals: Vec<PermittedTerminal>, mesh: bool, transparent: bool) -> Self {
        Self { terminals, sessions: BTreeMap::new(), mesh, transparent }
    }

    /// These may connect from now on. Sessions of terminals that are among them go
    /// on.
    pub(crate) fn configure(&mut self, terminals: Vec<PermittedTerminal>, mesh: bool) {
        let old = std::mem::replace(&mut self.terminals, terminals);
        for session in self.sessions.values_mut() {
            let key = session.terminal.map(|place| old[place].key);
            session.terminal = self.terminals.iter().position(|it| Some(it.key) == key);
        }
        self.mesh = mesh;
    }

    /// How many terminals may connect.
    pub(crate) fn count(&self) -> usize {
        self.terminals.len()
    }

    /// A terminal has a new session.
    pub(crate) fn add(&mut self, session: S, key: &PublicKey) {
        let terminal = self.terminals.iter().position(|terminal| terminal.key == *key);
        self.sessions.insert(session, Session { terminal, reachable: true });
    }

    pub(crate) fn remove(&mut self, session: S) {
        self.sessions.remove(&session);
    }

    /// A terminal answers, or does not answer any more.
    pub(crate) fn set_reachable(&mut self, session: S, reachable: bool) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.reachable = reachable;
        }
    }

    /// What the log calls the terminal of a session.
    pub(crate) fn name(&self, session: S) -> &str {
        self.of(session).map_or("a terminal", |terminal| &terminal.name)
    }

    /// What is behind the terminal of a session.
    pub(crate) fn networks(&self, session: S) -> Vec<Prefix> {
        self.of(session).map_or(Vec::new(), |terminal| terminal.networks.clone())
    }

    /// The networks of all terminals that can be reached now by a session that `has_room`
    /// for another connection.
    pub(crate) fn open_networks(&self, has_room: impl Fn(S) -> bool) -> Vec<Prefix> {
        let open = self.sessions.iter().filter(|(id, it)| it.reachable && has_room(**id));
        let here: BTreeSet<usize> = open.filter_map(|(_, session)| session.terminal).collect();
        let terminals = self.terminals.iter().enumerate().filter(|(place, _)| here.contains(place));
        terminals.flat_map(|(_, terminal)| terminal.networks.clone()).collect()
    }

    /// The session by which an address behind a terminal is reached now.
    pub(crate) fn behind(&self, address: IpAddr) -> Option<S> {
        let owner = self.owner(address)?;
        // The newest, if a terminal has come back before its old one is over.
        let mut sessions = self.sessions.iter().rev();
        let found = sessions.find(|(_, it)| it.terminal == Some(owner) && it.reachable);
        found.map(|(session, _)| *session)
    }

    /// Whether an address is behind the terminal of a session.
    pub(crate) fn is_behind(&self, address: IpAddr, session: S) -> bool {
        self.of(session).is_some_and(|terminal| is_in(address, &terminal.networks))
    }

    /// What becomes of a stream of a terminal. Where the source is shown to others
    /// it must be what it says: an address behind that terminal.
    pub(crate) fn way(&self, from: S, open: Open) -> Way<S> {
        let destination = open.destination.ip();
        let is_own = self.is_behind(open.source.ip(), from);
        if self.owner(destination).is_none() {
            let permitted = is_own || !self.transparent;
            return if permitted { Way::Here } else { Way::Closed(ResetReason::Prohibited) };
        }
        let permitted = self.mesh || self.is_behind(destination, from);
        if !permitted || !is_own {
            return Way::Closed(ResetReason::Prohibited);
        }
        self.behind(destination).map_or(Way::Closed(ResetReason::Unreachable), Way::Through)
    }

    /// The terminal of a session, while it may connect.
    pub(crate) fn of(&self, session: S) -> Option<&PermittedTerminal> {
        self.terminals.get(self.sessions.get(&session)?.terminal?)
    }

    /// The sessions, and which share of the hub's rate each has.
    pub(crate) fn weights(&self) -> impl Iterator<Item = (S, u32)> {
        let sessions = self.sessions.keys();
        sessions.filter_map(|session| Some((*session, self.of(*session)?.quota.weight)))
    }

    fn owner(&self, address: IpAddr) -> Option<usize> {
        self.terminals.iter().position(|terminal| is_in(address, &terminal.networks))
    }
}

fn is_in(address: IpAddr, networks: &[Prefix]) -> bool {
    networks.iter().any(|network| network.contains(address.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Egress;
    use crate::quota::Quota;

    const SHIP: PublicKey = PublicKey([1; 32]);
    const RIG: PublicKey = PublicKey([2; 32]);

    #[test]
    fn sessions_stay_with_their_terminals_when_the_list_changes() {
        let mut sites = sites(true);
        let mut terminals = sites.terminals.clone();
        terminals.reverse();
        terminals[0].networks = vec!["10.3.0.0/16".parse().unwrap()];
        sites.configure(terminals, true);
        assert_eq!((sites.name(1), sites.name(2)), ("ship", "rig"));
        assert_eq!(sites.behind("10.3.0.1".parse().unwrap()), Some(2));
        assert_eq!(sites.behind("10.2.0.1".parse().unwrap()), None);
        sites.configure(vec![sites.terminals[0].clone()], true);
        assert_eq!(sites.behind("10.1.0.1".parse().unwrap()), None);
    }

    /// Two terminals whose sessions are 1 and 2.
    fn sites(mesh: bool) -> Sites<u32> {
        sites_with(mesh, false)
    }

    fn sites_with(mesh: bool, transparent: bool) -> Sites<u32> {
        let terminal = |name: &str, key, networks: [&str; 2]| PermittedTerminal {
            name: name.to_owned(),
            key,
            networks: networks.map(|network| network.parse().unwrap()).to_vec(),
            egress: Egress::everywhere(),
            quota: Quota::default(),
        };
        let ship = terminal("ship", SHIP, ["10.1.0.0/16", "fd00:1::/64"]);
        let rig = terminal("rig", RIG, ["10.2.0.0/16", "fd00:2::/64"]);
        let mut sites = Sites::new(vec![ship, rig], mesh, transparent);
        sites.add(1, &SHIP);
        sites.add(2, &RIG);
        sites
    }

    fn open(source: &str, destination: &str) -> Open {
        let address = |text: &str| format!("{text}:80").parse().unwrap();
        Open { source: address(source), destination: address(destination), dscp: None }
    }

    #[test]
    fn an_address_is_behind_the_terminal_that_has_its_network() {
        let sites = sites(false);
        let behind = |text: &str| sites.behind(text.parse().unwrap());
        assert_eq!((behind("10.1.9.9"), behind("fd00:2::1")), (Some(1), Some(2)));
        assert_eq!((behind("10.3.0.1"), behind("::ffff:10.2.0.1")), (None, Some(2)));
    }

    #[test]
    fn only_terminals_that_answer_are_used() {
        let mut sites = sites(true);
        sites.set_reachable(1, false);
        assert_eq!(sites.behind("10.1.0.1".parse().unwrap()), None);
        assert_eq!(sites.open_networks(|_| true).len(), 2);
        assert_eq!(sites.open_networks(|_| false), [], "no memory");
        let to_ship = open("10.2.0.1", "10.1.0.1");
        assert_eq!(sites.way(2, to_ship), Way::Closed(ResetReason::Unreachable));
        // It comes back with another session before its first one is over.
        sites.add(3, &SHIP);
        sites.set_reachable(1, true);
        assert_eq!(sites.way(2, to_ship), Way::Through(3));
        sites.remove(3);
        sites.remove(1);
        assert_eq!(sites.way(2, to_ship), Way::Closed(ResetReason::Unreachable));
    }

    #[test]
    fn terminals_reach_each_other_by_policy_and_under_their_own_names() {
        let to_rig = open("10.1.0.1", "10.2.0.1");
        assert_eq!(sites(true).way(1, to_rig), Way::Through(2));
        assert_eq!(sites(false).way(1, to_rig), Way::Closed(ResetReason::Prohibited));
        let forged = open("192.0.2.1", "10.2.0.1");
        assert_eq!(sites(true).way(1, forged), Way::Closed(ResetReason::Prohibited));
        let elsewhere = open("192.0.2.1", "198.51.100.1");
        assert_eq!(sites(false).way(1, elsewhere), Way::Here);
        let own = open("10.1.0.1", "10.1.7.7");
        assert_eq!(sites(false).way(1, own), Way::Through(1));
    }

    #[test]
    fn nobody_connects_in_the_name_of_another_terminal_s_client() {
        let sites = sites_with(false, true);
        let from = |source| sites.way(1, open(source, "198.51.100.1"));
        assert_eq!(from("10.1.0.1"), Way::Here);
        for forged in ["10.2.0.1", "192.0.2.1"] {
            assert_eq!(from(forged), Way::Closed(ResetReason::Prohibited), "{forged}");
        }
    }
}
