//! Routes on the clients' side: to another of the clients' networks, or to another router on one of them.
//! Their destinations do not lie across the hop, so connections to them pass. Destinations without any
//! route do lie across the hop, so that a terminal needs no default route.
//!
//! The kernel decides most of this for each SYN ([`Term::RoutedTo`]), by destination, source and mark. That
//! look-up has two limits, for which prefixes are looked up here when routes or rules change:
//!
//! - It does not know the incoming interface, which rules may match (`ip rule add iif lan0`).
//! - It returns the outgoing interface of a route, not the router. With a default route over a clients'
//!   interface (a gateway with a single interface) that does not distinguish the two sides.
//!
//! Not modelled: rules that match incoming interface and mark together; more specific routes over other
//! interfaces within a prefix that was looked up here. Both let more connections pass than necessary.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::unistd::read;
use os::netlink::{RouteSocket, is_not_found, watch_changes};
use pep::traffic::{IpFamily, Prefix};

use crate::network::nft::rule::Term;
use crate::network::nft::table::NftRule;
use crate::network::routing::{PROTOCOL, family, is_no_route};

/// Maximum prefixes to look up from each interface. Every SYN is compared with all of them.
const MOST: usize = 256;
/// Prefixes of at most this length count as default routes: `0.0.0.0/1`, `2000::/3`.
const EVERYTHING_V4: u8 = 1;
const EVERYTHING_V6: u8 = 3;
/// Link-local addresses, to which no router forwards (RFC 4291 §2.5.6).
const LINK_LOCAL: Prefix = Prefix::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10);

/// The clients' interfaces to which a connection counts as local.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LocalInterfaces {
    /// All: the other side of the hop is reached by other interfaces.
    #[default]
    AllInterfaces,
    /// The one that a packet came in by. A solo gateway splits connections between its interfaces, of
    /// which one may lead to the satellite.
    SameInterface,
}

/// Destinations that are not intercepted because of their route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LanRoutes {
    nearby: LocalInterfaces,
    /// Interfaces without a default route: a route over one of them leads to clients.
    inward: Vec<(IpFamily, String)>,
    /// Prefixes that were looked up, longest first.
    looked_up: Vec<LanRoute>,
}

/// Result of a look-up: whether packets from an interface to a prefix stay on the clients' side.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LanRoute {
    from: String,
    to: Prefix,
    is_nearby: bool,
}

impl LanRoutes {
    /// Like [`Self::look_up`], but logs a refusal of the kernel and then exempts no destination.
    pub(crate) fn of(interfaces: &[String], nearby: LocalInterfaces) -> Self {
        Self::look_up(interfaces, nearby).unwrap_or_else(|error| {
            tracing::debug!("cannot look up the routes over clients' interfaces: {error}");
            Self::default()
        })
    }

    /// Looks up the routes over these interfaces of clients.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn look_up(interfaces: &[String], nearby: LocalInterfaces) -> io::Result<Self> {
        let mut survey = Survey::of(RouteSocket::open()?, interfaces, nearby)?;
        let found = survey.look_up_routes()?;
        Ok(Self { nearby, inward: survey.inward(), looked_up: found })
    }

    /// Routes of each kind among these interfaces, for tests.
    #[cfg(test)]
    pub(crate) fn example(interfaces: &[&str]) -> Self {
        let inward = interfaces.iter().map(|name| (IpFamily::V4, (*name).to_owned())).collect();
        let found = [("10.4.0.0/16", true), ("fd00:4::/64", false)].map(|(to, is_nearby)| {
            LanRoute { from: interfaces[0].to_owned(), to: to.parse().unwrap(), is_nearby }
        });
        Self { nearby: LocalInterfaces::AllInterfaces, inward, looked_up: found.to_vec() }
    }

    /// Returns the rules for packets from `interface`: packets routed to clients return, all others
    /// continue with each of the rules `decide`.
    pub(crate) fn rules(&self, interface: &str, decide: &[NftRule]) -> Vec<NftRule> {
        let from = vec![Term::FromInterface(interface.to_owned())];
        let onward = |to: &[Term]| decide.iter().map(|rule| [&from, to, rule].concat()).collect();
        let found =
            self.looked_up.iter().filter(|route| route.from == interface).flat_map(|route| {
                let to =
                    [Term::Version(IpFamily::of(route.to.address())), Term::ToPrefix(route.to)];
                if route.is_nearby {
                    vec![[&from[..], &to, &[Term::Return]].concat()]
                } else {
                    onward(&to)
                }
            });
        let everywhere = self.nearby == LocalInterfaces::AllInterfaces;
        let inward = self.inward.iter().filter(|(_, through)| everywhere || through == interface);
        let inward = inward.map(|(version, through)| {
            let routed = [Term::Version(*version), Term::RoutedTo(through.clone()), Term::Return];
            [&from[..], &routed].concat()
        });
        // The prefixes looked up here first: that look-up knew the incoming interface.
        found.chain(inward).chain(onward(&[])).collect()
    }
}

