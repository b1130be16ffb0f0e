//! Routing of marked packets to this machine, whatever their destination: a rule by packet mark and a
//! routing table with one local route, for IPv4 and IPv6.
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

use crate::intercept::netfilter::{GatewaySlot, SLOTS, is_claimed};
use crate::intercept::rule::FirewallMark;
use crate::refusal::{KernelOperation, KernelRefusal};

/// Routing protocol number of skyhop, unused in iproute2's `rt_protos`.
pub(crate) const PROTOCOL: RouteProtocol = RouteProtocol::Other(159);
/// First routing table; each slot has one.
const FIRST_TABLE: u32 = 5900;
/// Priority of the rule: after that for local addresses (0), before the operator's own rules.
pub(crate) const PRIORITY: u32 = 59;
/// The loopback device has index 1 in every network namespace.
const LOOPBACK: u32 = 1;

/// The rules and routes of one gateway. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Routing {
    slot: GatewaySlot,
}

impl Routing {
    /// Installs rules and routes for the packets of `slot`, and removes leftovers of killed gateways. Also
    /// returns a refusal for IPv6; then only IPv4 works.
    ///
    /// # Errors
    /// The kernel's refusal for IPv4.
    pub(crate) fn install(
        slot: GatewaySlot,
        versions: &[IpFamily],
    ) -> Result<(Self, Option<KernelRefusal>), KernelRefusal> {
        let mut kernel = RouteSocket::open()
            .map_err(KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4)))?;
        for other in (0..SLOTS).map(GatewaySlot) {
            // The kernel removes a table with its process, so routes without a table are leftovers.
            let leftover = other == slot
                || !is_claimed(other).map_err(KernelRefusal::wrap(KernelOperation::Nftables))?;
            if leftover {
                remove_all(&mut kernel, other)
                    .map_err(KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4)))?;
            }
        }
        // From here on an error drops the value, which removes what was installed.
        let routing = Self { slot };
        let without_v6 = for_versions(versions, |version| routing.add(&mut kernel, version))?;
        Ok((routing, without_v6))
    }

    /// Adds missing rules and routes: those refused at the start, or removed by the kernel when IPv6 or the
    /// loopback device was switched off. Also returns a refusal for IPv6.
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

    fn add(&self, kernel: &mut RouteSocket, version: IpFamily) -> Result<(), KernelRefusal> {
        let rule = rule(self.slot.mark(), table(self.slot), version);
        ensure(kernel, route(self.slot, version), rule, version)
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

impl Drop for Routing {
    fn drop(&mut self) {
        if let Err(error) =
            RouteSocket::open().and_then(|mut kernel| remove_all(&mut kernel, self.slot))
        {
            tracing::warn!("cannot remove routing table {}: {error}", table(self.slot));
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
pub(crate) fn display(slot: GatewaySlot, versions: &[IpFamily]) -> String {
    let mark = slot.mark();
    let line = |version: &IpFamily| {
        let family = if *version == IpFamily::V4 { "" } else { "-6 " };
        let table = table(slot);
        format!(
            "# ip {family}rule add priority {PRIORITY} fwmark {:#x}/{:#x} lookup {table}\n\
             # ip {family}route add local default dev lo table {table}\n",
            mark.value, mark.mask
        )
    };
    versions.iter().map(line).collect()
}

fn table(slot: GatewaySlot) -> u32 {
    FIRST_TABLE + slot.0
}

/// Builds the rule that routes packets with a mark by a table.
pub(crate) fn rule(mark: FirewallMark, table: u32, version: IpFamily) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family(version);
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::FwMark(mark.value),
        RuleAttribute::FwMask(mark.mask),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    rule
}

fn route(slot: GatewaySlot, version: IpFamily) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(version);
    route.header.protocol = PROTOCOL;
    route.header.kind = RouteType::Local;
    route.header.scope = match version {
        IpFamily::V4 => RouteScope::Host,
        IpFamily::V6 => RouteScope::Universe,
    };
    route.attributes = vec![RouteAttribute::Table(table(slot)), RouteAttribute::Oif(LOOPBACK)];
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
fn remove_all(kernel: &mut RouteSocket, slot: GatewaySlot) -> io::Result<()> {
    for version in [IpFamily::V4, IpFamily::V6] {
        let rule = || rule(slot.mark(), table(slot), version);
        while kernel.remove(RouteNetlinkMessage::DelRule(rule()))? {}
        while kernel.remove(RouteNetlinkMessage::DelRoute(route(slot, version)))? {}
    }
    Ok(())
}

/// Adds a route and the rule that leads to it, unless they exist.
pub(crate) fn ensure(
    kernel: &mut RouteSocket,
    route: RouteMessage,
    rule: RuleMessage,
    version: IpFamily,
) -> Result<(), KernelRefusal> {
    let route = kernel.ensure(RouteNetlinkMessage::NewRoute(route));
    route.map_err(KernelRefusal::wrap(KernelOperation::Route(version)))?;
    let rule = kernel.ensure(RouteNetlinkMessage::NewRule(rule));
    rule.map_err(KernelRefusal::wrap(KernelOperation::Rule(version)))
}

#[cfg(test)]
mod tests;
