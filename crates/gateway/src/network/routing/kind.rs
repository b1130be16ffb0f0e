//! Look-up of the type of the route to an address.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::RouteType;
use os::netlink::{RouteSocket, is_not_found};

/// Returns the type of the current route to `destination`; `None` if there is no route.
///
/// # Errors
/// If the kernel does not answer.
pub(crate) fn kind_of(
    kernel: &mut RouteSocket,
    destination: IpAddr,
) -> io::Result<Option<RouteType>> {
    kernel.route(destination).map(|route| Some(route.header.kind)).or_else(no_route)
}

fn no_route(error: io::Error) -> io::Result<Option<RouteType>> {
    if is_no_route(&error) { Ok(None) } else { Err(error) }
}

/// Returns whether an error means no route, or a route of type unreachable, prohibit or blackhole. The
/// kernel reports these by the errors of `connect`.
pub(crate) fn is_no_route(error: &io::Error) -> bool {
    const NO_ROUTE: [i32; 5] =
        [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL, libc::ENETDOWN];
    let is_answer = error.raw_os_error().is_some_and(|code| NO_ROUTE.contains(&code));
    is_answer || is_not_found(error)
}
