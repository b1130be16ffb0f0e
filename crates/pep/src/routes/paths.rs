//! Maps addresses to sessions: for the destinations of packets, and for the sources that a session may use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use slacp::SessionId;

use crate::traffic::{Prefix, PrefixMap};

/// Sessions that carry packets, identified by `S`.
#[derive(Debug)]
pub struct PacketPaths<S = SessionId> {
    sessions: BTreeMap<S, SessionNetworks>,
    /// The sessions of each network, open or closed.
    owners: PrefixMap<BTreeSet<S>>,
    /// `true` if packets may pass between sessions.
    mesh: bool,
}

#[derive(Debug)]
struct SessionNetworks {
    networks: Vec<Prefix>,
    open: bool,
}

impl SessionNetworks {
    fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }
}

impl<S: Copy + Ord> PacketPaths<S> {
    /// Starts without sessions. With `mesh`, packets may pass between sessions.
    pub fn new(mesh: bool) -> Self {
        Self { sessions: BTreeMap::new(), owners: PrefixMap::default(), mesh }
    }

    /// Adds a session for packets from and to `networks`; it is closed at first.
    pub fn add(&mut self, session: S, networks: Vec<Prefix>) {
        self.remove(session);
        for network in &networks {
            self.owners.entry(*network).insert(session);
        }
        self.sessions.insert(session, SessionNetworks { networks, open: false });
    }

    /// Number of sessions, open and closed.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns `true` if a session was added and not removed.
    pub fn has(&self, session: S) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Opens or closes a session. Returns `true` if that is a change.
    pub fn set_open(&mut self, session: S, open: bool) -> bool {
        let Some(path) = self.sessions.get_mut(&session) else { return false };
        std::mem::replace(&mut path.open, open) != open
    }

    /// Removes a session. Returns `true` if it was open.
    pub fn remove(&mut self, session: S) -> bool {
        let Some(path) = self.sessions.remove(&session) else { return false };
        for network in path.networks {
            let owners = self.owners.entry(network);
            owners.remove(&session);
            if owners.is_empty() {
                self.owners.remove(network);
            }
        }
        path.open
    }

    /// Closes all sessions.
    pub fn close_all(&mut self) {
        self.sessions.values_mut().for_each(|path| path.open = false);
    }

    /// Networks of all open sessions.
    pub fn open_networks(&self) -> Vec<Prefix> {
        self.sessions
            .values()
            .filter(|path| path.open)
            .flat_map(|path| path.networks.clone())
            .collect()
    }

    /// Returns `true` if a packet may arrive on this session: its source must be behind the session, and
    /// without `mesh` its destination must not be behind another one.
    pub fn permits(&self, session: S, source: IpAddr, destination: IpAddr) -> bool {
        let Some(path) = self.sessions.get(&session) else { return false };
        // The destination is not behind this session, so any owner is another session.
        let crosses = !self.mesh
            && !path.has(destination)
            && self.owners.containing(destination).next().is_some();
        path.has(source) && !crosses
    }

    /// The session for `destination`: that of the longest matching prefix, and among equals the newest.
    pub fn to(&self, destination: IpAddr) -> Option<S> {
        // Closed sessions keep their place, so that a shorter prefix is used only until they open again.
        let is_open = |session: &&S| self.sessions.get(session).is_some_and(|path| path.open);
        let mut fits = self.owners.containing(destination);
        fits.find_map(|owners| owners.iter().rev().find(is_open)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn packets_go_to_the_closest_fit_that_is_open() {
        let (wide, narrow) = (1, 2);
        let mut paths = PacketPaths::new(false);
        paths.add(wide, networks(&["0.0.0.0/0"]));
        paths.add(narrow, networks(&["10.1.0.0/16", "fd00:1::/64"]));
        assert_eq!(paths.to(address("10.1.0.2")), None, "nothing is open");
        assert!(paths.set_open(wide, true) && paths.set_open(narrow, true));
        assert!(!paths.set_open(narrow, true), "it was open");
        assert_eq!(paths.to(address("10.1.0.2")), Some(narrow));
        assert_eq!(paths.to(address("10.2.0.2")), Some(wide));
        assert_eq!(paths.to(address("fd00:1::2")), Some(narrow));
        assert_eq!(paths.to(address("fd00:2::2")), None);
        assert!(paths.set_open(narrow, false));
        assert_eq!(paths.to(address("10.1.0.2")), Some(wide));
        assert_eq!(paths.open_networks(), networks(&["0.0.0.0/0"]));
    }

    #[test]
    fn packets_come_from_the_own_networks_only_open_or_not() {
        let out = address("192.0.2.7");
        let mut paths = PacketPaths::new(false);
        paths.add(1, networks(&["10.1.0.0/16"]));
        assert!(paths.permits(1, address("10.1.255.255"), out));
        assert!(!paths.permits(1, address("10.2.0.1"), out));
        assert!(!paths.permits(2, address("10.1.0.1"), out));
        assert!(!paths.remove(1) && !paths.permits(1, address("10.1.0.1"), out));
    }

    #[test]
    fn packets_go_from_one_terminal_to_another_in_a_mesh_only() {
        for mesh in [false, true] {
            let mut paths = PacketPaths::new(mesh);
            paths.add(1, networks(&["10.1.0.0/16"]));
            paths.add(2, networks(&["10.2.0.0/16"]));
            let from = address("10.1.0.1");
            assert_eq!(paths.permits(1, from, address("10.2.0.1")), mesh);
            assert!(paths.permits(1, from, address("10.1.0.2")));
        }
    }

    #[test]
    fn of_two_sessions_of_a_terminal_the_later_one_is_used() {
        let (old, new) = (1, 2);
        let mut paths = PacketPaths::new(false);
        for session in [old, new] {
            paths.add(session, networks(&["10.1.0.0/16"]));
            paths.set_open(session, true);
        }
        assert_eq!(paths.to(address("10.1.0.2")), Some(new));
        assert!(paths.remove(new));
        assert_eq!(paths.to(address("10.1.0.2")), Some(old));
        paths.close_all();
        assert_eq!(paths.to(address("10.1.0.2")), None);
    }
}