/// Keeps [`LanRoutes`] up to date.
pub(crate) struct LanWatch {
    /// Notifications of changes; `None` if the kernel refuses them.
    changes: Option<OwnedFd>,
    interfaces: Vec<String>,
    nearby: LocalInterfaces,
    routes: LanRoutes,
}

impl LanWatch {
    /// Subscribes to changes and looks up the routes over these interfaces.
    pub(crate) fn start(interfaces: &[String], nearby: LocalInterfaces) -> Self {
        let changes = watch_changes().inspect_err(|error| {
            tracing::warn!("routes over clients' interfaces are not followed: {error}");
        });
        let mut watch = Self {
            changes: changes.ok(),
            interfaces: interfaces.to_vec(),
            nearby,
            routes: LanRoutes::default(),
        };
        watch.look_up();
        watch
    }

    pub(crate) fn routes(&self) -> &LanRoutes {
        &self.routes
    }

    /// Looks the routes up again if something has changed. Returns whether they differ.
    pub(crate) fn follow(&mut self) -> bool {
        self.has_changed() && self.look_up()
    }

    /// Looks up the routes over other interfaces. Returns whether they differ.
    pub(crate) fn follow_interfaces(&mut self, interfaces: &[String]) -> bool {
        interfaces.clone_into(&mut self.interfaces);
        self.look_up()
    }

    fn has_changed(&self) -> bool {
        let Some(changes) = &self.changes else { return false };
        let mut buffer = [0; 8 << 10];
        let mut changed = false;
        loop {
            match read(changes, &mut buffer) {
                // ENOBUFS: the kernel has dropped notifications.
                Ok(1..) | Err(Errno::ENOBUFS) => changed = true,
                _ => return changed,
            }
        }
    }

    fn look_up(&mut self) -> bool {
        match LanRoutes::look_up(&self.interfaces, self.nearby) {
            Ok(routes) => std::mem::replace(&mut self.routes, routes) != self.routes,
            Err(error) => {
                tracing::debug!("cannot look up the routes over clients' interfaces: {error}");
                false
            }
        }
    }
}

/// Look-up of the routes over the clients' interfaces.
struct Survey {
    kernel: RouteSocket,
    interfaces: Vec<LanInterface>,
    nearby: LocalInterfaces,
}

/// A clients' interface with its routes.
struct LanInterface {
    name: String,
    index: u32,
    routes: Vec<LanNextHop>,
    /// A routing rule matches it as the incoming interface.
    is_matched_by_rule: bool,
}

/// A route over a clients' interface, with its router; `None` for neighbours.
struct LanNextHop {
    to: Prefix,
    router: Option<IpAddr>,
}

impl LanInterface {
    /// Routers of the default routes over this interface.
    fn uplinks(&self, version: IpFamily) -> impl Iterator<Item = Option<IpAddr>> {
        let everything = move |hop: &&LanNextHop| is_everything(hop.to, version);
        self.routes.iter().filter(everything).map(|hop| hop.router)
    }

    fn is_uplink(&self, version: IpFamily) -> bool {
        self.uplinks(version).next().is_some()
    }

