//! Requests to the kernel's routing, one after the other (rtnetlink(7)). They need no runtime, so
//! that a destructor can make them.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{SockFlag, SockProtocol};

use super::socket::Socket;

/// Length of `struct nlmsghdr`, and alignment of messages (NLMSG_ALIGNTO).
const HEADER: usize = 16;
const ALIGNMENT: usize = 4;

/// A netlink socket to the routing tables, rules and devices of one network namespace.
#[derive(Debug)]
pub struct RouteSocket {
    socket: Socket,
    sequence: u32,
}

impl RouteSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Those of socket(2).
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(SockProtocol::NetlinkRoute, SockFlag::empty())?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Creates what does not exist yet.
    ///
    /// # Errors
    /// The kernel's refusal, `AlreadyExists` among them.
    pub fn create(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends a request and waits for its completion.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        self.answer()?.map(drop)
    }

    /// Sends a request and waits for what it asks for.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn query(&mut self, message: RouteNetlinkMessage) -> io::Result<Option<RouteNetlinkMessage>> {
        self.send(message, 0)?;
        self.answer()?
    }

    /// Adds a route to a subnet, given with its prefix length, through a neighbour.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn add_route(&mut self, to: (IpAddr, u8), via: IpAddr) -> io::Result<()> {
        let mut route = route_to(to);
        route.header.table = libc::RT_TABLE_MAIN;
        route.header.protocol = RouteProtocol::Static;
        route.header.scope = RouteScope::Universe;
        route.header.kind = RouteType::Unicast;
        route.attributes.push(RouteAttribute::Gateway(via.into()));
        self.create(RouteNetlinkMessage::NewRoute(route))
    }

    /// The next hop for packets to `to`; `to` itself if it is a neighbour.
    ///
    /// # Errors
    /// If there is no route.
    pub fn next_hop(&mut self, to: IpAddr) -> io::Result<IpAddr> {
        let host = if to.is_ipv4() { 32 } else { 128 };
        let route = match self.query(RouteNetlinkMessage::GetRoute(route_to((to, host))))? {
            Some(RouteNetlinkMessage::NewRoute(route)) => route,
            _ => return Ok(to),
        };
        let gateway = route.attributes.into_iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(gateway.into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(gateway)) => Some(gateway.into()),
            _ => None,
        });
        Ok(gateway.unwrap_or(to))
    }

    /// All routes of all tables.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn routes(&mut self) -> io::Result<Vec<RouteMessage>> {
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
        let bytes = self.socket.receive()?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = parse(rest)?;
            let length = (message.header.length as usize).next_multiple_of(ALIGNMENT).max(HEADER);
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
        self.socket.send(&bytes)
    }

    /// Waits for the answer to the last request: a refusal, a message, or `None` for a mere
    /// acknowledgement.
    ///
    /// # Errors
    /// If no answer can be received.
    fn answer(&mut self) -> io::Result<io::Result<Option<RouteNetlinkMessage>>> {
        loop {
            let answer = parse(&self.socket.receive()?)?;
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

fn route_to((to, prefix): (IpAddr, u8)) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(to);
    route.header.destination_prefix_length = prefix;
    route.attributes = vec![RouteAttribute::Destination(to.into())];
    route
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn parse(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes).map_err(io::Error::other)
}
