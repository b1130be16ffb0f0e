//! Terminals of a hub: their sessions, and the networks behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use slacp::{PublicKey, ResetReason, SessionId, StreamOpening};

use super::PermittedTerminal;
use crate::traffic::{Prefix, PrefixMap};

/// The permitted terminals and the current sessions, identified by `S`.
pub struct TerminalSites<S = SessionId> {
    terminals: Vec<PermittedTerminal>,
    /// Indices of the terminals by key, and by network; networks of different terminals do not overlap.
    by_key: BTreeMap<PublicKey, usize>,
    by_network: PrefixMap<usize>,
    sessions: BTreeMap<S, SiteSession>,
    /// The sessions of each terminal.
    of_terminal: BTreeSet<(usize, S)>,
    /// `true` if terminals may reach each other.
    mesh: bool,
    /// `true` if the hub connects with the clients' addresses.
    transparent: bool,
}

/// A session with a terminal.
struct SiteSession {
    /// Index in the list of terminals; `None` if the terminal is no longer permitted.
    terminal: Option<usize>,
    reachable: bool,
}

/// Decision about a stream that a terminal has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamRoute<S = SessionId> {
    /// Connect from the hub, as the egress rules permit.
    Local,
    /// Forward it to the terminal of this session.
    Forward(S),
    /// Reset it, with the reason for the terminal.
    Reset(ResetReason),
}

impl<S: Copy + Ord> TerminalSites<S> {
    /// Creates the sites. With `mesh`, terminals may reach each other; with `transparent`, the hub connects
    /// with the clients' addresses.
    pub fn new(terminals: Vec<PermittedTerminal>, mesh: bool, transparent: bool) -> Self {
        let mut sites = Self {
            terminals: Vec::new(),
            by_key: BTreeMap::new(),
            by_network: PrefixMap::default(),
            sessions: BTreeMap::new(),
            of_terminal: BTreeSet::new(),
            mesh,
            transparent,
        };
        sites.configure(terminals, mesh);
        sites
    }

    /// Replaces the permitted terminals. Sessions of terminals that remain are kept.
    pub fn configure(&mut self, terminals: Vec<PermittedTerminal>, mesh: bool) {
        let old = std::mem::replace(&mut self.terminals, terminals);
        let places = || self.terminals.iter().enumerate();
        self.by_key = places().map(|(place, terminal)| (terminal.key, place)).collect();
        self.by_network = PrefixMap::default();
        for (place, terminal) in places() {
            for network in &terminal.networks {
                self.by_network.insert(*network, place);
            }
        }
        self.of_terminal.clear();
        for (id, session) in &mut self.sessions {
            // The index was into the old list, so the terminal is found again by its key.
            let key = session.terminal.map(|place| old[place].key);
            session.terminal = key.and_then(|key| self.by_key.get(&key)).copied();
            self.of_terminal.extend(session.terminal.map(|place| (place, *id)));
        }
        self.mesh = mesh;
    }

    /// Number of permitted terminals.
    pub fn count(&self) -> usize {
        self.terminals.len()
    }

    /// Handles a new session of a terminal.
    pub fn add(&mut self, session: S, key: &PublicKey) {
        let terminal = self.by_key.get(key).copied();
        self.of_terminal.extend(terminal.map(|place| (place, session)));
        self.sessions.insert(session, SiteSession { terminal, reachable: true });
    }

    /// Handles the end of a session.
    pub fn remove(&mut self, session: S) {
        let removed = self.sessions.remove(&session);
        if let Some(place) = removed.and_then(|session| session.terminal) {
            self.of_terminal.remove(&(place, session));
        }
    }