    /// A few addresses of each directly connected network, which neighbours may have.
    fn neighbours(&self, version: IpFamily) -> impl Iterator<Item = IpAddr> {
        let direct = self.routes.iter().filter(|hop| hop.router.is_none());
        direct.filter(move |hop| is_of(hop.to, version)).flat_map(|hop| sample_hosts(hop.to))
    }
}

fn is_of(prefix: Prefix, version: IpFamily) -> bool {
    IpFamily::of(prefix.address()) == version
}

fn is_everything(prefix: Prefix, version: IpFamily) -> bool {
    let most = if version == IpFamily::V4 { EVERYTHING_V4 } else { EVERYTHING_V6 };
    is_of(prefix, version) && prefix.length() <= most
}

impl Survey {
    fn of(mut kernel: RouteSocket, names: &[String], nearby: LocalInterfaces) -> io::Result<Self> {
        let in_rules = incoming_interfaces(&mut kernel)?;
        let mut interfaces = Vec::new();
        for name in names {
            // An absent interface has no routes. The look-up is repeated when it appears.
            let Ok(index) = if_nametoindex(name.as_str()) else { continue };
            let routes = kernel.routes_through(index)?;
            let routes = routes.iter().filter_map(|route| LanNextHop::of(route, index)).collect();
            let is_in_rules = in_rules.contains(name);
            interfaces.push(LanInterface {
                name: name.clone(),
                index,
                routes,
                is_matched_by_rule: is_in_rules,
            });
        }
        Ok(Self { kernel, interfaces, nearby })
    }

    fn inward(&self) -> Vec<(IpFamily, String)> {
        let of = |version| {
            let inward = self.interfaces.iter().filter(move |each| !each.is_uplink(version));
            inward.map(move |each| (version, each.name.clone()))
        };
        of(IpFamily::V4).chain(of(IpFamily::V6)).collect()
    }

    fn look_up_routes(&mut self) -> io::Result<Vec<LanRoute>> {
        let mut found = Vec::new();
        for version in IpFamily::BOTH {
            let everywhere = self.nearby == LocalInterfaces::AllInterfaces;
            // Then the outgoing interface does not tell clients from the way to the hop.
            let is_one_armed =
                everywhere && self.interfaces.iter().any(|each| each.is_uplink(version));
            // Elsewhere the kernel's own look-up is enough, which each SYN takes in the table.
            let asking = self.interfaces.iter().enumerate();
            let asking = asking.filter(|(_, each)| {
                each.is_matched_by_rule || is_one_armed || each.is_uplink(version)
            });
            let asking: Vec<usize> = asking.map(|(place, _)| place).collect();
            for place in asking {
                let index = self.interfaces[place].index;
                let name = self.interfaces[place].name.clone();
                let Some(source) = self.neighbour(place, version) else { continue };
                for to in self.prefixes(version) {
                    let Some(is_nearby) = self.is_nearby(source, index, to)? else { continue };
                    found.push(LanRoute { from: name.clone(), to, is_nearby });
                }
            }
        }
        Ok(found)
    }

    /// Finds a possible neighbour on this interface, as the source address of look-ups.
    fn neighbour(&mut self, place: usize, version: IpFamily) -> Option<IpAddr> {
        let mut neighbours = self.interfaces[place].neighbours(version);
        neighbours.find(|address| {
            // Not an address of this machine, which the kernel rejects as the source of a received packet.
            let route = self.kernel.route(*address);
            route.is_ok_and(|route| route.header.kind == RouteType::Unicast)
        })
    }

    /// Destination prefixes of the routes over the interfaces, longest first, without default routes.
    fn prefixes(&self, version: IpFamily) -> Vec<Prefix> {
        let all = self.interfaces.iter().flat_map(|each| &each.routes).map(|hop| hop.to);
        let specific = all.filter(|to| {
            is_of(*to, version) && !is_everything(*to, version) && !LINK_LOCAL.covers(*to)
        });
        let sorted: BTreeSet<_> =
            specific.map(|to| (u8::MAX - to.length(), to.address())).collect();
        if sorted.len() > MOST {
            tracing::debug!("looked up {MOST} of {} routes over clients' interfaces", sorted.len());
        }
        let prefix = |(rank, address): (u8, IpAddr)| Prefix::around(address, u8::MAX - rank);
        sorted.into_iter().take(MOST).filter_map(prefix).collect()
    }

