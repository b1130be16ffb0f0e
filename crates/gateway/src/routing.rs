//! Brings packets that bear our mark to this machine whatever their
//! destination: a rule by packet mark and a routing table of our own with one
//! local route, for IPv4 and IPv6.
//!
//! Both bear our own protocol number, so that they are known as ours. Leftovers
//! of a gateway that was killed do no harm (nothing sets the mark any more) and
//! the next start removes them. The requests are synchronous so that
//! dropping [`Routing`] removes everything on every way out.

mod kind;

use std::io;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
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
use crate::rule::{Mark, Version};

/// Our routing protocol number: none that iproute2's `rt_protos` knows.
pub(crate) const PROTOCOL: RouteProtocol = RouteProtocol::Other(159);
/// Routing tables 5900 and up: one for each slot.
const FIRST_TABLE: u32 = 5900;
/// Behind the rule for local addresses (0), before the operator's own.
pub(crate) const PRIORITY: u32 = 59;
/// The loopback device is the first of every network namespace.
const LOOPBACK: u32 = 1;

/// The rules and routes of one gateway. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Routing {
    slot: Slot,
}

impl Routing {
    /// Installs rules and routes for the packets of `slot`, and removes the
    /// leftovers of gateways that are no more. With what was refused for IPv6: then it
    /// holds for IPv4 alone.
    ///
    /// # Errors
    /// What the kernel refuses for IPv4.
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
        // From here on a failure drops the value and so removes what is there.
        let routing = Self { slot };
        let without_v6 = for_versions(versions, |version| routing.add(&mut kernel, version))?;
        Ok((routing, without_v6))
    }

    /// Adds what is not there: refused at the start, or removed by the kernel when IPv6 or
    /// the loopback device was switched off. With what is refused for IPv6.
    ///
    /// # Errors
    /// What the kernel refuses for IPv4.
    pub(crate) fn restore(&self, versions: &[Version]) -> Result<Option<Refusal>, Refusal> {
        let mut kernel = Kernel::open().map_err(Refusal::of(Operation::Route(Version::V4)))?;
        for_versions(versions, |version| self.add(&mut kernel, version))
    }

    fn add(&self, kernel: &mut Kernel, version: Version) -> Result<(), Refusal> {
        let rule = rule(self.slot.mark(), table(self.slot), version);
        kernel.add(route(self.slot, version), rule, version)
    }
}

/// Carries `work` out for these versions. A machine may be without IPv6, or have it
/// switched off: a refusal for IPv6 is handed back, and IPv4 works.
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
            tracing::warn!("routing table {} is left behind: {error}", table(self.slot));
        }
    }
}

/// Whether packets can go round by the loopback device. IPv4 connections are handed over
/// without it; the kernel refuses the route of IPv6.
pub(crate) fn is_loopback_up() -> bool {
    let devices = getifaddrs().into_iter().flatten();
    let mut loopback = devices.filter(|device| device.flags.contains(InterfaceFlags::IFF_LOOPBACK));
    loopback.any(|device| device.flags.contains(InterfaceFlags::IFF_UP))
}

/// What an operator types for the same effect.
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

/// A rule that has packets with a mark routed by a table.
pub(crate) fn rule(mark: Mark, table: u32, version: Version) -> RuleMessage {
    rule_at(PRIORITY, mark, table, version)
}

/// The same with another priority.
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

/// The address family of a version of IP.
pub(crate) fn family(version: Version) -> AddressFamily {
    match version {
        Version::V4 => AddressFamily::Inet,
        Version::V6 => AddressFamily::Inet6,
    }
}

/// A socket to the kernel's routing tables.
pub(crate) struct Kernel {
    socket: Socket,
    sequence: u32,
}

impl Kernel {
    /// A socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::new(NETLINK_ROUTE)?, sequence: 0 })
    }

    /// Removes everything of `slot`, however often it is there.
    fn sweep(&mut self, slot: Slot) -> io::Result<()> {
        for version in [Version::V4, Version::V6] {
            let rule = || rule(slot.mark(), table(slot), version);
            while self.remove(RouteNetlinkMessage::DelRule(rule()))? {}
            while self.remove(RouteNetlinkMessage::DelRoute(route(slot, version)))? {}
        }
        Ok(())
    }

    /// Has a route and the rule that leads to it be there, once.
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

    /// Whether there was something to remove.
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

    /// Adds what comes of a list; whether there is more.
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

    /// Has the kernel carry out a request, and waits until it has.
    pub(crate) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        self.answer()?.map(drop)
    }

    /// Waits for what the kernel answers to the message that was sent last: its refusal, or a
    /// message; none if it only acknowledges that.
    ///
    /// # Errors
    /// When no answer can be had.
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

/// ENOENT for a rule, ESRCH for a route; EAFNOSUPPORT without IPv6, or
/// ENETDOWN or ENODEV where the loopback device has no part in it.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ESRCH | libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENODEV)
    )
}

#[cfg(test)]
mod tests;
