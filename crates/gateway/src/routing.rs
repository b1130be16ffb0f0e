//! Routes packets with our mark to this machine, whatever their destination: a rule by packet mark
//! and a routing table of our own with one local route, for IPv4 and IPv6.
//!
//! Rule and route have our own protocol number, by which they are recognised. Remains of a killed
//! gateway are harmless (nothing sets the mark any more), and the next start removes them. Requests
//! are synchronous, so that dropping [`Routing`] removes everything on every kind of exit.

mod kind;

use std::io;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use pep::traffic::Version;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::{Socket, protocols::NETLINK_ROUTE};

use crate::netfilter::{SLOTS, Slot, is_claimed};
use crate::refusal::{Operation, Refusal};
use crate::rule::Mark;

/// Our routing protocol number, unused in iproute2's `rt_protos`.
pub(crate) const PROTOCOL: RouteProtocol = RouteProtocol::Other(159);
/// Routing tables 5900 and up, one per slot.
const FIRST_TABLE: u32 = 5900;
/// After the rule for local addresses (0), before the operator's own rules.
pub(crate) const PRIORITY: u32 = 59;
/// The loopback device has index 1 in every network namespace.
const LOOPBACK: u32 = 1;

/// The rules and routes of one gateway. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Routing {
    slot: Slot,
}

impl Routing {
    /// Installs rules and routes for the packets of `slot`, and removes the remains of gateways
    /// that have died. Also returns a refusal for IPv6; then only IPv4 works.
    ///
    /// # Errors
    /// The kernel's refusal for IPv4.
    pub(crate) fn install(
        slot: Slot,
        versions: &[Version],
    ) -> Result<(Self, Option<Refusal>), Refusal> {
        let mut kernel = Kernel::open().map_err(Refusal::of(Operation::Route(Version::V4)))?;
        for other in (0..SLOTS).map(Slot) {
            let leftover =
                other == slot || !is_claimed(other).map_err(Refusal::of(Operation::Nftables))?;
            if leftover {
                kernel.sweep(other).map_err(Refusal::of(Operation::Route(Version::V4)))?;
            }
        }
        // From here on an error drops the value, which removes what was installed.
        let routing = Self { slot };
        let without_v6 = for_versions(versions, |version| routing.add(&mut kernel, version))?;
        Ok((routing, without_v6))
    }

    /// Adds whatever is missing: refused at the start, or removed by the kernel when IPv6 or the
    /// loopback device was switched off. Also returns a refusal for IPv6.
    ///
    /// # Errors
    /// The kernel's refusal for IPv4.
    pub(crate) fn restore(&self, versions: &[Version]) -> Result<Option<Refusal>, Refusal> {
        let mut kernel = Kernel::open().map_err(Refusal::of(Operation::Route(Version::V4)))?;
        for_versions(versions, |version| self.add(&mut kernel, version))
    }

    fn add(&self, kernel: &mut Kernel, version: Version) -> Result<(), Refusal> {
        let rule = rule(self.slot.mark(), table(self.slot), version);
        kernel.add(route(self.slot, version), rule, version)
    }
}

/// Runs `work` for these versions. A machine may have no IPv6, or have it switched off, so a
/// refusal for IPv6 is returned instead of failing.
pub(crate) fn for_versions(
    versions: &[Version],
    mut work: impl FnMut(Version) -> Result<(), Refusal>,
) -> Result<Option<Refusal>, Refusal> {
    let mut without_v6 = None;
    for version in versions {
        match work(*version) {
            Err(refusal) if *version == Version::V6 => without_v6 = Some(refusal),
            done => done?,
        }
    }
    Ok(without_v6)
}

impl Drop for Routing {
    fn drop(&mut self) {
        if let Err(error) = Kernel::open().and_then(|mut kernel| kernel.sweep(self.slot)) {
            tracing::warn!("cannot remove routing table {}: {error}", table(self.slot));
        }
    }
}

