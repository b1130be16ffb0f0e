//! Requests to the kernel's routing, one after the other (rtnetlink(7)). They need no runtime, so
//! that a destructor can make them.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{SockFlag, SockProtocol};

use super::socket::NetlinkSocket;

/// Length of `struct nlmsghdr`, and alignment of messages (NLMSG_ALIGNTO).
const HEADER: usize = 16;
const ALIGNMENT: usize = 4;

/// A netlink socket to the routing tables, rules and devices of one network namespace.
#[derive(Debug)]
pub struct RouteSocket {
    socket: NetlinkSocket,
    sequence: u32,
}

impl RouteSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Those of socket(2).
    pub fn open() -> io::Result<Self> {
        let socket = NetlinkSocket::open(SockProtocol::NetlinkRoute, SockFlag::empty())?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Creates an object that must not exist yet.
    ///
    /// # Errors
    /// The kernel's refusal, `AlreadyExists` among them.
    pub fn create(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Creates an object unless it exists already.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn ensure(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        match self.create(message) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    }

    /// Removes an object; returns true if it existed.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove(&mut self, message: RouteNetlinkMessage) -> io::Result<bool> {
        match self.request(message, 0) {
            Ok(()) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and waits for its completion.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        self.answer().map(drop)
    }

    /// Sends a request for one object and waits for it.
    pub(super) fn query(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> io::Result<RouteNetlinkMessage> {
        self.send(message, 0)?;
        self.answer()?.ok_or_else(|| io::Error::other("an acknowledgement for an answer"))
    }

    /// Lists all objects of a kind: the answers to a request such as `GetRule`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn list(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(message, NLM_F_DUMP)?;
        let mut found = Vec::new();
        while self.receive_part(&mut found)? {}
        Ok(found)
    }

    /// Adds a route to a subnet, given with its prefix length, through a neighbour.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn add_route(&mut self, to: IpAddr, prefix: u8, via: IpAddr) -> io::Result<()> {
        let mut route = route_to(to, prefix);
        route.header.table = libc::RT_TABLE_MAIN;
        route.header.protocol = RouteProtocol::Static;
        route.header.scope = RouteScope::Universe;
        route.header.kind = RouteType::Unicast;
        route.attributes.push(RouteAttribute::Gateway(via.into()));
        self.create(RouteNetlinkMessage::NewRoute(route))
    }

    /// Returns the route that packets to `to` take.
    ///
    /// # Errors
    /// If there is none: the kernel's errors are those of connect(2).
    pub fn route(&mut self, to: IpAddr) -> io::Result<RouteMessage> {
        let host = if to.is_ipv4() { 32 } else { 128 };
        match self.query(RouteNetlinkMessage::GetRoute(route_to(to, host)))? {
            RouteNetlinkMessage::NewRoute(route) => Ok(route),
            other => Err(io::Error::other(format!("no route but {other:?}"))),
        }
    }

    /// Returns the route to `to` of packets from `source` that come in by the device with index
    /// `device`. Rules that match the incoming interface (`ip rule add iif`) are followed.
    ///
    /// # Errors
    /// If there is none, or if the kernel would not forward such a packet.
    pub fn route_from(
        &mut self,
        source: IpAddr,
        device: u32,
        to: IpAddr,
    ) -> io::Result<RouteMessage> {
        let host = if to.is_ipv4() { 32 } else { 128 };
        let mut route = route_to(to, host);
        route.header.source_prefix_length = host;
        route.attributes.push(RouteAttribute::Source(source.into()));
        route.attributes.push(RouteAttribute::Iif(device));
        match self.query(RouteNetlinkMessage::GetRoute(route))? {
            RouteNetlinkMessage::NewRoute(route) => Ok(route),
            other => Err(io::Error::other(format!("no route but {other:?}"))),
        }
    }

    /// Lists the routes of all tables that lead out by the device with this index, among others if
    /// they have several next hops. The kernel leaves out all other routes, of which a router may
    /// have a million.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn routes_through(&mut self, device: u32) -> io::Result<Vec<RouteMessage>> {
        // Before Linux 4.20 the kernel lists all, which `leads_through` filters.
        let _ = self.socket.check_requests();
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut wanted = RouteMessage::default();
            wanted.header.address_family = family;
            wanted.attributes = vec![RouteAttribute::Oif(device)];
            match self.list(RouteNetlinkMessage::GetRoute(wanted)) {
                Ok(found) => routes.extend(found.into_iter().filter_map(|message| match message {
                    RouteNetlinkMessage::NewRoute(route) if leads_through(&route, device) => {
                        Some(route)
                    }
                    _ => None,
                })),
                // A kernel without IPv6.
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(routes)
    }

    /// Returns the next hop for packets to `to`; `to` itself if it is a neighbour.
    ///
    /// # Errors
    /// If there is no route.
    pub fn next_hop(&mut self, to: IpAddr) -> io::Result<IpAddr> {
        let route = self.route(to)?;
        let gateway = route.attributes.into_iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(gateway.into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(gateway)) => Some(gateway.into()),
            _ => None,
        });
        Ok(gateway.unwrap_or(to))
    }

    /// Lists all routes of all tables.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn routes(&mut self) -> io::Result<Vec<RouteMessage>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut all = RouteMessage::default();
            all.header.address_family = family;
            let found = self.list(RouteNetlinkMessage::GetRoute(all))?;
            routes.extend(found.into_iter().filter_map(|message| match message {
                RouteNetlinkMessage::NewRoute(route) => Some(route),
                _ => None,
            }));
        }
        Ok(routes)
    }

    /// Receives a part of a list; returns true if there is more.
    fn receive_part(&mut self, found: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
        let bytes = self.socket.receive()?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = parse(rest)?;
            // At least a header, so that a length of 0 does not loop for ever.
            let length = (message.header.length as usize).next_multiple_of(ALIGNMENT).max(HEADER);
            rest = rest.get(length..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(false),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => found.push(message),
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
        self.socket.send(&bytes)
    }

    /// Waits for the answer to the last request: a message, or `None` for a mere acknowledgement.
    fn answer(&mut self) -> io::Result<Option<RouteNetlinkMessage>> {
        loop {
            let answer = parse(&self.socket.receive()?)?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => return Ok(Some(message)),
                NetlinkPayload::Error(error) => {
                    return error.code.map_or(Ok(None), |_| Err(error.to_io()));
                }
                _ => {}
            }
        }
    }
}

