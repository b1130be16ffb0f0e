//! Looks up how the kernel routes an address.

use std::io;
use std::net::IpAddr;

use pep::traffic::Version;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};

use super::{Kernel, family, is_absence};

impl Kernel {
    /// Current type of the route to `destination`; `None` if there is no route.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub(crate) fn kind_of(&mut self, destination: IpAddr) -> io::Result<Option<RouteType>> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(Version::of(destination));
        let (length, address) = match destination {
            IpAddr::V4(v4) => (32, RouteAddress::Inet(v4)),
            IpAddr::V6(v6) => (128, RouteAddress::Inet6(v6)),
        };
        question.header.destination_prefix_length = length;
        question.attributes = vec![RouteAttribute::Destination(address)];
        self.send(RouteNetlinkMessage::GetRoute(question), 0)?;
        match self.answer()? {
            Ok(Some(RouteNetlinkMessage::NewRoute(route))) => Ok(Some(route.header.kind)),
            Ok(other) => Err(io::Error::other(format!("no route but {other:?}"))),
            Err(error) => no_route(error),
        }
    }
}

/// The errors that `connect` would report: no route, or a route of type unreachable, prohibit or
/// blackhole.
fn no_route(error: io::Error) -> io::Result<Option<RouteType>> {
    const NO_ROUTE: [i32; 5] =
        [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL, libc::ENETDOWN];
    let is_answer = error.raw_os_error().is_some_and(|code| NO_ROUTE.contains(&code));
    if is_answer || is_absence(&error) { Ok(None) } else { Err(error) }
}
