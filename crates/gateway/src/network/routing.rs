//! Routing of marked packets into a device, or to this machine, whatever their destination: a rule by packet mark
//! and a routing table with one route, for IPv4 and IPv6.
//!
//! Rule and route have a protocol number by which they are recognised. Leftovers of a killed gateway are
//! harmless, since nothing sets the mark any more, and the next start removes them. Requests are
//! synchronous, so that dropping [`Routing`] removes everything on every kind of exit.

mod kind;

pub(crate) use self::kind::{is_no_route, kind_of};

use std::io;

use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use os::netlink::RouteSocket;
use pep::traffic::IpFamily;

use crate::network::namespace_slot::NamespaceSlot;
use crate::network::nft::table::exists;
use crate::process::refusal::{KernelOperation, KernelRefusal};

/// Routing protocol number of skyhop, unused in iproute2's `rt_protos`.
pub(crate) const PROTOCOL: RouteProtocol = RouteProtocol::Other(159);
/// Priority of the rule: after that for local addresses (0), before the operator's own rules.
const PRIORITY: u32 = 59;
/// The loopback device has index 1 in every network namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// The rules and routes of one slot. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Routing<S: NamespaceSlot> {
    slot: S,
    /// Index of the device that the routes lead to.
    device: u32,
}

impl<S: NamespaceSlot> Routing<S> {
    /// Installs rules and routes that lead the packets of `slot` to the device with index `device`, and removes
    /// leftovers of killed gateways. Also returns a refusal for IPv6; then only IPv4 works.
    ///
    /// # Errors
    /// The kernel's refusal for IPv4.
    pub(crate) fn install(
        slot: S,
        device: u32,
        versions: &[IpFamily],
    ) -> Result<(Self, Option<KernelRefusal>), KernelRefusal> {
        let refused = KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4));
        let mut kernel = RouteSocket::open().map_err(&refused)?;
        for other in S::all() {
            // The kernel removes a table with its process, so routes without a table are leftovers.
            let leftover = other == slot
                || !exists(&other.table_name())
                    .map_err(KernelRefusal::wrap(KernelOperation::Nftables))?;
            if leftover {
                remove_all(&mut kernel, other).map_err(&refused)?;
            }
        }
        // From here on an error drops the value, which removes what was installed.
        let routing = Self { slot, device };
        let without_v6 = for_versions(versions, |version| routing.add(&mut kernel, version))?;
        Ok((routing, without_v6))
    }

    /// Adds missing rules and routes: those refused at the start, or removed by the kernel when IPv6 or the
    /// device was switched off. Also returns a refusal for IPv6.
    ///
    /// # Errors
    /// The kernel's refusal for IPv4.
    pub(crate) fn restore(
        &self,
        versions: &[IpFamily],
    ) -> Result<Option<KernelRefusal>, KernelRefusal> {
        let mut kernel = RouteSocket::open()
            .map_err(KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4)))?;
        for_versions(versions, |version| self.add(&mut kernel, version))
    }

    /// Index of the device that the routes lead to.
    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    /// Leads to another device from the next [`Self::restore`] on.
    pub(crate) fn lead_to(&mut self, device: u32) {
        self.device = device;
    }

    fn add(&self, kernel: &mut RouteSocket, version: IpFamily) -> Result<(), KernelRefusal> {
        let mut route = route(self.slot, version);
        route.attributes.push(RouteAttribute::Oif(self.device));
        let route = kernel.ensure(RouteNetlinkMessage::NewRoute(route));
        route.map_err(KernelRefusal::wrap(KernelOperation::Route(version)))?;
        let rule = kernel.ensure(RouteNetlinkMessage::NewRule(rule(self.slot, version)));
        rule.map_err(KernelRefusal::wrap(KernelOperation::Rule(version)))
    }
}

