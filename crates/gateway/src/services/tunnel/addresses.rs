//! Addresses in the tunnel of terminals whose networks a hub does not know: from the hub's pool, the same for a terminal
//! after every restart.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use config::{HubConfig, PermittedTerminal};
use netlink_packet_route::route::RouteType;
use os::netlink::RouteSocket;
use pep::egress::SPECIAL;
use pep::routes::{AddressPool, conflicting_route};
use pep::traffic::{Prefix, PrefixMap};
use serde::{Deserialize, Serialize};
use slacp::PublicKey;

use crate::config::keys::{format_public_key, parse_public_key};
use crate::config::whole_file::{self, PRIVATE};
use crate::intercept::lan_routes::{destination_of, device_of};
use crate::network::routing::PROTOCOL;
use crate::process::error::RunError;

/// The file in the directory of the key `state`.
const FILE: &str = "hub-tunnel-addresses.json";
/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes: enough for 100,000 terminals.
const LONGEST: u64 = 8 << 20;

/// The addresses of a hub's terminals.
pub(crate) struct TerminalAddresses {
    prefix: Prefix,
    pool: AddressPool,
    path: Option<PathBuf>,
    /// Set once no route was found to lead to the pool.
    is_checked: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressFile {
    skyhop_tunnel_addresses: u32,
    /// Each terminal's key, with its address.
    terminals: Vec<(String, Ipv4Addr)>,
}

impl TerminalAddresses {
    /// Loads the addresses of a hub with this configuration; `None` if it has no tunnel. An unreadable file is logged
    /// and ignored.
    pub(crate) fn load(config: &HubConfig) -> Option<Self> {
        let prefix = config.tunnel.as_ref()?.pool?;
        let path = config.operation.state.as_deref().map(|directory| directory.join(FILE));
        let remembered = path.as_deref().map(read).unwrap_or_default();
        Some(Self { prefix, pool: AddressPool::new(prefix, remembered), path, is_checked: false })
    }

    /// Gives each terminal without networks its address, which then is its only network, and stores new ones. Without
    /// a free one, or if a route of this machine leads to the pool, terminals remain without.
    pub(crate) fn assign(&mut self, terminals: &mut [PermittedTerminal]) {
        if let Err(error) = self.check(terminals) {
            return tracing::error!("terminals without `networks` cannot use the tunnel: {error}");
        }
        if self.fill(terminals) {
            self.store();
        }
        let left = terminals.iter().filter(|terminal| is_without(terminal)).count();
        if left > 0 {
            let pool = self.prefix;
            tracing::error!("tunnel.pool {pool} is full: {left} terminals cannot use the tunnel");
        }
    }

    /// Checks that no route of this machine leads to the pool, if a terminal needs it.
    ///
    /// # Errors
    /// The route.
    pub(crate) fn check(&mut self, terminals: &[PermittedTerminal]) -> Result<(), RunError> {
        if self.is_checked || !terminals.iter().any(is_without) {
            return Ok(());
        }
        let conflict = conflict(self.prefix, None).map_err(RunError::System)?;
        if let Some(route) = conflict {
            return Err(RunError::Pool { pool: self.prefix, route });
        }
        self.is_checked = true;
        Ok(())
    }

    /// As [`Self::assign`], without look at routes and without storing anything. Returns `true` if addresses have
    /// changed.
    pub(crate) fn fill(&mut self, terminals: &mut [PermittedTerminal]) -> bool {
        let mut networks = PrefixMap::default();
        for network in terminals.iter().flat_map(|terminal| &terminal.networks) {
            networks.insert(*network, ());
        }
        let keys: BTreeSet<PublicKey> =
            terminals.iter().filter(|terminal| is_without(terminal)).map(|one| one.key).collect();
        let is_taken = |own: Ipv4Addr| networks.containing(own.into()).next().is_some();
        let has_changed = self.pool.assign(&keys, is_taken);
        for terminal in terminals.iter_mut().filter(|terminal| is_without(terminal)) {
            terminal.address = self.pool.address(&terminal.key);
            terminal.networks = terminal.address.map(host).into_iter().collect();
        }
        has_changed
    }