    /// Looks up whether packets with this source and incoming interface (by index) are routed to clients, or
    /// to another router than the default route's. `None` if they have no route, or are for this machine.
    fn is_nearby(&mut self, source: IpAddr, incoming: u32, to: Prefix) -> io::Result<Option<bool>> {
        let everywhere = self.nearby == LocalInterfaces::AllInterfaces;
        for address in sample_hosts(to) {
            let route = match self.kernel.route_from(source, incoming, address) {
                Ok(route) if route.header.kind == RouteType::Unicast => route,
                Ok(_) => continue,
                Err(error) if is_no_route(&error) => continue,
                Err(error) => return Err(error),
            };
            let version = IpFamily::of(address);
            let mut nearby =
                self.interfaces.iter().filter(|each| everywhere || each.index == incoming);
            let through = nearby.find(|each| device_of(&route) == Some(each.index));
            let router = router_of(&route.attributes);
            // A route by the default route's router leads to the WAN, though over a clients' interface.
            let leads_to_clients =
                |through: &LanInterface| through.uplinks(version).all(|uplink| uplink != router);
            return Ok(Some(through.is_some_and(leads_to_clients)));
        }
        Ok(None)
    }
}

impl LanNextHop {
    /// Extracts the part of a route over the device; `None` for routes that do not forward packets, and for
    /// the gateways' own.
    fn of(route: &RouteMessage, device: u32) -> Option<Self> {
        if route.header.kind != RouteType::Unicast || route.header.protocol == PROTOCOL {
            return None;
        }
        let mut router = router_of(&route.attributes);
        for attribute in &route.attributes {
            if let RouteAttribute::MultiPath(hops) = attribute {
                let hop = hops.iter().find(|hop| hop.interface_index == device)?;
                router = router_of(&hop.attributes);
            }
        }
        Some(Self { to: destination_of(route)?, router })
    }
}

/// Returns the destinations of a route; `None` if it is not of IP.
pub(crate) fn destination_of(route: &RouteMessage) -> Option<Prefix> {
    let unspecified: IpAddr = match route.header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::from(*address)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some((*address).into()),
        _ => None,
    });
    let to = destination.unwrap_or(unspecified);
    Prefix::around(to, route.header.destination_prefix_length)
}

fn router_of(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(router)) => Some((*router).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(router)) => Some((*router).into()),
        RouteAttribute::Via(RouteVia::Inet(router)) => Some((*router).into()),
        RouteAttribute::Via(RouteVia::Inet6(router)) => Some((*router).into()),
        _ => None,
    })
}

/// Returns the index of the device that a route with a single next hop leads to.
pub(crate) fn device_of(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(device) => Some(*device),
        _ => None,
    })
}

/// Returns up to three host addresses of a prefix, to look up in its place.
fn sample_hosts(prefix: Prefix) -> impl Iterator<Item = IpAddr> {
    let address = prefix.address();
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let free = bits - u32::from(prefix.length());
    let last = 1u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
    let numbers = match last {
        0 | 1 => vec![0, last],
        // The middle first: the first host is usually a router, such as this machine.
        _ => vec![last / 2, 1, last - 1],
    };
    numbers.into_iter().map(move |number| match address {
        IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | number as u32).into(),
        IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | number).into(),
    })
}

/// Names of the incoming interfaces that routing rules match.
fn incoming_interfaces(kernel: &mut RouteSocket) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for version in IpFamily::BOTH {
        let mut rule = RuleMessage::default();
        rule.header.family = family(version);
        let rules = match kernel.list(RouteNetlinkMessage::GetRule(rule)) {
            Ok(rules) => rules,
            Err(error) if is_not_found(&error) => continue,
            Err(error) => return Err(error),
        };
        for rule in rules {
            let RouteNetlinkMessage::NewRule(rule) = rule else { continue };
            names.extend(rule.attributes.into_iter().filter_map(|attribute| match attribute {
                RuleAttribute::Iifname(name) => Some(name),
                _ => None,
            }));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