    /// Sets whether a session's terminal is reachable.
    pub fn set_reachable(&mut self, session: S, reachable: bool) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.reachable = reachable;
        }
    }

    /// Returns `true` if a session's terminal is reachable.
    pub fn is_reachable(&self, session: S) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.reachable)
    }

    /// Name of a session's terminal, for the log.
    pub fn name(&self, session: S) -> &str {
        self.of(session).map_or("a terminal", |terminal| &terminal.name)
    }

    /// Networks of a session's terminal.
    pub fn networks(&self, session: S) -> Vec<Prefix> {
        self.of(session).map_or(Vec::new(), |terminal| terminal.networks.clone())
    }

    /// Networks of all terminals that are reachable by a session that `has_room` for another connection.
    pub fn open_networks(&self, has_room: impl Fn(S) -> bool) -> Vec<Prefix> {
        let open = self.sessions.iter().filter(|(id, session)| session.reachable && has_room(**id));
        let here: BTreeSet<usize> = open.filter_map(|(_, session)| session.terminal).collect();
        let terminals = self.terminals.iter().enumerate().filter(|(place, _)| here.contains(place));
        terminals.flat_map(|(_, terminal)| terminal.networks.clone()).collect()
    }

    /// The reachable session of the terminal that an address is behind.
    pub fn behind(&self, address: IpAddr) -> Option<S> {
        let owner = self.owner(address)?;
        // If a terminal has reconnected before its old session ended, the newest session is used.
        // The bounds are needed because `S` has no smallest or largest value.
        let first = self.sessions.keys().next()?;
        let last = self.sessions.keys().next_back()?;
        let mut sessions = self.of_terminal.range((owner, *first)..=(owner, *last)).rev();
        let is_reachable = |id: &S| self.sessions.get(id).is_some_and(|session| session.reachable);
        sessions.find(|(_, id)| is_reachable(id)).map(|(_, id)| *id)
    }

    /// Returns `true` if an address is behind a session's terminal.
    pub fn is_behind(&self, address: IpAddr, session: S) -> bool {
        self.of(session).is_some_and(|terminal| is_in(address, &terminal.networks))
    }

    /// Decides about a stream from a terminal. If its source address is shown to others, it must be behind
    /// that terminal.
    pub fn route(&self, from: S, open: StreamOpening) -> StreamRoute<S> {
        let destination = open.destination.ip();
        let is_own = self.is_behind(open.source.ip(), from);
        // Not behind a terminal: the hub itself connects.
        if self.owner(destination).is_none() {
            let permitted = is_own || !self.transparent;
            return if permitted {
                StreamRoute::Local
            } else {
                StreamRoute::Reset(ResetReason::Prohibited)
            };
        }
        // Without `mesh` a terminal may still reach its own networks by way of the hub.
        let permitted = self.mesh || self.is_behind(destination, from);
        if !permitted || !is_own {
            return StreamRoute::Reset(ResetReason::Prohibited);
        }
        self.behind(destination)
            .map_or(StreamRoute::Reset(ResetReason::Unreachable), StreamRoute::Forward)
    }

    /// The terminal of a session, if it is still permitted.
    pub fn of(&self, session: S) -> Option<&PermittedTerminal> {
        self.terminals.get(self.sessions.get(&session)?.terminal?)
    }

    /// All permitted terminals.
    pub fn terminals(&self) -> &[PermittedTerminal] {
        &self.terminals
    }

    /// Number of current sessions, of all terminals.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// All current sessions, reachable or not.
    pub fn sessions(&self) -> impl Iterator<Item = S> {
        self.sessions.keys().copied()
    }

    fn owner(&self, address: IpAddr) -> Option<usize> {
        self.by_network.containing(address.to_canonical()).next().copied()
    }
}

fn is_in(address: IpAddr, networks: &[Prefix]) -> bool {
    networks.iter().any(|network| network.contains(address.to_canonical()))
}

#[cfg(test)]
mod tests {
    use crate::egress::EgressRules;

    use super::*;
    use crate::routes::TerminalQuota;

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

    /// Two terminals with sessions 1 and 2.
    fn sites(mesh: bool) -> TerminalSites<u32> {
        sites_with(mesh, false)
    }

    fn sites_with(mesh: bool, transparent: bool) -> TerminalSites<u32> {
        let terminal = |name: &str, key, networks: [&str; 2]| PermittedTerminal {
            name: name.to_owned(),
            key,
            networks: networks.map(|network| network.parse().unwrap()).to_vec(),
            egress: EgressRules::everywhere(),
            carrier: None,
            cache: None,
            quota: TerminalQuota::default(),
            links: BTreeMap::new(),
            classes: BTreeMap::new(),
            expires: None,
            address: None,
            invited: false,
            volume: None,
        };
        let ship = terminal("ship", SHIP, ["10.1.0.0/16", "fd00:1::/64"]);
        let rig = terminal("rig", RIG, ["10.2.0.0/16", "fd00:2::/64"]);
        let mut sites = TerminalSites::new(vec![ship, rig], mesh, transparent);
        sites.add(1, &SHIP);
        sites.add(2, &RIG);
        sites
    }

    fn open(source: &str, destination: &str) -> StreamOpening {
        let address = |text: &str| format!("{text}:80").parse().unwrap();
        StreamOpening { source: address(source), destination: address(destination), dscp: None }
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
        assert_eq!(sites.route(2, to_ship), StreamRoute::Reset(ResetReason::Unreachable));
        // The terminal reconnects before its first session has ended.
        sites.add(3, &SHIP);
        sites.set_reachable(1, true);
        assert_eq!(sites.route(2, to_ship), StreamRoute::Forward(3));
        sites.remove(3);
        sites.remove(1);
        assert_eq!(sites.route(2, to_ship), StreamRoute::Reset(ResetReason::Unreachable));
    }

    #[test]
    fn terminals_reach_each_other_by_policy_and_under_their_own_names() {
        let to_rig = open("10.1.0.1", "10.2.0.1");
        assert_eq!(sites(true).route(1, to_rig), StreamRoute::Forward(2));
        assert_eq!(sites(false).route(1, to_rig), StreamRoute::Reset(ResetReason::Prohibited));
        let forged = open("192.0.2.1", "10.2.0.1");
        assert_eq!(sites(true).route(1, forged), StreamRoute::Reset(ResetReason::Prohibited));
        let elsewhere = open("192.0.2.1", "198.51.100.1");
        assert_eq!(sites(false).route(1, elsewhere), StreamRoute::Local);
        let own = open("10.1.0.1", "10.1.7.7");
        assert_eq!(sites(false).route(1, own), StreamRoute::Forward(1));
    }

    #[test]
    fn no_terminal_connects_in_the_name_of_another_s_client() {
        let sites = sites_with(false, true);
        let from = |source| sites.route(1, open(source, "198.51.100.1"));
        assert_eq!(from("10.1.0.1"), StreamRoute::Local);
        for forged in ["10.2.0.1", "192.0.2.1"] {
            assert_eq!(from(forged), StreamRoute::Reset(ResetReason::Prohibited), "{forged}");
        }
    }
}
