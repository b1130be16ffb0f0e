//! Detects IPv6 support of the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::errno::Errno;

/// Returns true if the kernel supports IPv6 for this process. It may still be disabled on every
/// device; connections then fail as if there were no route.
pub fn has_ipv6() -> bool {
    let bound = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    // Other errors, such as a lack of descriptors, say nothing about IPv6.
    let absent = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL].map(|errno| errno as i32);
    !bound.is_err_and(|error| error.raw_os_error().is_some_and(|code| absent.contains(&code)))
}

/// Returns the wildcard address with this port: `::`, which includes IPv4, or `0.0.0.0` without
/// IPv6.
pub fn any_address(port: u16) -> SocketAddr {
    let any: IpAddr =
        if has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, port)
}