    /// Writes the addresses before terminals are told of them, which happens only when terminals are added.
    fn store(&self) {
        let Some(path) = &self.path else { return };
        if let Err(error) = whole_file::replace(path, &format(self.pool.addresses()), PRIVATE) {
            tracing::warn!("cannot save {}: {error}", path.display());
        }
    }
}

/// Returns `true` for a terminal that needs an address. An invitation's session carries nothing.
fn is_without(terminal: &PermittedTerminal) -> bool {
    terminal.networks.is_empty() && !terminal.invited
}

fn host(address: Ipv4Addr) -> Prefix {
    Prefix::host(address.into())
}

/// Checks an address that a hub gives to this terminal, whose tunnel has the device with this index.
///
/// # Errors
/// The reason for which it cannot be used.
pub(super) fn check_own(address: Ipv4Addr, device: u32) -> Result<(), String> {
    if let Some(special) = SPECIAL.iter().find(|special| special.range.contains(address.into())) {
        return Err(format!("it is an address of {}", special.what));
    }
    // As every pool is: with an address of the hub's or a server's, nothing would reach it any more.
    if !address.is_private() {
        return Err("it is not a private address (RFC 1918)".to_owned());
    }
    match conflict(host(address), Some(device)) {
        Ok(None) => Ok(()),
        Ok(Some(route)) => Err(format!(
            "this machine has a route to {route}: choose another `tunnel.pool` on the hub"
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// The route of this machine to addresses of `wanted`, if there is one that does not lead to the device `except`.
/// Gateways' own routes, and those that lead nowhere, do not count.
fn conflict(wanted: Prefix, except: Option<u32>) -> io::Result<Option<Prefix>> {
    const NOWHERE: [RouteType; 4] =
        [RouteType::BlackHole, RouteType::Unreachable, RouteType::Prohibit, RouteType::Throw];
    let routes = RouteSocket::open()?.routes()?;
    let counts = routes.iter().filter(|route| {
        let leads_there = except.is_some() && device_of(route) == except;
        let is_own = leads_there || route.header.protocol == PROTOCOL;
        !is_own && !NOWHERE.contains(&route.header.kind)
    });
    Ok(conflicting_route(wanted, counts.filter_map(destination_of)))
}

fn read(path: &Path) -> BTreeMap<PublicKey, Ipv4Addr> {
    let found = whole_file::read(path, LONGEST).and_then(|text| parse(&text));
    found.unwrap_or_else(|error| {
        tracing::warn!("{} is ignored: {error}", path.display());
        BTreeMap::new()
    })
}

fn format(addresses: &BTreeMap<PublicKey, Ipv4Addr>) -> Vec<u8> {
    let row = |(key, address): (&PublicKey, &Ipv4Addr)| (format_public_key(key), *address);
    let terminals = addresses.iter().map(row).collect();
    let contents = AddressFile { skyhop_tunnel_addresses: FORMAT, terminals };
    serde_json::to_vec(&contents).expect("addresses are plain data")
}

fn parse(text: &[u8]) -> io::Result<BTreeMap<PublicKey, Ipv4Addr>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    // There is no file yet.
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    let contents: AddressFile = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    if contents.skyhop_tunnel_addresses != FORMAT {
        return Err(wrong(format!("its format is {}", contents.skyhop_tunnel_addresses)));
    }
    let row = |(key, address): (String, Ipv4Addr)| {
        Ok((parse_public_key(&key).map_err(|e| wrong(e.to_string()))?, address))
    };
    contents.terminals.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use os::testkit::durable_steps;

    use super::*;
    use crate::testkit::{give_address, in_namespace, permitted};

    fn addresses(state: Option<&Path>) -> TerminalAddresses {
        let prefix: Prefix = "10.213.0.0/16".parse().unwrap();
        let path = state.map(|directory| directory.join(FILE));
        let remembered = path.as_deref().map(read).unwrap_or_default();
        let pool = AddressPool::new(prefix, remembered);
        TerminalAddresses { prefix, pool, path, is_checked: true }
    }

    fn terminals(seeds: std::ops::Range<u8>) -> Vec<PermittedTerminal> {
        let terminal = |seed: u8| permitted(&format!("ship-{seed}"), PublicKey([seed; 32]));
        seeds.map(terminal).collect()
    }

    #[test]
    fn terminals_without_networks_get_an_address_that_is_their_network() {
        let mut all = terminals(1..4);
        all[0].networks = vec!["10.1.0.0/16".parse().unwrap()];
        all[1].invited = true;
        let before = all.clone();
        addresses(None).assign(&mut all);
        assert_eq!(all[..2], before[..2]);
        let own = all[2].address.unwrap();
        assert_eq!(all[2].networks, [host(own)]);
    }

    #[test]
    fn addresses_are_on_the_disk_before_they_are_used_and_are_kept_by_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = terminals(1..9);
        // Terminals with keys that begin alike compete for a place.
        all.iter_mut().for_each(|terminal| terminal.key.0[..8].fill(7));
        let mut late = all.split_off(4);
        let assign = || addresses(Some(directory.path())).assign(&mut all);
        let steps = durable_steps(directory.path(), assign);
        if let Some(steps) = steps {
            assert_eq!(steps, ["sync hub-tunnel-addresses.new", "rename", "sync ."]);
        }
        let own: BTreeMap<_, _> = all.iter().map(|one| (one.key, one.address)).collect();
        // The others alone would take the first places.
        addresses(Some(directory.path())).assign(&mut late);
        let mut again: Vec<_> = terminals(1..9);
        again.iter_mut().for_each(|terminal| terminal.key.0[..8].fill(7));
        addresses(Some(directory.path())).assign(&mut again);
        for terminal in &again {
            let kept = own.get(&terminal.key).copied().unwrap_or(terminal.address);
            assert_eq!(terminal.address, kept);
        }
    }

    #[test]
    fn a_damaged_file_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        for damaged in ["{", "{\"skyhop_tunnel_addresses\":2,\"terminals\":[]}", "[[1]]"] {
            fs::write(directory.path().join(FILE), damaged).unwrap();
            assert!(addresses(Some(directory.path())).pool.addresses().is_empty(), "{damaged}");
        }
    }

    #[test]
    fn a_route_to_the_pool_is_named_if_somebody_needs_it() {
        in_namespace(|| {
            let mut all = terminals(1..2);
            let checked = |all: &[PermittedTerminal]| {
                let mut addresses = TerminalAddresses { is_checked: false, ..addresses(None) };
                addresses.check(all).map_err(|error| error.to_string())
            };
            assert_eq!(checked(&all), Ok(()));
            give_address("lo", [10, 213, 7, 1].into());
            let error = checked(&all).unwrap_err();
            for part in ["tunnel.pool", "10.213.0.0/16", "10.213.7."] {
                assert!(error.contains(part), "{part:?} is not in: {error}");
            }
            let own = Ipv4Addr::new(10, 213, 7, 9);
            assert!(check_own(own, u32::MAX).unwrap_err().contains("10.213.7.0/24"));
            assert!(check_own(Ipv4Addr::new(10, 213, 8, 9), u32::MAX).is_ok());
            assert!(check_own(Ipv4Addr::LOCALHOST, u32::MAX).unwrap_err().contains("loopback"));
            let public = check_own(Ipv4Addr::new(8, 8, 8, 8), u32::MAX);
            assert!(public.unwrap_err().contains("not a private address"));
            all[0].networks = vec!["10.1.0.0/16".parse().unwrap()];
            assert_eq!(checked(&all), Ok(()));
        });
    }
}
