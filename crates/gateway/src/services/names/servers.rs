//! The upstream resolvers: configured ones, or this machine's own.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use units::Instant;

/// The list of this machine's resolvers (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Time after which the list is read again.
const LIST_LIFETIME: Duration = Duration::from_secs(5);
/// Resolvers used of the list: as many as the C library uses (resolv.conf(5), MAXNS).
const MAX_LISTED: usize = 3;
const PORT: u16 = 53;

/// The upstream resolvers of a gateway.
pub(crate) struct ResolverList {
    configured: Vec<SocketAddr>,
    /// Our own addresses: to ask ourselves would be a loop.
    own: Vec<SocketAddr>,
    read: Mutex<Option<(Instant, Vec<SocketAddr>)>>,
}

impl ResolverList {
    /// Uses these resolvers, or this machine's if the list is empty, except those at our `own`
    /// addresses.
    pub(crate) fn new(configured: Vec<SocketAddr>, own: Vec<SocketAddr>) -> Self {
        Self { configured, own, read: Mutex::default() }
    }

    /// The configured resolvers, if there are any.
    pub(crate) fn configured(&self) -> Option<&[SocketAddr]> {
        (!self.configured.is_empty()).then_some(&self.configured)
    }

    /// The resolvers in the order in which to ask them.
    pub(crate) fn list(&self, now: Instant) -> Vec<SocketAddr> {
        if !self.configured.is_empty() {
            return self.configured.clone();
        }
        let mut read = self.read.lock().expect("nobody panics while reading the list");
        if let Some((at, servers)) = &*read
            && now.saturating_since(*at) < LIST_LIFETIME
        {
            return servers.clone();
        }
        let mut servers = parse(&fs::read_to_string(RESOLV_CONF).unwrap_or_default());
        servers.retain(|server| !self.own.contains(server));
        *read = Some((now, servers.clone()));
        servers
    }
}

/// Parses a list of resolvers; without any, this machine is assumed to have one (resolv.conf(5)).
fn parse(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let value = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        value.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, PORT))
    };
    let listed: Vec<_> = text.lines().filter_map(address).take(MAX_LISTED).collect();
    if listed.is_empty() { vec![([127, 0, 0, 1], PORT).into()] } else { listed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_resolvers_are_those_of_its_list() {
        let text = "# nameserver 192.0.2.9\nsearch example\n  nameserver 192.0.2.1 \nnameserver ::1\n\
                    nameserver nonsense\nnameservers 192.0.2.3\noptions edns0\nnameserver 192.0.2.4\n\
                    nameserver 192.0.2.5\n";
        let servers: Vec<String> = parse(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[::1]:53", "192.0.2.4:53"]);
        assert_eq!(parse(""), ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn configured_resolvers_replace_the_machines() {
        let server: SocketAddr = "192.0.2.53:5353".parse().unwrap();
        assert_eq!(ResolverList::new(vec![server], vec![]).list(Instant::ZERO), [server]);
    }
}
