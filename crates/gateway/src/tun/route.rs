//! Routes marked packets into the tunnel's device: a rule by packet mark and a routing table of our
//! own with one route, for IPv4 and IPv6.
//!
//! As with interception, remains of a killed gateway are harmless (its nftables table is gone, and
//! with it the marks), and the next start removes them.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteScope, RouteType};
use os::netlink::RouteSocket;
use pep::traffic::IpFamily;

use crate::intercept::netfilter::SLOTS;
use crate::intercept::nft_table::exists;
use crate::intercept::routing::{self, PROTOCOL};
use crate::intercept::rule::FirewallMark;
use crate::refusal::{KernelOperation, KernelRefusal};

/// Routing tables 5920 and up, one per slot.
const FIRST_TABLE: u32 = 5920;
/// The four bits above those of interception.
const MARK_SHIFT: u32 = 25;
const VERSIONS: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// A tunnel's slot in a network namespace. It determines its nftables table, packet mark and
/// routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// Name of the nftables table.
    pub(crate) fn table_name(self) -> String {
        format!("skyhop-tunnel-{}", self.0)
    }

    /// Mark of packets for the tunnel.
    pub(crate) fn mark(self) -> FirewallMark {
        FirewallMark { value: (self.0 + 1) << MARK_SHIFT, mask: 0xf << MARK_SHIFT }
    }

    fn routes(self) -> u32 {
        FIRST_TABLE + self.0
    }
}

/// The rules and routes of one tunnel. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Route {
    slot: Slot,
    /// Index of the tunnel's device.
    device: u32,
}

impl Route {
    /// Routes packets with the mark of `slot` into the device with index `device`, and removes the
    /// remains of tunnels that have died. Also returns a refusal for IPv6; then only IPv4 works.
    ///
    /// # Errors
    /// The kernel's refusal for IPv4.
    pub(crate) fn install(
        slot: Slot,
        device: u32,
    ) -> Result<(Self, Option<KernelRefusal>), KernelRefusal> {
        let mut kernel = RouteSocket::open()
            .map_err(KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4)))?;
        for other in (0..SLOTS).map(Slot) {
            // The kernel removes a table with its process, so routes without a table are leftovers.
            let leftover = other == slot
                || !exists(&other.table_name())
                    .map_err(KernelRefusal::wrap(KernelOperation::Nftables))?;
            if leftover {
                sweep(&mut kernel, other)
                    .map_err(KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4)))?;
            }
        }
        // From here on an error drops the value, which removes what was installed.
        let installed = Self { slot, device };
        let without_v6 =
            routing::for_versions(&VERSIONS, |version| installed.add(&mut kernel, version))?;
        Ok((installed, without_v6))
    }

    /// Adds missing rules and routes, as [`crate::intercept::routing::Routing::restore`] does.
    pub(crate) fn restore(&self) -> Result<Option<KernelRefusal>, KernelRefusal> {
        let mut kernel = RouteSocket::open()
            .map_err(KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4)))?;
        routing::for_versions(&VERSIONS, |version| self.add(&mut kernel, version))
    }

    /// Leads to another device from the next [`Self::restore`] on.
    pub(crate) fn lead_to(&mut self, device: u32) {
        self.device = device;
    }

    fn add(&self, kernel: &mut RouteSocket, version: IpFamily) -> Result<(), KernelRefusal> {
        let mut route = route(self.slot, version);
        route.attributes.push(RouteAttribute::Oif(self.device));
        let rule = routing::rule(self.slot.mark(), self.slot.routes(), version);
        routing::ensure(kernel, route, rule, version)
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        let swept = RouteSocket::open().and_then(|mut kernel| sweep(&mut kernel, self.slot));
        if let Err(error) = swept {
            tracing::warn!("cannot remove routing table {}: {error}", self.slot.routes());
        }
    }
}

/// Removes everything of `slot`, including duplicates.
fn sweep(kernel: &mut RouteSocket, slot: Slot) -> io::Result<()> {
    for version in VERSIONS {
        let rule = || routing::rule(slot.mark(), slot.routes(), version);
        while kernel.remove(RouteNetlinkMessage::DelRule(rule()))? {}
        while kernel.remove(RouteNetlinkMessage::DelRoute(route(slot, version)))? {}
    }
    Ok(())
}

fn route(slot: Slot, version: IpFamily) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = routing::family(version);
    route.header.protocol = PROTOCOL;
    route.header.kind = RouteType::Unicast;
    route.header.scope = match version {
        IpFamily::V4 => RouteScope::Link,
        IpFamily::V6 => RouteScope::Universe,
    };
    route.attributes = vec![RouteAttribute::Table(slot.routes())];
    route
}

/// Formats rules and routes as `ip` commands in comments.
pub(crate) fn display(slot: Slot, device: &str) -> String {
    let mark = slot.mark();
    let table = slot.routes();
    let line = |version: &IpFamily| {
        let family = if *version == IpFamily::V4 { "" } else { "-6 " };
        format!(
            "# ip {family}rule add priority {} fwmark {:#x}/{:#x} lookup {table}\n\
             # ip {family}route add default dev {device} table {table}\n",
            routing::PRIORITY,
            mark.value,
            mark.mask
        )
    };
    VERSIONS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intercept::netfilter;
    use crate::intercept::rule::PASS_MARK;

    /// Gateways of one namespace share the packet mark: each kind has bits of its own, and each
    /// slot a value.
    #[test]
    fn no_two_uses_of_the_packet_mark_meet() {
        let intercepted = netfilter::GatewaySlot(0).mark().mask;
        let tunnelled = Slot(0).mark().mask;
        assert_eq!(intercepted & tunnelled | (intercepted | tunnelled) & PASS_MARK.mask, 0);
        let mut values: Vec<u32> = (0..SLOTS)
            .flat_map(|slot| [netfilter::GatewaySlot(slot).mark(), Slot(slot).mark()])
            .map(|mark| {
                assert!(mark.value != 0 && mark.value & !mark.mask == 0, "{mark:x?}");
                mark.value
            })
            .collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), 2 * SLOTS as usize);
    }

    #[test]
    fn the_printed_commands_are_of_the_slot() {
        let printed = display(Slot(2), "skyhop0");
        assert_eq!(printed.matches("fwmark 0x6000000/0x1e000000 lookup 5922").count(), 2);
        assert_eq!(printed.matches("route add default dev skyhop0 table 5922").count(), 2);
        assert_eq!(printed.matches("ip -6 ").count(), 2);
        assert_ne!(Slot(2).table_name(), netfilter::GatewaySlot(2).table());
    }
}