/// Runs `work` for each version, even after a failure. A refusal for IPv6 is returned as a value.
///
/// # Errors
/// The refusal for IPv4.
pub(crate) fn for_versions(
    versions: &[IpFamily],
    mut work: impl FnMut(IpFamily) -> Result<(), KernelRefusal>,
) -> Result<Option<KernelRefusal>, KernelRefusal> {
    // IPv4 is required, IPv6 is not: machines without it, or with it switched off, are common.
    let mut without_v4 = Ok(());
    let mut without_v6 = None;
    for version in versions {
        match work(*version) {
            Err(refusal) if *version == IpFamily::V6 => without_v6 = Some(refusal),
            done => without_v4 = without_v4.and(done),
        }
    }
    without_v4.map(|()| without_v6)
}

impl<S: NamespaceSlot> Drop for Routing<S> {
    fn drop(&mut self) {
        if let Err(error) =
            RouteSocket::open().and_then(|mut kernel| remove_all(&mut kernel, self.slot))
        {
            tracing::warn!("cannot remove routing table {}: {error}", self.slot.routing_table());
        }
    }
}

/// Returns whether the loopback device is up. Without it, IPv4 connections can be redirected, but the
/// kernel refuses the IPv6 route.
pub(crate) fn is_loopback_up() -> bool {
    let devices = getifaddrs().into_iter().flatten();
    let mut loopback = devices.filter(|device| device.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    loopback.any(|device| device.flags.contains(InterfaceFlags::IFF_UP))
}

/// Formats rules and routes as `ip` commands in comments.
pub(crate) fn display(slot: impl NamespaceSlot, device: &str, versions: &[IpFamily]) -> String {
    versions.iter().map(|version| display_version(slot, device, *version)).collect()
}

fn display_version<S: NamespaceSlot>(slot: S, device: &str, version: IpFamily) -> String {
    let family = if version == IpFamily::V4 { "" } else { "-6 " };
    let kind = if S::IS_LOCAL { "local " } else { "" };
    let (mark, table) = (slot.mark(), slot.routing_table());
    format!(
        "# ip {family}rule add priority {PRIORITY} fwmark {:#x}/{:#x} lookup {table}\n\
         # ip {family}route add {kind}default dev {device} table {table}\n",
        mark.value, mark.mask
    )
}

/// Builds the rule that routes packets with the mark of a slot by its table.
fn rule(slot: impl NamespaceSlot, version: IpFamily) -> RuleMessage {
    let mark = slot.mark();
    let mut rule = RuleMessage::default();
    rule.header.family = family(version);
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::FwMark(mark.value),
        RuleAttribute::FwMask(mark.mask),
        RuleAttribute::Table(slot.routing_table()),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    rule
}

/// Builds the route of a slot without its device.
fn route<S: NamespaceSlot>(slot: S, version: IpFamily) -> RouteMessage {
    let kind = if S::IS_LOCAL { RouteType::Local } else { RouteType::Unicast };
    let mut route = route_of_kind(kind, version);
    route.attributes = vec![RouteAttribute::Table(slot.routing_table())];
    route
}

/// Builds a route of ours with the scope that the kernel expects of its kind.
pub(crate) fn route_of_kind(kind: RouteType, version: IpFamily) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(version);
    route.header.protocol = PROTOCOL;
    route.header.kind = kind;
    route.header.scope = match (version, kind) {
        (IpFamily::V6, _) => RouteScope::Universe,
        (IpFamily::V4, RouteType::Local) => RouteScope::Host,
        (IpFamily::V4, _) => RouteScope::Link,
    };
    route
}

/// Address family of an IP version.
pub(crate) fn family(version: IpFamily) -> AddressFamily {
    match version {
        IpFamily::V4 => AddressFamily::Inet,
        IpFamily::V6 => AddressFamily::Inet6,
    }
}

/// Removes all rules and routes of `slot`, including duplicates.
fn remove_all(kernel: &mut RouteSocket, slot: impl NamespaceSlot) -> io::Result<()> {
    for version in IpFamily::BOTH {
        while kernel.remove(RouteNetlinkMessage::DelRule(rule(slot, version)))? {}
        while kernel.remove(RouteNetlinkMessage::DelRoute(route(slot, version)))? {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