fn leads_through(route: &RouteMessage, device: u32) -> bool {
    route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Oif(through) => *through == device,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == device),
        _ => false,
    })
}

fn route_to(to: IpAddr, prefix: u8) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(to);
    route.header.destination_prefix_length = prefix;
    route.attributes = vec![RouteAttribute::Destination(to.into())];
    route
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Returns true if an error means that an object does not exist: ENOENT for a rule, ESRCH for a
/// route; EAFNOSUPPORT or EOPNOTSUPP without IPv6; ENODEV if IPv6 is off on the loopback device.
pub fn is_not_found(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ESRCH | libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENODEV)
    )
}

/// Returns a non-blocking descriptor that becomes readable when a route, a routing rule or a device
/// of the calling thread's network namespace changes. It yields netlink messages.
///
/// # Errors
/// Those of socket(2).
pub fn watch_changes() -> io::Result<OwnedFd> {
    /// Multicast groups 1, 7, 8, 11 and 19 (`linux/rtnetlink.h`): links, IPv4 routes and rules, IPv6
    /// routes and rules.
    const GROUPS: u32 = 1 << 0 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 18;
    let socket = NetlinkSocket::open(SockProtocol::NetlinkRoute, SockFlag::SOCK_NONBLOCK)?;
    socket.join(GROUPS)?;
    Ok(socket.into())
}

fn parse(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes).map_err(io::Error::other)
}