/// Whether the loopback device is up. IPv4 connections are redirected without it; the kernel
/// refuses the IPv6 route.
pub(crate) fn is_loopback_up() -> bool {
    let devices = getifaddrs().into_iter().flatten();
    let mut loopback = devices.filter(|device| device.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    loopback.any(|device| device.flags.contains(InterfaceFlags::IFF_UP))
}

/// Equivalent `ip` commands.
pub(crate) fn display(slot: Slot, versions: &[Version]) -> String {
    let mark = slot.mark();
    let line = |version: &Version| {
        let family = if *version == Version::V4 { "" } else { "-6 " };
        let table = table(slot);
        format!(
            "# ip {family}rule add priority {PRIORITY} fwmark {:#x}/{:#x} lookup {table}\n\
             # ip {family}route add local default dev lo table {table}\n",
            mark.value, mark.mask
        )
    };
    versions.iter().map(line).collect()
}

fn table(slot: Slot) -> u32 {
    FIRST_TABLE + slot.0
}

/// A rule that routes packets with a mark by a table.
pub(crate) fn rule(mark: Mark, table: u32, version: Version) -> RuleMessage {
    rule_at(PRIORITY, mark, table, version)
}

/// Like [`rule`], with another priority.
pub(crate) fn rule_at(priority: u32, mark: Mark, table: u32, version: Version) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family(version);
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::Priority(priority),
        RuleAttribute::FwMark(mark.value),
        RuleAttribute::FwMask(mark.mask),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    rule
}

fn route(slot: Slot, version: Version) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(version);
    route.header.protocol = PROTOCOL;
    route.header.kind = RouteType::Local;
    route.header.scope = match version {
        Version::V4 => RouteScope::Host,
        Version::V6 => RouteScope::Universe,
    };
    route.attributes = vec![RouteAttribute::Table(table(slot)), RouteAttribute::Oif(LOOPBACK)];
    route
}

/// Address family of an IP version.
pub(crate) fn family(version: Version) -> AddressFamily {
    match version {
        Version::V4 => AddressFamily::Inet,
        Version::V6 => AddressFamily::Inet6,
    }
}

/// A netlink socket to the kernel's routing tables.
pub(crate) struct Kernel {
    socket: Socket,
    sequence: u32,
}

impl Kernel {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::new(NETLINK_ROUTE)?, sequence: 0 })
    }

    /// Removes everything of `slot`, including duplicates.
    fn sweep(&mut self, slot: Slot) -> io::Result<()> {
        for version in [Version::V4, Version::V6] {
            let rule = || rule(slot.mark(), table(slot), version);
            while self.remove(RouteNetlinkMessage::DelRule(rule()))? {}
            while self.remove(RouteNetlinkMessage::DelRoute(route(slot, version)))? {}
        }
        Ok(())
    }

    /// Ensures that a route, and the rule that leads to it, exist exactly once.
    pub(crate) fn add(
        &mut self,
        route: RouteMessage,
        rule: RuleMessage,
        version: Version,
    ) -> Result<(), Refusal> {
        let mut add = |message| match self.request(message, NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        };
        let route = add(RouteNetlinkMessage::NewRoute(route));
        route.map_err(Refusal::of(Operation::Route(version)))?;
        let rule = add(RouteNetlinkMessage::NewRule(rule));
        rule.map_err(Refusal::of(Operation::Rule(version)))
    }

    /// Removes something; returns whether it existed.
    pub(crate) fn remove(&mut self, message: RouteNetlinkMessage) -> io::Result<bool> {
        match self.request(message, 0) {
            Ok(()) => Ok(true),
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All routes of all tables.
    pub(crate) fn routes(&mut self) -> io::Result<Vec<RouteMessage>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut all = RouteMessage::default();
            all.header.address_family = family;
            self.send(RouteNetlinkMessage::GetRoute(all), NLM_F_DUMP)?;
            while self.receive_routes(&mut routes)? {}
        }
        Ok(routes)
    }

    /// Receives a part of a list; returns whether there is more.
    fn receive_routes(&mut self, routes: &mut Vec<RouteMessage>) -> io::Result<bool> {
        let (bytes, _) = self.socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(io::Error::other)?;
            let length = (message.header.length as usize).next_multiple_of(4).max(16);
            rest = rest.get(length..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(false),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                    routes.push(route);
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Sends a request and waits for its completion.
    pub(crate) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        self.answer()?.map(drop)
    }

    /// Waits for the answer to the last request: a refusal, a message, or `None` for a mere
    /// acknowledgement.
    ///
    /// # Errors
    /// If no answer can be received.
    fn answer(&mut self) -> io::Result<io::Result<Option<RouteNetlinkMessage>>> {
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
                .map_err(io::Error::other)?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => return Ok(Ok(Some(message))),
                NetlinkPayload::Error(error) => {
                    return Ok(error.code.map_or(Ok(None), |_| Err(error.to_io())));
                }
                _ => {}
            }
        }
    }
}

/// ENOENT for a rule, ESRCH for a route; EAFNOSUPPORT or EOPNOTSUPP without IPv6; ENODEV if IPv6 is
/// off on the loopback device.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ESRCH | libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENODEV)
    )
}

#[cfg(test)]
mod tests;
